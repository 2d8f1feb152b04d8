/* SPDX-License-Identifier: MIT */
/* What a picture in a file must be, whatever wrote it. */
#ifndef PAL_TEST_PICTURES_H
#define PAL_TEST_PICTURES_H

#include "support/support.h"

/* Enough XML to notice what a browser or a paper's tool chain would: nesting, quotes, entities. Returns a complaint or
 * NULL. */
const char *test_xml_complaint(const char *text);

/* Fail unless the file is a whole picture of that kind; an SVG without NaN and infinities, a PNG of that size. */
void test_svg(const char *path);
void test_png(const char *path, unsigned width, unsigned height);

#endif
