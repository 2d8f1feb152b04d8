/* SPDX-License-Identifier: MIT */
/* Run directories: metrics as a killed run leaves them, runs of one configuration together, and the command that plots
 * them. */
#include <math.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "plot/metrics.h"
#include "plot/runs.h"
#include "support/files.h"
#include "support/pictures.h"

static bool exists(const char *path) { return access(path, F_OK) == 0; }

static void metrics_survive_torn_and_foreign_lines(void **state) {
    (void)state;
    pal_metrics m;
    pal_error err;
    test_write_text(in_folder("m.jsonl"), "{\"step\": 1, \"loss\": 5.5, \"lr\": 0.001, \"tokens\": 100, "
                                          "\"tokens_per_s\": 50, \"surprise\": {\"a\": [1]}}\n"
                                          "not json at all\n"
                                          "[1, 2]\n"
                                          "{\"loss\": 3}\n"
                                          "\n"
                                          "{\"step\": 2, \"loss\": null, \"n_t\": [10, 20, null], \"ratio\": [[1, 3], "
                                          "[2, 2]], \"tokens\": 300, \"tokens_per_s\": 100}\r\n"
                                          "{\"step\": \"three\", \"loss\": 3}\n"
                                          "\xff\xfe{}\n"
                                          "{\"step\": 3, \"loss\": 4.0, \"valid_loss\": 4.25}\n"
                                          "{\"step\": 4, \"loss\": 3.0}\n"
                                          "{\"step\": 3, \"loss\": 3.5}\n"
                                          "{\"step\": 4, \"loss\": 2.5, \"accu");
    if (pal_metrics_read(&m, in_folder("m.jsonl"), &err)) fail_msg("%s", err.text);
    assert_int_equal(m.count, 3);
    assert_int_equal(m.skipped, 5);
    assert_true(m.column[PAL_METRIC_LOSS][0] == 5.5 && isnan(m.column[PAL_METRIC_LOSS][1]) &&
                m.column[PAL_METRIC_LOSS][2] == 3.5);
    assert_true(pal_metrics_has(&m, 1, PAL_METRIC_LOSS) && !pal_metrics_has(&m, 1, PAL_METRIC_LR));
    assert_true(!pal_metrics_has(&m, 2, PAL_METRIC_VALID_LOSS)); /* belongs to the step that was run again */
    assert_true(m.column[PAL_METRIC_N_T][1] == 15 && m.column[PAL_METRIC_RATIO][1] == 2);
    assert_true(m.column[PAL_METRIC_SECONDS][0] == 2 && m.column[PAL_METRIC_SECONDS][1] == 4);
    pal_metrics_free(&m);

    static const char *const empty[] = { "", "\n\n", "{\"step\": 1, \"lo", "garbage\n" };
    for (size_t i = 0; i < PAL_COUNT(empty); i++) {
        test_write_text(in_folder("m.jsonl"), empty[i]);
        assert_int_equal(pal_metrics_read(&m, in_folder("m.jsonl"), &err), PAL_E_FORMAT);
        assert_non_null(strstr(err.text, "m.jsonl"));
    }
    assert_int_equal(pal_metrics_read(&m, in_folder("absent.jsonl"), &err), PAL_E_IO);
    assert_int_equal(pal_metrics_read(&m, test_folder(), &err), PAL_E_IO);
}

