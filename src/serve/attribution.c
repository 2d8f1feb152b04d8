/* SPDX-License-Identifier: MIT */
/* POST /v1/attribution: which tokens of a text wrote what its last token reads. */
#include "base/alloc.h"
#include "format/json.h"
#include "infer/frames.h"
#include "serve/inside.h"

enum { MOST_TOKENS = 4096 };

static bool read_ids(serve_fields *f, const serve_model *m, int32_t *ids, int *count) {
    static const char expected[] = "a list of 1 to 4096 ids of the vocabulary";
    const json_t *list = json_object_get(f->root, "prompt");
    const int vocabulary = pal_model_config_of(m->bundle.model)->vocab;
    if (!json_is_array(list) || !json_array_size(list) || json_array_size(list) > MOST_TOKENS)
        return serve_wrong(f, "prompt", expected);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *id = json_array_get(list, i);
        const json_int_t value = json_integer_value(id);
        if (!json_is_integer(id) || value < 0 || value >= vocabulary) return serve_wrong(f, "prompt", expected);
        ids[i] = (int32_t)value;
    }
    *count = (int)json_array_size(list);
    return true;
}

serve_result serve_attribution(serve_exchange *x) {
    serve_fields f = { .x = x, .result = MHD_NO };
    json_t *root = serve_body(x, &f.result), *found = NULL;
    const serve_model *m = root ? serve_find_model(x, root, &f.result) : NULL;
    int32_t *ids = m ? pal_alloc(MOST_TOKENS, sizeof *ids) : NULL;
    pal_error err;
    int count = 0;
    f.root = root;
    if (m && !ids) (void)serve_no_memory(&f);
    if (ids && read_ids(&f, m, ids, &count)) {
        if (pal_attribution_json(&found, m->bundle.model, x->server->cx, ids, count, &err))
            f.result = serve_error(x, 500, NULL, "%s", err.text);
        else f.result = serve_reply_json(x, 200, found);
    }
    pal_free(ids);
    json_decref(root);
    return f.result;
}
