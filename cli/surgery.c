/* SPDX-License-Identifier: MIT */
#include "surgery.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "convert/attach.h"
#include "format/json.h"
#include "model/model.h"
#include "model/surgery.h"
#include "text_ids.h"
#include "watch.h"

enum { LEAST_TOKENS = 32, WINDOW_TOKENS = 4096, MOST_TOKENS = 1 << 18, PROOF_TOKENS = 256 };

/* What configs/metaplastic-exact.json trains b_scale with: AdamW moves a weight by about its rate in each update. */
static const double recipe_factor = 100;
static double recipe_rate(const pal_model *model) { return pal_model_parameters(model) > 400000000 ? 1.25e-4 : 3e-4; }

typedef struct {
    const cli_surgery *o;
    const cli_surgery_job *job;
    pal_context *cx;
    pal_model *from; /* loaded for windows and proof only */
    pal_model_config config;
    pal_surgery surgery;
    cli_text_ids text;
    pal_windows windows;
    pal_model_writer *writer;
    pal_proof proof;
    pal_attachment attached; /* its directory is borrowed of `from`, as it was before the proof */
    double window_s, write_s, proof_s;
    cli_watch watch;
} theatre;

static int parse_scale(const cli_surgery *o, pal_surgery *s) {
    char *end;
    s->low = PAL_B_SCALE_LOW;
    s->high = PAL_B_SCALE_HIGH;
    if (o->exact) s->low = s->high = PAL_B_SCALE_EXACT;
    if (!o->b_scale) return CLI_OK;
    if (o->exact) return cli_error(CLI_USAGE, "--exact says where b_scale starts: leave out --b-scale");
    s->low = strtod(o->b_scale, &end);
    if (end == o->b_scale || *end != ':')
        return cli_error(CLI_USAGE, "--b-scale '%s': expected LO:HI, as 0.1:1.0", o->b_scale);
    const char *high = end + 1;
    s->high = strtod(high, &end);
    if (end == high || *end) return cli_error(CLI_USAGE, "--b-scale '%s': expected LO:HI, as 0.1:1.0", o->b_scale);
    if (!(s->low <= s->high) || !isfinite(s->low) || !isfinite(s->high))
        return cli_error(CLI_USAGE, "--b-scale '%s': expected two numbers, the lower one first", o->b_scale);
    return CLI_OK;
}

static int check_options(const cli_surgery *o, const cli_surgery_job *job, pal_surgery *s) {
    int code;
    const bool windows = pal_surgery_needs_windows(o->metaplastic);
    if ((windows || !o->no_proof) && !o->data)
        return cli_error(CLI_USAGE, "--metaplastic %s needs --data TEXT%s", o->metaplastic,
                         windows ? " to measure memory windows on" : " for its proof (or --no-proof)");
    if ((windows || !o->no_proof) && job->tokenizer && strcmp(job->tokenizer, "none") == 0)
        return cli_error(CLI_USAGE, "--tokenizer none: the text of --data must be tokenized; say none with "
                                    "--metaplastic LAYERS --no-proof only");
    if (o->tokens && (o->tokens < LEAST_TOKENS || o->tokens > MOST_TOKENS))
        return cli_error(CLI_USAGE, "--tokens expects %d to %d, found %d", LEAST_TOKENS, MOST_TOKENS, o->tokens);
    if (o->proof_tokens && (o->proof_tokens < LEAST_TOKENS || o->proof_tokens > MOST_TOKENS))
        return cli_error(CLI_USAGE, "--proof-tokens expects %d to %d, found %d", LEAST_TOKENS, MOST_TOKENS,
                         o->proof_tokens);
    if (o->rank < 0) return cli_error(CLI_USAGE, "--rank expects a number of at least 1, found %d", o->rank);
    *s = (pal_surgery){ .rank = o->rank, .seed = (uint64_t)o->seed };
    s->convert = job->dtype != NULL;
    if (job->dtype && (code = cli_plain_dtype(&s->dtype, "dtype", job->dtype))) return code;
    return parse_scale(o, s);
}

static int read_text(theatre *t) {
    const cli_surgery *o = t->o;
    const bool windows = pal_surgery_needs_windows(o->metaplastic);
    int least = LEAST_TOKENS, most = 0;
    if (!windows && o->no_proof) return CLI_OK;
    if (windows) most = o->tokens ? o->tokens : WINDOW_TOKENS;
    if (windows && o->tokens) least = o->tokens;
    if (!o->no_proof && o->proof_tokens > least) least = o->proof_tokens;
    if (!o->no_proof && most < (o->proof_tokens ? o->proof_tokens : PROOF_TOKENS))
        most = o->proof_tokens ? o->proof_tokens : PROOF_TOKENS;
    return cli_text_ids_read(&t->text, o->data, t->job->tokenizer, t->from, least, most);
}

