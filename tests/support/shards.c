/* SPDX-License-Identifier: MIT */
#include "support/shards.h"

#include <sys/stat.h>

#include "support/text.h"

pal_shards *test_shards_open(const char *path) {
    pal_shards *s;
    OK(pal_shards_open(&s, path, err));
    OK(pal_shards_verify(s, err));
    return s;
}

pal_shards *test_shards(const char *name, const uint64_t *lengths, size_t documents, size_t per_shard, double valid) {
    char out[TEST_PATH];
    pal_tokenizer *tok = test_open("bytes");
    pal_shard_sums sums[64];
    size_t count = 0;
    strcpy(out, in_folder(name));
    mkdir(out, 0777);
    for (size_t d = 0; d < documents; count++) {
        pal_shard_writer *w;
        OK(pal_shard_writer_new(&w, out, count, pal_tokenizer_fingerprint(tok), 256, err));
        for (size_t k = 0; k < per_shard && d < documents; k++, d++) {
            for (uint64_t i = 0; i < lengths[d]; i++) {
                const uint32_t id = (uint32_t)((d * 31 + i * 7) % 256);
                OK(pal_shard_writer_tokens(w, &id, 1, err));
            }
            OK(pal_shard_writer_end_document(w, lengths[d], 1, err));
        }
        OK(pal_shard_writer_finish(w, &sums[count], err));
    }
    const pal_shards_summary summary = { .tokenizer = tok, .eos = -1, .count = count, .shards = sums, .valid = valid };
    OK(pal_shards_finish(out, &summary, err));
    pal_tokenizer_close(tok);
    return test_shards_open(out);
}
