/* SPDX-License-Identifier: MIT */
/* Surgery: what the source had is in the result to the bit, what is new starts as it should, and the proof can fail. */
#include "support/support.h"

#include <math.h>
#include <unistd.h>

#include "base/alloc.h"
#include "model/model.h"
#include "model/surgery.h"
#include "support/files.h"
#include "support/models.h"

#define REFUSED(call, words)                                                                 \
    do {                                                                                     \
        pal_error err_;                                                                      \
        pal_error *err = &err_;                                                              \
        if ((call) == PAL_OK) fail_msg("%s was accepted", #call);                            \
        if (!strstr(err_.text, words)) fail_msg("'%s' does not say '%s'", err_.text, words); \
    } while (0)

enum { T = 150 }; /* more than the proof compares at once */

typedef struct {
    char base[256], from[300], to[300];
    pal_context *cx;
    pal_model *model; /* unloaded */
    pal_model_config config;
    pal_surgery surgery;
    int32_t ids[T];
} bench;

static bench set_out(pal_model *model, pal_dtype dtype, const char *choice) {
    bench b = { .cx = test_context(2, NULL),
                .surgery = { .low = PAL_B_SCALE_LOW, .high = PAL_B_SCALE_HIGH, .seed = 5 } };
    test_directory(b.base);
    snprintf(b.from, sizeof b.from, "%s/from", b.base);
    snprintf(b.to, sizeof b.to, "%s/to", b.base);
    OK(pal_model_save(model, b.from, dtype, err));
    pal_model_close(model);
    OK(pal_model_open_unloaded(&b.model, b.from, PAL_FOR_INFERENCE, err));
    b.config = b.model->config;
    OK(pal_surgery_choose(b.surgery.layers, choice, &b.config, NULL, err));
    test_ids(b.ids, T, b.config.vocab, 6);
    return b;
}

static bench set_out_kind(const char *kind, const char *choice) {
    pal_context *cx = test_context(2, NULL);
    pal_model *model = test_model(test_kind_named(kind), PAL_FOR_TRAINING, cx);
    pal_context_free(cx);
    return set_out(model, PAL_F32, choice);
}

static void clear_away(bench *b) {
    pal_model_close(b->model);
    pal_context_free(b->cx);
    test_remove(b->base);
}

static void operate(bench *b) {
    pal_model_writer *w;
    OK(pal_surgery_write(&w, b->to, b->model, &b->surgery, b->cx, err));
    assert_int_not_equal(access(b->to, F_OK), 0); /* not before the commit */
    OK(pal_model_writer_commit(w, NULL, err));
}

static pal_status prove(const bench *b, pal_proof *proof, pal_error *why) {
    pal_model *source, *result;
    OK(pal_model_open(&source, b->from, PAL_FOR_INFERENCE, b->cx, err));
    OK(pal_model_open(&result, b->to, PAL_FOR_INFERENCE, b->cx, err));
    const pal_status st = pal_surgery_prove(proof, NULL, source, result, b->cx, b->ids, T, why);
    pal_model_close(source);
    pal_model_close(result);
    return st;
}

/* Tensor by tensor: what was there is there with the same bytes, unless it belongs to a gate that is new. */
static void check_tensors(const bench *b) {
    pal_source result;
    size_t kept = 0;
    OK(pal_source_open(&result, b->to, err));
    for (size_t i = 0; i < b->model->source.count; i++) {
        const pal_tensor *x = &b->model->source.tensors[i];
        const char *name = strcmp(x->name, "backbone.embedding.weight") == 0 ? "backbone.embeddings.weight" : x->name;
        const pal_tensor *y = pal_source_find(&result, name);
        if (strcmp(name, "lm_head.weight") == 0 && b->config.tied) continue;
        if (strstr(name, ".b_") || strstr(name, "Ip_log")) continue;
        if (!y) fail_msg("'%s' is lost", name);
        assert_int_equal(x->dtype, y->dtype);
        assert_int_equal(x->count, y->count);
        if (memcmp(x->data, y->data, x->count * pal_dtype_size(x->dtype)) != 0) fail_msg("'%s' is another", name);
        kept++;
    }
    assert_true(kept > 10);
    pal_source_close(&result);
}

static void result_without_plasticity_is_the_source(void **state) {
    (void)state;
    static const struct {
        const char *kind, *choice;
    } cases[] = { { "official mamba2", "all" },
                  { "official mamba2", "1" },
                  { "palimpsa-m without metaplasticity", "0" },
                  { "hybrid palimpsa-m", "2" },
                  { "palimpsa-d without metaplasticity", "all" },
                  { "palimpsa-d without metaplasticity", "1" },
                  { "hybrid palimpsa-d", "all" } };
    for (size_t i = 0; i < PAL_COUNT(cases); i++) {
        bench b = set_out_kind(cases[i].kind, cases[i].choice);
        pal_proof proof;
        pal_model_config made;
        operate(&b);
        check_tensors(&b);
        OK(pal_model_read_config(&made, b.to, err));
        for (int k = 0; k < b.config.layers; k++) {
            const bool on = b.surgery.layers[k] || strcmp(pal_model_layer_rule(&b.config, k), "palimpsa") == 0;
            assert_string_equal(pal_model_layer_rule(&made, k), on ? "palimpsa" : "gla");
        }
        OK(prove(&b, &proof, err));
        assert_true(proof.off <= 1e-6);
        assert_true(proof.loss_source > 0 && proof.loss_on > 0);
        if (!(proof.on > 1e-5 && proof.on < 3))
            fail_msg("%s: fresh plasticity moves logits by %g", cases[i].kind, proof.on);
        clear_away(&b);
    }
}

static void touch(const char *directory, const char *name, float by) {
    pal_context *cx = test_context(1, NULL);
    pal_model *model;
    OK(pal_model_open(&model, directory, PAL_FOR_TRAINING, cx, err));
    const pal_weight *w = pal_model_find_weight(model, name);
    assert_non_null(w);
    pal_model_flat_parameters(model)[w->offset + w->count / 2] += by;
    OK(pal_model_save(model, directory, PAL_F32, err));
    pal_model_close(model);
    pal_context_free(cx);
}

static void proof_fails_when_a_weight_is_touched(void **state) {
    (void)state;
    static const char *const names[] = { "backbone.layers.0.mixer.in_proj.weight", "backbone.layers.1.mixer.A_log",
                                         "backbone.layers.1.mixer.norm.weight", "backbone.norm_f.weight",
                                         "backbone.layers.0.mixer.conv1d.bias" };
    for (size_t i = 0; i < PAL_COUNT(names); i++) {
        bench b = set_out_kind("official mamba2", "all");
        pal_proof proof;
        operate(&b);
        OK(prove(&b, &proof, err));
        touch(b.to, names[i], 0.1f);
        REFUSED(prove(&b, &proof, err), "with plasticity off the result differs from its source");
        clear_away(&b);
    }
    /* but new weights may be what they are */
    bench b = set_out_kind("official mamba2", "all");
    pal_proof proof;
    operate(&b);
    touch(b.to, "backbone.layers.0.mixer.b_proj.weight", 0.1f);
    OK(prove(&b, &proof, err));
    touch(b.to, "backbone.layers.0.mixer.D", NAN);
    REFUSED(prove(&b, &proof, err), "logits by inf");
    clear_away(&b);
}

static void exact_start_agrees_to_rounding(void **state) {
    (void)state;
    static const char *const kinds[] = { "official mamba2", "palimpsa-d without metaplasticity" };
    for (size_t i = 0; i < PAL_COUNT(kinds); i++) {
        bench b = set_out_kind(kinds[i], "all");
        pal_proof proof;
        b.surgery.low = b.surgery.high = PAL_B_SCALE_EXACT;
        operate(&b);
        OK(prove(&b, &proof, err));
        assert_true(proof.on <= 2e-6);
        assert_int_equal(proof.moved, 0);
        clear_away(&b);
    }
}

/* The recorded hybrid, cut back to plain layers, operated on, and given its gates again, computes what was recorded. */
static void operated_model_equals_recorded_hybrid(void **state) {
    (void)state;
    static const char *const gate[] = { "b_rank_proj.weight", "b_proj.weight", "b_scale", "Ip_log" };
    char golden[400], path[440], name[100];
    pal_context *cx = test_context(2, NULL);
    pal_model *hybrid, *plain, *result;
    pal_safetensors *expected;
    pal_work *work;
    snprintf(golden, sizeof golden, "%s/models/hybrid_m", PAL_TEST_GOLDEN);
    OK(pal_model_open(&hybrid, golden, PAL_FOR_INFERENCE, cx, err));
    pal_model_config c = *pal_model_config_of(hybrid);
    memset(c.metaplastic, 0, sizeof c.metaplastic);
    OK(pal_model_new(&plain, &c, 1, PAL_FOR_TRAINING, cx, err));
    for (size_t i = 0; i < pal_model_weight_count(plain); i++) {
        const pal_weight *w = pal_model_weight(plain, i);
        memcpy(pal_model_flat_parameters(plain) + w->offset, pal_model_find_weight(hybrid, w->name)->data,
               w->count * sizeof(float));
    }
    bench b = set_out(plain, PAL_F32, "1,3");
    operate(&b);
    OK(pal_model_open(&result, b.to, PAL_FOR_TRAINING, cx, err));
    assert_int_equal(pal_model_weight_count(result), pal_model_weight_count(hybrid));
    for (int layer = 1; layer < 4; layer += 2)
        for (size_t i = 0; i < PAL_COUNT(gate); i++) {
            snprintf(name, sizeof name, "backbone.layers.%d.mixer.%s", layer, gate[i]);
            const pal_weight *to = pal_model_find_weight(result, name), *from = pal_model_find_weight(hybrid, name);
            assert_int_equal(to->count, from->count);
            memcpy(pal_model_flat_parameters(result) + to->offset, from->data, from->count * sizeof(float));
        }
    snprintf(path, sizeof path, "%s/expected.safetensors", golden);
    OK(pal_safetensors_open(&expected, path, err));
    const pal_tensor *ids = pal_safetensors_find(expected, "input_ids"),
                     *logits = pal_safetensors_find(expected, "logits");
    const int B = (int)ids->shape[0], L = (int)ids->shape[1];
    assert_true(B == 2 && B * L <= T);
    const int cu[3] = { 0, L, 2 * L };
    for (int t = 0; t < B * L; t++) b.ids[t] = (int32_t)((const int64_t *)ids->data)[t];
    float *x = pal_alloc(logits->count, sizeof *x);
    OK(pal_work_new(&work, result, cx, &(pal_work_options){ .tokens = B * L, .sequences = B, .logits = B * L }, err));
    OK(pal_model_forward(result, work, &(pal_batch){ .tokens = B * L, .sequences = B, .ids = b.ids, .cu_seqlens = cu },
                         NULL, B * L, x, err));
    assert_true(test_nmax_f64(x, logits->data, logits->count) <= 2e-5);
    pal_free(x);
    pal_work_free(work);
    pal_safetensors_close(expected);
    pal_model_close(result);
    pal_model_close(hybrid);
    pal_context_free(cx);
    clear_away(&b);
}

static void stepping_equals_forward_after_surgery(void **state) {
    (void)state;
    static const char *const kinds[] = { "official mamba2", "palimpsa-d without metaplasticity" };
    for (size_t i = 0; i < PAL_COUNT(kinds); i++) {
        bench b = set_out_kind(kinds[i], "1");
        const int cu[2] = { 0, T };
        pal_model *model;
        pal_work *work;
        pal_state *s;
        operate(&b);
        OK(pal_model_open(&model, b.to, PAL_FOR_INFERENCE, b.cx, err));
        const size_t rows = (size_t)pal_model_config_of(model)->vocab_rows;
        float *whole = pal_alloc(T * rows, sizeof *whole), *step = pal_alloc(T * rows, sizeof *step);
        OK(pal_work_new(&work, model, b.cx, &(pal_work_options){ .tokens = T, .logits = T }, err));
        OK(pal_state_new(&s, model, 1, err));
        OK(pal_model_forward(model, work, &(pal_batch){ .tokens = T, .sequences = 1, .ids = b.ids, .cu_seqlens = cu },
                             NULL, T, whole, err));
        for (int t = 0; t < T; t++) OK(pal_model_step(model, work, &s, 1, b.ids + t, step + (size_t)t * rows, err));
        test_near(kinds[i], step, whole, T * rows, 1e-5);
        pal_free(whole);
        pal_free(step);
        pal_state_free(s);
        pal_work_free(work);
        pal_model_close(model);
        clear_away(&b);
    }
}

static void new_gates_start_as_asked(void **state) {
    (void)state;
    bench b = set_out_kind("official mamba2", "1");
    pal_source first, again, other;
    char path[300];
    b.surgery.rank = 7;
    b.surgery.low = -2;
    b.surgery.high = -1.5;
    operate(&b);
    OK(pal_source_open(&first, b.to, err));
    snprintf(path, sizeof path, "%s/again", b.base);
    strcpy(b.to, path);
    operate(&b);
    OK(pal_source_open(&again, b.to, err));
    snprintf(path, sizeof path, "%s/other", b.base);
    strcpy(b.to, path);
    b.surgery.seed++;
    operate(&b);
    OK(pal_source_open(&other, b.to, err));

    const pal_tensor *scale = pal_source_find(&first, "backbone.layers.1.mixer.b_scale"),
                     *prior = pal_source_find(&first, "backbone.layers.1.mixer.Ip_log");
    const pal_tensor *rank = pal_source_find(&first, "backbone.layers.1.mixer.b_rank_proj.weight"),
                     *proj = pal_source_find(&first, "backbone.layers.1.mixer.b_proj.weight");
    assert_true(scale && prior && rank && proj);
    assert_null(pal_source_find(&first, "backbone.layers.0.mixer.b_scale"));
    assert_int_equal(rank->shape[0], 7);
    assert_int_equal(proj->shape[1], 7);
    for (size_t i = 0; i < scale->count; i++)
        assert_true(((const float *)scale->data)[i] >= -2 && ((const float *)scale->data)[i] <= -1.5f);
    for (size_t i = 0; i < prior->count; i++) assert_true(((const float *)prior->data)[i] == 0);
    float low = 0, high = 0; /* no doubles: see test_largest() */
    for (size_t i = 0; i < proj->count; i++)
        low = fminf(low, ((const float *)proj->data)[i]), high = fmaxf(high, ((const float *)proj->data)[i]);
    assert_true((double)high <= 1 / sqrt(7) && (double)low >= -1 / sqrt(7) && high > 0.3f && low < -0.3f);
    for (size_t i = 0; i < first.count; i++) {
        const pal_tensor *x = &first.tensors[i], *y = &again.tensors[i], *z = &other.tensors[i];
        const size_t bytes = x->count * sizeof(float);
        assert_memory_equal(x->data, y->data, bytes);
        const bool random = strstr(x->name, ".b_");
        assert_true((memcmp(x->data, z->data, bytes) != 0) == random);
    }
    pal_source_close(&first);
    pal_source_close(&again);
    pal_source_close(&other);
    clear_away(&b);
}

static void tensors_keep_their_dtype_unless_asked(void **state) {
    (void)state;
    for (int convert = 0; convert < 2; convert++) {
        pal_context *cx = test_context(1, NULL);
        pal_model *model = test_model(test_kind_named("official mamba2"), PAL_FOR_TRAINING, cx);
        bench b = set_out(model, PAL_BF16, "0");
        pal_source result;
        pal_proof proof;
        b.surgery.convert = convert;
        b.surgery.dtype = PAL_F32;
        operate(&b);
        OK(prove(&b, &proof, err));
        OK(pal_source_open(&result, b.to, err));
        for (size_t i = 0; i < result.count; i++)
            assert_int_equal(result.tensors[i].dtype, convert ? PAL_F32 : PAL_BF16);
        pal_source_close(&result);
        clear_away(&b);
        pal_context_free(cx);
    }
}

/* The source again, without tensors whose names end in `without` (NULL: all are there), and with `wide` as F64. */
static void rewrite(bench *b, const char *without, bool wide) {
    enum { MOST = 200 };
    pal_tensor kept[MOST];
    const pal_tensor *from[MOST];
    size_t count = 0;
    char path[320];
    pal_model_writer *w;
    const pal_source *source = &b->model->source;
    for (size_t i = 0; i < source->count; i++) {
        const pal_tensor *t = &source->tensors[i];
        if (without && strlen(t->name) > strlen(without) &&
            strcmp(t->name + strlen(t->name) - strlen(without), without) == 0)
            continue;
        assert_true(count < MOST);
        from[count] = t;
        kept[count] = *t;
        if (wide) kept[count].dtype = PAL_F64;
        count++;
    }
    snprintf(path, sizeof path, "%s/again", b->base);
    OK(pal_model_writer_open(&w, path, kept, count, err));
    for (size_t i = 0; i < count; i++) {
        if (!wide) {
            OK(pal_model_writer_copy(w, i, source, from[i], err));
            continue;
        }
        double *x = pal_alloc(from[i]->count, sizeof *x);
        for (size_t k = 0; k < from[i]->count; k++) x[k] = (double)((const float *)from[i]->data)[k] * (1 + 1e-10);
        OK(pal_model_writer_put(w, i, x, from[i]->count * sizeof *x, err));
        pal_free(x);
    }
    OK(pal_model_writer_commit(w, source->config, err));
    pal_model_close(b->model);
    strcpy(b->from, path);
    OK(pal_model_open_unloaded(&b->model, b->from, PAL_FOR_INFERENCE, err));
}

static void double_precision_stays(void **state) {
    (void)state;
    bench b = set_out_kind("official mamba2", "1");
    pal_proof proof;
    pal_source result;
    rewrite(&b, NULL, true);
    operate(&b);
    check_tensors(&b);
    OK(prove(&b, &proof, err));
    OK(pal_source_open(&result, b.to, err));
    assert_int_equal(pal_source_find(&result, "backbone.embeddings.weight")->dtype, PAL_F64);
    assert_int_equal(pal_source_find(&result, "backbone.layers.1.mixer.b_scale")->dtype, PAL_F32);
    pal_source_close(&result);
    clear_away(&b);
}

/* Gates that nothing reads, in layers that stay plain: whatever part of them is there, stays. */
static void unread_gates_stay_whatever_is_there_of_them(void **state) {
    (void)state;
    static const char *const parts[] = { "b_rank_proj.weight", "b_proj.weight", "b_scale", "Ip_log" };
    for (size_t left_out = 0; left_out <= PAL_COUNT(parts); left_out++) {
        bench b = set_out_kind("palimpsa-m without metaplasticity", "0");
        pal_source result;
        pal_proof proof;
        if (left_out < PAL_COUNT(parts)) rewrite(&b, parts[left_out], false);
        operate(&b);
        OK(prove(&b, &proof, err));
        OK(pal_source_open(&result, b.to, err));
        for (size_t i = 0; i < PAL_COUNT(parts); i++) {
            char name[100];
            snprintf(name, sizeof name, "backbone.layers.1.mixer.%s", parts[i]);
            const pal_tensor *x = pal_source_find(&b.model->source, name), *y = pal_source_find(&result, name);
            if (!x != !y || !x != (i == left_out))
                fail_msg("without %s: '%s' is %s", parts[left_out], name, y ? "there" : "lost");
            if (x) assert_memory_equal(x->data, y->data, x->count * sizeof(float));
            snprintf(name, sizeof name, "backbone.layers.0.mixer.%s", parts[i]);
            assert_non_null(pal_source_find(&result, name));
        }
        pal_source_close(&result);
        clear_away(&b);
    }
}

static void another_rank_does_not_drop_gates_of_other_layers(void **state) {
    (void)state;
    bench b = set_out_kind("palimpsa-m without metaplasticity", "0");
    pal_model_writer *w;
    b.surgery.rank = b.config.block[0].mixer[0].rank + 1;
    REFUSED(pal_surgery_write(&w, b.to, b.model, &b.surgery, b.cx, err), "layer 1 keeps an importance gate of rank");
    assert_null(w);
    assert_int_not_equal(access(b.to, F_OK), 0);
    OK(pal_surgery_choose(b.surgery.layers, "all", &b.config, NULL, err)); /* every gate is new */
    operate(&b);
    clear_away(&b);
}

static void metaplastic_layers_are_listed(void **state) {
    (void)state;
    static const char *const kinds[] = { "official mamba2", "palimpsa-d without metaplasticity" };
    for (size_t i = 0; i < PAL_COUNT(kinds); i++) {
        bench b = set_out_kind(kinds[i], "all");
        pal_source result;
        operate(&b);
        OK(pal_source_open(&result, b.to, err));
        const json_t *list = json_object_get(result.config, "metaplastic_layers");
        assert_int_equal(json_array_size(list), b.config.layers);
        pal_source_close(&result);
        clear_away(&b);
    }
}

static void check_choice(const pal_model_config *c, const pal_windows *w, const char *choice, const char *expected) {
    bool layers[PAL_MAX_LAYERS];
    char found[16] = "";
    OK(pal_surgery_choose(layers, choice, c, w, err));
    for (int i = 0; i < c->layers; i++) strcat(found, layers[i] ? "+" : ".");
    if (strcmp(found, expected) != 0) fail_msg("%s chooses %s, expected %s", choice, found, expected);
}

static void layers_are_chosen_by_window_list_or_all(void **state) {
    (void)state;
    pal_model_config c = test_model_config(test_kind_named("official mamba2")),
                     d = test_model_config(test_kind_named("hybrid palimpsa-d"));
    int order[] = { 3, 0, 4, 1, 2 };
    const pal_windows w = { .layers = 5, .order = order };
    bool layers[PAL_MAX_LAYERS];
    c.layers = d.layers = 5;
    d.metaplastic[1] = false;
    d.metaplastic[3] = true;
    check_choice(&c, &w, "top:1", "...+.");
    check_choice(&c, &w, "top:3", "+..++");
    check_choice(&c, &w, "top:5", "+++++");
    check_choice(&d, &w, "top:2", "+...+"); /* among plain layers */
    check_choice(&c, NULL, "all", "+++++");
    check_choice(&d, NULL, "all", "+++.+");
    check_choice(&c, NULL, "4,0", "+...+");
    check_choice(&c, NULL, "2", "..+..");
    REFUSED(pal_surgery_choose(layers, "top:6", &c, &w, err), "the model has 5 plain layers");
    REFUSED(pal_surgery_choose(layers, "top:5", &d, &w, err), "the model has 4 plain layers");
    static const char *const bad_top[] = { "top:0", "top:", "top:-1", "top:x", "top:2,3", "top:99999999999999999999" };
    for (size_t i = 0; i < PAL_COUNT(bad_top); i++)
        REFUSED(pal_surgery_choose(layers, bad_top[i], &c, &w, err), "expected top:K");
    static const char *const bad_list[] = { "",    ",",   "1,",    ",1",  "1,,2", "-1",
                                            "1-3", "1 2", "every", "1.5", "0x1",  "99999999999999999999" };
    for (size_t i = 0; i < PAL_COUNT(bad_list); i++)
        REFUSED(pal_surgery_choose(layers, bad_list[i], &c, &w, err), "expected top:K, all, or layer numbers");
    REFUSED(pal_surgery_choose(layers, "0,5", &c, &w, err), "the model has layers 0 to 4");
    REFUSED(pal_surgery_choose(layers, "0,1,0", &c, &w, err), "layer 0 is there twice");
    REFUSED(pal_surgery_choose(layers, "3", &d, &w, err), "layer 3 is metaplastic already");
}

static void surgery_refuses_what_it_cannot_do(void **state) {
    (void)state;
    pal_model_config out, c;
    pal_surgery s = { .low = 0.1, .high = 1 };
    bool layers[PAL_MAX_LAYERS];
    c = test_model_config(test_kind_named("transformer"));
    REFUSED(pal_surgery_choose(layers, "all", &c, NULL, err), "only Mamba2 and Palimpsa layers");
    c = test_model_config(test_kind_named("gated deltanet"));
    REFUSED(pal_surgery_choose(layers, "all", &c, NULL, err), "only Mamba2 and Palimpsa layers");
    c = test_model_config(test_kind_named("rule longhorn"));
    REFUSED(pal_surgery_choose(layers, "all", &c, NULL, err), "not of rule 'longhorn'");
    c = test_model_config(test_kind_named("palimpsa-m"));
    REFUSED(pal_surgery_choose(layers, "all", &c, NULL, err), "every layer is metaplastic already");
    c = test_model_config(test_kind_named("hybrid palimpsa-m"));
    s.layers[0] = true;
    s.rank = c.block[0].mixer[0].rank + 1;
    REFUSED(pal_surgery_config(&out, &c, &s, err), "layer 1 is metaplastic already, with rank");
    s.rank = 0;
    s.low = 2;
    REFUSED(pal_surgery_config(&out, &c, &s, err), "the lower one first");
    s.low = NAN;
    REFUSED(pal_surgery_config(&out, &c, &s, err), "expected two numbers");
    s.low = 0;
    s.layers[900] = true;
    REFUSED(pal_surgery_config(&out, &c, &s, err), "layer 900 is not a plain layer");
}

static bool stop(void *user, size_t done, size_t total) {
    assert_true(done <= total);
    return ++*(int *)user < 5;
}

static void a_result_is_whole_or_not_there(void **state) {
    (void)state;
    bench b = set_out_kind("official mamba2", "0");
    pal_model_writer *w;
    operate(&b);
    REFUSED(pal_surgery_write(&w, b.to, b.model, &b.surgery, b.cx, err), "exists already");
    assert_null(w);
    snprintf(b.to, sizeof b.to, "%s/none", b.base);
    OK(pal_surgery_write(&w, b.to, b.model, &b.surgery, b.cx, err));
    char directory[512];
    snprintf(directory, sizeof directory, "%s", pal_model_writer_directory(w));
    assert_int_equal(access(directory, F_OK), 0);
    pal_model_writer_drop(w);
    assert_int_not_equal(access(directory, F_OK), 0);
    assert_int_not_equal(access(b.to, F_OK), 0);
    int calls = 0;
    b.surgery.go_on = stop;
    b.surgery.user = &calls;
    REFUSED(pal_surgery_write(&w, b.to, b.model, &b.surgery, b.cx, err), "interrupted; nothing was written");
    assert_null(w);
    assert_int_equal(calls, 5);
    b.surgery.go_on = NULL;
    for (uint64_t k = 1;; k++) { /* memory runs out at every place */
        pal_error err;
        pal_alloc_fail_at(k);
        const pal_status st = pal_surgery_write(&w, b.to, b.model, &b.surgery, b.cx, &err);
        pal_alloc_fail_at(0);
        if (!st) break;
        assert_int_equal(st, PAL_E_MEMORY);
        assert_null(w);
    }
    pal_model_writer_drop(w);
    clear_away(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(result_without_plasticity_is_the_source),
        cmocka_unit_test(proof_fails_when_a_weight_is_touched),
        cmocka_unit_test(exact_start_agrees_to_rounding),
        cmocka_unit_test(operated_model_equals_recorded_hybrid),
        cmocka_unit_test(stepping_equals_forward_after_surgery),
        cmocka_unit_test(new_gates_start_as_asked),
        cmocka_unit_test(tensors_keep_their_dtype_unless_asked),
        cmocka_unit_test(double_precision_stays),
        cmocka_unit_test(unread_gates_stay_whatever_is_there_of_them),
        cmocka_unit_test(another_rank_does_not_drop_gates_of_other_layers),
        cmocka_unit_test(metaplastic_layers_are_listed),
        cmocka_unit_test(layers_are_chosen_by_window_list_or_all),
        cmocka_unit_test(surgery_refuses_what_it_cannot_do),
        cmocka_unit_test(a_result_is_whole_or_not_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
