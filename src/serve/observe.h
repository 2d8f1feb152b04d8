/* SPDX-License-Identifier: MIT */
/* POST /v1/observe: a text whose memory is looked at while it is read and written. */
#ifndef PAL_SERVE_OBSERVE_H
#define PAL_SERVE_OBSERVE_H

#include "base/context.h"
#include "infer/frames.h"
#include "model/model.h"
#include "palimpsa/watch.h"
#include "serve/inside.h"

enum {
    SERVE_SNAPSHOT = 128,     /* tokens from one copy of an observed memory to the next, and of a prompt's pieces */
    SERVE_MAP_ROOM = 64 << 10 /* bytes that wait: with more, the reader lags and gets no map */
};
static const double SERVE_MAP_SECONDS = 0.1;

/* What is shown next to the tiles; may change while the text runs. */
typedef struct serve_view {
    bool map;
    pal_map_view at;
    pal_element elements[PAL_ELEMENTS];
    int element_count;
} serve_view;

struct serve_observe {
    int64_t from;
    int every;
    /* The worker's, once the job is in the queue. */
    serve_view view;
    pal_look look;
    pal_bytes events;        /* to be published */
    int64_t index, position; /* of the next token of a prompt; after the last frame */
    int64_t mapped_at, kept_at;
    double mapped;
    /* Both threads. */
    serve_view next; /* what is to be shown from now on */
    bool changed;
};

#endif
