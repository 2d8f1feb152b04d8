#!/usr/bin/env bash
# The shared library exports exactly the functions that public headers declare, and the static one defines only pal_ names.
set -euo pipefail
root=$1 shared=$2 static=$3
declared=$(sed -n 's/^PAL_API .*\b\(pal_[a-z0-9_]*\)(.*/\1/p' "$root"/include/palimpsa/*.h | sort)
exported=$(nm -D --defined-only "$shared" | awk '$2 ~ /[TDBRV]/ { print $3 }' | sort)
if [ "$declared" != "$exported" ]; then
    echo "declared with PAL_API (<) and exported (>) differ:"
    diff <(echo "$declared") <(echo "$exported") || true
    exit 1
fi
stray=$(nm --defined-only "$static" | awk 'NF == 3 && $2 ~ /[TDBRV]/ && $3 !~ /^pal_/ { print $3 }' | sort -u)
if [ -n "$stray" ]; then
    echo "names without pal_ in the static library:"
    echo "$stray"
    exit 1
fi
echo "$(echo "$exported" | wc -l) functions exported, all declared; no other name leaks"
