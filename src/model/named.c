/* SPDX-License-Identifier: MIT */
#include "model/named.h"

#include <string.h>
#include <unistd.h>

#include "format/model_dir.h"
#include "format/torch_bin.h"
#include "model/config.h"

static bool is_preset(const char *name) {
    const char *preset;
    if (pal_is_pattern(name)) return true;
    for (int i = 0; (preset = pal_model_preset_at(i)); i++)
        if (strcmp(preset, name) == 0) return true;
    return false;
}

bool pal_names_files(const char *model) {
    if (strchr(model, '/')) return true;
    return is_preset(model) ? (pal_has_safetensors(model) || pal_has_torch(model)) : access(model, F_OK) == 0;
}

pal_status pal_named_preset(pal_model_config *config, const char *name, const pal_preset_options *options,
                            pal_error *err) {
    pal_preset_options recall = *options; /* what a bare name means unless an option says more, as for 'train' */
    if (!pal_model_preset(config, name, options, err)) return PAL_OK;
    recall.task = "mqar";
    if (!options->task && is_preset(name) && !pal_model_preset(config, name, &recall, err)) return PAL_OK;
    const size_t length = strlen(err->text);
    if (is_preset(name) || (length && err->text[length - 1] == '?')) return err->status;
    char sentence[sizeof err->text]; /* a word that is like no name */
    memcpy(sentence, err->text, length + 1);
    return pal_fail(err, PAL_E_ARGUMENT, "%s; nor is there a directory '%s'", sentence, name);
}

pal_status pal_refuse_sizes(const char *name, const pal_preset_options *o, pal_error *err) {
    if (o->rule || o->mesa_tolerance > 0 || o->softplus_rate || o->hidden || o->layers || o->heads || o->head_dim ||
        o->state_size || o->rank || o->mlp || o->expand_v > 0 || o->recall_init || o->forgetting || o->norm_groups)
        return pal_fail(err, PAL_E_ARGUMENT,
                        "--model %s is a directory: its rule, sizes and initial weights cannot be chosen", name);
    return PAL_OK;
}
