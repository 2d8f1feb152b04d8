/* SPDX-License-Identifier: MIT */
/* palimpsa sweep: a grid of models, learning rates and seeds, each trained by `palimpsa train` in a process of its own.
 *
 * DIR/results.csv is the truth: a run whose rows are there is never trained again, even when its directory is gone. It is
 * rewritten whole and renamed for every finished run, in the order of the grid, so a killed sweep that is started again
 * ends with the same bytes. Times go to timing.csv.
 *
 * With --search the learning rate is picked first: DIR/search is a sweep of its own, of every rate with the first seed on
 * fewer stages; then each model is trained at its best rate alone, with every seed. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/directory.h"
#include "base/map.h"
#include "bench.h"
#include "cli.h"
#include "plot/figure.h"
#include "progress.h"
#include "train/checkpoint.h"

enum { MOST_ENTRIES = 64, MOST_STAGES = 16, MOST_ARGUMENTS = 128, PATH = 4096 };

/* One list option, cut at its commas. */
typedef struct {
    char *text;
    const char *entry[MOST_ENTRIES];
    int count;
} word_list;

typedef struct {
    int model, rate, seed; /* places in the lists */
    int stages;            /* of its results; 0: not finished */
    double accuracy[MOST_STAGES];
    long long steps[MOST_STAGES];
    int length[MOST_STAGES], pairs[MOST_STAGES];
    bool left_out; /* at a rate that the search did not pick */
    pid_t child;   /* 0: not running */
    double started;
} sweep_run;

typedef struct {
    const char *out;
    word_list models, rates, seeds;
    const char *search;   /* stages of the search for a rate, or NULL */
    const char *train;    /* file of options for train, or NULL */
    json_t *train_options; /* what it holds */
    const char **extra;   /* further arguments for train */
    int extra_count, jobs, threads;
    sweep_run *runs;
    size_t count;
    bool stopping; /* the runs were told */
} sweep;

static volatile sig_atomic_t interrupted;
static void on_signal(int number) {
    (void)number;
    interrupted = 1;
}

static int find_entry(const word_list *list, const char *word) {
    for (int i = 0; i < list->count; i++)
        if (strcmp(list->entry[i], word) == 0) return i;
    return -1;
}

static int split(word_list *list, const char *option, const char *text) {
    list->text = pal_strdup(text);
    char *rest = list->text;
    for (char *entry; rest && (entry = strsep(&rest, ","));) {
        if (!*entry) continue;
        if (list->count == MOST_ENTRIES) return cli_error(CLI_USAGE, "--%s: at most %d entries", option, MOST_ENTRIES);
        if (find_entry(list, entry) >= 0) return cli_error(CLI_USAGE, "--%s: '%s' is listed twice", option, entry);
        list->entry[list->count++] = entry;
    }
    return list->count ? CLI_OK : cli_error(CLI_USAGE, "--%s '%s': expected a list separated by commas", option, text);
}

static int join(char path[PATH], const char *folder, const char *name) {
    return snprintf(path, PATH, "%s/%s", folder, name) < PATH ? CLI_OK : cli_error(CLI_USAGE, "%s/%s: the path is too long", folder, name);
}

static void run_name(const sweep *s, const sweep_run *r, char name[256]) {
    snprintf(name, 256, "%s-lr%s-seed%s", s->models.entry[r->model], s->rates.entry[r->rate], s->seeds.entry[r->seed]);
}

static size_t count_done(const sweep *s) {
    size_t done = 0;
    for (size_t i = 0; i < s->count; i++) done += s->runs[i].stages > 0;
    return done;
}

static size_t count_wanted(const sweep *s) {
    size_t wanted = 0;
    for (size_t i = 0; i < s->count; i++) wanted += !s->runs[i].left_out;
    return wanted;
}

/* The sweep's own configuration, so that a restart under another one is refused. */
static json_t *describe(const sweep *s) {
    json_t *lists[3];
    const word_list *source[3] = { &s->models, &s->rates, &s->seeds };
    for (int i = 0; i < 3; i++) {
        lists[i] = json_array();
        for (int k = 0; k < source[i]->count; k++) json_array_append_new(lists[i], json_string(source[i]->entry[k]));
    }
    json_t *extra = json_array();
    for (int i = 0; i < s->extra_count; i++) json_array_append_new(extra, json_string(s->extra[i]));
    json_t *out = json_pack("{s:o, s:o, s:o, s:o, s:o, s:i}", "models", lists[0], "lrs", lists[1], "seeds", lists[2], "train", s->train_options ? json_incref(s->train_options) : json_null(),
                            "options", extra, "threads", s->threads);
    if (s->search) json_object_set_new(out, "search", json_string(s->search));
    return out;
}

