/* SPDX-License-Identifier: MIT */
#include "plot/figure.h"

#include <cairo.h>

#include "base/alloc.h"
#include "plot/layout.h"

pal_status pal_figure_size(const pal_figure *f, int *width, int *height, pal_error *err) {
    if (f->panel_count < 1 || f->panel_count > 256)
        return pal_fail(err, PAL_E_ARGUMENT, "a figure of %d panels, expected 1 to 256", f->panel_count);
    const int columns = f->columns < 1 ? 1 : f->columns > f->panel_count ? f->panel_count : f->columns;
    if (columns > 64) return pal_fail(err, PAL_E_ARGUMENT, "a figure of %d columns, expected at most 64", columns);
    const int rows = (f->panel_count + columns - 1) / columns;
    *width = f->width ? f->width : columns == 1 ? 640 : 440 * columns;
    *height = f->height ? f->height : 60 + rows * (f->panel_count == 1 ? 360 : f->share_x ? 190 : 290);
    if (*width < PAL_FIGURE_MIN || *width > PAL_FIGURE_MAX || *height < PAL_FIGURE_MIN || *height > PAL_FIGURE_MAX)
        return pal_fail(err, PAL_E_ARGUMENT, "a figure of %d x %d pixels, expected %d to %d each way", *width, *height,
                        PAL_FIGURE_MIN, PAL_FIGURE_MAX);
    return PAL_OK;
}

pal_status pal_figure_draw(const pal_figure *figure, cairo_surface_t *surface, double scale, pal_error *err) {
    int width, height;
    pal_status st = pal_figure_size(figure, &width, &height, err);
    if (st) return st;
    pal_canvas c = { .figure = figure, .theme = pal_theme_of(figure->theme), .width = width, .height = height };
    c.cr = cairo_create(surface);
    cairo_scale(c.cr, scale, scale);
    /* Unhinted text has the same widths in SVG and PNG, so both have one layout. */
    cairo_font_options_t *options = cairo_font_options_create();
    cairo_font_options_set_hint_style(options, CAIRO_HINT_STYLE_NONE);
    cairo_font_options_set_hint_metrics(options, CAIRO_HINT_METRICS_OFF);
    cairo_font_options_set_antialias(options, CAIRO_ANTIALIAS_GRAY);
    cairo_set_font_options(c.cr, options);
    cairo_font_options_destroy(options);

    if ((st = pal_layout_make(&c, err))) goto done;
    pal_set_colour(c.cr, c.theme->background, 1);
    cairo_paint(c.cr);
    if (figure->title)
        pal_text_draw(c.cr, PAL_FONT_TITLE, c.theme->ink, PAL_ALIGN_LEFT, PAL_OUTER,
                      PAL_OUTER + PAL_FONT_TITLE.size - 1, width - 2 * PAL_OUTER, figure->title);
    pal_legend_draw(&c);
    for (int i = 0; i < figure->panel_count; i++) pal_chart_draw(&c, &c.frames[i]);
    cairo_show_page(c.cr);
    if (cairo_status(c.cr) != CAIRO_STATUS_SUCCESS)
        st = pal_fail(err, cairo_status(c.cr) == CAIRO_STATUS_NO_MEMORY ? PAL_E_MEMORY : PAL_E_IO,
                      "a figure could not be drawn: %s", cairo_status_to_string(cairo_status(c.cr)));
done:
    cairo_destroy(c.cr);
    pal_free(c.legend);
    pal_free(c.frames);
    return st;
}
