/* SPDX-License-Identifier: MIT */
/* palimpsa plot: figures and reports from run directories, tables of curves and results of tasks. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "cli.h"
#include "plot/runs.h"
#include "plot_results.h"
#include "train_command.h"

enum { MAX_RUNS = 1024 };

/* Index of text in names, or -1. */
static int choice(const char *text, const char *const *names, int count) {
    for (int i = 0; i < count; i++)
        if (strcmp(text, names[i]) == 0) return i;
    return -1;
}

/* A run that has only begun has nothing to show yet, and is left out where others have. */
static int leave_out_new_ones(const char **directories, int count) {
    const char *kept[MAX_RUNS], *empty[MAX_RUNS];
    int shown = 0, left_out = 0;
    for (int i = 0; i < count; i++) {
        char path[4096];
        struct stat info;
        const bool fits = snprintf(path, sizeof path, "%s/metrics.jsonl", directories[i]) < (int)sizeof path;
        if (fits && stat(path, &info) == 0 && S_ISREG(info.st_mode) && info.st_size == 0)
            empty[left_out++] = directories[i];
        else kept[shown++] = directories[i];
    }
    if (!shown) return count;
    for (int i = 0; i < left_out; i++) pal_warn("%s: no metrics yet; left out", empty[i]);
    memcpy(directories, kept, (size_t)shown * sizeof *kept);
    return shown;
}

int cmd_plot(int argc, char **argv) {
    pal_runs_options o = { 0 };
    const char *out = NULL, *x = "step", *theme = "light";
    const cli_option options[] = {
        { "out", OPT_TEXT, &out, "FILE", "file to write: .svg, .png or .html" },
        { "dynamics", OPT_FLAG, &o.dynamics, NULL, "draw memory window, metaplasticity ratio and loss over training" },
        { "x", OPT_TEXT, &x, "AXIS", "horizontal axis: step, tokens or time (default step)" },
        { "smooth", OPT_INT, &o.smooth, "N", "moving average over N logged points (default: none)" },
        { "log-y", OPT_FLAG, &o.log_y, NULL, "logarithmic axes for losses, windows and ratios" },
        { "title", OPT_TEXT, &o.title, "TEXT", "title of the figure or report" },
        { "theme", OPT_TEXT, &theme, "NAME", "light or dark (default light; a report has both)" },
        { "width", OPT_INT, &o.width, "N", "width in CSS pixels (default: fits the panels)" },
        { "height", OPT_INT, &o.height, "N", "height in CSS pixels (default: fits the panels)" },
        { "scale", OPT_FLOAT, &o.scale, "S", "PNG pixels per CSS pixel (default 2)" },
    };
    const cli_usage usage = {
        .synopsis = "plot RUNDIR|TABLE.csv...|RESULTS.json... --out FILE.svg|.png|.html [options]",
        .about = "Draws runs as a figure, or as a report in HTML.\n\n"
                 "Shows loss, accuracy and learning rate; a report adds a table and the learning dynamics. "
                 "Runs that differ only in the seed become one curve, their mean, with a band of one "
                 "standard deviation. A TABLE.csv holds curves of several runs: its first line names the "
                 "columns: model, step (or position, for losses by position in a text), and keys of "
                 "metrics.jsonl. Results of 'palimpsa eval --tasks' (or lm-evaluation-harness) become bars "
                 "with standard errors.",
        .examples = "  palimpsa plot runs/a --out a.svg\n"
                    "  palimpsa plot runs/d runs/d-wo-meta --x tokens --smooth 9 --out compare.png\n"
                    "  palimpsa plot runs/d-seed1 runs/d-seed2 runs/d-seed3 --dynamics --out dynamics.svg\n"
                    "  palimpsa plot runs/* --out report.html\n"
                    "  palimpsa plot docs/results/language/shakespeare.csv --out shakespeare.svg\n"
                    "  palimpsa plot results.json --out tasks.svg\n",
        .options = options,
        .option_count = sizeof options / sizeof options[0],
    };
    static const char *const axes[] = { "step", "tokens", "time" }, *const themes[] = { "light", "dark" };
    const char *directories[MAX_RUNS];
    int count;
    const int code = cli_parse(&usage, argc, argv, directories, MAX_RUNS, &count);
    if (code) return code < 0 ? CLI_OK : code;

    const int axis = choice(x, axes, 3), shade = choice(theme, themes, 2);
    if (count == 0)
        return cli_error(CLI_USAGE, "plot: expected at least one run directory or table; see 'palimpsa plot --help'");
    if (!out) return cli_error(CLI_USAGE, "plot: --out FILE is missing; a name that ends in .svg, .png or .html");
    if (axis < 0) return cli_error(CLI_USAGE, "--x expects step, tokens or time, found '%s'", x);
    if (shade < 0) return cli_error(CLI_USAGE, "--theme expects light or dark, found '%s'", theme);
    if (o.smooth < 0) return cli_error(CLI_USAGE, "--smooth expects 0 or more points, found %d", o.smooth);
    if (o.width < 0 || o.height < 0)
        return cli_error(CLI_USAGE, "--width and --height expect positive numbers, found %d and %d", o.width, o.height);
    if (o.scale < 0) return cli_error(CLI_USAGE, "--scale expects a positive number, found %g", o.scale);
    o.x = (pal_runs_x)axis;
    o.theme = (pal_theme)shade;
    o.command = train_command;

    if (plot_is_results(directories[0])) return plot_results(directories, count, &o, out);
    pal_runs *runs;
    pal_error err;
    count = leave_out_new_ones(directories, count);
    if (pal_runs_check_path(out, &err) || pal_runs_open(&runs, directories, (size_t)count, &err)) return cli_fail(&err);
    const pal_status st = pal_runs_write(runs, &o, out, &err);
    const size_t skipped = pal_runs_skipped(runs), shown = pal_runs_count(runs);
    pal_runs_free(runs);
    if (st) return cli_fail_writing(&err);
    if (skipped)
        fprintf(stderr, "palimpsa: warning: %zu line%s of metrics could not be read and %s left out\n", skipped,
                skipped == 1 ? "" : "s", skipped == 1 ? "was" : "were");
    printf("wrote %s (%zu run%s)\n", out, shown, shown == 1 ? "" : "s");
    return CLI_OK;
}
