#!/usr/bin/env bash
# What scripts/fuzz.sh counts as a finding, with a fuzzer that only pretends: an input that takes a second, but alone takes
# less of the processor, does not count; one that is slow alone counts, and so does a crash, also next to an input of an
# earlier call.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
mkdir -p "$folder"/{scripts,fuzz,bin,build-fuzz/fuzz,build-fuzz/seeds/demo,tests/fuzz-regressions/demo}
cp "$1/scripts/fuzz.sh" "$folder/scripts/"
touch "$folder/fuzz/target_demo.c" "$folder/build-fuzz/seeds/demo/seed"
for tool in cmake python3; do
    printf '#!/bin/sh\n' > "$folder/bin/$tool"
done
cat > "$folder/build-fuzz/fuzz/fuzz_demo" <<'END'
#!/bin/sh
if [ $# -eq 1 ]; then
    [ ! -e slow ] || sh -c 'ulimit -t 2; while :; do :; done' || : # 2 s of processor time
elif [ -s next ]; then
    kind=$(cat next)
    : > next
    : > "build-fuzz/findings/demo-$kind-1"
    echo "artifact_prefix='build-fuzz/findings/demo-'; Test unit written to build-fuzz/findings/demo-$kind-1"
    exit 77
else
    sleep 1
fi
END
chmod +x "$folder"/bin/* "$folder/build-fuzz/fuzz/fuzz_demo"

try() { # try KIND CODE: what the next run finds, and how the script ends
    echo "$1" > "$folder/next"
    local code=0
    PATH=$folder/bin:$PATH "$folder/scripts/fuzz.sh" demo 2 > "$folder/out" 2>&1 || code=$?
    [ "$code" -eq "$2" ] || { echo "$1: ended with $code, expected $2"; cat "$folder/out"; exit 1; }
}
try timeout 0
[ ! -e "$folder/build-fuzz/findings/demo-timeout-1" ] || { echo "an input that does not count is still there"; exit 1; }
touch "$folder/slow"
try timeout 1
rm "$folder/slow"
touch "$folder/build-fuzz/findings/demo-timeout-0"
try crash 1
[ -e "$folder/build-fuzz/findings/demo-timeout-0" ] || { echo "a finding of an earlier call is gone"; exit 1; }
echo "findings are counted"
