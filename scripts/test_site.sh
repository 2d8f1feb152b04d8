#!/usr/bin/env bash
# test_site.sh SITE opens a site of scripts/site.sh in Chromium, without and with palimpsa serve. axe-core comes by npm, once; without
# npm or a network the rest is tested.
set -euo pipefail
cd "$(dirname "$0")/.."
site=${1:?usage: scripts/test_site.sh SITE}
axe=build-libraries/axe/node_modules/axe-core/axe.min.js
[ -e "$axe" ] || npm install --silent --no-fund --no-audit --prefix build-libraries/axe axe-core@4 > /dev/null 2>&1 || echo "axe-core cannot be installed: its checks are skipped"
arguments=("${PALIMPSA:-build/palimpsa}" "$site")
[ ! -e "$axe" ] || arguments+=(--axe "$axe")
python3 tests/browser/site.py "${arguments[@]}"
