#!/usr/bin/env bash
# What `make coverage` runs: how much of the code that reads strangers' files, and of the code that keeps a user's work, the tests reach.
# Which files these are stands in CMakeLists.txt (PALIMPSA_COVERAGE); they are counted by gcov without optimisation, so that a branch is one
# that someone wrote. A branch that only a failing allocation or a failing call to the disk takes counts too: test_faults takes those.
# Prints lines and branches of each file, and writes build-coverage/report/index.html. Exit code 1 below 95% of lines or 90% of branches.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=${JOBS:-$(nproc)}
report=build-coverage/report
# The tests that come to these files: readers, writers and what stands on them, and the program where it is fed malformed files.
tests='test_(base|blocks|comm|data_.*|directories|eval.*|faults|formats|json|model_.*|options|plot.*|safetensors|session|session_text|state_files|surgery'
tests+='|text_.*|train|trainer|watch)|fuzz_.*|program_(tokenize|directories|mutated|refuses_.*|serve|serve_memories|serve_manners|serve_strange)'

cmake --preset coverage >/dev/null
cmake --build build-coverage -j "$jobs"
find build-coverage -name '*.gcda' -delete
ctest --test-dir build-coverage --no-tests=error --output-on-failure -j "$jobs" -R "^($tests)\$"

mkdir -p "$report"
gcovr --root . --filter 'src/.*\.c' --filter 'src/base/size\.h' --txt "$report/lines.txt" --html-details "$report/index.html" \
    --json-summary "$report/summary.json" build-coverage
python3 - "$report/summary.json" <<'PY'
import json, sys
summary = json.load(open(sys.argv[1]))
print(f"| {'file':28} | lines |       | branches |       |\n|---|---|---|---|---|")
for f in sorted(summary["files"], key=lambda f: f["branch_percent"] or 0):
    print(f"| {f['filename'].removeprefix('src/'):28} | {f['line_covered']} of {f['line_total']} | {f['line_percent']}% "
          f"| {f['branch_covered']} of {f['branch_total']} | {f['branch_percent']}% |")
lines, branches = summary["line_percent"], summary["branch_percent"]
print(f"lines {lines}% of {summary['line_total']} (95 wanted), branches {branches}% of {summary['branch_total']} (90 wanted); "
      "build-coverage/report/index.html has every line")
sys.exit(lines < 95 or branches < 90)
PY
