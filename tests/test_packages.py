"""The sdist and the wheel: what they hold, what they need, and that they work where little else is.

The sdist is made of a clean copy of the checkout, the wheel of the sdist, out of reach of shader
compilers and of the system's Vulkan headers; what is installed goes to fresh environments that
have NumPy (to build, setuptools) and nothing more. No network is needed.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path, PurePosixPath

import pytest

import hzb

ROOT = Path(__file__).parent.parent
NAME = f"hzb-{hzb.__version__}"
MODULE = f"hzb/_core{sysconfig.get_config_var('EXT_SUFFIX')}"
# Of the checkout, for the checkout.
NOT_DISTRIBUTED = {".ci/run", ".gitignore"}
# Written by setuptools.
METADATA = {
    *("PKG-INFO", "setup.cfg"),
    *(
        f"hzb.egg-info/{name}.txt"
        for name in ("SOURCES", "dependency_links", "requires", "top_level")
    ),
    "hzb.egg-info/PKG-INFO",
}
# All that a compiler takes from PATH; a shader compiler is not among it.
C_TOOLS = {"cc", "gcc", "as", "ld", sysconfig.get_config_var("CC").split()[0]}
# Parts of the C library, in one file or in several.
C_LIBRARY = {"ld-linux-x86-64.so.2", "libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0"}

GOLDEN = """
import sys
sys.path += sys.argv[2:]
from bits import assert_same_bits
from golden import CASES
import hzb
for case in CASES:
    if case.name.startswith("2x2_zdir/"):
        levels = hzb.build(case.depth, device=sys.argv[1], **case.options)
        assert_same_bits(levels, case.levels)
        print(case.name)
print(hzb.__file__)
"""

NO_LOADER = """
import hzb
import numpy as np
print(hzb.__version__, hzb.level_shapes((4, 2)), [device.kind for device in hzb.devices()])
print(hzb.build(np.ones((2, 2))))
try:
    hzb.build(np.ones((2, 2)), device="llvmpipe")
except hzb.LoaderNotFoundError as error:
    print(error)
