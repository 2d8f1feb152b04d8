/* SPDX-License-Identifier: MIT */
/* What is seen while a model steps, against plain sums over the exported memory before and after. */
#include "support/support.h"

#include <math.h>

#include "base/alloc.h"
#include "memory/change/change.h"
#include "model/model.h"
#include "model/windows.h"
#include "support/models.h"
#include "support/sessions.h"

enum { T = 23, LAYERS = 4, HEADS = 8, ELEMENTS = 64 * 64 };

static void near_to(const char *kind, const char *what, double x, double expected, double accept) {
    if (isnan(expected) ? !isnan(x) : !(fabs(x - expected) <= accept * fmax(fabs(expected), 1e-3) || x == expected))
        fail_msg("%s: %s is %.9g, expected %.9g", kind, what, x, expected);
}

/* A model with a work, a state and a watch of everything. */
typedef struct {
    const char *kind;
    pal_context *cx;
    pal_model *model;
    pal_work *work;
    pal_state *state;
    const pal_model_config *config;
    int layers, heads; /* heads: of the layer that has the most */
    int32_t ids[T];
    pal_tile tiles[LAYERS];
    float writes[LAYERS * HEADS], windows[T * LAYERS], variances[T * LAYERS], followed[T * 2 * 2];
    pal_element elements[2];
    pal_watch watch;
} scene;

static void open_scene(scene *s, const test_kind *kind, int threads) {
    *s = (scene){ .kind = kind->name, .cx = test_context(threads, NULL) };
    s->model = test_model(kind, PAL_FOR_INFERENCE, s->cx);
    const pal_model_config *c = s->config = pal_model_config_of(s->model);
    int dk, dv;
    s->layers = c->layers;
    pal_model_widest(c, &s->heads, &dk, &dv);
    assert_true(s->layers <= LAYERS && s->heads <= HEADS && dk * dv <= ELEMENTS);
    OK(pal_work_new(&s->work, s->model, s->cx, &(pal_work_options){ .tokens = T, .sequences = 3, .variance = true },
                    err));
    OK(pal_state_new(&s->state, s->model, 64, err));
    test_ids(s->ids, T, TEST_VOCAB, 5);
    int elements = 0, last = s->layers - 1, first = 0; /* of the first and of the last memory */
    while (last > 0 && !pal_model_memory(c, last)) last--;
    while (first < last && !pal_model_memory(c, first)) first++;
    const pal_mixer_spec *m = pal_model_memory(c, last);
    if (m) s->elements[elements++] = (pal_element){ last, m->heads - 1, m->dk - 1, 0 };
    if (m) s->elements[elements++] = (pal_element){ first, 0, 0, pal_model_memory(c, first)->dv - 1 };
    s->watch = (pal_watch){ .tiles = s->tiles,
                            .writes = s->writes,
                            .windows = s->windows,
                            .variances = s->variances,
                            .elements = s->elements,
                            .element_count = elements,
                            .followed = s->followed,
                            .tokens = T,
                            .scratch = pal_alloc(pal_watch_bytes(s->model), 1) };
}

static void close_scene(scene *s) {
    pal_free(s->watch.scratch);
    pal_state_free(s->state);
    pal_work_free(s->work);
    pal_model_close(s->model);
    pal_context_free(s->cx);
}

/* The mean and the importance (NULL: none) of a whole layer, by the parts that the state exports. */
static bool export_layer(const pal_state *state, int layer, float *mean, float *importance) {
    size_t floats;
    const char *first = pal_state_part(state, layer, 0, &floats), *second = pal_state_part(state, layer, 1, NULL);
    static float keys[HEADS * ELEMENTS];
    if (!first || strcmp(first, "K") == 0) return false;
    if (strcmp(first, "H") == 0) OK(pal_state_export(state, layer, keys, mean, err));
    else OK(pal_state_export(state, layer, mean, importance, err));
    if (!second || strcmp(second, "I") != 0)
        for (int i = 0; i < HEADS * ELEMENTS; i++) importance[i] = NAN;
    return true;
}

static int rising(const void *a, const void *b) {
    return (*(const float *)a > *(const float *)b) - (*(const float *)a < *(const float *)b);
}

