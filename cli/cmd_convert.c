/* SPDX-License-Identifier: MIT */
/* palimpsa convert: a checkpoint from one layout to another, and surgery. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/context.h"
#include "cli.h"
#include "palimpsa/palimpsa.h"
#include "surgery.h"
#include "watch.h"

static int find_layout(const char *name, pal_layout *out) {
    for (int i = 0; name && i < PAL_LAYOUTS; i++)
        if (strcmp(name, pal_layout_name((pal_layout)i)) == 0) {
            *out = (pal_layout)i;
            return CLI_OK;
        }
    if (!name)
        return cli_error(CLI_USAGE,
                         "convert: --to is missing (or --metaplastic); expected palimpsa, hf-mamba2, official or gguf");
    return cli_error(CLI_USAGE, "--to expects palimpsa, hf-mamba2, official or gguf, found '%s'", name);
}

static int print(const char *const paths[2], const char *to, const pal_converted *done, double took, bool json) {
    if (!json) {
        printf("%s: %zu tensors, %.1f MB in %.1f s%s\n", paths[1], done->tensors, 1e-6 * (double)done->bytes, took,
               done->tokenizer ? "" : "; no tokenizer");
        if (done->dropped) printf("%zu tensors of importance gates that nothing reads were left out\n", done->dropped);
        return CLI_OK;
    }
    json_t *root = json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:b, s:f}", "source", paths[0], "target", paths[1],
                             "layout", to, "tensors", (json_int_t)done->tensors, "bytes", (json_int_t)done->bytes,
                             "dropped", (json_int_t)done->dropped, "tokenizer", done->tokenizer, "seconds", took);
    const bool written = root && json_dumpf(root, stdout, JSON_INDENT(2)) == 0;
    putchar('\n');
    json_decref(root);
    return written ? CLI_OK : cli_error(CLI_FAILED, "cannot write to standard output");
}

static int convert(const char *const paths[2], const char *to, pal_convert_options *o, bool json) {
    cli_watch watch;
    const int code = find_layout(to, &o->to);
    if (code) return code;
    cli_watch_begin(&watch);
    o->progress = cli_watch_go_on;
    o->user = &watch;
    pal_converted done;
    pal_error err;
    const double begin = pal_seconds();
    const pal_status st = pal_convert(paths[0], paths[1], o, &done, &err);
    cli_watch_end(&watch);
    if (st) return cli_fail(&err);
    return print(paths, to, &done, pal_seconds() - begin, json);
}

/* Surgery writes our own layout. */
static int operate(const char *const paths[2], const char *to, const char *dtype, const cli_surgery *surgery,
                   cli_surgery_job *job) {
    if (to && strcmp(to, "palimpsa") != 0)
        return cli_error(CLI_USAGE, "--metaplastic writes --to palimpsa, found '%s'", to);
    job->dtype = dtype;
    job->src = paths[0];
    job->dst = paths[1];
    return cli_operate(surgery, job);
}

int cmd_convert(int argc, char **argv) {
    const char *paths[2] = { NULL }, *to = NULL, *dtype = NULL;
    cli_surgery surgery = { .seed = 1 };
    cli_surgery_job job = { 0 };
    const cli_option options[] = {
        { "to", OPT_TEXT, &to, "LAYOUT", "palimpsa, hf-mamba2, official or gguf" },
        { "dtype", OPT_TEXT, &dtype, "TYPE", "f32, bf16, f16, or q8_0 for gguf (default: each tensor as it is)" },
        { "tokenizer", OPT_TEXT, &job.tokenizer, "X",
          "tokenizer file, directory, 'bytes' or 'none'; it goes along (default: the one that lies with SRC)" },
        CLI_SURGERY_OPTIONS(surgery),
        { "json", OPT_FLAG, &job.common.json, NULL, "print JSON" },
        CLI_COMMON_OPTIONS(job.common),
    };
    const cli_usage usage = {
        .synopsis = "convert SRC DST --to LAYOUT | --metaplastic LAYERS [options]",
        .about = "Turns a checkpoint into another layout, or plain layers of it into metaplastic ones (surgery). SRC "
                 "is anything that can be\n"
                 "opened: a directory of this program, of the official Mamba2 (pytorch_model.bin or safetensors), of "
                 "Hugging Face's Mamba2, or a\n"
                 "GGUF file of architecture mamba2. DST must not exist, or be an empty directory; it is there whole or "
                 "not at all. Tensors pass\n"
                 "one by one, so memory does not grow with the model. After surgery DST is read back and, with the new "
                 "plasticity off, must give\n"
                 "SRC's logits on TEXT; else nothing is left of it.",
        .examples = "  palimpsa convert mamba2-130m my-model --to palimpsa --tokenizer gpt-neox/tokenizer.json\n"
                    "  palimpsa convert my-model my-model.gguf --to gguf --dtype q8_0\n"
                    "  palimpsa convert model.gguf my-model --to official --dtype f16\n"
                    "  palimpsa convert mamba2-130m hybrid --metaplastic top:8 --data text.txt --tokenizer "
                    "gpt-neox/tokenizer.json\n",
        .options = options,
        .option_count = PAL_COUNT(options)
    };
    int count;
    const int parsed = cli_parse(&usage, argc, argv, paths, 2, &count);
    if (parsed) return parsed < 0 ? CLI_OK : parsed;
    if (count != 2) return cli_error(CLI_USAGE, "convert: expected SRC and DST; see 'palimpsa convert --help'");
    if (cli_surgery_stray(&surgery))
        return cli_error(CLI_USAGE, "convert: --data, --tokens, --proof-tokens, --rank, --b-scale, --exact and "
                                    "--no-proof go with --metaplastic");
    if (surgery.metaplastic) return operate(paths, to, dtype, &surgery, &job);
    pal_convert_options o = { .dtype = dtype, .tokenizer = job.tokenizer };
    return convert(paths, to, &o, job.common.json);
}
