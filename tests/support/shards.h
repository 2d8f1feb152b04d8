/* SPDX-License-Identifier: MIT */
/* Token shards for tests that read them. */
#ifndef PAL_TEST_SHARDS_H
#define PAL_TEST_SHARDS_H

#include "data/shards.h"
#include "support/files.h"

pal_shards *test_shards_open(const char *path); /* verified, or a failed test */

/* A small set of byte tokens in the test's folder: token i of document d is (31 d + 7 i) mod 256, so that a token says
 * where it is from. At most 64 shards. */
pal_shards *test_shards(const char *name, const uint64_t *lengths, size_t documents, size_t per_shard, double valid);

#endif