static int least_of(int a, int b) { return a < b ? a : b; }

/* The source as it is, or with its weights. */
static int open_source(theatre *t, bool loaded) {
    pal_error err;
    pal_model_close(t->from);
    t->from = NULL;
    const pal_status st = loaded ? pal_model_open(&t->from, t->job->src, PAL_FOR_INFERENCE, t->cx, &err)
                                 : pal_model_open_unloaded(&t->from, t->job->src, PAL_FOR_INFERENCE, &err);
    if (st) return cli_fail(&err);
    t->config = t->from->config;
    return CLI_OK;
}

static int choose(theatre *t) {
    pal_error err;
    const double start = pal_seconds();
    const cli_surgery *o = t->o;
    if (pal_surgery_needs_windows(o->metaplastic)) {
        /* what cannot be chosen is refused before the work */
        int order[PAL_MAX_LAYERS];
        for (int i = 0; i < t->config.layers; i++) order[i] = i;
        const pal_windows any = { .layers = t->config.layers, .order = order };
        if (pal_surgery_choose(t->surgery.layers, o->metaplastic, &t->config, &any, &err)) return cli_fail(&err);
        const int tokens = least_of(t->text.count, o->tokens ? o->tokens : WINDOW_TOKENS);
        const int code = open_source(t, true);
        if (code) return code;
        if (pal_windows_measure(&t->windows, t->from, t->cx, t->text.ids, tokens, NULL, NULL, &err))
            return cli_fail(&err);
    }
    if (pal_surgery_choose(t->surgery.layers, o->metaplastic, &t->config, &t->windows, &err)) return cli_fail(&err);
    t->window_s = pal_seconds() - start;
    return CLI_OK;
}

static int fail(theatre *t, const pal_error *err) {
    cli_watch_end(&t->watch);
    return cli_fail(err);
}

static int prove(theatre *t) {
    pal_model *to = NULL;
    pal_error err;
    const double start = pal_seconds();
    const int tokens = least_of(t->text.count, t->o->proof_tokens ? t->o->proof_tokens : PROOF_TOKENS);
    const int code = t->windows.layers ? CLI_OK : open_source(t, true);
    if (code) return code;
    pal_status st = pal_model_open(&to, pal_model_writer_directory(t->writer), PAL_FOR_INFERENCE, t->cx, &err);
    if (!st) st = pal_surgery_prove(&t->proof, &t->surgery, t->from, to, t->cx, t->text.ids, tokens, &err);
    pal_model_close(to);
    cli_watch_end(&t->watch);
    t->proof_s = pal_seconds() - start;
    if (!st && t->o->exact && !(t->proof.on <= PAL_PROOF_EXACT))
        return cli_error(CLI_FAILED,
                         "--exact: plasticity moves logits by %.3g of the largest, more than the %g of rounding; "
                         "instead of --exact, say --b-scale LO:HI with numbers below %g",
                         t->proof.on, PAL_PROOF_EXACT, PAL_B_SCALE_EXACT);
    if (!st) return CLI_OK;
    if (st == PAL_E_FORMAT && t->surgery.convert && t->surgery.dtype != PAL_F32)
        return cli_error(CLI_FAILED, "%s; --dtype rounds the weights: leave it out, or convert SRC first", err.text);
    return st == PAL_E_FORMAT || st == PAL_E_IO ? cli_error(CLI_FAILED, "%s", err.text) : cli_fail(&err);
}

static void list_layers(const theatre *t, char *out, size_t size) {
    size_t used = 0;
    out[0] = 0;
    for (int i = 0; i < t->config.layers && used + 8 < size; i++)
        if (t->surgery.layers[i]) used += (size_t)snprintf(out + used, size - used, "%s%d", used ? "," : "", i);
}

/* Updates until a gate that started at the limit is where others start. */
static double updates_to_open(const theatre *t) {
    return round((PAL_B_SCALE_LOW - PAL_B_SCALE_EXACT) / (recipe_rate(t->from) * recipe_factor));
}

static void report_proof(const theatre *t) {
    const pal_proof *p = &t->proof;
    printf("proof over %d tokens (%.1f s): with plasticity off, logits differ from those of %s by at most %.3g of the "
           "largest (accepted: %g)\n",
           p->tokens, t->proof_s, t->job->src, p->off, PAL_PROOF_ACCEPT);
    printf("fresh plasticity moves them by at most %.3g; another token becomes the likeliest at %d of %d positions; "
           "loss %.4f before, %.4f now\n",
           p->on, p->moved, p->tokens, p->loss_source, p->loss_on);
}