static void metrics_survive_any_cut_and_any_flipped_byte(void **state) {
    (void)state;
    static const char good[] = "{\"step\": 1, \"loss\": 5.5, \"n_t\": [1, 2]}\n{\"step\": 2, \"loss\": 5.0, \"n_t\": "
                               "[1, 2]}\n{\"step\": 3, \"loss\": 4.5}\n";
    const char *path = in_folder("cut.jsonl");
    pal_metrics m;
    for (size_t cut = 0; cut <= strlen(good); cut++) {
        char text[sizeof good];
        snprintf(text, sizeof text, "%.*s", (int)cut, good);
        test_write_text(path, text);
        const pal_status st = pal_metrics_read(&m, path, NULL);
        /* A line counts once its closing brace is there. */
        size_t whole = 0;
        for (size_t i = 0; i < cut; i++) whole += good[i] == '}';
        assert_int_equal(st, whole ? PAL_OK : PAL_E_FORMAT);
        if (!st) assert_int_equal(m.count, whole);
        pal_metrics_free(&m);
    }
    pal_rng rng = pal_rng_at(3, 3);
    for (int k = 0; k < 500; k++) {
        char text[sizeof good];
        memcpy(text, good, sizeof good);
        text[pal_rng_below(&rng, sizeof good - 1)] ^= (char)(1 + pal_rng_below(&rng, 255));
        FILE *file = fopen(path, "wb");
        fwrite(text, 1, sizeof good - 1, file);
        fclose(file);
        pal_metrics_read(&m, path, NULL);
        for (size_t i = 1; i < m.count; i++)
            assert_true(m.column[PAL_METRIC_STEP][i] > m.column[PAL_METRIC_STEP][i - 1]);
        pal_metrics_free(&m);
    }
}

/* A made-up run: loss = level / step; dynamics when asked for. */
static const char *make_run(const char *name, const char *config, double level, int steps, bool dynamics) {
    const char *dir = in_folder(name);
    char path[TEST_PATH + 20];
    mkdir(dir, 0777);
    snprintf(path, sizeof path, "%s/config.json", dir);
    if (config) test_write_text(path, config);
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    for (int s = 1; s <= steps; s++) {
        fprintf(
            file,
            "{\"step\": %d, \"loss\": %.17g, \"lr\": 0.001, \"tokens\": %d, \"tokens_per_s\": 1000, \"accuracy\": 0.5",
            s, level / s, 100 * s);
        if (dynamics) fprintf(file, ", \"n_t\": [%d, %d], \"ratio\": [2, 4]", s, 3 * s);
        fprintf(file, "}\n");
    }
    fclose(file);
    return dir;
}

static void runs_of_one_configuration_become_mean_and_deviation(void **state) {
    (void)state;
    const char *dirs[4];
    dirs[0] = make_run(
        "g1", "{\"model\": \"palimpsa-d\", \"lr\": 0.001, \"seed\": 1, \"train\": {\"seed\": 1, \"clip\": true}}", 2,
        20, true);
    dirs[1] = make_run(
        "g2", "{\"train\": {\"clip\": true, \"seed\": 9}, \"model\": \"palimpsa-d\", \"seed\": 2, \"lr\": 0.001}", 4,
        10, true);
    dirs[2] = make_run("g3", "{\"model\": \"palimpsa-d\", \"lr\": 0.01, \"seed\": 1, \"train\": {\"clip\": true}}", 7,
                       20, true);
    dirs[3] = make_run("g4", NULL, 5, 20, false);
    pal_runs *runs;
    pal_error err;
    if (pal_runs_open(&runs, dirs, 4, &err)) fail_msg("%s", err.text);
    assert_int_equal(pal_runs_groups(runs), 3);
    pal_figure figure;
    pal_runs_options options = { 0 };
    if (pal_runs_figure(runs, &options, &figure, &err)) fail_msg("%s", err.text);
    assert_int_equal(figure.panel_count, 2); /* accuracies distinguish the runs, and learning rates are equal */
    const pal_lines *loss = &figure.panels[0].lines;
    assert_int_equal(loss->series_count, 3);
    assert_string_equal(loss->series[0].label, "Palimpsa-D, lr 0.001 (2 seeds)");
    assert_string_equal(loss->series[1].label, "Palimpsa-D, lr 0.01");
    assert_string_equal(loss->series[2].label, "g4");
    assert_int_equal(loss->series[0].count, 20);
    for (int i = 0; i < 20; i++) {
        const double s = i + 1, mean = i < 10 ? 3 / s : 2 / s, deviation = i < 10 ? sqrt(2) / s : 0;
        assert_true(loss->series[0].x[i] == s);
        assert_true(fabs(loss->series[0].y[i] - mean) < 1e-12);
        assert_true(fabs(loss->series[0].high[i] - mean - deviation) < 1e-12);
        assert_true(fabs(mean - deviation - loss->series[0].low[i]) < 1e-12);
        assert_true(fabs(loss->series[1].y[i] - 7 / s) < 1e-12);
    }
    assert_null(loss->series[1].low);

    options.dynamics = true;
    options.x = PAL_X_TOKENS;
    if (pal_runs_figure(runs, &options, &figure, &err)) fail_msg("%s", err.text);
    assert_int_equal(figure.panel_count, 3);
    assert_int_equal(figure.columns, 1);
    assert_true(figure.panels[0].lines.series[0].y[4] == 10 && figure.panels[0].lines.series[0].x[4] == 500);
    assert_true(figure.panels[1].lines.series[0].y[0] == 3);
    assert_int_equal(figure.panels[0].lines.series_count, 2); /* g4 logged none */

    options = (pal_runs_options){ .x = PAL_X_TIME, .smooth = 3 };
    if (pal_runs_figure(runs, &options, &figure, &err)) fail_msg("%s", err.text);
    assert_true(fabs(figure.panels[0].lines.series[1].y[1] - (7.0 + 3.5 + 7.0 / 3) / 3) < 1e-12);
    assert_true(fabs(figure.panels[0].lines.series[1].y[0] - (7.0 + 3.5) / 2) < 1e-12);
    assert_true(fabs(figure.panels[0].lines.series[1].x[19] - 2.0) < 1e-12); /* 2000 tokens at 1000 a second */
    pal_runs_free(runs);
}

