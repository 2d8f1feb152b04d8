/* SPDX-License-Identifier: MIT */
/* palimpsa eval on text: loss, perplexity and loss by position of models, side by side. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/context.h"
#include "eval_text.h"
#include "format/json.h"
#include "format/model_dir.h"
#include "model/model.h"
#include "plot/runs.h"
#include "progress.h"
#include "ranks.h"
#include "stop.h"
#include "text/json_text.h"
#include "text_model.h"

typedef eval_measured measured;

static const char *plural(uint64_t n) { return n == 1 ? "" : "s"; }

typedef struct {
    const char *name;
    live_line line;
    double start;
    const pal_perplexity *result;
} view;

static bool show_progress(void *user, size_t done, size_t total) {
    view *v = user;
    const pal_perplexity *p = v->result;
    const double now = pal_seconds(), fraction = total ? (double)done / (double)total : NAN;
    char remaining[32];
    if (!pal_comm_is_root(ranks_comm()) || !live_due(&v->line)) return !cli_stopping();
    progress_duration(remaining, fraction > 0 ? (now - v->start) * (1 - fraction) / fraction : NAN);
    live_show(&v->line, "%s: %5.1f%%  %s left  %.4f nats/token  %llu token%s  %.0f tokens/s", v->name, 100 * fraction,
              remaining, p->nll / (double)p->tokens, (unsigned long long)p->read, plural(p->read),
              (double)p->read / p->seconds);
    return !cli_stopping();
}

static int choose_context(measured *m, const eval_text_options *o, const pal_model *model) {
    pal_error err;
    m->context = o->context;
    m->why = "";
    if (m->context || !pal_model_grows(pal_model_config_of(model))) return CLI_OK;
    if (pal_eval_trained_context(model, &m->context, &err)) return cli_fail(&err);
    m->why = m->context ? ", as it was trained"
                        : "; the length it was trained with is not known, and --context chooses another";
    if (!m->context) m->context = PAL_EVAL_ATTENTION;
    return CLI_OK;
}

static int measure(measured *m, const eval_text_options *o, const pal_context *cx) {
    pal_bundle t;
    pal_eval_data *data;
    pal_error err;
    int code = text_model_open(&t, m->name, o->tokenizer, o->data, cx);
    if (code) return code;
    if ((code = text_model_keep_as(t.model, o->kv_type))) {
        pal_bundle_close(&t);
        return code;
    }
    const pal_eval_options source = { .field = o->field,
                                      .split = strcmp(o->split, "wikitext") == 0 ? PAL_SPLIT_WIKITEXT : PAL_SPLIT_NONE,
                                      .subset = strcmp(o->part, "train") == 0   ? PAL_SUBSET_TRAIN
                                                : strcmp(o->part, "valid") == 0 ? PAL_SUBSET_VALID
                                                                                : PAL_SUBSET_ALL,
                                      .answers = o->answers };
    m->answers = o->answers;
    if ((code = choose_context(m, o, t.model)) ||
        (pal_eval_data_open(&data, o->data, t.tokenizer, &source, &err) && (code = cli_fail(&err)))) {
        pal_bundle_close(&t);
        return code;
    }
    m->tokenizer = pal_tokenizer_fingerprint(t.tokenizer);
    view v = { .name = m->name, .line = live_begin(stderr), .start = pal_seconds(), .result = &m->result };
    const pal_perplexity_options options = { .context = m->context,
                                             .piece = o->piece,
                                             .documents = o->batch,
                                             .no_prefix = o->no_prefix,
                                             .least = (size_t)o->least,
                                             .by_document = o->by_position,
                                             .first_window = o->by_position,
                                             .comm = ranks_comm(),
                                             .progress = show_progress,
                                             .user = &v };
    const pal_status st = pal_perplexity_run(&m->result, t.model, t.tokenizer, cx, data, &options, &err);
    live_clear(&v.line);
    const char *from = strcmp(o->data, "-") == 0 ? "standard input" : o->data;
    if (st && strncmp(err.text, from, strlen(from)) == 0) code = cli_fail(&err); /* names the file itself */
    else if (st)
        code = cli_error(cli_code_of(st), "%s: %s", st == PAL_E_ARGUMENT ? from : m->name, err.text);
    pal_eval_data_close(data);
    pal_bundle_close(&t);
    return code;
}

static double per(const pal_perplexity *p, uint64_t units) { return units ? exp(p->nll / (double)units) : NAN; }
static double bits_per_byte(const pal_perplexity *p) { return p->bytes ? p->nll / (double)p->bytes / log(2) : NAN; }

