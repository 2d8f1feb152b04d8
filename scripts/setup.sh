#!/usr/bin/env bash
# Installs every package that building and testing needs, by name. Does nothing, quickly, when all are there.
# setup.sh --SET... adds what more words of make need: --long test-long and tsan; --dev format, lint and coverage; --clang clang; --musl musl;
# --browser test-browser; --wasm site and test-wasm; --release deb, test-deb and release; --arm64 arm64 and dist, whose libraries come by Debian's multiarch.
# --opencl adds an OpenCL device that is this processor, and a checker of kernels, for the tests of devices.
set -euo pipefail

packages=(gcc g++ make cmake ninja-build pkg-config curl python3 libdnnl-dev libopenblas-dev libjansson-dev libonig-dev libutf8proc-dev libcmocka-dev libcairo2-dev libmicrohttpd-dev libopenmpi-dev openmpi-bin fonts-dejavu-core
          python3-dev python3-venv python3-cffi python3-numpy python3-pytest)
for set in "$@"; do
    case $set in
    --long) packages+=(clang libclang-rt-dev libomp-dev qemu-user bochs bochs-term bochsbios vgabios isolinux syslinux-common xorriso cpio) ;;
    --dev) packages+=(git clang clang-format clang-tidy cppcheck gcovr libomp-dev) ;;
    --clang) packages+=(clang libomp-dev) ;;
    --musl) packages+=(musl-tools) ;;
    --arm64) packages+=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user dpkg-dev
                        {libc6-dev,libgomp1,libjansson-dev,libutf8proc-dev,libcmocka-dev,libcairo2-dev}:arm64) ;;
    --release) packages+=(git debhelper dh-python dpkg-dev lintian debootstrap minisign patchelf diffoscope-minimal) ;;
    --opencl) packages+=(ocl-icd-libopencl1 pocl-opencl-icd oclgrind clinfo) ;;
    --browser) packages+=(chromium chromium-driver nodejs) ;;
    --wasm) packages+=(emscripten node-acorn nodejs dpkg-dev) ;;
    *) echo "setup.sh: no set of packages is called '$set'; expected --long, --dev, --clang, --musl, --arm64, --release, --opencl, --browser or --wasm" >&2; exit 2 ;;
    esac
done

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    echo "This is neither Debian nor Ubuntu; please install the counterparts of these packages:"
    printf '  %s\n' "${packages[@]}"
    echo "(a C11 compiler, CMake 3.25, Ninja, oneDNN 2.6 or OpenBLAS, jansson, Oniguruma 6.9.5, utf8proc 2.8, cairo with its SVG and PNG parts, libmicrohttpd, Open MPI 4 (may be left out), cmocka, the DejaVu fonts; for the Python package's tests cffi, numpy and pytest)"
    exit 0
fi

missing=()
here=$(dpkg --print-architecture)
for p in "${packages[@]}"; do # of this machine's architecture, unless the name says another
    case $p in *:*) wanted="${p#*:}" ;; *) wanted="$here|all" ;; esac
    dpkg-query -W -f='${Architecture} ${Status}\n' "$p" 2>/dev/null | grep -qE "^($wanted) .*ok installed" || missing+=("$p")
done
[ ${#missing[@]} -eq 0 ] && exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "setup.sh: these packages are missing and there is neither root nor sudo: ${missing[*]}" >&2; exit 1; }
    as_root=(sudo)
fi
echo "Installing: ${missing[*]}"
case "${missing[*]}" in
*:arm64*) [ "$here" = arm64 ] || "${as_root[@]}" dpkg --add-architecture arm64 ;;
esac
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
