/* SPDX-License-Identifier: MIT */
/* What expressions of a template work on: Python's values as far as templates see them. */
#ifndef PAL_TEMPLATE_VALUE_H
#define PAL_TEMPLATE_VALUE_H

#include "template/heap.h"

typedef enum tpl_kind {
    TPL_UNDEFINED,
    TPL_NONE,
    TPL_BOOL,
    TPL_INT,
    TPL_FLOAT,
    TPL_STRING,
    TPL_LIST,
    TPL_TUPLE,
    TPL_RANGE,
    TPL_VIEW,      /* keys, values or items of a mapping */
    TPL_GENERATOR, /* gives its items once */
    TPL_DICT,
    TPL_NAMESPACE,
    TPL_MACRO,
    TPL_FUNCTION, /* one of Jinja's, or a method with the value it belongs to */
    TPL_LOOP
} tpl_kind;

typedef struct tpl_string {
    tpl_text text;
    bool safe; /* marked so by the filter `safe`: what is added to it by + is escaped */
} tpl_string;

typedef struct tpl_list tpl_list;
typedef struct tpl_dict tpl_dict;
typedef struct tpl_macro tpl_macro;
typedef struct tpl_function tpl_function;
typedef struct tpl_loop tpl_loop;

typedef struct tpl_value {
    tpl_kind kind;
    bool forbidden; /* of an undefined value: it is there, but may not be called */
    union {
        bool truth;
        int64_t whole;
        double real;
        const tpl_string *string;
        const char *missing; /* what is undefined, for the error; may be NULL */
        tpl_list *list;      /* of TPL_LIST to TPL_GENERATOR */
        tpl_dict *dict;      /* of TPL_DICT and TPL_NAMESPACE */
        const tpl_macro *macro;
        const tpl_function *function;
        tpl_loop *loop;
    } as;
} tpl_value;

struct tpl_list {
    tpl_value *item;
    size_t count, room;
    size_t given; /* of a generator */
};

typedef struct tpl_pair {
    tpl_value key, value;
} tpl_pair;

struct tpl_dict {
    tpl_pair *pair; /* in the order of insertion */
    size_t count, room;
    uint32_t *slot; /* index + 1 by hash, once there are many */
    size_t slots;   /* a power of two */
};

typedef struct tpl_argument {
    const char *name; /* NULL: by position, and those come first */
    tpl_value value;
} tpl_argument;
typedef struct tpl_arguments {
    const tpl_argument *item;
    size_t count;
} tpl_arguments;

typedef tpl_value tpl_call_fn(tpl_heap *h, tpl_value self, tpl_arguments arguments);
struct tpl_function {
    const char *name;
    tpl_call_fn *call;
    tpl_value self;
};

static inline tpl_value pal_tpl_none(void) { return (tpl_value){ .kind = TPL_NONE }; }
static inline tpl_value pal_tpl_undefined(const char *missing) {
    return (tpl_value){ .kind = TPL_UNDEFINED, .as.missing = missing };
}
static inline tpl_value pal_tpl_bool(bool x) { return (tpl_value){ .kind = TPL_BOOL, .as.truth = x }; }
static inline tpl_value pal_tpl_int(int64_t x) { return (tpl_value){ .kind = TPL_INT, .as.whole = x }; }
static inline tpl_value pal_tpl_float(double x) { return (tpl_value){ .kind = TPL_FLOAT, .as.real = x }; }
tpl_value pal_tpl_string(tpl_heap *h, tpl_text text); /* the text is borrowed */
tpl_value pal_tpl_literal(tpl_heap *h, const char *text);
static inline tpl_value pal_tpl_out_string(tpl_heap *h, const tpl_out *o) {
    return pal_tpl_string(h, pal_tpl_out_text(o));
}
tpl_value pal_tpl_new_list(tpl_heap *h, tpl_kind kind, size_t room);
tpl_value pal_tpl_pair_of(tpl_heap *h, tpl_value a, tpl_value b); /* a tuple */
void pal_tpl_append(tpl_heap *h, tpl_list *list, tpl_value item);

tpl_value pal_tpl_new_dict(tpl_heap *h, tpl_kind kind);
void pal_tpl_set(tpl_heap *h, tpl_dict *d, tpl_value key, tpl_value value);  /* leaves if the key cannot be one */
const tpl_value *pal_tpl_get(tpl_heap *h, const tpl_dict *d, tpl_value key); /* NULL: none */
const tpl_value *pal_tpl_get_name(const tpl_dict *d, const char *name);
bool pal_tpl_hashable(tpl_value v);

const char *pal_tpl_type(tpl_value v); /* "list", as Python calls it */
bool pal_tpl_truth(tpl_value v);
bool pal_tpl_equal(tpl_heap *h, tpl_value a, tpl_value b);
int pal_tpl_compare(tpl_heap *h, tpl_value a, tpl_value b); /* -1, 0, 1; leaves where Python does not order them */
bool pal_tpl_contains(tpl_heap *h, tpl_value all, tpl_value one);
bool pal_tpl_is_number(tpl_value v);                               /* a bool is one */
double pal_tpl_real(tpl_value v);                                  /* of a number */
int64_t pal_tpl_whole(tpl_heap *h, tpl_value v, const char *what); /* of an integer or a bool, else leaves */
bool pal_tpl_is_text(tpl_value v, const char *text);
bool pal_tpl_same_text(tpl_text a, tpl_text b);

/* The items of anything that can be iterated, else leaves. Uses up a generator. */
const tpl_list *pal_tpl_items(tpl_heap *h, tpl_value v);
bool pal_tpl_iterable(tpl_value v);
bool pal_tpl_length(tpl_value v, size_t *length); /* false: it has none */

/* str() and repr(). */
void pal_tpl_print(tpl_heap *h, tpl_out *o, tpl_value v);
tpl_text pal_tpl_text_of(tpl_heap *h, tpl_value v);
const char *pal_tpl_name_of(tpl_heap *h, tpl_value v); /* the same as a C string, for errors and names */
void pal_tpl_print_float(tpl_heap *h, tpl_out *o, double x);

/* Arguments by position or name into out[0 .. names), names separated by blanks; absent ones are left as they are. The
 * first `needed` must be there. */
void pal_tpl_bind(tpl_heap *h, const char *of, tpl_arguments a, const char *names, size_t needed, tpl_value *out);

#endif
