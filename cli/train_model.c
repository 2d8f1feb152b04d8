/* SPDX-License-Identifier: MIT */
/* palimpsa train: the model that a run begins with. */
#include <stdio.h>
#include <string.h>

#include "named_model.h"
#include "train.h"

static int plan(const train_options *o, pal_model_config *config) {
    const pal_preset_options options = { .task = o->task,
                                         .rule = o->rule,
                                         .mesa_tolerance = o->mesa_tolerance,
                                         .vocab = o->vocab,
                                         .hidden = o->hidden,
                                         .layers = o->layers,
                                         .heads = o->heads,
                                         .head_dim = o->head_dim,
                                         .state_size = o->state_size,
                                         .rank = o->rank,
                                         .expand_v = o->expand_v };
    pal_error err;
    int code;
    if (!cli_names_files(o->model)) return cli_preset(config, o->model, &options);
    if (pal_model_read_config(config, o->model, &err)) return cli_fail(&err);
    if ((code = cli_refuse_sizes(o->model, &options))) return code;
    if (strcmp(o->task, "text") == 0 && config->mqar)
        return cli_error(CLI_USAGE, "--model %s is a model for mqar, not for text", o->model);
    return CLI_OK;
}

int train_plan_model(const train_options *o, pal_model_config *config) {
    const int code = plan(o, config);
    if (code) return code;
    if (o->carry_state && config->mixer == PAL_MIXER_ATTENTION)
        return cli_error(
            CLI_USAGE,
            "--carry-state: attention has no memory of a fixed size to carry; model '%s' cannot be trained so",
            o->model);
    return CLI_OK;
}

int train_check_vocabulary(const train_options *o, int vocab, int ids) {
    if (vocab >= ids) return CLI_OK;
    if (o->data)
        return cli_error(CLI_USAGE, "--model %s has a vocabulary of %d, the tokenizer of --data %s has %d ids",
                         o->model, vocab, o->data, ids);
    return cli_error(CLI_USAGE, "--model %s has a vocabulary of %d, the task one of %d; give --vocab %d", o->model,
                     vocab, ids, vocab);
}

int train_make_model(const train_options *o, const pal_context *cx, pal_model **model) {
    pal_error err;
    pal_model_config config;
    int code = train_plan_model(o, &config);
    if (code) return code;
    if (!cli_names_files(o->model))
        return pal_model_new(model, &config, (uint64_t)o->seed, PAL_FOR_TRAINING, cx, &err) ? cli_fail(&err) : CLI_OK;
    const char *from = o->weights ? o->weights : o->model;
    if ((code = train_check_vocabulary(o, config.vocab, o->vocab))) return code;
    if (pal_model_open(model, from, PAL_FOR_TRAINING, cx, &err)) return cli_fail(&err);
    printf("weights from the directory %s\n", from);
    return CLI_OK;
}
