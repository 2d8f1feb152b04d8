/* SPDX-License-Identifier: MIT */
#include "attribution_view.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "cli.h"
#include "format/json.h"
#include "infer/frames.h"
#include "text/json_text.h"

enum { SHOWN = 4 }; /* tokens of a head */

typedef struct {
    const pal_bundle *m;
    const int32_t *ids;
} view;

static void print_token(const view *v, int t) {
    const pal_slice text = pal_tokenizer_text(v->m->tokenizer, (uint32_t)v->ids[t]);
    printf(" %d '", t);
    for (size_t i = 0; i < text.size; i++) {
        const unsigned char c = text.data[i];
        if (c == '\n') printf("\\n");
        else if (c < 32 || c == 127) printf("\\x%02x", c);
        else putchar(c);
    }
    putchar('\'');
}

/* The tokens that give most of what each head reads, by the size of their share. */
static void print_layer(const view *v, const pal_attribution *a) {
    printf("layer %d (%s), adds up within %.1e:\n", a->layer, a->rule, a->error);
    for (int h = 0; h < a->heads; h++) {
        double above = INFINITY;
        printf("  head %-3d", h);
        for (int n = 0; n < SHOWN && n < a->tokens; n++) {
            int best = -1;
            for (int t = 0; t < a->tokens; t++) {
                const double size = fabs((double)a->shares[t * a->heads + h]);
                if (size < above && (best < 0 || size > fabs((double)a->shares[best * a->heads + h]))) best = t;
            }
            if (best < 0) break;
            const double share = (double)a->shares[best * a->heads + h];
            above = fabs(share);
            printf("%s%6.1f%%", n ? "  " : "", 100 * share);
            print_token(v, best);
        }
        putchar('\n');
    }
}

static bool show(void *user, const pal_attribution *a) {
    print_layer(user, a);
    return true;
}

static json_t *tokens_json(const view *v, size_t count) {
    json_t *list = json_array();
    for (size_t t = 0; t < count; t++) {
        const pal_slice text = pal_tokenizer_text(v->m->tokenizer, (uint32_t)v->ids[t]);
        pal_json_append(list, json_pack("[i, o]", (int)v->ids[t], pal_json_bytes(text.data, text.size)));
    }
    return list;
}

int attribution_show(const char *path, const char *tokenizer, const char *text, const pal_context *cx, bool json) {
    pal_bundle m = { 0 };
    pal_ids ids = { 0 };
    pal_error err;
    int32_t *list = NULL;
    json_t *found = NULL;
    view v = { .m = &m };
    pal_status st = pal_bundle_open(&m, path, tokenizer, "ids", cx, &err);
    if (!st) st = pal_tokenizer_encode(m.tokenizer, m.scratch, text, strlen(text), NULL, &ids, &err);
    if (!st && !ids.count) st = pal_fail(&err, PAL_E_ARGUMENT, "--attribution expects a text, found none");
    if (!st && ids.count > INT32_MAX)
        st = pal_fail(&err, PAL_E_ARGUMENT, "a text of %zu tokens is too long", ids.count);
    if (!st) st = pal_alloc_named((void **)&list, ids.count, sizeof *list, "a text", &err);
    for (size_t i = 0; !st && i < ids.count; i++) list[i] = (int32_t)ids.data[i];
    v.ids = list;
    if (!st && json) st = pal_attribution_json(&found, m.model, cx, list, (int)ids.count, &err);
    else if (!st) st = pal_model_attribute(m.model, cx, list, (int)ids.count, PAL_EVERY_LAYER, show, &v, &err);
    int code = st ? cli_fail(&err) : CLI_OK;
    if (found) {
        pal_json_set(found, "path", pal_json_text(path));
        pal_json_set(found, "text", tokens_json(&v, ids.count));
        code = cli_print_json(found, JSON_INDENT(1));
    }
    pal_free(list);
    pal_ids_free(&ids);
    pal_bundle_close(&m);
    return code;
}
