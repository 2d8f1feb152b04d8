/* SPDX-License-Identifier: MIT */
#include "surgery.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "format/json.h"
#include "model/model.h"
#include "model/surgery.h"
#include "text_ids.h"
#include "watch.h"

enum { LEAST_TOKENS = 32, WINDOW_TOKENS = 4096, MOST_TOKENS = 1 << 18, PROOF_TOKENS = 256 };

/* What configs/metaplastic-exact.json trains b_scale with: AdamW moves a weight by about its rate in each update. */
static const double recipe_factor = 100;
static double recipe_rate(size_t parameters) { return parameters > 400000000 ? 1.25e-4 : 3e-4; }

typedef struct {
    const cli_surgery *o;
    const cli_surgery_job *job;
    pal_context *cx;
    int layers;
    double b_scale[2];
    cli_text_ids text;
    pal_surgery_report done;
    cli_watch watch;
} theatre;

static int parse_scale(const cli_surgery *o, double scale[2]) {
    char *end;
    if (!o->b_scale) return CLI_OK;
    if (o->exact) return cli_error(CLI_USAGE, "--exact says where b_scale starts: leave out --b-scale");
    scale[0] = strtod(o->b_scale, &end);
    if (end == o->b_scale || *end != ':')
        return cli_error(CLI_USAGE, "--b-scale '%s': expected LO:HI, as 0.1:1.0", o->b_scale);
    const char *high = end + 1;
    scale[1] = strtod(high, &end);
    if (end == high || *end) return cli_error(CLI_USAGE, "--b-scale '%s': expected LO:HI, as 0.1:1.0", o->b_scale);
    if (!(scale[0] <= scale[1]) || !isfinite(scale[0]) || !isfinite(scale[1]))
        return cli_error(CLI_USAGE, "--b-scale '%s': expected two numbers, the lower one first", o->b_scale);
    return CLI_OK;
}

static int check_options(const cli_surgery *o, const cli_surgery_job *job, double scale[2]) {
    pal_dtype dtype;
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
    if (job->dtype && (code = cli_plain_dtype(&dtype, "dtype", job->dtype))) return code;
    return parse_scale(o, scale);
}

static int read_text(theatre *t, const pal_model *from) {
    const cli_surgery *o = t->o;
    const bool windows = pal_surgery_needs_windows(o->metaplastic);
    int least = LEAST_TOKENS, most = 0;
    if (!windows && o->no_proof) return CLI_OK;
    if (windows) most = o->tokens ? o->tokens : WINDOW_TOKENS;
    if (windows && o->tokens) least = o->tokens;
    if (!o->no_proof && o->proof_tokens > least) least = o->proof_tokens;
    if (!o->no_proof && most < (o->proof_tokens ? o->proof_tokens : PROOF_TOKENS))
        most = o->proof_tokens ? o->proof_tokens : PROOF_TOKENS;
    return cli_text_ids_read(&t->text, o->data, t->job->tokenizer, from, least, most);
}

static int least_of(int a, int b) { return a < b ? a : b; }

static void list_layers(const theatre *t, char *out, size_t size) {
    size_t used = 0;
    out[0] = 0;
    for (int i = 0; i < t->layers && used + 8 < size; i++)
        if (t->done.layers[i]) used += (size_t)snprintf(out + used, size - used, "%s%d", used ? "," : "", i);
}

/* Updates until a gate that started at the limit is where others start. */
static double updates_to_open(const theatre *t) {
    return round((PAL_B_SCALE_LOW - PAL_B_SCALE_EXACT) / (recipe_rate(t->done.parameters) * recipe_factor));
}

static void report_proof(const theatre *t) {
    const pal_proof *p = &t->done.proof;
    printf("proof over %d tokens (%.1f s): with plasticity off, logits differ from those of %s by at most %.3g of the "
           "largest (accepted: %g)\n",
           p->tokens, t->done.proof_seconds, t->job->src, p->off, PAL_PROOF_ACCEPT);
    printf("fresh plasticity moves them by at most %.3g; another token becomes the likeliest at %d of %d positions; "
           "loss %.4f before, %.4f now\n",
           p->on, p->moved, p->tokens, p->loss_source, p->loss_on);
}

static void report(const theatre *t) {
    static char layers[PAL_MAX_LAYERS * 5];
    list_layers(t, layers, sizeof layers);
    const pal_windows *w = &t->done.windows;
    const double rate = recipe_rate(t->done.parameters);
    if (w->layers) printf("memory windows over %d tokens: %.1f s\n", w->tokens, t->done.window_seconds);
    for (int r = 0; r < t->done.windows.layers; r++)
        if (t->done.layers[t->done.windows.order[r]])
            printf("  layer %d: median N_t %.4g\n", w->order[r], w->median[w->order[r]]);
    printf("metaplastic layers: %s\n", layers);
    printf("wrote %s in %.1f s%s\n", t->job->dst, t->done.write_seconds, t->done.tokenizer ? "" : "; no tokenizer");
    if (!t->o->no_proof) report_proof(t);
    if (t->o->exact)
        printf("b_scale starts at %g; at the rate of 'train --recipe metaplastic-exact' (%g, for b_scale %g) it "
               "reaches %g, the usual start, after about %.0f updates\n",
               PAL_B_SCALE_EXACT, rate, rate * recipe_factor, PAL_B_SCALE_LOW, updates_to_open(t));
}

