#!/usr/bin/env bash
# The shared library exports exactly the functions that public headers declare, and the static
# ones define only pal_ names. The library needs nothing that draws: it runs where there is neither cairo nor X11.
set -euo pipefail
root=$1 shared=$2 static=("${@:3}")
declared=$(sed -n 's/^PAL_API .*\b\(pal_[a-z0-9_]*\)(.*/\1/p' "$root"/include/palimpsa/*.h | sort)
exported=$(nm -D --defined-only "$shared" | awk '$2 ~ /[TDBRV]/ { print $3 }' | sort)
if [ "$declared" != "$exported" ]; then
    echo "declared with PAL_API (<) and exported (>) differ:"
    diff <(echo "$declared") <(echo "$exported") || true
    exit 1
fi
stray=$(nm --defined-only "${static[@]}" | awk 'NF == 3 && $2 ~ /[TDBRV]/ && $3 !~ /^pal_/ { print $3 }' | sort -u)
if [ -n "$stray" ]; then
    echo "names without pal_ in the static libraries:"
    echo "$stray"
    exit 1
fi
drawing=$(ldd "$shared" | grep -oE 'lib(cairo|X11|xcb|pixman|freetype|fontconfig|microhttpd)[^ ]*' || true)
if [ -n "$drawing" ]; then
    echo "the shared library needs what only the program should:"
    echo "$drawing"
    exit 1
fi
echo "$(echo "$exported" | wc -l) functions exported, all declared; no other name leaks"
