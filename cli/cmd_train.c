/* SPDX-License-Identifier: MIT */
/* palimpsa train: options to a run directory. What defines the run is config.json there; a resumed run starts from it.
 */
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/context.h"
#include "base/log.h"
#include "format/source.h"
#include "named_model.h"
#include "plot/runs.h"
#include "progress.h"
#include "ranks.h"
#include "stop.h"
#include "train.h"
#include "train/checkpoint.h"

static const train_task *const tasks[] = { &train_mqar, &train_text };

const train_task *train_task_named(const char *name) {
    for (size_t i = 0; i < PAL_COUNT(tasks); i++)
        if (strcmp(tasks[i]->name, name) == 0) return tasks[i];
    return NULL;
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

static bool on_progress(void *user, size_t done, size_t total) {
    (void)done, (void)total;
    progress_train(user);
    return !cli_stopping();
}

/* Bits depend on the level, so a run keeps the one its checkpoints were made at. On a machine that cannot (another kind
 * of processor) it goes on with other rounding, but only when asked to. */
static int check_level(const char *run, const json_t *state, const pal_context *cx, const char *named) {
    const char *before = json_string_value(json_object_get(state, "cpu")),
               *level = pal_cpu_level_name(pal_context_level(cx));
    if (!before || strcmp(before, level) == 0) return CLI_OK;
    for (pal_cpu_level l = 0; l < PAL_CPU_LEVELS; l++) {
        if (strcmp(before, pal_cpu_level_name(l)) != 0 || pal_cpu_runs(l)) continue;
        if (!named)
            return cli_error(CLI_USAGE,
                             "%s was trained at processor level %s, which this machine does not have; --cpu %s resumes "
                             "it all the same, with other rounding",
                             run, before, level);
        pal_warn("%s goes on at processor level %s, not %s as before: its bits will differ", run, level, before);
        return CLI_OK;
    }
    return cli_error(CLI_USAGE, "%s was trained at processor level %s, now %s; resume it with --cpu %s", run, before,
                     level, before);
}

/* Everything that one call of the command holds. */
typedef struct {
    train_options *o;
    const cli_usage *usage;
    const pal_context *cx;
    const train_task *kind;
    char path[4096]; /* of config.json */
    int lock;
    bool made;  /* the run's directory, by this call */
    bool began; /* the run has a config.json */
    void *self; /* the task's part */
    pal_task task;
    pal_train_options settings;
    json_t *config, *state;
    int64_t step;
    pal_model *model;
} run;

/* What is wrong whatever the data are is said before anything is read or made. */
static int check_new(const run *r, pal_model_config *model) {
    train_options known = *r->o;
    pal_train_options t;
    int code;
    if (isnan(known.lr)) known.lr = 1; /* these two are settled by the data */
    if (known.warmup < 0) known.warmup = 0;
    if ((code = train_settings(&known, &t)) || (code = train_plan_model(r->o, model))) return code;
    return r->kind->check(r->o, model);
}

/* Keeps others out, before the first byte is written. */
static int enter(run *r) {
    int code = CLI_OK;
    if (!pal_comm_is_root(ranks_comm())) return CLI_OK;
    if (r->o->resume) return cli_lock(r->o->out, false, &r->lock);
    if (!r->o->dry_run && (code = cli_lock_new(r->o->out, &r->lock, &r->made))) return code;
    if (access(r->path, F_OK) != 0) return CLI_OK;
    return cli_error(CLI_USAGE, "%s already holds a run; use --resume to go on with it, or another --out", r->o->out);
}

/* A run directory's newest checkpoint moves on; the run has to begin with the same one when it is resumed early. */
static int remember_weights(train_options *o) {
    static char from[4096]; /* lives as long as the options that point to it */
    pal_source source;
    pal_error err;
    if (!cli_names_files(o->model)) return CLI_OK;
    if (pal_source_open(&source, o->model, &err)) return cli_fail(&err);
    if (strcmp(source.path, o->model) != 0 && snprintf(from, sizeof from, "%s", source.path) < (int)sizeof from)
        o->weights = from;
    pal_source_close(&source);
    return CLI_OK;
}

/* The newest checkpoint, and whether the run may go on from it. */
static int open_checkpoint(run *r, bool *nothing) {
    pal_error err;
    bool extended;
    int code;
    if (pal_checkpoint_open(r->o->out, r->cx, &r->model, &r->state, &r->step, &err)) return cli_fail(&err);
    const train_resumed resumed = { .task = r->kind,
                                    .path = r->path,
                                    .wanted = r->config,
                                    .state = r->state,
                                    .step = r->step,
                                    .total = pal_task_steps(&r->task),
                                    .constant = r->settings.schedule == PAL_SCHEDULE_CONSTANT };
    if ((code = train_may_resume(&resumed, nothing, &extended))) return code;
    if (*nothing) {
        printf("%s is finished at step %lld; nothing to do\n", r->o->out, (long long)r->step);
        return CLI_OK;
    }
    if ((code = check_level(r->o->out, r->state, r->cx, r->o->common.cpu))) return code;
    return extended ? train_write_config(r->path, r->config) : CLI_OK;
}

/* What rank 0 found in the newest checkpoint, to everybody: the others have no need of the run's directory. */
static int share_checkpoint(run *r, bool *nothing) {
    const pal_comm *comm = ranks_comm();
    pal_error err;
    struct {
        int64_t step;
        bool nothing, resumed;
    } found = { .step = r->step, .nothing = *nothing, .resumed = r->state != NULL };
    if (comm->size == 1) return CLI_OK;
    if (pal_comm_meet(comm, &err) || /* reading takes any time */
        pal_comm_broadcast(comm, &found, sizeof found, &err))
        return cli_error(CLI_FAILED, "%s", err.text);
    *nothing = found.nothing;
    r->step = found.step;
    if (!found.resumed) return CLI_OK;
    const size_t flags = JSON_COMPACT | JSON_REAL_PRECISION(17);
    char *dumped = pal_comm_is_root(comm) ? json_dumps(r->state, flags) : NULL, *text = dumped;
    if (pal_comm_broadcast_text(comm, &text, &err)) return cli_error(CLI_FAILED, "%s", err.text);
    if (!dumped) {
        r->state = json_loads(text, 0, NULL);
        pal_free(text);
    }
    free(dumped);
    return r->state ? CLI_OK : cli_error(CLI_FAILED, "no memory for the state of the run");
}

/* Everybody begins with the weights of rank 0. */
static int share_weights(run *r) {
    const pal_comm *comm = ranks_comm();
    pal_error err;
    char flat[32];
    snprintf(flat, sizeof flat, "%zu", pal_model_flat(r->model));
    if (pal_comm_meet(comm, &err)) return cli_error(CLI_FAILED, "%s", err.text); /* some read them from a slow disk */
    const int code = ranks_agree("the model's size", flat);
    if (code) return code;
    if (pal_comm_broadcast(comm, pal_model_flat_parameters(r->model), pal_model_flat(r->model) * sizeof(float), &err))
        return cli_error(CLI_FAILED, "%s", err.text);
    return CLI_OK;
}

/* mpirun gives each rank its processors; more threads than those get in each other's way. */
static void warn_of_threads(const pal_context *cx) {
    cpu_set_t set;
    if (ranks_comm()->size == 1 || sched_getaffinity(0, sizeof set, &set) != 0) return;
    if (pal_context_threads(cx) > CPU_COUNT(&set))
        pal_warn("%d threads a rank, and mpirun gave each rank %d processor%s (see its --bind-to and --map-by)",
                 pal_context_threads(cx), CPU_COUNT(&set), CPU_COUNT(&set) == 1 ? "" : "s");
}

/* The plan: model, memory, tokens, and a rough time. */
static void tell_plan(const run *r, const pal_train_plan *plan, const progress *view) {
    const double done = pal_task_steps(&r->task) ? (double)r->step / (double)pal_task_steps(&r->task) : 0,
                 tokens = r->kind->tokens(r->self) * (1 - done), mib = 1048576;
    char kind[64], time[32];
    pal_model_describe(pal_model_config_of(r->model), kind);
    char ranks[32] = "";
    if (r->o->ranks > 1) snprintf(ranks, sizeof ranks, "%d ranks of ", r->o->ranks);
    printf("%s, %zu parameters, %s%d thread%s, %s; %.0f MiB beside the weights%s\n", kind,
           pal_model_parameters(r->model), ranks, pal_context_threads(r->cx),
           pal_context_threads(r->cx) == 1 ? "" : "s", pal_cpu_level_name(pal_context_level(r->cx)),
           (double)plan->total / mib, r->o->ranks > 1 ? " a rank" : "");
    if (r->o->recompute)
        printf("recompute: activations take %.0f MiB instead of %.0f, for one more forward (about a third more time)\n",
               (double)plan->activations / mib, (double)plan->other_activations / mib);
    else if (plan->activations > plan->total / 2)
        printf("activations are %.0f MiB of it; with --recompute they would be %.0f, for about a third more time\n",
               (double)plan->activations / mib, (double)plan->other_activations / mib);
    r->kind->tell(r->o, r->self);
    progress_duration(time, progress_estimate(view, tokens));
    const bool many = tokens >= 1e5;
    printf("%.4g%s tokens%s, roughly %s on this machine\n", many ? tokens / 1e6 : tokens, many ? " million" : "",
           r->step ? " left" : "", time);
    fflush(stdout);
}

static int train(run *r, pal_trainer *trainer, progress *view) {
    pal_train_result result;
    pal_error err;
    char word[4096];
    const pal_status st = pal_train(trainer, r->model, r->state, r->step, &result, &err);
    progress_end(view);
    if (st && st != PAL_STOPPED)
        return cli_error(st == PAL_E_IO || st == PAL_E_MEMORY ? CLI_FAILED : CLI_USAGE, "%s", err.text);
    if (result.skipped) printf("%lld updates were skipped: their gradient was not finite\n", (long long)result.skipped);
    if (st == PAL_STOPPED)
        printf("stopped at step %lld, checkpoint written; go on with: palimpsa train --resume --out %s\n",
               (long long)result.step, cli_shell_word(r->o->out, word, sizeof word));
    else {
        printf("finished at step %lld: ", (long long)result.step);
        r->kind->report(r->self, &result);
        pal_error none;
        if (pal_figures_drawn(&none) == PAL_OK) printf("; see %s/report.html", r->o->out);
        printf("\n");
    }
    return pal_comm_is_root(ranks_comm()) ? write_report(r->o->out) : CLI_OK;
}

static int carry_out(run *r) {
    train_options *o = r->o;
    pal_model_config planned;
    pal_train_plan plan;
    pal_error err;
    bool nothing = false;
    int code;
    if ((code = cli_path(r->path, sizeof r->path, "%s/config.json", o->out))) return code;
    if (!o->resume && (code = check_new(r, &planned))) return code;
    if ((code = enter(r)) || (!o->resume && (code = remember_weights(o)))) return code;
    if ((code = r->kind->open(&r->self, o, o->resume ? NULL : &planned, r->cx, &r->task)) ||
        (code = train_settings(o, &r->settings)))
        return code;
    if ((code = ranks_agree("the data's checksum", o->data_checksum))) return code;
    r->config = train_config(r->usage, r->kind);
    if (o->resume && pal_comm_is_root(ranks_comm()) && (code = open_checkpoint(r, &nothing))) return code;
    if (o->resume && ((code = share_checkpoint(r, &nothing)) || nothing)) return code;
    if (!r->model && (code = train_make_model(o, r->cx, &r->model))) return code; /* or resumed before the first one */
    if ((code = share_weights(r))) return code;
    pal_trainer trainer = { .run = o->out,
                            .cx = r->cx,
                            .task = &r->task,
                            .comm = ranks_comm(),
                            .options = r->settings,
                            .progress = on_progress };
    if (pal_train_prepare(&trainer, r->model, &plan, &err)) return cli_fail(&err);
    /* Nothing is written before everything is known to fit. */
    if (!o->resume && !o->dry_run && pal_comm_is_root(ranks_comm()) && (code = train_write_config(r->path, r->config)))
        return code;
    r->began = !o->dry_run;
    progress view = progress_begin(r->cx, cli_flops_per_token(r->model, r->kind->labelled(r->self)));
    view.peak_flops *= o->ranks;
    trainer.user = &view;
    trainer.report = &view.now;
    tell_plan(r, &plan, &view);
    if (o->dry_run) return CLI_OK;
    if (r->step) printf("resuming %s at step %lld\n", o->out, (long long)r->step);
    cli_stop_on_signals(true);
    return train(r, &trainer, &view);
}

/* Whether an option has another value than its default. */
static bool was_given(const cli_option *o, const cli_option *by_default) {
    switch (o->type) {
    case OPT_FLAG: return *(bool *)o->value != *(bool *)by_default->value;
    case OPT_INT: return *(int *)o->value != *(int *)by_default->value;
    case OPT_LONG: return *(int64_t *)o->value != *(int64_t *)by_default->value;
    case OPT_FLOAT: return memcmp(o->value, by_default->value, sizeof(double)) != 0;
    case OPT_TEXT: return *(const char **)o->value != *(const char **)by_default->value;
    case OPT_LIST: break;
    }
    return false;
}

/* An option of another task would be passed over in silence. */
static int refuse_others(const cli_usage *usage, const train_task *kind) {
    train_options by_default;
    cli_option table[TRAIN_OPTIONS];
    kind->defaults(&by_default);
    train_option_table(&by_default, table);
    for (size_t i = 0; i < usage->option_count; i++)
        for (size_t k = 0; k < PAL_COUNT(tasks); k++) {
            const cli_option *o = &usage->options[i];
            if (tasks[k] != kind && o->group && strcmp(o->group, tasks[k]->group) == 0 && was_given(o, &table[i]))
                return cli_error(CLI_USAGE, "--%s goes with --task %s", o->name, tasks[k]->name);
        }
    return CLI_OK;
}

/* The task decides the defaults of the other options, so it is looked for first: on the command line, else in the file.
 */
static void set_defaults(train_options *o, int argc, char **argv, const char *file) {
    json_t *config = file ? json_load_file(file, 0, NULL) : NULL;
    const char *name = json_string_value(json_object_get(config, "task"));
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i] + (argv[i][0] == '-') + (argv[i][0] == '-' && argv[i][1] == '-');
        if (word == argv[i]) continue;
        if (strcmp(word, "task") == 0 && i + 1 < argc) name = argv[i + 1];
        if (strncmp(word, "task=", 5) == 0) name = word + 5;
    }
    const train_task *kind = name ? train_task_named(name) : NULL;
    (kind ? kind : tasks[0])->defaults(o);
    json_decref(config);
}

