/* SPDX-License-Identifier: MIT */
/* generate --chat: prompts are what a user says, and answers are messages. */
#ifndef PAL_CLI_CHAT_GENERATE_H
#define PAL_CLI_CHAT_GENERATE_H

#include "generate.h"

/* Opens the template and reads the tools; an exit code. */
int chat_generate_open(generation *g);
void chat_generate_close(generation *g);
/* The ids of the prompt that these messages make; a grammar that the answer needs is made with the first of them. */
pal_status chat_generate_encode(generation *g, job *j, const struct json_t *messages, pal_error *err);
/* What came of the answer: shown as it comes, or kept; last: nothing follows. False: out of memory. */
bool chat_generate_read(job *j, pal_slice text, bool last);
struct json_t *chat_generate_message(const job *j); /* the answer; NULL without memory */

int chat_generate_converse(generation *g); /* --interactive; returns an exit code */

#endif
