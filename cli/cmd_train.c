/* SPDX-License-Identifier: MIT */
/* palimpsa train: options to a run directory, by pal_train_run, and what people see of it. */
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/context.h"
#include "base/log.h"
#include "cli.h"
#include "format/json.h"
#include "plot/runs.h"
#include "progress.h"
#include "ranks.h"
#include "stop.h"
#include "train/run.h"
#include "train_command.h"

/* The run's settings, and how to run it. */
typedef struct {
    pal_train_settings settings;
    const char *out, *config, *recipe, *cpu;
    bool resume, dry_run;
    int64_t stop_after;
    double comm_timeout;
} options;

enum { HOW = 8, ALL = HOW + PAL_RUN_SETTINGS };

static size_t option_table(options *o, cli_option table[ALL]) {
    const cli_option how[HOW] = {
        { "out", OPT_TEXT, &o->out, "RUNDIR", "run directory to create" },
        { "resume", OPT_FLAG, &o->resume, NULL, "resume from the newest checkpoint of RUNDIR" },
        { "stop-after", OPT_LONG, &o->stop_after, "N", "stop cleanly after N updates of the same schedule",
          .above_zero = true },
        { "dry-run", OPT_FLAG, &o->dry_run, NULL,
          "check everything, print the plan and stop; leaves no files (a text is read and its tokens counted)" },
        { "config", OPT_TEXT, &o->config, "FILE", "read options from a JSON file; the command line wins" },
        { "recipe", OPT_TEXT, &o->recipe, "NAME",
          "read options from a recipe that comes with the program (configs/NAME.json)" },
        { "comm-timeout", OPT_FLOAT, &o->comm_timeout, "SECONDS",
          "under mpirun: stop when another rank has been silent for this long, checkpoints not "
          "counted (default 120)",
          .above_zero = true },
        { "cpu", OPT_TEXT, &o->cpu, "LEVEL",
          "instruction level: ref, avx2, avx512 or neon (default: PALIMPSA_CPU, else the best)" },
    };
    for (int i = 0; i < HOW; i++) {
        table[i] = how[i];
        table[i].transient = true;
    }
    return HOW + pal_run_table(&o->settings, table + HOW);
}

/* RUNDIR/report.html: the same as `palimpsa plot RUNDIR --out report.html`. A run that was stopped before its first
 * line of metrics has nothing to show yet. */
static int write_report(const char *run) {
    char path[4096];
    pal_runs *runs;
    pal_error err;
    struct stat info;
    if (pal_figures_drawn(&err)) return CLI_OK; /* nothing was promised */
    if (snprintf(path, sizeof path, "%s/metrics.jsonl", run) < (int)sizeof path && stat(path, &info) == 0 &&
        info.st_size == 0)
        return CLI_OK;
    const int code = cli_path(path, sizeof path, "%s/report.html", run);
    if (code) return code;
    if (pal_runs_open(&runs, &run, 1, &err)) return cli_error(CLI_FAILED, "%s", err.text);
    const pal_status st = pal_runs_write(runs, &(pal_runs_options){ .command = train_command }, path, &err);
    pal_runs_free(runs);
    return st ? cli_error(CLI_FAILED, "%s", err.text) : CLI_OK;
}

/* mpirun gives each rank its processors; more threads than those get in each other's way. */
static void warn_of_threads(const pal_context *cx) {
    cpu_set_t set;
    if (ranks_comm()->size == 1 || sched_getaffinity(0, sizeof set, &set) != 0) return;
    if (pal_context_threads(cx) > CPU_COUNT(&set))
        pal_warn("%d threads a rank, and mpirun gave each rank %d processor%s (see its --bind-to and --map-by)",
                 pal_context_threads(cx), CPU_COUNT(&set), CPU_COUNT(&set) == 1 ? "" : "s");
}

/* What the library's calls find. */
typedef struct {
    const options *o;
    const pal_context *cx;
    progress progress;
} view;

static bool on_progress(void *user, size_t done, size_t total) {
    view *v = user;
    (void)done, (void)total;
    progress_train(&v->progress);
    return !cli_stopping();
}

static void tell(void *user, const char *line) {
    view *v = user;
    live_clear(&v->progress.line);
    puts(line);
}

