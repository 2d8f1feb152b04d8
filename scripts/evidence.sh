#!/usr/bin/env bash
# The runs of docs/results/mqar-protocol.md:
#   scripts/evidence.sh main|rules [OUT]
# OUT (default docs/results/evidence) holds the rows; OUT/BLOCK/results.csv grows by every run that ends, and a run whose rows are
# there is never trained again. Killed at any moment, the same command goes on. Two runs at a time, one thread each; JOBS says otherwise.
set -euo pipefail
[ $# -ge 1 ] && [ $# -le 2 ] || { sed -n '2,5s/^# *//p' "$0" >&2; exit 2; }
here=$(cd "$(dirname "$0")/.." && pwd)
out=${2:-$here/docs/results/evidence}
program=${PALIMPSA:-$here/build/palimpsa}
export OMP_WAIT_POLICY=passive
case $1 in
main) config=$here/configs/mqar-evidence.json ;;
rules) config=$here/configs/mqar-evidence-rules.json ;;
*) echo "evidence.sh: block '$1': expected main or rules" >&2; exit 2 ;;
esac
exec nice -n 19 "$program" sweep mqar --config "$config" --jobs "${JOBS:-2}" --out "$out/$1"
