/* SPDX-License-Identifier: MIT */
#include "train/dynamics.h"

#include <math.h>

#include "format/json.h"
#include "model/windows.h"

typedef struct {
    json_t *n_t, *ratio, *b_scale, *importance;
} lists;

static json_t *window(const pal_observation *o) {
    if (!o->decay) return json_null();
    double sum = 0;
    const size_t n = (size_t)o->tokens * (size_t)o->heads;
    for (size_t i = 0; i < n; i++) sum += pal_window((double)o->decay[i]);
    return pal_json_number(sum / (double)n); /* every head has the same number of tokens: mean of means is the mean */
}

static json_t *gate_scale(const pal_observation *o) {
    if (!o->b_scale) return json_null();
    double sum = 0;
    for (int h = 0; h < o->heads; h++) sum += (double)o->b_scale[h];
    return pal_json_number(sum / o->heads);
}

static json_t *ratio(const pal_observation *o) {
    if (!o->importance) return json_null();
    const size_t elements = (size_t)o->dv * (size_t)o->dk, heads = (size_t)o->sequences * (size_t)o->heads;
    double sum = 0;
    for (size_t h = 0; h < heads; h++) {
        const float *I = o->importance + h * elements;
        float low = I[0], high = I[0]; /* no doubles: gcc 12 fails on them for ARM64 */
        for (size_t i = 1; i < elements; i++) low = fminf(low, I[i]), high = fmaxf(high, I[i]);
        sum += ((double)high - (double)low) / (double)low;
    }
    return pal_json_number(sum / (double)heads);
}

static json_t *importance(const pal_observation *o) {
    if (!o->importance) return json_null();
    const size_t elements = (size_t)o->dv * (size_t)o->dk;
    const double n = (double)o->sequences * (double)elements;
    json_t *list = json_array();
    for (int h = 0; h < o->heads; h++) {
        double sum = 0, squares = 0;
        for (int s = 0; s < o->sequences; s++) {
            const float *I = o->importance + ((size_t)s * (size_t)o->heads + (size_t)h) * elements;
            for (size_t i = 0; i < elements; i++) sum += (double)I[i], squares += (double)I[i] * (double)I[i];
        }
        const double mean = sum / n;
        pal_json_append(list, json_pack("{s:o, s:o}", "mean", pal_json_number(mean), "sd",
                                        pal_json_number(sqrt(fmax(squares / n - mean * mean, 0)))));
    }
    return list;
}

static bool take(void *user, const pal_observation *o) {
    lists *l = user;
    pal_json_append(l->n_t, window(o));
    pal_json_append(l->ratio, ratio(o));
    pal_json_append(l->b_scale, gate_scale(o));
    pal_json_append(l->importance, importance(o));
    return true;
}

pal_status pal_dynamics_measure(const pal_model *model, pal_work *work, pal_observer *observer, const pal_batch *batch,
                                json_t *metrics, pal_error *err) {
    lists l = { json_array(), json_array(), json_array(), json_array() };
    const pal_status st = pal_model_observe(model, work, observer, batch, take, &l, err);
    pal_json_set(metrics, "n_t", l.n_t);
    pal_json_set(metrics, "ratio", l.ratio);
    pal_json_set(metrics, "b_scale", l.b_scale);
    pal_json_set(metrics, "importance", l.importance);
    return st;
}
