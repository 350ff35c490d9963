"""Pictures of HZB levels. Nothing is computed here beyond colours and places on the page.

matplotlib is imported when a picture is asked for, never with this module, and pyplot not at all:
no window, no display, no global state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap, Normalize
    from matplotlib.figure import Figure

__all__ = ["mips"]

_LAYOUTS = ("true", "tiles")
_TILE_COLUMNS = 4

# What has no place on the depth scale has a colour of its own, outside the usual colour maps.
_SPECIAL_COLORS = {"+inf": "#d4d7dd", "-inf": "#858a94", "NaN": "#f08fb1"}
_INK = "#333333"
_COVERED_LINE: dict[str, Any] = {"color": _INK, "linewidth": 0.7, "linestyle": (0, (4, 3))}
# Steps of the depth scale: as many as a colour map has colours.
_SHARES = np.linspace(0.0, 1.0, 257)

# Sizes in inches of a new figure: a page's text width less what the colour bar takes, and the
# height that pictures may have together.
_PICTURE_WIDTH = 6.3
_PICTURE_HEIGHT = 8.0
_BAR_WIDTH = 0.9
_TITLE_HEIGHT = 0.3

# Text, in points.
_FONT = 7.0
_LINE = 1.35 * _FONT
_CHARACTER = 0.62 * _FONT


def mips(
    chain: Sequence[Any],
    *,
    layout: str = "true",
    reversed_z: bool = True,
    shape: Sequence[int] | None = None,
    ax: Axes | Sequence[Axes] | None = None,
    cmap: str | Colormap = "viridis",
    title: str | None = None,
) -> Figure:
    """Draw the levels of one frame; near is bright, whether near = 1 (reversed-Z) or near = 0.

    All levels share one depth scale. It goes by rank: equal shares of the finite values in `chain`
    get equal shares of the colour map. So a reversed-Z buffer, whose values crowd towards 0, shows
    as much as one of linear depth does; the colour bar gives the values. Infinities and NaN have
    colours of their own, and a legend entry where they occur.

    Parameters
    ----------
    chain : sequence of array_like, each of shape (h_k, w_k), or Bounds
        The levels of one frame, level 0 first, as `hzb.build` returns them, of any real type. A
        `Bounds` (or a pair of lists) is drawn as two chains on one scale.
    layout : {"true", "tiles"}
        Levels at their true relative size, level 0 on the left and the others in a column beside
        it; or all as equal tiles, each stretched to the shape of level 0, which suits long frames.
    reversed_z : bool
        The depth convention that `chain` was built with. It is stated at the colour bar, and turns
        the colour map so that near is at its upper end.
    shape : sequence of ints, (..., height, width), optional
        The shape of the depth array (or of the view rectangle) that `chain` was made from. With it
        a dashed line marks the part of each level that stands for real pixels, where there is more:
        ``sizing="pow2"`` pads.
    ax : matplotlib.axes.Axes, or a pair of them for a `Bounds`, optional
        Where to draw; a new figure by default. Ticks and frame of the axes are switched off.
    cmap : str or matplotlib.colors.Colormap
        The colour map; near is bright with those that end in bright colours, as most do.
    title : str, optional
        Drawn above the picture.

    Returns
    -------
    matplotlib.figure.Figure
        The new figure, or that of `ax`. Save it with ``figure.savefig("mips.png")``.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    TypeError
        If `chain` is not a list of levels, or a level does not hold real numbers.
    ValueError
        If a level is a batch (index one frame first) or empty, or another argument has a value
        that is not accepted.

    Examples
    --------
    >>> levels = hzb.build(depth)
    >>> hzb.plot.mips(levels).savefig("mips.png")
    """
    if layout not in _LAYOUTS:
        raise ValueError(f"layout: {layout!r} is not accepted; pass 'true' or 'tiles'")
    chains = _chains(chain)
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise ImportError(
            "hzb.plot needs matplotlib, which is not installed: pip install hzb[plot]"
        ) from error
    colors = mpl.colormaps.get_cmap(cmap)
    colors = colors if reversed_z else colors.reversed()
    norm = _rank_norm(chains)

    boxes = _tiles(chains[0]) if layout == "tiles" else _atlas(chains[0])
    if ax is None:
        page, axes = _new_figure(boxes, chains[0], rows=len(chains), title=title)
        _add_scale(axes, norm, colors, reversed_z)
    else:
        axes = _given_axes(ax, len(chains))
        _add_scale(axes, norm, colors, reversed_z)
        page = _fit(boxes, chains[0], *_inches(axes[0]))
        if title is not None:
            axes[0].set_title(title, fontsize=_FONT + 3, color=_INK)

    covered = [] if shape is None else _covered(boxes, chains[0], *shape[-2:])
    for axis, levels, name in zip(axes, chains, _row_names(len(chains), reversed_z), strict=True):
        _draw(axis, levels, page, norm, colors)
        _draw_covered(axis, covered)
        if name:
            axis.set_title(name, loc="left", fontsize=_FONT + 1, color=_INK)
    _add_legend(axes[-1], chains, is_padded=bool(covered))
    figure: Figure = axes[0].figure.figure
    return figure


def _chains(chain: Any) -> list[list[NDArray[Any]]]:
    if not isinstance(chain, (list, tuple)):
        raise TypeError(
            f"chain: {type(chain).__name__} is not a list of levels; pass what hzb.build returned"
        )
    is_pair = len(chain) == 2 and all(isinstance(part, (list, tuple)) for part in chain)
    chains = [_levels(part) for part in (chain if is_pair else [chain])]
    first, *others = [[level.shape for level in levels] for levels in chains]
    if any(shapes != first for shapes in others):
        raise ValueError(f"chain: the levels of a pair differ in shape: {first} and {others[0]}")
    return chains


def _levels(chain: Sequence[Any]) -> list[NDArray[Any]]:
    if not chain:
        raise ValueError("chain: no levels; pass what hzb.build returned")
    levels = [np.asarray(level) for level in chain]
    for k, level in enumerate(levels):
        if level.dtype.kind not in "fiu":
            raise TypeError(f"chain[{k}]: dtype {level.dtype} is not a real number; pass levels")
        if level.ndim > 2:
            frame = ", ".join("0" * (level.ndim - 2))
            raise ValueError(
                f"chain[{k}]: shape {level.shape} is a batch; index one frame, for instance "
                f"hzb.plot.mips([level[{frame}] for level in chain])"
            )
        if level.ndim < 2 or level.size == 0:
            raise ValueError(
                f"chain[{k}]: shape {level.shape} is not accepted; pass (height, width) levels"
            )
    return levels


def _row_names(rows: int, reversed_z: bool) -> list[str]:
    if rows == 1:
        return [""]
    furthest, closest = ("min", "max") if reversed_z else ("max", "min")
    return [f"furthest bound ({furthest})", f"closest bound ({closest})"]


# Places on the page. Lengths are in texels of level 0, y downwards, unless they are in inches.


class _Box(NamedTuple):
    """Where a level is drawn."""

    x: float
    y: float
    width: float
    height: float


class _Label(NamedTuple):
    """The words of a level; inside its box, or at (x, y) beside it."""

    text: str
    inside: bool
    x: float
    y: float


class _Page(NamedTuple):
    """What is drawn of a chain, and how much room it takes."""

    boxes: list[_Box]
    labels: list[_Label]
    width: float
    height: float
    inch: float


def _atlas(levels: list[NDArray[Any]]) -> list[_Box]:
    """Level 0, and beside it a column of the others, at true size."""
    height, width = levels[0].shape
    gap = max(0.02 * min(height, width), 0.004 * max(height, width))
    boxes = [_Box(0, 0, width, height)]
    y = 0.0
    for level in levels[1:]:
        boxes.append(_Box(width + gap, y, level.shape[1], level.shape[0]))
        y += level.shape[0] + gap
    return boxes


def _tiles(levels: list[NDArray[Any]]) -> list[_Box]:
    """Equal tiles in reading order."""
    height, width = levels[0].shape
    gap = 0.03 * max(height, width)
    return [
        _Box(k % _TILE_COLUMNS * (width + gap), k // _TILE_COLUMNS * (height + gap), width, height)
        for k in range(len(levels))
    ]


def _covered(boxes: list[_Box], levels: list[NDArray[Any]], height: int, width: int) -> list[_Box]:
    """Give the part of each level that stands for pixels of the frame, where that is not all."""
    parts = []
    for k, (box, level) in enumerate(zip(boxes, levels, strict=True)):
        rows, columns = (
            min(side, -(-source >> k + 1))
            for side, source in zip(level.shape, (height, width), strict=True)
        )
        if (rows, columns) != level.shape:
            x_scale, y_scale = box.width / level.shape[1], box.height / level.shape[0]
            parts.append(_Box(box.x, box.y, columns * x_scale, rows * y_scale))
    return parts


def _fit(boxes: list[_Box], levels: list[NDArray[Any]], width: float, height: float) -> _Page:
    """Lay a page out that is as large as fits into so many inches."""
    corners = [(box.x + box.width, box.y + box.height) for box in boxes]
    page_width, page_height = map(max, zip(*corners, strict=True))
    # Words take room, and room changes how large words are in texels: twice comes close enough.
    for _ in range(2):
        page = _page(boxes, levels, max(page_width / width, page_height / height))
        page_width, page_height = page.width, page.height
    return page


def _page(boxes: list[_Box], levels: list[NDArray[Any]], inch: float) -> _Page:
    """Name each level inside its box where the words fit, and else beside it."""
    line, character = inch / 72 * _LINE, inch / 72 * _CHARACTER
    words = [f"{k}: {level.shape[1]}×{level.shape[0]}" for k, level in enumerate(levels)]
    fits = [
        box.width > character * (len(text) + 1) and box.height > 2 * line
        for text, box in zip(words, boxes, strict=True)
    ]
    width = max(box.x + box.width for box in boxes)
    height = max(box.y + box.height for box in boxes)
    outside = [box for box, fit in zip(boxes, fits, strict=True) if not fit]
    if not outside:
        return _Page(boxes, [_Label(text, True, 0, 0) for text in words], width, height, inch)

    x = max(box.x + box.width for box in outside) + 2.5 * character
    # The column of words may grow downwards, never up into the levels that have theirs inside.
    bottom = max(height - line / 2, outside[0].y + line * (len(outside) - 0.5))
    rows = iter(_spread([box.y + box.height / 2 for box in outside], line, bottom))
    labels = [
        _Label(text, fit, x, 0 if fit else next(rows))
        for text, fit in zip(words, fits, strict=True)
    ]
    longest = max(len(label.text) for label in labels if not label.inside)
    width, height = max(width, x + character * longest), max(height, bottom + line / 2)
    return _Page(boxes, labels, width, height, inch)


def _spread(wanted: list[float], apart: float, bottom: float) -> list[float]:
    """Move ascending positions until they are `apart` and, where that is possible, above `bottom`.

    >>> _spread([0.0, 1.0, 9.0, 9.5], 2.0, 10.0)
    [0.0, 2.0, 8.0, 10.0]
    """
    placed: list[float] = []
    for position in wanted:
        placed.append(max(position, placed[-1] + apart) if placed else position)
    for i in range(1, len(placed) + 1):
        placed[-i] = min(placed[-i], bottom - apart * (i - 1))
    return placed


def _new_figure(
    boxes: list[_Box], levels: list[NDArray[Any]], *, rows: int, title: str | None
) -> tuple[_Page, list[Axes]]:
    """Make a figure of the width of a page's text, or narrower where it would grow too high."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    page = _fit(boxes, levels, _PICTURE_WIDTH, _PICTURE_HEIGHT / rows)
    width = page.width / page.inch + _BAR_WIDTH
    height = rows * max(page.height / page.inch, 1.0) + _TITLE_HEIGHT * (bool(title) + rows)
    figure = Figure(figsize=(width, height), dpi=200, layout="constrained")
    FigureCanvasAgg(figure)
    if title is not None:
        figure.suptitle(title, fontsize=_FONT + 3, color=_INK)
    return page, list(figure.subplots(rows, 1, squeeze=False)[:, 0])