/* A window of N holds N points, also an even one, and a huge value spoils only the windows it is in. */
static void smoothing_takes_each_window_by_itself(void **state) {
    (void)state;
    enum { POINTS = 9, HUGE_AT = 2 };
    const char *dir = make_run("huge", "{\"model\": \"x\"}", 1, 1, false);
    char path[TEST_PATH + 20];
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    for (int s = 0; s < POINTS; s++) fprintf(file, "{\"step\": %d, \"loss\": %g}\n", s + 1, s == HUGE_AT ? 1e30 : s);
    fclose(file);
    for (int window = 2; window <= 4; window++) {
        pal_runs *runs;
        pal_figure figure;
        pal_error err;
        if (pal_runs_open(&runs, &dir, 1, &err) ||
            pal_runs_figure(runs, &(pal_runs_options){ .smooth = window }, &figure, &err))
            fail_msg("%s", err.text);
        const pal_series *loss = &figure.panels[0].lines.series[0];
        for (int at = 6 - window / 2; at < POINTS - window / 2; at++) {
            const int first = at - (window - 1) / 2, last = at + window / 2;
            if (first <= HUGE_AT) continue;
            if (fabs(loss->y[at] - (first + last) / 2.0) > 1e-12)
                fail_msg("window %d: point %d is %g, expected %g", window, at, loss->y[at], (first + last) / 2.0);
        }
        pal_runs_free(runs);
    }
}

/* An accuracy of 0.9 and 0.1 in two seeds: the interval ends at 0 and 1, not beyond. */
static void intervals_stay_where_values_can_be(void **state) {
    (void)state;
    const char *dirs[2];
    char path[512];
    for (int i = 0; i < 2; i++) {
        dirs[i] = make_run(i ? "interval2" : "interval1",
                           i ? "{\"model\": \"palimpsa-d\", \"seed\": 2}" : "{\"model\": \"palimpsa-d\", \"seed\": 1}",
                           1, 1, false);
        snprintf(path, sizeof path, "%s/metrics.jsonl", dirs[i]);
        FILE *f = fopen(path, "w");
        fprintf(f, "{\"step\": 1, \"loss\": %g, \"accuracy\": %g}\n", i ? 9.0 : 0.1, i ? 1.0 : 0.0);
        fclose(f);
    }
    pal_runs *runs;
    pal_figure figure;
    pal_error err;
    if (pal_runs_open(&runs, dirs, 2, &err)) fail_msg("%s", err.text);
    if (pal_runs_figure(runs, &(pal_runs_options){ 0 }, &figure, &err)) fail_msg("%s", err.text);
    const pal_series *loss = &figure.panels[0].lines.series[0], *accuracy = &figure.panels[1].lines.series[0];
    assert_true(loss->low[0] == 0 && loss->high[0] > 9);
    assert_true(accuracy->low[0] == 0 && accuracy->high[0] == 1);
    pal_runs_free(runs);
}