static int write_text(const char *path, int (*print)(FILE *to, const sweep *s), const sweep *s) {
    pal_writer w;
    pal_error err;
    if (pal_writer_open(&w, path, &err)) return cli_fail_writing(&err);
    print(w.stream, s); /* commit looks at ferror */
    return pal_writer_commit(&w, &err) ? cli_fail_writing(&err) : CLI_OK;
}

static int print_description(FILE *to, const sweep *s) {
    json_t *mine = describe(s);
    json_dumpf(mine, to, JSON_INDENT(1));
    json_decref(mine);
    return fputc('\n', to);
}

static int check_description(const sweep *s) {
    char path[PATH];
    json_error_t why;
    int code = join(path, s->out, "sweep.json");
    if (code) return code;
    if (access(path, F_OK) != 0) return write_text(path, print_description, s);
    json_t *stored = json_load_file(path, 0, &why), *mine = describe(s);
    if (!stored) code = cli_error(CLI_USAGE, "%s: %s", path, why.text);
    const char *key;
    json_t *value;
    json_object_foreach(mine, key, value) {
        if (code || json_equal(value, json_object_get(stored, key))) continue;
        char *before = json_dumps(json_object_get(stored, key), JSON_ENCODE_ANY), *after = json_dumps(value, JSON_ENCODE_ANY);
        code = cli_error(CLI_USAGE, "%s: this sweep cannot go on under another configuration: %s was %s, now %s", path, key, before ? before : "not set", after);
        free(before);
        free(after);
    }
    json_decref(stored);
    json_decref(mine);
    return code;
}

static const char header[] = "model,lr,seed,stage,length,pairs,accuracy,steps";

static int print_results(FILE *to, const sweep *s) {
    fprintf(to, "%s\n", header);
    for (size_t i = 0; i < s->count; i++)
        for (int k = 0; k < s->runs[i].stages; k++) {
            const sweep_run *r = &s->runs[i];
            fprintf(to, "%s,%s,%s,%d,%d,%d,%.6f,%lld\n", s->models.entry[r->model], s->rates.entry[r->rate], s->seeds.entry[r->seed], k + 1, r->length[k],
                    r->pairs[k], r->accuracy[k], r->steps[k]);
        }
    return 0;
}

/* Rows of an earlier start. Rows of runs outside the grid cannot be there: sweep.json was compared first. */
static int read_results(sweep *s, const char *path) {
    FILE *f = fopen(path, "re");
    if (!f) return errno == ENOENT ? CLI_OK : cli_error(CLI_USAGE, "%s: cannot open: %s", path, strerror(errno));
    char line[1024], model[256], rate[64], seed[64];
    int number = 0, code = CLI_OK;
    while (!code && fgets(line, sizeof line, f)) {
        int stage, length, pairs;
        double accuracy;
        long long steps;
        if (++number == 1) continue;
        if (sscanf(line, "%255[^,],%63[^,],%63[^,],%d,%d,%d,%lf,%lld", model, rate, seed, &stage, &length, &pairs, &accuracy, &steps) != 8 || stage < 1 ||
            stage > MOST_STAGES) {
            code = cli_error(CLI_USAGE, "%s: line %d is not a row of this table", path, number);
            break;
        }
        const int m = find_entry(&s->models, model), l = find_entry(&s->rates, rate), d = find_entry(&s->seeds, seed);
        if (m < 0 || l < 0 || d < 0) {
            code = cli_error(CLI_USAGE, "%s: line %d names a run that is not in this sweep", path, number);
            break;
        }
        sweep_run *r = &s->runs[((size_t)m * (size_t)s->rates.count + (size_t)l) * (size_t)s->seeds.count + (size_t)d];
        r->accuracy[stage - 1] = accuracy;
        r->length[stage - 1] = length;
        r->pairs[stage - 1] = pairs;
        r->steps[stage - 1] = steps;
        if (stage > r->stages) r->stages = stage;
    }
    fclose(f);
    return code;
}

