/* SPDX-License-Identifier: MIT */
/* Every picture is in the page twice, light and dark, and the reader's preference shows one of them; then the numbers
 * of its curves, for the script at the end. */
#include "plot/report.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

#include "plot/clean.h"

static const char style[] =
    ":root{color-scheme:light dark;--paper:#fff;--ink:#1d2129;--muted:#5b6370;--line:#e4e7ec}\n"
    "@media(prefers-color-scheme:dark){:root{--paper:#14171c;--ink:#eceff4;--muted:#a3acba;--line:#2c323b}}\n"
    "body{margin:0 auto;max-width:72rem;padding:1.2rem;background:var(--paper);color:var(--ink);"
    "font:16px/1.5 system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif}\n"
    "h1{font-size:1.6rem;line-height:1.2}h2{font-size:1.2rem;margin-top:2rem}\n"
    "p{max-width:46rem}figcaption{color:var(--muted);font-size:.9rem;max-width:46rem}\n"
    "figure{margin:1rem "
    "0}.panels{display:grid;gap:.5rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,22rem),1fr))}\n"
    ".panels>div{max-width:44rem}svg{width:100%;height:auto;display:block}\n"
    ".dark{display:none}@media(prefers-color-scheme:dark){.light{display:none}.dark{display:block}}\n"
    ".table{overflow-x:auto}table{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums}\n"
    "th,td{padding:.35rem .8rem;border-bottom:1px solid var(--line);text-align:left;white-space:nowrap}\n"
    "th{color:var(--muted);font-weight:600}.n{text-align:right}\n"
    "pre{overflow-x:auto;padding:.7rem .9rem;border:1px solid var(--line);border-radius:6px;font-size:.85rem;"
    "white-space:pre-wrap;overflow-wrap:anywhere}summary{cursor:pointer;color:var(--muted)}\n"
    "@media screen{.live>.light,.live>.dark{display:none}}@media print{.live>.chart{display:none}}\n";

/* Inside HTML, or inside a text of JSON that is inside HTML: what begins a tag is written by its number there. */
static void put(FILE *to, char c, bool json) {
    if (json) {
        if (strchr("\"\\<>&", c)) fprintf(to, "\\u%04x", (unsigned)c);
        else fputc(c, to);
    } else if (c == '&') fputs("&amp;", to);
    else if (c == '<') fputs("&lt;", to);
    else if (c == '>') fputs("&gt;", to);
    else if (c == '"') fputs("&quot;", to);
    else fputc(c, to);
}

static void escape_for(FILE *to, const char *text, bool json) {
    char clean[PAL_TEXT_MAX];
    /* In pieces, because clean holds a limited number of bytes; a piece never ends inside a character. */
    for (size_t length = strlen(text); length;) {
        size_t piece = length < PAL_TEXT_MAX / 2 ? length : PAL_TEXT_MAX / 2;
        while (piece < length && piece > 1 && ((unsigned char)text[piece] & 0xc0) == 0x80) piece--;
        char part[PAL_TEXT_MAX];
        memcpy(part, text, piece);
        part[piece] = '\0';
        for (const char *p = pal_text_clean(clean, part); *p; p++) put(to, *p, json);
        text += piece;
        length -= piece;
    }
}

static void escape(FILE *to, const char *text) { escape_for(to, text, false); }

static void element(FILE *to, const char *name, const char *text) {
    fprintf(to, "<%s>", name);
    escape(to, text);
    fprintf(to, "</%s>\n", name);
}

pal_status pal_report_open(pal_report *r, const char *path, const char *title, pal_error *err) {
    *r = (pal_report){ 0 };
    const pal_status st = pal_writer_open(&r->writer, path, err);
    if (st) return st;
    FILE *to = r->writer.stream;
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n",
          to);
    element(to, "title", title);
    fprintf(to, "<style>\n%s</style>\n</head>\n<body>\n", style);
    element(to, "h1", title);
    return PAL_OK;
}

void pal_report_heading(pal_report *r, const char *text) { element(r->writer.stream, "h2", text); }
void pal_report_text(pal_report *r, const char *paragraph) { element(r->writer.stream, "p", paragraph); }
void pal_report_code(pal_report *r, const char *text) { element(r->writer.stream, "pre", text); }
void pal_report_fold(pal_report *r, const char *title) {
    fputs("<details>", r->writer.stream);
    element(r->writer.stream, "summary", title);
}
void pal_report_fold_end(pal_report *r) { fputs("</details>\n", r->writer.stream); }

static bool numeric(const char *cell) {
    if (strncmp(cell, "−", strlen("−")) == 0) cell += strlen("−");
    return isdigit((unsigned char)*cell) || strcmp(cell, "–") == 0;
}

void pal_report_table(pal_report *r, const char *const *head, size_t columns, const char *const *cells, size_t rows) {
    FILE *to = r->writer.stream;
    fputs("<div class=\"table\"><table>\n<thead><tr>", to);
    for (size_t c = 0; c < columns; c++) {
        bool right = rows > 0;
        for (size_t row = 0; row < rows; row++) right &= !cells[row * columns + c] || numeric(cells[row * columns + c]);
        fputs(right ? "<th class=\"n\">" : "<th>", to);
        escape(to, head[c]);
        fputs("</th>", to);
    }
    fputs("</tr></thead>\n<tbody>\n", to);
    for (size_t row = 0; row < rows; row++) {
        fputs("<tr>", to);
        for (size_t c = 0; c < columns; c++) {
            const char *cell = cells[row * columns + c] ? cells[row * columns + c] : "";
            fputs(numeric(cell) ? "<td class=\"n\">" : "<td>", to);
            escape(to, cell);
            fputs("</td>", to);
        }
        fputs("</tr>\n", to);
    }
    fputs("</tbody></table></div>\n", to);
}