int eval_text_result(eval_result *out, const char *model, const eval_text_options *o, const pal_context *cx) {
    measured m = { .name = model };
    const int code = measure(&m, o, cx);
    const pal_perplexity *p = &m.result;
    if (!code) {
        *out = (eval_result){ .done = true, .documents = (size_t)p->documents };
        out->value[PAL_METRIC_PERPLEXITY] = per(p, p->tokens);
        out->value[PAL_METRIC_WORD_PERPLEXITY] = per(p, p->words);
        out->value[PAL_METRIC_BYTE_PERPLEXITY] = per(p, p->bytes);
        out->value[PAL_METRIC_BITS_PER_BYTE] = bits_per_byte(p);
        for (int k = 0; k < PAL_METRICS; k++) out->error[k] = NAN;
    }
    pal_perplexity_free(&m.result);
    return code;
}

static double bin_nll(const pal_perplexity *p, int bin) {
    return bin < p->bin_count && p->bins[bin].count ? p->bins[bin].nll / (double)p->bins[bin].count : NAN;
}

static json_t *bins_json(const pal_perplexity *p, const pal_perplexity *minus) {
    json_t *list = json_array();
    for (int b = 0; b < p->bin_count; b++) {
        const double nll = bin_nll(p, b) - (minus ? bin_nll(minus, b) : 0);
        if (!isfinite(nll)) continue;
        json_t *bin = json_pack("{s:I, s:I, s:f}", "from", (json_int_t)1 << b, "to", (json_int_t)1 << (b + 1), "nll",
                                nll);
        if (!minus) pal_json_set(bin, "tokens", json_integer((json_int_t)p->bins[b].count));
        pal_json_append(list, bin);
    }
    return list;
}

static json_t *model_json(const measured *m, const measured *baseline) {
    const pal_perplexity *p = &m->result;
    char tokenizer[17];
    snprintf(tokenizer, sizeof tokenizer, "%016llx", (unsigned long long)m->tokenizer);
    json_t *root = json_pack("{s:o, s:s, s:s, s:I, s:I, s:I, s:I, s:o, s:o}", "model",
                             pal_json_bytes(m->name, strlen(m->name)), "tokenizer", tokenizer, "task", "perplexity",
                             "documents", (json_int_t)p->documents, "tokens", (json_int_t)p->tokens, "bytes",
                             (json_int_t)p->bytes, "words", (json_int_t)p->words, "nll",
                             pal_json_number(p->nll / (double)p->tokens), "nll_sum", pal_json_number(p->nll));
    pal_json_set(root, "token_perplexity", pal_json_number(per(p, p->tokens)));
    pal_json_set(root, "byte_perplexity", pal_json_number(per(p, p->bytes)));
    pal_json_set(root, "word_perplexity", pal_json_number(per(p, p->words)));
    pal_json_set(root, "bits_per_byte", pal_json_number(bits_per_byte(p)));
    if (m->answers) {
        pal_json_set(root, "answers", json_integer((json_int_t)p->words));
        pal_json_set(root, "right", json_integer((json_int_t)p->right));
    }
    pal_json_set(root, "context", m->context ? json_integer(m->context) : json_null());
    pal_json_set(root, "tokens_per_s", pal_json_number((double)p->read / p->seconds));
    pal_json_set(root, "by_position", bins_json(p, NULL));
    if (baseline) {
        pal_json_set(root, "baseline", pal_json_bytes(baseline->name, strlen(baseline->name)));
        pal_json_set(root, "difference_by_position", bins_json(p, &baseline->result));
    }
    return root;
}

static int write_json(const measured *all, int count, const measured *baseline, const char *path) {
    json_t *root = count == 1 ? model_json(all, baseline) : json_array();
    for (int i = 0; count > 1 && i < count; i++) pal_json_append(root, model_json(&all[i], baseline));
    const int code = eval_write_json(root, path);
    json_decref(root);
    return code;
}

static void last_part(char out[64], const char *path) {
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/') end--;
    size_t start = end;
    while (start > 0 && path[start - 1] != '/') start--;
    snprintf(out, 64, "%.*s", (int)(end - start < 63 ? end - start : 63), path + start);
}

void eval_make_labels(char (*labels)[64], const char *const *names, int count) {
    bool distinct = true;
    for (int i = 0; i < count; i++) {
        last_part(labels[i], names[i]);
        for (int j = 0; j < i; j++) distinct &= strcmp(labels[i], labels[j]) != 0;
    }
    for (int i = 0; i < count && !distinct; i++) {
        const size_t length = strlen(names[i]);
        snprintf(labels[i], sizeof labels[i], "%s", names[i] + (length > 63 ? length - 63 : 0));
    }
}

static int name_width(const measured *all, int count) {
    size_t width = 8;
    for (int i = 0; i < count; i++)
        if (strlen(all[i].label) > width) width = strlen(all[i].label);
    return (int)width;
}

