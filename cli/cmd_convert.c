/* SPDX-License-Identifier: MIT */
/* palimpsa convert: a checkpoint from one layout to another, and surgery. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/context.h"
#include "cli.h"
#include "format/json.h"
#include "palimpsa/palimpsa.h"
#include "surgery.h"
#include "text_ids.h"
#include "watch.h"

static bool ends_in_gguf(const char *path) {
    const size_t n = strlen(path);
    return n > 5 && strcmp(path + n - 5, ".gguf") == 0;
}

/* Blocks, and a target of that name, mean a GGUF file; another dtype alone changes nothing else. */
static const char *implied_layout(const char *target, const char *dtype) {
    if (ends_in_gguf(target) || (dtype && dtype[0] == 'q')) return "gguf";
    return dtype ? "palimpsa" : NULL;
}

static int find_layout(const char *name, pal_layout *out) {
    for (int i = 0; name && i < PAL_LAYOUTS; i++)
        if (strcmp(name, pal_layout_name((pal_layout)i)) == 0) {
            *out = (pal_layout)i;
            return CLI_OK;
        }
    if (!name)
        return cli_error(CLI_USAGE,
                         "convert: --to is missing (or --dtype, or --metaplastic); expected palimpsa, hf, "
                         "official or gguf");
    return cli_error(CLI_USAGE, "--to expects palimpsa, hf, official or gguf, found '%s'", name);
}

static void print_cost(const pal_convert_cost *c) {
    printf("on %d tokens: loss %.5f before, %.5f after (perplexity %.4f, %.4f: %+.3f%%)\n", c->tokens, c->loss_before,
           c->loss_after, exp(c->loss_before), exp(c->loss_after), 100 * expm1(c->loss_after - c->loss_before));
    printf(
        "next-token distributions: KL divergence %.3g at most, %.3g on average; the likeliest token changed at %.2f%% "
        "of positions\n",
        c->kl_most, c->kl_mean, 100 * c->changed);
}

/* cost NULL: not measured. */
static int print(const char *const paths[2], const char *to, const pal_converted *done, const pal_convert_cost *cost,
                 double took, bool json) {
    if (!json) {
        printf("%s: %zu tensors, %.1f MB in %.1f s%s\n", paths[1], done->tensors, 1e-6 * (double)done->bytes, took,
               done->tokenizer ? "" : "; no tokenizer");
        if (done->dropped) printf("%zu tensors of importance gates that nothing reads were left out\n", done->dropped);
        if (done->finer)
            printf("%zu matrices have rows that do not fill the type's blocks and are in a finer type (inspect "
                   "--tensors)\n",
                   done->finer);
        if (cost) print_cost(cost);
        return CLI_OK;
    }
    json_t *root = json_pack("{s:o, s:o, s:s, s:I, s:I, s:I, s:I, s:b, s:f}", "source", pal_json_text(paths[0]),
                             "target", pal_json_text(paths[1]), "layout", to, "tensors", (json_int_t)done->tensors,
                             "bytes", (json_int_t)done->bytes, "dropped", (json_int_t)done->dropped, "finer",
                             (json_int_t)done->finer, "tokenizer", done->tokenizer, "seconds", took);
    if (root && cost)
        pal_json_set(root, "cost",
                     json_pack("{s:i, s:o, s:o, s:o, s:o, s:o}", "tokens", cost->tokens, "loss_before",
                               pal_json_number(cost->loss_before), "loss_after", pal_json_number(cost->loss_after),
                               "kl_most", pal_json_number(cost->kl_most), "kl_mean", pal_json_number(cost->kl_mean),
                               "changed", pal_json_number(cost->changed)));
    return cli_print_json(root, JSON_INDENT(2));
}

/* The text is read before anything is written. */
static int read_text(cli_text_ids *text, const char *source, const cli_surgery *o, const char *tokenizer,
                     const pal_context *cx) {
    pal_model *model;
    pal_error err;
    const int most = o->tokens ? o->tokens : 4096;
    if (most < 2 || most > 1 << 20) return cli_error(CLI_USAGE, "--tokens expects 2 to %d, found %d", 1 << 20, most);
    if (pal_model_open(&model, source, PAL_FOR_INFERENCE, cx, &err)) return cli_fail(&err);
    const int code = cli_text_ids_read(text, o->data, tokenizer, model, o->tokens ? o->tokens : 2, most);
    pal_model_close(model);
    return code;
}