/* The last accuracy of every stage, from the run's metrics; lengths and pairs from what was trained. */
static int read_run(const sweep *s, sweep_run *r) {
    char name[256], folder[PATH], path[PATH];
    pal_map map;
    pal_error err;
    run_name(s, r, name);
    int code;
    if ((code = join(folder, s->out, "runs")) || (code = join(path, folder, name)) || (code = join(folder, path, "metrics.jsonl"))) return code;
    if (pal_map_open(&map, folder, &err)) return cli_error(CLI_FAILED, "%s", err.text);
    for (size_t at = 0; at < map.size;) {
        const unsigned char *end = memchr(map.data + at, '\n', map.size - at);
        const size_t size = end ? (size_t)(end - map.data) - at : map.size - at;
        json_t *line = json_loadb((const char *)map.data + at, size, 0, NULL);
        const json_t *accuracy = json_object_get(line, "accuracy");
        const int stage = (int)json_integer_value(json_object_get(line, "stage"));
        if (json_is_number(accuracy) && stage >= 0 && stage < MOST_STAGES) {
            r->accuracy[stage] = json_number_value(accuracy);
            r->steps[stage] = json_integer_value(json_object_get(line, "step"));
            r->length[stage] = (int)json_integer_value(json_object_get(line, "length"));
            r->pairs[stage] = (int)json_integer_value(json_object_get(line, "pairs"));
            if (stage + 1 > r->stages) r->stages = stage + 1;
        }
        json_decref(line);
        at += size + 1;
    }
    pal_map_close(&map);
    return r->stages ? CLI_OK : cli_error(CLI_FAILED, "%s: no accuracy in it", folder);
}

/* Starts (or resumes) a run in a child process; its output goes to RUNDIR.log. */
static int start(const sweep *s, sweep_run *r) {
    char name[256], runs[PATH], folder[PATH], log[PATH], threads[16], config[PATH];
    const char *arguments[MOST_ARGUMENTS];
    int n = 0, code;
    run_name(s, r, name);
    if ((code = join(runs, s->out, "runs")) || (code = join(folder, runs, name)) || (code = join(config, folder, "config.json"))) return code;
    if (snprintf(log, sizeof log, "%s.log", folder) >= (int)sizeof log) return cli_error(CLI_USAGE, "%s: the path is too long", folder);
    snprintf(threads, sizeof threads, "%d", s->threads);
    arguments[n++] = "palimpsa";
    arguments[n++] = "train";
    arguments[n++] = "--out", arguments[n++] = folder;
    if (access(config, F_OK) == 0) {
        int lock; /* a run of a sweep that was killed may still be writing its last checkpoint */
        if ((code = cli_lock(folder, true, &lock))) return code;
        close(lock);
        arguments[n++] = "--resume";
    } else if (s->train) arguments[n++] = "--config", arguments[n++] = s->train;
    for (int i = 0; i < s->extra_count; i++) arguments[n++] = s->extra[i];
    arguments[n++] = "--task", arguments[n++] = "mqar";
    arguments[n++] = "--model", arguments[n++] = s->models.entry[r->model];
    arguments[n++] = "--lr", arguments[n++] = s->rates.entry[r->rate];
    arguments[n++] = "--seed", arguments[n++] = s->seeds.entry[r->seed];
    arguments[n++] = "--threads", arguments[n++] = threads;
    arguments[n] = NULL;
    fflush(stdout);
    r->started = bench_now();
    r->child = fork();
    if (r->child < 0) return cli_error(CLI_FAILED, "sweep: cannot start a process: %s", strerror(errno));
    if (r->child == 0) {
        signal(SIGTERM, SIG_DFL); /* from here on it ends the child; one that came before was the handler's */
        if (interrupted) _exit(0);
        prctl(PR_SET_PDEATHSIG, SIGTERM); /* a killed sweep must not leave runs behind that a new one would start again */
        if (!freopen(log, "a", stdout) || dup2(fileno(stdout), STDERR_FILENO) < 0) _exit(127);
        execv("/proc/self/exe", (char *const *)arguments);
        _exit(127);
    }
    return CLI_OK;
}