/* The plan: model, memory, tokens, and a rough time. */
static void tell_plan(void *user, const pal_train_plan *plan) {
    view *v = user;
    const double mib = 1048576;
    const int count = ranks_comm()->size, threads = pal_context_threads(v->cx);
    char time[32], ranks[32] = "";
    v->progress = progress_begin(v->cx, plan->token_flops);
    v->progress.peak_flops *= count;
    if (count > 1) snprintf(ranks, sizeof ranks, "%d ranks of ", count);
    printf("%s, %zu parameters, %s%d thread%s, %s; %.0f MiB in addition to the weights%s\n", plan->model,
           plan->parameters, ranks, threads, threads == 1 ? "" : "s", pal_cpu_level_name(pal_context_level(v->cx)),
           (double)plan->bytes / mib, count > 1 ? " a rank" : "");
    if (v->o->settings.recompute)
        printf("recompute: activations take %.0f MiB instead of %.0f, for one more forward (about a third more time)\n",
               (double)plan->activations / mib, (double)plan->other_activations / mib);
    else if (plan->activations > plan->bytes / 2)
        printf("activations are %.0f MiB of it; with --recompute they would be %.0f, for about a third more time\n",
               (double)plan->activations / mib, (double)plan->other_activations / mib);
    puts(plan->task);
    progress_duration(time, progress_estimate(&v->progress, plan->tokens));
    const bool many = plan->tokens >= 1e5;
    printf("%.4g%s tokens%s, roughly %s on this machine\n", many ? plan->tokens / 1e6 : plan->tokens,
           many ? " million" : "", plan->step ? " left" : "", time);
    if (plan->step) printf("resuming %s at step %lld\n", v->o->out, (long long)plan->step);
    if (!v->o->dry_run) { /* before the plan is out: a reader of it may answer with a signal */
        if (pal_comm_is_root(ranks_comm()))
            cli_stop_say("stopping after this update; a second signal ends the program at once");
        cli_stop_on_signals(true);
    }
    fflush(stdout);
}

/* The result: a sentence without its end. */
static void tell_result(const options *o, const pal_train_result *r) {
    if (strcmp(o->settings.task, "mqar") == 0)
        printf("accuracy %.4f (best %.4f at step %lld)", r->score, r->best_score, (long long)r->best_step);
    else if (!r->validated)
        printf("loss %.4f, perplexity %.4g; nothing was held back to validate on", r->loss, exp(r->loss));
    else if (isfinite(r->score))
        printf("validation loss %.4f, perplexity %.4g (best %.4f at step %lld)", -r->score, exp(-r->score),
               -r->best_score, (long long)r->best_step);
    else if (isfinite(r->best_score))
        printf("the validation loss is not a number (best %.4f at step %lld)", -r->best_score, (long long)r->best_step);
    else printf("the validation loss is not a number");
}

static int train(const options *o, const pal_context *cx) {
    view v = { .o = o, .cx = cx };
    const pal_train_run_options run = { .resume = o->resume,
                                        .dry_run = o->dry_run,
                                        .any_cpu = o->cpu != NULL,
                                        .stop_after = o->stop_after,
                                        .progress = on_progress,
                                        .report = &v.progress.now,
                                        .planned = tell_plan,
                                        .tell = tell,
                                        .user = &v,
                                        .comm = ranks_comm() };
    pal_train_result result;
    pal_error err;
    char word[4096];
    const pal_status st = pal_train_run(o->out, &o->settings, &run, cx, &result, &err);
    cli_stop_say(NULL); /* there is nothing left to stop: mpirun signals the others when one rank has failed */
    progress_end(&v.progress);
    if (st && st != PAL_STOPPED) return result.at_work ? cli_fail_writing(&err) : cli_fail(&err);
    if (result.finished_before) {
        printf("%s is finished at step %lld; nothing to do\n", o->out, (long long)result.step);
        return CLI_OK;
    }
    if (o->dry_run) return CLI_OK;
    if (result.skipped) printf("%lld updates were skipped: their gradient was not finite\n", (long long)result.skipped);
    if (st == PAL_STOPPED)
        printf("stopped at step %lld, checkpoint written; resume with: palimpsa train --resume --out %s\n",
               (long long)result.step, cli_shell_word(o->out, word, sizeof word));
    else {
        printf("finished at step %lld: ", (long long)result.step);
        tell_result(o, &result);
        if (pal_figures_drawn(&err) == PAL_OK) printf("; see %s/report.html", o->out);
        printf("\n");
    }
    const int code = pal_comm_is_root(ranks_comm()) ? write_report(o->out) : CLI_OK;
    const bool interrupted = st == PAL_STOPPED && !(o->stop_after && result.step >= o->stop_after);
    if (!code && !st && (!isfinite(result.loss) || (result.validated && !isfinite(result.score))))
        return cli_error(CLI_FAILED, "%s: training diverged: its loss is not a number; try a lower --lr", o->out);
    return code || !interrupted ? code : CLI_INTERRUPTED;
}

/* The task decides the defaults of the other options, so it is looked for first: on the command line, else in the file.
 */
static int set_defaults(options *o, int argc, char **argv, const char *file) {
    bool starved = false;
    json_t *config = file ? pal_json_load(file, 0, NULL, &starved) : NULL; /* cli_read_config says what is wrong */
    if (starved) return cli_error(CLI_FAILED, "out of memory while reading %s", file);
    const char *name = json_string_value(json_object_get(config, "task"));
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i] + (argv[i][0] == '-') + (argv[i][0] == '-' && argv[i][1] == '-');
        if (word == argv[i]) continue;
        if (strcmp(word, "task") == 0 && i + 1 < argc) name = argv[i + 1];
        if (strncmp(word, "task=", 5) == 0) name = word + 5;
    }
    if (!name || pal_train_defaults(&o->settings, name, NULL)) pal_train_defaults(&o->settings, "mqar", NULL);
    json_decref(config);
    return CLI_OK;
}

