/* SPDX-License-Identifier: MIT */
/* Making and removing directories. */
#ifndef PAL_BASE_DIRECTORY_H
#define PAL_BASE_DIRECTORY_H

#include <stdbool.h>

#include "palimpsa/status.h"

bool pal_directory_has(const char *directory, const char *name); /* a file of this name */
bool pal_directory_is_empty(const char *path);                   /* or is not there */
void pal_make_parents(const char *path); /* what fails here fails again when the path itself is made */
pal_status pal_make_directory(const char *path, pal_error *err); /* and its parents; fine if it exists */
void pal_remove_directory(const char *path);                     /* with what is in it, one level deep */

#endif
