/* SPDX-License-Identifier: MIT */
#include "data/mqar_example.h"

#include "base/alloc.h"
#include "format/json.h"

static json_t *as_json(const pal_mqar_config *c, const int32_t *ids, const int32_t *labels) {
    json_t *pairs = json_array(), *list = json_array(), *targets = json_array(), *queries = json_array();
    for (int i = 0; i < c->pairs; i++)
        pal_json_append(pairs, json_pack("[i, i]", (int)ids[2 * i], (int)ids[2 * i + 1]));
    for (int i = 0; i < c->length; i++) {
        const bool asks = labels[i] != PAL_MQAR_IGNORED;
        pal_json_append(list, json_integer(ids[i]));
        pal_json_append(targets, asks ? json_integer(labels[i]) : json_null());
        if (asks)
            pal_json_append(queries,
                            json_pack("{s:i, s:i, s:i}", "position", i, "key", (int)ids[i], "value", (int)labels[i]));
    }
    return json_pack("{s:i, s:i, s:i, s:o, s:o, s:o, s:o}", "length", c->length, "vocabulary", c->vocabulary,
                     "first_value", c->vocabulary / 2, "pairs", pairs, "ids", list, "labels", targets, "queries",
                     queries);
}

pal_status pal_mqar_example(json_t **out, const pal_mqar_config *c, uint64_t seed, pal_error *err) {
    pal_context *cx = NULL;
    pal_mqar *data = NULL;
    int32_t *ids = NULL;
    void *scratch = NULL;
    pal_status st = pal_mqar_check(c, err);
    if (!st) st = pal_context_new(&cx, 1, NULL, err);
    if (!st) st = pal_mqar_new(&data, c, seed, PAL_MQAR_TEST, err);
    if (!st) st = pal_alloc_named((void **)&ids, 2 * (size_t)c->length, sizeof *ids, "an example", err);
    if (!st) st = pal_alloc_named(&scratch, pal_mqar_scratch_bytes(data, cx), 1, "an example", err);
    if (!st) {
        pal_mqar_fill(data, cx, 0, 1, ids, ids + c->length, scratch);
        *out = as_json(c, ids, ids + c->length);
    }
    pal_free(scratch);
    pal_free(ids);
    pal_mqar_free(data);
    pal_context_free(cx);
    return st;
}