/* What a report says of curves is about the last stage: the stages before had different tasks. */
static void a_report_judges_the_last_stage(void **state) {
    (void)state;
    const char *dir = make_run("stages",
                               "{\"model\": \"x\", \"task\": \"mqar\", \"stages\": \"64:16:50:32,256:64:50:8\", "
                               "\"examples\": 0, \"vocab\": 256, \"seq_len\": 128, \"kv_pairs\": 32}",
                               1, 1, false),
               *out = in_folder("stages.html");
    char path[TEST_PATH + 20];
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    for (int s = 1; s <= 100; s++) {
        const int stage = s > 50, in_stage = s - 50 * stage;
        fprintf(file, "{\"step\": %d, \"loss\": %g, \"accuracy\": %g, \"stage\": %d}\n", s,
                stage ? 5 - 0.04 * in_stage : 3 - 0.04 * in_stage, stage ? 0.01 * in_stage : 0.018 * in_stage, stage);
    }
    fclose(file);
    pal_runs *runs;
    pal_error err;
    size_t size;
    if (pal_runs_open(&runs, &dir, 1, &err) || pal_runs_write(runs, &(pal_runs_options){ 0 }, out, &err))
        fail_msg("%s", err.text);
    pal_runs_free(runs);
    char *text = (char *)test_read_file(out, &size);
    assert_non_null(strstr(text, "In the last stage, from step 50 to 100: accuracy went from 0.01000 to 0.5000, still "
                                 "rising in the end; training loss went from 4.960 to 3, still falling in the end."));
    assert_non_null(strstr(text,
                           "16 pairs in 64 tokens for 50 updates, then 64 pairs in 256 tokens for 50 updates, out "
                           "of a vocabulary of 256."));
    assert_null(strstr(text, "32 pairs"));
    free(text);
}

static void a_model_has_one_colour_everywhere(void **state) {
    (void)state;
    const char *const names[] = { "Gated DeltaNet",  "palimpsa-d",          "Palimpsa-D w/o Meta (3 seeds)",
                                  "palimpsa-d:mesa", "Palimpsa-D, lr 0.01", "my-model" };
    int colours[6];
    pal_model_colours(names, 6, colours);
    assert_int_equal(colours[0], pal_model_colour("gated-deltanet"));
    assert_int_equal(colours[1], pal_model_colour("Palimpsa-D"));
    assert_int_equal(colours[2], pal_model_colour("palimpsa-d-wo-meta"));
    assert_int_equal(colours[4], colours[1] + PAL_COLOURS); /* the same hue, other dashes */
    assert_int_equal(pal_model_colour("my-model"), -1);
    assert_int_equal(pal_model_colour("palimpsa-distilled"), -1);
    assert_int_equal(pal_model_colour("palimpsa-d-wo-meta:head-dim=32:expand-v=1"), -1);
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < i; j++) assert_int_not_equal(colours[i], colours[j]);
}

static pal_runs *open_table(const char *name, const char *text) {
    const char *path = in_folder(name);
    pal_runs *runs;
    pal_error err;
    test_write_text(path, text);
    if (pal_runs_open(&runs, &path, 1, &err)) fail_msg("%s", err.text);
    return runs;
}

