/* SPDX-License-Identifier: MIT */
#include "format/audit.h"

#include "base/half.h"
#include "base/log.h"

static unsigned exponent_and_rest(float x) { return pal_f32_bits(x) & 0x7fffffffu; }

void pal_audit_values(pal_audit *audit, const float *values, const float *stored, size_t count) {
    const unsigned infinite = 0x7f800000u;
    size_t nan = 0, lost = 0;
    for (size_t i = 0; i < count; i++) {
        const unsigned before = exponent_and_rest(values[i]);
        nan += before > infinite;
        lost += before < infinite && exponent_and_rest(stored[i]) >= infinite;
    }
    audit->nan += nan;
    audit->lost += lost;
}

void pal_audit_warn(const pal_audit *audit, const char *path, const char *tensor, const char *type) {
    if (audit->nan) pal_warn("%s: tensor '%s' holds %zu NaN", path, tensor, audit->nan);
    if (audit->lost)
        pal_warn("%s: %zu finite values of tensor '%s' do not fit %s and become infinite or NaN", path, audit->lost,
                 tensor, type);
}
