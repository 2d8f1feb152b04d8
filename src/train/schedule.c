/* SPDX-License-Identifier: MIT */
#include "train/schedule.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

static const char *const names[] = { "constant", "cosine", "cosine-epoch" };

pal_status pal_schedule_parse(pal_schedule_kind *out, const char *name, pal_error *err) {
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (pal_schedule_kind)i;
            return PAL_OK;
        }
    return pal_fail(err, PAL_E_ARGUMENT, "schedule '%s': expected constant, cosine or cosine-epoch", name);
}

static double cosine(const pal_schedule *s, double progress) {
    const double wave = 0.5 * (1 + cos(3.141592653589793 * fmin(progress, 1.0)));
    return s->peak * (s->floor + (1 - s->floor) * wave);
}

double pal_schedule_rate(const pal_schedule *s, int64_t step) {
    if (step < s->warmup) return s->peak * (double)(step + 1) / (double)s->warmup;
    const int64_t done = step - s->warmup, all = s->total - s->warmup;
    switch (s->kind) {
    case PAL_SCHEDULE_COSINE: return cosine(s, all > 0 ? (double)done / (double)all : 1.0);
    case PAL_SCHEDULE_COSINE_EPOCH: {
        const int64_t epoch = done / s->epoch, epochs = (all + s->epoch - 1) / s->epoch;
        return cosine(s, (double)epoch / (double)epochs);
    }
    case PAL_SCHEDULE_CONSTANT: break;
    }
    return s->peak;
}
