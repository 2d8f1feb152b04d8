/* SPDX-License-Identifier: MIT */
#include "text/gguf_pre.h"

#include "base/context.h"
#include "format/gguf_values.h"
#include "text/hf_json.h"

const char pal_llama3_pattern[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
    "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
const char pal_qwen2_pattern[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
    "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
/* As Qwen 2's, but that a combining mark stays in its word. */
const char pal_qwen35_pattern[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|"
    "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
static const char tekken_pattern[] =
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|"
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|"
    "\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

static const pal_gguf_pre known[] = {
    { "gpt-2", pal_gpt2_pattern, .nfc = false },
    { "mpt", pal_gpt2_pattern, .nfc = true },
    { "dbrx", pal_llama3_pattern, .whole = false },
    { "llama-bpe", pal_llama3_pattern, .whole = true, .bos = true },
    { "qwen2", pal_qwen2_pattern, .nfc = true, .raw_added = true },
    { "qwen35", pal_qwen35_pattern, .nfc = true, .raw_added = true },
    { "tekken", tekken_pattern, .whole = true, .bos = true },
    /* other names of the same */
    { "phi-2", pal_gpt2_pattern, .nfc = false },
    { "olmo", pal_gpt2_pattern, .nfc = true },
    { "smaug-bpe", pal_llama3_pattern, .whole = false },
    { "llama3", pal_llama3_pattern, .whole = true, .bos = true },
    { "llama-v3", pal_llama3_pattern, .whole = true, .bos = true },
    { "falcon3", pal_llama3_pattern, .whole = true, .bos = true },
    { "falcon-h1", pal_llama3_pattern, .whole = true, .bos = true },
    { "lfm2", pal_llama3_pattern, .whole = true, .bos = true },
    { "pixtral", pal_llama3_pattern, .whole = true, .bos = true },
    { "deepseek-r1-qwen", pal_qwen2_pattern, .nfc = true, .raw_added = true },
};

const pal_gguf_pre *pal_gguf_pre_find(pal_slice name) {
    for (size_t i = 0; i < PAL_COUNT(known); i++)
        if (pal_gguf_is(name, known[i].name)) return &known[i];
    return NULL;
}

/* These patterns take every character, so that to keep the matches and to drop what is between them is to split. */
static bool splits_by(const pal_split_step *step, const char *pattern) {
    if (step->kind == PAL_SPLIT_GPT2) return pattern == pal_gpt2_pattern;
    if (step->kind != PAL_SPLIT_PATTERN || !step->pattern) return false;
    if (!(step->behaviour == PAL_ISOLATED || (step->behaviour == PAL_REMOVED && step->invert))) return false;
    return step->literal.size == strlen(pattern) && memcmp(step->literal.data, pattern, step->literal.size) == 0;
}

const pal_gguf_pre *pal_gguf_pre_of(const pal_tokenizer *tok) {
    const bool nfc = tok->normal_count == 1 && tok->normal[0].kind == PAL_NFC;
    if (tok->model != PAL_MODEL_BPE || !tok->byte_level || tok->normal_count != (nfc ? 1 : 0) || tok->split_count != 1)
        return NULL;
    for (size_t i = 0; i < PAL_COUNT(known); i++)
        if (known[i].nfc == nfc && known[i].whole == tok->ignore_merges && splits_by(&tok->split[0], known[i].pattern))
            return &known[i];
    return NULL;
}
