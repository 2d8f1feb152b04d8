/* SPDX-License-Identifier: MIT */
/* Two threads of a program, each with a context, a model and its own tokenizer: neither changes a bit of what the
 * other computes. Under the thread sanitizer this also finds what they share without a lock. */
#include <pthread.h>

#include "base/alloc.h"
#include "model/model.h"
#include "support/files.h"
#include "support/sessions.h"
#include "train/optimiser.h"

enum { LENGTH = 19, TOKENS = 12, ROUNDS = 10 };

/* What a thread found, one number after the other; integers are exact in it. */
typedef struct {
    float *numbers;
    size_t count, room;
} trace;

static void put(trace *t, const float *x, size_t n) {
    if (t->count + n > t->room) {
        t->room = 2 * t->room + n;
        assert_non_null(t->numbers = realloc(t->numbers, t->room * sizeof *t->numbers));
    }
    memcpy(t->numbers + t->count, x, n * sizeof *x);
    t->count += n;
}

static void put_number(trace *t, double x) { put(t, &(float){ (float)x }, 1); }

/* What a thread does. An assertion that fails in another thread than the test's ends the program, with its sentence. */
typedef struct side side;
struct side {
    void (*work)(side *self);
    size_t number;    /* of a kind of model, or of tokenizer */
    const char *path; /* of a model */
    char folder[256]; /* of its own */
    int rounds;
    trace found;
    pthread_barrier_t *begin; /* NULL: alone */
};

static void *run_side(void *arg) {
    side *s = arg;
    s->found.count = 0;
    for (int i = 0; i < s->rounds; i++) {
        if (s->begin) pthread_barrier_wait(s->begin);
        s->work(s);
    }
    return NULL;
}

/* Both alone, one after the other; then both at once. */
static void compare(const char *what, side sides[2]) {
    trace alone[2];
    pthread_barrier_t begin;
    pthread_t thread[2];
    assert_int_equal(pthread_barrier_init(&begin, NULL, 2), 0);
    for (int i = 0; i < 2; i++) {
        sides[i].rounds = 1;
        run_side(&sides[i]);
        alone[i] = sides[i].found;
        assert_true(alone[i].count > 0);
        sides[i].found = (trace){ 0 };
        sides[i].rounds = test_cases(ROUNDS, 5 * ROUNDS);
        sides[i].begin = &begin;
    }
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&thread[i], NULL, run_side, &sides[i]), 0);
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_join(thread[i], NULL), 0);
    for (int i = 0; i < 2; i++) {
        const size_t n = alone[i].count;
        assert_int_equal(sides[i].found.count, n * (size_t)sides[i].rounds);
        for (int r = 0; r < sides[i].rounds; r++)
            test_same_bits(what, sides[i].found.numbers + (size_t)r * n, alone[i].numbers, n);
        free(alone[i].numbers);
        free(sides[i].found.numbers);
    }
    pthread_barrier_destroy(&begin);
}

static void read_logits(trace *t, const pal_model *model, const pal_context *cx, int vocab) {
    const size_t rows = (size_t)pal_model_config_of(model)->vocab_rows;
    const int cu[2] = { 0, LENGTH };
    int32_t ids[LENGTH];
    pal_work *work;
    float *logits = pal_alloc(LENGTH * rows, sizeof *logits);
    test_ids(ids, LENGTH, vocab, 5);
    const pal_batch batch = { .tokens = LENGTH, .sequences = 1, .ids = ids, .cu_seqlens = cu };
    OK(pal_work_new(&work, model, cx, &(pal_work_options){ .tokens = LENGTH }, err));
    OK(pal_model_forward(model, work, &batch, NULL, LENGTH, logits, err));
    put(t, logits, LENGTH * rows);
    pal_work_free(work);
    pal_free(logits);
}

static void update(trace *t, pal_model *model, const pal_context *cx) {
    const pal_optimiser_options options = { .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .clip = 1 };
    const int cu[3] = { 0, 7, LENGTH };
    int32_t ids[LENGTH], targets[LENGTH];
    pal_optimiser *optimiser;
    pal_work *work;
    pal_loss loss;
    test_ids(ids, LENGTH, TEST_VOCAB, 6);
    test_ids(targets, LENGTH, TEST_VOCAB, 7);
    const pal_batch batch = { .tokens = LENGTH, .sequences = 2, .ids = ids, .cu_seqlens = cu, .targets = targets };
    OK(pal_work_new(&work, model, cx, &(pal_work_options){ .tokens = LENGTH, .sequences = 2, .training = true }, err));
    OK(pal_optimiser_new(&optimiser, model, &options, NULL, err));
    OK(pal_model_learn(model, work, &batch, 1.0f, &loss, NULL, err));
    put_number(t, loss.sum);
    put(t, pal_model_flat_gradients(model), pal_model_flat(model));
    put_number(t, pal_optimiser_step(optimiser, model, cx, 1.0 / LENGTH, 0.01));
    put(t, pal_model_flat_parameters(model), pal_model_flat(model));
    pal_optimiser_free(optimiser);
    pal_work_free(work);
}

