/* SPDX-License-Identifier: MIT */
/* Filters and tests by name. */
#ifndef PAL_TEMPLATE_FILTERS_H
#define PAL_TEMPLATE_FILTERS_H

#include "template/value.h"

struct tpl_filter {
    const char *name;
    tpl_call_fn *call;
};
struct tpl_test {
    const char *name;
    tpl_call_fn *call; /* gives a bool */
};

const struct tpl_filter *pal_tpl_find_filter(const char *name); /* NULL: none */
const struct tpl_test *pal_tpl_find_test(const char *name);

/* sequences.c, texts.c */
tpl_call_fn pal_tpl_f_dictsort, pal_tpl_f_first, pal_tpl_f_items, pal_tpl_f_join, pal_tpl_f_last, pal_tpl_f_length,
    pal_tpl_f_list, pal_tpl_f_map, pal_tpl_f_max, pal_tpl_f_min, pal_tpl_f_reject, pal_tpl_f_rejectattr,
    pal_tpl_f_reverse, pal_tpl_f_select, pal_tpl_f_selectattr, pal_tpl_f_sort, pal_tpl_f_sum, pal_tpl_f_unique;
tpl_call_fn pal_tpl_f_abs, pal_tpl_f_attr, pal_tpl_f_capitalize, pal_tpl_f_default, pal_tpl_f_float, pal_tpl_f_indent,
    pal_tpl_f_int, pal_tpl_f_lower, pal_tpl_f_replace, pal_tpl_f_round, pal_tpl_f_safe, pal_tpl_f_string,
    pal_tpl_f_title, pal_tpl_f_trim, pal_tpl_f_upper;

#endif