def _given_axes(ax: Any, rows: int) -> list[Axes]:
    axes = list(np.ravel(np.array(ax, dtype=object)))
    if len(axes) != rows:
        needed = "one" if rows == 1 else "a pair, for the two chains"
        raise ValueError(f"ax: {len(axes)} axes are not accepted; pass {needed}")
    return axes


def _inches(axis: Axes) -> tuple[float, float]:
    extent = axis.get_window_extent()
    return extent.width / axis.figure.dpi, extent.height / axis.figure.dpi


# Colours


def _rank_norm(chains: list[list[NDArray[Any]]]) -> Normalize:
    """Give a norm that takes a depth to the share of the finite values below it."""
    from matplotlib.colors import FuncNorm, Normalize

    values = np.concatenate([level.ravel() for levels in chains for level in levels])
    values = np.sort(values[np.isfinite(values)].astype(np.float64))
    if values.size == 0:
        return Normalize(0.0, 1.0)
    knots, first, count = np.unique(
        values[np.round(_SHARES * (values.size - 1)).astype(np.intp)],
        return_index=True,
        return_counts=True,
    )
    if knots.size == 1:
        return Normalize(knots[0], knots[0])
    # A value that holds several shares stands in their middle, but the ends stay the ends.
    shares = (_SHARES[first] + _SHARES[first + count - 1]) / 2
    shares[0], shares[-1] = 0.0, 1.0
    return FuncNorm(
        (
            lambda depth: np.interp(depth, knots, shares),
            lambda share: np.interp(share, shares, knots),
        ),
        vmin=knots[0],
        vmax=knots[-1],
    )


