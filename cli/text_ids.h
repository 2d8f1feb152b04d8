/* SPDX-License-Identifier: MIT */
/* The beginning of a text file as ids, for commands that look at a model through a text. */
#ifndef PAL_CLI_TEXT_IDS_H
#define PAL_CLI_TEXT_IDS_H

#include <stdint.h>

#include "palimpsa/model.h"

typedef struct cli_text_ids {
    int32_t *ids; /* freed by cli_text_ids_free */
    int count;
} cli_text_ids;

/* At most `most` ids of the file at `path`, of which `least` are needed. tokenizer NULL: the one that lies with the
 * model (which may be unloaded). Returns CLI_OK, or prints one sentence and returns an exit code. */
int cli_text_ids_read(cli_text_ids *out, const char *path, const char *tokenizer, const pal_model *model, int least,
                      int most);
void cli_text_ids_free(cli_text_ids *text);

#endif
