"""Compiles every block of C in the pages of docs/ against the public headers: ROOT is the argument.

A block is the inside of a function that returns int; functions of its own come first and end with a line "...". What a block uses and
does not declare is declared here: what earlier blocks of a page made, and what is the caller's."""
import pathlib, re, subprocess, sys, tempfile

root = pathlib.Path(sys.argv[1])
prelude = r"""
#include <inttypes.h>
#include <palimpsa/palimpsa.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* made by earlier blocks */
static pal_error err;
static pal_context *cx;
static pal_safetensors *file;
static const pal_memory_rule *rule;
static pal_model_config config;
static pal_model *model;
static pal_work *work, *training;
static pal_batch batch;
static pal_loss loss;
static pal_state *state, *other, *const *both;
static pal_tokenizer *tok, *tokenizer;
static pal_tokenizer_scratch *scratch;
static pal_bundle b;
static pal_engine *engine;
static pal_session *session;
static pal_ids ids, first, second;
static pal_bytes text;
static const int *ends;
/* the caller's */
static const char *path, *words;
static const void *bytes;
static size_t size;
static int n, vocab, prompt_tokens;
static uint64_t seed;
static float *q, *y, *dy, *dq, *logits, *nll;
static int32_t *tokens, *prompt, *targets, stop;
static size_t round_up_64(size_t n) { return (n + 63) / 64 * 64; }
static bool next_token(pal_memory_inputs *in) { return in->q.data; }
static void use(const float *y) { (void)y; }
static int32_t pick(const float *logits) { return (int32_t)logits[0]; }
"""
source, blocks = [prelude], 0
for page in sorted((root / "docs").rglob("*.md")):
    lines = page.read_text(encoding="utf-8")
    for found in re.finditer(r"^```c\n(.*?)^```$", lines, re.M | re.S):
        code, at = found[1], lines.count("\n", 0, found.start(1)) + 1
        functions, dots, rest = code.rpartition("\n...\n")
        here = f'#line {at} "{page.relative_to(root)}"\n'
        if code.startswith("static "):
            assert dots, f"{page.name}:{at}: the functions do not end with a line '...'"
            source.append(here + re.sub(r"(?m)^static (\w+) (\w+)\(", rf"static \1 \2_{blocks}(", functions) + "\n")
            for name in re.findall(r"(?m)^static \w+ (\w+)\(", functions):
                rest = re.sub(rf"\b{name}\b(?!\()", f"{name}_{blocks}", rest)
            here = f'#line {at + functions.count(chr(10)) + 2} "{page.relative_to(root)}"\n'
            code = rest
        source.append(f"static int block_{blocks}(void) {{\n{here}{code}\nreturn 0;\n}}\n")
        blocks += 1
source.append("int main(void) { return " + " + ".join(f"block_{i}()" for i in range(blocks)) + "; }\n")
assert blocks > 20, f"found {blocks} blocks"
with tempfile.TemporaryDirectory() as folder:
    (pathlib.Path(folder) / "blocks.c").write_text("".join(source), encoding="utf-8")
    compiled = subprocess.run(["cc", "-std=c11", "-D_POSIX_C_SOURCE=200809L", "-Wall", "-Wextra", "-Werror", "-Wno-unused",
                               "-fsyntax-only", f"-I{root / 'include'}", f"{folder}/blocks.c"])
if compiled.returncode == 0:
    print(f"{blocks} blocks of C in docs/ compile")
sys.exit(compiled.returncode)
