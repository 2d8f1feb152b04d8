/* SPDX-License-Identifier: MIT */
/* Generation: what is written and shown, and that company, saving and stop strings change nothing. */
#include "support/support.h"

#include <math.h>

#include "base/alloc.h"
#include "support/files.h"
#include "support/models.h"
#include "support/text.h"
#include "text/strings.h"
#include "text/utf8.h"

enum { V = TEST_VOCAB, MOST = 512 };

typedef struct {
    int count;
    int32_t ids[MOST];
    double probability[MOST], variance[MOST];
    char text[8 * MOST];
    size_t size;
    pal_finish finish;
} written;

typedef struct {
    written *slots;
    bool edge[8 * MOST]; /* where pieces of text end */
} listener;

static void listen(void *user, const pal_token *t) {
    listener *l = user;
    written *w = &l->slots[t->slot];
    if (t->id >= 0) {
        w->ids[w->count] = t->id;
        w->probability[w->count] = t->probability;
        w->variance[w->count++] = t->variance;
    }
    memcpy(w->text + w->size, t->text.data, t->text.size);
    w->size += t->text.size;
    w->finish = t->finish;
    l->edge[w->size] = true;
}

typedef struct {
    pal_context *cx;
    pal_model *model;
    pal_tokenizer *tok;
} fixture;

static fixture make(size_t kind) {
    fixture f = { .cx = test_context(1, NULL), .tok = test_letters() };
    f.model = test_model(&test_kinds[kind], PAL_FOR_INFERENCE, f.cx);
    return f;
}

static void drop(fixture *f) {
    pal_tokenizer_close(f->tok);
    pal_model_close(f->model);
    pal_context_free(f->cx);
}

static void run_all(pal_generator *g, listener *l) {
    while (pal_generator_running(g)) OK(pal_generator_step(g, listen, l, err));
}

static void prompt_of(uint32_t *ids, int n, uint64_t seed) { test_ids((int32_t *)ids, n, V, seed); }

static void greedy_equals_argmax_of_forward(void **state) {
    (void)state;
    enum { PROMPT = 6, TOKENS = 9, ALL = PROMPT + TOKENS };
    for (size_t k = 0; k < test_kind_count; k++) {
        fixture f = make(k);
        static written w;
        const size_t rows = (size_t)pal_model_config_of(f.model)->vocab_rows;
        uint32_t prompt[PROMPT];
        int32_t ids[ALL];
        pal_generator *g;
        pal_work *work;
        w = (written){ 0 };
        prompt_of(prompt, PROMPT, 3);
        OK(pal_generator_new(&g, f.model, f.tok, f.cx, &(pal_generator_options){ .uncertainty = true, .piece = 4 },
                             err));
        OK(pal_generator_begin(g, 0, prompt, PROMPT, TOKENS, 1, err));
        run_all(g, &(listener){ .slots = &w });
        assert_int_equal(w.count, TOKENS);
        assert_int_equal(w.finish, PAL_FINISH_LENGTH);
        memcpy(ids, prompt, sizeof prompt);
        memcpy(ids + PROMPT, w.ids, TOKENS * sizeof *ids);
        OK(pal_work_new(&work, f.model, f.cx, &(pal_work_options){ .tokens = ALL }, err));
        float *logits = pal_alloc(ALL * rows, sizeof *logits);
        const int cu[2] = { 0, ALL };
        const pal_batch batch = { .tokens = ALL, .sequences = 1, .ids = ids, .cu_seqlens = cu };
        OK(pal_model_forward(f.model, work, &batch, NULL, ALL, logits, err));
        for (int t = 0; t < TOKENS; t++) {
            const float *row = logits + (size_t)(PROMPT - 1 + t) * rows;
            double top = -INFINITY, sum = 0;
            for (int i = 0; i < V; i++) top = fmax(top, (double)row[i]);
            for (size_t i = 0; i < rows; i++) sum += exp((double)row[i] - top);
            if (!((double)row[w.ids[t]] >= top - 1e-4))
                fail_msg("%s: token %d is not the likeliest", test_kinds[k].name, t);
            if (!(fabs(w.probability[t] - exp((double)row[w.ids[t]] - top) / sum) < 1e-4))
                fail_msg("%s: probability %g", test_kinds[k].name, w.probability[t]);
            const bool has = strcmp(pal_model_layer_rule(pal_model_config_of(f.model), 1), "palimpsa") == 0;
            assert_true(has ? w.variance[t] > 0 : isnan(w.variance[t]));
        }
        pal_free(logits);
        pal_work_free(work);
        pal_generator_free(g);
        drop(&f);
    }
}