void eval_bin_name(char text[48], int bin, uint64_t last) {
    const unsigned long long from = 1ull << bin, most = 2 * from - 1, to = most < last ? most : last;
    snprintf(text, 48, from == to ? "%llu" : "%llu to %llu", from, to);
}

/* all[count] is the baseline when there is one. */
static void print_tables(const measured *all, int count, const measured *baseline, const eval_text_options *o) {
    const int shown = count + (baseline != NULL), width = name_width(all, shown);
    const pal_perplexity *first = &all[0].result;
    printf("%llu document%s, %llu byte%s, %llu %s%s%s\n\n", (unsigned long long)first->documents,
           plural(first->documents), (unsigned long long)first->bytes, plural(first->bytes),
           (unsigned long long)first->words, o->answers ? "answer" : "word", plural(first->words),
           o->answers ? ", which alone count" : "");
    printf("%-*s %12s %12s %12s %12s %12s %12s%s\n", width, "model", "tokens", "nats/token", "token ppl", "byte ppl",
           o->answers ? "answer ppl" : "word ppl", "tokens/s", o->answers ? "        right" : "");
    for (int i = 0; i < shown; i++) {
        const pal_perplexity *p = &all[i].result;
        printf("%-*s %12llu %12.4f %12.6g %12.6g %12.6g %12.0f", width, all[i].label, (unsigned long long)p->tokens,
               p->nll / (double)p->tokens, per(p, p->tokens), per(p, p->bytes), per(p, p->words),
               (double)p->read / p->seconds);
        if (o->answers) printf(" %11.1f%%", 100 * (double)p->right / (double)p->words);
        putchar('\n');
    }
    int bins = 0;
    uint64_t last = 0;
    for (int i = 0; i < shown; i++) {
        if (all[i].result.bin_count > bins) bins = all[i].result.bin_count;
        if (all[i].result.last > last) last = all[i].result.last;
    }
    printf("\nloss by %s, nats/token%s\n%20s",
           o->answers ? "distance (tokens since the fact was read)" : "position (tokens read before)",
           baseline ? "; in brackets: above the baseline" : "", o->answers ? "distance" : "position");
    for (int i = 0; i < shown; i++) printf(" %*s", baseline ? width + 11 : width, all[i].label);
    putchar('\n');
    for (int b = 0; b < bins; b++) {
        bool some = false;
        for (int i = 0; i < shown; i++) some |= b < all[i].result.bin_count && all[i].result.bins[b].count > 0;
        if (!some) continue; /* no answer is so near */
        char range[48];
        eval_bin_name(range, b, last);
        printf("%20s", range);
        for (int i = 0; i < shown; i++) {
            const double nll = bin_nll(&all[i].result, b);
            if (isfinite(nll)) printf(" %*.4f", width, nll);
            else printf(" %*s", width, "-");
            const double above = baseline ? nll - bin_nll(&baseline->result, b) : NAN;
            if (baseline && i < count && isfinite(above)) printf(" (%+8.4f)", above);
            else if (baseline) printf("%11s", "");
        }
        putchar('\n');
    }
    bool comparable = true;
    for (int i = 0; i < shown; i++) {
        comparable &= all[i].tokenizer == all[0].tokenizer;
        if (all[i].context)
            printf("%s: windows of %d token%s%s\n", all[i].label, all[i].context, plural((uint64_t)all[i].context),
                   all[i].why);
    }
    if (!comparable) puts("These models have different tokenizers: only perplexity per byte and per word compare.");
}

const char *eval_axis_name(const eval_text_options *o) {
    return o->answers ? "distance (tokens)" : "position (tokens)";
}

double eval_bin_middle(const pal_perplexity *p, int bin) {
    const double first = ldexp(1, bin), last = fmin(2 * first - 1, (double)p->last);
    return sqrt(first * last);
}

int eval_write_figure(const pal_figure *figure, const char *path) {
    const size_t length = strlen(path);
    const bool png = length > 4 && strcmp(path + length - 4, ".png") == 0;
    pal_error err;
    if (png ? pal_figure_write_png(figure, 2, path, &err) : pal_figure_write_svg(figure, path, &err))
        return cli_fail_writing(&err);
    fprintf(stderr, "%s written\n", path);
    return CLI_OK;
}

/* The first few positions are a heading's, few and noisy: where texts are longer, the figure begins at 32 tokens. */
static int first_drawn_bin(const measured *all, int shown) {
    enum { TOKENS_32 = 5 };
    for (int i = 0; i < shown; i++)
        if (all[i].result.bin_count > TOKENS_32 + 1) return TOKENS_32;
    return 0;
}

