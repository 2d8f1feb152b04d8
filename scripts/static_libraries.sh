#!/usr/bin/env bash
# static_libraries.sh TRIPLET builds Oniguruma and libmicrohttpd for x86_64-linux-gnu or aarch64-linux-gnu into
# build-libraries/TRIPLET, as static libraries from Debian's source packages. Debian itself has no static Oniguruma, none
# for a second architecture next to the first, and a libmicrohttpd that brings GnuTLS along; we serve plain HTTP.
set -euo pipefail
cd "$(dirname "$0")/.."

triplet=$1
case $triplet in
x86_64-linux-gnu | aarch64-linux-gnu) ;;
*) echo "static_libraries.sh: '$triplet' is unknown; expected x86_64-linux-gnu or aarch64-linux-gnu" >&2; exit 2 ;;
esac
all=$PWD/build-libraries
prefix=$all/$triplet
[ -e "$prefix/done" ] && exit 0
mkdir -p "$all"
exec 9> "$all/lock" && flock 9
[ -e "$prefix/done" ] && exit 0

# Source packages by apt, with lists of our own: the machine's stay as they are, and no root is needed.
sources=$all/sources
if [ ! -e "$sources/done" ]; then
    mkdir -p "$sources/parts" "$sources/lists/partial" "$sources/cache/archives/partial"
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources; do
        case $file in
        *.list) [ -e "$file" ] && sed -n 's/^deb /deb-src /p' "$file" > "$sources/parts/$(basename "$file")" ;;
        *.sources) [ -e "$file" ] && sed 's/^Types:.*/Types: deb-src/' "$file" > "$sources/parts/$(basename "$file")" ;;
        esac
    done
    apt=(apt-get -qq -o Dir::Etc::SourceList=/dev/null -o "Dir::Etc::SourceParts=$sources/parts"
         -o "Dir::State::Lists=$sources/lists" -o "Dir::Cache=$sources/cache" -o APT::Sandbox::User="$(id -un)")
    "${apt[@]}" update
    (cd "$sources" && "${apt[@]}" source libonig libmicrohttpd > apt.log 2>&1) || { cat "$sources/apt.log" >&2; exit 1; }
    touch "$sources/done"
fi

flags="-O2 -D_FORTIFY_SOURCE=2 -fstack-protector-strong -ffunction-sections -fdata-sections"
logged() { # NAME COMMAND...: into NAME's log, which is shown when something fails
    local log=$prefix/$1.log
    shift
    "$@" >> "$log" 2>&1 || { tail -30 "$log" >&2; exit 1; }
}
rm -rf "$prefix"
mkdir -p "$prefix/http"
logged libonig cmake -S "$sources"/libonig-* -B "$prefix/onig" -G Ninja -DCMAKE_SYSTEM_NAME=Linux \
    -DCMAKE_C_COMPILER="$triplet-gcc" -DCMAKE_C_FLAGS="$flags" -DCMAKE_INSTALL_PREFIX="$prefix" -DCMAKE_INSTALL_LIBDIR=lib \
    -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DBUILD_SHARED_LIBS=OFF -DBUILD_TEST=OFF
logged libonig cmake --build "$prefix/onig" --target install
cd "$prefix/http"
logged libmicrohttpd "$sources"/libmicrohttpd-*/configure --host="$triplet" --prefix="$prefix" --libdir="$prefix/lib" \
    --enable-static --disable-shared --with-pic --disable-https --disable-doc --disable-examples --disable-curl \
    --disable-nls CC="$triplet-gcc" CFLAGS="$flags"
logged libmicrohttpd make -j "$(nproc)" install
rm -rf "$prefix/http" "$prefix/onig"
touch "$prefix/done"
