/* SPDX-License-Identifier: MIT */
#include "base/statistics.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/random.h"

enum { RESAMPLES = 10000 };

double pal_mean(const double *x, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += x[i];
    return n ? sum / (double)n : NAN;
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Between the two sorted values on either side of a share of them. */
static double percentile(const double *sorted, size_t n, double share) {
    const double at = share * (double)(n - 1);
    const size_t i = (size_t)at;
    return i + 1 < n ? sorted[i] + (at - (double)i) * (sorted[i + 1] - sorted[i]) : sorted[i];
}

/* weight NULL: all 1. */
static pal_status bootstrap(pal_interval *out, const double *x, const double *weight, size_t n, pal_error *err) {
    double *ratios;
    *out = (pal_interval){ NAN, NAN };
    if (n < 2 || n > UINT32_MAX) return PAL_OK;
    const pal_status st = pal_alloc_named((void **)&ratios, RESAMPLES, sizeof *ratios, "a bootstrap", err);
    if (st) return st;
    pal_rng rng = pal_rng_at(0x626f6f74 /* "boot" */, n); /* the same resamples for every sample of a size */
    for (int r = 0; r < RESAMPLES; r++) {
        double sum = 0, weights = 0;
        for (size_t i = 0; i < n; i++) {
            const uint32_t drawn = pal_rng_below(&rng, (uint32_t)n);
            sum += x[drawn];
            weights += weight ? weight[drawn] : 1;
        }
        ratios[r] = sum / weights;
    }
    qsort(ratios, RESAMPLES, sizeof *ratios, by_value);
    *out = (pal_interval){ percentile(ratios, RESAMPLES, 0.025), percentile(ratios, RESAMPLES, 0.975) };
    pal_free(ratios);
    return PAL_OK;
}

pal_status pal_bootstrap_mean(pal_interval *out, const double *x, size_t n, pal_error *err) {
    return bootstrap(out, x, NULL, n, err);
}

/* The share of Student's distribution between -t and t: its density integrated by Simpson's rule over atan(t /
 * sqrt(n)), where it is a power of a cosine. */
static double within(double t, double freedom) {
    enum { STEPS = 512 };
    const double end = atan(t / sqrt(freedom)), h = end / STEPS;
    double sum = 0;
    for (int i = 0; i <= STEPS; i++) sum += pow(cos(i * h), freedom - 1) * (i == 0 || i == STEPS ? 1 : i % 2 ? 4 : 2);
    return 2 * sum * h / 3 * exp(lgamma((freedom + 1) / 2) - lgamma(freedom / 2)) / sqrt(acos(-1.0));
}

pal_interval pal_t_interval(const double *x, size_t n) {
    const double mean = pal_mean(x, n), freedom = (double)n - 1;
    double squares = 0, low = 0, high = 16; /* t of one degree of freedom is 12.7 */
    if (n < 2) return (pal_interval){ NAN, NAN };
    for (size_t i = 0; i < n; i++) squares += (x[i] - mean) * (x[i] - mean);
    for (int i = 0; i < 60; i++) {
        const double middle = (low + high) / 2;
        if (within(middle, freedom) < 0.95) low = middle;
        else high = middle;
    }
    const double half = low * sqrt(squares / freedom / (double)n);
    return (pal_interval){ mean - half, mean + half };
}

pal_status pal_bootstrap_ratio(pal_interval *out, const double *x, const double *weight, size_t n, pal_error *err) {
    return bootstrap(out, x, weight, n, err);
}

double pal_sign_flip_p(const double *x, size_t n) {
    if (!n || n > PAL_SIGN_FLIP_MOST) return NAN;
    double sum = 0, all = 0;
    for (size_t i = 0; i < n; i++) sum += x[i], all += fabs(x[i]);
    const double far = fabs(sum) - 1e-12 * all; /* equal sums in another order differ by rounding */
    uint64_t as_far = 0;
    const uint64_t choices = (uint64_t)1 << n;
    for (uint64_t signs = 0; signs < choices; signs++) {
        double flipped = 0;
        for (size_t i = 0; i < n; i++) flipped += signs >> i & 1 ? -x[i] : x[i];
        as_far += fabs(flipped) >= far;
    }
    return (double)as_far / (double)choices;
}

/* Smallest first, each times the number of tests that are not smaller, and never below the one before. A NaN is not
 * smaller than any. */
void pal_holm(double *p, size_t n) {
    double least = 0;
    for (size_t done = 0; done < n; done++) { /* adjusted ones are marked by a negative sign */
        size_t next = n;
        for (size_t i = 0; i < n; i++)
            if (!isnan(p[i]) && !signbit(p[i]) && (next == n || p[i] < p[next])) next = i;
        if (next == n) break;
        least = fmax(least, fmin(p[next] * (double)(n - done), 1));
        p[next] = -least;
    }
    for (size_t i = 0; i < n; i++)
        if (signbit(p[i]) && !isnan(p[i])) p[i] = -p[i];
}

/* Runs to which nothing had happened, and which were still watched, just before t; and those to which it happened at t.
 */
static void count_at(const pal_times *of, double t, double *watched, double *events) {
    *watched = *events = 0;
    for (size_t i = 0; i < of->n; i++) {
        *watched += of->time[i] >= t;
        *events += of->happened[i] && of->time[i] == t;
    }
}

/* The first time after t at which it happened to one of them; infinity if there is none. */
static double next_event(const pal_times *of, double t) {
    double next = INFINITY;
    for (size_t i = 0; i < of->n; i++)
        if (of->happened[i] && of->time[i] > t) next = fmin(next, of->time[i]);
    return next;
}

double pal_share_by(const pal_times *of, double t) {
    double left = 1, watched, events;
    for (double at = next_event(of, -INFINITY); at <= t && isfinite(at); at = next_event(of, at)) {
        count_at(of, at, &watched, &events);
        left *= 1 - events / watched;
    }
    return of->n ? 1 - left : NAN;
}

double pal_median_time(const pal_times *of) {
    for (double at = next_event(of, -INFINITY); isfinite(at); at = next_event(of, at))
        if (pal_share_by(of, at) >= 0.5) return at;
    return NAN;
}

double pal_log_rank_p(const pal_times *a, const pal_times *b) {
    double surplus = 0, variance = 0; /* of events in a over what their number among both would be by chance */
    for (double t = -INFINITY;;) {
        double in_a, in_b, of_a, of_b;
        t = fmin(next_event(a, t), next_event(b, t));
        if (!isfinite(t)) break;
        count_at(a, t, &in_a, &of_a);
        count_at(b, t, &in_b, &of_b);
        const double watched = in_a + in_b, events = of_a + of_b;
        surplus += of_a - events * in_a / watched;
        if (watched > 1) variance += events * (in_a / watched) * (in_b / watched) * (watched - events) / (watched - 1);
    }
    return variance > 0 ? erfc(sqrt(surplus * surplus / variance / 2)) : NAN;
}
