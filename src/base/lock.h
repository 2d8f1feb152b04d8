/* SPDX-License-Identifier: MIT */
/* One process at a time in a directory, by flock: the lock ends with the process, however that ends. */
#ifndef PAL_BASE_LOCK_H
#define PAL_BASE_LOCK_H

#include <stdbool.h>

#include "palimpsa/status.h"

/* *fd holds the lock until it is closed; -1 after a failure. wait: until it is free. Otherwise, when somebody has it,
 * PAL_E_ARGUMENT with a sentence that names them. A file system without locks lets everybody in. */
pal_status pal_lock_directory(int *fd, const char *directory, bool wait, pal_error *err);

#endif