static int append_timing(const sweep *s, const sweep_run *r) {
    char path[PATH], name[256];
    int code = join(path, s->out, "timing.csv");
    if (code) return code;
    const bool fresh = access(path, F_OK) != 0;
    FILE *f = fopen(path, "ae");
    if (!f) return cli_error(CLI_FAILED, "%s: cannot open: %s", path, strerror(errno));
    run_name(s, r, name);
    if (fresh) fprintf(f, "run,seconds\n");
    fprintf(f, "%s,%.1f\n", name, bench_now() - r->started);
    fclose(f);
    return CLI_OK;
}

/* Runs stop cleanly: each finishes its update and writes a checkpoint. */
static void stop_runs(const sweep *s) {
    for (size_t i = 0; i < s->count; i++)
        if (s->runs[i].child > 0) kill(s->runs[i].child, SIGTERM);
}

/* Whether a run came to its end; one that was only stopped also exits with 0. */
static bool run_finished(const sweep *s, const char *name) {
    char runs[PATH], folder[PATH];
    return !join(runs, s->out, "runs") && !join(folder, runs, name) && pal_checkpoint_finished(folder);
}

/* Waits for one child and records what it did. Polls: a signal between a look at `interrupted` and a blocking wait would
 * not be seen until some run ends. */
static int finish_one(sweep *s, const char *results, int *running) {
    int status, code;
    pid_t child;
    while ((child = waitpid(-1, &status, WNOHANG)) == 0 || (child < 0 && errno == EINTR)) {
        if (interrupted && !s->stopping) {
            s->stopping = true;
            stop_runs(s);
        }
        nanosleep(&(struct timespec){ .tv_nsec = 20 * 1000 * 1000 }, NULL);
    }
    if (child < 0) return cli_error(CLI_FAILED, "sweep: cannot wait: %s", strerror(errno));
    for (size_t i = 0; i < s->count; i++) {
        sweep_run *r = &s->runs[i];
        if (r->child != child) continue;
        char name[256];
        r->child = 0;
        (*running)--;
        run_name(s, r, name);
        const bool ended = WIFEXITED(status) && WEXITSTATUS(status) == 0;
        if (!ended && interrupted) return CLI_OK; /* the next start resumes it */
        if (!ended) return cli_error(CLI_FAILED, "sweep: run %s failed; see %s/runs/%s.log", name, s->out, name);
        if (!run_finished(s, name)) {
            printf("run %s was stopped before its end; the next start goes on with it\n", name);
            return CLI_OK;
        }
        if ((code = read_run(s, r)) || (code = write_text(results, print_results, s)) || (code = append_timing(s, r))) return code;
        char took[32];
        progress_duration(took, bench_now() - r->started);
        printf("%zu/%zu  %-40s", count_done(s), count_wanted(s), name);
        for (int k = 0; k < r->stages; k++) printf("  L%d %.3f", r->length[k], r->accuracy[k]);
        printf("  (%s)\n", took);
        fflush(stdout);
    }
    return CLI_OK;
}

static int run_all(sweep *s, const char *results) {
    int running = 0, code = CLI_OK;
    size_t next = 0;
    while (!code && (running || next < s->count)) {
        while (!code && !interrupted && running < s->jobs && next < s->count) {
            sweep_run *r = &s->runs[next++];
            if (r->stages || r->left_out) continue;
            code = start(s, r);
            if (!code) running++;
        }
        if (running) {
            const int finished = finish_one(s, results, &running);
            if (!code) code = finished;
        } else if (interrupted) break;
    }
    if (!s->stopping) stop_runs(s);
    for (size_t i = 0; i < s->count; i++)
        if (s->runs[i].child > 0) waitpid(s->runs[i].child, NULL, 0);
    return code;
}

/* Mean and standard deviation over seeds at one stage; values takes each seed's. */
typedef struct {
    double mean, deviation;
    double values[MOST_ENTRIES];
    int count;
} summary;

static summary summarise(const sweep *s, int model, int rate, int stage) {
    summary out = { 0 };
    double sum = 0, squares = 0;
    for (int d = 0; d < s->seeds.count; d++) {
        const sweep_run *r = &s->runs[((size_t)model * (size_t)s->rates.count + (size_t)rate) * (size_t)s->seeds.count + (size_t)d];
        if (r->stages <= stage) continue;
        out.values[out.count++] = r->accuracy[stage];
        sum += r->accuracy[stage];
        squares += r->accuracy[stage] * r->accuracy[stage];
    }
    out.mean = out.count ? sum / out.count : NAN;
    out.deviation = out.count > 1 ? sqrt(fmax((squares - sum * sum / out.count) / (out.count - 1), 0)) : NAN;
    return out;
}

