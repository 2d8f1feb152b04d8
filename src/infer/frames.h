/* SPDX-License-Identifier: MIT */
/* What a page needs of a model and of a text that it observes, as JSON and as events of a stream: start, token, tiles,
 * map. Numbers travel as base64. The server sends these over HTTP, the WebAssembly of the page to itself. */
#ifndef PAL_INFER_FRAMES_H
#define PAL_INFER_FRAMES_H

#include <jansson.h>
#include <stdbool.h>

#include "palimpsa/attribution.h"
#include "palimpsa/bundle.h"
#include "palimpsa/session.h"
#include "palimpsa/watch.h"
#include "text/strings.h"

enum {
    PAL_LARGEST_MAP = 1 << 20, /* numbers: heads times rows times columns */
    PAL_LONGEST_PIECE = 256    /* tokens that one frame may stand for */
};

/* Room to look at one text: a watch of tiles (or only of elements and variances), and of maps. */
typedef struct pal_look {
    pal_watch watch;
    float *floats;
    uint16_t *halves;
} pal_look;
bool pal_look_make(pal_look *look, const pal_model *model, bool tiles); /* false: no memory; free it all the same */
void pal_look_free(pal_look *look);                                     /* fine on zeroes */

typedef struct pal_map_view {
    int layer, size, head_count; /* at most `size` rows and columns of each head */
    int *heads;                  /* (heads of the model) */
    bool mean;                   /* of a block, not its largest */
} pal_map_view;

/* Each appends one event. False: no memory. */
bool pal_frame_start(pal_bytes *to, const pal_bundle *m, const char *id, const char *name, int64_t position,
                     const uint32_t *ids, size_t count);
bool pal_frame_token(pal_bytes *to, const pal_bundle *m, const pal_token *token, int64_t index);
bool pal_frame_tiles(pal_bytes *to, const pal_model *model, const pal_watch *watch, int64_t from, int64_t position);
bool pal_frame_map(pal_bytes *to, const pal_state *state, const pal_map_view *view, pal_look *look);

/* Which tokens wrote what the last of these ids reads (palimpsa/attribution.h): {"tokens", "layers": [{"layer", "rule",
 * "error", "shares": one list of numbers for each head}]}. */
pal_status pal_attribution_json(json_t **out, const pal_model *model, const pal_context *cx, const int32_t *ids,
                                int count, pal_error *err);

json_t *pal_model_json(const pal_bundle *m); /* kind, tokenizer, sizes, rule of every layer; NULL: no memory */

#endif
