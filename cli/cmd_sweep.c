/* SPDX-License-Identifier: MIT */
/* palimpsa sweep: a grid of models, learning rates and seeds, each trained by `palimpsa train` in its own process.
 *
 * DIR/results.csv is the truth: a run whose rows are there is never trained again, even when its directory is gone. It
 * is rewritten whole and renamed for every finished run, in the order of the grid, so a killed sweep that is started
 * again ends with the same bytes. Times go to timing.csv.
 *
 * With --search the learning rate is picked first: DIR/search is its own sweep, of every rate with the search's
 * seeds on fewer stages; then each model is trained at its best rate alone, with every seed. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/directory.h"
#include "base/io.h"
#include "cli.h"
#include "format/json.h"
#include "progress.h"
#include "ranks.h"
#include "stop.h"
#include "sweep.h"
#include "sweep_farm.h"
#include "train/checkpoint.h"

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

/* What train is reported of a run: its own part of the arguments, from n on, ended by NULL. */
static void add_run(const sweep *s, const sweep_run *r, const char **arguments, int n) {
    for (int i = 0; i < s->extra_count; i++) arguments[n++] = s->extra[i];
    arguments[n++] = "--task", arguments[n++] = "mqar";
    for (int i = 0; i < s->words[r->model].count; i++) arguments[n++] = s->words[r->model].argument[i];
    arguments[n++] = "--lr", arguments[n++] = s->rates.entry[r->rate];
    arguments[n++] = "--seed", arguments[n++] = s->seeds.entry[r->seed];
    arguments[n++] = "--threads", arguments[n++] = s->threads_text;
    arguments[n] = NULL;
}

/* Starts (or resumes) a run in a child process; its output goes to RUNDIR.log. */
static int start(const sweep *s, sweep_run *r, int place) {
    char folder[SWEEP_PATH], log[SWEEP_PATH], config[SWEEP_PATH];
    const char *arguments[SWEEP_ARGUMENTS] = { "palimpsa", "train", "--out", folder };
    int n = 4, code;
    if ((code = sweep_run_path(s, r, NULL, folder)) || (code = sweep_run_path(s, r, "config.json", config)))
        return code;
    if ((code = cli_path(log, sizeof log, "%s.log", folder))) return code;
    if (access(config, F_OK) == 0) {
        int lock; /* a run of a sweep that was killed may still be writing its last checkpoint */
        if ((code = cli_lock(folder, true, &lock))) return code;
        close(lock);
        arguments[n++] = "--resume";
    } else if (s->train) arguments[n++] = "--config", arguments[n++] = s->train;
    add_run(s, r, arguments, n);
    r->started = pal_seconds();
    r->place = place;
    return farm_start(place, arguments, log);
}

/* Whether train takes this run's options; if not, it has said why. */
static int try_run(const sweep *s, int model, int rate, int seed) {
    char folder[SWEEP_PATH];
    const char *arguments[SWEEP_ARGUMENTS] = { "palimpsa", "train", "--dry-run", "--out", folder };
    const sweep_run r = { .model = model, .rate = rate, .seed = seed };
    int n = 5, child, status, code;
    if ((code = sweep_run_path(s, &r, NULL, folder))) return code;
    if (s->train) arguments[n++] = "--config", arguments[n++] = s->train;
    add_run(s, &r, arguments, n);
    if ((code = farm_spawn(arguments, NULL, &child))) return code;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : CLI_FAILED;
}

/* A mistake in the options is reported before anything is written: every model, rate and seed is tried once. */
static int try_all(const sweep *s) {
    char description[SWEEP_PATH];
    int code = sweep_join(description, s->out, "sweep.json");
    if (code || access(description, F_OK) == 0) return code;
    for (int i = 0; i < s->models.count && !code; i++) code = try_run(s, i, 0, 0);
    for (int i = 1; i < s->rates.count && !code; i++) code = try_run(s, 0, i, 0);
    for (int i = 1; i < s->seeds.count && !code; i++) code = try_run(s, 0, 0, i);
    return code;
}

