"""Pictures of levels: what is drawn where, in which colours, and what is refused."""

import io
import subprocess
import sys

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

import hzb
from hzb import plot

VIRIDIS = mpl.colormaps["viridis"]
FAR, NEAR = VIRIDIS(0.0, bytes=True), VIRIDIS(1.0, bytes=True)


def chain_of(height, width, *, sizing="pow2", **options):
    depth = np.linspace(0, 1, height * width, dtype=np.float32).reshape(height, width)
    return hzb.reference.build(depth, sizing=sizing, **options)


def extents(axis):
    """Give where images lie: left, right, bottom, top, y downwards."""
    return [tuple(map(float, image.get_extent())) for image in axis.images]


def words(axis):
    return [text.get_text() for text in axis.texts]


def legend(axis):
    entries = axis.get_legend()
    return [text.get_text() for text in entries.get_texts()] if entries else []


def pixels(axis, level):
    return np.asarray(axis.images[level].get_array())


def bar(figure):
    return next(axis for axis in figure.axes if axis.get_ylabel())


def test_needs_neither_a_display_nor_pyplot():
    script = (
        "import os, sys\n"
        "os.environ.pop('DISPLAY', None)\n"
        "import numpy, hzb, hzb.plot\n"
        "assert 'matplotlib' not in sys.modules\n"
        "figure = hzb.plot.mips([numpy.zeros((2, 2), numpy.float16)])\n"
        "figure.savefig(sys.argv[1])\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", script, "/dev/null"], check=True)


@pytest.mark.parametrize("layout", ["true", "tiles"])
def test_saves_a_png(layout):
    file = io.BytesIO()
    plot.mips(chain_of(37, 53), layout=layout, title="a title").savefig(file)
    assert file.getvalue().startswith(b"\x89PNG\r\n\x1a\n")


@pytest.mark.parametrize("layout", ["true", "tiles"])
@pytest.mark.parametrize("shape", [(1, 1), (1, 4096), (4096, 1), (2, 2), (9, 700)])
def test_every_shape_can_be_drawn(layout, shape):
    chain = chain_of(*shape)
    figure = plot.mips(chain, layout=layout, shape=shape)
    assert len(figure.axes[0].images) == len(chain)
    figure.savefig(io.BytesIO())


def test_levels_are_named_with_width_and_height():
    assert words(plot.mips(chain_of(808, 1264)).axes[0])[:3] == [
        "0: 1024×512",
        "1: 512×256",
        "2: 256×128",
    ]
    assert words(plot.mips(chain_of(2, 9, sizing="floor")).axes[0]) == [
        "0: 4×1",
        "1: 2×1",
        "2: 1×1",
    ]


def test_true_layout_keeps_the_size_of_every_texel():
    chain = chain_of(50, 70, sizing="ceil")
    (axis,) = plot.mips(chain).axes[:1]
    assert axis.get_aspect() == 1.0
    drawn = [(bottom - top, right - left) for left, right, bottom, top in extents(axis)]
    assert drawn == [pytest.approx(level.shape) for level in chain]


@pytest.mark.parametrize("layout", ["true", "tiles"])
def test_levels_do_not_overlap(layout):
    boxes = extents(plot.mips(chain_of(50, 70), layout=layout).axes[0])
    for k, (left, right, bottom, top) in enumerate(boxes):
        for other_left, other_right, other_bottom, other_top in boxes[k + 1 :]:
            assert (
                other_left >= right
                or other_right <= left
                or other_top >= bottom
                or other_bottom <= top
            )


def test_tiles_are_equal():
    boxes = extents(plot.mips(chain_of(50, 70), layout="tiles").axes[0])
    sizes = {(round(right - left, 6), round(bottom - top, 6)) for left, right, bottom, top in boxes}
    assert sizes == {(64.0, 32.0)}


def test_words_beside_levels_keep_apart():
    assert plot._spread([0.0, 1.0, 9.0, 9.5], 2.0, 10.0) == [0.0, 2.0, 8.0, 10.0]
    assert plot._spread([5.0, 5.0, 5.0], 1.0, 9.0) == [5.0, 6.0, 7.0]
    assert plot._spread([], 1.0, 9.0) == []


