#!/usr/bin/env bash
# Includes go one way: base <- kernels <- memory <- layers <- model <- {infer <- eval <- train, convert} <- cli;
# base <- format <- text <- data; text <- {template, grammar} <- chat; grammar <- infer; model uses format, what stands on model may use the others; base <- comm <- eval; format <- plot <- cli.
# A public header belongs to the room whose things it declares, and is included as that room's own headers are.
set -euo pipefail
root=$1
declare -A may=(
    [base]="base"
    [format]="base format"
    [text]="base format text"
    [template]="base text template"
    [grammar]="base format text grammar"
    [chat]="base format text template grammar chat"
    [plot]="base format plot"
    [data]="base format text data"
    [kernels]="base kernels"
    [device]="base kernels memory device"
    [comm]="base comm"
    [memory]="base kernels memory"
    [layers]="base kernels memory layers"
    [model]="base kernels memory layers format model"
    [train]="base kernels memory layers format model text data infer comm eval train"
    [eval]="base kernels memory layers format model text data eval infer comm"
    [infer]="base kernels memory layers format model text grammar infer"
    [serve]="base format model text template grammar chat data infer serve"
    [convert]="base kernels memory layers format model text convert"
)
declare -A room_of=(
    [status]=base [context]=base [view]=base [matrix]=base [batch]=base [timing]=base
    [memory]=memory [config]=layers [model]=model [state]=model [watch]=model [windows]=model [attribution]=model [surgery]=model
    [device]=device [safetensors]=format [tokenizer]=text
    [grammar]=grammar [sampler]=infer [session]=infer [bundle]=infer [score]=eval [evaluate]=eval [train]=train [convert]=convert
)
bad=0
while IFS=: read -r file include; do
    file=${file#"$root"/}
    case $file in
        include/palimpsa/palimpsa.h) continue ;; # all of them
        include/palimpsa/*) header=$(basename "$file" .h) room=${room_of[$header]:-} ;;
        *) room=${file#src/} room=${room%%/*} ;;
    esac
    target=${include%%/*}
    if [ "$target" = palimpsa ]; then
        header=$(basename "$include" .h)
        target=${room_of[$header]:-}
    fi
    if [ -z "$target" ] || [[ " ${may[$room]:-} " != *" $target "* ]]; then
        echo "$file (of ${room:-no known room}) includes \"$include\" (of ${target:-no known room}), but may only include from: ${may[$room]:-nothing}"
        bad=1
    fi
done < <(grep -rHoP '^#include "\K[^"]+/[^"]+' "$root/src" "$root/include" --include='*.c' --include='*.h' --include='*.inc')
[ $bad -eq 0 ] && echo "every include goes the right way"
exit $bad
