/* SPDX-License-Identifier: MIT */
/* Statistics of a few runs: intervals without an assumed distribution, exact tests, and times until something happens.
 * Everything is a pure function of its numbers. */
#ifndef PAL_BASE_STATISTICS_H
#define PAL_BASE_STATISTICS_H

#include <stdbool.h>
#include <stddef.h>

#include "palimpsa/status.h"

double pal_mean(const double *x, size_t n); /* NaN of none */

/* 95% interval of the mean by bootstrap: percentiles of the means of 10,000 resamples. NaN below two numbers. */
typedef struct pal_interval {
    double low, high;
} pal_interval;
pal_status pal_bootstrap_mean(pal_interval *out, const double *x, size_t n, pal_error *err);
/* The same by Student's t, which assumes a normal distribution. */
pal_interval pal_t_interval(const double *x, size_t n);
/* The same of sum x / sum weight: x and weight of one thing are drawn together. Weights are above 0. */
pal_status pal_bootstrap_ratio(pal_interval *out, const double *x, const double *weight, size_t n, pal_error *err);

/* Two-sided sign-flip test of the hypothesis that differences are as likely x as -x: the share of all 2^n choices of
 * signs whose sum is at least as far from 0. n at most PAL_SIGN_FLIP_MOST; NaN of none or of more. */
enum { PAL_SIGN_FLIP_MOST = 24 };
double pal_sign_flip_p(const double *x, size_t n);

/* p of n tests, adjusted by Holm's method, in place. NaN stays, and counts as a test. */
void pal_holm(double *p, size_t n);

/* When something happened to each of n runs, or (happened false) until when it had not. */
typedef struct pal_times {
    size_t n;
    const double *time;
    const bool *happened;
} pal_times;

/* Kaplan-Meier: the share to which it has happened by time t. */
double pal_share_by(const pal_times *of, double t);
/* The smallest time by which it has happened to at least half; NaN if there is none. */
double pal_median_time(const pal_times *of);
/* Log-rank test of two groups: p by the chi-square distribution with one degree of freedom; NaN if nothing happened. */
double pal_log_rank_p(const pal_times *a, const pal_times *b);

#endif
