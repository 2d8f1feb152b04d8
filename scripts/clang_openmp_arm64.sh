#!/usr/bin/env bash
# clang_openmp_arm64.sh unpacks clang's OpenMP for ARM64 into build-libraries/aarch64-linux-gnu-clang. Debian's package
# cannot be installed next to the one of this machine: both bring /usr/lib/llvm-N/lib/libomp.so.5.
set -euo pipefail
cd "$(dirname "$0")/.."

to=$PWD/build-libraries/aarch64-linux-gnu-clang
[ -e "$to/done" ] && exit 0
package=libomp5-$(clang -dumpversion | cut -d. -f1)
rm -rf "$to"
mkdir -p "$to/lib"
cd "$to"
apt-get -qq -o APT::Sandbox::User="$(id -un)" download "$package:arm64" > apt.log 2>&1 || {
    cat apt.log >&2
    echo "clang_openmp_arm64.sh: apt-get could not download $package:arm64; does 'apt-get update' as root help?" >&2
    exit 1
}
dpkg-deb --extract "$package"_*_arm64.deb package
cp package/usr/lib/llvm-*/lib/libomp.so.5 lib
ln -s libomp.so.5 lib/libomp.so
rm -rf package "$package"_*_arm64.deb
touch done
