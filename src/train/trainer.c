/* SPDX-License-Identifier: MIT */
#include "train/trainer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/context.h"
#include "base/directory.h"
#include "comm/exchange.h"
#include "format/json.h"
#include "kernels/optimiser/adamw.h"
#include "model/work.h"
#include "train/checkpoint.h"
#include "train/metrics_log.h"

/* Everything that moves while training. What decides the future is written to trainer.json; times are not. */
typedef struct {
    const pal_trainer *t;
    const pal_comm *comm;
    pal_model *model;
    pal_exchange *exchange;
    pal_optimiser *optimiser;
    pal_work *work;
    pal_metrics_log metrics;

    int stage;
    int64_t step, stage_step; /* updates done, in all and in this stage */
    uint64_t tokens;
    int64_t skipped;
    double loss_sum; /* since the last line of metrics */
    uint64_t loss_count, correct;
    double score, best_score;
    int64_t best_step;
    int64_t written; /* step of the newest checkpoint, -1 before the first */
    bool due;        /* the evaluation of the last update was given up at a stop, and has to be made */

    double last_loss, last_norm, rate;
    double log_seconds, tokens_per_s; /* clock at the last line; smoothed speed */
    uint64_t log_tokens;
    double update_seconds, data_seconds; /* since the last line: in updates, and of them waiting for batches */
    char *sample;                        /* of the evaluation just made, for the report */
} training;

static const pal_task *task_of(const training *s) { return s->t->task; }
static int64_t stage_steps(const training *s) { return task_of(s)->steps(task_of(s)->self, s->stage); }

static double real_of(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static json_t *to_json(const training *s, bool finished) {
    return json_pack("{s:I, s:i, s:I, s:I, s:I, s:o, s:I, s:I, s:o, s:o, s:I, s:b, s:b, s:I, s:s}", "step",
                     (json_int_t)s->step, "stage", s->stage, "stage_step", (json_int_t)s->stage_step, "tokens",
                     (json_int_t)s->tokens, "skipped", (json_int_t)s->skipped, "loss_sum", pal_json_number(s->loss_sum),
                     "loss_count", (json_int_t)s->loss_count, "correct", (json_int_t)s->correct, "score",
                     pal_json_number(s->score), "best_score", pal_json_number(s->best_score), "best_step",
                     (json_int_t)s->best_step, "finished", finished, "solved",
                     finished && s->stage_step < stage_steps(s), "planned", (json_int_t)pal_task_steps(task_of(s)),
                     "cpu", pal_cpu_level_name(pal_context_level(s->t->cx)));
}

static pal_status from_json(training *s, const json_t *o, int64_t step, pal_error *err) {
    static const char *const needed[] = { "step",    "stage",      "stage_step", "tokens",
                                          "skipped", "loss_count", "correct",    "best_step" };
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++) {
        const json_t *count = json_object_get(o, needed[i]);
        if (!json_is_integer(count) || json_integer_value(count) < (i == 7 ? -1 : 0) ||
            json_integer_value(count) > PAL_MOST_COUNT)
            return pal_fail(err, PAL_E_FORMAT, "trainer.json: '%s' is not a count", needed[i]);
    }
    s->step = json_integer_value(json_object_get(o, "step"));
    const json_int_t stage = json_integer_value(json_object_get(o, "stage"));
    s->stage_step = json_integer_value(json_object_get(o, "stage_step"));
    s->tokens = (uint64_t)json_integer_value(json_object_get(o, "tokens"));
    s->skipped = json_integer_value(json_object_get(o, "skipped"));
    s->loss_count = (uint64_t)json_integer_value(json_object_get(o, "loss_count"));
    s->correct = (uint64_t)json_integer_value(json_object_get(o, "correct"));
    s->best_step = json_integer_value(json_object_get(o, "best_step"));
    s->loss_sum = real_of(o, "loss_sum");
    s->score = real_of(o, "score");
    s->best_score = real_of(o, "best_score");
    s->stage = stage < task_of(s)->stages ? (int)stage : -1;
    if (s->step != step || s->stage < 0 || s->stage_step > stage_steps(s) || s->stage_step > s->step)
        return pal_fail(err, PAL_E_FORMAT,
                        "trainer.json: step %lld, which is %lld of stage %lld, does not fit this run",
                        (long long)s->step, (long long)s->stage_step, (long long)stage);
    return PAL_OK;
}

