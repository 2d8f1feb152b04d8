/* SPDX-License-Identifier: MIT */
/* palimpsa compare: what a sweep shows, with intervals and tests, from its CSV files alone. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/context.h"
#include "cli.h"
#include "compare.h"

enum { MOST_CONTRASTS = 32 };

static int find_model(const comparison *c, const char *name, size_t length) {
    for (int m = 0; m < c->models; m++)
        if (strlen(c->model[m]) == length && memcmp(c->model[m], name, length) == 0) return m;
    return -1;
}

/* The slope of a seed's differences over log2 of the length, by least squares. */
static int slopes(const comparison *c, int a, int b, double out[SWEEP_ENTRIES]) {
    int n = 0;
    for (int d = 0; d < c->seeds; d++) {
        double x = 0, y = 0, xx = 0, xy = 0;
        for (int k = 0; k < c->stages; k++) {
            const double at = log2(c->length[k]), difference = c->accuracy[a][k][d] - c->accuracy[b][k][d];
            x += at, y += difference, xx += at * at, xy += at * difference;
        }
        const double slope = (c->stages * xy - x * y) / (c->stages * xx - x * x);
        if (!isnan(slope)) out[n++] = slope;
    }
    return n;
}

/* A/B or slope:A/B. */
static int make_contrast(const comparison *c, const char *text, contrast *out) {
    static const char slope[] = "slope:";
    pal_error err;
    *out = (contrast){ .text = text, .slope = strncmp(text, slope, sizeof slope - 1) == 0 };
    const char *first = text + (out->slope ? sizeof slope - 1 : 0), *cut = strchr(first, '/');
    if (!cut) return cli_error(CLI_USAGE, "--contrasts '%s': expected MODEL/MODEL or slope:MODEL/MODEL", text);
    out->a = find_model(c, first, (size_t)(cut - first));
    out->b = find_model(c, cut + 1, strlen(cut + 1));
    if (out->a < 0) return cli_error(CLI_USAGE, "%s: no rows of a model '%.*s'", c->folder, (int)(cut - first), first);
    if (out->b < 0) return cli_error(CLI_USAGE, "%s: no rows of a model '%s'", c->folder, cut + 1);
    if (out->slope && c->stages < 2)
        return cli_error(CLI_USAGE, "--contrasts '%s': the sweep has one length alone", text);
    out->count = out->slope ? slopes(c, out->a, out->b, out->value) : compare_endpoints(c, out->a, out->b, out->value);
    for (int i = 0; i < out->count; i++) out->ahead += out->value[i] > 0;
    out->t_interval = pal_t_interval(out->value, (size_t)out->count);
    out->mean = pal_mean(out->value, (size_t)out->count);
    out->p = out->adjusted = pal_sign_flip_p(out->value, (size_t)out->count);
    return pal_bootstrap_mean(&out->interval, out->value, (size_t)out->count, &err) ? cli_fail(&err) : CLI_OK;
}

/* Seeds of which a model has any row. */
static int seeds_of(const comparison *c, int model) {
    double value[SWEEP_ENTRIES];
    int most = 0;
    for (int k = 0; k < c->stages; k++) {
        const int n = compare_accuracies(c, model, k, value);
        most = n > most ? n : most;
    }
    return most;
}

static int print_stages(const comparison *c) {
    double value[SWEEP_ENTRIES];
    pal_interval interval;
    pal_error err;
    printf("%s at the end of each stage: mean over seeds [95%% interval].\n\n| model | rate | seeds |",
           c->column ? c->column : "Test accuracy");
    for (int k = 0; k < c->stages; k++) printf(" %d pairs in %d tokens |", c->pairs[k], c->length[k]);
    printf("%s\n|---|---|---|", c->column ? "" : " pairs recalled |");
    for (int k = 0; k < c->stages + !c->column; k++) printf("---|");
    for (int m = 0; m < c->models; m++) {
        double last = NAN;
        printf("\n| %s | %s | %d |", c->model[m], c->rate[m], seeds_of(c, m));
        for (int k = 0; k < c->stages; k++) {
            const int n = compare_accuracies(c, m, k, value);
            if (pal_bootstrap_mean(&interval, value, (size_t)n, &err)) return cli_fail(&err);
            last = pal_mean(value, (size_t)n);
            if (n) printf(" %.3f", last);
            else printf(" -");
            if (n > 1) printf(" [%.3f, %.3f]", interval.low, interval.high);
            printf(" |");
        }
        if (c->column) continue;
        if (isnan(last)) printf(" - |");
        else printf(" %.1f |", last * c->pairs[c->stages - 1]);
    }
    printf("\n");
    return CLI_OK;
}