static void check_importance(const scene *s, const pal_mixer_spec *m, const pal_tile *tile, const float *I) {
    static const double shares[] = { 0.05, 0.25, 0.5, 0.75, 0.95 };
    static float sorted[HEADS * ELEMENTS];
    const int per_head = m->dk * m->dv, all = m->heads * per_head;
    double ratio = 0;
    memcpy(sorted, I, (size_t)all * sizeof *I);
    qsort(sorted, (size_t)all, sizeof *sorted, rising);
    near_to(s->kind, "least importance", (double)tile->importance[0], (double)sorted[0], 1e-6);
    near_to(s->kind, "most importance", (double)tile->importance[6], (double)sorted[all - 1], 1e-6);
    for (int q = 0; q < 5; q++) /* all elements of so small heads are counted */
        near_to(s->kind, "a quantile", (double)tile->importance[q + 1], (double)sorted[(int)(shares[q] * all)], 0.005);
    for (int h = 0; h < m->heads; h++) {
        float low = INFINITY, high = 0; /* no doubles: see test_largest() */
        for (int i = 0; i < per_head; i++) {
            low = fminf(low, I[h * per_head + i]);
            high = fmaxf(high, I[h * per_head + i]);
        }
        ratio += ((double)high - (double)low) / (double)low / m->heads;
    }
    /* high/low - 1 where both may be off by four roundings, 2^-24 each: what is left of a small ratio is less exact. */
    const double slack = 8 * ldexp(1, -24) * (1 + ratio);
    if (!(fabs((double)tile->ratio - ratio) <= slack))
        fail_msg("%s: ratio is %.9g, expected %.9g within %.2g", s->kind, (double)tile->ratio, ratio, slack);
}

/* What was seen between two states. */
static void check_tiles(const scene *s, const pal_state *before, const pal_state *after) {
    static float old[HEADS * ELEMENTS], new[HEADS * ELEMENTS], I[HEADS * ELEMENTS], unused[HEADS * ELEMENTS];
    for (int l = 0; l < s->layers; l++) {
        const pal_tile *tile = &s->tiles[l];
        const pal_mixer_spec *m = pal_model_memory(s->config, l);
        const int heads = m ? m->heads : 0, per_head = m ? m->dk * m->dv : 0;
        double moved = 0, size = 0;
        for (int h = heads; h < s->heads; h++) assert_true(isnan(s->writes[l * s->heads + h]));
        if (!export_layer(before, l, old, unused)) {
            assert_true(isnan(tile->write) && isnan(tile->norm) && isnan(tile->window) && isnan(tile->importance[3]));
            assert_null(m);
            continue;
        }
        export_layer(after, l, new, I);
        for (int h = 0; h < heads; h++) {
            double head_moved = 0, head_size = 0;
            for (int i = h * per_head; i < (h + 1) * per_head; i++) {
                head_moved += ((double)new[i] - (double)old[i]) * ((double)new[i] - (double)old[i]);
                head_size += (double)new[i] * (double)new[i];
            }
            const double write = sqrt(head_moved / head_size);
            near_to(s->kind, "write of a head", (double)s->writes[l * s->heads + h], write, 1e-4);
            moved += head_moved, size += head_size;
        }
        near_to(s->kind, "write", (double)tile->write, sqrt(moved / size), 1e-4);
        near_to(s->kind, "norm", (double)tile->norm, sqrt(size / (heads * per_head)), 1e-5);
        if (isnan(I[0])) assert_true(isnan(tile->ratio) && isnan(tile->importance[0]) && isnan(tile->importance[3]));
        else check_importance(s, m, tile, I);
    }
}

static void check_followed(const scene *s, const pal_state *after, int token) {
    static float mean[ELEMENTS], I[ELEMENTS];
    for (int e = 0; e < s->watch.element_count; e++) {
        const pal_element *one = &s->elements[e];
        const int at = one->value * pal_model_memory(s->config, one->layer)->dk + one->key;
        OK(pal_state_export_head(after, one->layer, one->head, mean, I, err));
        near_to(s->kind, "followed mean", (double)s->followed[(token * 2 + e) * 2], (double)mean[at], 1e-4);
        near_to(s->kind, "followed importance", (double)s->followed[(token * 2 + e) * 2 + 1], (double)I[at], 1e-4);
    }
}