@pytest.mark.parametrize(
    ("reversed_z", "low", "high"),
    [(True, FAR, NEAR), (False, NEAR, FAR)],
    ids=["reversed", "standard"],
)
def test_near_is_the_upper_end_of_the_colour_map(reversed_z, low, high):
    level = np.array([[0.0, 0.25], [0.5, 1.0]], np.float16)
    drawn = pixels(plot.mips([level], reversed_z=reversed_z).axes[0], 0)
    assert tuple(drawn[0, 0]) == low
    assert tuple(drawn[1, 1]) == high


@pytest.mark.parametrize(
    ("reversed_z", "convention"), [(True, "reversed-Z"), (False, "standard Z")]
)
def test_the_colour_bar_states_the_convention(reversed_z, convention):
    assert convention in bar(plot.mips(chain_of(4, 4), reversed_z=reversed_z)).get_ylabel()


def test_all_levels_and_chains_share_one_scale():
    levels = [np.array([[0.0, 0.3], [0.6, 1.0]], np.float16), np.array([[0.6]], np.float16)]
    others = [np.full((2, 2), 0.3, np.float16), np.array([[0.0]], np.float16)]
    first, second = plot.mips((levels, others)).axes[:2]
    assert tuple(pixels(first, 1)[0, 0]) == tuple(pixels(first, 0)[1, 0])
    assert tuple(pixels(second, 0)[0, 0]) == tuple(pixels(first, 0)[0, 1])
    assert tuple(pixels(second, 1)[0, 0]) == tuple(pixels(first, 0)[0, 0])


def test_the_scale_goes_by_rank():
    # Nine tenths of the values in the last hundredth of the range before 0, as reversed-Z has it.
    values = np.concatenate([np.linspace(1e-4, 1e-2, 900), np.linspace(1e-2, 1, 100)])
    norm = plot._rank_norm([[values.reshape(25, 40)]])
    assert np.asarray(norm([1e-4, 1e-2, 1.0])) == pytest.approx([0.0, 0.9, 1.0], abs=0.005)
    assert norm.inverse([0.0, 0.45, 1.0]) == pytest.approx([1e-4, 5e-3, 1.0], rel=0.02)


def test_the_scale_takes_no_notice_of_what_is_not_finite():
    level = np.array([[0.0, 1.0], [np.inf, np.nan]], np.float32)
    assert (plot._rank_norm([[level]]).vmin, plot._rank_norm([[level]]).vmax) == (0.0, 1.0)


def test_what_is_not_finite_has_its_own_colours_and_legend():
    level = np.array([[0.0, np.inf], [-np.inf, np.nan]], np.float16)
    axis = plot.mips([level]).axes[0]
    assert legend(axis) == ["+inf", "-inf", "NaN"]
    patches = axis.get_legend().get_patches()
    for name, (row, column) in {"+inf": (0, 1), "-inf": (1, 0), "NaN": (1, 1)}.items():
        shown = pixels(axis, 0)[row, column, :3] / 255
        assert tuple(shown) == pytest.approx(to_rgb(plot._SPECIAL_COLORS[name]))
        patch = patches[["+inf", "-inf", "NaN"].index(name)]
        assert tuple(shown) == pytest.approx(patch.get_facecolor()[:3])


def test_the_legend_names_only_what_occurs():
    assert legend(plot.mips([np.array([[0.0, np.inf]], np.float16)]).axes[0]) == ["+inf"]
    assert legend(plot.mips([np.array([[0.0, 1.0]], np.float16)]).axes[0]) == []


@pytest.mark.parametrize("value", [0.0, 0.5, -3.0, np.inf, np.nan])
def test_one_value_everywhere(value):
    figure = plot.mips([np.full((2, 2), value, np.float16), np.full((1, 1), value, np.float16)])
    figure.savefig(io.BytesIO())


@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint16", ">f4", "float64"])
def test_levels_of_any_real_type(dtype):
    plot.mips([np.arange(16).reshape(4, 4).astype(dtype)]).savefig(io.BytesIO())