def _special_texels(level: NDArray[Any]) -> dict[str, NDArray[np.bool_]]:
    return {"+inf": level == np.inf, "-inf": level == -np.inf, "NaN": np.isnan(level)}


def _pixels(level: NDArray[Any], norm: Normalize, colors: Colormap) -> NDArray[np.uint8]:
    from matplotlib.colors import to_rgba_array

    depth = np.where(np.isfinite(level), level, 0.0).astype(np.float64)
    pixels = np.array(colors(norm(depth), bytes=True))
    for name, texels in _special_texels(level).items():
        pixels[texels] = np.round(255 * to_rgba_array(_SPECIAL_COLORS[name])[0])
    return pixels


# Drawing


def _draw(
    axis: Axes, levels: list[NDArray[Any]], page: _Page, norm: Normalize, colors: Colormap
) -> None:
    from matplotlib.patches import Rectangle

    for level, box, label in zip(levels, page.boxes, page.labels, strict=True):
        axis.imshow(
            _pixels(level, norm, colors),
            extent=(box.x, box.x + box.width, box.y + box.height, box.y),
            interpolation="antialiased",
            aspect="equal",
        )
        axis.add_patch(
            Rectangle(
                (box.x, box.y),
                box.width,
                box.height,
                fill=False,
                edgecolor=_INK,
                linewidth=0.4,
                clip_on=False,
            )
        )
        _draw_label(axis, label, box)
    axis.set_xlim(0, page.width)
    axis.set_ylim(page.height, 0)
    axis.set_axis_off()


