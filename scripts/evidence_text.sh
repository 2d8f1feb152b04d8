#!/usr/bin/env bash
# The block "text" of docs/results/recall-protocol.md: small models that read wikitext-2 and notes to be recalled.
#   PALIMPSA_DATA=DIR scripts/evidence_text.sh [OUT]
# DIR holds wikitext-2/{train,valid}.txt. OUT (default docs/results/evidence/text) gets results.csv (answers that are right) and
# losses.csv, which grow by every run that ends; a run whose rows are there is never trained again. Killed at any moment, the same
# command continues. Two runs at a time, one thread each; JOBS says otherwise.
set -euo pipefail
[ $# -le 1 ] && [ -e "${PALIMPSA_DATA:-}/wikitext-2/train.txt" ] || { sed -n '2,7s/^# *//p' "$0" >&2; exit 2; }
here=$(cd "$(dirname "$0")/.." && pwd)
out=${1:-$here/docs/results/evidence/text}
wikitext=$PALIMPSA_DATA/wikitext-2 data=$out/runs/data
program=${PALIMPSA:-$here/build/palimpsa}
export OMP_WAIT_POLICY=passive

updates=2500
late=$((updates / 5)) # of the runs that continue from a model without importance
pairs="2 4 8 16 32"
new=(--init recall --hidden 64 --layers 2 --heads 4 --head-dim 32 --state-size 16 --warmup 100)

make_data() { # a vocabulary of 1,024 ids, shards, and notes that are held out
    [ ! -e "$data/made" ] || return 0
    rm -rf "$data" && mkdir -p "$data"
    for n in $pairs; do
        for part in notes:$((800000 / n)):1 held:200:9; do
            IFS=: read -r name count digit <<<"$part"
            "$program" needle --brief --tokenizer bytes --needles "$n" --questions "$n" --count "$count" --seed "$digit$n" --out "$data/$name-$n.jsonl"
        done
    done
    cat "$data"/notes-*.jsonl >"$data/notes.jsonl"
    cat "$data"/held-*.jsonl >"$data/held.jsonl"
    awk 'NR % 9 == 0' "$data/notes.jsonl" | sed 's/^{"text":"//; s/","questions".*//; s/\\n/\n/g' >"$data/sample.txt"
    "$program" tokenize --train-bpe 1024 --out "$data/vocabulary" "$wikitext/train.txt" "$data/sample.txt"
    "$program" tokenize "$wikitext/train.txt" --tokenizer "$data/vocabulary" --out "$data/text"
    "$program" tokenize "$data/notes.jsonl" --tokenizer "$data/vocabulary" --out "$data/notes"
    rm "$data"/notes*.jsonl "$data/sample.txt"
    touch "$data/made"
}

measure() { # RUN ARM,RATE,SEED UPDATES
    local run=$1
    for n in $pairs; do "$program" eval "$run" --answers --data "$data/held-$n.jsonl" --threads 1 --json "$run/answers-$n.json"; done
    "$program" eval "$run" --data "$wikitext/valid.txt" --split wikitext --context 512 --threads 1 --json "$run/text.json"
    python3 - "$@" "$out" <<'ROWS'
import json, sys
run, start, updates, out = sys.argv[1:]
results, losses = [], []
for stage, pairs in enumerate((2, 4, 8, 16, 32), 1):
    m = json.load(open(f"{run}/answers-{pairs}.json"))
    results.append(f"{start},{stage},{6 * pairs},{pairs},{m['right'] / m['answers']:.6f},{updates}\n")
    losses.append(f"{start},answer,{pairs},,,{m['nll_sum'] / m['answers']:.6f},{m['answers']}\n")
    losses += [f"{start},token,{pairs},{b['from']},{b['to'] - 1},{b['nll']:.6f},{b['tokens']}\n" for b in m["by_position"]]
m = json.load(open(f"{run}/text.json"))
losses.append(f"{start},text,,,,{m['nll']:.6f},{m['tokens']}\n")
for name, rows in (("losses", losses), ("results", results)):  # a run with results has losses, too
    with open(f"{out}/{name}.csv", "a") as file:
        file.write("".join(rows))
ROWS
}

run() { # ARM SEED RATE UPDATES options of train...
    local arm=$1 seed=$2 rate=$3 updates=$4 run=$out/runs/$1-$2 begin=$SECONDS
    shift 4
    ! grep -q "^$arm,$rate,$seed," "$out/results.csv" || return 0
    if [ -e "$run/config.json" ]; then set -- --resume
    else
        set -- --task text --data "$data/text=1,$data/notes=2" --valid-data "$data/held.jsonl" --row 8192 --context 512 --batch 1 --threads 1 --eval-every 100 \
            --log-every 25 --checkpoint-every "$late" --seed "$seed" --lr "$rate" --steps "$updates" "$@"
    fi
    nice -n 19 "$program" train "$@" --out "$run" >>"$run.log" 2>&1 || { tail -n 3 "$run.log" >&2; exit 1; }
    # train that is asked to stop ends well, but early
    grep -q '"finished": *true' "$run/checkpoints/step-$updates/trainer.json" || { echo "$run: not finished: the same command continues" >&2; exit 1; }
    (flock 9 && measure "$run" "$arm,$rate,$seed" "$updates") 9>"$out/runs/lock"
    awk -F, -v name="$arm seed $seed" -v minutes=$(((SECONDS - begin) / 60)) -v key="^$arm,$rate,$seed," \
        'BEGIN { printf "%-26s", name } $0 ~ key { printf "  %s: %.3f", $6, $7 } END { printf "  (%d min)\n", minutes }' "$out/results.csv"
}

with() { run palimpsa-m "$1" 8e-3 $updates --model palimpsa-m "${new[@]}"; }

without() { # and the two that continue from its last fifth
    local start=$out/runs/palimpsa-m-wo-meta-$1/checkpoints/step-$((updates - late)) switched=$out/runs/switched-$1
    run palimpsa-m-wo-meta "$1" 8e-3 $updates --model palimpsa-m-wo-meta "${new[@]}"
    if [ ! -e "$switched" ]; then
        rm -rf "$switched.tmp"
        "$program" convert "$start" "$switched.tmp" --metaplastic all --seed "$1" --no-proof
        mv "$switched.tmp" "$switched"
    fi
    run surgery "$1" 1.6e-3 $late --model "$switched" --warmup 20 --lr-factor '*.b_scale=10'
    run control "$1" 1.6e-3 $late --model "$start" --warmup 20
}

mkdir -p "$out/runs"
[ -e "$out/results.csv" ] || echo model,lr,seed,stage,length,pairs,accuracy,steps >"$out/results.csv"
[ -e "$out/losses.csv" ] || echo model,lr,seed,of,pairs,from,to,nats,count >"$out/losses.csv"
make_data
started=()
for seed in 1 2 3 4; do
    for arm in with without; do
        while [ "$(jobs -rp | wc -l)" -ge "${JOBS:-2}" ]; do sleep 1; done
        $arm $seed &
        started+=($!)
    done
done
failed=0
for job in "${started[@]}"; do wait "$job" || failed=1; done
[ $failed = 0 ] || { echo "evidence_text.sh: a run failed; the same command continues" >&2; exit 1; }
# Loss on answers in notes of 32 pairs by distance, means over seeds, for `palimpsa plot`.
awk -F, 'BEGIN { print "model,position,loss" }
    $4 == "token" && $5 == 32 && !seen[$0]++ { at = $1 "," int(sqrt($6 * ($7 + 1))); sum[at] += $8 * $9; tokens[at] += $9 }
    END { for (at in sum) printf "%s,%.4f\n", at, sum[at] / tokens[at] | "sort -t, -k1,1 -k2,2n" }' "$out/losses.csv" >"$out/distance.csv"
