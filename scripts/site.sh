#!/usr/bin/env bash
# site.sh OUT writes the page with the library as WebAssembly and small models into OUT: a folder for any static host.
# scripts/wasm.sh comes first. The page then names its engine, and what it may load, in itself: a static host sends no
# headers for it.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:?usage: scripts/site.sh OUT}
most=$((3 * 1024 * 1024)) # bytes in all
models=(recall recall-without shakespeare.gguf)
[ -e build-wasm/palimpsa.wasm ] || { echo "site.sh: build-wasm/palimpsa.wasm is missing; run scripts/wasm.sh first" >&2; exit 1; }
if [ -e "$out" ] && [ ! -e "$out/engine/models.json" ]; then
    echo "site.sh: $out exists and is not a site of ours; name another folder" >&2
    exit 2
fi

new=$out.new.tmp
rm -rf "$new"
mkdir -p "$new/engine/models"
cp web/*.js web/*.css web/*.svg web/index.html "$new"
cp build-wasm/palimpsa.mjs build-wasm/palimpsa.wasm "$new/engine"
for model in "${models[@]}"; do
    [ -e "models/$model" ] || { echo "site.sh: models/$model is missing; scripts/small_models.sh trains it" >&2; exit 1; }
    cp -r "models/$model" "$new/engine/models"
done

policy="default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'"
python3 - "$new" "$policy" "${models[@]}" << 'EOF'
import json, pathlib, sys
folder, policy, *models = sys.argv[1:]
folder = pathlib.Path(folder)
page = folder / "index.html"
head = f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<meta name="palimpsa-engine" content="engine/">\n'
mark = '<meta name="viewport"'
text = page.read_text()
assert text.count(mark) == 1, "index.html has one viewport"
page.write_text(text.replace(mark, head + mark))
engine = folder / "engine"
def files(model):
    path = engine / "models" / model
    return [{"path": str(f.relative_to(engine)), "bytes": f.stat().st_size} for f in (sorted(path.iterdir()) if path.is_dir() else [path])]
listed = [{"name": m.removesuffix(".gguf"), "path": f"models/{m}", "files": files(m)} for m in models]
(engine / "models.json").write_text(json.dumps({"wasm_bytes": (engine / "palimpsa.wasm").stat().st_size, "models": listed}, indent=1) + "\n")
EOF

bytes=$(find "$new" -type f -printf '%s\n' | awk '{ sum += $1 } END { print sum }')
packed=$(tar -C "$new" -c . | gzip -9 | wc -c)
rm -rf "$out"
mv "$new" "$out"
printf '%s: %d files, %.2f MB, %.2f MB compressed\n' "$out" "$(find "$out" -type f | wc -l)" "$(awk "BEGIN { print $bytes / 1e6 }")" "$(awk "BEGIN { print $packed / 1e6 }")"
[ "$bytes" -le "$most" ] || { echo "site.sh: expected at most $most bytes, found $bytes" >&2; exit 1; }