static void variance_is_the_same_for_a_prompt_and_for_steps(void **state) {
    (void)state;
    for (size_t k = 0; k < 6; k++) {
        fixture f = make(k);
        pal_work *work;
        pal_state *a, *b;
        int32_t ids[13];
        test_ids(ids, 13, V, 4);
        OK(pal_work_new(&work, f.model, f.cx, &(pal_work_options){ .tokens = 13, .sequences = 2, .variance = true },
                        err));
        OK(pal_state_new(&a, f.model, 16, err));
        OK(pal_state_new(&b, f.model, 16, err));
        OK(pal_model_prefill(f.model, work, a, ids, 13, NULL, err));
        const double whole = pal_work_variance(work, 0);
        for (int t = 0; t < 13; t++) OK(pal_model_step(f.model, work, &b, 1, &ids[t], NULL, err));
        const double stepped = pal_work_variance(work, 0);
        assert_true((isnan(whole) && isnan(stepped)) || fabs(whole - stepped) <= 2e-5 * whole);
        pal_state_free(a);
        pal_state_free(b);
        pal_work_free(work);
        drop(&f);
    }
}

static const pal_sampling lively = { .temperature = 1.2, .top_k = 20, .top_p = 0.97, .repetition_penalty = 1.1 };

static void company_changes_nothing(void **state) {
    (void)state;
    enum { PROMPTS = 11, TOKENS = 12 };
    const size_t kinds[] = { 0, 3, 6, 7, 8 };
    for (size_t c = 0; c < PAL_COUNT(kinds); c++) {
        fixture f = make(kinds[c]);
        static written alone[PROMPTS], together[PROMPTS];
        pal_generator *one, *many;
        memset(alone, 0, sizeof alone);
        memset(together, 0, sizeof together);
        const pal_generator_options options = { .sampling = lively, .piece = 16 };
        pal_generator_options wide = options;
        wide.slots = PROMPTS;
        OK(pal_generator_new(&one, f.model, f.tok, f.cx, &options, err));
        OK(pal_generator_new(&many, f.model, f.tok, f.cx, &wide, err));
        for (int i = 0; i < PROMPTS; i++) {
            uint32_t prompt[20];
            const size_t n = 1 + (size_t)i * 3 % 19;
            prompt_of(prompt, 20, (uint64_t)i);
            pal_state_reset(pal_generator_state(one, 0));
            OK(pal_generator_begin(one, 0, prompt, n, TOKENS + i, 5, err));
            OK(pal_generator_begin(many, i, prompt, n, TOKENS + i, 5, err));
            run_all(one, &(listener){ .slots = &alone[i] });
        }
        run_all(many, &(listener){ .slots = together });
        for (int i = 0; i < PROMPTS; i++) {
            assert_int_equal(alone[i].count, TOKENS + i);
            assert_int_equal(together[i].count, TOKENS + i);
            assert_memory_equal(alone[i].ids, together[i].ids, (size_t)alone[i].count * sizeof *alone[i].ids);
        }
        pal_generator_free(one);
        pal_generator_free(many);
        drop(&f);
    }
}

static void a_saved_memory_goes_on_with_the_same_tokens(void **state) {
    (void)state;
    enum { TOKENS = 30 };
    for (size_t k = 0; k < test_kind_count; k++) {
        fixture f = make(k);
        static written straight, parts;
        pal_generator *a, *b;
        uint32_t prompt[9];
        char folder[256], file[300];
        test_directory(folder);
        snprintf(file, sizeof file, "%s/memory", folder);
        prompt_of(prompt, 9, 8);
        straight = parts = (written){ 0 };
        const pal_generator_options options = { .sampling = { .temperature = 1 }, .context = 64 };
        OK(pal_generator_new(&a, f.model, f.tok, f.cx, &options, err));
        OK(pal_generator_begin(a, 0, prompt, 9, TOKENS, 3, err));
        run_all(a, &(listener){ .slots = &straight });
        pal_state_reset(pal_generator_state(a, 0));
        OK(pal_generator_begin(a, 0, prompt, 9, 0, 3, err)); /* read only */
        assert_int_equal(pal_generator_running(a), 0);
        for (int piece = 0; piece < TOKENS; piece += 10) {
            OK(pal_state_save(pal_generator_state(a, 0), file, err));
            OK(pal_generator_new(&b, f.model, f.tok, f.cx, &options, err));
            OK(pal_state_load(pal_generator_state(b, 0), file, err));
            pal_generator_free(a);
            a = b;
            OK(pal_generator_begin(a, 0, NULL, 0, 10, 3, err));
            run_all(a, &(listener){ .slots = &parts });
        }
        assert_int_equal(parts.count, TOKENS);
        assert_memory_equal(parts.ids, straight.ids, sizeof(int32_t) * TOKENS);
        pal_generator_free(a);
        test_remove(folder);
        drop(&f);
    }
}

