/* SPDX-License-Identifier: MIT */
/* Figures to files: cairo's SVG and image surfaces, fed by the same drawing. */
#include <cairo-svg.h>
#include <cairo.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/map.h"
#include "plot/draw.h"

/* The stream remembers a write that failed; pal_writer_commit says which file it was, and why. cairo knows neither. */
static cairo_status_t to_stream(void *stream, const unsigned char *data, unsigned length) {
    fwrite(data, 1, length, stream);
    return CAIRO_STATUS_SUCCESS;
}

static pal_status finish(cairo_surface_t *surface, pal_status st, pal_error *err) {
    cairo_surface_finish(surface);
    const cairo_status_t status = cairo_surface_status(surface);
    if (!st && status != CAIRO_STATUS_SUCCESS)
        st = pal_fail(err, status == CAIRO_STATUS_NO_MEMORY ? PAL_E_MEMORY : PAL_E_IO,
                      "a figure could not be written: %s", cairo_status_to_string(status));
    cairo_surface_destroy(surface);
    return st;
}

static pal_status svg_to(const pal_figure *figure, cairo_write_func_t write, void *closure, pal_error *err) {
    int width, height;
    const pal_status st = pal_figure_size(figure, &width, &height, err);
    if (st) return st;
    cairo_surface_t *surface = cairo_svg_surface_create_for_stream(write, closure, width, height);
    cairo_svg_surface_set_document_unit(surface, CAIRO_SVG_UNIT_PX);
    return finish(surface, pal_figure_draw(figure, surface, 1, err), err);
}

pal_status pal_figures_drawn(pal_error *err) {
    (void)err;
    return PAL_OK;
}

pal_status pal_figure_write_svg(const pal_figure *figure, const char *path, pal_error *err) {
    pal_writer w = { 0 };
    pal_status st = pal_writer_open(&w, path, err);
    if (st) return st;
    if (!(st = svg_to(figure, to_stream, w.stream, err))) st = pal_writer_commit(&w, err);
    pal_writer_drop(&w);
    return st;
}

pal_status pal_figure_write_png(const pal_figure *figure, double scale, const char *path, pal_error *err) {
    int width, height;
    pal_status st = pal_figure_size(figure, &width, &height, err);
    if (st) return st;
    if (!(scale >= 0.1 && scale <= 10 && scale * fmax(width, height) <= 32000))
        return pal_fail(err, PAL_E_ARGUMENT,
                        "a scale of %g for %d x %d pixels, expected 0.1 to 10 and at most 32000 pixels each way", scale,
                        width, height);
    pal_writer w = { 0 };
    if ((st = pal_writer_open(&w, path, err))) return st;
    cairo_surface_t *surface = cairo_image_surface_create(CAIRO_FORMAT_RGB24, (int)lround(width * scale),
                                                          (int)lround(height * scale));
    st = pal_figure_draw(figure, surface, scale, err);
    if (!st) {
        const cairo_status_t status = cairo_surface_write_to_png_stream(surface, to_stream, w.stream);
        if (status != CAIRO_STATUS_SUCCESS)
            st = pal_fail(err, status == CAIRO_STATUS_NO_MEMORY ? PAL_E_MEMORY : PAL_E_IO,
                          "%s: the image could not be written: %s", path, cairo_status_to_string(status));
    }
    if (!(st = finish(surface, st, err))) st = pal_writer_commit(&w, err);
    pal_writer_drop(&w);
    return st;
}

typedef struct {
    char *data;
    size_t size, capacity;
} bytes;

static cairo_status_t to_bytes(void *closure, const unsigned char *data, unsigned length) {
    bytes *b = closure;
    if (b->capacity - b->size < (size_t)length + 1) {
        const size_t capacity = 2 * b->capacity + length + 4096;
        char *larger = pal_alloc(capacity, 1);
        if (!larger) return CAIRO_STATUS_NO_MEMORY;
        if (b->size) memcpy(larger, b->data, b->size);
        pal_free(b->data);
        b->data = larger;
        b->capacity = capacity;
    }
    memcpy(b->data + b->size, data, length);
    b->size += length;
    return CAIRO_STATUS_SUCCESS;
}

pal_status pal_figure_inline_svg(const pal_figure *figure, const char *prefix, FILE *stream, pal_error *err) {
    static const char *const names[] = { " id=\"", "href=\"#", "url(#" };
    bytes b = { 0 };
    const pal_status st = svg_to(figure, to_bytes, &b, err);
    if (!st) {
        b.data[b.size] = '\0'; /* to_bytes keeps one byte free */
        const char *from = strstr(b.data, "<svg");
        for (const char *at = from; from && *at; at++)
            for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
                const size_t length = strlen(names[i]);
                if (strncmp(at, names[i], length) != 0) continue;
                fwrite(from, 1, (size_t)(at - from) + length, stream);
                fputs(prefix, stream);
                from = at + length;
            }
        if (from) fputs(from, stream);
    }
    pal_free(b.data);
    return st;
}
