/* SPDX-License-Identifier: MIT */
/* Options as a table: names, types and where their values are. The program's command line and configuration files are
 * read into such tables, and a run's config.json is written from one. */
#ifndef PAL_FORMAT_OPTIONS_H
#define PAL_FORMAT_OPTIONS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "palimpsa/status.h"

typedef enum pal_option_type {
    PAL_OPTION_FLAG,
    PAL_OPTION_INT,
    PAL_OPTION_LONG,
    PAL_OPTION_FLOAT,
    PAL_OPTION_TEXT,
    PAL_OPTION_LIST
} pal_option_type;

/* What an option that may be given several times collects. */
enum { PAL_OPTION_MOST = 64 };
typedef struct pal_option_list {
    const char *items[PAL_OPTION_MOST];
    int count;
} pal_option_list;

typedef struct pal_option {
    const char *name; /* without dashes */
    pal_option_type type;
    void *value;          /* bool, int, int64_t, double, const char * or pal_option_list, holding the default */
    const char *argument; /* "N", "FILE"; NULL for a flag */
    const char *help;
    bool transient;    /* says how to run, not what: left out of a run's configuration */
    const char *group; /* heading in the help; NULL: "options". Options of a group stand together */
    bool above_zero;   /* 0 says "not given": a command line may not say it */
    bool bytes;        /* a long: K, M, G or T may follow the number: so many times 1024, 1024^2, ... */
    const char *alone; /* text: the value may be left out and is then this; one that follows must end in .json */
} pal_option;

enum { PAL_OPTION_KEY = 64 };
void pal_option_key(char key[PAL_OPTION_KEY], const char *name); /* of JSON: the name with _ for - */
const pal_option *pal_option_find(const pal_option *options, size_t count, const char *name, size_t length);

/* From a JSON object in a file, keys as the names with _ or -; null leaves a value as it is. Texts point into `kept`,
 * an array of the caller's. */
pal_status pal_options_read(const pal_option *options, size_t count, const char *path, json_t *kept, pal_error *err);
/* The same as an object; transient ones are left out, in both. */
json_t *pal_options_json(const pal_option *options, size_t count);
/* Whether an option has another value than the same one of another table. */
bool pal_option_differs(const pal_option *a, const pal_option *b);

#endif
