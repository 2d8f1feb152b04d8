/* SPDX-License-Identifier: MIT */
#include "named_model.h"

#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "format/model_dir.h"
#include "format/torch_bin.h"

static bool is_preset(const char *name) {
    const char *preset;
    for (int i = 0; (preset = pal_model_preset_at(i)); i++)
        if (strcmp(preset, name) == 0) return true;
    return false;
}

bool cli_names_files(const char *model) {
    if (strchr(model, '/')) return true;
    return is_preset(model) ? (pal_has_safetensors(model) || pal_has_torch(model)) : access(model, F_OK) == 0;
}

int cli_preset(pal_model_config *config, const char *name, const pal_preset_options *options) {
    pal_preset_options recall = *options; /* what a bare name means unless somebody says more, as for 'train' */
    pal_error err;
    if (!pal_model_preset(config, name, options, &err)) return CLI_OK;
    recall.task = "mqar";
    if (!options->task && is_preset(name) && !pal_model_preset(config, name, &recall, &err)) return CLI_OK;
    const size_t length = strlen(err.text);
    if (is_preset(name) || (length && err.text[length - 1] == '?')) return cli_fail(&err);
    return cli_error(CLI_USAGE, "%s; nor is there a directory '%s'", err.text, name); /* a word that is like no name */
}

int cli_refuse_sizes(const char *name, const pal_preset_options *o) {
    if (o->rule || o->mesa_tolerance > 0 || o->hidden || o->layers || o->heads || o->head_dim || o->state_size ||
        o->rank || o->mlp || o->expand_v > 0)
        return cli_error(CLI_USAGE, "--model %s is a directory: its rule and sizes cannot be chosen", name);
    return CLI_OK;
}

int cli_open_model(pal_model **out, const char *name, const pal_preset_options *options, pal_model_use use,
                   const pal_context *cx) {
    pal_error err;
    pal_model_config config;
    int code;
    *out = NULL;
    if (cli_names_files(name)) {
        if ((code = cli_refuse_sizes(name, options))) return code;
        if (options->vocab) return cli_error(CLI_USAGE, "%s has a vocabulary of its own; --vocab is for names", name);
        return pal_model_open(out, name, use, cx, &err) ? cli_fail(&err) : CLI_OK;
    }
    if ((code = cli_preset(&config, name, options))) return code;
    return pal_model_new(out, &config, 1, use, cx, &err) ? cli_fail(&err) : CLI_OK;
}
