#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# What there is to know of attention is a row of pal_config_kinds: no other code compares a mixer's kind with it.
set -u
root=$1
if grep -rnE '[!=]= *PAL_MIXER_ATTENTION\b|\bPAL_MIXER_ATTENTION *[!=]=' "$root"/{src,cli,include,python/src} --include='*.[ch]' --include='*.py'; then
    echo "ask pal_config_kinds, pal_model_memory or pal_model_grows instead"
    exit 1
fi
echo "attention is a row of a table"