/* What the line of metrics says of an update in addition to what to_json writes. */
static json_t *due_to_json(const training *s) {
    return json_pack("{s:o, s:o, s:o}", "loss", pal_json_number(s->last_loss), "lr", json_real(s->rate), "grad_norm",
                     pal_json_number(s->last_norm));
}

static pal_status due_from_json(training *s, const json_t *o, pal_error *err) {
    const json_t *due = json_object_get(o, "evaluation_due");
    if (!due) return PAL_OK;
    s->due = true;
    s->last_loss = real_of(due, "loss");
    s->rate = real_of(due, "lr");
    s->last_norm = real_of(due, "grad_norm");
    if (s->stage_step > 0 && isfinite(s->rate)) return PAL_OK;
    return pal_fail(err, PAL_E_FORMAT, "trainer.json: 'evaluation_due' does not name an update");
}

int64_t pal_task_steps(const pal_task *task) {
    int64_t steps = 0;
    for (int stage = 0; stage < task->stages; stage++) steps += task->steps(task->self, stage);
    return steps;
}

pal_train_state pal_train_state_of(const json_t *o) {
    const json_t *planned = json_object_get(o, "planned");
    return (pal_train_state){ .finished = json_is_true(json_object_get(o, "finished")),
                              .solved = json_is_true(json_object_get(o, "solved")),
                              .planned = planned ? json_integer_value(planned) : -1 };
}

static pal_work_options work_options(const pal_trainer *t) {
    return (pal_work_options){
        .tokens = t->task->tokens, .sequences = t->task->sequences, .training = true, .recompute = t->options.recompute
    };
}

pal_status pal_train_prepare(const pal_trainer *t, const pal_model *model, pal_train_bytes *plan, pal_error *err) {
    pal_work_options options = work_options(t);
    pal_plan work, other;
    size_t task = 0;
    pal_status st = pal_optimiser_check(model, &t->options.optimiser, err);
    if (!st) st = pal_work_plan(&work, model, t->cx, &options, err);
    options.recompute = !options.recompute;
    if (!st) st = pal_work_plan(&other, model, t->cx, &options, err);
    if (!st) st = t->task->prepare(t->task->self, model, &task, err);
    if (st) return st;
    const pal_comm *comm = pal_comm_or_alone(t->comm);
    const size_t gradients = pal_model_flat(model) * sizeof(float), moments = 2 * gradients / (size_t)comm->size;
    *plan = (pal_train_bytes){ .total = work.total + task + gradients + moments +
                                       pal_exchange_bytes(comm, pal_model_flat(model)),
                              .activations = work.activations,
                              .other_activations = other.activations };
    return PAL_OK;
}

/* What an update has seen, in numbers that are summed over ranks. */
typedef struct {
    double loss, targets, correct, tokens;
} seen;

static void send_gradients(void *user, size_t from) { pal_exchange_ready(user, from); }

/* Gradients of this rank's part of every micro-batch. The last one makes them final: they are sent while it computes.
 */
static pal_status learn(training *s, seen *sums, pal_error *err) {
    const pal_task *task = task_of(s);
    const int micro_batches = s->t->options.accumulate;
    pal_status st;
    memset(pal_model_flat_gradients(s->model), 0, pal_model_flat(s->model) * sizeof(float));
    for (int micro = 0; micro < micro_batches; micro++) {
        pal_batch batch;
        pal_loss loss;
        const double asked = pal_seconds();
        if ((st = task->batch(task->self, s->stage, s->stage_step, micro, &batch, err))) return st;
        s->data_seconds += pal_seconds() - asked;
        if (micro == micro_batches - 1) {
            pal_exchange_begin(s->exchange, pal_model_flat_gradients(s->model));
            pal_work_on_learned(s->work, send_gradients, s->exchange);
        }
        st = task->learn ? task->learn(task->self, s->model, s->work, &batch, &loss, err)
                         : pal_model_learn(s->model, s->work, &batch, 1.0f, &loss, NULL, err);
        pal_work_on_learned(s->work, NULL, NULL);
        if (st) return st;
        sums->loss += loss.sum;
        sums->targets += (double)loss.count;
        sums->correct += (double)loss.correct;
        sums->tokens += batch.tokens;
    }
    return PAL_OK;
}

/* AdamW on this rank's slices of the summed gradients; then everybody has all parameters again. */
static pal_status step_parameters(training *s, double scale, pal_error *err) {
    pal_status st;
    if ((st = pal_exchange_sum(s->exchange, err))) return st;
    double squares = pal_optimiser_squares(s->optimiser, s->model, s->t->cx);
    if ((st = pal_comm_sum(s->comm, &squares, 1, err))) return st;
    s->last_norm = pal_optimiser_apply(s->optimiser, s->model, s->t->cx, squares, scale, s->rate);
    return pal_exchange_share(s->exchange, pal_model_flat_parameters(s->model), err);
}

