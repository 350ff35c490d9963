"""Build of the C module: shaders to SPIR-V headers first, then every C file, then one link.

An output is made again when a digest of all it was made from changes, never by file times. Package
metadata is in pyproject.toml; nothing here is needed to read it.
"""

import fcntl
import filecmp
import hashlib
import os
import re
import shutil
import struct
import subprocess
import sysconfig
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist
from setuptools.errors import CompileError, PlatformError

SOURCES = Path("csrc")
SHADERS = Path("shaders")
GENERATED = Path("build/shaders")
# Present in a source distribution only: what a machine without the Vulkan development packages
# lacks.
VENDOR = Path("vendor")

C_FLAGS = ["-std=c11", "-O3", "-Wall", "-Wextra", "-Wpedantic", "-fvisibility=hidden"]
C_MACROS = {
    "_GNU_SOURCE": "1",
    "NPY_NO_DEPRECATED_API": "NPY_1_23_API_VERSION",
    "NPY_TARGET_VERSION": "NPY_1_23_API_VERSION",
    "VK_NO_PROTOTYPES": "1",
}
# CPython's slots hold functions in void pointers, which ISO C forbids and POSIX allows.
PYTHON_FLOOR = SOURCES / "python"
PYTHON_FLOOR_FLAGS = ["-Wno-pedantic"]
SANITIZER_FLAGS = ["-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-g", "-O1", "-UNDEBUG"]
LINK_FLAGS = ["-ldl", "-lpthread", "-lm"]

# One source, compiled once for each instruction set; the choice is made when the module is loaded.
ISA_SOURCE = SOURCES / "ops/hzb/cpu_kernels.c"
AVX2_FLAGS = ["-mavx2", "-mf16c", "-mfma", "-mbmi2"]
ISA_FLAGS = {
    "baseline": [],
    "avx2": AVX2_FLAGS,
    "avx512": [*AVX2_FLAGS, "-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq"],
}

# Each shader becomes one array a variant, named hzb_spv_<file stem><suffix>.
SHADER_VARIANTS = {"": [], "_s16": ["-DHZB_STORAGE16=1"]}
SHADER_COMPILERS = {
    "glslangValidator": ["-V", "--quiet", "--target-env", "vulkan1.1"],
    "glslc": ["--target-env=vulkan1.1"],
}


def digest(*parts: object) -> str:
    """Hash the content of paths and the text of everything else."""
    sha = hashlib.sha256()
    for part in parts:
        data = part.read_bytes() if isinstance(part, Path) else str(part).encode()
        sha.update(b"%d:" % len(data) + data)
    return sha.hexdigest()


def with_includes(source: Path, include_dirs: Iterable[Path]) -> list[Path]:
    """List a C or GLSL file and all files of this project that it includes."""
    found = {source: None}
    queue = [source]
    while queue:
        file = queue.pop()
        for name in re.findall(r'^\s*#\s*include\s+"([^"]+)"', file.read_text("utf-8"), re.M):
            candidates = (Path(os.path.normpath(d / name)) for d in (file.parent, *include_dirs))
            path = next((p for p in candidates if p.is_file()), None)
            if path and path not in found:
                found[path] = None
                queue.append(path)
    return list(found)


def find_tool(*names: str) -> str | None:
    """Find the first of some programs in the Vulkan SDK or, failing that, on PATH."""
    sdk = os.environ.get("VULKAN_SDK")
    for path in (f"{sdk}/bin", None) if sdk else (None,):
        for name in names:
            if tool := shutil.which(name, path=path):
                return tool
    return None