/* ,"key":value; texts that are NULL and numbers that are none become null. */
static void json_key(FILE *to, const char *key) { fprintf(to, ",\"%s\":", key); }
static void json_text(FILE *to, const char *key, const char *text) {
    json_key(to, key);
    fputs(text ? "\"" : "null", to);
    if (!text) return;
    escape_for(to, text, true);
    fputc('"', to);
}
static void json_flag(FILE *to, const char *key, bool value) {
    json_key(to, key);
    fputs(value ? "true" : "false", to);
}
static void json_number(FILE *to, double value) {
    if (isfinite(value)) fprintf(to, "%.7g", value);
    else fputs("null", to);
}
static void json_numbers(FILE *to, const char *key, const double *values, const pal_series *s) {
    json_key(to, key);
    fputc('[', to);
    for (size_t i = 0, n = 0; i < s->count; i++) {
        if (!isfinite(s->x[i])) continue; /* it could not be placed */
        if (n++) fputc(',', to);
        json_number(to, values[i]);
    }
    fputc(']', to);
}
static void json_axis(FILE *to, const char *key, const pal_axis *axis) {
    json_key(to, key);
    fputs("{\"of\":0", to);
    if (axis->label) json_text(to, "label", axis->label);
    json_flag(to, "log", axis->log);
    if (axis->fixed) {
        json_key(to, "min"), json_number(to, axis->min);
        json_key(to, "max"), json_number(to, axis->max);
    }
    fputc('}', to);
}

/* What chart.js draws: lines over two axes, without marks. */
static bool has_curves(const pal_panel *p) {
    if (p->kind != PAL_PANEL_LINES || p->lines.mark_count || p->x.whole || p->y.whole) return false;
    for (size_t i = 0; i < p->lines.series_count; i++)
        if (p->lines.series[i].bare) return false;
    return true;
}

static void write_curves(FILE *to, const pal_panel *p) {
    fputs("<script type=\"application/json\">{\"of\":0", to);
    if (p->title) json_text(to, "title", p->title);
    json_axis(to, "x", &p->x), json_axis(to, "y", &p->y);
    json_text(to, "nothing", "no data");
    json_key(to, "series");
    for (size_t i = 0; i < p->lines.series_count; i++) {
        const pal_series *s = &p->lines.series[i];
        const char *name = s->name ? s->name : s->label ? s->label : p->title ? p->title : "";
        fprintf(to, "%s{\"colour\":%d", i ? "," : "[", s->colour);
        json_text(to, "label", name);
        json_flag(to, "dashed", s->dashed), json_flag(to, "points", s->points), json_flag(to, "unnamed", !s->label);
        json_numbers(to, "x", s->x, s), json_numbers(to, "y", s->y, s);
        if (s->low && s->high) json_numbers(to, "low", s->low, s), json_numbers(to, "high", s->high, s);
        fputc('}', to);
    }
    fputs(p->lines.series_count ? "]}" : "[]}", to);
    fputs("</script>\n", to);
}

pal_status pal_report_figure(pal_report *r, const pal_figure *figure, const char *caption, pal_error *err) {
    FILE *to = r->writer.stream;
    fputs("<figure>\n<div class=\"panels\">\n", to);
    for (int i = 0; i < figure->panel_count; i++) {
        r->figures++;
        fputs("<div role=\"img\" aria-label=\"", to);
        escape(to, figure->panels[i].title ? figure->panels[i].title : figure->title ? figure->title : "figure");
        fputs("\">\n", to);
        for (int dark = 0; dark < 2; dark++) {
            const pal_figure one = { .panels = &figure->panels[i],
                                     .panel_count = 1,
                                     .columns = 1,
                                     .theme = dark ? PAL_THEME_DARK : PAL_THEME_LIGHT,
                                     .width = figure->width ? figure->width : 440,
                                     .height = figure->height ? figure->height : 310 };
            char prefix[32];
            snprintf(prefix, sizeof prefix, "f%d%c-", r->figures, dark ? 'd' : 'l');
            fprintf(to, "<div class=\"%s\">", dark ? "dark" : "light");
            const pal_status st = pal_figure_inline_svg(&one, prefix, to, err);
            if (st) return st;
            fputs("</div>\n", to);
        }
        if (has_curves(&figure->panels[i])) write_curves(to, &figure->panels[i]), r->curves = true;
        fputs("</div>\n", to);
    }
    fputs("</div>\n", to);
    if (caption) element(to, "figcaption", caption);
    fputs("</figure>\n", to);
    return PAL_OK;
}

pal_status pal_report_close(pal_report *r, pal_error *err) {
    if (r->curves)
        fprintf(r->writer.stream, "<script>\n(() => {\n'use strict';\n%s})();\n</script>\n",
                (const char *)pal_report_script);
    fputs("</body>\n</html>\n", r->writer.stream);
    return pal_writer_commit(&r->writer, err);
}

void pal_report_drop(pal_report *r) { pal_writer_drop(&r->writer); }