/* The rate with the best mean accuracy over all stages. */
static int best_rate(const sweep *s, int model, int stages) {
    int best = 0;
    double highest = -1;
    for (int l = 0; l < s->rates.count; l++) {
        double sum = 0;
        for (int k = 0; k < stages; k++) sum += summarise(s, model, l, k).mean;
        if (sum > highest) highest = sum, best = l;
    }
    return best;
}

/* A run that went through every stage: it knows their lengths. */
static const sweep_run *longest_run(const sweep *s) {
    const sweep_run *longest = s->runs;
    for (size_t i = 1; i < s->count; i++)
        if (s->runs[i].stages > longest->stages) longest = &s->runs[i];
    return longest;
}

static int print_table(FILE *to, const sweep *s) {
    const sweep_run *longest = longest_run(s);
    const int stages = longest->stages;
    fprintf(to, "| model | learning rate |");
    for (int k = 0; k < stages; k++) fprintf(to, " L = %d, %d pairs |", longest->length[k], longest->pairs[k]);
    fprintf(to, "\n|---|---|");
    for (int k = 0; k < stages; k++) fprintf(to, "---|");
    fputc('\n', to);
    for (int m = 0; m < s->models.count; m++) {
        const int l = best_rate(s, m, stages);
        fprintf(to, "| %s | %s |", s->models.entry[m], s->rates.entry[l]);
        for (int k = 0; k < stages; k++) {
            const summary x = summarise(s, m, l, k);
            if (isfinite(x.deviation)) fprintf(to, " %.3f ± %.3f |", x.mean, x.deviation);
            else fprintf(to, " %.3f |", x.mean);
        }
        fputc('\n', to);
    }
    return 0;
}

static int draw(const sweep *s) {
    const sweep_run *longest = longest_run(s);
    const int stages = longest->stages, models = s->models.count;
    char labels[MOST_STAGES][48], path[PATH];
    const char *groups[MOST_STAGES];
    static summary kept[MOST_STAGES * MOST_ENTRIES]; /* the figure points into it */
    static pal_bar bars[MOST_STAGES * MOST_ENTRIES];
    for (int k = 0; k < stages; k++) {
        snprintf(labels[k], sizeof labels[k], "L = %d, %d pairs", longest->length[k], longest->pairs[k]);
        groups[k] = labels[k];
        for (int m = 0; m < models; m++) {
            summary *x = &kept[k * models + m];
            *x = summarise(s, m, best_rate(s, m, stages), k);
            bars[k * models + m] = (pal_bar){ .value = x->mean, .error = x->deviation, .dots = x->values, .dot_count = (size_t)x->count };
        }
    }
    const pal_panel panel = { .kind = PAL_PANEL_BARS, .y = { .label = "test accuracy", .fixed = true, .min = 0, .max = 1 },
                              .bars = { .groups = groups, .group_count = (size_t)stages, .names = s->models.entry, .name_count = (size_t)models, .bars = bars } };
    const pal_figure figure = { .title = "Multi-query associative recall", .panels = &panel, .panel_count = 1, .columns = 1, .width = 240 + 60 * stages * models, .height = 420 };
    pal_error err;
    int code;
    if ((code = join(path, s->out, "results.svg"))) return code;
    if (pal_figure_write_svg(&figure, path, &err)) return cli_fail_writing(&err);
    if ((code = join(path, s->out, "results.png"))) return code;
    return pal_figure_write_png(&figure, 2, path, &err) ? cli_fail_writing(&err) : CLI_OK;
}

/* Makes the grid, refuses another configuration's directory, and takes over the rows that are there. */
static int prepare(sweep *s, char results[PATH]) {
    char path[PATH];
    pal_error err;
    int code;
    s->count = (size_t)s->models.count * (size_t)s->rates.count * (size_t)s->seeds.count;
    s->runs = pal_alloc(s->count, sizeof *s->runs);
    if (!s->runs) return cli_error(CLI_FAILED, "sweep: no memory for %zu runs", s->count);
    for (size_t i = 0; i < s->count; i++) {
        s->runs[i].seed = (int)(i % (size_t)s->seeds.count);
        s->runs[i].rate = (int)(i / (size_t)s->seeds.count % (size_t)s->rates.count);
        s->runs[i].model = (int)(i / (size_t)s->seeds.count / (size_t)s->rates.count);
    }
    if ((code = join(path, s->out, "runs"))) return code;
    if (pal_make_directory(path, &err)) return cli_fail_writing(&err);
    if ((code = check_description(s)) || (code = join(results, s->out, "results.csv"))) return code;
    return read_results(s, results);
}

