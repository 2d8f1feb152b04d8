/* SPDX-License-Identifier: MIT */
/* What `palimpsa generate` and its conversations share. */
#ifndef PAL_CLI_GENERATE_H
#define PAL_CLI_GENERATE_H

#include "chat/reader.h"
#include "cli.h"
#include "live.h"

typedef struct generate_options {
    cli_common common;
    const char *path, *tokenizer, *prompt, *prompt_file, *prompts, *field, *save, *load, *schema, *grammar;
    const char *template, *system, *tools;
    const char *kv_type;
    pal_sampling sampling;
    int64_t max_tokens, seed;
    int context, batch, piece, speculate;
    cli_list stop;
    bool ignore_eos, bos, interactive, uncertainty, chat;
} generate_options;

typedef struct generation generation;
typedef struct job {
    generation *of;
    pal_bytes prompt; /* as given */
    int line;         /* of --prompts; 0: not from there */
    uint64_t seed;
    pal_ids ids; /* of the prompt */
    pal_ids written;
    pal_bytes text;
    struct json_t *details;
    pal_reader said; /* of a chat */
    size_t shown_said, shown_thought, shown_calls;
    pal_finish finish;
    char error[256]; /* PAL_FINISH_ERROR */
    bool done;
} job;

struct generation {
    const generate_options *o;
    pal_bundle m;
    pal_engine *engine;
    pal_grammar *grammar;   /* NULL: none */
    struct pal_chat *chat;  /* of --chat, like the next four */
    const struct pal_chat *form;
    struct json_t *tools; /* NULL: none */
    const char **stops;
    size_t calls_made;
    pal_session **sessions; /* (slots) */
    pal_session *loaded;    /* of --load-memory, as the file has it; NULL: none */
    job *jobs;
    int count, slots;
    int *job_of; /* (slots) -1: none */
    int printed; /* jobs that are on standard output */
    bool stream; /* text goes out as it comes */
    bool closed; /* the reader is gone */
    bool short_of_memory; /* something that was written could not be kept or shown */
    int64_t prompt_tokens, written_tokens;
    live_line reading; /* of the prompt */
};

/* Writes to standard output. A closed pipe ends the work without complaint; anything else is main's to report. */
void generate_show(generation *g, const void *bytes, size_t size);
/* The ids of a job's prompt; fresh: it is the beginning of a text, which has at least one token. */
pal_status generate_encode(generation *g, job *j, bool fresh, pal_error *err);
pal_session_options generate_session_options(const generation *g, job *j);
void generate_header(generation *g); /* of the lines of --uncertainty */

int generate_converse(generation *g); /* --interactive; returns an exit code */

#endif