/* Windows from the decays that the batch observer says. */
typedef struct {
    double n_t[LAYERS * T];
} decays;
static bool take(void *user, const pal_observation *o) {
    decays *d = user;
    for (int t = 0; t < o->tokens; t++) {
        double heads[HEADS];
        for (int h = 0; o->decay && h < o->heads; h++) heads[h] = 1 / -expm1(-(double)o->decay[t * o->heads + h]);
        d->n_t[o->layer * T + t] = o->decay ? pal_median(heads, (size_t)o->heads) : NAN;
    }
    return true;
}

static decays observed(const scene *s) {
    static decays d;
    const int cu[2] = { 0, T };
    pal_observer *observer;
    OK(pal_observer_new(&observer, s->model, T, 1, err));
    OK(pal_model_observe(s->model, s->work, observer,
                         &(pal_batch){ .tokens = T, .sequences = 1, .ids = s->ids, .cu_seqlens = cu }, take, &d, err));
    pal_observer_free(observer);
    return d;
}

static double mean_variance(const scene *s, int token) {
    double sum = 0;
    int count = 0;
    for (int l = 0; l < s->layers; l++)
        if (!isnan(s->variances[token * s->layers + l])) sum += (double)s->variances[token * s->layers + l], count++;
    return sum / count;
}

static void steps_are_seen_as_they_are(void **state) {
    (void)state;
    for (size_t k = 0; k < test_kind_count; k++) {
        scene s;
        pal_state *before;
        float logits[3 * 64];
        open_scene(&s, &test_kinds[k], 2);
        OK(pal_state_new(&before, s.model, 64, err));
        const decays d = observed(&s);
        pal_windows measured = { 0 };
        pal_error none;
        const bool forgets = pal_windows_measure(&measured, s.model, s.cx, s.ids, T, NULL, NULL, &none) == PAL_OK;
        OK(pal_work_watch(s.work, 0, &s.watch, err));
        for (int t = 0; t < T; t++) {
            OK(pal_state_copy(before, s.state, err));
            const uint64_t allocations = pal_alloc_count();
            OK(pal_model_step(s.model, s.work, &s.state, 1, &s.ids[t], logits, err));
            assert_in_range(pal_alloc_count() - allocations, 0, pal_model_grows(&s.model->config)); /* a page */
            check_tiles(&s, before, s.state);
            check_followed(&s, s.state, 0);
            for (int l = 0; l < s.layers; l++) {
                near_to(s.kind, "window", (double)s.windows[l], d.n_t[l * T + t], 2e-3);
                near_to(s.kind, "window of a tile", (double)s.tiles[l].window, d.n_t[l * T + t], 2e-3);
                const double n_t = forgets ? measured.n_t[l * T + t] : NAN;
                near_to(s.kind, "measured window", n_t, (double)s.tiles[l].window, 2e-3);
                near_to(s.kind, "variance of a tile", (double)s.tiles[l].variance, (double)s.variances[l], 0);
            }
            near_to(s.kind, "variance", mean_variance(&s, 0), pal_work_variance(s.work, 0), 1e-5);
        }
        if (forgets) pal_windows_free(&measured);
        pal_state_free(before);
        close_scene(&s);
    }
}

/* A piece says of every token what the steps said. */
static void pieces_are_seen_as_steps(void **state) {
    (void)state;
    for (size_t k = 0; k < test_kind_count; k++) {
        scene s, one;
        pal_state *before;
        float logits[64], variances[T * LAYERS];
        open_scene(&s, &test_kinds[k], 3);
        open_scene(&one, &test_kinds[k], 1);
        OK(pal_state_new(&before, s.model, 64, err));
        const int first = 5, cu[2] = { 0, T - first };
        OK(pal_model_prefill(s.model, s.work, s.state, s.ids, first, NULL, err));
        OK(pal_model_prefill(one.model, one.work, one.state, s.ids, first, NULL, err));
        OK(pal_state_copy(before, s.state, err));
        OK(pal_work_watch(s.work, 0, &s.watch, err));
        OK(pal_work_watch(one.work, 0, &one.watch, err));
        const pal_batch batch = { .tokens = T - first, .sequences = 1, .ids = s.ids + first, .cu_seqlens = cu };
        const uint64_t allocations = pal_alloc_count();
        OK(pal_model_continue(s.model, s.work, &s.state, &batch, NULL, 0, NULL, err));
        assert_in_range(pal_alloc_count() - allocations, 0, pal_model_grows(&s.model->config)); /* a page */
        check_tiles(&s, before, s.state);
        memcpy(variances, s.variances, sizeof variances);
        for (int t = 0; t < T - first; t++) {
            OK(pal_model_step(one.model, one.work, &one.state, 1, &s.ids[first + t], logits, err));
            for (int l = 0; l < s.layers; l++) {
                near_to(s.kind, "window", (double)s.windows[t * s.layers + l], (double)one.windows[l], 2e-3);
                near_to(s.kind, "variance", (double)variances[t * s.layers + l], (double)one.variances[l], 1e-3);
            }
            for (int e = 0; e < 2 * s.watch.element_count; e++)
                near_to(s.kind, "followed", (double)s.followed[t * 4 + e], (double)one.followed[e], 1e-3);
        }
        pal_state_free(before);
        close_scene(&s);
        close_scene(&one);
    }
}