static int append_timing(const sweep *s, const sweep_run *r) {
    char path[SWEEP_PATH], name[256], line[320];
    int code = sweep_join(path, s->out, "timing.csv");
    if (code) return code;
    const bool fresh = access(path, F_OK) != 0;
    const int fd = pal_io_open(path, O_WRONLY | O_CREAT | O_APPEND);
    if (fd < 0) return cli_error(CLI_FAILED, "%s: cannot open: %s", path, strerror(errno));
    sweep_run_name(s, r, name);
    const int length = snprintf(line, sizeof line, "%s%s,%.1f\n", fresh ? "run,seconds\n" : "", name,
                                pal_seconds() - r->started);
    code = pal_io_write(fd, line, (size_t)length)
               ? CLI_OK
               : cli_error(CLI_FAILED, "%s: cannot write: %s", path, strerror(errno));
    close(fd);
    return code;
}

/* Whether a run came to its end. */
static int run_finished(const sweep *s, const sweep_run *r, bool *finished) {
    char folder[SWEEP_PATH];
    pal_error err;
    const int code = sweep_run_path(s, r, NULL, folder);
    return !code && pal_checkpoint_finished(folder, finished, &err) ? cli_fail(&err) : code;
}

/* A killed child is started again, and continues from its last checkpoint. */
static bool starts_again(const sweep *s, sweep_run *r, int status, int *code) {
    enum { TIMES = 3 };
    if (!WIFSIGNALED(status) || cli_stopping() || r->restarts++ == TIMES) return false;
    *code = start(s, r, r->place);
    return *code == CLI_OK;
}

/* Waits for one child and records what it did. Polls: a signal between a look at cli_stopping() and a blocking wait
 * would not be seen until some run ends. */
static int finish_one(sweep *s, int *running) {
    int status, place, code = CLI_OK;
    while ((place = farm_ended(&status)) == 0) {
        if (cli_stopping() && !s->stopping) {
            s->stopping = true;
            farm_stop();
        }
        nanosleep(&(struct timespec){ .tv_nsec = 20 * 1000 * 1000 }, NULL);
    }
    if (place < 0) return CLI_FAILED;
    for (size_t i = 0; i < s->count; i++) {
        sweep_run *r = &s->runs[i];
        if (r->place != place) continue;
        if (starts_again(s, r, status, &code)) return CLI_OK;
        char name[256];
        r->place = 0;
        (*running)--;
        if (code) return code;
        sweep_run_name(s, r, name);
        const bool ended = WIFEXITED(status) &&
                           (WEXITSTATUS(status) == CLI_OK || WEXITSTATUS(status) == CLI_INTERRUPTED);
        if (!ended && cli_stopping()) return CLI_OK; /* the next start resumes it */
        if (!ended) return cli_error(CLI_FAILED, "sweep: run %s failed; see %s/runs/%s.log", name, s->out, name);
        bool finished;
        if ((code = run_finished(s, r, &finished))) return code;
        if (!finished) {
            printf("run %s was stopped before its end; the next start continues with it\n", name);
            return CLI_OK;
        }
        if ((code = sweep_read_run(s, r)) || (code = sweep_write_results(s)) || (code = append_timing(s, r)))
            return code;
        char took[32];
        progress_duration(took, pal_seconds() - r->started);
        printf("%zu/%zu  %-40s", count_done(s), count_wanted(s), name);
        for (int k = 0; k < r->stages; k++) printf("  L%d %.3f", r->length[k], r->accuracy[k]);
        printf("  (%s)\n", took);
        fflush(stdout);
    }
    return CLI_OK;
}

/* Seed after seed: a sweep that is not finished yet has compared all models on the first ones. */
static sweep_run *in_order(const sweep *s, size_t i) {
    const size_t rates = (size_t)s->rates.count, grid = rates * (size_t)s->models.count;
    return sweep_at(s, (int)(i % grid / rates), (int)(i % rates), (int)(i / grid));
}

static int free_place(const sweep *s) {
    int place = 1;
    for (size_t i = 0; i < s->count; i++)
        if (s->runs[i].place == place) place++, i = (size_t)-1; /* taken: look for the next one among all */
    return place;
}

