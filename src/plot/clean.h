/* SPDX-License-Identifier: MIT */
/* Text from outside, made fit for figures and reports. */
#ifndef PAL_PLOT_CLEAN_H
#define PAL_PLOT_CLEAN_H

/* Valid UTF-8 without control characters; returns out. */
enum { PAL_TEXT_MAX = 512 };
const char *pal_text_clean(char out[PAL_TEXT_MAX], const char *text);

#endif
