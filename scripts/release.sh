#!/usr/bin/env bash
# release.sh makes release/ from the last commit: the source, Debian packages, static files for x86-64 and ARM64, the Python wheel,
# a bill of materials, SHA256SUMS, and with MINISIGN_KEY=FILE its signature.
#   release.sh [--only source|debian|static|wheel]   one part, for trying it
#   release.sh --compare                             Debian packages and static files twice, in two folders: the bytes must be equal
# The build sees only what is committed, and SOURCE_DATE_EPOCH is the commit's time.
set -euo pipefail
cd "$(dirname "$0")/.."
only=all
case ${1:-} in
--only) only=${2:?--only expects source, debian, static or wheel} ;;
--compare) only=compare ;;
'') ;;
*) sed -n '2,6s/^# *//p' "$0" >&2; exit 2 ;;
esac
wanted() { [ $only = all ] || [ $only = "$1" ]; }

version=$(sed -n 's/^project(palimpsa VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
name=palimpsa-$version
grep -q "$version" CHANGELOG.md || { echo "release.sh: CHANGELOG.md does not mention $version" >&2; exit 2; }
[ -z "$(git status --porcelain)" ] || { echo "release.sh: there are changes that are not committed; a release is made from commits" >&2; exit 2; }
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
out=$PWD/release
rm -rf "$out"
mkdir "$out"

source_in() { # FOLDER: the committed files
    mkdir -p "$1"
    git archive --prefix="$name/" HEAD | tar x -C "$1"
}

debian_in() { # FOLDER: its packages come to lie in it
    source_in "$1"
    (cd "$1/$name" && dpkg-buildpackage --no-sign -b > ../build.log 2>&1) || { tail -n 30 "$1/build.log" >&2; exit 1; }
}

static_in() { # FOLDER: FOLDER/dist; libraries that were built before are used again
    source_in "$1"
    [ ! -e build-libraries ] || cp -r build-libraries "$1/$name/"
    (cd "$1/$name" && scripts/dist.sh > ../dist.log 2>&1) || { tail -n 30 "$1/dist.log" >&2; exit 1; }
    [ -e build-libraries ] || cp -r "$1/$name/build-libraries" .
    mv "$1/$name/dist" "$1/dist"
}

if [ $only = compare ]; then
    differ=0
    for part in debian static; do
        for folder in "$work/first" "$work/a-longer-name/second"; do
            ${part}_in "$folder"
            rm -rf "${folder:?}/$name"
        done
        for file in $(cd "$work/first" && find . -name '*.deb' -o -path './dist/palimpsa-*'); do
            if cmp "$work/first/$file" "$work/a-longer-name/second/$file"; then echo "equal: $(basename "$file")"
            else differ=1; fi
        done
        rm -rf "$work/first" "$work/a-longer-name"
    done
    exit $differ
fi

if wanted source; then git archive --prefix="$name/" HEAD | gzip -9n > "$out/$name.tar.gz"; fi
if wanted debian; then
    debian_in "$work/debian"
    mv "$work"/debian/*.deb "$out"
fi
if wanted static; then
    static_in "$work/static"
    mv "$work"/static/dist/palimpsa-* "$out"
    mv "$work/static/dist/MANIFEST.txt" "$out/$name-static-manifest.txt"
    mv "$work/static/dist/LICENCES.txt" "$out/$name-static-licences.txt"
fi
if wanted wheel; then
    source_in "$work/wheel"
    (cd "$work/wheel/$name" && scripts/wheel.sh > ../wheel.log 2>&1) || { tail -n 30 "$work/wheel/wheel.log" >&2; exit 1; }
    mv "$work/wheel/$name"/python/dist/*.whl "$out"
fi
python3 scripts/bill_of_materials.py "$version" "$SOURCE_DATE_EPOCH" "$out" > "$out/$name.spdx.json"
(cd "$out" && sha256sum -- * > "$work/SHA256SUMS" && mv "$work/SHA256SUMS" .)
if [ -n "${MINISIGN_KEY:-}" ]; then minisign -S -s "$MINISIGN_KEY" -m "$out/SHA256SUMS" -t "$name"
else echo "MINISIGN_KEY names no key: SHA256SUMS is not signed"; fi
ls -l "$out"