def test_the_edge_of_the_frame_is_marked_where_levels_are_padded():
    axis = plot.mips(chain_of(5, 8), shape=(5, 8)).axes[0]
    # 8 columns give 4, 2, 1: none padded; 5 rows give 4, 2, 1, of which 3, 2, 1 stand for pixels.
    (outline,) = {tuple(map(tuple, line.get_xydata())) for line in axis.lines}
    assert outline == ((0.0, 3.0), (4.0, 3.0), (4.0, 0.0))
    assert legend(axis) == ["edge of the depth buffer; beyond it, padding"]
    whole = plot.mips(chain_of(8, 8), shape=(8, 8)).axes[0]
    assert (list(whole.lines), legend(whole)) == ([], [])


def test_bounds_are_drawn_as_two_chains():
    bounds = chain_of(20, 30, bounds="both")
    axes = plot.mips(bounds).axes[:2]
    assert [axis.get_title(loc="left") for axis in axes] == [
        "furthest bound (min)",
        "closest bound (max)",
    ]
    for axis, chain in zip(axes, bounds, strict=True):
        assert len(axis.images) == len(chain)
    standard = plot.mips(chain_of(20, 30, bounds="both", reversed_z=False), reversed_z=False)
    assert standard.axes[0].get_title(loc="left") == "furthest bound (max)"


def test_draws_into_given_axes():
    figure = Figure()
    left, right = figure.subplots(1, 2)
    assert plot.mips(chain_of(4, 4), ax=right, title="given") is figure
    assert (len(left.images), len(right.images)) == (0, 2)
    assert right.get_title() == "given"


def test_draws_bounds_into_a_pair_of_axes():
    figure = Figure()
    axes = figure.subplots(2, 1)
    assert plot.mips(chain_of(4, 4, bounds="both"), ax=axes) is figure
    assert [len(axis.images) for axis in axes] == [2, 2]


def test_a_colour_map_by_object():
    level = np.array([[0.0, 1.0]], np.float16)
    drawn = pixels(plot.mips([level], cmap=mpl.colormaps["gray"]).axes[0], 0)
    assert drawn[0].tolist() == [[0, 0, 0, 255], [255, 255, 255, 255]]


@pytest.mark.parametrize(
    ("chain", "error", "message"),
    [
        (np.zeros((2, 2)), TypeError, "ndarray is not a list of levels"),
        ([], ValueError, "no levels"),
        ([np.zeros((3, 2, 2))], ValueError, r"index one frame.*level\[0\]"),
        ([np.zeros((5, 3, 2, 2))], ValueError, r"index one frame.*level\[0, 0\]"),
        ([np.zeros(4)], ValueError, r"chain\[0\]: shape \(4,\) is not accepted"),
        ([np.zeros((4, 4)), np.zeros((0, 4))], ValueError, r"chain\[1\]: shape \(0, 4\)"),
        ([np.zeros((4, 4), complex)], TypeError, "complex128 is not a real number"),
        (([np.zeros((4, 4))], [np.zeros((2, 2))]), ValueError, "differ in shape"),
    ],
)
def test_refuses_what_is_no_chain(chain, error, message):
    with pytest.raises(error, match=message):
        plot.mips(chain)


def test_refuses_an_unknown_layout():
    with pytest.raises(
        ValueError, match="layout: 'circle' is not accepted; pass 'true' or 'tiles'"
    ):
        plot.mips(chain_of(4, 4), layout="circle")


def test_refuses_the_wrong_number_of_axes():
    axes = Figure().subplots(1, 2)
    with pytest.raises(ValueError, match="ax: 2 axes are not accepted; pass one"):
        plot.mips(chain_of(4, 4), ax=axes)
    with pytest.raises(ValueError, match="ax: 1 axes are not accepted; pass a pair"):
        plot.mips(chain_of(4, 4, bounds="both"), ax=axes[0])


def test_says_what_to_install_without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install hzb\[plot\]"):
        plot.mips(chain_of(4, 4))