/* Text that goes on without a prompt is in its middle: words keep the blank in front of them, also where SentencePiece
 * has none at the start of a text, and a character that the last token began is whole. */
static void text_goes_on_where_it_stopped(void **state) {
    (void)state;
    static const tiny_kind kinds[] = { TINY_SPM, TINY_BYTES };
    enum { PARTS = 40 };
    int blanks = 0;
    for (size_t k = 0; k < PAL_COUNT(kinds); k++) {
        pal_context *cx = test_context(1, NULL);
        pal_tokenizer *tok = test_tiny(kinds[k]);
        const pal_preset_options sizes = { .task = "text",
                                           .vocab = (int)pal_tokenizer_size(tok),
                                           .hidden = 16,
                                           .layers = 1,
                                           .head_dim = 8,
                                           .state_size = 4,
                                           .rank = 2 };
        pal_model_config c;
        pal_model *model;
        pal_generator *g;
        OK(pal_model_preset(&c, "palimpsa-m", &sizes, err));
        OK(pal_model_new(&model, &c, 1, PAL_FOR_INFERENCE, cx, err));
        OK(pal_generator_new(&g, model, tok, cx,
                             &(pal_generator_options){ .sampling = { .temperature = 1 }, .ignore_eos = true }, err));
        const uint32_t start = kinds[k] == TINY_BYTES ? 'a' : (uint32_t)pal_tokenizer_size(tok) - 1;
        OK(pal_generator_begin(g, 0, &start, 1, 0, 1, err));
        for (int part = 0; part < PARTS; part++) {
            static written w;
            const uint32_t before = (uint32_t)pal_state_pending(pal_generator_state(g, 0));
            pal_bytes one = { 0 }, both = { 0 };
            pal_decoder *decoder;
            w = (written){ 0 };
            OK(pal_generator_begin(g, 0, NULL, 0, 1, (uint64_t)part, err));
            run_all(g, &(listener){ .slots = &w });
            assert_int_equal(w.count, 1);
            OK(pal_decoder_new(&decoder, tok, true, err)); /* what a reader of both tokens sees after the first */
            OK(pal_decoder_push(decoder, before, &one, err));
            OK(pal_decoder_push(decoder, (uint32_t)w.ids[0], &both, err));
            assert_int_equal(w.size, both.size);
            if (w.size) assert_memory_equal(w.text, both.data, w.size);
            blanks += w.size && w.text[0] == ' ';
            pal_decoder_free(decoder);
            pal_bytes_free(&one), pal_bytes_free(&both);
        }
        pal_generator_free(g);
        pal_model_close(model);
        pal_tokenizer_close(tok);
        pal_context_free(cx);
    }
    assert_true(blanks > 0);
}

static void a_pending_token_is_part_of_the_file(void **state) {
    (void)state;
    fixture f = make(0);
    pal_state *a, *b;
    pal_error why;
    char folder[256], file[300];
    test_directory(folder);
    snprintf(file, sizeof file, "%s/memory", folder);
    OK(pal_state_new(&a, f.model, 8, err));
    OK(pal_state_new(&b, f.model, 8, err));
    assert_int_equal(pal_state_pending(a), -1);
    assert_int_equal(pal_state_set_pending(a, V, &why), PAL_E_ARGUMENT);
    OK(pal_state_set_pending(a, 7, err));
    OK(pal_state_save(a, file, err));
    OK(pal_state_load(b, file, err));
    assert_int_equal(pal_state_pending(b), 7);
    pal_state_reset(b);
    assert_int_equal(pal_state_pending(b), -1);
    OK(pal_state_copy(b, a, err));
    assert_int_equal(pal_state_pending(b), 7);
    FILE *raw = fopen(file, "r+b"); /* another pending token without its checksum */
    assert_non_null(raw);
    fseek(raw, 12, SEEK_SET);
    fputc(3, raw);
    fclose(raw);
    assert_int_equal(pal_state_load(b, file, &why), PAL_E_FORMAT);
    pal_state_free(a);
    pal_state_free(b);
    test_remove(folder);
    drop(&f);
}

