#!/usr/bin/env bash
# dist.sh makes dist/: one static file each for x86-64 and ARM64, their checksums, and a manifest of what is in them.
# Each file is tried where nothing is installed: in an empty root directory, and under QEMU's user mode.
set -euo pipefail
cd "$(dirname "$0")/.."

version=$(sed -n 's/^project(palimpsa VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
here=$(uname -m)
rm -rf dist
mkdir dist
manifest=dist/MANIFEST.txt
cat > "$manifest" <<END
palimpsa $version, one static file for each processor: kernels are chosen when it starts, nothing has to be installed.
Commit ${COMMIT:-$(git describe --always --dirty 2>/dev/null || echo unknown)}. Matrix multiply: our own. Without cairo (figures), MPI and oneDNN. MIT licence.

END

for triplet in x86_64-linux-gnu aarch64-linux-gnu; do
    machine=${triplet%%-*}
    case $machine in x86_64) preset=edge ;; *) preset=edge-arm64 ;; esac
    scripts/static_libraries.sh $triplet
    cmake --preset $preset > build-$preset.log || { cat build-$preset.log; exit 1; }
    rm -f build-$preset.log
    cmake --build build-$preset -j "${JOBS:-$(nproc)}" --target palimpsa_cli
    file=dist/palimpsa-$version-$machine-linux
    $triplet-strip -o "$file" build-$preset/palimpsa
    case $machine in "$here") emulator= ;; *) emulator=qemu-$machine ;; esac
    # shellcheck disable=SC2086 # no emulator is not a word
    python3 tests/edge/check.py "$file" tests/golden $emulator
    libraries=build-libraries/$triplet/lib/pkgconfig
    case $machine in x86_64) debian=amd64 ;; *) debian=arm64 ;; esac
    package() { dpkg-query -W -f='${Version}' "$1:$debian"; }
    {
        echo "$(basename "$file"), $(stat -c %s "$file") bytes, for Linux 3.17 or newer"
        echo "  compiler     $($triplet-gcc --version | head -1)"
        echo "  glibc        $(package libc6-dev) (LGPL-2.1-or-later)"
        echo "  libgomp      $($triplet-gcc -dumpfullversion) (GPL-3.0 with the GCC runtime library exception)"
        echo "  jansson      $(package libjansson-dev) (MIT)"
        echo "  utf8proc     $(package libutf8proc-dev) (MIT)"
        echo "  Oniguruma    $(PKG_CONFIG_LIBDIR=$libraries pkg-config --modversion oniguruma) (BSD-2-Clause)"
        echo "  libmicrohttpd $(PKG_CONFIG_LIBDIR=$libraries pkg-config --modversion libmicrohttpd) (LGPL-2.1-or-later), without TLS"
        echo
    } >> "$manifest"
done
echo "The sources of the LGPL libraries are Debian's packages of these versions (apt-get source glibc libmicrohttpd);" >> "$manifest"
echo "'make dist' links this program with changed ones." >> "$manifest"
scripts/licences.sh libc6-dev libgomp1 libjansson-dev libutf8proc-dev libonig-dev libmicrohttpd-dev > dist/LICENCES.txt
(cd dist && sha256sum palimpsa-* MANIFEST.txt LICENCES.txt > SHA256SUMS)
ls -l dist
