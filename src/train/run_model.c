/* SPDX-License-Identifier: MIT */
/* The model that a run begins with. */
#include <string.h>

#include "model/model.h"
#include "model/named.h"
#include "train/run.h"

static pal_status plan(const pal_train_settings *o, pal_model_config *config, pal_error *err) {
    const pal_preset_options options = { .task = o->task,
                                         .rule = o->rule,
                                         .mesa_tolerance = o->mesa_tolerance,
                                         .softplus_rate = o->softplus_rate,
                                         .vocab = o->vocab,
                                         .hidden = o->hidden,
                                         .layers = o->layers,
                                         .heads = o->heads,
                                         .head_dim = o->head_dim,
                                         .state_size = o->state_size,
                                         .rank = o->rank,
                                         .expand_v = o->expand_v,
                                         .recall_init = o->init != NULL,
                                         .forgetting = o->forgetting,
                                         .norm_groups = o->norm_groups };
    pal_status st;
    if (!pal_names_files(o->model)) return pal_named_preset(config, o->model, &options, err);
    if ((st = pal_model_read_config(config, o->model, err)) || (st = pal_refuse_sizes(o->model, &options, err)))
        return st;
    if (strcmp(o->task, "text") == 0 && config->mqar)
        return pal_fail(err, PAL_E_ARGUMENT, "--model %s is a model for mqar, not for text", o->model);
    return PAL_OK;
}

pal_status pal_run_plan_model(const pal_train_settings *o, pal_model_config *config, pal_error *err) {
    const pal_status st = plan(o, config, err);
    if (st) return st;
    if (o->carry_state && pal_model_grows(config))
        return pal_fail(
            err, PAL_E_ARGUMENT,
            "--carry-state: attention has no memory of a fixed size to carry; model '%s' cannot be trained so",
            o->model);
    return PAL_OK;
}

pal_status pal_run_check_vocabulary(const pal_train_settings *o, int vocab, int ids, pal_error *err) {
    if (vocab >= ids) return PAL_OK;
    if (o->data)
        return pal_fail(err, PAL_E_ARGUMENT, "--model %s has a vocabulary of %d, the tokenizer of --data %s has %d ids",
                        o->model, vocab, o->data, ids);
    return pal_fail(err, PAL_E_ARGUMENT, "--model %s has a vocabulary of %d, the task one of %d; give --vocab %d",
                    o->model, vocab, ids, vocab);
}

bool pal_run_trains_partly(const pal_train_settings *s) {
    return pal_names_files(s->model) && ((s->freeze && *s->freeze) || (s->train_only && *s->train_only));
}

pal_status pal_run_make_model(const pal_run *r, const pal_train_settings *s, pal_model **model, pal_error *err) {
    pal_model_config config;
    pal_status st = pal_run_plan_model(s, &config, err);
    if (st) return st;
    if (!pal_names_files(s->model))
        return pal_model_new(model, &config, (uint64_t)s->seed, PAL_FOR_TRAINING, r->cx, err);
    const char *from = s->weights ? s->weights : s->model;
    const pal_optimiser_options which = { .freeze = s->freeze, .train_only = s->train_only };
    if ((st = pal_run_check_vocabulary(s, config.vocab, s->vocab, err)) ||
        (st = pal_model_open_partly(model, from, pal_run_trains_partly(s) ? pal_optimiser_trains : NULL, &which, r->cx,
                                    err)))
        return st;
    pal_run_tell(r, "weights from the directory %s", from);
    return PAL_OK;
}

/* 6 for every number of a matrix, the head's where logits are computed. */
double pal_run_token_flops(const pal_model *model, double labelled_share) {
    const pal_model_config *c = pal_model_config_of(model);
    double matrices = 0;
    for (size_t i = 0; i < pal_model_weight_count(model); i++) {
        const pal_weight *w = pal_model_weight(model, i);
        if (w->rank == 2 && !w->unused && strcmp(w->group, "embedding") != 0 && strcmp(w->group, "head") != 0)
            matrices += (double)w->count;
    }
    return 6 * (matrices + labelled_share * (double)c->vocab_rows * (double)c->hidden);
}
