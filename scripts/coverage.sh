#!/usr/bin/env bash
# What `make coverage` runs: how much of the code that reads strangers' files, and of the code that keeps a user's work, the tests reach.
# Builds with gcov, runs the unit tests and the program's tests, prints lines and branches of each file, and writes build-coverage/report/index.html.
# A branch that only a failing allocation takes counts too. Ends with exit code 1 below 95% of lines or 90% of branches.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=$(nproc)
cmake --preset coverage >/dev/null
cmake --build build-coverage -j "$jobs"
find build-coverage -name '*.gcda' -delete
ctest --test-dir build-coverage --output-on-failure -j "$jobs" -L unit

# Readers of files, and what writes checkpoints, states and shards.
parsers='src/(format|text)/.*|src/model/(config|config_json|state|weights)\.c|src/data/(shards|shards_writer|text|chars)\.c'
keepers='src/train/checkpoint\.c|src/base/(io|directory|lock|map|blocks|size)\.[ch]'
mkdir -p build-coverage/report
gcovr --root . --filter "($parsers|$keepers)" --exclude-unreachable-branches --exclude-throw-branches \
    --txt build-coverage/report/lines.txt --html-details build-coverage/report/index.html --print-summary --json-summary build-coverage/report/summary.json build-coverage
gcovr --root . --filter "($parsers|$keepers)" --exclude-unreachable-branches --exclude-throw-branches --branches build-coverage >build-coverage/report/branches.txt
python3 - build-coverage/report/summary.json <<'PY'
import json, sys
summary = json.load(open(sys.argv[1]))
lines, branches = summary["line_percent"], summary["branch_percent"]
print(f"lines {lines:.1f}% (95 wanted), branches {branches:.1f}% (90 wanted); build-coverage/report/index.html has every line")
for f in sorted(summary["files"], key=lambda f: f["line_percent"])[:12]:
    print(f"  {f['filename']:40} lines {f['line_percent']:5.1f}%  branches {f['branch_percent']:5.1f}%")
sys.exit(lines < 95 or branches < 90)
PY