static void text_ends_before_the_first_stop_string(void **state) {
    (void)state;
    enum { TOKENS = 300 };
    fixture f = make(3);
    static written free_text, stopped;
    uint32_t prompt[3];
    pal_generator *g;
    free_text = (written){ 0 };
    prompt_of(prompt, 3, 8);
    OK(pal_generator_new(&g, f.model, f.tok, f.cx, &(pal_generator_options){ .sampling = { .temperature = 1 } }, err));
    OK(pal_generator_begin(g, 0, prompt, 3, TOKENS, 3, err));
    run_all(g, &(listener){ .slots = &free_text });
    pal_generator_free(g);
    assert_int_equal(free_text.size, TOKENS);
    free_text.text[TOKENS] = '\0';
    pal_rng rng = pal_rng_at(3, 1);
    for (int c = 0; c < 15; c++) {
        char first[12] = "", second[12] = "qqqqqqqqq";
        const size_t size = 1 + pal_rng_below(&rng, 7), at = pal_rng_below(&rng, TOKENS - 10);
        memcpy(first, free_text.text + at, size);
        first[size] = '\0';
        if (c % 3 == 0) memcpy(second, free_text.text + pal_rng_below(&rng, TOKENS - 10), 3), second[3] = '\0';
        if (c % 5 == 0) first[size - 1] = '\n'; /* perhaps nowhere */
        const char *one = strstr(free_text.text, first), *two = strstr(free_text.text, second);
        /* The one that is complete first ends the text. */
        const char *end = free_text.text + TOKENS;
        const size_t one_ends = one ? (size_t)(one - free_text.text) + strlen(first) : SIZE_MAX,
                     two_ends = two ? (size_t)(two - free_text.text) + strlen(second) : SIZE_MAX;
        if (one_ends < two_ends) end = one;
        else if (two_ends < one_ends) end = two;
        else if (one) end = one < two ? one : two;
        const char *const stop[] = { first, second };
        stopped = (written){ 0 };
        OK(pal_generator_new(
            &g, f.model, f.tok, f.cx,
            &(pal_generator_options){ .sampling = { .temperature = 1 }, .stop = stop, .stop_count = 2 }, err));
        OK(pal_generator_begin(g, 0, prompt, 3, TOKENS, 3, err));
        run_all(g, &(listener){ .slots = &stopped });
        assert_int_equal(stopped.size, (size_t)(end - free_text.text));
        assert_memory_equal(stopped.text, free_text.text, stopped.size);
        assert_int_equal(stopped.finish, one || two ? PAL_FINISH_STOP : PAL_FINISH_LENGTH);
        pal_generator_free(g);
    }
    drop(&f);
}

static void only_whole_characters_are_shown(void **state) {
    (void)state;
    pal_context *cx = test_context(1, NULL);
    pal_model_config c;
    pal_model *model;
    pal_tokenizer *tok;
    pal_generator *g;
    static written w;
    pal_bytes all = { 0 };
    OK(pal_model_preset(
        &c, "palimpsa-m",
        &(pal_preset_options){
            .task = "text", .vocab = 256, .hidden = 16, .layers = 1, .head_dim = 8, .state_size = 4, .rank = 2 },
        err));
    OK(pal_model_new(&model, &c, 1, PAL_FOR_INFERENCE, cx, err));
    OK(pal_tokenizer_open(&tok, "bytes", err));
    for (uint64_t seed = 0; seed < 8; seed++) {
        static listener l;
        l = (listener){ .slots = &w };
        w = (written){ 0 };
        all.size = 0;
        OK(pal_generator_new(&g, model, tok, cx, &(pal_generator_options){ .sampling = { .temperature = 1 } }, err));
        OK(pal_generator_begin(g, 0, &(uint32_t){ 65 }, 1, 400, seed, err));
        run_all(g, &l);
        assert_int_equal(w.count, 400);
        OK(pal_tokenizer_decode(tok, (const uint32_t *)w.ids, 400, true, &all, err));
        assert_in_range(w.size, all.size - 3, all.size); /* nothing is lost but half a character at the end */
        assert_memory_equal(w.text, all.data, w.size);
        for (size_t at = 0; at < w.size;) {
            uint32_t code;
            const size_t n = pal_utf8_read((const unsigned char *)w.text + at, w.size - at, &code);
            for (size_t i = 1; i < n; i++)
                if (l.edge[at + i]) fail_msg("a piece of text ends inside a character of %zu bytes", n);
            at += n ? n : 1;
        }
        pal_generator_free(g);
    }
    pal_bytes_free(&all);
    pal_tokenizer_close(tok);
    pal_model_close(model);
    pal_context_free(cx);
}