/* Trains what is wanted and not done; ends with the table and the figure, unless it was interrupted. */
static int complete(sweep *s, const char *results) {
    char path[PATH];
    int code;
    if ((code = run_all(s, results))) return code;
    if (interrupted) {
        printf("stopped; the same command goes on where this one ended\n");
        return CLI_OK;
    }
    const size_t missing = count_wanted(s) - count_done(s);
    if (missing)
        return cli_error(CLI_FAILED, "sweep: %zu of %zu runs were stopped before their end; the same command goes on with them", missing, count_wanted(s));
    if ((code = write_text(results, print_results, s)) || (code = join(path, s->out, "results.md")) || (code = write_text(path, print_table, s))) return code;
    if ((code = draw(s))) return code;
    print_table(stdout, s);
    printf("%s/results.csv, results.md, results.svg and results.png hold the sweep\n", s->out);
    return CLI_OK;
}

/* Trains every rate with the first seed on the search's stages, and leaves the others' runs out of s. */
static int search_rates(sweep *s) {
    const char *extra[MOST_ARGUMENTS];
    char out[PATH], results[PATH];
    int code = join(out, s->out, "search");
    if (code) return code;
    sweep first = *s;
    first.out = out;
    first.search = NULL;
    first.runs = NULL;
    first.seeds.count = 1;
    memcpy(extra, s->extra, (size_t)s->extra_count * sizeof *extra);
    extra[s->extra_count] = "--stages", extra[s->extra_count + 1] = s->search; /* the last one counts */
    first.extra = extra;
    first.extra_count = s->extra_count + 2;
    if (!(code = prepare(&first, results))) {
        printf("search for the learning rate: %d models x %d rates on stages %s, %zu of %zu runs done\n", s->models.count, s->rates.count, s->search,
               count_done(&first), first.count);
        code = complete(&first, results);
    }
    for (size_t i = 0; !code && !interrupted && i < s->count; i++)
        s->runs[i].left_out = s->runs[i].rate != best_rate(&first, s->runs[i].model, longest_run(&first)->stages);
    pal_free(first.runs);
    return code;
}

static int sweep_all(sweep *s) {
    char results[PATH];
    int code, lock;
    pal_error err;
    if (pal_make_directory(s->out, &err)) return cli_fail_writing(&err);
    if ((code = cli_lock(s->out, false, &lock))) return code; /* until the process ends */
    if ((code = prepare(s, results))) return code;
    struct sigaction action = { .sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND };
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    if (s->search && ((code = search_rates(s)) || interrupted)) return code;
    printf("%zu runs (%d models x %d rate%s x %d seeds), %zu done, %d at a time with %d thread%s each\n", count_wanted(s), s->models.count,
           s->search ? 1 : s->rates.count, s->search || s->rates.count == 1 ? "" : "s", s->seeds.count, count_done(s), s->jobs, s->threads, s->threads == 1 ? "" : "s");
    fflush(stdout);
    return complete(s, results);
}

/* *path, found in a configuration file, is relative to that file. */
static int resolve_beside(char out[PATH], const char *config, const char **path) {
    const char *slash = strrchr(config, '/');
    if (**path == '/' || !slash) return CLI_OK;
    if (snprintf(out, PATH, "%.*s/%s", (int)(slash - config), config, *path) >= PATH) return cli_error(CLI_USAGE, "%s: the path is too long", *path);
    *path = out;
    return CLI_OK;
}

static int read_train_options(sweep *s) {
    json_error_t why;
    FILE *file = fopen(s->train, "re");
    if (!file) return cli_error(CLI_USAGE, "%s: cannot open: %s", s->train, strerror(errno));
    s->train_options = json_loadf(file, JSON_REJECT_DUPLICATES, &why);
    fclose(file);
    return s->train_options ? CLI_OK : cli_error(CLI_USAGE, "%s: %s (line %d)", s->train, why.text, why.line);
}

