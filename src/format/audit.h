/* SPDX-License-Identifier: MIT */
/* Numbers that a copied tensor should not hold, counted while it passes: NaN, and what the new type cannot hold. */
#ifndef PAL_FORMAT_AUDIT_H
#define PAL_FORMAT_AUDIT_H

#include <stddef.h>

typedef struct pal_audit {
    size_t nan, lost; /* lost: finite before, infinite or NaN as they are stored */
} pal_audit;

/* stored: the same values as they come back from their new type; may be `values` itself. */
void pal_audit_values(pal_audit *audit, const float *values, const float *stored, size_t count);
/* One warning for each kind that was met. */
void pal_audit_warn(const pal_audit *audit, const char *path, const char *tensor, const char *type);

#endif