def _draw_covered(axis: Axes, parts: list[_Box]) -> None:
    for box in parts:
        right, bottom = box.x + box.width, box.y + box.height
        outline = [box.x, right, right], [bottom, bottom, box.y]
        axis.plot(*outline, color="white", linewidth=0.7)
        axis.plot(*outline, **_COVERED_LINE)


def _draw_label(axis: Axes, label: _Label, box: _Box) -> None:
    if label.inside:
        axis.annotate(
            label.text,
            (box.x, box.y),
            (3, -3),
            textcoords="offset points",
            va="top",
            fontsize=_FONT,
            color=_INK,
            bbox={"boxstyle": "round,pad=0.2", "facecolor": "#ffffffd0", "linewidth": 0},
        )
    else:
        axis.annotate(
            label.text,
            (box.x + box.width, box.y + box.height / 2),
            (label.x, label.y),
            va="center",
            fontsize=_FONT,
            color=_INK,
            arrowprops={"arrowstyle": "-", "linewidth": 0.4, "color": _INK, "shrinkB": 1},
        )


def _add_scale(axes: list[Axes], norm: Normalize, colors: Colormap, reversed_z: bool) -> None:
    from matplotlib.cm import ScalarMappable

    bar = axes[0].figure.colorbar(
        ScalarMappable(norm, colors), ax=axes, pad=0.01, aspect=30 * len(axes)
    )
    convention = "reversed-Z: 1 near, 0 far" if reversed_z else "standard Z: smaller is nearer"
    bar.set_label(f"depth, scaled by rank ({convention})", fontsize=_FONT, color=_INK)
    ticks = np.unique(norm.inverse(_SHARES[::32]))
    bar.set_ticks(ticks.tolist(), labels=[_number(tick) for tick in ticks])
    bar.ax.minorticks_off()
    bar.ax.tick_params(labelsize=_FONT, length=2, width=0.4, labelcolor=_INK)
    bar.outline.set_linewidth(0.4)


def _number(value: float) -> str:
    return f"{value:.0f}" if 1000 <= abs(value) < 1e6 else f"{value:.3g}"


def _add_legend(axis: Axes, chains: list[list[NDArray[Any]]], *, is_padded: bool) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    found = {
        name
        for levels in chains
        for level in levels
        for name, texels in _special_texels(level).items()
        if texels.any()
    }
    handles: list[Patch | Line2D] = [
        Patch(facecolor=color, edgecolor=_INK, linewidth=0.4, label=name)
        for name, color in _SPECIAL_COLORS.items()
        if name in found
    ]
    if is_padded:
        handles.append(
            Line2D([], [], label="edge of the depth buffer; beyond it, padding", **_COVERED_LINE)
        )
    if handles:
        axis.legend(
            handles=handles,
            loc="upper left",
            bbox_to_anchor=(0.0, 0.0),
            ncols=len(handles),
            frameon=False,
            fontsize=_FONT,
            labelcolor=_INK,
            borderaxespad=0.3,
            handlelength=1.6,
        )
