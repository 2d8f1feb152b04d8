/* SPDX-License-Identifier: MIT */
/* Text to shards: blocks are read in order, encoded by any number of threads, and written in order; the bytes written
 * do not depend on the number of threads. After a kill, the same call resumes after the last finished shard.
 */
#ifndef PAL_DATA_TOKENIZE_H
#define PAL_DATA_TOKENIZE_H

#include "data/shards.h"
#include "palimpsa/context.h"

typedef struct pal_tokenize_progress {
    uint64_t bytes, total; /* of text read, and in all; total 0: not known */
    uint64_t resumed;      /* of them, read by an earlier call */
    uint64_t tokens, documents;
    size_t shards; /* finished */
} pal_tokenize_progress;

typedef struct pal_tokenize_job {
    const char *const *files; /* "-": standard input */
    size_t count;
    const char *field;     /* every file is JSONL and its documents are in this field; NULL: by the files' names */
    const char *out;       /* directory; made if needed */
    const char *tokenizer; /* as for pal_tokenizer_open, or "chars": learned from the files first */
    bool no_eos;           /* do not end documents with the tokenizer's EOS */
    double valid;          /* fraction kept back at the end, 0 to below 1 */
    uint64_t shard_tokens; /* a shard ends when it has this many; 0: 64 Mi */
    size_t most; /* bytes of a line, or of a text without a place to cut it, that are not refused; 0: 64 MiB */
    const pal_context *cx;
    pal_go_on_fn *progress; /* bytes of text read; false: stop after the last finished shard; may be NULL */
    void *user;
} pal_tokenize_job;

typedef struct pal_tokenize_result {
    bool complete_before; /* there was nothing to do */
    bool began;  /* files and tokenizer could be opened: a later error is one of reading on or of writing */
    size_t kept; /* shards of an earlier call that was not finished */
    pal_tokenize_progress done; /* up to date whenever progress is called */
} pal_tokenize_result;

/* PAL_E_IO also when shards cannot be written; finished ones are kept (result->done.shards), as when it is stopped. */
pal_status pal_tokenize(const pal_tokenize_job *job, pal_tokenize_result *result, pal_error *err);

#endif
