#!/usr/bin/env bash
# Sentences of the library name no option of the program. src/serve is part of the program; settings of a training run
# and of a plan of tasks are, by their interface, the options of the same names.
set -euo pipefail
cd "$1"
if grep -rnP '"([^"\\]|\\.)*(^|[^-!<])--[a-z]([^"\\]|\\.)*"' src --include='*.c' --include='*.h' --include='*.inc' |
    grep -vE '^src/(serve/|train/(settings|run(_[a-z]+)?)\.c:|eval/plan\.c:)|^src/plot/report\.c:.*(:root|var\(--)'; then
    echo "the library does not know how the program calls its options: say what is meant"
    exit 1
fi
echo "no sentence of the library names an option"
