/* SPDX-License-Identifier: MIT */
/* A run from its settings to its end. What defines it is config.json in its directory; a resumed run starts from it. */
#include "train/run.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/context.h"
#include "base/directory.h"
#include "base/lock.h"
#include "base/log.h"
#include "format/json.h"
#include "format/source.h"
#include "model/model.h"
#include "model/named.h"
#include "train/checkpoint.h"

static const pal_run_task *const tasks[] = { &pal_run_mqar, &pal_run_text };

const pal_run_task *pal_run_task_at(int index) { return index < (int)PAL_COUNT(tasks) ? tasks[index] : NULL; }

const pal_run_task *pal_run_task_named(const char *name) {
    for (size_t i = 0; i < PAL_COUNT(tasks); i++)
        if (strcmp(tasks[i]->name, name) == 0) return tasks[i];
    return NULL;
}

static pal_status find_task(const pal_run_task **out, const char *name, pal_error *err) {
    *out = name ? pal_run_task_named(name) : NULL;
    return *out ? PAL_OK : pal_fail(err, PAL_E_ARGUMENT, "task '%s': expected mqar or text", name ? name : "");
}

pal_status pal_train_defaults(pal_train_settings *out, const char *task, pal_error *err) {
    const pal_run_task *kind;
    const pal_status st = find_task(&kind, task, err);
    if (!st) kind->defaults(out);
    return st;
}

void pal_run_tell(const pal_run *r, const char *format, ...) {
    char line[8192];
    va_list arguments;
    if (!r->options->tell) return;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    r->options->tell(r->options->user, line);
}

/* Who has said no is not asked again. */
static bool ask(pal_run *r) {
    const pal_train_run_options *o = r->options;
    if (o->report) *o->report = r->now;
    if (!r->stopping && o->progress) r->stopping = !o->progress(o->user, (size_t)r->now.step, (size_t)r->now.total);
    return !r->stopping;
}

static bool on_update(void *user, size_t done, size_t total) {
    (void)done, (void)total;
    return ask(user);
}

bool pal_run_goes_on(pal_run *r) {
    r->now.logged = r->now.evaluated = false;
    r->now.evaluating = true;
    r->now.sample = NULL;
    return ask(r);
}

pal_status pal_run_ask(void *run, pal_error *err) {
    pal_run *r = run;
    bool stops;
    const pal_status st = pal_comm_any(r->comm, !pal_run_goes_on(r), &stops, err);
    return st || !stops ? st : pal_fail(err, PAL_STOPPED, "stopped within an evaluation");
}

/* Everything that one call holds. */
typedef struct {
    pal_run run;
    pal_train_settings s;
    const pal_run_task *kind;
    char path[4096], weights[4096]; /* of config.json; what s.weights points to */
    json_t *kept;                   /* what texts of settings that were read point into */
    int lock;
    bool made;  /* the run's directory, by this call */
    bool began; /* the run has a config.json */
    void *self; /* the task's part */
    pal_task task;
    pal_train_options options;
    json_t *config, *state;
    int64_t step;
    pal_model *model;
} training_run;

static bool is_root(const training_run *t) { return pal_comm_is_root(t->run.comm); }

/* The settings of a run that is resumed without any. */
static pal_status read_settings(training_run *t, pal_error *err) {
    pal_option table[PAL_RUN_SETTINGS];
    pal_status st;
    if (access(t->path, F_OK) != 0) return pal_fail(err, PAL_E_ARGUMENT, "%s holds no run to resume", t->run.out);
    bool starved;
    json_t *config = pal_json_load(t->path, 0, NULL, &starved);
    if (starved) return pal_fail(err, PAL_E_MEMORY, "out of memory while reading %s", t->path);
    const char *name = json_string_value(json_object_get(config, "task"));
    st = name ? find_task(&t->kind, name, err)
              : pal_fail(err, PAL_E_FORMAT, "%s: expected a JSON object with the run's task", t->path);
    json_decref(config);
    if (st) return st;
    if (!(t->kept = json_array())) return pal_fail(err, PAL_E_MEMORY, "out of memory for %s", t->path);
    t->kind->defaults(&t->s);
    return pal_options_read(table, pal_run_table(&t->s, table), t->path, t->kept, err);
}