static int run_all(sweep *s) {
    int running = 0, code = CLI_OK;
    size_t next = 0;
    while (!code && (running || next < s->count)) {
        while (!code && !cli_stopping() && running < s->jobs && next < s->count) {
            sweep_run *r = in_order(s, next++);
            if (r->stages || r->left_out) continue;
            code = start(s, r, free_place(s));
            if (!code) running++;
        }
        if (running) {
            const int finished = finish_one(s, &running);
            if (!code) code = finished;
        } else if (cli_stopping()) break;
    }
    if (!s->stopping) farm_stop();
    for (int status, place = 0; running > 0 && place >= 0 && !ranks_failed();) {
        place = farm_ended(&status);
        if (place > 0) running--;
        else nanosleep(&(struct timespec){ .tv_nsec = 20 * 1000 * 1000 }, NULL);
    }
    for (size_t i = 0; i < s->count; i++) s->runs[i].place = 0;
    return code;
}

/* Makes the grid, refuses another configuration's directory, and takes over the rows that are there. */
static int prepare(sweep *s) {
    char path[SWEEP_PATH];
    pal_error err;
    int code;
    s->count = (size_t)s->models.count * (size_t)s->rates.count * (size_t)s->seeds.count;
    s->runs = pal_alloc(s->count, sizeof *s->runs);
    if (!s->runs) return cli_error(CLI_FAILED, "sweep: out of memory for %zu runs", s->count);
    for (size_t i = 0; i < s->count; i++) {
        s->runs[i].seed = (int)(i % (size_t)s->seeds.count);
        s->runs[i].rate = (int)(i / (size_t)s->seeds.count % (size_t)s->rates.count);
        s->runs[i].model = (int)(i / (size_t)s->seeds.count / (size_t)s->rates.count);
    }
    if ((code = sweep_join(path, s->out, "runs"))) return code;
    if (pal_make_directory(path, &err)) return cli_fail_writing(&err);
    if ((code = sweep_check_description(s))) return code;
    return sweep_read_results(s);
}

/* Trains what is needed and not done. */
static int complete(sweep *s) {
    int code;
    if ((code = run_all(s))) return code;
    if (cli_stopping()) {
        printf("stopped; run the same command to resume\n");
        return CLI_INTERRUPTED;
    }
    const size_t missing = count_wanted(s) - count_done(s);
    return missing
               ? cli_error(CLI_FAILED, "sweep: %zu of %zu runs were stopped early; run the same command to resume them",
                           missing, count_wanted(s))
               : CLI_OK;
}

/* The table and the figure. */
static int conclude(const sweep *s) {
    int code;
    if ((code = sweep_write_results(s)) || (code = sweep_check_stages(s)) ||
        (code = sweep_write(s, "results.md", sweep_print_table)) || (code = sweep_draw(s)))
        return code;
    sweep_print_table(stdout, s);
    printf("%s/results.csv, results.md, results.svg and results.png hold the sweep\n", s->out);
    return CLI_OK;
}

/* The sweep that looks for a rate: the search's seeds (else the first one) on the search's stages. extra has room for
 * its arguments. */
static sweep for_search(const sweep *s, const char *out, const char **extra) {
    sweep first = *s;
    first.out = out;
    first.search = NULL;
    first.runs = NULL;
    if (s->search_seeds.count) first.seeds = s->search_seeds;
    else first.seeds.count = 1;
    memcpy(extra, s->extra, (size_t)s->extra_count * sizeof *extra);
    extra[s->extra_count] = "--stages", extra[s->extra_count + 1] = s->search; /* the last one counts */
    first.extra = extra;
    first.extra_count = s->extra_count + 2;
    return first;
}

/* Trains every rate on the search's stages, and leaves the runs at rates that are not the best out of s. */
static int search_rates(sweep *s) {
    const char *extra[SWEEP_ARGUMENTS];
    char out[SWEEP_PATH];
    int code = sweep_join(out, s->out, "search");
    if (code) return code;
    sweep first = for_search(s, out, extra);
    if (!(code = prepare(&first))) {
        sweep_leave_out_added(&first);
        printf("search for the learning rate: %d models x %d rates x %d seeds on stages %s, %zu of %zu runs done\n",
               s->models.count, s->rates.count - 2 * s->extend, first.seeds.count, s->search, count_done(&first),
               count_wanted(&first));
        do code = complete(&first);
        while (!code && !cli_stopping() && sweep_widen(&first));
        if (!code && !cli_stopping()) code = conclude(&first);
    }
    for (size_t i = 0; !code && !cli_stopping() && i < s->count; i++)
        s->runs[i].left_out = s->runs[i].rate != sweep_best_rate(&first, s->runs[i].model);
    pal_free(first.runs);
    return code;
}

