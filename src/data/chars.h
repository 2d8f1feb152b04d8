/* SPDX-License-Identifier: MIT */
/* A vocabulary of the characters in text files of any size. */
#ifndef PAL_DATA_CHARS_H
#define PAL_DATA_CHARS_H

#include "palimpsa/tokenizer.h"

/* Files and field as in pal_tokenize_job; block, most: as pal_text_open's target and most. Standard input is refused:
 * it could not be read again. */
pal_status pal_files_learn_chars(pal_tokenizer **out, const char *const *files, size_t count, const char *field,
                                 size_t block, size_t most, pal_error *err);

#endif
