/* SPDX-License-Identifier: MIT */
/* Whether a model runs on this machine, and how fast. */
#ifndef PAL_CLI_MACHINE_H
#define PAL_CLI_MACHINE_H

#include <jansson.h>

#include "palimpsa/palimpsa.h"

typedef struct cli_machine {
    double needed, available;    /* bytes of RAM: to generate with one text; 0: unknown */
    double read_rate, product;   /* measured: bytes and operations a second; 0 for models that stay in caches */
    double step_bytes;           /* that writing one token moves */
    double writing, reading;     /* tokens a second; 0 without a measurement */
    pal_dtype smaller;           /* the largest type of `types` that fits where this one does not; PAL_DTYPES: none */
} cli_machine;

/* needed: bytes with the model's own weights; bytes_as: of weights in each of `count` types, largest first. */
int cli_machine_ask(cli_machine *out, const pal_model *model, const pal_context *cx, size_t needed, int context,
                    const pal_dtype *types, const size_t *bytes_as, size_t count);
void cli_machine_print(const cli_machine *machine);
json_t *cli_machine_json(const cli_machine *machine);

#endif