/* Who looks changes nothing, and sees its own sequence. */
static void watching_changes_nothing(void **state) {
    (void)state;
    for (size_t k = 0; k < test_kind_count; k++) {
        scene s;
        pal_state *states[3], *alone;
        float seen[3 * 64], unseen[3 * 64];
        open_scene(&s, &test_kinds[k], 2);
        OK(pal_state_new(&alone, s.model, 64, err));
        for (int pass = 0; pass < 2; pass++) {
            for (int i = 0; i < 3; i++) {
                OK(pal_state_new(&states[i], s.model, 64, err));
                OK(pal_model_prefill(s.model, s.work, states[i], s.ids + i, 4 + i, NULL, err));
            }
            OK(pal_state_copy(alone, states[1], err));
            OK(pal_work_watch(s.work, 1, pass ? &s.watch : NULL, err));
            OK(pal_model_step(s.model, s.work, states, 3, s.ids, pass ? seen : unseen, err));
            if (pass) check_tiles(&s, alone, states[1]);
            for (int i = 0; i < 3; i++) pal_state_free(states[i]);
        }
        test_same_bits(s.kind, seen, unseen, 3 * (size_t)pal_model_config_of(s.model)->vocab_rows);
        pal_state_free(alone);
        close_scene(&s);
    }
}

static void wrong_watches_are_refused(void **state) {
    (void)state;
    scene s;
    pal_error err;
    float x[4];
    open_scene(&s, test_kind_named("palimpsa-d"), 1);
    assert_int_equal(pal_work_watch(s.work, 3, &s.watch, &err), PAL_E_ARGUMENT);
    assert_int_equal(pal_work_watch(s.work, -1, &s.watch, &err), PAL_E_ARGUMENT);
    const pal_mixer_spec *m = pal_model_memory(s.config, 0);
    const pal_element wrong[] = { { s.layers, 0, 0, 0 }, { 0, s.heads, 0, 0 }, { 0, 0, m->dk, 0 }, { 0, 0, 0, m->dv },
                                  { -1, 0, 0, 0 },       { 0, -1, 0, 0 },      { 0, 0, -1, 0 },    { 0, 0, 0, -1 } };
    for (size_t i = 0; i < PAL_COUNT(wrong); i++) {
        pal_watch watch = s.watch;
        watch.elements = &wrong[i], watch.element_count = 1;
        assert_int_equal(pal_work_watch(s.work, 0, &watch, &err), PAL_E_ARGUMENT);
    }
    pal_watch watch = s.watch;
    watch.element_count = PAL_ELEMENTS + 1;
    assert_int_equal(pal_work_watch(s.work, 0, &watch, &err), PAL_E_ARGUMENT);
    watch = s.watch, watch.scratch = NULL;
    assert_int_equal(pal_work_watch(s.work, 0, &watch, &err), PAL_E_ARGUMENT);
    assert_int_equal(pal_state_export_head(s.state, 0, s.heads, x, x, &err), PAL_E_ARGUMENT);
    assert_int_equal(pal_state_export_head(s.state, -1, 0, x, x, &err), PAL_E_ARGUMENT);
    close_scene(&s);
    open_scene(&s, test_kind_named("transformer"), 1);
    assert_int_equal(pal_state_export_head(s.state, 0, 0, x, x, &err), PAL_E_ARGUMENT);
    watch = s.watch, watch.element_count = 1;
    assert_int_equal(pal_work_watch(s.work, 0, &watch, &err), PAL_E_ARGUMENT);
    close_scene(&s);
}