static void eos_ends_a_continuation_and_is_not_shown(void **state) {
    (void)state;
    pal_context *cx = test_context(1, NULL);
    pal_model_config c;
    pal_model *model;
    pal_tokenizer *tok;
    pal_generator *g;
    static written ends, goes_on;
    ends = goes_on = (written){ 0 };
    const pal_slice text = { (const unsigned char *)"the cat sat on the mat", 22 };
    OK(pal_tokenizer_train_bpe(&tok, &text, 1, 259, err));
    assert_int_equal(pal_tokenizer_eos(tok), 0);
    OK(pal_model_preset(
        &c, "palimpsa-m",
        &(pal_preset_options){
            .task = "text", .vocab = 260, .hidden = 16, .layers = 1, .head_dim = 8, .state_size = 4, .rank = 2 },
        err));
    OK(pal_model_new(&model, &c, 1, PAL_FOR_INFERENCE, cx, err));
    uint64_t seed = 0;
    for (; ends.finish != PAL_FINISH_EOS && seed < 100;
         seed++) { /* nearly uniform over 259 ids: one in three meets it within 100 */
        ends = (written){ 0 };
        OK(pal_generator_new(&g, model, tok, cx, &(pal_generator_options){ .sampling = { .temperature = 1 } }, err));
        OK(pal_generator_begin(g, 0, &(uint32_t){ 65 }, 1, 100, seed, err));
        run_all(g, &(listener){ .slots = &ends });
        pal_generator_free(g);
    }
    assert_int_equal(ends.finish, PAL_FINISH_EOS);
    assert_int_equal(ends.ids[ends.count - 1], 0);
    OK(pal_generator_new(&g, model, tok, cx,
                         &(pal_generator_options){ .sampling = { .temperature = 1 }, .ignore_eos = true }, err));
    OK(pal_generator_begin(g, 0, &(uint32_t){ 65 }, 1, 100, seed - 1, err));
    run_all(g, &(listener){ .slots = &goes_on });
    assert_int_equal(goes_on.count, 100);
    assert_memory_equal(goes_on.ids, ends.ids, (size_t)ends.count * sizeof *ends.ids);
    goes_on.text[goes_on.size] = '\0';
    assert_null(strstr(goes_on.text, "endoftext"));
    pal_generator_free(g);
    pal_tokenizer_close(tok);
    pal_model_close(model);
    pal_context_free(cx);
}

static void padding_rows_and_missing_ids_are_never_written(void **state) {
    (void)state;
    fixture f = make(6);
    static written w;
    assert_true(pal_model_config_of(f.model)->vocab_rows > V);
    w = (written){ 0 };
    pal_generator *g;
    OK(pal_generator_new(&g, f.model, f.tok, f.cx, &(pal_generator_options){ .sampling = { .temperature = 100 } },
                         err));
    OK(pal_generator_begin(g, 0, &(uint32_t){ 1 }, 1, 500, 3, err));
    run_all(g, &(listener){ .slots = &w });
    for (int i = 0; i < w.count; i++) assert_in_range(w.ids[i], 0, V - 1);
    pal_generator_free(g);
    drop(&f);
}

static void a_step_allocates_nothing(void **state) {
    (void)state;
    const size_t kinds[] = { 0, 3, 7, 8 };
    for (size_t c = 0; c < PAL_COUNT(kinds); c++) {
        fixture f = make(kinds[c]);
        static written w[3];
        memset(w, 0, sizeof w);
        const char *const stop[] = { "zz.z.zz", "a.b" };
        pal_generator *g;
        OK(pal_generator_new(&g, f.model, f.tok, f.cx,
                             &(pal_generator_options){
                                 .sampling = lively, .slots = 3, .stop = stop, .stop_count = 2, .uncertainty = true },
                             err));
        for (int i = 0; i < 3; i++) OK(pal_generator_begin(g, i, &(uint32_t){ (uint32_t)i }, 1, 50, 3, err));
        const uint64_t before = pal_alloc_count();
        run_all(g, &(listener){ .slots = w });
        assert_int_equal(pal_alloc_count(), before);
        assert_true(w[0].count + w[1].count + w[2].count > 20);
        pal_generator_free(g);
        drop(&f);
    }
}