/* Runs stand in a table in any order; an empty field was not logged; columns of other names are left alone. */
static void a_table_holds_the_curves_of_several_runs(void **state) {
    (void)state;
    pal_runs *runs = open_table("table.csv", "model,step,loss,note,valid_loss\n"
                                             "palimpsa-m,10,3,first,4\n"
                                             "gated-deltanet,10,2.5,,\n"
                                             "palimpsa-m,20,2,,3\r\n"
                                             "gated-deltanet,20,1,,3.5\n");
    pal_figure figure;
    pal_error err;
    assert_int_equal(pal_runs_count(runs), 2);
    if (pal_runs_figure(runs, &(pal_runs_options){ 0 }, &figure, &err)) fail_msg("%s", err.text);
    assert_int_equal(figure.panel_count, 2);
    const pal_lines *loss = &figure.panels[0].lines, *above = &figure.panels[1].lines;
    assert_int_equal(loss->series_count, 4); /* training and validation of two models */
    assert_string_equal(loss->series[0].label, "Palimpsa-M");
    assert_int_equal(loss->series[0].colour, pal_model_colour("palimpsa-m"));
    assert_true(loss->series[0].count == 2 && loss->series[0].x[1] == 20 && loss->series[0].y[1] == 2);
    assert_int_equal(loss->series[3].count, 1);
    assert_string_equal(figure.panels[1].title, "Validation loss above Palimpsa-M");
    assert_true(above->series_count == 1 && above->series[0].count == 1 && above->series[0].y[0] == 0.5);
    pal_runs_free(runs);

    /* Where a metaplastic model has its ablation next to it, that is what it is compared with. */
    runs = open_table("pairs.csv", "model,step,loss\ntransformer,1,9\npalimpsa-m,1,3\npalimpsa-m-wo-meta,1,5\n");
    if (pal_runs_figure(runs, &(pal_runs_options){ 0 }, &figure, &err)) fail_msg("%s", err.text);
    above = &figure.panels[1].lines;
    assert_string_equal(figure.panels[1].title, "Loss above the same model w/o Meta");
    assert_true(above->series_count == 1 && above->series[0].y[0] == -2);
    assert_string_equal(above->series[0].label, "Palimpsa-M");
    pal_runs_free(runs);

    runs = open_table("positions.csv", "model,position,loss\na,45,3\na,90,2\nb,45,4\n");
    if (pal_runs_figure(runs, &(pal_runs_options){ 0 }, &figure, &err)) fail_msg("%s", err.text);
    assert_true(figure.panels[0].x.log && figure.panels[1].x.log);
    assert_string_equal(figure.panels[0].x.label, "position (tokens)");
    assert_true(figure.panels[1].lines.series[0].y[0] == 1);
    pal_runs_free(runs);
}

static void tables_that_do_not_fit_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        { "", "no rows" },
        { "model,step,loss\n", "no rows" },
        { "step,loss\n1,2\n", "no column 'model'" },
        { "model,loss\na,2\n", "no column 'step'" },
        { "model,step,loss\na,1,2\na,2\n", "line 3 has 2 fields, expected 3" },
        { "model,step,loss\na,1,2,3\n", "line 2 has 4 fields, expected 3" },
        { "model,step,loss\na,1,2\n\na,2,2\n", "line 3 has 1 fields" },
        { "model,step,loss\na,1,x\n", "'x' is not a number" },
        { "model,step,loss\na,-1,2\n", "a step of at least 0" },
        { "model,step,loss\n,1,2\n", "a model's name" },
    };
    const char *path = in_folder("bad.csv");
    for (size_t i = 0; i < PAL_COUNT(cases); i++) {
        pal_runs *runs;
        pal_error err;
        test_write_text(path, cases[i].text);
        assert_int_equal(pal_runs_open(&runs, &path, 1, &err), PAL_E_FORMAT);
        if (!strstr(err.text, cases[i].says)) fail_msg("'%s', expected '%s'", err.text, cases[i].says);
    }
}