static int report_json(const theatre *t) {
    const pal_proof *p = &t->done.proof;
    json_t *layers = json_array();
    for (int i = 0; i < t->layers; i++)
        if (t->done.layers[i]) pal_json_append(layers, json_integer(i));
    json_t *root = json_pack("{s:o, s:o, s:s, s:o, s:b, s:f, s:f}", "source", pal_json_text(t->job->src), "target",
                             pal_json_text(t->job->dst), "layout", "palimpsa", "metaplastic_layers", layers,
                             "tokenizer", t->done.tokenizer, "windows_s", t->done.window_seconds, "write_s",
                             t->done.write_seconds);
    if (t->o->exact) pal_json_set(root, "updates_to_open", json_integer((json_int_t)updates_to_open(t)));
    if (!t->o->no_proof)
        pal_json_set(root, "proof",
                     json_pack("{s:i, s:f, s:f, s:f, s:o, s:i, s:o, s:o}", "tokens", p->tokens, "seconds",
                               t->done.proof_seconds, "accepted", PAL_PROOF_ACCEPT, "off", p->off, "on",
                               pal_json_number(p->on), "moved", p->moved, "loss_before",
                               pal_json_number(p->loss_source), "loss_now", pal_json_number(p->loss_on)));
    return cli_print_json(root, JSON_INDENT(2));
}

/* A failed proof is not wrong usage. */
static int fail(const theatre *t, pal_status st, const pal_error *err) {
    if (!t->done.proving || (st != PAL_E_FORMAT && st != PAL_E_IO))
        return t->done.writing ? cli_fail_writing(err) : cli_fail(err);
    if (st == PAL_E_FORMAT && t->job->dtype && strcasecmp(t->job->dtype, "f32") != 0)
        return cli_error(CLI_FAILED, "%s; --dtype rounds the weights: leave it out, or convert SRC first", err->text);
    return cli_error(CLI_FAILED, "%s", err->text);
}

/* What is refused whatever the text is, and then the text. */
static int prepare(theatre *t) {
    pal_model *from;
    pal_error err;
    int code = CLI_OK;
    if (pal_target_is_free(t->job->dst, true, &err) ||
        pal_model_open_unloaded(&from, t->job->src, PAL_FOR_INFERENCE, &err))
        return cli_fail(&err);
    t->layers = from->config.layers;
    const bool windows = pal_surgery_needs_windows(t->o->metaplastic);
    if (!windows && pal_surgery_choosable(t->o->metaplastic, &from->config, &err)) code = cli_fail(&err);
    if (!code) code = read_text(t, from);
    pal_model_close(from);
    return code;
}

static int operate(theatre *t) {
    const cli_surgery *o = t->o;
    pal_error err;
    const int code = prepare(t);
    if (code) return code;
    const bool windows = pal_surgery_needs_windows(o->metaplastic);
    const pal_surgery_options options = {
        .layers = o->metaplastic,
        .ids = t->text.ids,
        .window_tokens = windows ? least_of(t->text.count, o->tokens ? o->tokens : WINDOW_TOKENS) : 0,
        .proof_tokens = o->no_proof ? 0 : least_of(t->text.count, o->proof_tokens ? o->proof_tokens : PROOF_TOKENS),
        .rank = o->rank,
        .b_scale = o->b_scale ? t->b_scale : NULL,
        .exact = o->exact,
        .seed = (uint64_t)o->seed,
        .dtype = t->job->dtype,
        .tokenizer = t->job->tokenizer,
        .progress = cli_watch_go_on,
        .user = &t->watch,
    };
    cli_watch_begin(&t->watch); /* what was written aside is removed first */
    const pal_status st = pal_surgery_operate(t->job->src, t->job->dst, &options, t->cx, &t->done, &err);
    cli_watch_end(&t->watch);
    if (st) return fail(t, st, &err);
    if (t->job->common.json) return report_json(t);
    report(t);
    return CLI_OK;
}

int cli_operate(const cli_surgery *options, const cli_surgery_job *job) {
    theatre t = { .o = options, .job = job };
    pal_error err;
    int code;
    if ((code = check_options(options, job, t.b_scale))) return code;
    if (pal_context_new(&t.cx, job->common.threads, job->common.cpu, &err)) return cli_fail(&err);
    code = operate(&t);
    pal_surgery_report_free(&t.done);
    cli_text_ids_free(&t.text);
    pal_context_free(t.cx);
    return code;
}
