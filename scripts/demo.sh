#!/usr/bin/env bash
# What `make demo` runs: the models that come with the source, then two small ones trained here and compared.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${DEMO_OUT:-runs/demo}
program=build/palimpsa

run() { # shows a command, then runs it
    echo
    echo "\$ $*" | sed 's/\n/\\n/g'
    "$@"
}

mkdir -p "$out"
echo "1. Two trained models come with the source. One has learned to recall pairs, the other to write like Shakespeare."
run "$program" inspect models/recall
run "$program" generate models/shakespeare.gguf --prompt 'ROMEO:' --max-tokens 120 --seed 1 --save-memory "$out/romeo.memory"
echo
echo
echo "2. All it has read and written is a memory of fixed size, now in $out/romeo.memory. It continues from there:"
run "$program" generate models/shakespeare.gguf --load-memory "$out/romeo.memory" --max-tokens 80 --seed 2
echo
echo
echo "3. Training: Palimpsa-M with importance and without (that is Mamba2), two seeds each, two runs at a time."
echo "The task is recall: 16 pairs in 64 tokens, then 64 pairs in 256 tokens; every key is asked for its value."
echo
"$program" sweep mqar --models palimpsa-m,palimpsa-m-wo-meta --lrs 4e-3 --seeds 1,2 --train configs/demo.json --jobs 2 --out "$out" | grep -v '^|'
ln -sfn runs/palimpsa-m-lr4e-3-seed1 "$out/palimpsa-m" # a short name, to look into its memory
for figure in report.html demo.svg; do
    "$program" plot "$out"/runs/palimpsa-m-lr4e-3-seed{1,2} "$out"/runs/palimpsa-m-wo-meta-lr4e-3-seed{1,2} --title "Recall, with and without importance" \
        --out "$out/$figure" >/dev/null
done
echo
LC_ALL=C awk -F, '
NR > 1 { accuracy[$1, $3, $4] = $7 }
END {
    printf "%-22s%6s%22s%22s\n", "questions answered", "seed", "16 pairs, 64 tokens", "64 pairs, 256 tokens"
    split("palimpsa-m palimpsa-m-wo-meta", model, " ")
    for (m = 1; m <= 2; m++)
        for (seed = 1; seed <= 2; seed++)
            printf "%-22s%6d%21.1f%%%21.1f%%\n", model[m], seed, 100 * accuracy[model[m], seed, 1], 100 * accuracy[model[m], seed, 2]
}' "$out/results.csv"
cat <<END

Seeds differ more than models: two of each prove nothing. docs/results/recall.md has 72 runs and the tests.

Next:
  $program inspect models/recall --open    watch a memory fill, in the browser
  $out/report.html                         the curves of these runs, for the browser
  docs/tutorials/                               five lessons
END
