/* SPDX-License-Identifier: MIT */
/* What a sweep says in the end: a table and a bar figure of accuracy over seeds, at each model's best rate. */
#include <math.h>
#include <stdio.h>

#include "cli.h"
#include "plot/runs.h"
#include "sweep.h"

/* Mean and standard deviation over seeds at one stage; values takes each seed's. */
typedef struct {
    double mean, deviation;
    double values[SWEEP_ENTRIES];
    int count;
} summary;

static summary summarise(const sweep *s, int model, int rate, int stage) {
    summary out = { 0 };
    double sum = 0, squares = 0;
    for (int d = 0; d < s->seeds.count; d++) {
        const sweep_run *r = sweep_at(s, model, rate, d);
        if (r->stages <= stage) continue;
        out.values[out.count++] = r->accuracy[stage];
        sum += r->accuracy[stage];
        squares += r->accuracy[stage] * r->accuracy[stage];
    }
    out.mean = out.count ? sum / out.count : NAN;
    out.deviation = out.count > 1 ? sqrt(fmax((squares - sum * sum / out.count) / (out.count - 1), 0)) : NAN;
    return out;
}

/* A run that went through every stage: it knows their lengths. */
static const sweep_run *longest_run(const sweep *s) {
    const sweep_run *longest = s->runs;
    for (size_t i = 1; i < s->count; i++)
        if (s->runs[i].stages > longest->stages) longest = &s->runs[i];
    return longest;
}

int sweep_check_stages(const sweep *s) {
    const sweep_run *longest = longest_run(s);
    return sweep_check_endpoint(&s->endpoint, longest->length, longest->stages);
}

int sweep_best_rate(const sweep *s, int model) {
    const sweep_run *longest = longest_run(s);
    int best = 0;
    double highest = -1;
    for (int l = 0; l < s->rates.count; l++) {
        double sum = 0;
        for (int k = 0; k < longest->stages; k++)
            if (sweep_counts(&s->endpoint, longest->length[k])) sum += summarise(s, model, l, k).mean;
        if (sum > highest) highest = sum, best = l;
    }
    return best;
}

void sweep_print_table(FILE *to, const sweep *s) {
    const sweep_run *longest = longest_run(s);
    const int stages = longest->stages;
    fprintf(to, "| model | learning rate |");
    for (int k = 0; k < stages; k++) fprintf(to, " L = %d, %d pairs |", longest->length[k], longest->pairs[k]);
    fprintf(to, "\n|---|---|");
    for (int k = 0; k < stages; k++) fprintf(to, "---|");
    fputc('\n', to);
    for (int m = 0; m < s->models.count; m++) {
        const int l = sweep_best_rate(s, m);
        fprintf(to, "| %s | %s |", s->models.entry[m], s->rates.entry[l]);
        for (int k = 0; k < stages; k++) {
            const summary x = summarise(s, m, l, k);
            if (isfinite(x.deviation)) fprintf(to, " %.3f ± %.3f |", x.mean, x.deviation);
            else fprintf(to, " %.3f |", x.mean);
        }
        fputc('\n', to);
    }
}

int sweep_draw(const sweep *s) {
    const sweep_run *longest = longest_run(s);
    const int stages = longest->stages, models = s->models.count;
    char labels[SWEEP_STAGES][48], path[SWEEP_PATH];
    const char *groups[SWEEP_STAGES];
    static summary kept[SWEEP_STAGES * SWEEP_ENTRIES]; /* the figure points into it */
    static pal_bar bars[SWEEP_STAGES * SWEEP_ENTRIES];
    for (int k = 0; k < stages; k++) {
        snprintf(labels[k], sizeof labels[k], "L = %d, %d pairs", longest->length[k], longest->pairs[k]);
        groups[k] = labels[k];
        for (int m = 0; m < models; m++) {
            summary *x = &kept[k * models + m];
            *x = summarise(s, m, sweep_best_rate(s, m), k);
            bars[k * models + m] =
                (pal_bar){ .value = x->mean, .error = x->deviation, .dots = x->values, .dot_count = (size_t)x->count };
        }
    }
    const char *names[SWEEP_ENTRIES];
    int colours[SWEEP_ENTRIES];
    for (int m = 0; m < models; m++) names[m] = pal_model_label(s->models.entry[m]);
    pal_model_colours(names, (size_t)models, colours);
    const pal_panel panel = { .kind = PAL_PANEL_BARS,
                              .y = { .label = "test accuracy", .fixed = true, .min = 0, .max = 1 },
                              .bars = { .groups = groups,
                                        .group_count = (size_t)stages,
                                        .names = names,
                                        .colours = colours,
                                        .name_count = (size_t)models,
                                        .bars = bars } };
    const pal_figure figure = { .title = "Multi-query associative recall",
                                .panels = &panel,
                                .panel_count = 1,
                                .columns = 1,
                                .width = 240 + 60 * stages * models,
                                .height = 420 };
    pal_error err;
    int code;
    if (pal_figures_drawn(&err)) {
        printf("no figure: %s\n", err.text);
        return CLI_OK;
    }
    if ((code = sweep_join(path, s->out, "results.svg"))) return code;
    if (pal_figure_write_svg(&figure, path, &err)) return cli_fail_writing(&err);
    if ((code = sweep_join(path, s->out, "results.png"))) return code;
    return pal_figure_write_png(&figure, 2, path, &err) ? cli_fail_writing(&err) : CLI_OK;
}