/* One update of all its micro-batches. Their losses and gradients are sums over targets, divided once by the number of
 * targets in all: every target weighs the same, however the batch is split and whatever is masked, and what is
 * descended on is the loss that is logged. */
static pal_status update(training *s, pal_error *err) {
    const pal_task *task = task_of(s);
    const pal_train_options *o = &s->t->options;
    seen sums = { 0 };
    pal_status st;
    if ((st = learn(s, &sums, err)) || (st = pal_comm_sum(s->comm, &sums.loss, 4, err))) return st;
    const pal_schedule schedule = { .kind = o->schedule,
                                    .peak = o->rate,
                                    .floor = o->floor,
                                    .warmup = o->warmup,
                                    .total = stage_steps(s),
                                    .epoch = task->epoch(task->self, s->stage) };
    s->rate = pal_schedule_rate(&schedule, s->stage_step);
    if ((st = step_parameters(s, sums.targets > 0 ? 1 / sums.targets : 0, err))) return st;
    if (!isfinite(s->last_norm)) s->skipped++;
    s->last_loss = sums.targets > 0 ? sums.loss / sums.targets : NAN;
    s->loss_sum += sums.loss;
    s->loss_count += (uint64_t)sums.targets;
    s->correct += (uint64_t)sums.correct;
    s->tokens += (uint64_t)sums.tokens;
    s->step++;
    s->stage_step++;
    return PAL_OK;
}

static pal_status evaluate(training *s, json_t *line, pal_error *err) {
    const pal_task *task = task_of(s);
    double score = NAN;
    pal_status st = task->evaluate(task->self, s->stage, s->model, s->work, line, &score, err);
    bool given_up = st == PAL_STOPPED;
    if (st && !given_up) return st;
    if ((st = pal_comm_meet(s->comm, err)) || (st = pal_comm_any(s->comm, given_up, &given_up, err))) return st;
    if (given_up) return pal_fail(err, PAL_STOPPED, "the evaluation of step %lld was given up", (long long)s->step);
    s->score = score;
    const char *sample = json_string_value(json_object_get(line, "sample"));
    pal_free(s->sample);
    s->sample = sample ? pal_strdup(sample) : NULL;
    /* Without a score the newest sound model is the best there is. */
    const bool better = isnan(s->score) ? isfinite(s->last_loss) : isfinite(s->score) && !(s->score <= s->best_score);
    if (better) {
        s->best_score = s->score;
        s->best_step = s->step;
        if (pal_comm_is_root(s->comm))
            st = pal_checkpoint_write_best(s->t->run, s->model, s->t->options.best_dtype,
                                           (pal_checkpoint_more){ task->self, task->save }, err);
    }
    return st ? st : pal_comm_meet(s->comm, err); /* rank 0 writes */
}

/* A line of metrics: what happened since the last one, and the evaluation if it is due. PAL_STOPPED: there is no line
 * yet. */
static pal_status log_line(training *s, bool evaluates, pal_error *err) {
    const double clock = pal_seconds(), seconds = clock - s->log_seconds;
    json_t *line = json_pack(
        "{s:I, s:o, s:o, s:I, s:o, s:o, s:o}", "step", (json_int_t)s->step, "loss",
        pal_json_number(s->loss_count ? s->loss_sum / (double)s->loss_count : NAN), "lr", json_real(s->rate), "tokens",
        (json_int_t)s->tokens, "tokens_per_s",
        pal_json_number(seconds > 0 && s->tokens > s->log_tokens ? (double)(s->tokens - s->log_tokens) / seconds : NAN),
        "data_share", pal_json_number(s->update_seconds > 0 ? s->data_seconds / s->update_seconds : NAN), "grad_norm",
        pal_json_number(s->last_norm));
    if (task_of(s)->stages > 1) pal_json_set(line, "stage", json_integer(s->stage));
    if (task_of(s)->describe) task_of(s)->describe(task_of(s)->self, s->stage, line);
    if (task_of(s)->score_name && s->loss_count)
        pal_json_set(line, "train_accuracy", json_real((double)s->correct / (double)s->loss_count));
    if (s->skipped) pal_json_set(line, "skipped", json_integer(s->skipped));
    pal_status st = evaluates ? evaluate(s, line, err) : PAL_OK;
    if (st) {
        json_decref(line);
        return st;
    }
    s->loss_sum = 0;
    s->loss_count = s->correct = 0;
    s->log_seconds = pal_seconds();
    s->log_tokens = s->tokens;
    s->update_seconds = s->data_seconds = 0;
    if (pal_comm_is_root(s->comm)) return pal_metrics_log_write(&s->metrics, line, err);
    json_decref(line);
    return PAL_OK;
}