/* The file that options come from beside the command line; "": none. */
static int find_file(const train_options *o, char path[4096]) {
    path[0] = '\0';
    if (o->resume && (o->config || o->recipe))
        return cli_error(CLI_USAGE,
                         "train: --resume takes the configuration of RUNDIR; leave out --config and --recipe");
    if (o->recipe && o->config) return cli_error(CLI_USAGE, "train: either --config or --recipe");
    if (o->recipe) return cli_find_recipe(path, 4096, o->recipe);
    const char *from = o->resume ? o->out : "";
    const int code = cli_path(path, 4096, "%s%s", o->config ? o->config : from, o->resume ? "/config.json" : "");
    if (code) return code;
    if (o->resume && pal_comm_is_root(ranks_comm()) && access(path, F_OK) != 0)
        return cli_error(CLI_USAGE, "%s holds no run to resume", o->out);
    return CLI_OK;
}

static int read_options(train_options *o, const cli_usage *usage, int argc, char **argv) {
    char file[4096];
    int given, code = cli_parse(usage, argc, argv, NULL, 0, &given);
    if (code) return code;
    if (!o->out) return cli_error(CLI_USAGE, "train: --out RUNDIR is missing");
    if (!*o->out) return cli_error(CLI_USAGE, "train: --out expects a directory, found an empty name");
    if (o->dry_run && o->resume)
        return cli_error(CLI_USAGE, "train: --dry-run is for a run that has not begun; leave out --resume");
    if (o->steps && o->epochs)
        return cli_error(CLI_USAGE, "train: either --steps or --epochs says how long the run is");
    const bool by_epochs = o->epochs && !o->resume;
    if ((code = find_file(o, file)) || (code = ranks_share_file(file))) return code;
    if (*file) { /* the file first, then the command line again on top of it */
        set_defaults(o, argc, argv, file);
        if ((code = cli_read_config(usage, file))) return code;
        cli_parse(usage, argc, argv, NULL, 0, &given);
        if (by_epochs) o->steps = 0; /* the command line wins, also where the file says it in steps */
    }
    if (!o->model)
        return cli_error(CLI_USAGE, "train: --model NAME|DIR is missing: palimpsa-d, palimpsa-m, gated-deltanet, "
                                    "transformer, ..., or a model directory");
    return CLI_OK;
}