static int convert_with(const char *const paths[2], const char *to, pal_convert_options o, const cli_surgery *data,
                        bool json) {
    cli_watch watch;
    cli_text_ids text = { 0 };
    pal_convert_cost cost;
    pal_converted done;
    pal_error err;
    int code = find_layout(to, &o.to);
    if (!code && data->data) code = read_text(&text, paths[0], data, o.tokenizer, o.cx);
    if (code) return code;
    cli_watch_begin(&watch);
    o.progress = cli_watch_go_on;
    o.user = &watch;
    const double begin = pal_seconds();
    const pal_status st = pal_convert(paths[0], paths[1], &o, &done, &err);
    cli_watch_end(&watch);
    const double took = pal_seconds() - begin;
    if (st) code = done.writing ? cli_fail_writing(&err) : cli_fail(&err);
    if (!code && data->data && pal_convert_measure(&cost, paths[0], paths[1], text.ids, text.count, o.cx, &err))
        code = cli_fail(&err);
    cli_text_ids_free(&text);
    return code ? code : print(paths, to, &done, data->data ? &cost : NULL, took, json);
}

static int convert(const char *const paths[2], const char *to, pal_convert_options *o, const cli_surgery *data,
                   const cli_common *common) {
    pal_context *cx;
    pal_error err;
    if (!to) to = implied_layout(paths[1], o->dtype);
    if (pal_context_new(&cx, common->threads, common->cpu, &err)) return cli_fail(&err);
    o->cx = cx;
    const int code = convert_with(paths, to, *o, data, common->json);
    pal_context_free(cx);
    return code;
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
        { "to", OPT_TEXT, &to, "LAYOUT",
          "palimpsa, hf, official or gguf (default: gguf for a q type or DST.gguf; palimpsa "
          "with another --dtype)" },
        { "dtype", OPT_TEXT, &dtype, "TYPE",
          "f32, bf16, f16; for gguf also q8_0, q6_k, q5_k, q5_0, q4_k, q4_0 (default: keep each tensor's type)" },
        { "tokenizer", OPT_TEXT, &job.tokenizer, "X",
          "tokenizer to put into DST: a file, a directory, 'bytes' (not for gguf) or 'none' "
          "(default: SRC's own)" },
        CLI_SURGERY_OPTIONS(surgery),
        { "json", OPT_FLAG, &job.common.json, NULL, "print JSON" },
        CLI_COMMON_OPTIONS(job.common),
    };
    const cli_usage usage = {
        .synopsis = "convert SRC DST --to LAYOUT | --dtype TYPE | --metaplastic LAYERS [options]",
        .about = "Converts a checkpoint, or makes layers of it metaplastic.\n\n"
                 "SRC is anything that opens: a directory of this program, of the Hugging Face hub or of the "
                 "official Mamba2, a run directory, or a GGUF file. DST must not exist, or be an empty "
                 "directory; it appears complete or not at all. Tensors are streamed one by one, so RAM "
                 "does not grow with the model.\n\n"
                 "--metaplastic (surgery) gives plain layers an importance gate. DST is then read back "
                 "and, with the new plasticity off, must give SRC's logits on TEXT; otherwise nothing is "
                 "written.",
        .examples = "  palimpsa convert mamba2-130m mamba2-130m.gguf --dtype q8_0\n  palimpsa convert "
                    "my-model my-model.gguf --dtype q4_k --data text.txt\n  palimpsa convert mamba2-130m "
                    "hybrid --metaplastic top:8 --data text.txt\n  palimpsa convert mamba2-130m my-model --to "
                    "palimpsa --tokenizer gpt-neox/tokenizer.json\n  palimpsa convert model.gguf my-model "
                    "--to official --dtype f16\n",
        .options = options,
        .option_count = PAL_COUNT(options)
    };
    int count;
    const int parsed = cli_parse(&usage, argc, argv, paths, 2, &count);
    if (parsed) return parsed < 0 ? CLI_OK : parsed;
    if (count != 2) return cli_error(CLI_USAGE, "convert: expected SRC and DST; see 'palimpsa convert --help'");
    if (cli_surgery_stray(&surgery))
        return cli_error(CLI_USAGE, "convert: --proof-tokens, --rank, --b-scale, --exact and --no-proof go with "
                                    "--metaplastic, --tokens also with --data");
    if (surgery.metaplastic) return operate(paths, to, dtype, &surgery, &job);
    pal_convert_options o = { .dtype = dtype, .tokenizer = job.tokenizer };
    return convert(paths, to, &o, &surgery, &job.common);
}