static const char *plural(size_t n) { return n == 1 ? "" : "s"; }

static int sweep_all(sweep *s) {
    int code, lock;
    pal_error err;
    if ((code = sweep_check_names(s)) || (code = try_all(s))) return code;
    if (s->search) {
        const char *extra[SWEEP_ARGUMENTS];
        const sweep first = for_search(s, s->out, extra);
        if ((code = try_all(&first))) return code;
    }
    if (pal_make_directory(s->out, &err)) return cli_fail_writing(&err);
    if ((code = cli_lock(s->out, false, &lock))) return code; /* until the process ends */
    if ((code = prepare(s))) return code;
    cli_stop_on_signals(true);
    if (s->search && ((code = search_rates(s)) || cli_stopping())) return code ? code : CLI_INTERRUPTED;
    const int rates = s->search ? 1 : s->rates.count;
    printf("%zu run%s (%d model%s x %d rate%s x %d seed%s), %zu done, %d at a time with %d thread%s each\n",
           count_wanted(s), plural(count_wanted(s)), s->models.count, plural((size_t)s->models.count), rates,
           plural((size_t)rates), s->seeds.count, plural((size_t)s->seeds.count), count_done(s), s->jobs, s->threads,
           plural((size_t)s->threads));
    fflush(stdout);
    code = complete(s);
    return code ? code : conclude(s);
}

/* *path, found in a configuration file, is relative to that file. */
static int resolve_beside(char out[SWEEP_PATH], const char *config, const char **path) {
    const char *slash = strrchr(config, '/');
    if (**path == '/' || !slash) return CLI_OK;
    const int code = cli_path(out, SWEEP_PATH, "%.*s/%s", (int)(slash - config), config, *path);
    if (!code) *path = out;
    return code;
}

static int read_train_options(sweep *s) {
    json_error_t why;
    s->train_options = pal_json_load(s->train, JSON_REJECT_DUPLICATES, &why, NULL);
    if (s->train_options) return CLI_OK;
    if (why.line < 0) return cli_error(CLI_USAGE, "%s: %s", s->train, why.text);
    return cli_error(CLI_USAGE, "%s: %s (line %d)", s->train, why.text, why.line);
}

