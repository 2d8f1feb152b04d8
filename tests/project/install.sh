#!/usr/bin/env bash
# Installs into an empty folder and builds the examples against it: through pkg-config (shared and static) and CMake.
set -euo pipefail
root=$1 build=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$build" --prefix "$work/prefix" >/dev/null
export PKG_CONFIG_PATH=$work/prefix/lib/pkgconfig
libdir=$(pkg-config --variable=libdir palimpsa)

# shellcheck disable=SC2046
cc -std=c11 "$root/examples/remember.c" $(pkg-config --cflags --libs palimpsa) -o "$work/shared"
LD_LIBRARY_PATH=$libdir "$work/shared" | tee "$work/expected"
# shellcheck disable=SC2046
cc -std=c11 "$root/examples/remember.c" $(pkg-config --cflags palimpsa) "$libdir/libpalimpsa.a" \
    $(pkg-config --static --libs palimpsa | sed 's/-lpalimpsa//') -o "$work/static"
"$work/static" | cmp - "$work/expected"

# The other example writes what the program writes.
# shellcheck disable=SC2046
cc -std=c11 -Wall -Wextra -Werror "$root/examples/generate.c" $(pkg-config --cflags --libs palimpsa) -o "$work/generate"
"$work/prefix/bin/palimpsa" convert "$root/tests/golden/models/hybrid_m" "$work/model" --to palimpsa --tokenizer bytes >/dev/null
LD_LIBRARY_PATH=$libdir "$work/generate" "$work/model" 'Once' > "$work/text"
{ "$work/prefix/bin/palimpsa" generate "$work/model" --prompt 'Once' --temperature 0.8 --seed 1 --max-tokens 200 2>/dev/null; echo; } | cmp - "$work/text"
[ "$(wc -c < "$work/text")" -gt 100 ]
LD_LIBRARY_PATH=$libdir "$work/generate" "$work/no-such-model" 'Once' 2> "$work/said" && exit 1
grep -q "no-such-model" "$work/said"

# The third trains what the program trains, stopped and resumed or not.
# shellcheck disable=SC2046
cc -std=c11 -Wall -Wextra -Werror "$root/examples/train.c" $(pkg-config --cflags --libs palimpsa) -o "$work/train"
for _ in $(seq 40); do echo 'To be, or not to be, that is the question.'; done > "$work/play.txt"
LD_LIBRARY_PATH=$libdir "$work/train" "$work/play.txt" "$work/run" 4 | tail -n 1 | grep -qx 'finished at update 4'
LD_LIBRARY_PATH=$libdir "$work/train" "$work/play.txt" "$work/run" 4 | grep -qx 'finished at update 4'
"$work/prefix/bin/palimpsa" train --task text --model palimpsa-d --hidden 64 --layers 2 --data "$work/play.txt" --tokenizer chars \
    --steps 4 --row 128 --context 128 --out "$work/same" >/dev/null
cmp "$work/run/checkpoints/best/model.safetensors" "$work/same/checkpoints/best/model.safetensors"
cmp "$work/run/config.json" "$work/same/config.json"

mkdir "$work/cmake" && cp "$root/examples/remember.c" "$work/cmake"
cat > "$work/cmake/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.25)
project(example C)
find_package(palimpsa 0.1 REQUIRED)
add_executable(remember remember.c)
target_link_libraries(remember PRIVATE palimpsa::palimpsa)
CMAKE
cmake -S "$work/cmake" -B "$work/cmake/build" -G Ninja -DCMAKE_PREFIX_PATH="$work/prefix" >/dev/null
cmake --build "$work/cmake/build" >/dev/null
"$work/cmake/build/remember" | cmp - "$work/expected"
"$work/prefix/bin/palimpsa" --version

# Recipes are in the program, wherever it is copied and started.
cd "$work"
cp "$work/prefix/bin/palimpsa" alone
./alone train --recipe metaplastic --model none/there --data none.txt --out run 2> said && exit 1
grep -q "none/there\|none.txt" said
./alone train --recipe shakespear --out run 2> said && exit 1
grep -q "did you mean 'shakespeare'" said