/* Every variant against the reference, at sizes around the vectors' widths. */
static void variants_of_change_agree(void **state) {
    (void)state;
    static const int sizes[] = { 1, 3, 7, 8, 9, 15, 16, 17, 31, 33, 64 };
    pal_rng rng = pal_rng_at(9, 0);
    for (TEST_LEVELS(level)) {
        pal_context *cx = test_context(1, pal_cpu_level_name(level));
        for (size_t s = 0; s < PAL_COUNT(sizes); s++) {
            const int dv = sizes[s], dk = 5;
            const size_t row = ((size_t)dv + 15) / 16 * 32, n = row * (size_t)dk, plain = (size_t)dv * 67;
            float *before = test_guarded(n), *after = test_guarded(n);
            float *a = test_guarded(plain), *b = test_guarded(plain), *v = test_guarded((size_t)dv);
            float k[5] = { 0.5f, -1, 0, 2, 0.1f };
            pal_memory_change x, y;
            test_fill(before, n, &rng, 0.5, 2), test_fill(after, n, &rng, 0.5, 2);
            test_fill(a, plain, &rng, -1, 1), test_fill(b, plain, &rng, -1, 1);
            for (size_t i = 0; i < n; i++) /* after dv */
                if (i % 32 < 16 && (int)(i % row / 32 * 16 + i % 16) >= dv)
                    before[i] = after[i] = 0, after[i + 16] = i % 2 ? 100 : 0.01f;
            PAL_PICK(cx, change_paired)(before, after, row, dk, dv, &x);
            pal_change_paired_ref(before, after, row, dk, dv, &y);
            near_to("paired", "change", x.change, y.change, 1e-5), near_to("paired", "size", x.size, y.size, 1e-5);
            assert_true(x.low == y.low && x.high == y.high);
            PAL_PICK(cx, change_plain)(a, b, plain, &x);
            pal_change_plain_ref(a, b, plain, &y);
            near_to("plain", "change", x.change, y.change, 1e-5), near_to("plain", "size", x.size, y.size, 1e-5);
            assert_true(isnan(x.low) && isnan(x.high));
            test_fill(v, (size_t)dv, &rng, 0.1, 1);
            const pal_change_token token = {
                .dk = dk, .dv = dv, .lost = -0.25f, .fresh = 0.5f, .k = k, .v = v, .b = v
            };
            PAL_PICK(cx, change_paired_ahead)(&token, before, row, &x);
            pal_change_paired_ahead_ref(&token, before, row, &y);
            near_to("ahead", "change", x.change, y.change, 1e-5), near_to("ahead", "size", x.size, y.size, 1e-5);
            near_to("ahead", "low", (double)x.low, (double)y.low, 1e-6);
            near_to("ahead", "high", (double)x.high, (double)y.high, 1e-6);
            PAL_PICK(cx, change_plain_ahead)(&token, a, (size_t)dv + 3, &x);
            pal_change_plain_ahead_ref(&token, a, (size_t)dv + 3, &y);
            near_to("ahead", "plain change", x.change, y.change, 1e-5);
            near_to("ahead", "plain size", x.size, y.size, 1e-5);
            test_guarded_free(v, (size_t)dv);
            test_guarded_free(before, n), test_guarded_free(after, n);
            test_guarded_free(a, plain), test_guarded_free(b, plain);
        }
        pal_context_free(cx);
    }
}

/* Heads larger than the sample: quantiles of evenly spaced elements are near those of all. */
static void large_heads_are_sampled(void **state) {
    (void)state;
    const pal_memory_rule *rule = pal_memory_find("palimpsa");
    enum { DK = 64, DV = 128 };
    const pal_memory_shape shape = { .sequences = 1, .tokens = 1, .heads = 1, .key_heads = 1, .dk = DK, .dv = DV };
    static float mu[DK * DV], I[DK * DV];
    static pal_memory_change change;
    const float Ip = 1;
    for (int e = 0; e < DK * DV; e++) { /* grows with the key and with the value */
        const int key = e % DK, value = e / DK;
        mu[e] = 0.5f, I[e] = 1 + (float)key / DK + (float)value / DV;
    }
    float *memory = pal_alloc(rule->state_floats(&shape), sizeof *memory);
    rule->import(&shape, &(pal_memory_inputs){ .Ip = &Ip }, (const float *const[2]){ mu, I }, memory);
    pal_context *cx = test_context(1, NULL);
    rule->compare(cx, &shape, memory, memory, &change);
    pal_context_free(cx);
    assert_true(change.change == 0 && fabs(change.size - 0.25 * DK * DV) < 1e-3 && change.samples > 128);
    assert_true(change.samples <= PAL_CHANGE_SAMPLE && change.low == 1.0f);
    double sampled = 0, all = 0;
    for (int i = 0; i < change.samples; i++) sampled += (double)change.sample[i] / change.samples;
    for (int e = 0; e < DK * DV; e++) all += (double)I[e] / (DK * DV);
    assert_true(fabs(sampled - all) < 0.02);
    pal_free(memory);
}

