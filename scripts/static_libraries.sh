#!/usr/bin/env bash
# static_libraries.sh TRIPLET builds Oniguruma and libmicrohttpd for x86_64-linux-gnu or aarch64-linux-gnu, and Oniguruma,
# jansson and utf8proc for wasm32-emscripten, into build-libraries/TRIPLET, as static libraries from Debian's source packages.
# Debian itself has no static Oniguruma, none for a second architecture next to the first, a libmicrohttpd that brings
# GnuTLS along while we serve plain HTTP, and nothing compiled to WebAssembly.
set -euo pipefail
cd "$(dirname "$0")/.."

triplet=$1
case $triplet in
x86_64-linux-gnu | aarch64-linux-gnu) needed=(libonig libmicrohttpd) ;;
wasm32-emscripten) needed=(libonig jansson utf8proc) ;;
*) echo "static_libraries.sh: '$triplet' is unknown; expected x86_64-linux-gnu, aarch64-linux-gnu or wasm32-emscripten" >&2; exit 2 ;;
esac
all=$PWD/build-libraries
prefix=$all/$triplet
[ -e "$prefix/done" ] && exit 0
mkdir -p "$all"
exec 9> "$all/lock" && flock 9
[ -e "$prefix/done" ] && exit 0

# Source packages by apt, with lists of our own: the machine's stay as they are, and no root is needed.
sources=$all/sources
missing=()
for package in "${needed[@]}"; do compgen -G "$sources/$package-*/" > /dev/null || missing+=("$package"); done
if [ ${#missing[@]} -gt 0 ]; then
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
    (cd "$sources" && "${apt[@]}" source "${missing[@]}" > apt.log 2>&1) || { cat "$sources/apt.log" >&2; exit 1; }
fi

flags="-O2 -D_FORTIFY_SOURCE=2 -fstack-protector-strong -ffunction-sections -fdata-sections"
logged() { # NAME COMMAND...: into NAME's log, which is shown when something fails
    local log=$prefix/$1.log
    shift
    "$@" >> "$log" 2>&1 || { tail -30 "$log" >&2; exit 1; }
}
rm -rf "$prefix"
mkdir -p "$prefix"
# Their build systems ask a compiler what a WebAssembly file cannot answer, so the few facts stand here.
if [ "$triplet" = wasm32-emscripten ]; then
    mkdir -p "$prefix"/{include,lib,objects}
    archive() { # NAME VERSION FLAGS FILES...
        local name=$1 version=$2 flags=$3
        shift 3
        mkdir "$prefix/objects/$name"
        # shellcheck disable=SC2086
        (cd "$prefix/objects/$name" && printf '%s\n' "$@" | logged "$name" xargs -P "$(nproc)" -n 8 emcc -O2 -DNDEBUG $flags -c)
        logged "$name" emar rcs "$prefix/lib/lib$name.a" "$prefix/objects/$name"/*.o
        mkdir -p "$prefix/lib/pkgconfig"
        printf 'Name: %s\nDescription: %s\nVersion: %s\nCflags: -I%s\nLibs: -L%s -l%s\n' "$name" "$name, compiled to WebAssembly" "$version" \
            "$prefix/include" "$prefix/lib" "$name" > "$prefix/lib/pkgconfig/$name.pc"
    }
    onig=$(echo "$sources"/libonig-*/src) jansson=$(echo "$sources"/jansson-*) utf8proc=$(echo "$sources"/utf8proc-*/)
    printf '#define %s\n' 'HAVE_ALLOCA 1' 'HAVE_ALLOCA_H 1' 'HAVE_STDINT_H 1' 'HAVE_SYS_TIME_H 1' 'HAVE_SYS_TYPES_H 1' \
        'HAVE_UNISTD_H 1' 'HAVE_INTTYPES_H 1' 'SIZEOF_INT 4' 'SIZEOF_LONG 4' 'SIZEOF_LONG_LONG 8' 'SIZEOF_VOIDP 4' > "$prefix/config.h"
    mapfile -t files < <(printf '%s\n' "$onig"/{reg{error,parse,enc,ext,comp,exec,gnu,syntax,trav,version},st,onig_init,ascii,utf8}.c \
        "$onig"/unicode{,_unfold_key,_fold1_key,_fold2_key,_fold3_key}.c)
    archive onig 6.9.8 "-DHAVE_CONFIG_H -I$prefix -I$onig" "${files[@]}"
    cp "$onig/oniguruma.h" "$prefix/include"
    printf '#define %s\n' 'HAVE_STDINT_H 1' 'HAVE_INTTYPES_H 1' 'HAVE_SYS_TYPES_H 1' 'INITIAL_HASHTABLE_ORDER 3' > "$prefix/jansson_private_config.h"
    archive jansson 2.14 "-DHAVE_CONFIG_H -I$prefix -I$jansson/src -I$jansson/android" "$jansson"/src/*.c
    cp "$jansson"/src/jansson.h "$jansson"/android/jansson_config.h "$prefix/include"
    archive utf8proc 2.8.0 "-DUTF8PROC_STATIC" "$utf8proc/utf8proc.c"
    cp "$utf8proc/utf8proc.h" "$prefix/include"
    mv "$prefix/lib/pkgconfig/onig.pc" "$prefix/lib/pkgconfig/oniguruma.pc"
    mv "$prefix/lib/pkgconfig/utf8proc.pc" "$prefix/lib/pkgconfig/libutf8proc.pc"
    sed -i 's|^Cflags:|& -DUTF8PROC_STATIC|' "$prefix/lib/pkgconfig/libutf8proc.pc"
    rm -rf "$prefix/objects"
    touch "$prefix/done"
    exit 0
fi
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
