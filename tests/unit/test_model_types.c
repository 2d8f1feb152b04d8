/* SPDX-License-Identifier: MIT */
/* Models whose matrices are stored in every type, against what was recorded in float64. How far a loss may move
 * follows from the blocks: a value is off by up to half the distance to the next one that its block can hold, and the
 * gradient says what that costs. */
#include "support/support.h"

#include <math.h>

#include "base/alloc.h"
#include "base/blocks.h"
#include "model/model.h"
#include "support/models.h"

static const pal_dtype types[] = { PAL_F16, PAL_BF16, PAL_Q8_0, PAL_Q6_K, PAL_Q5_K, PAL_Q5_0, PAL_Q4_K, PAL_Q4_0 };
enum { TYPES = PAL_COUNT(types), TOKENS = 64 };

static const char *const recorded[] = { "gated_deltanet", "hybrid_m",        "mamba2_official",
                                        "mqar_gdn",       "mqar_palimpsa_d", "mqar_palimpsa_m",
                                        "palimpsa_d",     "palimpsa_m",      "transformer" };

/* A model, two rows of tokens, and what it is known to say of them. */
typedef struct {
    const char *name;
    bool wide; /* enough for blocks of 256 */
    pal_context *cx;
    pal_model *model; /* F32 */
    int32_t ids[TOKENS], targets[TOKENS];
    int length;
    double loss;     /* mean */
    float *gradient; /* of the mean */
    float *values;   /* the weights */
} subject;

static pal_batch batch_of(const subject *s, int cu[3]) {
    cu[0] = 0, cu[1] = s->length, cu[2] = 2 * s->length;
    return (
        pal_batch){ .tokens = 2 * s->length, .sequences = 2, .ids = s->ids, .cu_seqlens = cu, .targets = s->targets };
}

static double loss_of(const subject *s, const pal_model *model) {
    int cu[3];
    const pal_batch batch = batch_of(s, cu);
    const pal_work_options options = { .tokens = batch.tokens, .sequences = 2, .loss = true };
    pal_work *work;
    pal_loss loss;
    OK(pal_work_new(&work, model, s->cx, &options, err));
    OK(pal_model_loss(model, work, &batch, &loss, NULL, err));
    pal_work_free(work);
    return loss.sum / (double)loss.count;
}

static void take_gradient(subject *s) {
    int cu[3];
    const pal_batch batch = batch_of(s, cu);
    const pal_work_options options = { .tokens = batch.tokens, .sequences = 2, .training = true };
    const size_t bytes = pal_model_flat(s->model) * sizeof(float);
    pal_work *work;
    pal_loss loss;
    size_t trained = 0;
    for (int t = 0; t < batch.tokens; t++) trained += s->targets[t] != PAL_IGNORE;
    OK(pal_work_new(&work, s->model, s->cx, &options, err));
    OK(pal_model_learn(s->model, work, &batch, 1.0f / (float)trained, &loss, NULL, err));
    pal_work_free(work);
    s->gradient = pal_alloc(bytes, 1);
    s->values = pal_alloc(bytes, 1);
    memcpy(s->gradient, pal_model_flat_gradients(s->model), bytes);
    memcpy(s->values, pal_model_flat_parameters(s->model), bytes);
}

/* Each position shall predict the label of the next one. */
static void shift_rows(subject *s, const int32_t *labels) {
    for (int at = 0; at < 2 * s->length; at += s->length) pal_shift_targets(s->targets + at, labels + at, s->length);
}

static subject open_recorded(const char *name) {
    subject s = { .name = name, .cx = test_context(2, NULL) };
    pal_safetensors *expected;
    char path[512];
    snprintf(path, sizeof path, "%s/models/%s", PAL_TEST_GOLDEN, name);
    OK(pal_model_open(&s.model, path, PAL_FOR_TRAINING, s.cx, err));
    snprintf(path, sizeof path, "%s/models/%s/expected.safetensors", PAL_TEST_GOLDEN, name);
    OK(pal_safetensors_open(&expected, path, err));
    const pal_tensor *ids = pal_safetensors_find(expected, "input_ids");
    const pal_tensor *labels = pal_safetensors_find(expected, "labels");
    const int64_t *id = ids->data, *label = labels->data;
    assert_true(ids->shape[0] == 2 && ids->count <= TOKENS);
    s.length = (int)ids->shape[1];
    int32_t labelled[TOKENS];
    for (size_t t = 0; t < ids->count; t++) {
        s.ids[t] = (int32_t)id[t];
        labelled[t] = (int32_t)label[t];
    }
    if (pal_model_config_of(s.model)->mqar) memcpy(s.targets, labelled, sizeof labelled);
    else shift_rows(&s, labelled);
    s.loss = *(const double *)pal_safetensors_find(expected, "loss")->data;
    pal_safetensors_close(expected);
    take_gradient(&s);
    return s;
}

