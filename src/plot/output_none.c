/* SPDX-License-Identifier: MIT */
/* In place of everything that draws, where the program is built without cairo. */
#include "plot/figure.h"

pal_status pal_figures_drawn(pal_error *err) {
    return pal_fail(err, PAL_E_UNSUPPORTED, "this palimpsa was built without cairo and draws no figures or reports");
}

pal_status pal_figure_write_svg(const pal_figure *figure, const char *path, pal_error *err) {
    (void)figure, (void)path;
    return pal_figures_drawn(err);
}

pal_status pal_figure_write_png(const pal_figure *figure, double scale, const char *path, pal_error *err) {
    (void)figure, (void)scale, (void)path;
    return pal_figures_drawn(err);
}

pal_status pal_figure_inline_svg(const pal_figure *figure, const char *prefix, FILE *stream, pal_error *err) {
    (void)figure, (void)prefix, (void)stream;
    return pal_figures_drawn(err);
}
