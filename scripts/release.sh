#!/usr/bin/env bash
# release.sh makes release/ from the last commit: the source, Debian packages, static files for x86-64 and ARM64, the Python wheel,
# the page for a static host, a bill of materials, SHA256SUMS, and with MINISIGN_KEY=FILE its signature.
#   release.sh [--only source|debian|static|wheel|site]   one part, for trying it
#   release.sh --compare [PART...]                   parts twice, in two folders: the bytes must be equal, diffoscope shows what differs
# The build sees only what is committed, and SOURCE_DATE_EPOCH is the commit's time.
set -euo pipefail
cd "$(dirname "$0")/.."
only=all
case ${1:-} in
--only) only=${2:?--only expects source, debian, static, wheel or site} ;;
--compare) only=compare parts=("${@:2}") ;;
'') ;;
*) sed -n '2,6s/^# *//p' "$0" >&2; exit 2 ;;
esac
wanted() { [ $only = all ] || [ $only = "$1" ]; }

version=$(sed -n 's/^project(palimpsa VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
name=palimpsa-$version
grep -q "$version" CHANGELOG.md || { echo "release.sh: CHANGELOG.md does not mention $version" >&2; exit 2; }
[ -z "$(git status --porcelain)" ] || { echo "release.sh: there are changes that are not committed; a release is made from commits" >&2; exit 2; }
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
COMMIT=$(git rev-parse --short HEAD)
export SOURCE_DATE_EPOCH COMMIT
unset CMAKE_C_COMPILER_LAUNCHER # a cache may hold what was compiled elsewhere
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

wheel_in() { # FOLDER: its wheel comes to lie in it
    source_in "$1"
    (cd "$1/$name" && scripts/wheel.sh > ../wheel.log 2>&1) || { tail -n 30 "$1/wheel.log" >&2; exit 1; }
    mv "$1/$name"/python/dist/*.whl "$1"
}

site_in() { # FOLDER: the page comes to lie in it, packed
    source_in "$1"
    [ ! -e build-libraries ] || cp -r build-libraries "$1/$name/"
    (cd "$1/$name" && { scripts/wasm.sh && scripts/site.sh "../$name-site"; } > ../site.log 2>&1) || { tail -n 30 "$1/site.log" >&2; exit 1; }
    scripts/licences.sh emscripten libjansson-dev libonig-dev libutf8proc-dev > "$1/$name-site/LICENCES.txt"
    tar -C "$1" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX -c "$name-site" |
        gzip -9n > "$1/$name-site.tar.gz"
}

if [ $only = compare ]; then
    differ=0
    [ ${#parts[@]} -gt 0 ] || parts=(debian static wheel site)
    for part in "${parts[@]}"; do
        for folder in "$work/first" "$work/a-longer-name/second"; do
            ${part}_in "$folder"
            rm -rf "${folder:?}/$name"
        done
        for file in $(cd "$work/first" && find . -name '*.deb' -o -name '*.whl' -o -name '*-site.tar.gz' -o -path './dist/*'); do
            if cmp "$work/first/$file" "$work/a-longer-name/second/$file"; then echo "equal: $(basename "$file")"
            else
                differ=1
                diffoscope --max-report-size 20000 "$work/first/$file" "$work/a-longer-name/second/$file" || true
            fi
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
    wheel_in "$work/wheel"
    mv "$work"/wheel/*.whl "$out"
fi
if wanted site; then
    site_in "$work/site"
    mv "$work/site/$name-site.tar.gz" "$out"
fi
python3 scripts/bill_of_materials.py "$version" "$SOURCE_DATE_EPOCH" "$out" > "$out/$name.spdx.json"
(cd "$out" && sha256sum -- * > "$work/SHA256SUMS" && mv "$work/SHA256SUMS" .)
if [ -n "${MINISIGN_KEY:-}" ]; then minisign -S -s "$MINISIGN_KEY" -m "$out/SHA256SUMS" -t "$name"
else echo "MINISIGN_KEY names no key: SHA256SUMS is not signed"; fi
ls -l "$out"
