/* SPDX-License-Identifier: MIT */
/* Task mqar of a run: the curriculum. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "model/named.h"
#include "train/run.h"
#include "train/task_mqar.h"

typedef struct {
    pal_mqar_options o;
    pal_mqar_task *task;
} mqar;

static void defaults(pal_train_settings *o) {
    *o = (pal_train_settings){ .task = "mqar",
                               .ranks = 1,
                               .seed = 1,
                               .log_every = 10,
                               .examples = 100000,
                               .test_examples = 3000,
                               .batch = 128,
                               .accumulate = 1,
                               .lr = 4.64e-3,
                               .beta1 = 0.9,
                               .beta2 = 0.999,
                               .eps = 1e-8,
                               .weight_decay = 0.1,
                               .stop_score = 0.99,
                               .decay = "everything",
                               .optimiser_precision = "f32",
                               .seq_len = 128,
                               .kv_pairs = 32,
                               .vocab = 8192,
                               .exponent = 0.01,
                               .shuffle = "auto",
                               .sample_tokens = 200,
                               .valid = 0.05,
                               .save_dtype = "f32" };
}

static pal_mqar_config data_of(const pal_train_settings *o, int length, int pairs) {
    return (pal_mqar_config){
        .length = length, .pairs = pairs, .vocabulary = o->vocab, .exponent = o->exponent, .random_fill = o->random_fill
    };
}

/* Four whole numbers between colons; after them a comma or the end. Returns where the next stage begins, or NULL. */
static const char *read_stage(const char *at, long long number[4]) {
    for (int i = 0; i < 4; i++) {
        char *end;
        errno = 0;
        number[i] = strtoll(at, &end, 10);
        if (end == at || errno || (*end != (i < 3 ? ':' : ',') && (i < 3 || *end))) return NULL;
        at = end + (*end != '\0');
    }
    return at;
}

/* A stage is so many epochs of the fixed examples; where every example is new, so many updates. */
static pal_status parse_stages(const pal_train_settings *o, pal_mqar_options *m, pal_error *err) {
    const char *at = o->stages, *unit = o->examples ? "EPOCHS" : "UPDATES";
    while (*at) {
        long long n[4];
        if (m->stages == PAL_MQAR_STAGES)
            return pal_fail(err, PAL_E_ARGUMENT, "--stages: at most %d stages", PAL_MQAR_STAGES);
        if (!(at = read_stage(at, n)))
            return pal_fail(err, PAL_E_ARGUMENT, "--stages '%s': expected L:PAIRS:%s:BATCH separated by commas",
                            o->stages, unit);
        for (int i = 0; i < 4; i++)
            if (n[i] < 1 || n[i] > (i == 2 ? PAL_MOST_STEPS : INT_MAX))
                return pal_fail(err, PAL_E_ARGUMENT,
                                "--stages '%s': L, PAIRS, %s and BATCH must be from 1 to %lld, found %lld", o->stages,
                                unit, i == 2 ? PAL_MOST_STEPS : (long long)INT_MAX, n[i]);
        const int batch = (int)n[3];
        const int64_t each = o->examples ? pal_mqar_epoch_steps(o->examples, batch, o->accumulate) : 1;
        if (n[2] > PAL_MOST_STEPS / each)
            return pal_fail(err, PAL_E_ARGUMENT, "--stages '%s': expected at most %lld updates a stage", o->stages,
                            PAL_MOST_STEPS);
        m->stage[m->stages++] =
            (pal_mqar_stage){ .data = data_of(o, (int)n[0], (int)n[1]), .batch = batch, .steps = n[2] * each };
    }
    return m->stages ? PAL_OK
                     : pal_fail(err, PAL_E_ARGUMENT, "--stages is empty, expected L:PAIRS:%s:BATCH separated by commas",
                                unit);
}

static pal_status one_stage(const pal_train_settings *o, pal_mqar_options *m, pal_error *err) {
    if (!o->steps && !o->examples)
        return pal_fail(err, PAL_E_ARGUMENT, "with --examples 0 there are no epochs: give --steps");
    const int64_t epoch = pal_mqar_epoch_steps(o->examples ? o->examples : 1, o->batch, o->accumulate);
    const int64_t epochs = o->epochs ? o->epochs : 20;
    if (!o->steps && epochs > PAL_MOST_STEPS / epoch)
        return pal_fail(err, PAL_E_ARGUMENT, "%lld epochs of %lld updates: expected at most %lld updates",
                        (long long)epochs, (long long)epoch, PAL_MOST_STEPS);
    m->stages = 1;
    m->stage[0] = (pal_mqar_stage){ .data = data_of(o, o->seq_len, o->kv_pairs),
                                    .batch = o->batch,
                                    .steps = o->steps ? o->steps : epochs * epoch };
    return PAL_OK;
}