/* A model directory has a config.json as well, which names no task. */
static int refuse_model(const char *directory, const char *path) {
    bool starved = false;
    json_t *config = pal_json_load(path, 0, NULL, &starved);
    const bool model = json_is_object(config) && !json_object_get(config, "task");
    json_decref(config);
    if (starved) return cli_error(CLI_FAILED, "out of memory while reading %s", path);
    if (model)
        return cli_error(CLI_USAGE, "%s is a model, not a run; to train on from it: --model %s --out RUNDIR", directory,
                         directory);
    return CLI_OK;
}

/* The file that further options come from; "": none. */
static int find_file(const options *o, char path[4096]) {
    path[0] = '\0';
    if (o->resume && (o->config || o->recipe))
        return cli_error(CLI_USAGE,
                         "train: --resume takes the configuration of RUNDIR; leave out --config and --recipe");
    if (o->recipe && o->config) return cli_error(CLI_USAGE, "train: either --config or --recipe");
    if (o->recipe) return cli_find_recipe(path, o->recipe);
    const char *from = o->resume ? o->out : "";
    const int code = cli_path(path, 4096, "%s%s", o->config ? o->config : from, o->resume ? "/config.json" : "");
    if (code) return code;
    if (!o->resume || !pal_comm_is_root(ranks_comm())) return CLI_OK;
    if (access(path, F_OK) != 0) return cli_error(CLI_USAGE, "%s holds no run to resume", o->out);
    return refuse_model(o->out, path);
}

static int read_options(options *o, const cli_usage *usage, int argc, char **argv) {
    char file[4096];
    int given, code = cli_parse(usage, argc, argv, NULL, 0, &given);
    if (code) return code;
    if (!o->out) return cli_error(CLI_USAGE, "train: --out RUNDIR is missing");
    if (!*o->out) return cli_error(CLI_USAGE, "train: --out expects a directory, found an empty name");
    if (o->dry_run && o->resume)
        return cli_error(CLI_USAGE, "train: --dry-run is for a run that has not begun; leave out --resume");
    if (o->settings.steps && o->settings.epochs)
        return cli_error(CLI_USAGE, "train: either --steps or --epochs says how long the run is");
    const bool by_epochs = o->settings.epochs && !o->resume;
    if ((code = find_file(o, file)) || (code = ranks_share_file(file))) return code;
    if (*file) { /* the file first, then the command line again on top of it */
        if ((code = set_defaults(o, argc, argv, file)) || (code = cli_read_config(usage, file))) return code;
        cli_parse(usage, argc, argv, NULL, 0, &given);
        if (by_epochs) o->settings.steps = 0; /* the command line wins, also where the file says it in steps */
    }
    if (!o->settings.model)
        return cli_error(CLI_USAGE, "train: --model NAME|DIR is missing: palimpsa-d, palimpsa-m, gated-deltanet, "
                                    "transformer, ..., or a model directory");
    return CLI_OK;
}

int cmd_train(int argc, char **argv) {
    options o = { .comm_timeout = 120 };
    cli_option table[ALL];
    (void)set_defaults(&o, argc, argv, NULL); /* reads nothing */
    const cli_usage usage = {
        .synopsis = "train --task mqar|text --model NAME|DIR --out RUNDIR [options]",
        .about = "Trains a model, or resumes a training run.\n\n"
                 "RUNDIR gets config.json, metrics.jsonl, checkpoints and report.html. Ctrl-C finishes the "
                 "update, writes a checkpoint and prints how to resume; a resumed run equals an "
                 "uninterrupted one bit for bit. Defaults are those of task mqar; those of text follow "
                 "where they differ.",
        .examples =

            "  palimpsa train --recipe shakespeare --data input.txt --model palimpsa-m --out "
            "runs/talk\n  palimpsa train --resume --out runs/talk\n  palimpsa train --task text "
            "--data shards --model palimpsa-d-15m --sample 'Once' --out runs/tales\n  palimpsa train "
            "--task text --data letters.jsonl --model runs/tales --epochs 1 --out runs/letters\n  "
            "palimpsa train --model palimpsa-d --seq-len 64 --kv-pairs 16 --batch 16 --steps 400 --lr "
            "3e-3 --out runs/a\n  palimpsa train --model palimpsa-m-wo-meta --stages "
            "128:32:20:128,256:64:20:128 --out runs/mamba2\n  palimpsa train --model palimpsa-d "
            "--rule longhorn --epochs 4 --out runs/longhorn\n  mpirun -n 4 palimpsa train --task text "
            "--data shards --model palimpsa-d-170m --out runs/wide\n",
        .options = table,
        .option_count = option_table(&o, table),
    };
    int code = read_options(&o, &usage, argc, argv);
    if (code) return code < 0 ? CLI_OK : code;
    pal_context *cx;
    pal_error err;
    if (pal_context_new(&cx, o.settings.threads, o.cpu, &err)) return cli_fail(&err);
    ranks_set_timeout(o.comm_timeout);
    warn_of_threads(cx);
    code = train(&o, cx);
    pal_context_free(cx);
    return code;
}