static void report(const theatre *t) {
    static char layers[PAL_MAX_LAYERS * 5];
    list_layers(t, layers, sizeof layers);
    if (t->windows.layers) printf("memory windows over %d tokens: %.1f s\n", t->windows.tokens, t->window_s);
    for (int r = 0; r < t->windows.layers; r++)
        if (t->surgery.layers[t->windows.order[r]])
            printf("  layer %d: median N_t %.4g\n", t->windows.order[r], t->windows.median[t->windows.order[r]]);
    printf("metaplastic layers: %s\n", layers);
    printf("wrote %s in %.1f s%s\n", t->job->dst, t->write_s, t->attached.tokenizer ? "" : "; no tokenizer");
    if (!t->o->no_proof) report_proof(t);
    if (t->o->exact)
        printf("b_scale starts at %g; at the rate of 'train --recipe metaplastic-exact' (%g, for b_scale %g) it "
               "reaches %g, the usual start, after about %.0f updates\n",
               PAL_B_SCALE_EXACT, recipe_rate(t->from), recipe_rate(t->from) * recipe_factor, PAL_B_SCALE_LOW,
               updates_to_open(t));
}

static int report_json(const theatre *t) {
    const pal_proof *p = &t->proof;
    json_t *layers = json_array();
    for (int i = 0; i < t->config.layers; i++)
        if (t->surgery.layers[i]) json_array_append_new(layers, json_integer(i));
    json_t *root = json_pack("{s:o, s:o, s:s, s:o, s:b, s:f, s:f}", "source", pal_json_text(t->job->src), "target",
                             pal_json_text(t->job->dst), "layout", "palimpsa", "metaplastic_layers", layers,
                             "tokenizer", t->attached.tokenizer != NULL, "windows_s", t->window_s, "write_s",
                             t->write_s);
    if (t->o->exact) json_object_set_new(root, "updates_to_open", json_integer((json_int_t)updates_to_open(t)));
    if (!t->o->no_proof)
        json_object_set_new(root, "proof",
                            json_pack("{s:i, s:f, s:f, s:f, s:o, s:i, s:o, s:o}", "tokens", p->tokens, "seconds",
                                      t->proof_s, "accepted", PAL_PROOF_ACCEPT, "off", p->off, "on",
                                      pal_json_number(p->on), "moved", p->moved, "loss_before",
                                      pal_json_number(p->loss_source), "loss_now", pal_json_number(p->loss_on)));
    const bool written = json_dumpf(root, stdout, JSON_INDENT(2)) == 0;
    putchar('\n');
    json_decref(root);
    return written ? CLI_OK : cli_error(CLI_FAILED, "cannot write to standard output");
}

static int operate(theatre *t) {
    pal_error err;
    int code;
    if (pal_target_is_free(t->job->dst, true, &err)) return cli_fail(&err);
    if ((code = open_source(t, false))) return code;
    if (!pal_surgery_needs_windows(t->o->metaplastic) && (code = choose(t)))
        return code; /* before the text, which takes longer to read */
    if ((code = read_text(t))) return code;
    if (pal_surgery_needs_windows(t->o->metaplastic) && (code = choose(t))) return code;
    t->surgery.go_on = cli_watch_go_on;
    t->surgery.user = &t->watch;
    if (pal_attachment_find(&t->attached, &t->from->source, t->job->tokenizer, (size_t)t->config.vocab, &err))
        return cli_fail(&err);
    cli_watch_begin(&t->watch); /* what was written aside is removed first */
    const double start = pal_seconds();
    if (pal_surgery_write(&t->writer, t->job->dst, t->from, &t->surgery, t->cx, &err)) return fail(t, &err);
    if (pal_attachment_write(&t->attached, pal_model_writer_directory(t->writer), &err)) return fail(t, &err);
    t->write_s = pal_seconds() - start;
    if (!t->o->no_proof && (code = prove(t))) return code;
    const double commit = pal_seconds();
    const pal_status st = pal_model_writer_commit(t->writer, NULL, &err);
    t->writer = NULL;
    t->write_s += pal_seconds() - commit;
    cli_watch_end(&t->watch);
    if (st) return cli_fail(&err);
    if (t->job->common.json) return report_json(t);
    report(t);
    return CLI_OK;
}

int cli_operate(const cli_surgery *options, const cli_surgery_job *job) {
    theatre t = { .o = options, .job = job };
    pal_error err;
    int code;
    if ((code = check_options(options, job, &t.surgery))) return code;
    if (pal_context_new(&t.cx, job->common.threads, job->common.cpu, &err)) return cli_fail(&err);
    code = operate(&t);
    pal_model_writer_drop(t.writer);
    pal_attachment_close(&t.attached);
    pal_model_close(t.from);
    pal_windows_free(&t.windows);
    cli_text_ids_free(&t.text);
    pal_context_free(t.cx);
    return code;
}