int cmd_sweep(int argc, char **argv) {
    sweep s = { .jobs = 1, .threads = 1 };
    const char *models = "palimpsa-d,palimpsa-d-wo-meta,palimpsa-m,palimpsa-m-wo-meta,gated-deltanet",
               *rates = "1e-3,2.15e-3,4.64e-3,1e-2", *seeds = "1,2,3";
    const char *config = NULL, *search_seeds = NULL, *endpoint = NULL;
    char beside[SWEEP_PATH];
    const cli_option options[] = {
        { "models", OPT_TEXT, &models, "LIST",
          "models to compare (default: the paper's five); MODEL:RULE for another memory rule on the "
          "D backbone, MODEL:OPTION=VALUE for options of train" },
        { "lrs", OPT_TEXT, &rates, "LIST", "learning rates (default 1e-3,2.15e-3,4.64e-3,1e-2)" },
        { "seeds", OPT_TEXT, &seeds, "LIST", "seeds (default 1,2,3)" },
        { "search", OPT_TEXT, &s.search, "STAGES",
          "first pick each model's rate on these stages, then train at that rate only" },
        { "search-seeds", OPT_TEXT, &search_seeds, "LIST", "seeds of the search (default: the first of --seeds)" },
        { "endpoint", OPT_TEXT, &endpoint, "LENGTHS",
          "pick the rate by the mean accuracy at the ends of the stages of these lengths, such as 256,512,1024 "
          "(default: all stages)" },
        { "extend", OPT_INT, &s.extend, "N",
          "if the best rate is at the edge of those tried, try up to N rates beyond it (default 0)" },
        { "jobs", OPT_INT, &s.jobs, "N", "runs at a time (default 1); under mpirun one per rank", true },
        { "threads", OPT_INT, &s.threads, "N", "threads per run, part of the configuration (default 1)" },
        { "train", OPT_TEXT, &s.train, "FILE",
          "options of 'palimpsa train' as a JSON file; in a --config file, relative to that file" },
        { "out", OPT_TEXT, &s.out, "DIR", "directory of the sweep; an interrupted sweep resumes", true },
        { "config", OPT_TEXT, &config, "FILE", "read the options above from a JSON file; the command line wins", true },
    };
    const cli_usage usage = {
        .synopsis = "sweep mqar --out DIR [options] [-- options of train]",
        .about = "Trains a grid of models, learning rates and seeds.\n\n"
                 "Picks the best rate of each model and ends with results.csv, a table and a figure. After "
                 "an interruption the same command resumes; finished runs are never repeated.",
        .examples = "  palimpsa sweep mqar --out sweeps/small --seeds 1,2 -- --seq-len 64 --kv-pairs 16 --vocab 512 "
                    "--epochs 4\n"
                    "  palimpsa sweep mqar --config configs/mqar-reduced.json --out sweeps/reduced\n"
                    "  palimpsa sweep mqar --search 128:32:4:128 --out sweeps/searched -- --stages "
                    "128:32:20:128,256:64:20:128\n"
                    "  palimpsa sweep mqar --models palimpsa-d,palimpsa-d:mesa,palimpsa-d-wo-meta:head-dim=32 --out "
                    "sweeps/rules\n"
                    "  palimpsa sweep mqar --config configs/mqar-paper.json --jobs 8 --out sweeps/paper\n"
                    "  mpirun -n 64 palimpsa sweep mqar --config configs/mqar-paper.json --out sweeps/paper\n",
        .options = options,
        .option_count = sizeof options / sizeof options[0],
    };
    int mine = argc, given;
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--") == 0) {
            mine = i;
            break;
        }
    const char *subject = NULL, *extra[SWEEP_ARGUMENTS - 32];
    int code = cli_parse(&usage, mine, argv, &subject, 1, &given);
    if (code) return code < 0 ? CLI_OK : code;
    const bool own_train = s.train != NULL;
    if (config &&
        ((code = cli_read_config(&usage, config)) || (code = cli_parse(&usage, mine, argv, &subject, 1, &given))))
        return code;
    if (!subject)
        return cli_error(CLI_USAGE,
                         "sweep: the task is missing, and mqar is the only one: palimpsa sweep mqar --out DIR");
    if (strcmp(subject, "mqar") != 0)
        return cli_error(CLI_USAGE, "sweep: expected the task mqar, the only one, found '%.60s'", subject);
    if (!s.out) return cli_error(CLI_USAGE, "sweep: --out DIR is missing");
    if (s.jobs < 1 || s.threads < 1) return cli_error(CLI_USAGE, "--jobs and --threads must be at least 1");
    if (config && s.train && !own_train && (code = resolve_beside(beside, config, &s.train))) return code;
    if (s.train && (code = read_train_options(&s))) return code;
    for (int i = mine + 1; i < argc; i++) {
        if ((code = sweep_check_extra(argv[i]))) return code;
        if (s.extra_count == SWEEP_ARGUMENTS - 32) return cli_error(CLI_USAGE, "sweep: too many options after '--'");
        extra[s.extra_count++] = argv[i];
    }
    s.extra = extra;
    if (!pal_comm_is_root(ranks_comm())) return farm_serve();
    if ((code = farm_open(s.jobs, &s.jobs))) return code;
    snprintf(s.threads_text, sizeof s.threads_text, "%d", s.threads);
    if (search_seeds && !s.search) return cli_error(CLI_USAGE, "--search-seeds goes with --search");
    if (!(code = sweep_split(&s.models, "models", models)) && !(code = sweep_read_models(&s)) &&
        !(code = sweep_split(&s.rates, "lrs", rates)) && !(code = sweep_split(&s.seeds, "seeds", seeds)) &&
        !(code = search_seeds ? sweep_split(&s.search_seeds, "search-seeds", search_seeds) : CLI_OK) &&
        !(code = endpoint ? sweep_split(&s.endpoint, "endpoint", endpoint) : CLI_OK) &&
        !(code = sweep_extend_rates(&s)))
        code = sweep_all(&s);
    if (!ranks_failed()) farm_close();
    sweep_free_lists(&s);
    pal_free(s.runs);
    json_decref(s.train_options);
    return code;
}
