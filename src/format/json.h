/* SPDX-License-Identifier: MIT */
/* JSON that is built whole or not at all, and what JSON cannot hold as it is: numbers that are not finite, and texts
 * that are not UTF-8, as a path may be.
 *
 * jansson leaves out what it cannot allocate and says so in a result that callers do not check after every line. What
 * adds to a value here remembers, for its thread, that something was lost; what makes a text of a value, or hands it on
 * (pal_json_whole), then refuses, and forgets it. Nothing else in this project adds to a value without looking, or
 * prints one. */
#ifndef PAL_FORMAT_JSON_H
#define PAL_FORMAT_JSON_H

#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>

/* These take the value over, as jansson's ..._new do; a value that is NULL was lost before. False: it is lost. */
bool pal_json_set(json_t *object, const char *key, json_t *value);
bool pal_json_setn(json_t *object, const char *key, size_t size, json_t *value);
bool pal_json_append(json_t *array, json_t *value);
bool pal_json_update(json_t *object, json_t *other); /* all of the other's */
json_t *pal_json_copy(const json_t *value);          /* deep; NULL is lost, but not that of NULL */
/* The value; or NULL, with the value released, when anything was lost since this was last asked. */
json_t *pal_json_whole(json_t *value);
/* Something was lost elsewhere on this thread. */
void pal_json_lose(void);
/* Starts again after an error that was reported already. */
void pal_json_forget(void);
/* The text, for free(); NULL with errno ENOMEM when anything was lost or is now. */
char *pal_json_dumps(const json_t *value, size_t flags);
/* The same and a line's end into a stream, whole or not at all; false with errno. */
bool pal_json_print(const json_t *value, size_t flags, FILE *to);
/* Reads, and distinguishes invalid JSON (NULL, and why, unless that is NULL) from running out of memory (NULL,
 * *starved) as far as jansson's memory is watched. Where `starved` is NULL, that is remembered as something lost. */
json_t *pal_json_parse(const char *text, size_t size, size_t flags, json_error_t *why, bool *starved);
/* The same of a file. NULL if the file is unreadable, not regular, or larger than 1 GiB, with -1 for a
 * line. */
json_t *pal_json_load(const char *path, size_t flags, json_error_t *why, bool *starved);
/* An empty object takes jansson 80 times its text. More than these are refused: below 256 MiB in all, and twice what
 * the largest tokenizers have. */
enum { PAL_JSON_CONTAINERS = 1 << 20 };
/* A text of one byte takes 22 times its own: of names, texts and numbers there are at most these, in 350 MiB. */
enum { PAL_JSON_WORDS = 1 << 22 };
size_t pal_json_containers(const char *text, size_t size); /* objects and lists of a text */

/* From now on jansson's memory is watched: for programs, once and before any value is made. jansson's reader does not
 * notice when a word that it reads cannot grow: it then runs over its blocks, or stops the process. Watched, it gets
 * the memory for that word from a reserve, and none for anything else, so that it ends with an error. */
void pal_json_watch(void);
bool pal_json_short(void); /* whether it was ever short of memory */

/* A number; null where it is not finite. */
static inline json_t *pal_json_number(double x) { return isfinite(x) ? json_real(x) : json_null(); }

/* A text: a string, or {"bytes": "HEX"} where it is not UTF-8. NULL without memory. */
json_t *pal_json_text(const char *text);
/* The string of either form, to be released; its bytes may be any but zero. NULL: neither. */
json_t *pal_json_text_read(const json_t *value);

#endif
