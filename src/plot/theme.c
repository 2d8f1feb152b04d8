/* SPDX-License-Identifier: MIT */
/* Colours and text. The series colours are those of Okabe and Ito without their yellow, which disappears on white; the
 * dark theme has lighter ones of the same hues. */
#include <math.h>
#include <string.h>

#include "plot/draw.h"

static const pal_theme_colours themes[] = {
    [PAL_THEME_LIGHT] = { 0xffffff,
                          0x1d2129,
                          0x5b6370,
                          0xe4e7ec,
                          { 0x0072b2, 0xd55e00, 0x009e73, 0xc4609a, 0x4aa8de, 0xdb9600, 0x6b7280 } },
    [PAL_THEME_DARK] = { 0x14171c,
                         0xeceff4,
                         0xa3acba,
                         0x2c323b,
                         { 0x4da6e0, 0xff8a3c, 0x2cc498, 0xe590c0, 0x8fd0f5, 0xf2bb4b, 0xa8b0bd } },
};

const pal_theme_colours *pal_theme_of(pal_theme theme) {
    return &themes[theme == PAL_THEME_DARK ? PAL_THEME_DARK : PAL_THEME_LIGHT];
}

uint32_t pal_heat_colour(double u) {
    static const int stops[][3] = { { 13, 17, 54 },    { 33, 55, 118 },  { 30, 104, 143 }, { 39, 150, 137 },
                                    { 112, 190, 110 }, { 205, 219, 94 }, { 253, 245, 176 } };
    enum { LAST = sizeof stops / sizeof stops[0] - 1 };
    const double at = fmin(fmax(u, 0), 1) * LAST;
    const int i = at >= LAST ? LAST - 1 : (int)at;
    uint32_t colour = 0;
    for (int c = 0; c < 3; c++)
        colour = colour << 8 | (uint32_t)lround(stops[i][c] + (at - i) * (stops[i + 1][c] - stops[i][c]));
    return colour;
}

void pal_set_colour(cairo_t *cr, uint32_t colour, double alpha) {
    cairo_set_source_rgba(cr, (colour >> 16) / 255.0, (colour >> 8 & 255) / 255.0, (colour & 255) / 255.0, alpha);
}

static void set_font(cairo_t *cr, pal_font font) {
    cairo_select_font_face(cr, "DejaVu Sans", CAIRO_FONT_SLANT_NORMAL,
                           font.bold ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
    cairo_set_font_size(cr, font.size);
}

static double advance(cairo_t *cr, const char *clean) {
    cairo_text_extents_t extents;
    cairo_text_extents(cr, clean, &extents);
    return extents.x_advance;
}

double pal_text_width(cairo_t *cr, pal_font font, const char *text) {
    char clean[PAL_TEXT_MAX];
    set_font(cr, font);
    return advance(cr, pal_text_clean(clean, text));
}

double pal_text_draw(cairo_t *cr, pal_font font, uint32_t colour, pal_align align, double x, double y, double max_width,
                     const char *text) {
    char clean[PAL_TEXT_MAX + 8];
    pal_text_clean(clean, text);
    set_font(cr, font);
    double width = advance(cr, clean);
    for (size_t end = strlen(clean); max_width > 0 && width > max_width && end > 0;) {
        do end--;
        while (end > 0 && ((unsigned char)clean[end] & 0xc0) == 0x80);
        while (end > 0 && clean[end - 1] == ' ') end--;
        strcpy(clean + end, "…");
        width = advance(cr, clean);
    }
    pal_set_colour(cr, colour, 1);
    cairo_move_to(cr, x - (align == PAL_ALIGN_LEFT ? 0 : align == PAL_ALIGN_CENTRE ? width / 2 : width), y);
    cairo_show_text(cr, clean);
    cairo_new_path(cr);
    return width;
}