static void print_p(double p) {
    if (isnan(p)) printf(" - |");
    else printf(p < 0.001 ? " %.1e |" : " %.3f |", p);
}

static void print_interval(pal_interval x) {
    if (isnan(x.low)) printf(" - |");
    else printf(" %+.3f to %+.3f |", x.low, x.high);
}

static void print_endpoint(const comparison *c) {
    const int last = c->stages - 1;
    printf("\nDifferences of %s ", c->column ? c->column : "test accuracy");
    if (c->endpoint.count) {
        printf("in the mean over the ends of the stages of");
        for (int i = 0; i < c->endpoint.count; i++) printf("%s %s", i ? "," : "", c->endpoint.entry[i]);
        printf(" tokens");
    } else printf("at the end of the last stage (%d pairs in %d tokens)", c->pairs[last], c->length[last]);
}

static void print_contrasts(const comparison *c, const contrast *list, int count) {
    print_endpoint(c);
    printf(", paired by seed; slope: change\nwith each doubling of the length. Ahead: seeds with a difference above 0. "
           "p: exact sign-flip test; adjusted: by Holm over the %d.\n\n"
           "| difference | seeds | ahead | mean | 95%% interval, bootstrap | 95%% interval, t | p | adjusted |\n"
           "|---|---|---|---|---|---|---|---|\n",
           count);
    for (int i = 0; i < count; i++) {
        const contrast *x = &list[i];
        printf("| %s%s - %s | %d | %d |", x->slope ? "slope of " : "", c->model[x->a], c->model[x->b], x->count,
               x->ahead);
        if (x->count) printf(" %+.3f |", x->mean);
        else printf(" - |");
        print_interval(x->interval), print_interval(x->t_interval);
        print_p(x->p), print_p(x->adjusted);
        printf("\n");
    }
}

static void print_times(const comparison *c, const contrast *list, int count, double level) {
    double time[2][SWEEP_ENTRIES];
    bool happened[2][SWEEP_ENTRIES];
    printf(
        "\nRuns whose training accuracy passed %g%%.\n\n| model | runs | passed | median update |\n|---|---|---|---|\n",
        100 * level);
    for (int m = 0; m < c->models; m++) {
        const pal_times of = compare_times(c, m, level, time[0], happened[0]);
        size_t passed = 0;
        for (size_t i = 0; i < of.n; i++) passed += of.happened[i];
        const double median = pal_median_time(&of);
        printf("| %s | %zu | %zu |", c->model[m], of.n, passed);
        if (isnan(median)) printf(" - |\n");
        else printf(" %.0f |\n", median);
    }
    for (int i = 0; i < count; i++) {
        if (list[i].slope) continue;
        const pal_times a = compare_times(c, list[i].a, level, time[0], happened[0]),
                        b = compare_times(c, list[i].b, level, time[1], happened[1]);
        const double p = pal_log_rank_p(&a, &b);
        if (!isnan(p))
            printf("%s%s and %s: log-rank p %.2g\n", i ? "" : "\n", c->model[list[i].a], c->model[list[i].b], p);
    }
}

/* What is left are runs that learned: how much their memories hold, whether or not others began to. */
static int keep_passed(comparison *c, double level) {
    if (!c->curves) return cli_error(CLI_USAGE, "%s: --passed needs its curves, and there are none", c->folder);
    for (int m = 0; m < c->models; m++)
        for (int d = 0; d < c->seeds; d++)
            if (!compare_passes(c, m, d, level))
                for (int k = 0; k < c->stages; k++) c->accuracy[m][k][d] = NAN;
    printf("Only runs whose training accuracy passed %g%% count in the accuracies and their differences.\n\n",
           100 * level);
    return CLI_OK;
}

