#!/usr/bin/env bash
# The runs of docs/results/recall-protocol.md and of docs/results/recall/protocol.md (branches):
#   scripts/evidence.sh main|text|rules|pressure|branches [OUT]
# OUT (default docs/results/evidence; for branches docs/results/recall/branches) holds the rows; results.csv of a block grows with each
# run that ends, and a run whose rows are there is never trained again. Killed at any moment, the same command continues. Two runs at a
# time, one thread each; JOBS sets another number.
set -euo pipefail
[ $# -ge 1 ] && [ $# -le 2 ] || { sed -n '2,7s/^# *//p' "$0" >&2; exit 2; }
here=$(cd "$(dirname "$0")/.." && pwd)
block=$1 out=${2:-$here/docs/results/evidence}
program=${PALIMPSA:-$here/build/palimpsa}
export OMP_WAIT_POLICY=passive

sweep() { nice -n 19 "$program" sweep mqar --jobs "${JOBS:-2}" "$@"; }

# A model's best rate in the main search: the highest sum over seeds and stages.
best() {
    LC_ALL=C awk -F, -v model="$1" '
        NR > 1 && $1 == model { sum[$2] += $7 }
        END { for (rate in sum) if (sum[rate] > most) { most = sum[rate]; found = rate } print found }' "$out/main/search/results.csv"
}

# at_best FOLDER MODEL ENTRY [options of train]: 8 seeds of ENTRY at MODEL's rate.
at_best() {
    local folder=$out/$1 rate
    rate=$(best "$2")
    [ -n "$rate" ] || { echo "evidence.sh: $out/main/search/results.csv has no rows of $2: run the block main first" >&2; exit 2; }
    sweep --models "$3" --lrs "$rate" --seeds 1,2,3,4,5,6,7,8 --train "$here/configs/mqar-evidence-train.json" --out "$folder/${3//:/-}" -- "${@:4}"
}

# gather FOLDER: the sweeps in it as one, for `palimpsa compare`.
gather() {
    local folder=$out/$1
    mkdir -p "$folder/curves"
    cp "$folder"/*/curves/*.csv "$folder/curves/"
    awk 'FNR > 1 || NR == 1' "$folder"/*/results.csv >"$folder/results.tmp"
    mv "$folder/results.tmp" "$folder/results.csv"
}

case $block in
main) sweep --config "$here/configs/mqar-evidence.json" --out "$out/main" ;;
text) exec "$here/scripts/evidence_text.sh" "$out/text" ;; # reads $PALIMPSA_DATA/wikitext-2
branches) exec "$here/scripts/evidence_branches.sh" "${2:-$here/docs/results/recall/branches}" ;;
rules) sweep --config "$here/configs/mqar-evidence-rules.json" --out "$out/rules" ;;
pressure)
    for model in palimpsa-d palimpsa-d-wo-meta gated-deltanet; do
        at_best length-512 $model $model --vocab 264 --stages 64:16:1500:16,128:32:1500:8,256:64:1500:4,512:128:1500:2
    done
    for model in palimpsa-d palimpsa-d-wo-meta; do
        at_best keys-8 $model $model:head-dim=8:expand-v=4
        at_best keys-32 $model $model:head-dim=32:expand-v=1
    done
    for folder in length-512 keys-8 keys-32; do gather $folder; done
    ;;
*) echo "evidence.sh: block '$block': expected main, text, rules, pressure or branches" >&2; exit 2 ;;
esac
