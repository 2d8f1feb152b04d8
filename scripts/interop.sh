#!/usr/bin/env bash
# What `make interop` runs: the comparisons of tests/interop with other people's programs. Ends with "N passed, M failed, K skipped".
#   scripts/interop.sh [NAME...]      all comparisons, or those that are named; `list` prints their names
# Packages go into build/interop-env, made once (gigabytes: torch, and llama.cpp, which compiles ten minutes). INTEROP_ENV=DIR takes an
# environment that exists and installs nothing: what it lacks is skipped by name. PALIMPSA_DATA and PALIMPSA_GOLDEN name real data, without which
# six of ten are skipped; LLAMA_CPP a checkout of llama.cpp, whose converter then makes files too; FLA_CORE a directory with fla-core. Those of speed and load are not here: their scripts say how to run them on a quiet machine.
set -uo pipefail
cd "$(dirname "$0")/.."
data=${PALIMPSA_DATA-} golden=${PALIMPSA_GOLDEN-} only=("$@")
passed=0 failed=0 skipped=0
# The recorded scores are of this version of lm-eval, and lm_eval_tasks.py calls functions that are its own affair.
packages=(numpy torch transformers safetensors tokenizers sentencepiece gguf llama-cpp-python lm-eval==0.4.13 accelerate openai schemathesis tenacity aiohttp
          tiktoken)
comparisons=(tokenizers sentencepieces tokenizers-gguf checkpoints-torch fla checkpoints-transformers checkpoints-llama-cpp families-transformers families-llama-cpp encoders blocks lm-eval lm-eval-odd serve-clients serve-lm-eval chat-tools)

. scripts/choose.sh
choose comparison "${comparisons[@]}"

environment=${INTEROP_ENV:-build/interop-env}
if [ -z "${INTEROP_ENV-}" ]; then
    [ -x "$environment/bin/python" ] || python3 -m venv "$environment" || exit 1
    echo "== packages: ${packages[*]}"
    "$environment/bin/python" -m pip install --quiet "${packages[@]}" || { echo "interop.sh: pip could not install the packages" >&2; exit 1; }
elif [ ! -x "$environment/bin/python" ]; then
    echo "interop.sh: INTEROP_ENV is '$environment', which has no bin/python" >&2
    exit 2
fi
python=$environment/bin/python
mkdir -p build/interop

# compare NAME "modules that it imports" script arguments...
compare() {
    local name=$1 modules=$2 start=$SECONDS log=build/interop/$1.log module
    shift 2
    case " ${only[*]} " in *" $name "*) ;; *) return ;; esac
    for module in $modules; do
        if ! "$python" -c "import importlib.util, sys; sys.exit(importlib.util.find_spec('$module') is None)"; then
            skip "$name" "the environment has no module $module"
            return
        fi
    done
    echo "== $name: tests/interop/$*"
    "$python" - $modules <<'VERSIONS'
import importlib.metadata, sys
owners = importlib.metadata.packages_distributions()
print("   with", ", ".join(f"{owners[m][0]} {importlib.metadata.version(owners[m][0])}" for m in sys.argv[1:] if m in owners))
VERSIONS
    if OMP_WAIT_POLICY=passive HF_HUB_OFFLINE=1 "$python" "tests/interop/$1" "${@:2}" >"$log" 2>&1; then
        passed=$((passed + 1))
        echo "   passed ($((SECONDS - start)) s): $(tail -n 1 "$log")"
    else
        failed=$((failed + 1))
        echo "   FAILED ($((SECONDS - start)) s); the end of $log:"
        tail -n 20 "$log" | sed 's/^/   | /'
    fi
}

skip() { # skip NAME why
    case " ${only[*]} " in *" $1 "*) ;; *) return ;; esac
    skipped=$((skipped + 1))
    echo "== $1: skipped, $2"
}

program=(--program build/palimpsa) library=(--library build/libpalimpsa.so)
compare tokenizers tokenizers tokenizers_fuzz.py "${library[@]}" --combinations 300
if [ -d "$data/tokenizers" ]; then
    compare sentencepieces "tokenizers sentencepiece" tokenizers_compare.py "${library[@]}" --data "$data" --bytes 300000
    compare tokenizers-gguf "tokenizers gguf numpy" tokenizers_gguf.py "${program[@]}" "${library[@]}" --data "$data" --bytes 300000
    compare checkpoints-llama-cpp "gguf llama_cpp" checkpoints_llama_cpp.py "${program[@]}" "${library[@]}" --tokenizer "$data/tokenizers/gpt-neox/tokenizer.json"
else
    skip sentencepieces "PALIMPSA_DATA names no directory with tokenizers/"
    skip tokenizers-gguf "PALIMPSA_DATA names no directory with tokenizers/"
    skip checkpoints-llama-cpp "PALIMPSA_DATA names no directory with tokenizers/"
fi
compare checkpoints-torch "torch safetensors" checkpoints_torch.py "${program[@]}"
if [ -d "${FLA_CORE:-}" ]; then
    PYTHONPATH=build/python compare fla "torch einops numpy cffi" fla_operations.py "$FLA_CORE"
else
    skip fla "FLA_CORE names no directory with fla-core (tests/interop/fla_operations.py says how to get one)"
fi
compare checkpoints-transformers "torch transformers" checkpoints_transformers.py "${program[@]}" "${library[@]}"
compare families-transformers "torch transformers" families_transformers.py "${program[@]}" "${library[@]}"
compare families-llama-cpp "torch transformers gguf llama_cpp" families_llama_cpp.py "${program[@]}" "${library[@]}" ${LLAMA_CPP:+--llama-cpp "$LLAMA_CPP"}
compare encoders "gguf llama_cpp" encoders_ggml.py "${program[@]}"
compare blocks "gguf numpy" blocks_gguf.py "${program[@]}"
if [ -d "$data/piqa" ] && [ -d "$golden/eval" ]; then
    compare lm-eval "lm_eval torch transformers" lm_eval_compare.py "${program[@]}" --model "$golden/eval/model" --data "$data" --docs 40:50
    compare serve-lm-eval "lm_eval torch transformers tenacity aiohttp" serve_lm_eval.py "${program[@]}" --golden "$golden/eval" --data "$data" --docs 10
else
    skip lm-eval "PALIMPSA_DATA and PALIMPSA_GOLDEN name no data sets or no recorded model"
    skip serve-lm-eval "PALIMPSA_DATA and PALIMPSA_GOLDEN name no data sets or no recorded model"
fi
if [ -d "$golden/eval/model" ]; then
    odd=build/interop/odd-documents
    case " ${only[*]} " in *" lm-eval-odd "*) "$python" tests/interop/lm_eval_odd_documents.py "$odd" >/dev/null || exit 1 ;; esac
    compare lm-eval-odd "lm_eval torch transformers" lm_eval_compare.py "${program[@]}" --model "$golden/eval/model" --data "$odd" --docs 0:40 --pages 0:12 --context 256
    compare serve-clients "openai schemathesis" serve_clients.py "${program[@]}" --model "$golden/eval/model"
else
    skip lm-eval-odd "PALIMPSA_GOLDEN names no recorded model with a tokenizer"
    skip serve-clients "PALIMPSA_GOLDEN names no recorded model with a tokenizer"
fi
if [ -d "$data/chat_templates" ]; then
    compare chat-tools "openai pydantic transformers jinja2" chat_tools.py build/palimpsa "$data/chat_templates"
else
    compare chat-tools "openai pydantic transformers jinja2" chat_tools.py build/palimpsa
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
