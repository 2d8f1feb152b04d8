/* SPDX-License-Identifier: MIT */
/* Every picture is in the page twice, light and dark, and the reader's preference shows one of them. */
#include "plot/report.h"

#include <ctype.h>
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
    "th{color:var(--muted);font-weight:600}.n{text-align:right}\n";

static void escape(FILE *to, const char *text) {
    char clean[PAL_TEXT_MAX];
    /* In pieces, because clean holds a limited number of bytes; a piece never ends inside a character. */
    for (size_t length = strlen(text); length;) {
        size_t piece = length < PAL_TEXT_MAX / 2 ? length : PAL_TEXT_MAX / 2;
        while (piece < length && piece > 1 && ((unsigned char)text[piece] & 0xc0) == 0x80) piece--;
        char part[PAL_TEXT_MAX];
        memcpy(part, text, piece);
        part[piece] = '\0';
        for (const char *p = pal_text_clean(clean, part); *p; p++) {
            if (*p == '&') fputs("&amp;", to);
            else if (*p == '<') fputs("&lt;", to);
            else if (*p == '>') fputs("&gt;", to);
            else if (*p == '"') fputs("&quot;", to);
            else fputc(*p, to);
        }
        text += piece;
        length -= piece;
    }
}

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
        fputs("</div>\n", to);
    }
    fputs("</div>\n", to);
    if (caption) element(to, "figcaption", caption);
    fputs("</figure>\n", to);
    return PAL_OK;
}

pal_status pal_report_close(pal_report *r, pal_error *err) {
    fputs("</body>\n</html>\n", r->writer.stream);
    return pal_writer_commit(&r->writer, err);
}

void pal_report_drop(pal_report *r) { pal_writer_drop(&r->writer); }
