/* SPDX-License-Identifier: MIT */
/* Bytes of a stream that wait to be sent: appended after, taken from the front. */
#ifndef PAL_SERVE_UNSENT_H
#define PAL_SERVE_UNSENT_H

#include <string.h>

#include "text/strings.h"

/* Takes up to `most` bytes after the *sent ones; how many. The rest moves to the front only when it is no longer than
 * what was sent: each byte that is sent pays for at most one that moves, so a long stream takes linear time. */
static inline size_t serve_take(pal_bytes *stream, size_t *sent, char *out, size_t most) {
    const size_t waits = stream->size - *sent, n = waits < most ? waits : most;
    if (!n) return 0;
    memcpy(out, stream->data + *sent, n);
    *sent += n;
    if (*sent >= stream->size - *sent) {
        stream->size -= *sent;
        memmove(stream->data, stream->data + *sent, stream->size);
        *sent = 0;
    }
    return n;
}

#endif