static void runs_that_cannot_be_shown_are_named(void **state) {
    (void)state;
    pal_runs *runs;
    pal_error err;
    pal_figure figure;
    const char *dir = make_run("plain", "{\"model\": \"x\"}", 1, 5, false);
    assert_int_equal(pal_runs_open(&runs, &dir, 1, &err), PAL_OK);
    assert_int_equal(pal_runs_figure(runs, &(pal_runs_options){ .dynamics = true }, &figure, &err), PAL_E_ARGUMENT);
    assert_non_null(strstr(err.text, "plain: neither"));
    assert_int_equal(pal_runs_write(runs, &(pal_runs_options){ 0 }, in_folder("plain.gif"), &err), PAL_E_ARGUMENT);
    assert_non_null(strstr(err.text, "plain.gif"));
    pal_runs_free(runs);
    dir = in_folder("nothing");
    assert_int_equal(pal_runs_open(&runs, &dir, 1, &err), PAL_E_IO);
    assert_non_null(strstr(err.text, "nothing/metrics.jsonl"));
    assert_null(runs);
}

static void short_memory_is_reported_and_leaves_no_part_of_a_file(void **state) {
    (void)state;
    const char *dirs[] = { make_run("m1", "{\"model\": \"a\", \"seed\": 1}", 1, 8, true),
                           make_run("m2", "{\"model\": \"a\", \"seed\": 2}", 2, 8, true) };
    const char *out = in_folder("memory.html");
    pal_error err;
    uint64_t at = 1;
    for (;; at++) {
        pal_runs *runs = NULL;
        pal_alloc_fail_at(at);
        pal_status st = pal_runs_open(&runs, dirs, 2, &err);
        if (!st) st = pal_runs_write(runs, &(pal_runs_options){ 0 }, out, &err);
        pal_alloc_fail_at(0);
        pal_runs_free(runs);
        if (!st) break;
        assert_int_equal(st, PAL_E_MEMORY);
        if (!exists(out)) continue;
        /* Only syncing the directory, after the rename, may fail with the file in place: then it is whole. */
        size_t size;
        char *text = (char *)test_read_file(out, &size);
        assert_true(size > 8 && strcmp(text + size - 8, "</html>\n") == 0);
        free(text);
        unlink(out);
    }
    assert_true(at > 50);
    assert_true(exists(out));
}

static void short_memory_for_a_table_is_reported(void **state) {
    (void)state;
    const char *path = in_folder("short.csv");
    pal_error err;
    uint64_t at = 1;
    test_write_text(path, "model,step,loss\na,1,2\nb,1,2\nb,2,1\n");
    for (;; at++) {
        pal_runs *runs = NULL;
        pal_alloc_fail_at(at);
        const pal_status st = pal_runs_open(&runs, &path, 1, &err);
        pal_alloc_fail_at(0);
        pal_runs_free(runs);
        if (!st) break;
        assert_int_equal(st, PAL_E_MEMORY);
    }
    assert_true(at > 20);
}

/* The program next to this test, run with arguments; returns its exit code and what it said on stderr. */
static int run_program(const char *arguments, char *said, size_t size) {
    char self[400], command[2048];
    const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(n > 0);
    self[n] = '\0';
    *strrchr(self, '/') = '\0';
    const char *errors = in_folder("stderr"), *emulator = test_emulator() ? test_emulator() : "";
    snprintf(command, sizeof command, "cd '%s' && %s '%s/../palimpsa' plot %s 2>'%s' >/dev/null", test_folder(),
             emulator, self, arguments, errors);
    const int code = system(command);
    size_t length;
    char *text = (char *)test_read_file(errors, &length);
    snprintf(said, size, "%s", text);
    free(text);
    return WIFEXITED(code) ? WEXITSTATUS(code) : -1;
}