static pal_status checkpoint(training *s, bool finished, pal_error *err) {
    const pal_task *task = task_of(s);
    pal_status st = task->gather ? task->gather(task->self, err) : PAL_OK;
    if (st) return st;
    json_t *state = to_json(s, finished);
    if (task->position) pal_json_set(state, "data", task->position(task->self));
    if (s->due) pal_json_set(state, "evaluation_due", due_to_json(s));
    st = pal_checkpoint_write(s->t->run, s->step, s->model, s->optimiser, state, s->t->options.keep,
                              (pal_checkpoint_more){ task->self, task->save }, s->comm, err);
    json_decref(state);
    if (!st) s->written = s->step;
    return st;
}

static int64_t total_steps(const training *s) {
    int64_t total = s->step - s->stage_step;
    for (int stage = s->stage; stage < task_of(s)->stages; stage++) total += task_of(s)->steps(task_of(s)->self, stage);
    return total;
}

pal_status pal_train_state_read(const pal_task *task, const json_t *trainer_state, int64_t step, int64_t *total,
                                pal_error *err) {
    const pal_trainer t = { .task = task };
    training s = { .t = &t };
    pal_status st = from_json(&s, trainer_state, step, err);
    if (!st) st = due_from_json(&s, trainer_state, err);
    *total = st ? 0 : total_steps(&s);
    return st;
}

static void report(const training *s, double accuracy, double started, int64_t first, bool logged, bool evaluated) {
    if (!s->t->report) return;
    const double seconds = pal_seconds() - started;
    const int64_t done = s->step - first, left = total_steps(s) - s->step;
    const double per_step = done > 0 ? seconds / (double)done : NAN;
    *s->t->report = (pal_train_progress){ .stage = s->stage,
                                          .stages = task_of(s)->stages,
                                          .step = s->step,
                                          .total = total_steps(s),
                                          .loss = s->last_loss,
                                          .rate = s->rate,
                                          .grad_norm = s->last_norm,
                                          .accuracy = accuracy,
                                          .score = s->score,
                                          .by_loss = !task_of(s)->score_name,
                                          .tokens_per_s = s->tokens_per_s,
                                          .seconds_left = per_step * (double)left,
                                          .logged = logged,
                                          .evaluated = evaluated,
                                          .sample = evaluated ? s->sample : NULL };
}

static bool goes_on(const training *s) {
    return !s->t->progress || s->t->progress(s->t->user, (size_t)s->step, (size_t)total_steps(s));
}

static bool due(int64_t step, int64_t every) { return every > 0 && step % every == 0; }

/* The same with an epoch of the stage where nothing else was asked for. */
static bool due_in_stage(const training *s, int64_t step, int64_t every) {
    return every ? due(step, every) : due(s->stage_step, task_of(s)->epoch(task_of(s)->self, s->stage));
}

static pal_status timed_update(training *s, pal_error *err) {
    const double before = pal_seconds();
    const uint64_t tokens = s->tokens;
    const pal_status st = update(s, err);
    const double seconds = pal_seconds() - before, speed = (double)(s->tokens - tokens) / seconds;
    s->update_seconds += seconds;
    s->tokens_per_s = s->tokens_per_s > 0 ? 0.9 * s->tokens_per_s + 0.1 * speed : speed;
    return st;
}

/* Stops without the evaluation of the last update. The checkpoint says so, unless the run began with it and has it. */
static pal_status leave_due(training *s, bool *stopped, pal_error *err) {
    const bool was_due = s->due;
    *stopped = s->due = true;
    return was_due ? PAL_OK : checkpoint(s, false, err);
}

