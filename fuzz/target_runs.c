/* SPDX-License-Identifier: MIT */
/* A run directory as `palimpsa plot` reads it: config.json and metrics.jsonl, drawn in one of four ways; the input's
 * size chooses, because drawing takes nearly all of the time. Half of that is cairo's, which writes fonts and numbers
 * as SVG: only one input of 16 becomes a file, of the others cairo keeps the drawing in memory. */
#include <cairo-svg.h>

#include "input.h"
#include "plot/runs.h"

static bool to_file;

/* The linker sends the library's calls here. */
cairo_surface_t *__real_cairo_svg_surface_create_for_stream(cairo_write_func_t write, void *closure, double width,
                                                            double height);
void __real_cairo_svg_surface_set_document_unit(cairo_surface_t *surface, cairo_svg_unit_t unit);
cairo_surface_t *__wrap_cairo_svg_surface_create_for_stream(cairo_write_func_t write, void *closure, double width,
                                                            double height);
void __wrap_cairo_svg_surface_set_document_unit(cairo_surface_t *surface, cairo_svg_unit_t unit);

cairo_surface_t *__wrap_cairo_svg_surface_create_for_stream(cairo_write_func_t write, void *closure, double width,
                                                            double height) {
    if (to_file) return __real_cairo_svg_surface_create_for_stream(write, closure, width, height);
    return cairo_recording_surface_create(CAIRO_CONTENT_COLOR_ALPHA,
                                          &(cairo_rectangle_t){ .width = width, .height = height });
}

void __wrap_cairo_svg_surface_set_document_unit(cairo_surface_t *surface, cairo_svg_unit_t unit) {
    if (to_file) __real_cairo_svg_surface_set_document_unit(surface, unit);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    pal_slice rest = { data, size };
    const pal_slice config = fuzz_next(&rest);
    pal_runs *runs;
    pal_error err;
    fuzz_written("drawn/config.json", config.data, config.size);
    fuzz_written("drawn/metrics.jsonl", rest.data, rest.size);
    const char *directory = fuzz_path("drawn");
    if (pal_runs_open(&runs, &directory, 1, &err)) return 0;
    const int kind = size % 4;
    to_file = size / 4 % 16 == 0;
    pal_runs_write(runs, &(pal_runs_options){ .dynamics = kind & 1, .log_y = kind & 2, .smooth = kind },
                   fuzz_path("figure.svg"), &err);
    pal_runs_free(runs);
    return 0;
}
