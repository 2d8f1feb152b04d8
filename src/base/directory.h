/* SPDX-License-Identifier: MIT */
/* Paths; making and removing directories. */
#ifndef PAL_BASE_DIRECTORY_H
#define PAL_BASE_DIRECTORY_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include "palimpsa/status.h"

/* A path, printed into out; refused if it does not fit. */
pal_status pal_path(char *out, size_t size, pal_error *err, const char *format, ...) PAL_PRINTF(4, 5);
pal_status pal_vpath(char *out, size_t size, pal_error *err, const char *format, va_list arguments);
bool pal_directory_has(const char *directory, const char *name); /* a file of this name */
bool pal_directory_is_empty(const char *path);                   /* or is not there */
void pal_make_parents(const char *path); /* what fails here fails again when the path itself is made */
pal_status pal_make_directory(const char *path, pal_error *err); /* and its parents; fine if it exists */
/* A new one, PREFIX-xxxxxxxx, for this user alone; path (size) gets its name. */
pal_status pal_make_temporary_directory(char *path, size_t size, const char *prefix, pal_error *err);
void pal_remove_directory(const char *path); /* with what is in it, one level deep; of a link, the link alone */

#endif
