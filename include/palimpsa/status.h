/* SPDX-License-Identifier: MIT */
/* Errors: what can fail returns a pal_status and leaves one sentence in a pal_error (what, where, expected, found).
 * A NULL pal_error is fine everywhere. The library never prints and never ends the process. */
#ifndef PALIMPSA_STATUS_H
#define PALIMPSA_STATUS_H

#include <stdbool.h>
#include <stddef.h>

#if defined(__GNUC__)
#define PAL_API                 __attribute__((visibility("default")))
#define PAL_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define PAL_API
#define PAL_PRINTF(text, first)
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum pal_status {
    PAL_OK = 0,
    PAL_E_ARGUMENT,    /* a size, pointer or value that the call does not accept */
    PAL_E_MEMORY,      /* memory could not be had */
    PAL_E_IO,          /* the operating system refused a file operation */
    PAL_E_FORMAT,      /* a file's content is not what its format promises */
    PAL_E_UNSUPPORTED, /* well formed, but this build or machine cannot do it */
    PAL_STOPPED        /* no error: a pal_go_on_fn said so */
} pal_status;

/* Long work calls this now and then: how far it is, in a unit that its header names, of how much (0: not known). False
 * stops it cleanly, and it returns PAL_STOPPED. */
typedef bool pal_go_on_fn(void *user, size_t done, size_t total);

typedef struct pal_error {
    pal_status status;
    char text[1024];
} pal_error;

/* Fills err (if any) and returns status, so that a failing function can end with `return pal_fail(...)`. */
PAL_API pal_status pal_fail(pal_error *err, pal_status status, const char *format, ...) PAL_PRINTF(3, 4);
#ifdef __clang_analyzer__ /* it sees one file at a time and must know that what comes back is the status */
#define pal_fail(err, status, ...) (pal_fail(err, status, __VA_ARGS__), (status))
#endif

/* "0.1.0 (matmul: onednn)": what was built, for bug reports. */
PAL_API const char *pal_version(void);

#ifdef __cplusplus
}
#endif
#endif
