/* SPDX-License-Identifier: MIT */
/* The parts of pal_train_run: settings as a table, the tasks, the model, and config.json. Sentences name settings as
 * the program's options, --lr, which is what documents call them. */
#ifndef PAL_TRAIN_RUN_H
#define PAL_TRAIN_RUN_H

#include <jansson.h>

#include "comm/comm.h"
#include "format/options.h"
#include "palimpsa/tokenizer.h"
#include "palimpsa/train.h"
#include "train/trainer.h"

/* How a run is called, for its parts. */
typedef struct pal_run {
    const char *out;
    bool resume, dry_run;
    const pal_context *cx;
    const pal_comm *comm;
    const pal_train_run_options *options;
    pal_train_progress now;
    bool stopping; /* progress said so */
    bool at_work;  /* failures from here on are not usage errors */
} pal_run;
void pal_run_tell(const pal_run *r, const char *format, ...) PAL_PRINTF(2, 3);
bool pal_run_goes_on(pal_run *r); /* asks progress within an evaluation */
/* The same for pal_asking, on all ranks: a pal_run. */
pal_status pal_run_ask(void *run, pal_error *err);

#define PAL_MOST_STEPS 1000000000LL /* sums and products of counts stay far from overflow */

/* What a task adds to a run. */
typedef struct pal_run_task {
    const char *name;
    const char *group; /* of its options, which other tasks refuse */
    void (*defaults)(pal_train_settings *s);
    /* What is wrong whatever the data are: nothing is read or written. model: what settings plan. */
    pal_status (*check)(const pal_train_settings *s, const pal_model_config *model, pal_error *err);
    /* All ranks call it, rank 0 makes files. Opens the data, settles what was left open in `s`, and makes the task.
     * model as above, NULL when resuming. *self is to be closed also after a failure. */
    pal_status (*open)(void **self, pal_run *r, pal_train_settings *s, const pal_model_config *model, pal_task *task,
                       pal_error *err);
    void (*close)(void *self, bool began); /* began: what was made for the run belongs to it now */
    double (*tokens)(const void *self);    /* of the whole run */
    double (*labelled)(const void *self);  /* share of its tokens that have a target */
    bool (*validates)(const void *self);
    void (*describe)(const pal_train_settings *s, const void *self, char *text, size_t size); /* lines for people */
} pal_run_task;
extern const pal_run_task pal_run_mqar, pal_run_text;
const pal_run_task *pal_run_task_at(int index);           /* NULL past the end */
const pal_run_task *pal_run_task_named(const char *name); /* NULL: no such task */

/* settings.c */
enum { PAL_RUN_SETTINGS = 72 };
size_t pal_run_table(pal_train_settings *s, pal_option table[PAL_RUN_SETTINGS]);
pal_status pal_run_check_counts(const pal_train_settings *s, pal_error *err); /* those of every task */
pal_status pal_run_options(const pal_train_settings *s, pal_train_options *t, pal_error *err);
/* A setting of another task would be passed over in silence. */
pal_status pal_run_refuse_others(const pal_train_settings *s, const pal_run_task *task, pal_error *err);

/* run_model.c */
/* The configuration of a new model, and whether it suits the task; of a preset without a vocabulary, with the
 * preset's. */
pal_status pal_run_plan_model(const pal_train_settings *s, pal_model_config *config, pal_error *err);
/* A new model: a preset with the sizes asked for, or the weights of a checkpoint. */
/* Whether some weights of a model that files hold are left as they are: it is opened for the others alone. */
bool pal_run_trains_partly(const pal_train_settings *s);
pal_status pal_run_make_model(const pal_run *r, const pal_train_settings *s, pal_model **model, pal_error *err);
/* A model of these ids, given by --model, holds those of the task. */
pal_status pal_run_check_vocabulary(const pal_train_settings *s, int vocab, int ids, pal_error *err);
double pal_run_token_flops(const pal_model *model, double labelled_share);

/* run_config.c: config.json */
json_t *pal_run_config(const pal_train_settings *s, const pal_run_task *task);
json_t *pal_run_default_config(const pal_run_task *task);
pal_status pal_run_write_config(const char *path, const json_t *config, pal_error *err);
/* Whether a run may resume with these settings. *nothing: it is finished, and no more was asked for; *extended: it was
 * finished and is given more updates. state: of its newest checkpoint at `step`, NULL without one. */
typedef struct pal_run_resumed {
    const pal_run_task *task;
    const char *path; /* config.json */
    const json_t *wanted, *state;
    int64_t step, total; /* total: updates that the task has now */
    bool constant;       /* the learning rate */
} pal_run_resumed;
pal_status pal_run_may_resume(const pal_run *run, const pal_run_resumed *r, bool *nothing, bool *extended,
                              pal_error *err);

/* run_tasks.c: tasks of lm-evaluation-harness that are measured at evaluations */
typedef struct pal_run_tasks pal_run_tasks;
pal_status pal_run_tasks_check(const pal_train_settings *s, pal_error *err);
/* *out: NULL where no tasks are asked for; to be closed also after a failure. model NULL: a resumed run, whose
 * documents were checked when it began. Run and tokenizer are borrowed. */
pal_status pal_run_tasks_open(pal_run_tasks **out, pal_run *r, const pal_train_settings *s,
                              const pal_model_config *model, const pal_tokenizer *tokenizer, pal_error *err);
void pal_run_tasks_close(pal_run_tasks *t); /* NULL is fine */
/* For pal_text_options: user is a pal_run_tasks. */
pal_status pal_run_tasks_measure(void *user, const pal_model *model, json_t *metrics, pal_error *err);

#endif
