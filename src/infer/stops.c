/* SPDX-License-Identifier: MIT */
#include "infer/stops.h"

#include <string.h>

#include "base/alloc.h"

/* How much of a stop string the text ends with after one more byte; before it was `matched`, which is not all. */
static size_t advance(const pal_stop *stop, size_t matched, unsigned char byte) {
    while (matched && stop->text[matched] != byte) matched = stop->borders[matched - 1];
    return matched + (stop->text[matched] == byte);
}

static pal_status make_stop(pal_stop *stop, const char *text, size_t size, pal_error *err) {
    void *block;
    const pal_status st = pal_alloc_named(&block, size, sizeof *stop->borders + 1, "a stop string", err);
    if (st) return st;
    *stop = (pal_stop){ .borders = block, .size = size, .id = -1 };
    stop->text = memcpy(stop->borders + size, text, size);
    for (size_t i = 1; i < size; i++) stop->borders[i] = advance(stop, stop->borders[i - 1], stop->text[i]);
    return PAL_OK;
}

pal_status pal_stops_new(pal_stops *out, const char *const *texts, size_t count, pal_error *err) {
    pal_status st;
    *out = (pal_stops){ 0 };
    if (!count) return PAL_OK;
    if ((st = pal_alloc_named((void **)&out->list, count, sizeof *out->list, "stop strings", err))) return st;
    for (; out->count < count && !st; out->count++) {
        const size_t size = texts[out->count] ? strlen(texts[out->count]) : 0;
        if (size > out->longest) out->longest = size;
        st = size ? make_stop(&out->list[out->count], texts[out->count], size, err)
                  : pal_fail(err, PAL_E_ARGUMENT, "stop string %zu is empty", out->count);
    }
    if (st) pal_stops_free(out);
    return st;
}

bool pal_stops_name(const pal_stops *stops, int64_t id) {
    for (size_t i = 0; i < stops->count; i++)
        if (stops->list[i].id == id) return true;
    return false;
}

void pal_stops_free(pal_stops *stops) {
    for (size_t i = 0; i < stops->count; i++) pal_free(stops->list[i].borders);
    pal_free(stops->list);
    *stops = (pal_stops){ 0 };
}

void pal_stops_restart(pal_stops *stops) {
    for (size_t i = 0; i < stops->count; i++) stops->list[i].matched = 0;
}

size_t pal_stops_tellable(pal_stops *stops, const unsigned char *held, size_t size, size_t seen, bool *stopped) {
    size_t first = size, begun = 0;
    *stopped = false;
    for (size_t i = 0; i < stops->count; i++) {
        pal_stop *stop = &stops->list[i];
        size_t at = seen;
        while (at < size && stop->matched < stop->size) stop->matched = advance(stop, stop->matched, held[at++]);
        if (stop->matched == stop->size) {
            *stopped = true;
            if (at - stop->size < first) first = at - stop->size;
        } else if (stop->matched > begun) {
            begun = stop->matched;
        }
    }
    return *stopped ? first : size - begun;
}