static int compare(comparison *c, const char *contrasts, double level, const char *figure, const char *title,
                   const char *out) {
    word_list words = { 0 };
    contrast list[MOST_CONTRASTS];
    double p[MOST_CONTRASTS];
    int code = contrasts ? sweep_split(&words, "contrasts", contrasts) : CLI_OK;
    if (!code && words.count > MOST_CONTRASTS)
        code = cli_error(CLI_USAGE, "--contrasts: at most %d entries", MOST_CONTRASTS);
    for (int i = 0; i < words.count && !code; i++) code = make_contrast(c, words.entry[i], &list[i]);
    if (!code) {
        for (int i = 0; i < words.count; i++) p[i] = list[i].p;
        pal_holm(p, (size_t)words.count);
        for (int i = 0; i < words.count; i++) list[i].adjusted = p[i];
        if (figure) code = compare_draw(c, list, words.count, figure, level, title, out);
        else if (!(code = print_stages(c))) {
            if (words.count) print_contrasts(c, list, words.count);
            if (c->curves) print_times(c, list, words.count, level);
        }
    }
    pal_free(words.text);
    return code;
}

int cmd_compare(int argc, char **argv) {
    const char *contrasts = NULL, *rate = NULL, *figure = NULL, *title = NULL, *out = NULL, *folder, *endpoint = NULL,
               *column = NULL;
    double level = 0.5;
    bool passed = false;
    const cli_option options[] = {
        { "contrasts", OPT_TEXT, &contrasts, "LIST",
          "differences to test: MODEL/MODEL, or slope:MODEL/MODEL for how a difference changes with "
          "the length" },
        { "lr", OPT_TEXT, &rate, "X", "use only rows with this learning rate, spelled as in the table" },
        { "endpoint", OPT_TEXT, &endpoint, "LENGTHS",
          "compare the mean over the stages of these lengths, such as 256,512,1024 (default: the last stage)" },
        { "column", OPT_TEXT, &column, "NAME", "compare this column of results.csv (default: accuracy)" },
        { "level", OPT_FLOAT, &level, "X", "training accuracy that counts as having begun to learn (default 0.5)" },
        { "passed", OPT_FLAG, &passed, NULL, "leave out runs that never reached --level" },
        { "figure", OPT_TEXT, &figure, "KIND",
          "draw instead: length (accuracy by length), differences (contrasts by length), survival "
          "(share of runs past the level) or dynamics (window, ratio and loss)" },
        { "title", OPT_TEXT, &title, "TEXT", "title of the figure" },
        { "out", OPT_TEXT, &out, "FILE", "file of the figure: .svg or .png" },
    };
    const cli_usage usage = {
        .synopsis = "compare DIR [options]",
        .about = "Compares the models of a sweep, with intervals and exact tests.\n\n"
                 "Reads DIR/results.csv and DIR/curves: means with bootstrap intervals, differences paired "
                 "by seed with exact tests, and when runs begin to learn.",
        .examples = "  palimpsa compare sweeps/small --contrasts palimpsa-d/palimpsa-d-wo-meta\n"
                    "  palimpsa compare sweeps/small --figure length --out length.svg\n"
                    "  palimpsa compare sweeps/small/search --lr 2e-3\n",
        .options = options,
        .option_count = PAL_COUNT(options),
    };
    int count;
    const int parsed = cli_parse(&usage, argc, argv, &folder, 1, &count);
    if (parsed) return parsed < 0 ? CLI_OK : parsed;
    if (count != 1)
        return cli_error(CLI_USAGE, "compare: expected the directory of a sweep; see 'palimpsa compare --help'");
    if (!figure != !out) return cli_error(CLI_USAGE, "compare: --figure and --out go together");
    comparison *c = pal_alloc(1, sizeof *c);
    if (!c) return cli_error(CLI_FAILED, "compare: out of memory");
    c->column = column;
    int code = endpoint ? sweep_split(&c->endpoint, "endpoint", endpoint) : CLI_OK;
    if (!code) code = compare_read(c, folder, rate);
    if (!code) code = sweep_check_endpoint(&c->endpoint, c->length, c->stages);
    if (!code && passed) code = keep_passed(c, level);
    if (!code) code = compare(c, contrasts, level, figure, title, out);
    compare_free(c);
    pal_free(c);
    return code;
}
