"""The command line: what it prints, what it writes, and how it fails."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from bits import assert_same_bits

import hzb
from hzb import _core
from hzb.__main__ import main

ROTUNDA = Path(__file__).parent / "data" / "depth" / "gltf_rotunda_reversedz_1264x808.npz"


@pytest.fixture
def depth(rng, tmp_path):
    """Give a small depth array, and the file that holds it."""
    array = rng.random((21, 34), np.float32)
    np.save(tmp_path / "depth.npy", array)
    return array, tmp_path / "depth.npy"


@pytest.fixture
def command(spec, capsys):
    """Give a function that runs ``build`` on a device; it gives status, output and errors."""

    def command(*arguments):
        status = main(["build", "--device", spec, *map(str, arguments)])
        return status, *capsys.readouterr()

    return command


def run(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "hzb", *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )


def levels_of(file, name="level"):
    with np.load(file) as arrays:
        count = sum(key.startswith(f"{name}_") for key in arrays.files)
        return [arrays[f"{name}_{k}"] for k in range(count)]


# info


def test_info_for_machines():
    done = run("info", "--json", HZB_DEVICE="something", VK_LOADER_DEBUG="")
    assert (done.returncode, done.stderr) == (0, "")
    facts = json.loads(done.stdout)
    assert facts["versions"]["hzb"] == hzb.__version__
    assert facts["versions"]["numpy"] == np.__version__
    assert facts["environment"]["HZB_DEVICE"] == "something"
    assert facts["environment"]["VK_LOADER_DEBUG"] == ""
    assert {"VK_DRIVER_FILES", "VK_ICD_FILENAMES", "VK_LAYER_PATH", "VK_INSTANCE_LAYERS"} < set(
        facts["environment"]
    )
    for listed, record in zip(facts["devices"], hzb.devices(), strict=True):
        assert listed["name"] == record.name
        assert listed["uuid"] == record.uuid
        if record.kind == "native":
            assert listed["instruction_set"] in listed["instruction_sets"]
            assert listed["threads"] >= 1
        else:
            assert listed["group_invocations"] >= 64
            assert isinstance(listed["storage16"], bool)
            assert listed["auto_1080p"] in listed["kernels"]


def test_info_for_people(device, spec):
    done = run("info")
    assert (done.returncode, done.stderr) == (0, "")
    for words in (
        f"hzb {hzb.__version__}",
        f"[{device.index}] {device.name}",
        spec,
        "instructions" if device.kind == "native" else "16-bit storage",
        "HZB_DEVICE",
    ):
        assert words in done.stdout


@pytest.mark.vulkan
def test_info_shows_features_as_they_are_hidden(device):
    done = run("info", "--json", HZB_HIDE_FEATURES="storage16,images")
    facts = json.loads(done.stdout)["devices"][device.index]
    assert (facts["storage16"], facts["image_side"]) == (False, 0)


@pytest.fixture
def info(device, monkeypatch, capsys):
    """Give a function that runs ``info`` as if there were one device."""
    details = _core._device_details()[device.index]

    def info(*arguments):
        monkeypatch.setattr(hzb, "devices", lambda: [device])
        monkeypatch.setattr(_core, "_device_details", lambda: [details])
        assert main(["info", *arguments]) == 0
        out, err = capsys.readouterr()
        assert err == ""
        return out

    return info


@pytest.fixture
def wrong_answer():
    """Give a function that makes the nth known case from now on come out wrong."""
    yield lambda nth: _core._arm_fault("known_answer", nth)
    _core._arm_fault("known_answer", 0)


def auto_of(device):
    return _core._describe_plan((1080, 1920), device=device)["dispatches"][0]["kernel"]


@pytest.mark.vulkan
def test_info_tries_the_kernels(device, info, caplog):
    auto = auto_of(device)
    facts = json.loads(info("--json"))["devices"][0]
    assert facts["kernels"] == {
        "per_level": "not checked",
        "batched": "not checked",
        "two_pass": "right",
        "single_pass": "right",
    }
    assert facts["auto_1080p"] == auto
    names = "per_level, batched, two_pass, single_pass"
    assert f"      kernels         {names}; auto at 1920×1080: {auto}\n" in info()
    assert caplog.records == []


@pytest.mark.vulkan
@pytest.mark.whole_if_slow
@pytest.mark.parametrize(
    ("nth", "wrong", "right"), [(1, "two_pass", "single_pass"), (2, "single_pass", "two_pass")]
)
def test_info_shows_a_kernel_that_the_driver_gets_wrong(
    device, info, wrong_answer, caplog, nth, wrong, right
):
    auto = {wrong: right}.get(auto_of(device), auto_of(device))
    wrong_answer(nth)
    line = f"per_level, batched, {right}, not {wrong} (wrong answer); auto at 1920×1080: {auto}\n"
    assert f"      kernels         {line}" in info()
    assert caplog.messages == [
        f"{device.name}, driver {device.driver_name} {device.driver_version}, gets the kernel of "
        f'algorithm="{wrong}" wrong: its known case came out with other bits. Builds take another '
        "one from now on, with the right bits"
    ]
    wrong_answer(nth)
    facts = json.loads(info("--json"))["devices"][0]
    assert (facts["kernels"][wrong], facts["kernels"][right]) == ("wrong answer", "right")
    assert facts["auto_1080p"] == auto


@pytest.mark.vulkan
def test_info_shows_kernels_that_a_device_lacks(device, info, monkeypatch):
    monkeypatch.setenv("HZB_HIDE_FEATURES", "shuffle")
    with hzb.Context(device) as context:
        auto = _core._describe_plan((1080, 1920), context=context)["dispatches"][0]["kernel"]
    assert auto in ("per_level", "batched")
    lacking = "not two_pass (missing), not single_pass (missing)"
    line = f"per_level, batched, {lacking}; auto at 1920×1080: {auto}\n"
    assert f"      kernels         {line}" in info()


@pytest.mark.vulkan
def test_info_survives_a_device_that_cannot_be_opened_twice(info, monkeypatch):
    def refuse(device):
        raise hzb.Error("vkCreateDevice failed: VK_ERROR_INITIALIZATION_FAILED")

    monkeypatch.setattr(hzb, "Context", refuse)
    reason = "vkCreateDevice failed: VK_ERROR_INITIALIZATION_FAILED"
    assert f"      kernels         not tried: {reason}\n" in info()


def test_info_says_why_there_is_no_driver():
    nowhere = "/nowhere/icd.json"
    done = run("info", VK_DRIVER_FILES=nowhere, VK_ICD_FILENAMES=nowhere)
    assert done.returncode == 0
    assert "devices: 1" in done.stdout
    assert f"VK_DRIVER_FILES             {nowhere}" in done.stdout
    assert "driver" in done.stdout.split("layers")[0]


def test_info_says_why_there_is_no_loader(monkeypatch, capsys):
    reason = "the Vulkan loader, libvulkan.so.1, was not found"
    details = {"instance_version": None, "layers": [], "error": reason}
    monkeypatch.setattr(_core, "_loader_details", lambda: dict(details))
    assert main(["info"]) == 0
    assert reason in capsys.readouterr().out


def test_info_survives_a_device_that_fails(device, monkeypatch, capsys):
    details = _core._device_details()
    details[device.index] = {"error": "vkCreateDevice failed: VK_ERROR_INITIALIZATION_FAILED"}
    monkeypatch.setattr(_core, "_device_details", lambda: details)
    assert main(["info"]) == 0
    assert "error           vkCreateDevice failed" in capsys.readouterr().out


def test_info_shows_a_wrong_variable_of_the_native_path():
    done = run("info", HZB_CPU="mmx")
    assert (done.returncode, done.stderr) == (0, "")
    assert "error           HZB_CPU: 'mmx' is not an instruction set" in done.stdout


# build


def test_build_says_what_it_made(command, device):
    status, out, err = command(ROTUNDA, "--levels", 3)
    assert (status, err) == (0, "")
    assert "float32, (808, 1264) (reversed-Z: 1 near, 0 far)" in out
    assert device.name in out
    assert "3 of float16, furthest, rows × columns: 512×1024, 256×512, 128×256" in out
    assert " ms" in out


def test_build_writes_the_levels(command, depth, tmp_path):
    array, file = depth
    status, out, err = command(file, "-o", tmp_path / "levels.npz")
    assert (status, err) == (0, "")
    assert f"written {tmp_path / 'levels.npz'}" in out
    assert_same_bits(levels_of(tmp_path / "levels.npz"), hzb.reference.build(array))


def test_build_takes_every_option(command, depth, tmp_path):
    array, file = depth
    array[3, 5] = np.nan
    np.save(file, array)
    status, out, err = command(
        *(file, "-o", tmp_path / "levels.npz", "--bounds", "both", "--standard-z"),
        *("--sizing", "floor", "--rounding", "nearest", "--nan", "ignore"),
        *("--view-rect", 1, 2, 30, 20, "--levels", 3, "--algorithm", "per_level"),
    )
    assert (status, err) == (0, "")
    assert "standard Z: larger is further" in out
    expected = hzb.reference.build(
        array,
        bounds="both",
        reversed_z=False,
        sizing="floor",
        rounding="nearest",
        nan="ignore",
        view_rect=(1, 2, 30, 20),
        levels=3,
    )
    for name, chain in expected._asdict().items():
        assert_same_bits(levels_of(tmp_path / "levels.npz", name), chain)


def test_build_of_exact_levels(command, depth, tmp_path):
    array, file = depth
    assert command(file, "--dtype", "float32", "-o", tmp_path / "levels.npz")[0] == 0
    expected = hzb.reference.build(array, dtype=np.float32)
    assert_same_bits(levels_of(tmp_path / "levels.npz"), expected)


@pytest.mark.parametrize("arrays", [["depth", "colour"], ["whatever"]])
def test_build_finds_the_array_of_a_npz(command, depth, tmp_path, arrays):
    array, _ = depth
    np.savez(tmp_path / "in.npz", **dict.fromkeys(arrays, array))
    assert command(tmp_path / "in.npz")[0] == 0


def test_build_takes_the_named_array_of_a_npz(command, depth, tmp_path):
    array, _ = depth
    np.savez(tmp_path / "in.npz", a=array, b=array[:4, :4])
    status, out, _ = command(tmp_path / "in.npz", "--key", "b")
    assert status == 0
    assert "(4, 4)" in out


@pytest.mark.parametrize("bounds", ["furthest", "both"])
def test_build_draws_a_picture(command, depth, tmp_path, bounds):
    _, file = depth
    options = ["--bounds", bounds, "--layout", "tiles", "--view-rect", 0, 0, 20, 20]
    status, out, err = command(file, "--png", tmp_path / "mips.png", *options)
    assert (status, err) == (0, "")
    assert f"picture {tmp_path / 'mips.png'}" in out
    assert (tmp_path / "mips.png").read_bytes().startswith(b"\x89PNG")


def test_build_draws_the_first_frame_of_a_batch(command, rng, tmp_path):
    np.save(tmp_path / "batch.npy", rng.random((2, 3, 8, 8), np.float32))
    status, out, _ = command(tmp_path / "batch.npy", "--png", tmp_path / "mips.png")
    assert status == 0
    assert "levels  3 of float16, furthest, rows × columns: 2×3×4×4" in out
    assert out.endswith("of the first frame\n")


@pytest.mark.parametrize(
    ("values", "dtype", "low", "high"),
    [
        ([0.5, 3.0], "float32", "0.5", "3"),
        ([-1.0, np.inf], "float16", "-1", "inf"),
        ([0, 4377], "uint16", "0", "4377"),
    ],
)
def test_build_hints_at_the_depth_convention(command, tmp_path, values, dtype, low, high):
    np.save(tmp_path / "depth.npy", np.array([values, values], dtype))
    status, _, err = command(tmp_path / "depth.npy")
    assert status == 0
    assert f"hint: depth goes from {low} to {high}" in err
    assert "--standard-z (reversed_z=False in Python)" in err
    assert command(tmp_path / "depth.npy", "--standard-z")[2] == ""


@pytest.mark.parametrize("values", [[0.0, 1.0], [np.nan, 0.5], [np.nan, np.nan]])
def test_build_has_no_hint_for_depth_from_0_to_1(command, tmp_path, values):
    np.save(tmp_path / "depth.npy", np.array([values, values], np.float32))
    assert command(tmp_path / "depth.npy")[::2] == (0, "")


def test_build_of_no_frames(command, tmp_path):
    np.save(tmp_path / "none.npy", np.empty((0, 8, 8), np.float32))
    status, out, err = command(tmp_path / "none.npy")
    assert (status, err) == (0, "")
    assert "0×4×4, 0×2×2, 0×1×1" in out
    status, _, err = command(tmp_path / "none.npy", "--png", tmp_path / "mips.png")
    assert (status, err) == (
        2,
        "hzb: error: --png: an array of shape (0, 8, 8) has no frame to draw\n",
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--levels", "9"], "levels must be from 1 to 6"),
        (["--view-rect", "0", "0", "99", "9"], "(0, 0, 99, 9)"),
        (["--algorithm", "magic"], "magic"),
        (["--rounding", "unreal", "--standard-z"], "reversed_z"),
        (["--key", "depth"], "is a single array; leave --key out"),
    ],
)
def test_build_refuses_a_wrong_option_in_one_line(command, depth, options, message):
    status, out, err = command(depth[1], *options)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("hzb: error: ")
    assert message in err


def test_build_refuses_what_holds_no_depth(command, tmp_path):
    text, objects, words = (tmp_path / name for name in ("a.txt", "b.npy", "c.npz"))
    text.write_text("no array")
    np.save(objects, np.array([[{}]]), allow_pickle=True)
    np.savez(words, one=np.zeros((4, 4)), two=np.array([[{}]]))
    for arguments, message in (
        ([text], "is not a .npy or .npz file of numbers"),
        ([objects], "is not a .npy or .npz file of numbers"),
        ([words], "has no array 'depth'; pass --key with one of: one, two"),
        ([words, "--key", "two"], "array 'two' is damaged or not of numbers"),
    ):
        status, out, err = command(*arguments)
        assert (status, out) == (2, "")
        assert err == f"hzb: error: {arguments[0]}{': ' if 'two' in arguments else ' '}{message}\n"


def test_build_refuses_an_unknown_device(depth):
    done = run("build", depth[1], "--device", "no such card")
    assert done.returncode == 2
    assert done.stderr.startswith("hzb: error: device: ")
    assert done.stderr.count("\n") == 1


def test_build_without_a_file(command, depth, tmp_path):
    nowhere = tmp_path / "nowhere"
    message = f"hzb: error: {nowhere}/file.{{}}: No such file or directory\n"
    assert command(nowhere / "file.npy") == (1, "", message.format("npy"))
    for option, suffix in (("--output", "npz"), ("--png", "png")):
        status, _, err = command(depth[1], option, nowhere / f"file.{suffix}")
        assert (status, err) == (1, message.format(suffix))


def test_build_without_a_driver(depth):
    nowhere = "/nowhere/icd.json"
    environment = {"VK_DRIVER_FILES": nowhere, "VK_ICD_FILENAMES": nowhere}
    done = run("build", depth[1], HZB_DEVICE="llvmpipe", **environment)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("hzb: error: ")
    assert "Traceback" not in done.stderr
    done = run("build", depth[1], HZB_DEVICE="", **environment)
    assert done.returncode == 0
    assert "kind='native'" in done.stdout


def test_build_without_matplotlib(command, depth, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    status, _, err = command(depth[1], "--png", tmp_path / "mips.png")
    assert status == 1
    assert "pip install hzb[plot]" in err


@pytest.mark.parametrize(
    "arguments", [[], ["draw"], ["build"], ["build", "a.npy", "--bounds", "x"]]
)
def test_usage_errors(arguments):
    done = run(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: python -m hzb")


def test_version_and_help():
    assert run("--version").stdout == f"hzb {hzb.__version__}\n"
    assert "--standard-z" in run("build", "--help").stdout
