#!/bin/sh
# Sees to what `make demo`, `make test` or `make test-all` needs and pip cannot give: names what is missing and why,
# and installs it with apt-get where there is one. Does nothing, quickly, where all is there.
#
# usage: ensure_system_packages.sh demo|test|test-all PYTHON VENV
set -eu

purpose=$1
python=$2
venv=$3

fail() {
    echo "error: $*" >&2
    exit 1
}

any_file() {
    for file in "$@"; do
        [ -e "$file" ] && return 0
    done
    return 1
}

any_command() {
    for name in "$@"; do
        command -v "$name" >/dev/null 2>&1 && return 0
        [ -n "${VULKAN_SDK:-}" ] && [ -x "$VULKAN_SDK/bin/$name" ] && return 0
    done
    return 1
}

# Can the given statement be run by the chosen Python?
python_can() {
    "$python" -c "$1" >/dev/null 2>&1
}

need() {
    package=$1
    packages="$packages $package"
    reasons="$reasons
  $package: $2"
}

# Part of Python that Debian packages apart; other builds of Python bring theirs.
need_of_python() {
    if dpkg-query -S "$(readlink -f "$(command -v "$python")")" >/dev/null 2>&1; then
        need "$("$python" -c "import sys; print('python%d.%d-$1' % sys.version_info[:2])")" "$2"
    else
        fail "$python lacks what Debian's has in python3-$1 ($2)." \
            "Add it there, or choose another with make PYTHON=..."
    fi
}

find_missing() {
    packages=
    reasons=
    any_command cc gcc || need gcc "the C compiler"
    any_file /usr/include/stdlib.h || need libc6-dev "headers of the C library"
    python_can 'import os, sysconfig
os.stat(os.path.join(sysconfig.get_path("include"), "Python.h"))' ||
        need_of_python dev "headers of Python"
    any_file "$venv/bin/pip" || python_can 'import ensurepip, venv' ||
        need_of_python venv "makes the virtual environment $venv"
    any_command glslangValidator glslc || need glslang-tools "compiles the shaders"
    any_command spirv-val || need spirv-tools "validates the compiled shaders"
    include=${VULKAN_SDK:-/usr}/include
    any_file "$include/vulkan/vulkan.h" /usr/include/vulkan/vulkan.h ||
        need libvulkan-dev "headers of Vulkan, and its loader"
    any_file "$include"/volk.h "$include"/[vV]olk/volk.h /usr/include/volk.h \
        /usr/include/volk/volk.h ||
        need libvulkan-volk-dev "finds the Vulkan loader at run time"
    python_can 'import ctypes; ctypes.CDLL("libvulkan.so.1")' ||
        need libvulkan1 "the Vulkan loader"
    if [ "$purpose" = test-all ]; then
        any_command aarch64-linux-gnu-gcc ||
            need gcc-aarch64-linux-gnu "compiles the native path for 64-bit Arm"
        any_file /usr/aarch64-linux-gnu/lib/libc.a ||
            need libc6-dev-arm64-cross "the C library for that"
        any_command qemu-aarch64-static || need qemu-user-static "runs what was compiled for Arm"
    fi
    if [ "$purpose" != demo ]; then
        any_file /usr/share/vulkan/icd.d/lvp_icd*.json ||
            need mesa-vulkan-drivers "a Vulkan driver that runs on the processor: llvmpipe"
        any_file /usr/share/vulkan/explicit_layer.d/VkLayer_khronos_validation.json ||
            need vulkan-validationlayers "finds wrong use of Vulkan"
        any_file /usr/lib/chromium/libvk_swiftshader.so ||
            need chromium-common "a second Vulkan driver that runs on the processor: SwiftShader"
    else
        [ -n "${VK_DRIVER_FILES:-}${VK_ICD_FILENAMES:-}" ] ||
            any_file /usr/share/vulkan/icd.d/*.json /etc/vulkan/icd.d/*.json ||
            need mesa-vulkan-drivers "Vulkan drivers, one of which needs no GPU"
    fi
}

command -v "$python" >/dev/null || fail "no $python: choose an interpreter with make PYTHON=..."
python_can 'import sys; assert sys.version_info >= (3, 10)' ||
    fail "$("$python" --version) is too old: Python 3.10 or newer is needed (make PYTHON=...)"

find_missing
[ -z "$packages" ] && exit 0

echo "Missing, by the names of Debian's packages:$reasons"
command -v apt-get >/dev/null || fail "no apt-get here: install these with your system's own tools"
sudo=
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || fail "run as root: apt-get install$packages"
    sudo=sudo
fi
echo "Installing them: ${sudo:+sudo }apt-get install --no-install-recommends$packages"
$sudo apt-get -qq update
# shellcheck disable=SC2086
$sudo env DEBIAN_FRONTEND=noninteractive \
    apt-get -qq install -y --no-install-recommends $packages </dev/null

find_missing
[ -z "$packages" ] || fail "installed, but not found where it was looked for:$reasons"
