#!/usr/bin/env bash
# The language runs of docs/results/language.md:
#   scripts/language_runs.sh shakespeare|wikitext|metaplastic|measure DATA OUT
# DATA holds tinyshakespeare/input.txt and wikitext-2/{train,valid,test}.txt. Killed, the same command continues; a run that has
# ended is not trained again. Each run prints its time; curves are in OUT/*/metrics.jsonl.
set -euo pipefail
[ $# -eq 3 ] || { sed -n '2,5s/^# *//p' "$0" >&2; exit 2; }
what=$1 data=$2 out=$3
program=${PALIMPSA:-$(dirname "$0")/../build/palimpsa}
models=${MODELS:-palimpsa-d palimpsa-d-wo-meta palimpsa-m palimpsa-m-wo-meta gated-deltanet transformer}
mkdir -p "$out"

run() { # run DIR options of train...: begins it, or continues with it
    local folder=$1
    shift
    echo "== ${folder##*/}"
    if [ -e "$folder/config.json" ]; then "$program" train --resume --out "$folder"
    else "$program" train "$@" --out "$folder"; fi
}

shakespeare() { # characters, equal parameters and updates
    for model in $models; do
        run "$out/$model" --recipe shakespeare --data "$data/tinyshakespeare/input.txt" --model "$model" --sample $'ROMEO:\n' --sample-tokens 150
    done
}

pages() { # a page of wikitext begins with a line ' = Title = ' (a section with ' = = Title = = ')
    python3 - "$1" <<'PAGES'
import json, re, sys
text = open(sys.argv[1], encoding="utf-8").read()
for page in re.split(r"(?m)^(?= = [^=].* = $)", text):
    if page.strip():
        print(json.dumps({"text": page}))
PAGES
}

wikitext() { # 4,096 ids of our own, about 3.5M parameters, 4.1M tokens
    local shards=$out/shards
    if [ ! -e "$shards/valid/shards.json" ]; then
        "$program" tokenize --train-bpe 4096 --out "$out/vocabulary" "$data/wikitext-2/train.txt"
        for part in train valid; do
            pages "$data/wikitext-2/$part.txt" > "$out/$part.jsonl"
            "$program" tokenize "$out/$part.jsonl" --tokenizer "$out/vocabulary" --out "$shards/$part"
        done
    fi
    for model in $models; do
        case $model in palimpsa-m*) layers=9 ;; *) layers=6 ;; esac # a layer of M has no MLP
        run "$out/$model" --task text --data "$shards/train" --valid-data "$shards/valid" --model "$model" --layers "$layers" --row 2048 --context 512 --batch 2 \
            --steps 1000 --warmup 100 --lr 3e-3 --eval-every 100 --valid-tokens 100000 --checkpoint-every 100
    done
}

metaplastic() { # the last tenth of a run without metaplasticity, with it
    for family in ${FAMILIES:-palimpsa-d palimpsa-m}; do
        local start=$out/$family-wo-meta/checkpoints/step-900
        [ -e "$start" ] || { echo "$start is missing: first run '$0 wikitext $data $out'" >&2; exit 1; }
        [ -e "$out/$family-switched" ] || "$program" convert "$start" "$out/$family-switched" --metaplastic all --seed 1 --no-proof
        local common="--task text --data $out/shards/train --valid-data $out/shards/valid --row 2048 --context 512 --batch 2 --steps 100 --warmup 10 --lr 3e-4 --eval-every 50 --valid-tokens 100000 --seed 2"
        # shellcheck disable=SC2086
        run "$out/$family-metaplastic" --model "$out/$family-switched" $common --lr-factor '*.b_scale=10'
        # shellcheck disable=SC2086
        run "$out/$family-control" --model "$start" $common
    done
}

measure() { # of wikitext and metaplastic: OUT/measured/*.json, and the loss by position
    local to=$out/measured all=() more=()
    mkdir -p "$to"
    for model in $models; do all+=("$out/$model"); done
    for family in palimpsa-d palimpsa-m; do more+=("$out/$family-metaplastic" "$out/$family-control"); done
    for part in valid test; do # windows of the length that was trained with
        "$program" eval "${all[@]}" "${more[@]}" --data "$data/wikitext-2/$part.txt" --split wikitext --context 512 --json > "$to/$part.json"
    done
    # Whole pages, through the memory; the transformer's windows stay 512.
    "$program" eval $(printf '%s\n' "${all[@]}" | grep -v 'palimpsa-m-wo-meta$') --baseline "$out/palimpsa-m-wo-meta" --data "$data/wikitext-2/test.txt" --split wikitext \
        --figure "$to/position.svg" --json > "$to/pages.json"
    "$program" eval "$out/palimpsa-m-wo-meta" --data "$data/wikitext-2/test.txt" --split wikitext --json > "$to/pages-baseline.json"
}

case $what in
shakespeare | wikitext | metaplastic | measure) "$what" ;;
*) echo "expected shakespeare, wikitext, metaplastic or measure, found '$what'" >&2; exit 2 ;;
esac