/* A wide model with initial weights is its own record. */
static pal_model *new_wide(const char *preset, pal_model_use use, const pal_context *cx) {
    const pal_preset_options o = { .task = "text", .vocab = TEST_VOCAB, .hidden = 256, .layers = 2, .mlp = 512 };
    pal_model_config c;
    pal_model *model;
    OK(pal_model_preset(&c, preset, &o, err));
    OK(pal_model_new(&model, &c, 5, use, cx, err));
    return model;
}

static subject open_wide(const char *preset) {
    subject s = { .name = preset, .wide = true, .cx = test_context(2, NULL), .length = TOKENS / 2 };
    s.model = new_wide(preset, PAL_FOR_TRAINING, s.cx);
    test_ids(s.ids, TOKENS, TEST_VOCAB, 4);
    shift_rows(&s, s.ids);
    take_gradient(&s);
    s.loss = loss_of(&s, s.model);
    return s;
}

static void drop(subject *s) {
    pal_free(s->gradient);
    pal_free(s->values);
    pal_model_close(s->model);
    pal_context_free(s->cx);
}

/* The distance from each value of a block to the next one: what changes when the lowest bit of its code does. */
static void steps_of(const pal_block_format *f, const unsigned char *block, const float *values, float *steps) {
    unsigned char changed[256];
    if (f->values == 1) {
        *steps = ldexpf(fabsf(*values), f->type == PAL_F16 ? -10 : f->type == PAL_BF16 ? -7 : -23);
        return;
    }
    memcpy(changed, block, f->bytes);
    const size_t begin = f->type == PAL_Q6_K   ? 0
                         : f->type == PAL_Q5_K ? 48
                         : f->type == PAL_Q4_K ? 16
                         : f->type == PAL_Q5_0 ? 6
                                               : 2;
    const size_t end = f->type == PAL_Q6_K ? 128 : f->bytes;
    for (size_t i = begin; i < end; i++) changed[i] ^= f->type == PAL_Q8_0 ? 0x01 : 0x11;
    f->decode(changed, steps);
    for (size_t i = 0; i < f->values; i++) steps[i] = fabsf(steps[i] - values[i]);
}

/* Puts the values that `typed` stores into the model of F32. Returns the standard deviation of the loss when the error
 * of each value is spread evenly over a step. */
static double decode_into(subject *s, const pal_model *typed) {
    double variance = 0;
    float *p = pal_model_flat_parameters(s->model);
    for (size_t i = 0; i < pal_model_weight_count(typed); i++) {
        const pal_weight *w = pal_model_weight(typed, i), *to = pal_model_find_weight(s->model, w->name);
        const pal_block_format *f = pal_block_format_of(w->type);
        const unsigned char *block = w->data;
        for (size_t at = 0; at < w->count; at += f->values, block += f->bytes) {
            float *values = p + to->offset + at, steps[PAL_BLOCK_VALUES_MAX];
            f->decode(block, values);
            steps_of(f, block, values, steps);
            for (size_t k = 0; k < f->values; k++) {
                const double cost = (double)s->gradient[to->offset + at + k] * (double)steps[k];
                if (w->type != PAL_F32) variance += cost * cost / 12;
            }
        }
    }
    return sqrt(variance);
}

/* Blocks meet rounded activations. Rounding 32 values whose largest is 2.5 times their root mean square to 16256 steps
 * adds noise of 2.5 / 16256 / sqrt(12) = 0.0044% to a product, as much as sums in f32 do. Two layers and the head are
 * DEPTH products one after the other, whose noise adds up. */
enum { DEPTH = 5 };
#define NOISE (2.5 / 16256 / sqrt(12))

static bool rounds_activations(const pal_model *typed) {
    for (size_t i = 0; i < pal_model_weight_count(typed); i++)
        if (pal_dtype_values(pal_model_weight(typed, i)->type) > 1) return true;
    return false;
}

static void check_loss(subject *s, const pal_model *typed, pal_dtype type) {
    const double deviation = decode_into(s, typed), decoded = loss_of(s, s->model), loss = loss_of(s, typed);
    const bool rounds = rounds_activations(typed);
    if (!(fabs(loss - decoded) <= (rounds ? 4 * sqrt(DEPTH) * NOISE : 1e-6) * decoded))
        fail_msg("%s, %s: loss %.8f, with the same values in F32 %.8f", s->name, pal_dtype_name(type), loss, decoded);
    if (!(fabs(loss - s->loss) <= 4 * deviation))
        fail_msg("%s, %s: loss %.6f, recorded %.6f, but its steps allow %.6f", s->name, pal_dtype_name(type), loss,
                 s->loss, 4 * deviation);
    /* another model than the same values in F32, which no state may be mistaken for */
    assert_true((pal_model_fingerprint(typed) == pal_model_fingerprint(s->model)) == !rounds);
    memcpy(pal_model_flat_parameters(s->model), s->values, pal_model_flat(s->model) * sizeof(float));
}