/* Bits depend on the level, so a run keeps the one its checkpoints were made at. On a machine that cannot (another kind
 * of processor) it resumes with other rounding, but only when asked to. */
static pal_status check_level(const training_run *t, pal_error *err) {
    const char *before = json_string_value(json_object_get(t->state, "cpu")),
               *level = pal_cpu_level_name(pal_context_level(t->run.cx)), *out = t->run.out;
    if (!before || strcmp(before, level) == 0) return PAL_OK;
    for (pal_cpu_level l = 0; l < PAL_CPU_LEVELS; l++) {
        if (strcmp(before, pal_cpu_level_name(l)) != 0 || pal_cpu_runs(l)) continue;
        if (!t->run.options->any_cpu)
            return pal_fail(err, PAL_E_ARGUMENT,
                            "%s was trained at processor level %s, which this machine does not have; --cpu %s resumes "
                            "it all the same, with other rounding",
                            out, before, level);
        pal_warn("%s resumes at processor level %s, not %s as before: its bits will differ", out, level, before);
        return PAL_OK;
    }
    return pal_fail(err, PAL_E_ARGUMENT, "%s was trained at processor level %s, now %s; resume it with --cpu %s", out,
                    before, level, before);
}

/* What is wrong whatever the data are is said before anything is read or made. */
static pal_status check_new(const training_run *t, pal_model_config *model, pal_error *err) {
    pal_train_settings known = t->s;
    pal_train_options options;
    pal_status st;
    if (isnan(known.lr)) known.lr = 1; /* these two are settled by the data */
    if (known.warmup < 0) known.warmup = 0;
    if ((st = pal_run_options(&known, &options, err)) || (st = pal_run_plan_model(&t->s, model, err))) return st;
    return t->kind->check(&t->s, model, err);
}

/* Keeps others out, before the first byte is written. A dry run on a text needs the directory for its shards,
 * and removes it again. */
static pal_status enter(training_run *t, pal_error *err) {
    const pal_run *r = &t->run;
    if (!is_root(t)) return PAL_OK;
    if (r->resume) return pal_lock_directory(&t->lock, r->out, false, err);
    if (!r->dry_run || t->kind == &pal_run_text) {
        const pal_status st = pal_lock_new_directory(&t->lock, &t->made, r->out, err);
        t->run.at_work = st == PAL_E_IO;
        if (st) return st;
    }
    if (access(t->path, F_OK) != 0) return PAL_OK;
    return pal_fail(err, PAL_E_ARGUMENT, "%s already holds a run; use --resume to continue it, or another --out",
                    r->out);
}

/* A run directory's newest checkpoint moves on; the run has to begin with the same one when it is resumed early. */
static pal_status remember_weights(training_run *t, pal_error *err) {
    pal_source source;
    pal_status st;
    if (!pal_names_files(t->s.model)) return PAL_OK;
    if ((st = pal_source_open(&source, t->s.model, err))) return st;
    if (strcmp(source.path, t->s.model) != 0 &&
        snprintf(t->weights, sizeof t->weights, "%s", source.path) < (int)sizeof t->weights)
        t->s.weights = t->weights;
    pal_source_close(&source);
    return PAL_OK;
}

/* The newest checkpoint, and whether the run may resume from it. */
static pal_status open_checkpoint(training_run *t, bool *nothing, pal_error *err) {
    bool extended;
    pal_status st;
    if ((st = pal_checkpoint_open(t->run.out, pal_run_trains_partly(&t->s) ? &t->options.optimiser : NULL, t->run.cx,
                                  &t->model, &t->state, &t->step, err)))
        return st;
    const pal_run_resumed asked = { .task = t->kind,
                                    .path = t->path,
                                    .wanted = t->config,
                                    .state = t->state,
                                    .step = t->step,
                                    .total = pal_task_steps(&t->task),
                                    .constant = t->options.schedule == PAL_SCHEDULE_CONSTANT };
    if ((st = pal_run_may_resume(&t->run, &asked, nothing, &extended, err)) || *nothing) return st;
    if ((st = check_level(t, err)) || !extended) return st;
    t->run.at_work = true;
    st = pal_run_write_config(t->path, t->config, err);
    t->run.at_work = st != PAL_OK;
    return st;
}