static pal_status make_options(const pal_train_settings *o, const pal_comm *comm, pal_mqar_options *m, pal_error *err) {
    const pal_status st = pal_run_check_counts(o, err);
    *m = (pal_mqar_options){ .seed = (uint64_t)o->seed,
                             .examples = o->examples,
                             .test_examples = o->test_examples,
                             .accumulate = o->accumulate,
                             .comm = comm };
    if (st) return st;
    if (o->examples < 0)
        return pal_fail(err, PAL_E_ARGUMENT, "--examples is %lld, expected 0 or more", (long long)o->examples);
    if (o->test_examples < 1 || o->test_examples > PAL_MOST_STEPS)
        return pal_fail(err, PAL_E_ARGUMENT, "--test-examples is %lld, expected 1 to %lld", (long long)o->test_examples,
                        PAL_MOST_STEPS);
    if (o->batch < 1) return pal_fail(err, PAL_E_ARGUMENT, "--batch is %d, expected at least 1", o->batch);
    if (!o->stages) return one_stage(o, m, err);
    if (o->steps || o->epochs)
        return pal_fail(err, PAL_E_ARGUMENT, "--stages says how long each stage is: leave out --steps and --epochs");
    return parse_stages(o, m, err);
}

static pal_status check(const pal_train_settings *o, const pal_model_config *model, pal_error *err) {
    pal_mqar_options m;
    const pal_status st = make_options(o, NULL, &m, err);
    return st || !pal_names_files(o->model) ? st : pal_run_check_vocabulary(o, model->vocab, o->vocab, err);
}

static pal_status open_task(void **self, pal_run *r, pal_train_settings *o, const pal_model_config *model,
                            pal_task *task, pal_error *err) {
    (void)model;
    mqar *m;
    pal_status st;
    if ((st = pal_alloc_named((void **)&m, 1, sizeof *m, "the task", err))) return st;
    *self = m;
    if ((st = make_options(o, r->comm, &m->o, err))) return st;
    m->o.asking = (pal_asking){ pal_run_ask, r };
    return pal_mqar_task_new(&m->task, r->cx, &m->o, task, err);
}

static void close_task(void *self, bool began) {
    (void)began;
    mqar *m = self;
    if (!m) return;
    pal_mqar_task_free(m->task);
    pal_free(m);
}

static double tokens(const void *self) {
    const pal_mqar_options *o = &((const mqar *)self)->o;
    double sum = 0;
    for (int i = 0; i < o->stages; i++)
        sum += (double)o->stage[i].steps * o->accumulate * o->stage[i].batch * o->stage[i].data.length;
    return sum;
}

static double labelled(const void *self) {
    const pal_mqar_config *data = &((const mqar *)self)->o.stage[0].data;
    return (double)data->pairs / data->length;
}

static bool validates(const void *self) {
    (void)self;
    return true;
}

static void describe(const pal_train_settings *o, const void *self, char *text, size_t size) {
    const pal_mqar_options *m = &((const mqar *)self)->o;
    size_t used = 0;
    for (int i = 0; i < m->stages && used < size; i++) {
        char stage[32] = "";
        if (m->stages > 1) snprintf(stage, sizeof stage, "stage %d: ", i + 1);
        used += (size_t)snprintf(text + used, size - used,
                                 "%s%s%lld updates of %d x %d examples of %d tokens with %d pairs", i ? "\n" : "",
                                 stage, (long long)m->stage[i].steps, o->accumulate, m->stage[i].batch,
                                 m->stage[i].data.length, m->stage[i].data.pairs);
    }
}

const pal_run_task pal_run_mqar = { .name = "mqar",
                                    .group = "task mqar (recall)",
                                    .defaults = defaults,
                                    .check = check,
                                    .open = open_task,
                                    .close = close_task,
                                    .tokens = tokens,
                                    .labelled = labelled,
                                    .validates = validates,
                                    .describe = describe };