static pal_status run_stages(training *s, bool *stopped, pal_error *err) {
    const pal_train_options *o = &s->t->options;
    const double started = pal_seconds();
    const int64_t first = s->step;
    pal_status st;
    *stopped = o->stop_after && s->step >= o->stop_after && !s->due; /* resumed there */
    if (*stopped) return PAL_OK;
    for (;;) {
        bool solved = false;
        while ((s->due || s->stage_step < stage_steps(s)) && !solved) {
            if (!s->due && (st = timed_update(s, err))) return st;
            const double accuracy = task_of(s)->score_name && s->loss_count ? (double)s->correct / (double)s->loss_count
                                                                            : NAN;
            const bool last = s->stage_step == stage_steps(s),
                       evaluates = s->due || last || due_in_stage(s, s->stage_step, o->eval_every);
            const bool first_of_stage = s->stage_step == 1 && o->log_every > 0;
            const bool logs = evaluates || first_of_stage || due(s->step, o->log_every);
            if (evaluates) report(s, accuracy, started, first, false, false); /* for who is asked meanwhile */
            if (logs && (st = log_line(s, evaluates, err))) return st == PAL_STOPPED ? leave_due(s, stopped, err) : st;
            s->due = false;
            solved = evaluates && s->score > o->stop_score;
            report(s, accuracy, started, first, logs, evaluates);
            if ((st = pal_comm_any(s->comm, !goes_on(s), stopped, err))) return st;
            *stopped |= o->stop_after && s->step >= o->stop_after;
            if (last || solved) break;
            if ((*stopped || due_in_stage(s, s->step, o->checkpoint_every)) && (st = checkpoint(s, false, err)))
                return st;
            if (*stopped) return PAL_OK;
        }
        if (s->stage == task_of(s)->stages - 1) {
            *stopped = false;
            return s->written == s->step ? PAL_OK : checkpoint(s, true, err);
        }
        s->stage++;
        s->stage_step = 0;
        s->best_score = NAN; /* scores of different stages do not compare */
        s->best_step = -1;
        pal_optimiser_reset(s->optimiser);
        if ((st = checkpoint(s, false, err)) || *stopped) return st;
    }
}

pal_status pal_train(const pal_trainer *t, pal_model *model, const json_t *trainer_state, int64_t step,
                     pal_train_result *result, pal_error *err) {
    training s = { .t = t,
                   .comm = pal_comm_or_alone(t->comm),
                   .model = model,
                   .score = NAN,
                   .best_score = NAN,
                   .best_step = -1,
                   .written = -1 };
    char path[4096];
    pal_status st;
    bool stopped;
    const pal_work_options options = work_options(t);
    if ((st = pal_path(path, sizeof path, err, "%s/metrics.jsonl", t->run))) return st;
    if ((st = pal_exchange_new(&s.exchange, s.comm, pal_model_flat(model), err))) goto done;
    if ((st = pal_optimiser_new(&s.optimiser, model, &t->options.optimiser, s.exchange, err))) goto done;
    if (t->options.optimiser.bf16) pal_round_bf16(pal_model_flat_parameters(model), pal_model_flat(model));
    if ((st = pal_work_new(&s.work, model, t->cx, &options, err))) goto done;
    if (trainer_state) {
        if ((st = from_json(&s, trainer_state, step, err)) || (st = due_from_json(&s, trainer_state, err))) goto done;
        if ((st = pal_checkpoint_load_optimiser(t->run, step, s.optimiser, model, err))) goto done;
        if (t->task->resume) {
            char folder[4096];
            if ((st = pal_path(folder, sizeof folder, err, "%s/checkpoints/step-%lld", t->run, (long long)step)))
                goto done;
            if ((st = t->task->resume(t->task->self, json_object_get(trainer_state, "data"), folder, err))) goto done;
        }
    }
    const int64_t logged = s.due ? s.step - 1 : s.step;
    if (pal_comm_is_root(s.comm) && (st = pal_metrics_log_open(&s.metrics, path, logged, err))) goto done;
    s.log_seconds = pal_seconds();
    s.log_tokens = s.tokens;
    if ((st = run_stages(&s, &stopped, err))) goto done;
    *result = (pal_train_result){ .step = s.step,
                                  .loss = s.last_loss,
                                  .score = s.score,
                                  .best_score = s.best_score,
                                  .best_step = s.best_step,
                                  .skipped = s.skipped,
                                  .tokens = s.tokens };
    if (stopped) st = pal_fail(err, PAL_STOPPED, "stopped at step %lld", (long long)s.step);
done:;
    const bool sound = !st || st == PAL_STOPPED;
    if (pal_metrics_log_close(&s.metrics, sound ? err : NULL) && sound) st = PAL_E_IO;
    pal_free(s.sample);
    pal_optimiser_free(s.optimiser);
    pal_exchange_free(s.exchange);
    pal_work_free(s.work);
    return st;
}
