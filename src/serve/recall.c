/* SPDX-License-Identifier: MIT */
/* GET /v1/recall: an example of associative recall, for models that were trained on it: keys with values, then some of
 * the keys again, whose values the model should know. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "data/mqar_example.h"
#include "format/json.h"
#include "model/model.h"
#include "serve/inside.h"

enum { LONGEST = 1 << 16 };

/* What a run was trained on; of a curriculum its first stage, L:PAIRS:... */
static void trained_on(const serve_model *m, int64_t *pairs, int64_t *length) {
    char path[4096];
    const char *source = m->bundle.model->viewed ? m->bundle.model->viewed->source.path : m->bundle.model->source.path;
    if (!source || snprintf(path, sizeof path, "%s/../../config.json", source) >= (int)sizeof path) return;
    json_t *root = pal_json_load(path, 0, NULL, NULL);
    const json_t *n = json_object_get(root, "kv_pairs"), *all = json_object_get(root, "seq_len");
    const char *task = json_string_value(json_object_get(root, "task"));
    const char *stages = json_string_value(json_object_get(root, "stages"));
    json_int_t some = json_integer_value(n), tokens = json_integer_value(all);
    if (stages) {
        char *end;
        tokens = strtoll(stages, &end, 10);
        some = *end == ':' ? strtoll(end + 1, NULL, 10) : 0;
    }
    if (task && strcmp(task, "mqar") == 0 && some > 0 && some <= LONGEST / 4 && tokens > 0 && tokens <= LONGEST)
        *pairs = some, *length = tokens;
    json_decref(root);
}

serve_result serve_recall(serve_exchange *x) {
    const char *name = MHD_lookup_connection_value(x->connection, MHD_GET_ARGUMENT_KIND, "model");
    serve_result result = MHD_NO;
    const serve_model *m = serve_find_named(x, name, &result);
    int64_t pairs = 0, length = 0, seed = 0;
    json_t *value = NULL;
    pal_error err;
    if (!m) return result;
    const int vocabulary = pal_model_config_of(m->bundle.model)->vocab;
    trained_on(m, &pairs, &length);
    const bool asked = MHD_lookup_connection_value(x->connection, MHD_GET_ARGUMENT_KIND, "pairs");
    if (!serve_query(x, "pairs", 1, LONGEST / 4, &pairs, &result)) return result;
    if (!pairs) pairs = vocabulary / 2 - 1 < 8 ? vocabulary / 2 - 1 : 8;
    if (!length || (asked && length < 4 * pairs)) length = pairs < 8 ? 64 : 8 * pairs;
    if (!serve_query(x, "length", 4, LONGEST, &length, &result) ||
        !serve_query(x, "seed", 0, INT64_MAX, &seed, &result))
        return result;
    const pal_mqar_config c = {
        .length = (int)length, .pairs = (int)pairs, .vocabulary = vocabulary, .exponent = 0.01
    };
    if (pal_mqar_check(&c, &err)) return serve_error(x, 400, "pairs", "%s", err.text);
    if (pal_mqar_example(&value, &c, (uint64_t)seed, &err)) return serve_error(x, 500, NULL, "%s", err.text);
    pal_json_set(value, "model", json_string(m->name));
    return serve_reply_json(x, 200, value);
}
