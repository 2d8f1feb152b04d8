/* SPDX-License-Identifier: MIT */
/* A report: one HTML file that needs nothing else and no network, readable on a phone and in the dark. Curves are in it
 * as pictures and as numbers: a script inside draws those and shows values on hover, and without scripts the
 * pictures are shown. It is written from top to bottom and appears under its name, whole, when it is closed. Texts are
 * plain; they get escaped. */
#ifndef PAL_PLOT_REPORT_H
#define PAL_PLOT_REPORT_H

#include "base/map.h"
#include "plot/figure.h"

typedef struct pal_report {
    pal_writer writer;
    int figures;
    bool curves; /* there are some for the script */
} pal_report;

pal_status pal_report_open(pal_report *report, const char *path, const char *title, pal_error *err);
void pal_report_heading(pal_report *report, const char *text);
void pal_report_text(pal_report *report, const char *paragraph);
void pal_report_code(pal_report *report, const char *text); /* such as a command: every space counts */
/* What follows until the end is folded under a title. */
void pal_report_fold(pal_report *report, const char *title);
void pal_report_fold_end(pal_report *report);
/* head: (columns) names; cells: (rows, columns). Cells that start like a number are aligned to the right; NULL is
 * empty. */
void pal_report_table(pal_report *report, const char *const *head, size_t columns, const char *const *cells,
                      size_t rows);
/* Each panel becomes its own picture that flows with the page. Title, theme and size of the figure are not used,
 * except that width and height, when given, are those of one panel. caption may be NULL. */
pal_status pal_report_figure(pal_report *report, const pal_figure *figure, const char *caption, pal_error *err);
pal_status pal_report_close(pal_report *report, pal_error *err);
void pal_report_drop(pal_report *report); /* leaves what was there before; fine after close, or when zeroed */

extern const unsigned char pal_report_script[]; /* made from web/chart.js and report.js, ended by a zero */

#endif
