/* SPDX-License-Identifier: MIT */
/* Bytes as a JSON text: what is not UTF-8 becomes U+FFFD. */
#ifndef PAL_TEXT_JSON_TEXT_H
#define PAL_TEXT_JSON_TEXT_H

#include <jansson.h>
#include <stddef.h>

json_t *pal_json_bytes(const void *bytes, size_t size);

#endif