static void write_text(trace *t, const pal_model *model, const pal_context *cx) {
    const pal_engine_options options = { .piece = 4, .context = 64 };
    written *w = calloc(1, sizeof *w);
    pal_tokenizer *letters = test_letters();
    uint32_t prompt[LENGTH];
    pal_engine *engine;
    assert_non_null(w);
    test_prompt(prompt, LENGTH, 8);
    OK(pal_engine_new(&engine, model, letters, cx, &options, err));
    pal_session *session = test_session(engine);
    test_begin(session, w, prompt, LENGTH,
               (pal_session_options){
                   .sampling = { .temperature = 1, .top_p = 0.9 }, .seed = 3, .max_tokens = TOKENS, .logprobs = true });
    test_run(engine);
    assert_int_equal(w->count, TOKENS);
    for (int i = 0; i < w->count; i++) put_number(t, w->ids[i]), put_number(t, w->logprob[i]);
    for (size_t i = 0; i < w->size; i++) put_number(t, w->text[i]);
    pal_session_free(session);
    pal_engine_free(engine);
    pal_tokenizer_close(letters);
    free(w);
}

static void read_learn_write(side *s) {
    pal_context *cx = test_context(1, NULL);
    pal_model *model = test_model(&test_kinds[s->number], PAL_FOR_TRAINING, cx);
    read_logits(&s->found, model, cx, TEST_VOCAB);
    update(&s->found, model, cx);
    write_text(&s->found, model, cx);
    pal_model_close(model);
    pal_context_free(cx);
}

static void two_models_learn_and_write_as_if_alone(void **state) {
    (void)state;
    for (size_t k = 0; k < test_kind_count; k++) {
        const size_t other = (k + 3) % test_kind_count; /* another kind of mixer, often */
        char what[128];
        side sides[2] = { { .work = read_learn_write, .number = k }, { .work = read_learn_write, .number = other } };
        snprintf(what, sizeof what, "%s next to %s", test_kinds[k].name, test_kinds[other].name);
        compare(what, sides);
    }
}

/* Opens a model, computes with it, writes it, and opens what was written. */
static void open_and_save(side *s) {
    char path[TEST_PATH];
    pal_context *cx = test_context(1, NULL);
    pal_model *model;
    OK(pal_model_open(&model, s->path, PAL_FOR_INFERENCE, cx, err));
    read_logits(&s->found, model, cx, pal_model_config_of(model)->vocab);
    test_join(path, s->folder, "model");
    OK(pal_model_save(model, path, PAL_BF16, err));
    pal_model_close(model);
    OK(pal_model_open(&model, path, PAL_FOR_INFERENCE, cx, err));
    read_logits(&s->found, model, cx, pal_model_config_of(model)->vocab);
    pal_model_close(model);
    pal_error why;
    assert_int_not_equal(pal_model_open(&model, s->folder, PAL_FOR_INFERENCE, cx, &why), PAL_OK);
    for (const char *c = why.text; *c; c++) put_number(&s->found, *c); /* no one else's sentence */
    pal_context_free(cx);
}

static void two_models_open_as_if_alone(void **state) {
    (void)state;
    static const char *const paths[][2] = { { "hybrid_m", "transformer" },
                                            { "palimpsa_d", "mamba2_official" },
                                            { "gated_deltanet", "palimpsa_m" } };
    for (size_t p = 0; p < PAL_COUNT(paths); p++) {
        char path[2][TEST_PATH];
        side sides[2] = { { .work = open_and_save }, { .work = open_and_save } };
        for (int i = 0; i < 2; i++) {
            snprintf(path[i], sizeof path[i], "%s/models/%s", PAL_TEST_GOLDEN, paths[p][i]);
            sides[i].path = path[i];
            test_directory(sides[i].folder);
        }
        compare(paths[p][0], sides);
        for (int i = 0; i < 2; i++) test_remove(sides[i].folder);
    }
}

/* Reads a tokenizer, and what it makes of some texts. */
static void encode_and_decode(side *s) {
    pal_tokenizer *tok = test_tiny((tiny_kind)s->number);
    pal_rng rng = pal_rng_at(9, s->number);
    for (int i = 0; i < 20; i++) {
        pal_bytes text = { 0 }, back = { 0 };
        pal_ids ids = { 0 };
        if (i % 2) test_prose(&text, &rng, 300);
        else test_random_text(&text, &rng, 200);
        test_encode(tok, text.data, text.size, &ids);
        for (size_t j = 0; j < ids.count; j++) put_number(&s->found, ids.data[j]);
        OK(pal_tokenizer_decode(tok, ids.data, ids.count, false, &back, err));
        for (size_t j = 0; j < back.size; j++) put_number(&s->found, back.data[j]);
        pal_bytes_free(&text);
        pal_bytes_free(&back);
        pal_ids_free(&ids);
    }
    pal_tokenizer_close(tok);
}

static void two_tokenizers_read_as_if_alone(void **state) {
    (void)state;
    for (size_t k = 0; k < TINY_KINDS; k++) {
        side sides[2] = { { .work = encode_and_decode, .number = k },
                          { .work = encode_and_decode, .number = (k + 1) % TINY_KINDS } };
        compare(tiny_names[k], sides);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_models_learn_and_write_as_if_alone),
        cmocka_unit_test(two_models_open_as_if_alone),
        cmocka_unit_test(two_tokenizers_read_as_if_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