"""


def run(*command, **options):
    """Run a command that must end well; give all it says."""
    __tracebackhide__ = True
    done = subprocess.run(
        list(map(str, command)),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **options,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def without_python_variables(**changed):
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return {**env, **changed}


class Environment:
    """A fresh virtual environment that holds some of the distributions of this one."""

    def __init__(self, folder, *distributions):
        venv.create(folder, symlinks=True)
        self.python = folder / "bin" / "python"
        code = "import sysconfig; print(sysconfig.get_path('platlib'))"
        self.packages = Path(run(self.python, "-c", code).strip())
        for name in distributions:
            distribution = importlib.metadata.distribution(name)
            for top in {file.parts[0] for file in distribution.files} - {".."}:
                self.packages.joinpath(top).symlink_to(distribution.locate_file(top))

    def pip(self, *arguments, **options):
        command = (sys.executable, "-m", "pip", "--python", self.python, *arguments)
        return run(*command, "--no-index", "--no-build-isolation", **options)


@pytest.fixture(scope="module")
def checkout():
    """Give the names of all files that git has, or would add."""
    if not (ROOT / ".git").exists():
        pytest.skip("packages are made of a checkout, and this is what one was unpacked to")
    listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT)
    return {name for name in listed.split("\0") if name and (ROOT / name).exists()}


@pytest.fixture(scope="module")
def tree(checkout, tmp_path_factory):
    """Give a copy of these files, and of nothing else."""
    copy = tmp_path_factory.mktemp("tree")
    for name in checkout:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, copy / name)
    return copy


@pytest.fixture(scope="module")
def sdist(tree, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sdist")
    # What builds leave in a checkout is not for others.
    for name in ("hzb/_core.so", "hzb/__pycache__/plot.pyc", "vendor/include/old.h"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).touch()
    build = (sys.executable, "-m", "build", "--sdist", "--no-isolation")
    run(*build, "--outdir", folder, tree, env=without_python_variables())
    (archive,) = folder.iterdir()
    return archive


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """Give variables for which there is a C compiler, but no Vulkan SDK and no shader compiler."""
    tools = tmp_path_factory.mktemp("bin")
    for name in C_TOOLS:
        if found := shutil.which(name):
            tools.joinpath(name).symlink_to(found)
    env = without_python_variables(PATH=str(tools))
    env.pop("VULKAN_SDK", None)
    return env


@pytest.fixture(scope="module")
def builder(tmp_path_factory):
    """Give an environment that has what [build-system] of pyproject.toml asks for."""
    return Environment(tmp_path_factory.mktemp("builder"), "setuptools", "numpy")


@pytest.fixture(scope="module")
def built(sdist, bare, builder, tmp_path_factory):
    """Give the wheel, and what was said when it was built from the sdist."""
    folder = tmp_path_factory.mktemp("wheel")
    # -H has the compiler name each header that it opens.
    log = builder.pip("wheel", "-v", "--no-deps", "-w", folder, sdist, env={**bare, "CFLAGS": "-H"})
    (wheel,) = folder.glob("hzb-*.whl")
    return wheel, log


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """Give an environment with NumPy and the wheel."""
    wheel, _ = built
    environment = Environment(tmp_path_factory.mktemp("installed"), "numpy")
    environment.pip("install", wheel)
    return environment


def test_metadata_needs_setuptools_alone(tree, tmp_path):
    python = Environment(tmp_path, "setuptools").python
    env = without_python_variables(PATH="")
    assert run(python, "setup.py", "--version", cwd=tree, env=env).strip() == hzb.__version__


def test_checkout_without_shader_compiler_names_the_packages(tree, builder, bare, tmp_path):
    checkout = shutil.copytree(tree, tmp_path / "tree", ignore=shutil.ignore_patterns("build"))
    done = subprocess.run(
        [builder.python, "setup.py", "-q", "build_ext"],
        cwd=checkout,
        env=bare,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "error: no GLSL compiler (glslangValidator or glslc) in $VULKAN_SDK/bin or on PATH: "
        "apt-get install glslang-tools spirv-tools, or install the LunarG Vulkan SDK"
    ]


def test_sdist_holds_the_checkout_and_what_a_machine_may_lack(checkout, sdist):
    assert sdist.name == f"{NAME}.tar.gz"
    with tarfile.open(sdist) as archive:
        members = archive.getmembers()
    assert all(member.isfile() or member.isdir() for member in members)
    paths = [PurePosixPath(member.name) for member in members if member.isfile()]
    assert {path.parts[0] for path in paths} == {NAME}
    held = {"/".join(path.parts[1:]) for path in paths}
    vendor = {name for name in held if name.startswith("vendor/")}
    assert held - vendor - METADATA == checkout - NOT_DISTRIBUTED

    shaders = {
        f"vendor/shaders/{PurePosixPath(name).stem}.spv.h"
        for name in checkout
        if name.endswith(".comp")
    }
    assert {name for name in vendor if name.startswith("vendor/shaders/")} == shaders
    headers = re.compile(
        r"vendor/include/(volk|vulkan/(vulkan|vk_)\w*|vk_video/vulkan_video_\w+)\.h"
    )
    others = {name for name in vendor - shaders if not headers.fullmatch(name)}
    assert others == {"vendor/include/volk.c"}
    assert {"vendor/include/vulkan/vulkan_core.h", "vendor/include/volk.h"} < vendor
    assert {"licenses/Vulkan-Headers.txt", "licenses/volk.txt", "LICENSE"} <= held


def test_sdist_is_built_with_what_it_carries(sdist, built):
    _, log = built
    with tarfile.open(sdist) as archive:
        carried = [name.split("/", 1)[1] for name in archive.getnames() if "/vendor/" in name]
    opened = set(re.findall(r"^ *\.+ (.+)$", log, re.MULTILINE))
    names = {PurePosixPath(path).name for path in carried if "/include/" in path}
    from_vendor = {path for path in opened if PurePosixPath(path).name in names}
    assert {"vendor/include/vulkan/vulkan_core.h", "vendor/include/volk.c"} <= from_vendor
    assert from_vendor <= set(carried)
    assert "compiling shaders/" not in log


def test_wheel_holds_the_package_and_licences(built):
    wheel, _ = built
    tag = wheel.name.removeprefix(f"{NAME}-").removesuffix(".whl")
    assert re.fullmatch(r"cp3\d+-cp3\d+t?-linux_\w+", tag)
    info = f"{NAME}.dist-info"
    licences = {"LICENSE", "licenses/Vulkan-Headers.txt", "licenses/volk.txt"}
    with zipfile.ZipFile(wheel) as archive:
        assert set(archive.namelist()) == {
            *(f"hzb/{name}.py" for name in ("__init__", "__main__", "plot", "reference")),
            *("hzb/_core.pyi", "hzb/py.typed", MODULE),
            *(f"{info}/{name}" for name in ("METADATA", "RECORD", "WHEEL", "top_level.txt")),
            *(f"{info}/licenses/{name}" for name in licences),
        }


def test_module_is_linked_to_the_c_library_alone(installed):
    dynamic = run("readelf", "--wide", "--dynamic", installed.packages / MODULE)
    assert set(re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic)) <= C_LIBRARY
    symbols = run("nm", "--dynamic", "--defined-only", installed.packages / MODULE)
    assert [line.split()[-1] for line in symbols.splitlines()] == ["PyInit__core"]


def test_installed_wheel_builds(installed, spec):
    where = (spec, ROOT / "tests")
    said = run(installed.python, "-I", "-c", GOLDEN, *where, env=without_python_variables())
    *cases, file = said.splitlines()
    assert {"2x2_zdir/furthest", "2x2_zdir/closest"} <= set(cases)
    assert file == str(installed.packages / "hzb" / "__init__.py")


def test_installed_wheel_builds_without_a_loader(installed, tmp_path):
    # Libraries that cannot be loaded, found before those of the system.
    for name in ("libvulkan.so.1", "libvulkan.so"):
        (tmp_path / name).touch()
    env = without_python_variables(LD_LIBRARY_PATH=str(tmp_path))
    shapes, levels, message = run(installed.python, "-I", "-c", NO_LOADER, env=env).splitlines()
    assert shapes == f"{hzb.__version__} [(2, 1), (1, 1)] ['native']"
    assert levels == "[array([[1.]], dtype=float16)]"
    assert "libvulkan.so.1" in message
    assert "apt-get install libvulkan1" in message
