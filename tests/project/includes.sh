#!/usr/bin/env bash
# Includes go one way: base <- kernels <- memory <- layers <- model <- {infer <- {train, eval}, convert} <- cli;
# base <- format <- text <- data, base <- plot; model uses format, what stands on model may use the others.
set -euo pipefail
root=$1
declare -A may=(
    [base]="base"
    [format]="base format"
    [text]="base format text"
    [plot]="base plot"
    [data]="base format text data"
    [kernels]="base kernels"
    [memory]="base kernels memory"
    [layers]="base kernels memory layers"
    [model]="base kernels memory layers format model"
    [train]="base kernels memory layers format model text data plot infer train"
    [eval]="base kernels memory layers format model text data plot eval infer"
    [infer]="base kernels memory layers format model text infer"
    [serve]="base format model text infer serve"
    [convert]="base kernels memory layers format model text convert"
)
bad=0
while IFS=: read -r file include; do
    room=${file#"$root"/src/}
    room=${room%%/*}
    target=${include%%/*}
    [ "$target" = palimpsa ] && continue
    if [[ " ${may[$room]:-} " != *" $target "* ]]; then
        echo "${file#"$root"/}: includes \"$include\", but $room may only include: ${may[$room]:-nothing (unknown room)}"
        bad=1
    fi
done < <(grep -rHoP '^#include "\K[^"]+/[^"]+' "$root/src" --include='*.c' --include='*.h' --include='*.inc')
[ $bad -eq 0 ] && echo "every include goes the right way"
exit $bad