static void plot_command_draws_and_refuses(void **state) {
    (void)state;
    char said[1024];
    if (run_program("--help", said, sizeof said) == 127) {
        print_message("skipped: built without the program\n");
        skip();
    }
    make_run("c1", "{\"model\": \"palimpsa-d\", \"seed\": 1}", 1, 30, true);
    make_run("c2", "{\"model\": \"palimpsa-d\", \"seed\": 2}", 2, 30, true);
    mkdir(in_folder("hollow"), 0777);
    mkdir(in_folder("void"), 0777);
    test_write_text(in_folder("void/metrics.jsonl"), "");
    test_write_text(in_folder("t.csv"), "model,step,loss\na,1,2\n");
    test_write_text(in_folder("p.csv"), "model,position,loss\na,1,2\n");
    static const struct {
        const char *arguments;
        int code;
        const char *says; /* part of the one sentence; NULL: nothing */
    } cases[] = {
        { "c1 c2 --out c.svg", 0, NULL },
        { "c1 --out c.png --width 600 --height 300 --scale 1 --theme dark", 0, NULL },
        { "c1 c2 --out c.html --title 'Two runs'", 0, NULL },
        { "c1 c2 --dynamics --x tokens --smooth 5 --log-y --out d.svg", 0, NULL },
        { "t.csv --out c.svg", 0, NULL },
        { "t.csv p.csv --out c.svg", 2, "p.csv: losses by position cannot be drawn with those of a training" },
        { "t.csv --x tokens --out c.svg", 2, "no tokens were logged" },
        { "--out c.svg", 2, "at least one run directory" },
        { "c1", 2, "--out FILE is missing" },
        { "c1 --out c.pdf", 2, "c.pdf: expected a name that ends in .svg, .png or .html" },
        { "c1 c9 --out c.svg", 2, "c9/metrics.jsonl: cannot open" },
        { "hollow --out c.svg", 2, "hollow/metrics.jsonl: cannot open" },
        { "void --out c.svg", 2, "void/metrics.jsonl: no metrics in it" },
        { "c1 --out c.svg --x weeks", 2, "--x expects step, tokens or time, found 'weeks'" },
        { "c1 --out c.svg --theme pink", 2, "--theme expects light or dark, found 'pink'" },
        { "c1 --out c.svg --smooth -3", 2, "--smooth expects 0 or more points, found -3" },
        { "c1 --out c.svg --width 3", 2, "a figure of 3 x" },
        { "c1 --out c.png --scale 1000", 2, "a scale of 1000" },
        { "c1 --out c.svg --sideways", 2, "no option '--sideways'" },
        { "c1 --out nowhere/c.svg", 1, "nowhere/c.svg: cannot create" },
    };
    for (size_t i = 0; i < PAL_COUNT(cases); i++) {
        const int code = run_program(cases[i].arguments, said, sizeof said);
        if (code != cases[i].code)
            fail_msg("plot %s: exit code %d, expected %d: %s", cases[i].arguments, code, cases[i].code, said);
        if (!cases[i].says) {
            if (*said) fail_msg("plot %s: said '%s'", cases[i].arguments, said);
        } else if (!strstr(said, cases[i].says) || strchr(said, '\n') != said + strlen(said) - 1)
            fail_msg("plot %s: said '%s', expected one sentence with '%s'", cases[i].arguments, said, cases[i].says);
    }
    test_svg(in_folder("c.svg"));
    test_svg(in_folder("d.svg"));
    test_png(in_folder("c.png"), 600, 300);
    size_t size;
    char *text = (char *)test_read_file(in_folder("c.html"), &size);
    assert_non_null(strstr(text, "<h1>Two runs</h1>"));
    assert_non_null(strstr(text, "Learning dynamics"));
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(metrics_survive_torn_and_foreign_lines),
        cmocka_unit_test(metrics_survive_any_cut_and_any_flipped_byte),
        cmocka_unit_test(runs_of_one_configuration_become_mean_and_deviation),
        cmocka_unit_test(smoothing_takes_each_window_by_itself),
        cmocka_unit_test(intervals_stay_where_values_can_be),
        cmocka_unit_test(a_report_judges_the_last_stage),
        cmocka_unit_test(a_model_has_one_colour_everywhere),
        cmocka_unit_test(a_table_holds_the_curves_of_several_runs),
        cmocka_unit_test(tables_that_do_not_fit_are_refused),
        cmocka_unit_test(runs_that_cannot_be_shown_are_named),
        cmocka_unit_test(short_memory_is_reported_and_leaves_no_part_of_a_file),
        cmocka_unit_test(short_memory_for_a_table_is_reported),
        cmocka_unit_test(plot_command_draws_and_refuses),
    };
    return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