/* A communication failure is a runtime error, not a usage error. */
static pal_status among_ranks(training_run *t, pal_status st) {
    if (st) t->run.at_work = true;
    return st;
}

/* What rank 0 found in the newest checkpoint, to everybody: the others have no need of the run's directory. */
static pal_status share_checkpoint(training_run *t, bool *nothing, pal_error *err) {
    const pal_comm *comm = t->run.comm;
    pal_status st;
    struct {
        int64_t step;
        bool nothing, resumed;
    } found = { .step = t->step, .nothing = *nothing, .resumed = t->state != NULL };
    if (comm->size == 1) return PAL_OK;
    if ((st = pal_comm_meet(comm, err)) || /* reading takes any time */
        (st = pal_comm_broadcast(comm, &found, sizeof found, err)))
        return st;
    *nothing = found.nothing;
    t->step = found.step;
    if (!found.resumed) return PAL_OK;
    const size_t flags = JSON_COMPACT | JSON_REAL_PRECISION(17);
    char *dumped = is_root(t) ? pal_json_dumps(t->state, flags) : NULL, *text = dumped;
    if ((st = pal_comm_broadcast_text(comm, &text, err))) return st;
    if (!dumped) {
        bool starved;
        t->state = pal_json_parse(text, strlen(text), 0, NULL, &starved);
        pal_free(text);
    }
    free(dumped);
    return t->state ? PAL_OK : pal_fail(err, PAL_E_MEMORY, "out of memory for the state of the run");
}

/* Everybody begins with the weights of rank 0. */
static pal_status share_weights(training_run *t, pal_error *err) {
    char flat[32];
    pal_status st;
    snprintf(flat, sizeof flat, "%zu", pal_model_flat(t->model));
    if ((st = pal_comm_meet(t->run.comm, err)) || /* some read them from a slow disk */
        (st = pal_comm_agree(t->run.comm, "the model's size", flat, err)))
        return st;
    return pal_comm_broadcast(t->run.comm, pal_model_flat_parameters(t->model),
                              pal_model_flat(t->model) * sizeof(float), err);
}

static void tell_plan(const training_run *t, const pal_train_bytes *bytes) {
    const pal_train_run_options *o = t->run.options;
    const int64_t steps = pal_task_steps(&t->task);
    const double done = steps ? (double)t->step / (double)steps : 0;
    pal_train_plan plan = { .parameters = pal_model_parameters(t->model),
                            .bytes = bytes->total,
                            .activations = bytes->activations,
                            .other_activations = bytes->other_activations,
                            .step = t->step,
                            .tokens = t->kind->tokens(t->self) * (1 - done),
                            .token_flops = pal_run_token_flops(t->model, t->kind->labelled(t->self)) };
    pal_model_describe(pal_model_config_of(t->model), plan.model);
    t->kind->describe(&t->s, t->self, plan.task, sizeof plan.task);
    if (o->planned) o->planned(o->user, &plan);
}