static void attention_ends_with_its_context(void **state) {
    (void)state;
    fixture f = make(8);
    static written w;
    pal_generator *g;
    pal_error why;
    uint32_t prompt[5];
    w = (written){ 0 };
    prompt_of(prompt, 5, 2);
    assert_int_equal(pal_model_config_of(f.model)->mixer, PAL_MIXER_ATTENTION);
    OK(pal_generator_new(&g, f.model, f.tok, f.cx, &(pal_generator_options){ .context = 12 }, err));
    OK(pal_generator_begin(g, 0, prompt, 5, 100, 3, err));
    run_all(g, &(listener){ .slots = &w });
    assert_int_equal(w.finish, PAL_FINISH_CONTEXT);
    assert_int_equal(w.count, 8); /* the twelfth token is read, and one more written from it */
    assert_int_equal(pal_generator_begin(g, 0, prompt, 5, 1, 3, &why), PAL_E_ARGUMENT);
    assert_non_null(strstr(why.text, "--max-context"));
    pal_generator_free(g);
    drop(&f);
}

static void what_does_not_fit_is_refused_with_a_sentence(void **state) {
    (void)state;
    fixture f = make(0);
    pal_generator *g;
    pal_tokenizer *bytes;
    pal_error why;
    OK(pal_tokenizer_open(&bytes, "bytes", err));
    assert_int_equal(pal_generator_new(&g, f.model, bytes, f.cx, &(pal_generator_options){ 0 }, &why), PAL_E_ARGUMENT);
    assert_non_null(strstr(why.text, "256"));
    assert_non_null(strstr(why.text, "29"));
    assert_null(g);
    pal_tokenizer_close(bytes);
    const char *const empty[] = { "" };
    assert_int_equal(
        pal_generator_new(&g, f.model, f.tok, f.cx, &(pal_generator_options){ .stop = empty, .stop_count = 1 }, &why),
        PAL_E_ARGUMENT);
    assert_int_equal(pal_generator_new(&g, f.model, f.tok, f.cx, &(pal_generator_options){ .slots = -1 }, &why),
                     PAL_E_ARGUMENT);
    OK(pal_generator_new(&g, f.model, f.tok, f.cx, &(pal_generator_options){ 0 }, err));
    assert_int_equal(pal_generator_begin(g, 0, NULL, 0, 1, 1, &why), PAL_E_ARGUMENT);
    assert_int_equal(pal_generator_begin(g, 1, &(uint32_t){ 1 }, 1, 1, 1, &why), PAL_E_ARGUMENT);
    assert_int_equal(pal_generator_begin(g, 0, &(uint32_t){ V }, 1, 1, 1, &why), PAL_E_ARGUMENT);
    assert_int_equal(pal_generator_begin(g, 0, &(uint32_t){ 1 }, 1, -1, 1, &why), PAL_E_ARGUMENT);
    pal_generator_free(g);
    for (uint64_t at = 1;; at++) { /* every allocation fails once */
        pal_alloc_fail_at(at);
        const pal_status st = pal_generator_new(&g, f.model, f.tok, f.cx,
                                                &(pal_generator_options){ .sampling = lively, .slots = 2 }, &why);
        pal_alloc_fail_at(0);
        if (!st) break;
        assert_int_equal(st, PAL_E_MEMORY);
        assert_null(g);
    }
    pal_generator_free(g);
    drop(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_equals_argmax_of_forward),
        cmocka_unit_test(variance_is_the_same_for_a_prompt_and_for_steps),
        cmocka_unit_test(company_changes_nothing),
        cmocka_unit_test(a_saved_memory_goes_on_with_the_same_tokens),
        cmocka_unit_test(text_goes_on_where_it_stopped),
        cmocka_unit_test(a_pending_token_is_part_of_the_file),
        cmocka_unit_test(text_ends_before_the_first_stop_string),
        cmocka_unit_test(only_whole_characters_are_shown),
        cmocka_unit_test(eos_ends_a_continuation_and_is_not_shown),
        cmocka_unit_test(padding_rows_and_missing_ids_are_never_written),
        cmocka_unit_test(a_step_allocates_nothing),
        cmocka_unit_test(attention_ends_with_its_context),
        cmocka_unit_test(what_does_not_fit_is_refused_with_a_sentence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
