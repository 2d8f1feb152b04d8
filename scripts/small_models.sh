#!/usr/bin/env bash
# Trains the models of models/: scripts/small_models.sh OUT. PALIMPSA_DATA holds tinyshakespeare/input.txt. The weights go to OUT;
# the runs stay in OUT/runs, and an interrupted run is resumed.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:?usage: scripts/small_models.sh OUT}
program=${PALIMPSA:-build/palimpsa}
text=${PALIMPSA_DATA:?names the directory that holds tinyshakespeare/input.txt}/tinyshakespeare/input.txt

train() { # DIRECTORY OPTIONS...
    local run=$1
    shift
    if [ -e "$run/checkpoints" ]; then
        "$program" train --resume --out "$run"
    else
        "$program" train "$@" --seed 1 --threads 1 --out "$run"
    fi
}

mkdir -p "$out/runs"
train "$out/runs/recall" --config configs/demo.json --model palimpsa-m --stages 64:16:2500:32,256:64:2000:8 &
train "$out/runs/recall-without" --config configs/demo.json --model palimpsa-m-wo-meta --stages 64:16:2500:32,256:64:2000:8 &
train "$out/runs/shakespeare" --config configs/shakespeare.json --data "$text" --model palimpsa-m --hidden 128 --steps 1200
wait
rm -rf "$out/recall" "$out/recall-without" "$out/shakespeare.gguf"
cp -r "$out/runs/recall/checkpoints/best" "$out/recall"
cp -r "$out/runs/recall-without/checkpoints/best" "$out/recall-without"
"$program" convert "$out/runs/shakespeare/checkpoints/best" "$out/shakespeare.gguf" --dtype q4_0