static double number_of(const json_t *state, const char *key) {
    const json_t *value = json_object_get(state, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

/* The result of a run that had come to its end, read from its last checkpoint. */
static pal_train_result finished_before(const training_run *t) {
    return (pal_train_result){ .step = t->step,
                               .loss = NAN,
                               .score = number_of(t->state, "score"),
                               .best_score = number_of(t->state, "best_score"),
                               .best_step = json_integer_value(json_object_get(t->state, "best_step")),
                               .skipped = json_integer_value(json_object_get(t->state, "skipped")),
                               .tokens = (uint64_t)json_integer_value(json_object_get(t->state, "tokens")),
                               .validated = t->kind->validates(t->self),
                               .finished_before = true };
}

static pal_status carry_out(training_run *t, pal_train_result *result, pal_error *err) {
    pal_run *r = &t->run;
    pal_model_config planned;
    pal_train_bytes bytes;
    bool nothing = false;
    pal_status st;
    if ((st = pal_run_refuse_others(&t->s, t->kind, err))) return st;
    if (!r->resume && (st = check_new(t, &planned, err))) return st;
    if ((st = enter(t, err)) || (!r->resume && (st = remember_weights(t, err)))) return st;
    if ((st = t->kind->open(&t->self, r, &t->s, r->resume ? NULL : &planned, &t->task, err)) ||
        (st = pal_run_options(&t->s, &t->options, err)))
        return st;
    t->options.stop_after = r->options->stop_after;
    if ((st = among_ranks(t, pal_comm_agree(r->comm, "the data's checksum", t->s.data_checksum, err)))) return st;
    t->config = pal_run_config(&t->s, t->kind);
    if (!t->config) return pal_fail(err, PAL_E_MEMORY, "out of memory for the configuration of the run");
    if (r->resume && is_root(t) && (st = open_checkpoint(t, &nothing, err))) return st;
    if (r->resume && (st = among_ranks(t, share_checkpoint(t, &nothing, err)))) return st;
    if (nothing) {
        *result = finished_before(t);
        return PAL_OK;
    }
    /* A new one, or of a run that is resumed before its first checkpoint. */
    if (!t->model && (st = pal_run_make_model(r, &t->s, &t->model, err))) return st;
    if ((st = among_ranks(t, share_weights(t, err)))) return st;
    const pal_trainer trainer = { .run = r->out,
                                  .cx = r->cx,
                                  .task = &t->task,
                                  .comm = r->comm,
                                  .options = t->options,
                                  .progress = on_update,
                                  .user = r,
                                  .report = &r->now };
    if ((st = pal_train_prepare(&trainer, t->model, &bytes, err))) return st;
    r->at_work = true;
    /* Nothing is written before everything is known to fit. */
    if (!r->resume && !r->dry_run && is_root(t) && (st = pal_run_write_config(t->path, t->config, err))) return st;
    t->began = !r->dry_run;
    tell_plan(t, &bytes);
    if (r->dry_run) return PAL_OK;
    st = pal_train(&trainer, t->model, t->state, t->step, result, err);
    result->validated = t->kind->validates(t->self);
    return st;
}

pal_status pal_train_run(const char *directory, const pal_train_settings *settings,
                         const pal_train_run_options *options, const pal_context *cx, pal_train_result *result,
                         pal_error *err) {
    static const pal_train_run_options none;
    const pal_train_run_options *o = options ? options : &none;
    pal_error unheard;
    pal_status st;
    if (!err) err = &unheard;
    pal_json_forget();
    *result = (pal_train_result){ 0 };
    if (!directory || !*directory) return pal_fail(err, PAL_E_ARGUMENT, "a run needs a directory");
    if (o->resume && o->dry_run)
        return pal_fail(err, PAL_E_ARGUMENT, "--dry-run is for a run that has not begun; leave out --resume");
    if (!settings && !o->resume) return pal_fail(err, PAL_E_ARGUMENT, "%s: a new run needs settings", directory);
    training_run *t;
    if ((st = pal_alloc_named((void **)&t, 1, sizeof *t, "the run", err))) return st;
    *t = (training_run){ .run = { .out = directory,
                                  .resume = o->resume,
                                  .dry_run = o->dry_run,
                                  .cx = cx,
                                  .comm = pal_comm_or_alone(o->comm),
                                  .options = o },
                         .lock = -1 };
    st = pal_path(t->path, sizeof t->path, err, "%s/config.json", directory);
    if (!st && settings) {
        t->s = *settings;
        st = find_task(&t->kind, t->s.task, err);
    } else if (!st) st = read_settings(t, err);
    if (!st && !t->s.model)
        st = pal_fail(err, PAL_E_ARGUMENT,
                      "--model NAME|DIR is missing: palimpsa-d, palimpsa-m, gated-deltanet, "
                      "transformer, ..., or a model directory");
    if (!st) {
        t->s.threads = pal_context_threads(cx); /* results depend on it, so it is part of the run */
        t->s.ranks = t->run.comm->size;
        st = carry_out(t, result, err);
    }
    result->at_work = t->run.at_work;
    json_decref(t->state);
    json_decref(t->config);
    pal_model_close(t->model);
    /* Keep the shards if the run failed for lack of disk or RAM. */
    const bool failed = st == PAL_E_MEMORY || (st == PAL_E_IO && t->run.at_work);
    if (t->self) t->kind->close(t->self, t->began || o->resume || failed);
    pal_unlock_directory(t->lock, directory, t->made);
    json_decref(t->kept);
    pal_free(t);
    return st;
}
