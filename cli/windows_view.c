/* SPDX-License-Identifier: MIT */
#include "windows_view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cli.h"
#include "format/json.h"
#include "plot/figure.h"

enum { MOST_POINTS = 96, OTHERS = PAL_COLOURS - 1 /* grey */, NAMED = PAL_COLOURS - 1 };

void windows_print(const pal_windows *w, const pal_model_config *config, const bool *chosen) {
    printf("memory windows N_t over %d tokens, median over heads, then over tokens:\n", w->tokens);
    printf("  rank  layer  rule        median N_t\n");
    for (int r = 0; r < w->layers; r++) {
        const int i = w->order[r];
        if (isnan(w->median[i])) printf("     -  %5d  %-10s           -\n", i, pal_model_layer_rule(config, i));
        else
            printf("  %4d  %5d  %-10s  %10.4g%s\n", r + 1, i, pal_model_layer_rule(config, i), w->median[i],
                   chosen[i] ? "  chosen" : "");
    }
    printf("chosen layers:");
    for (int i = 0, n = 0; i < w->layers; i++)
        if (chosen[i]) printf("%s%d", n++ ? "," : " ", i);
    putchar('\n');
}

void windows_json(const pal_windows *w, const pal_model_config *config, const bool *chosen, json_t *to) {
    json_t *layers = json_array(), *list = json_array();
    for (int i = 0; i < w->layers; i++) {
        int r = 0;
        while (w->order[r] != i) r++;
        pal_json_append(layers, json_pack("{s:i, s:s, s:o, s:o}", "layer", i, "rule", pal_model_layer_rule(config, i),
                                          "median_n_t", pal_json_number(w->median[i]), "rank",
                                          isnan(w->median[i]) ? json_null() : json_integer(r + 1)));
        if (chosen[i]) pal_json_append(list, json_integer(i));
    }
    pal_json_set(to, "tokens", json_integer(w->tokens));
    pal_json_set(to, "layers", layers);
    pal_json_set(to, "chosen", list);
}

static bool ends_with(const char *path, const char *ending) {
    const size_t n = strlen(path), m = strlen(ending);
    return n > m && strcasecmp(path + n - m, ending) == 0;
}

int windows_check_path(const char *path) {
    if (ends_with(path, ".svg") || ends_with(path, ".png")) return cli_check_target(path);
    return cli_error(CLI_USAGE, "%s: expected a name that ends in .svg or .png", path);
}

/* Layer i against position, in at most MOST_POINTS points, each the median of a stretch. */
static size_t curve(const pal_windows *w, int i, double *x, double *y, double *stretch) {
    const int points = w->tokens < MOST_POINTS ? w->tokens : MOST_POINTS;
    for (int p = 0; p < points; p++) {
        const int from = (int)((long long)w->tokens * p / points), to = (int)((long long)w->tokens * (p + 1) / points);
        memcpy(stretch, w->n_t + (size_t)i * (size_t)w->tokens + (size_t)from, (size_t)(to - from) * sizeof *stretch);
        x[p] = (from + to - 1) / 2.0;
        y[p] = isnan(stretch[0]) ? NAN : pal_median(stretch, (size_t)(to - from));
    }
    return (size_t)points;
}

int windows_draw(const pal_windows *w, const bool *chosen, const char *title, const char *path) {
    const size_t layers = (size_t)w->layers, room = 2 * MOST_POINTS;
    double *numbers = malloc((layers * room + 2 * layers + (size_t)w->tokens) * sizeof *numbers);
    pal_series *series = calloc(layers, sizeof *series), *dots = calloc(layers + 1, sizeof *dots);
    char(*names)[24] = calloc(layers, sizeof *names);
    if (!numbers || !series || !dots || !names) {
        free(numbers), free(series), free(dots), free(names);
        return cli_error(CLI_FAILED, "out of memory for a figure of %d layers", w->layers);
    }
    double *at = numbers + layers * room, *medians = at + layers, *stretch = medians + layers;
    /* Chosen layers are drawn last, above the others, each with its number while there are colours for them. */
    int all_chosen = 0;
    for (int i = 0; i < w->layers; i++) all_chosen += chosen[i];
    const bool named = all_chosen <= NAMED;
    size_t n = 0, other = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < w->layers; i++) {
            if (chosen[i] != (pass == 1)) continue;
            double *x = numbers + n * room, *y = x + MOST_POINTS;
            at[n] = i;
            medians[n] = w->median[i];
            other += pass == 0;
            snprintf(names[n], sizeof names[n], "layer %d", i);
            series[n] = (pal_series){ .label = !pass   ? "other layers"
                                               : named ? names[n]
                                                       : "chosen layers",
                                      .x = x,
                                      .y = y,
                                      .count = curve(w, i, x, y, stretch),
                                      .colour = !pass   ? OTHERS
                                                : named ? (int)(n - other)
                                                        : 0 };
            if (pass)
                dots[n - other + 1] = (pal_series){
                    .x = at + n, .y = medians + n, .count = 1, .colour = series[n].colour, .points = true, .bare = true
                };
            n++;
        }
    dots[0] = (pal_series){ .x = at, .y = medians, .count = other, .colour = OTHERS, .points = true, .bare = true };
    const pal_panel panels[2] = {
        { .kind = PAL_PANEL_LINES,
          .title = "by position",
          .x = { .label = "token position" },
          .y = { .label = "Nₜ, in tokens, median over heads", .log = true },
          .lines = { .series = series, .series_count = layers } },
        { .kind = PAL_PANEL_LINES,
          .title = "by layer",
          .x = { .label = "layer", .whole = true, .fixed = true, .min = -0.5, .max = w->layers - 0.5 },
          .y = { .label = "Nₜ, median over heads and tokens", .log = true },
          .lines = { .series = dots, .series_count = layers - other + 1 } },
    };
    const pal_figure figure = {
        .title = title, .panels = panels, .panel_count = 2, .columns = 2, .width = 700, .height = 380
    };
    pal_error err;
    const pal_status st = ends_with(path, ".svg") ? pal_figure_write_svg(&figure, path, &err)
                                                  : pal_figure_write_png(&figure, 2, path, &err);
    free(numbers), free(series), free(dots), free(names);
    return st ? cli_fail_writing(&err) : CLI_OK;
}
