/* SPDX-License-Identifier: MIT */
#include "plot/ticks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void pal_range_widen(double *lo, double *hi, bool log) {
    if (log) {
        if (*hi / *lo > 1 + 1e-9) return;
        *lo = fmax(*lo / 2, 1e-300);
        *hi = *hi * 2;
        return;
    }
    const double size = fmax(fabs(*lo), fabs(*hi));
    if (*hi - *lo > 1e-9 * size) return;
    const double room = size > 0 ? 0.1 * size : 1;
    *lo -= room;
    *hi += room;
}

/* "10⁻⁵" for -5 */
static int superscript(char *text, size_t size, int exponent) {
    static const char *const digits[] = { "⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹" };
    char plain[16];
    snprintf(plain, sizeof plain, "%d", exponent);
    int used = snprintf(text, size, "10");
    for (const char *p = plain; *p; p++)
        used += snprintf(text + used, size - (size_t)used, "%s", *p == '-' ? "⁻" : digits[*p - '0']);
    return used;
}

/* A real minus sign is as wide as a plus; a hyphen looks like a speck next to digits. */
static void write_fixed(char *text, size_t size, double value, int decimals, const char *suffix) {
    char digits[400];
    snprintf(digits, sizeof digits, "%.*f", decimals, fabs(value));
    if (strspn(digits, "0.") == strlen(digits)) snprintf(text, size, "0");
    else snprintf(text, size, "%s%.24s%s", value < 0 ? "−" : "", digits, suffix);
}

static void write_scientific(char *text, size_t size, double mantissa, int decimals, int exponent) {
    if (mantissa == 0) {
        snprintf(text, size, "0");
        return;
    }
    char head[PAL_TICK_TEXT], power[PAL_TICK_TEXT];
    write_fixed(head, sizeof head, mantissa, decimals, "");
    superscript(power, sizeof power, exponent);
    snprintf(text, size, "%.20s×%.20s", head, power);
}

static int clamp_int(int x, int lo, int hi) { return x < lo ? lo : x > hi ? hi : x; }

/* All labels of an axis get the same number of decimals and the same unit. */
static void write_labels(pal_ticks *t, double step) {
    static const struct {
        double from, unit;
        const char *suffix;
    } units[] = { { 1e12, 1e12, "T" }, { 1e9, 1e9, "B" }, { 1e6, 1e6, "M" }, { 1e4, 1e3, "k" } };
    double size = 0;
    for (int i = 0; i < t->count; i++) size = fmax(size, fabs(t->at[i]));
    const double rounded = size * (1 + 1e-12);
    double unit = 1;
    const char *suffix = "";
    if (rounded >= 1e15 || (size > 0 && rounded < 1e-3)) {
        const int exponent = (int)floor(log10(rounded));
        /* In two steps, because 10^-exponent alone may overflow. */
        const int first = exponent / 2;
        const double half = pow(10, first), rest = pow(10, exponent - first);
        const int decimals = clamp_int((int)ceil(-log10(step / half / rest) - 1e-9), 0, 15);
        for (int i = 0; i < t->count; i++)
            write_scientific(t->text[i], sizeof t->text[i], t->at[i] / half / rest, decimals, exponent);
        return;
    }
    for (size_t u = 0; u < sizeof units / sizeof units[0]; u++)
        if (rounded >= units[u].from) {
            unit = units[u].unit;
            suffix = units[u].suffix;
            break;
        }
    const int decimals = clamp_int((int)ceil(-log10(step / unit) - 1e-9), 0, 17);
    for (int i = 0; i < t->count; i++) write_fixed(t->text[i], sizeof t->text[i], t->at[i] / unit, decimals, suffix);
}

static int place(pal_ticks *t, double lo, double hi, double step) {
    const double slack = 1e-9 * (hi - lo);
    const double first = ceil((lo - slack) / step);
    t->count = 0;
    for (int i = 0; t->count < PAL_TICKS_MAX; i++) {
        double x = (first + i) * step;
        if (x > hi + slack) break;
        if (fabs(x) < 1e-9 * step) x = 0;
        t->at[t->count++] = fmin(fmax(x, lo), hi);
    }
    return t->count;
}

void pal_ticks_linear(pal_ticks *t, double lo, double hi, int wanted) {
    static const double nice[] = { 1, 2, 5 };
    memset(t, 0, sizeof *t);
    wanted = clamp_int(wanted, 2, PAL_TICKS_MAX - 2);
    const double rough = (hi - lo) / wanted;
    const int exponent = (int)floor(log10(rough));
    double best_step = 0, best = INFINITY;
    for (int e = exponent - 1; e <= exponent + 1; e++)
        for (size_t k = 0; k < sizeof nice / sizeof nice[0]; k++) {
            const double step = nice[k] * pow(10, e);
            if (!(step > 0)) continue;
            const int count = place(t, lo, hi, step);
            if (count < 2 || count >= PAL_TICKS_MAX) continue;
            /* Too many crowd each other, so they cost more than too few; but two do not show a scale. */
            const double cost = (count > wanted ? 1.25 : 1.0) * abs(count - wanted) + (count < 3 ? 1.5 : 0);
            if (cost < best) best = cost, best_step = step;
        }
    place(t, lo, hi, best_step);
    write_labels(t, best_step);
}

