#!/usr/bin/env bash
# No line of C is wider than .clang-format's column limit; `make format` breaks those of a change.
set -euo pipefail
root=$1
limit=$(sed -n 's/^ColumnLimit: *//p' "$root/.clang-format")
export LC_ALL=C.UTF-8 # columns are characters, not bytes
wide=$(find "$root"/{src,cli,include,examples,tests} \( -name '*.c' -o -name '*.h' -o -name '*.inc' \) -print0 |
    xargs -0 grep -HnE "^.{$((limit + 1)),}$" || true)
if [ -n "$wide" ]; then
    echo "wider than $limit columns:"
    cut -c "$((${#root} + 2))-" <<<"$wide"
    exit 1
fi
echo "every line of C is at most $limit columns wide"
