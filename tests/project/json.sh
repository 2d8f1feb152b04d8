#!/usr/bin/env bash
# JSON is built and printed by src/format/json.h, which notices what was lost for want of memory. jansson's own functions
# may be called where their result is looked at; its readers of files only there, because they do not notice when they run
# out of memory.
set -euo pipefail
root=$1
found=$(grep -rnE '^ *(\(void\) *)?json_(object_(set|update)|array_(append|insert|set|extend))[a-z_]*\(|[^a-z_]json_(dump[a-z_]*|deep_copy|copy|object_update_missing[a-z_]*)\(|[^a-z_]json_load[a-z_]*\(' \
    "$root/src" "$root/cli" --include='*.c' --include='*.h' | grep -v '/src/format/json\.c:' || true)
if [ -n "$found" ]; then
    echo "calls of jansson whose failure is not checked:"
    cut -c "$((${#root} + 2))-" <<<"$found"
    exit 1
fi
echo "every value of JSON is built and printed by format/json.h"