int cmd_sweep(int argc, char **argv) {
    sweep s = { .jobs = 1, .threads = 1 };
    const char *models = "palimpsa-d,palimpsa-d-wo-meta,palimpsa-m,palimpsa-m-wo-meta,gated-deltanet", *rates = "1e-3,2.15e-3,4.64e-3,1e-2", *seeds = "1,2,3";
    const char *config = NULL;
    char beside[PATH];
    const cli_option options[] = {
        { "models", OPT_TEXT, &models, "LIST", "models to compare (default: the paper's five)" },
        { "lrs", OPT_TEXT, &rates, "LIST", "learning rates (default 1e-3,2.15e-3,4.64e-3,1e-2)" },
        { "seeds", OPT_TEXT, &seeds, "LIST", "seeds (default 1,2,3)" },
        { "search", OPT_TEXT, &s.search, "STAGES", "pick each model's rate first, on these stages with the first seed; then train at that rate only" },
        { "jobs", OPT_INT, &s.jobs, "N", "runs at a time (default 1)", true },
        { "threads", OPT_INT, &s.threads, "N", "threads per run, part of the configuration (default 1)" },
        { "train", OPT_TEXT, &s.train, "FILE", "options of 'palimpsa train' as a JSON file; in a --config file, relative to that file" },
        { "out", OPT_TEXT, &s.out, "DIR", "where the sweep goes; an interrupted one goes on", true },
        { "config", OPT_TEXT, &config, "FILE", "the options above as a JSON file; the command line wins", true },
    };
    const cli_usage usage = {
        .synopsis = "sweep mqar --out DIR [options] [-- options of train]",
        .about = "Trains models x learning rates x seeds, picks the best rate per model, and ends with results.csv, a table and a\n"
                 "figure. Killed or interrupted, the same command goes on; a finished run is never repeated.",
        .examples = "  palimpsa sweep mqar --out sweeps/small --seeds 1,2 -- --seq-len 64 --kv-pairs 16 --vocab 512 --epochs 4\n"
                    "  palimpsa sweep mqar --config configs/mqar-reduced.json --out sweeps/reduced\n"
                    "  palimpsa sweep mqar --search 128:32:4:128 --out sweeps/searched -- --stages 128:32:20:128,256:64:20:128\n"
                    "  palimpsa sweep mqar --config configs/mqar-paper.json --jobs 8 --out sweeps/paper\n",
        .options = options,
        .option_count = sizeof options / sizeof options[0],
    };
    int mine = argc, given;
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--") == 0) {
            mine = i;
            break;
        }
    const char *subject = NULL, *extra[MOST_ARGUMENTS - 32];
    int code = cli_parse(&usage, mine, argv, &subject, 1, &given);
    if (code) return code < 0 ? CLI_OK : code;
    const bool own_train = s.train != NULL;
    if (config && ((code = cli_read_config(&usage, config)) || (code = cli_parse(&usage, mine, argv, &subject, 1, &given)))) return code;
    if (!subject || strcmp(subject, "mqar") != 0) return cli_error(CLI_USAGE, "sweep: expected 'palimpsa sweep mqar'");
    if (!s.out) return cli_error(CLI_USAGE, "sweep: --out DIR is missing");
    if (s.jobs < 1 || s.threads < 1) return cli_error(CLI_USAGE, "--jobs and --threads must be at least 1");
    if (config && s.train && !own_train && (code = resolve_beside(beside, config, &s.train))) return code;
    if (s.train && (code = read_train_options(&s))) return code;
    for (int i = mine + 1; i < argc; i++) {
        if (strncmp(argv[i], "--config", 8) == 0 || strncmp(argv[i], "--recipe", 8) == 0)
            return cli_error(CLI_USAGE, "sweep: %s after '--': give a file of options for train by --train FILE", argv[i]);
        if (s.extra_count == MOST_ARGUMENTS - 32) return cli_error(CLI_USAGE, "sweep: too many options after '--'");
        extra[s.extra_count++] = argv[i];
    }
    s.extra = extra;
    if (!(code = split(&s.models, "models", models)) && !(code = split(&s.rates, "lrs", rates)) && !(code = split(&s.seeds, "seeds", seeds))) code = sweep_all(&s);
    pal_free(s.models.text), pal_free(s.rates.text), pal_free(s.seeds.text);
    pal_free(s.runs);
    json_decref(s.train_options);
    return code;
}