static int draw(const measured *all, int count, const measured *baseline, const eval_text_options *o) {
    const int shown = count + (baseline != NULL), from = first_drawn_bin(all, shown);
    const size_t bins = (size_t)(PAL_POSITION_BINS - from);
    const char *names[EVAL_MODELS + 1];
    int colours[EVAL_MODELS + 1];
    double x[EVAL_MODELS + 1][PAL_POSITION_BINS], y[EVAL_MODELS + 1][PAL_POSITION_BINS],
        above[EVAL_MODELS][PAL_POSITION_BINS];
    pal_series loss[EVAL_MODELS + 1], difference[EVAL_MODELS];
    for (int i = 0; i < shown; i++) names[i] = pal_model_label(all[i].label);
    pal_model_colours(names, (size_t)shown, colours);
    for (int i = 0; i < shown; i++) {
        for (int b = 0; b < PAL_POSITION_BINS; b++) {
            x[i][b] = eval_bin_middle(&all[i].result, b);
            y[i][b] = bin_nll(&all[i].result, b);
        }
        loss[i] = (pal_series){ .label = names[i],
                                .count = bins,
                                .x = x[i] + from,
                                .y = y[i] + from,
                                .colour = colours[i],
                                .points = true,
                                .dashed = i == count };
    }
    for (int i = 0; i < count && baseline; i++) {
        for (int b = 0; b < PAL_POSITION_BINS; b++) above[i][b] = y[i][b] - y[count][b];
        difference[i] = (pal_series){ .label = names[i],
                                      .count = bins,
                                      .x = x[i] + from,
                                      .y = above[i] + from,
                                      .colour = colours[i],
                                      .points = true };
    }
    char title[256];
    snprintf(title, sizeof title, "Loss above %s", baseline ? names[count] : "");
    const pal_panel panels[2] = {
        { .kind = PAL_PANEL_LINES,
          .title = baseline ? "Loss" : NULL,
          .x = { .label = eval_axis_name(o), .log = true },
          .y = { .label = "nats per token" },
          .lines = { .series = loss, .series_count = (size_t)shown } },
        { .kind = PAL_PANEL_LINES,
          .title = title,
          .x = { .label = eval_axis_name(o), .log = true },
          .y = { .label = "difference, nats per token" },
          .lines = { .series = difference, .series_count = (size_t)count } },
    };
    const pal_figure figure = { .title = o->answers ? "Loss on answers by distance" : "Loss by position",
                                .panels = panels,
                                .panel_count = baseline ? 2 : 1,
                                .columns = baseline ? 2 : 1 };
    return eval_write_figure(&figure, o->figure);
}

/* Asked before anything is measured. */
static int check_baseline(const eval_text_options *o) {
    uint64_t baseline = 0;
    for (int i = o->count; i >= 0; i--) {
        pal_bundle t;
        const int code = text_model_open(&t, o->models[i], NULL, o->data, NULL);
        if (code) return code;
        const uint64_t own = pal_tokenizer_fingerprint(t.tokenizer);
        pal_bundle_close(&t);
        if (i == o->count) baseline = own;
        if (own != baseline)
            return cli_error(CLI_USAGE,
                             "--baseline %s has another tokenizer (fingerprint %016llx) than %s (%016llx): losses per "
                             "token do not compare",
                             o->baseline, (unsigned long long)baseline, o->models[i], (unsigned long long)own);
    }
    return CLI_OK;
}

static int show(const measured *all, const measured *baseline, const eval_text_options *o) {
    int code = CLI_OK;
    if (!pal_comm_is_root(ranks_comm())) return CLI_OK;
    if (!o->json || strcmp(o->json, "-") != 0) print_tables(all, o->count, baseline, o);
    if (o->json) code = write_json(all, o->count, baseline, o->json);
    if (!code && o->figure) code = draw(all, o->count, baseline, o);
    return code;
}

int eval_text(eval_text_options *o, const pal_context *cx) {
    measured all[EVAL_MODELS + 1] = { 0 };
    char labels[EVAL_MODELS + 1][64];
    const int shown = o->count + (o->baseline != NULL);
    o->models[o->count] = o->baseline;
    int code = o->baseline && !o->tokenizer ? check_baseline(o) : CLI_OK;
    for (int i = 0; i < shown && !code; i++) {
        all[i].name = o->models[i];
        code = measure(&all[i], o, cx);
    }
    if (!code) {
        eval_make_labels(labels, o->models, shown);
        for (int i = 0; i < shown; i++) memcpy(all[i].label, labels[i], sizeof labels[i]);
        const measured *baseline = o->baseline ? &all[o->count] : NULL;
        code = o->by_position ? eval_show_positions(all, o->count, baseline, o) : show(all, baseline, o);
    }
    for (int i = 0; i < shown; i++) pal_perplexity_free(&all[i].result);
    return code;
}
