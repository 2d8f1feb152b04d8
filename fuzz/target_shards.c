/* SPDX-License-Identifier: MIT */
/* shards.json and one shard. Checksums are set right first: what they cover is what is to be tried. */
#include <jansson.h>

#include "base/hash.h"
#include "data/shards_inside.h"
#include "input.h"

static void seal(unsigned char *p, size_t size) {
    if (size < HEADER) return;
    const size_t width = get32(p + AT_WIDTH), tokens = (size_t)get64(p + AT_TOKENS),
                 entry = get32(p + AT_VERSION) == PAIRS_VERSION ? PAIRS_ENTRY : ENTRY,
                 table = (size_t)get64(p + AT_DOCUMENTS) % (size + 1) * entry;
    if (table <= size - HEADER) put64(p + AT_TABLE_SUM, pal_hash(0, p + size - table, table));
    if (width <= 4 && tokens <= size && width * tokens <= size - HEADER)
        put64(p + AT_TOKEN_SUM, pal_hash(0, p + HEADER, width * tokens));
    put64(p + AT_SUM, pal_hash(0, p, AT_SUM));
}

/* The set's first entry names the header's checksum. */
static char *name_checksum(pal_slice json, const unsigned char *shard, size_t size) {
    json_t *root = json_loadb((const char *)json.data, json.size, 0, NULL);
    json_t *entry = json_array_get(json_object_get(root, "shards"), 0);
    char hex[17];
    if (size >= HEADER && json_is_object(entry)) {
        snprintf(hex, sizeof hex, "%016llx", (unsigned long long)get64(shard + AT_SUM));
        json_object_set_new(entry, "checksum", json_string(hex));
    }
    char *text = root ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    pal_slice rest = { data, size };
    const pal_slice json = fuzz_next(&rest);
    pal_shards *shards;
    pal_error err;
    unsigned char *shard = malloc(rest.size + 1);
    memcpy(shard, rest.data, rest.size);
    seal(shard, rest.size);
    char *text = name_checksum(json, shard, rest.size);
    fuzz_file("shards/shards.json", text ? (const void *)text : json.data, text ? strlen(text) : json.size);
    fuzz_file("shards/00000.shard", shard, rest.size);
    if (pal_shards_open(&shards, fuzz_path("shards"), &err) == PAL_OK) {
        const pal_shards_info *info = pal_shards_info_of(shards);
        const bool sound = pal_shards_verify(shards, &err) == PAL_OK;
        for (int subset = 0; subset < PAL_SUBSETS; subset++)
            for (uint64_t i = 0; i < info->subset[subset].documents; i++) {
                const pal_document d = pal_shards_document(shards, (pal_subset)subset, i);
                for (uint64_t t = 0; t < d.tokens; t++)
                    FUZZ_CHECK(pal_document_token(&d, t) < info->vocabulary || !sound);
            }
        pal_shards_close(shards);
    }
    free(text);
    free(shard);
    return 0;
}