def run(command: list[str]) -> None:
    """Run a compiler; what it has to say goes to the terminal in one piece."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    except FileNotFoundError as error:
        raise PlatformError(f"no {command[0]} on PATH: apt-get install gcc") from error
    if done.stdout:
        print(done.stdout, end="", flush=True)
    if done.returncode:
        raise CompileError(f"failed with status {done.returncode}: {' '.join(command)}")


@contextmanager
def build_lock():
    """Let two builds of one checkout wait for each other."""
    Path("build").mkdir(exist_ok=True)
    with open("build/.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


# ---- shaders ------------------------------------------------------------------------------------


def compile_shader(shader: Path, flags: list[str]) -> bytes:
    """Compile one variant of a shader to SPIR-V 1.3 and validate it where spirv-val is present."""
    compiler = find_tool(*SHADER_COMPILERS)
    if not compiler:
        raise PlatformError(
            "no GLSL compiler (glslangValidator or glslc) in $VULKAN_SDK/bin or on PATH: "
            "apt-get install glslang-tools spirv-tools, or install the LunarG Vulkan SDK"
        )
    output = GENERATED / f"{shader.stem}.spv"
    flags = [*SHADER_COMPILERS[Path(compiler).name], f"-I{SHADERS}", *flags]
    run([compiler, *flags, "-o", str(output), str(shader)])
    if validator := find_tool("spirv-val"):
        run([validator, "--target-env", "vulkan1.1", str(output)])
    spirv = output.read_bytes()
    output.unlink()
    return spirv


def c_array(name: str, spirv: bytes) -> str:
    """Write a SPIR-V module as a C array."""
    words = [f"0x{word:08x}," for (word,) in struct.iter_unpack("<I", spirv)]
    rows = "\n".join("    " + " ".join(words[i : i + 8]) for i in range(0, len(words), 8))
    return f"static const uint32_t {name}[] = {{\n{rows}\n}};\n"


def generate_shader_header(shader: Path) -> Path:
    """Bring the header of one shader up to date; return its path."""
    name = f"{shader.stem}.spv.h"
    made_from = digest(Path("setup.py"), *with_includes(shader, [SHADERS]))
    first_line = f"/* Generated from {shader.as_posix()}; digest {made_from} */\n"

    def is_current(header: Path) -> bool:
        return header.is_file() and header.read_text("ascii").startswith(first_line)

    header = GENERATED / name
    if is_current(header):
        return header
    if is_current(VENDOR / "shaders" / name):
        shutil.copy(VENDOR / "shaders" / name, header)
        return header
    print(f"compiling {shader}", flush=True)
    arrays = [
        c_array(f"hzb_spv_{shader.stem}{suffix}", compile_shader(shader, flags))
        for suffix, flags in SHADER_VARIANTS.items()
    ]
    header.write_text("\n".join([first_line + "#include <stdint.h>\n", *arrays]), "ascii")
    return header


def generate_shader_headers() -> list[Path]:
    """Bring the headers of all shaders up to date; return their paths."""
    GENERATED.mkdir(parents=True, exist_ok=True)
    return [generate_shader_header(shader) for shader in sorted(SHADERS.rglob("*.comp"))]


# ---- C code -------------------------------------------------------------------------------------


def find_vulkan_headers() -> tuple[Path, Path]:
    """Find the include directory of vulkan/vulkan.h and the one of volk.h."""
    sdk = os.environ.get("VULKAN_SDK")
    roots = [VENDOR / "include", *([Path(sdk, "include")] if sdk else []), Path("/usr/include")]
    volk_dirs = [root / name for root in roots for name in ("", "volk", "Volk")]
    found = (
        next((d for d in roots if (d / "vulkan/vulkan.h").is_file()), None),
        next((d for d in volk_dirs if (d / "volk.h").is_file()), None),
    )
    if None in found:
        raise PlatformError(
            "no vulkan/vulkan.h or no volk.h in $VULKAN_SDK/include or /usr/include: "
            "apt-get install libvulkan-dev libvulkan-volk-dev, or install the LunarG Vulkan SDK"
        )
    return found


class BuildExt(build_ext):
    """Builds the module from objects that are kept, compiled in parallel, only when out of date."""

    def build_extension(self, ext):
        with build_lock():
            generate_shader_headers()
            module = self.build_module()
        target = Path(self.get_ext_fullpath(ext.name))
        # A new file only when the content is new: in-place builds go by file times.
        if not (target.is_file() and filecmp.cmp(module, target, shallow=False)):
            target.parent.mkdir(parents=True, exist_ok=True)
            # Processes that have loaded the old file keep it.
            target.unlink(missing_ok=True)
            shutil.copy(module, target)

    def build_module(self) -> Path:
        """Compile and link what is out of date in the directory that this kind of build has."""
        sanitize = os.environ.get("HZB_SANITIZE", "")
        sanitizer_flags = []
        if sanitize:
            sanitizer_flags = [f"-fsanitize={sanitize}", *SANITIZER_FLAGS]
        kind = "-".join(filter(None, [sysconfig.get_config_var("SOABI"), sanitize]))
        self.objects_dir = Path("build/objects", kind)
        self.compile_command = [*self.compiler.compiler_so, *self.c_flags(), *sanitizer_flags]

        isas = ISA_FLAGS if self.plat_name.endswith("x86_64") else ["baseline"]
        units = []
        for source in sorted(SOURCES.rglob("*.c")):
            if source == ISA_SOURCE:
                for isa in isas:
                    units.append((source, f".{isa}", [f"-DHZB_ISA={isa}", *ISA_FLAGS[isa]]))
            elif PYTHON_FLOOR in source.parents:
                units.append((source, "", PYTHON_FLOOR_FLAGS))
            else:
                units.append((source, "", []))
        with ThreadPoolExecutor(self.parallel or os.cpu_count()) as pool:
            objects = list(pool.map(lambda unit: self.compile_object(*unit), units))

        module = self.objects_dir / "_core.so"
        link = [*self.compiler.linker_so, *map(str, objects), *LINK_FLAGS, *sanitizer_flags]
        self.make(module, [*link, "-o", str(module)], objects)
        return module

    def c_flags(self) -> list[str]:
        import numpy  # needed to build only, not for metadata

        flags = [*C_FLAGS, *(["-Werror"] if os.environ.get("HZB_WERROR") == "1" else [])]
        macros = {**C_MACROS, "HZB_VERSION": f'"{self.distribution.get_version()}"'}
        flags += [f"-D{name}={value}" for name, value in macros.items()]
        flags += [f"-I{SOURCES}", f"-I{GENERATED}"]
        # System directories: warnings in the code of others are theirs. /usr/include is one anyway,
        # and naming it would change the order in which the compiler searches.
        python = {sysconfig.get_path("include"), sysconfig.get_path("platinclude")}
        others = dict.fromkeys([*map(str, find_vulkan_headers()), numpy.get_include(), *python])
        return [*flags, *(f"-isystem{d}" for d in sorted(others) if d != "/usr/include")]

    def compile_object(self, source: Path, suffix: str, flags: list[str]) -> Path:
        target = self.objects_dir / source.relative_to(SOURCES).with_suffix(f"{suffix}.o")
        command = [*self.compile_command, *flags, "-c", str(source), "-o", str(target)]
        self.make(target, command, with_includes(source, [SOURCES, GENERATED]))
        return target

    def make(self, target: Path, command: list[str], made_from: list[Path]) -> None:
        """Run the command unless the target is what it would give again."""
        record = target.with_name(target.name + ".digest")
        wanted = digest(*command, *made_from)
        if target.is_file() and record.is_file() and record.read_text() == wanted:
            return
        print(f"making {target}\n", end="", flush=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        record.unlink(missing_ok=True)
        run(command)
        record.write_text(wanted)


class SDist(sdist):
    """Adds what lets a machine with a C compiler alone build the module."""

    def make_release_tree(self, base_dir, files):
        super().make_release_tree(base_dir, files)
        vendor = Path(base_dir) / VENDOR
        (vendor / "shaders").mkdir(parents=True)
        (vendor / "include").mkdir()
        with build_lock():
            for header in generate_shader_headers():
                shutil.copy(header, vendor / "shaders")
        vulkan, volk = find_vulkan_headers()
        for name in ("vulkan", "vk_video"):
            only_c = shutil.ignore_patterns("*.hpp", "*.cppm")
            shutil.copytree(vulkan / name, vendor / "include" / name, ignore=only_c)
        for name in ("volk.h", "volk.c"):
            shutil.copy(volk / name, vendor / "include")


setup(
    # The sources are found when the module is built: they lie where they lie.
    ext_modules=[Extension("hzb._core", sources=[])],
    cmdclass={"build_ext": BuildExt, "sdist": SDist},
)
