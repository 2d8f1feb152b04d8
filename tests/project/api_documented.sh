#!/usr/bin/env bash
# Every function that a public header declares occurs in docs/reference/c-api.md.
set -euo pipefail
root=$1
declared=$(sed -n 's/^PAL_API .*\b\(pal_[a-z0-9_]*\)(.*/\1/p' "$root"/include/palimpsa/*.h | sort)
documented=$(grep -o '\bpal_[a-z0-9_]*' "$root/docs/reference/c-api.md" | sort -u)
missing=$(comm -23 <(echo "$declared") <(echo "$documented"))
if [ -n "$missing" ]; then
    echo "functions that docs/reference/c-api.md does not mention:"
    echo "$missing"
    exit 1
fi
echo "all $(echo "$declared" | wc -l) public functions occur in docs/reference/c-api.md"
