#!/usr/bin/env bash
# wasm.sh builds the library as WebAssembly into build-wasm/: palimpsa.mjs and palimpsa.wasm for the page, and selftest for Node.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v emcc > /dev/null || { echo "wasm.sh: emcc is missing; scripts/setup.sh --wasm installs it" >&2; exit 1; }
export NODE_PATH=${NODE_PATH:-/usr/share/nodejs} # emscripten's optimizer asks for Debian's acorn
unset CMAKE_C_COMPILER_LAUNCHER
scripts/static_libraries.sh wasm32-emscripten
cmake --preset wasm > build-wasm.log.tmp 2>&1 || { cat build-wasm.log.tmp; rm -f build-wasm.log.tmp; exit 1; }
rm -f build-wasm.log.tmp
cmake --build build-wasm -j "${JOBS:-$(nproc)}"
