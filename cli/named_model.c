/* SPDX-License-Identifier: MIT */
#include "named_model.h"

#include "cli.h"

int cli_open_model(pal_model **out, const char *name, const pal_preset_options *options, pal_model_use use,
                   const pal_context *cx) {
    pal_error err;
    pal_model_config config;
    *out = NULL;
    if (pal_names_files(name)) {
        if (pal_refuse_sizes(name, options, &err)) return cli_fail(&err);
        if (options->vocab) return cli_error(CLI_USAGE, "%s has its own vocabulary; --vocab is for names", name);
        return pal_model_open(out, name, use, cx, &err) ? cli_fail(&err) : CLI_OK;
    }
    if (pal_named_preset(&config, name, options, &err)) return cli_fail(&err);
    return pal_model_new(out, &config, 1, use, cx, &err) ? cli_fail(&err) : CLI_OK;
}