/* Row by row, n of them. */
static double least_cosine(const float *x, const float *y, size_t n, size_t width) {
    double least = 1;
    for (size_t r = 0; r < n; r++, x += width, y += width) {
        double xy = 0, xx = 0, yy = 0;
        for (size_t i = 0; i < width; i++) {
            xy += (double)x[i] * (double)y[i];
            xx += (double)x[i] * (double)x[i];
            yy += (double)y[i] * (double)y[i];
        }
        const double cosine = xy / sqrt(xx * yy);
        if (!(cosine >= least)) least = cosine;
    }
    return least;
}

/* Steps and prompts add up in different orders, and the memory works in steps and in chunks (3e-5 with the 16-wide
 * kernels). Where only one of them rounds activations, or a rounded one falls to the other side of a half, they differ
 * by that noise, of which the worst of all positions has twice the usual. The weights of recorded models, larger than
 * trained ones, amplify it: they only have to reach what every model shall, a cosine of 0.9999. */
static void check_steps(const subject *s, const pal_model *typed, pal_dtype type) {
    int cu[3];
    const pal_batch batch = batch_of(s, cu);
    const size_t rows = (size_t)pal_model_config_of(typed)->vocab_rows, n = (size_t)batch.tokens * rows;
    const pal_work_options options = { .tokens = batch.tokens, .sequences = 2, .logits = batch.tokens };
    float *prompt = pal_alloc(n, sizeof *prompt), *steps = pal_alloc(n, sizeof *steps), *now = pal_alloc(2 * rows, 4);
    pal_work *work;
    pal_state *states[2];
    OK(pal_work_new(&work, typed, s->cx, &options, err));
    OK(pal_model_forward(typed, work, &batch, NULL, batch.tokens, prompt, err));
    for (int i = 0; i < 2; i++) OK(pal_state_new(&states[i], typed, s->length, err));
    for (int t = 0; t < s->length; t++) {
        const int32_t ids[2] = { s->ids[t], s->ids[s->length + t] };
        OK(pal_model_step(typed, work, states, 2, ids, now, err));
        for (int i = 0; i < 2; i++)
            memcpy(steps + (size_t)(i * s->length + t) * rows, now + (size_t)i * rows, rows * sizeof *now);
    }
    const double cosine = least_cosine(steps, prompt, (size_t)batch.tokens, rows), error = test_nmax(steps, prompt, n);
    const bool rounds = pal_dtype_values(type) > 1;
    if (!rounds && !(error <= 1e-4)) fail_msg("%s, %s: steps differ by %.2e", s->name, pal_dtype_name(type), error);
    if (rounds && !(1 - cosine <= (s->wide ? 2 * 4 * DEPTH * 0.5 * NOISE * NOISE : 1e-4)))
        fail_msg("%s, %s: cosine of steps and prompt 1 - %.2e", s->name, pal_dtype_name(type), 1 - cosine);
    for (int i = 0; i < 2; i++) pal_state_free(states[i]);
    pal_work_free(work);
    pal_free(prompt);
    pal_free(steps);
    pal_free(now);
}

static void every_model_in_every_type(void **state) {
    (void)state;
    static const char *const wide[] = { "palimpsa-m", "palimpsa-d", "transformer" };
    for (size_t k = 0; k < PAL_COUNT(recorded) + PAL_COUNT(wide); k++) {
        const bool golden = k < PAL_COUNT(recorded);
        subject s = golden ? open_recorded(recorded[k]) : open_wide(wide[k - PAL_COUNT(recorded)]);
        for (size_t t = 0; t < TYPES; t++) {
            char path[512];
            pal_model *typed;
            snprintf(path, sizeof path, "%s/models/%s", PAL_TEST_GOLDEN, s.name);
            if (golden) OK(pal_model_open(&typed, path, PAL_FOR_INFERENCE, s.cx, err));
            else typed = new_wide(s.name, PAL_FOR_INFERENCE, s.cx);
            OK(pal_model_retype(typed, types[t], s.cx, err));
            check_loss(&s, typed, types[t]);
            check_steps(&s, typed, types[t]);
            pal_model_close(typed);
        }
        drop(&s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_model_in_every_type),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