/* A session's watch is filled before it says. */
typedef struct {
    const pal_session *session;
    pal_watch watch;
    pal_tile tiles[LAYERS];
    float variances[T * LAYERS];
    int layers, frames, tokens, reads;
    int64_t positions[64];
    double variance[64];
    float norms[64];
} listener;
static void on_token(void *user, const pal_token *token) {
    listener *l = user;
    if (token->id >= 0) l->variance[l->tokens++] = token->variance;
    if (token->prompt || token->id < 0) return;
    assert_true(l->tiles[0].write > 0);
    l->tiles[0].write = -1;
    l->norms[l->frames] = l->tiles[0].norm;
    l->positions[l->frames++] = pal_state_position(pal_session_state(l->session));
}
static void on_read(void *user, const pal_state *state) {
    listener *l = user;
    assert_true(l->tiles[0].write > 0);
    l->tiles[0].write = -1;
    l->reads++;
    l->positions[l->frames++] = pal_state_position(state);
}

static void sessions_tell_what_is_seen(void **state) {
    (void)state;
    speaker sp = test_speaker(0);
    pal_engine *engine = test_engine(&sp, &(pal_engine_options){ .piece = 16, .variance = true });
    pal_session *session = test_session(engine), *other = test_session(engine);
    listener l = { .session = session, .layers = pal_model_config_of(sp.model)->layers };
    written w = { 0 };
    uint32_t ids[12];
    pal_error why;
    l.watch = (pal_watch){
        .tiles = l.tiles, .variances = l.variances, .tokens = T, .scratch = pal_alloc(pal_watch_bytes(sp.model), 1)
    };
    test_prompt(ids, 12, 3);
    pal_session_options o = { .max_tokens = 5,
                              .ignore_eos = true,
                              .logprobs = true,
                              .prompt_logprobs = true,
                              .piece = 4,
                              .watch = &l.watch,
                              .on_token = on_token,
                              .on_read = on_read,
                              .user = &l };
    test_begin(other, &w, ids, 3, (pal_session_options){ .max_tokens = 7, .ignore_eos = true });
    OK(pal_session_begin(session, ids, 12, &o, err));
    test_run(engine);
    static const int64_t expected[] = { 4, 8, 11, 12, 13, 14, 15, 16 };
    assert_int_equal(l.reads, 3);
    assert_int_equal(l.frames, PAL_COUNT(expected));
    for (int i = 0; i < l.frames; i++) assert_int_equal(l.positions[i], expected[i]);
    assert_int_equal(l.tokens, 12 + 5);
    for (int i = 0; i < l.tokens; i++) assert_int_equal(isnan(l.variance[i]), i == 0); /* the first has none */
    const listener together = l; /* alone it is seen as in company */
    l.frames = l.tokens = l.reads = 0;
    pal_session_reset(session);
    OK(pal_session_begin(session, ids, 12, &o, err));
    test_run(engine);
    for (int i = l.reads; i < l.frames; i++) assert_true(l.norms[i] == together.norms[i] && l.norms[i] > 0);
    o.piece = 17;
    assert_int_equal(pal_session_begin(session, ids, 12, &o, &why), PAL_E_ARGUMENT);
    pal_free(l.watch.scratch);
    pal_session_free(session), pal_session_free(other);
    pal_engine_free(engine);
    test_speaker_free(&sp);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_seen_as_they_are), cmocka_unit_test(pieces_are_seen_as_steps),
        cmocka_unit_test(watching_changes_nothing),   cmocka_unit_test(wrong_watches_are_refused),
        cmocka_unit_test(variants_of_change_agree),   cmocka_unit_test(large_heads_are_sampled),
        cmocka_unit_test(sessions_tell_what_is_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
