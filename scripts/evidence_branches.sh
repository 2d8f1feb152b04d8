#!/usr/bin/env bash
# Block C of docs/results/recall/protocol.md: base models without importance, branched into control, switched and exact.
#   scripts/evidence_branches.sh [OUT]
# OUT (default docs/results/recall/branches) gets results.csv and learning.csv, which grow by every unit (a base and its six branches)
# that ends; a unit whose rows are there is never trained again. Killed at any moment, the same command continues. Two units at a time,
# one thread each; JOBS sets another number.
set -euo pipefail
[ $# -le 1 ] || { sed -n '2,6s/^# *//p' "$0" >&2; exit 2; }
here=$(cd "$(dirname "$0")/.." && pwd)
out=${1:-$here/docs/results/recall/branches}
program=${PALIMPSA:-$here/build/palimpsa}
export OMP_WAIT_POLICY=passive

chain=16:4:150:64,32:8:400:32,64:16:600:16,128:32:1000:8,256:64:1500:4,512:128:2500:2
last=1024:256:1500:1
version=$("$program" version | awk 'NR == 1 { print $2 }')
cpu=$("$program" version | awk '/^cpu:/ { sub(",", "", $2); print $2 }')

# train RUN options...: trains or resumes RUN until it has finished.
train() {
    local run=$1
    shift
    if [ -e "$run/config.json" ]; then set -- --resume
    else
        set -- --vocab 1024 --accumulate 4 --examples 0 --test-examples 256 --weight-decay 0 --schedule cosine --warmup 50 --stop-score 2 \
            --eval-every 0 --log-every 50 --checkpoint-every 250 --keep 1 --threads 1 "$@"
    fi
    nice -n 19 "$program" train "$@" --out "$run" >>"$run.log" 2>&1 || { tail -n 3 "$run.log" >&2; exit 1; }
    # train that is asked to stop ends well, but early
    grep -q '"finished": *true' "$run"/checkpoints/step-*/trainer.json || { echo "$run: not finished: the same command continues" >&2; exit 1; }
}

# rows RUN MODEL RATE SEED DATA_SEED FIRST_STAGE: a finished run's rows, to RUN.results and RUN.learning.
rows() {
    python3 - "$@" "$version" "$cpu" <<'ROWS'
import json, sys
run, model, rate, seed, data, first, version, cpu = sys.argv[1:]
lines = [json.loads(line) for line in open(f"{run}/metrics.jsonl")]
start = f"{model},{rate},{seed}"
with open(f"{run}.results", "w") as file:
    for stage in sorted({m.get("stage", 0) for m in lines}):
        of = [m for m in lines if m.get("stage", 0) == stage]
        end = of[-1]
        file.write(f"{start},{stage + int(first)},{end['length']},{end['pairs']},{end['accuracy']:.6f},{end['step']},"
                   f"{data},{end['valid_loss']:.6f},{end['loss']:.6f},{version},{cpu}\n")
mean = lambda values: f"{sum(values) / len(values):.6g}" if values and None not in values else ""
with open(f"{run}.learning", "w") as file:
    for m in lines:
        file.write(f"{start},{data},{m.get('stage', 0) + int(first)},{m['step']},{m['loss']:.6f},{m['train_accuracy']:.6f},"
                   f"{m.get('accuracy', '')},{mean(m.get('n_t'))},{mean(m.get('ratio'))},{mean(m.get('b_scale'))}\n")
ROWS
}

rate() { case $1 in d) echo 4e-3 ;; m) echo 8e-3 ;; esac; }

unit() { # BACKBONE SEED
    local base=palimpsa-$1-wo-meta seed=$2 rate k data arm start options all
    local folder=$out/runs/$1-$2
    rate=$(rate "$1")
    ! grep -q "^palimpsa-$1:control,$rate,$seed," "$out/results.csv" || return 0
    mkdir -p "$folder"
    train "$folder/base" --model "$base" --seed "$seed" --lr "$rate" --stages "$chain"
    rows "$folder/base" "$base" "$rate" "$seed" "$seed" 1
    all=("$folder/base")
    for k in 1 2; do
        data=$((1000 * k + seed))
        for arm in control switched exact; do
            start=$folder/base/checkpoints/step-6150 options=()
            if [ $arm != control ]; then
                start=$folder/$arm-$k-start
                [ $arm = switched ] || options=(--exact)
                [ -e "$start/config.json" ] ||
                    "$program" convert "$folder/base" "$start" --metaplastic all --seed "$data" --no-proof --threads 1 "${options[@]}" >"$start.log"
                [ $arm = switched ] || options=(--lr-factor '*.b_scale=100')
            fi
            train "$folder/$arm-$k" --model "$start" --seed "$data" --lr "$rate" --eps 1e-15 --stages "$last" "${options[@]}"
            rows "$folder/$arm-$k" "palimpsa-$1:$arm" "$rate" "$seed" "$data" 7
            all+=("$folder/$arm-$k")
        done
    done
    (
        flock 9
        cat "${all[@]/%/.learning}" >>"$out/learning.csv"
        cat "${all[@]/%/.results}" >>"$out/results.csv"
    ) 9>"$out/runs/lock"
    rm -r "$folder"
    echo "unit $1 $seed: $(grep -c . "$out/results.csv") lines in results.csv"
}

mkdir -p "$out/runs"
[ -e "$out/results.csv" ] || echo model,lr,seed,stage,length,pairs,accuracy,steps,data_seed,loss,train_loss,version,cpu >"$out/results.csv"
[ -e "$out/learning.csv" ] || echo model,lr,seed,data_seed,stage,step,loss,train_accuracy,accuracy,n_t,ratio,b_scale >"$out/learning.csv"
started=()
for seed in 1 2 3 4 5 6 7 8 9 10 11 12; do
    for backbone in d m; do
        while [ "$(jobs -rp | wc -l)" -ge "${JOBS:-2}" ]; do sleep 1; done
        unit $backbone $seed &
        started+=($!)
    done
done
failed=0
for job in "${started[@]}"; do wait "$job" || failed=1; done
[ $failed = 0 ] || { echo "evidence_branches.sh: a unit failed; the same command continues" >&2; exit 1; }