static void add_minor(pal_ticks *t, double x, double lo, double hi) {
    if (x >= lo && x <= hi && t->minor_count < (int)(sizeof t->minor / sizeof t->minor[0]))
        t->minor[t->minor_count++] = x;
}

void pal_ticks_log(pal_ticks *t, double lo, double hi, int wanted) {
    wanted = clamp_int(wanted, 2, PAL_TICKS_MAX - 2);
    const double slack = 1 + 1e-9;
    const int first = (int)ceil(log10(lo / slack)), last = (int)floor(log10(hi * slack));
    const int decades = last - first + 1;
    memset(t, 0, sizeof *t);
    if (decades >= 3 || (decades == 2 && wanted < 4)) {
        int stride = 1;
        while ((decades + stride - 1) / stride > wanted + 1) stride++;
        const bool plain = first >= -3 && last <= 3;
        for (int e = first; e <= last; e++) {
            /* Every stride-th power, counted from 10^0 so that ticks do not jump when the range grows. */
            if (((e % stride) + stride) % stride == 0 && t->count < PAL_TICKS_MAX) {
                t->at[t->count] = fmin(fmax(pow(10, e), lo), hi);
                if (plain) write_fixed(t->text[t->count], PAL_TICK_TEXT, pow(10, e), e < 0 ? -e : 0, "");
                else superscript(t->text[t->count], PAL_TICK_TEXT, e);
                t->count++;
            } else add_minor(t, pow(10, e), lo, hi);
        }
        if (t->count >= 2) {
            for (int e = first - 1; e <= last && stride == 1; e++)
                for (int m = 2; m <= 9; m++) add_minor(t, m * pow(10, e), lo, hi);
            return;
        }
        memset(t, 0, sizeof *t);
    }
    /* 1, 2 and 5 times powers of ten */
    for (int e = first - 1; e <= last; e++)
        for (int k = 0; k < 3; k++) {
            const int m = k == 0 ? 1 : k == 1 ? 2 : 5;
            const double x = m * pow(10, e);
            if (!(x >= lo / slack && x <= hi * slack) || t->count >= PAL_TICKS_MAX) continue;
            t->at[t->count] = fmin(fmax(x, lo), hi);
            if (e >= 4 || e <= -4) write_scientific(t->text[t->count], PAL_TICK_TEXT, m, 0, e);
            else write_fixed(t->text[t->count], PAL_TICK_TEXT, x, e < 0 ? -e : 0, "");
            t->count++;
        }
    if (t->count < 3 || t->count > wanted + 4) {
        pal_ticks_linear(t, lo, hi, wanted);
        return;
    }
    for (int e = first - 1; e <= last; e++)
        for (int m = 3; m <= 9; m++)
            if (m != 5) add_minor(t, m * pow(10, e), lo, hi);
}

void pal_ticks_doubling(pal_ticks *t, double lo, double hi, int wanted) {
    const double slack = 1 + 1e-9;
    const int first = clamp_int((int)ceil(log2(lo / slack)), 0, 60);
    const int last = clamp_int((int)floor(log2(hi * slack)), -1, 60);
    int stride = 1;
    wanted = clamp_int(wanted, 2, PAL_TICKS_MAX - 2);
    while ((last - first) / stride + 1 > wanted + 1) stride++;
    memset(t, 0, sizeof *t);
    for (int e = first; e <= last; e += stride) {
        const double x = ldexp(1, e);
        t->at[t->count] = fmin(fmax(x, lo), hi);
        if (e < 20) snprintf(t->text[t->count], PAL_TICK_TEXT, "%.0f", x);
        else pal_number_text(t->text[t->count], PAL_TICK_TEXT, x);
        t->count++;
    }
    if (t->count < 2) pal_ticks_log(t, lo, hi, wanted);
}

void pal_number_text(char *text, size_t size, double value) {
    const double magnitude = fabs(value);
    if (isnan(value)) snprintf(text, size, "–");
    else if (isinf(value)) snprintf(text, size, value < 0 ? "−∞" : "∞");
    else if (magnitude == 0) snprintf(text, size, "0");
    else if (magnitude < 1e-3 || magnitude >= 1e15) {
        int exponent = (int)floor(log10(magnitude));
        const int first = exponent / 2;
        const double half = pow(10, first), rest = pow(10, exponent - first);
        double mantissa = value / half / rest;
        if (fabs(mantissa) > 9.9949) mantissa /= 10, exponent++;
        write_scientific(text, size, mantissa, fabs(mantissa - round(mantissa)) < 5e-3 ? 0 : 2, exponent);
    } else if (magnitude >= 1e12) write_fixed(text, size, value / 1e12, 2, "T");
    else if (magnitude >= 1e9) write_fixed(text, size, value / 1e9, 2, "B");
    else if (magnitude >= 1e6) write_fixed(text, size, value / 1e6, 2, "M");
    else if (magnitude >= 1e4) write_fixed(text, size, value / 1e3, 1, "k");
    else if (value == round(value)) write_fixed(text, size, value, 0, "");
    else write_fixed(text, size, value, clamp_int(3 - (int)floor(log10(magnitude)), 1, 6), "");
}
