/* SPDX-License-Identifier: MIT */
#ifndef PAL_TEMPLATE_TOJSON_H
#define PAL_TEMPLATE_TOJSON_H

#include <jansson.h>

#include "template/value.h"

tpl_call_fn pal_tpl_tojson; /* the filter */
/* Strings and keys get this mark. */
tpl_value pal_tpl_from_json(tpl_heap *h, const json_t *json, unsigned char mark);

#endif