int cmd_train(int argc, char **argv) {
    train_options o;
    cli_option options[TRAIN_OPTIONS];
    set_defaults(&o, argc, argv, NULL);
    const cli_usage usage = {
        .synopsis = "train --task mqar|text --model NAME|DIR --out RUNDIR [options]",
        .about = "Trains a model into RUNDIR: config.json, metrics.jsonl and checkpoints. Ctrl-C finishes the update, "
                 "writes a\n"
                 "checkpoint and says how to resume; a resumed run equals an uninterrupted one bit for bit. Defaults "
                 "are those\n"
                 "of task mqar; where text has others, they follow.",
        .examples =
            "  palimpsa train --model palimpsa-d --seq-len 64 --kv-pairs 16 --batch 16 --steps 400 --lr 3e-3 --out "
            "runs/a\n"
            "  palimpsa train --resume --out runs/a\n"
            "  palimpsa train --model palimpsa-m-wo-meta --stages 128:32:20:128,256:64:20:128 --out runs/mamba2\n"
            "  palimpsa train --model palimpsa-d --rule longhorn --epochs 4 --out runs/longhorn\n"
            "  palimpsa train --task text --data book.txt --tokenizer chars --model palimpsa-m --epochs 5 --out "
            "runs/book\n"
            "  palimpsa train --task text --data shards --model palimpsa-d-15m --steps 2000 --sample 'Once' --out "
            "runs/tales\n"
            "  mpirun -n 4 palimpsa train --task text --data shards --model palimpsa-d-170m --batch 8 --out runs/wide\n"
            "  palimpsa train --task text --data letters.jsonl --model runs/tales --epochs 1 --out runs/letters\n",
        .options = options,
        .option_count = train_option_table(&o, options),
    };
    int code = read_options(&o, &usage, argc, argv);
    if (code) return code < 0 ? CLI_OK : code;
    run r = { .o = &o, .usage = &usage, .kind = train_task_named(o.task), .lock = -1 };
    if (!r.kind) return cli_error(CLI_USAGE, "task '%s': expected mqar or text", o.task);
    if ((code = refuse_others(&usage, r.kind))) return code;
    pal_context *cx;
    pal_error err;
    if (pal_context_new(&cx, o.common.threads, o.common.cpu, &err)) return cli_fail(&err);
    o.common.threads = pal_context_threads(cx); /* results depend on it, so it is part of the run */
    o.ranks = ranks_comm()->size;
    ranks_set_timeout(o.comm_timeout);
    warn_of_threads(cx);
    r.cx = cx;
    code = carry_out(&r);
    json_decref(r.state);
    json_decref(r.config);
    pal_model_close(r.model);
    r.kind->close(r.self, r.began || o.resume || code == CLI_FAILED); /* a full disk is no reason to lose shards */
    cli_unlock(o.out, r.lock, r.made);
    pal_context_free(cx);
    return code;
}
