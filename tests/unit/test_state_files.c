/* SPDX-License-Identifier: MIT */
/* States in files: saved, continued in another process, and refused when they are damaged or of another model. */
#include <sys/wait.h>
#include <unistd.h>

#include "base/random.h"
#include "model/model.h"
#include "model/state.h"
#include "support/files.h"
#include "support/models.h"

enum { V = TEST_VOCAB, LENGTH = 11, MOST_ROWS = 32 };

/* Continues a saved state for five tokens and writes the logits: the other half of the test below, in a process of its
 * own. */
static int continue_elsewhere(const char *root) {
    pal_context *cx = test_context(2, NULL);
    pal_model *model;
    pal_work *work;
    pal_state *s;
    char path[512];
    float logits[5 * MOST_ROWS];
    int32_t ids[LENGTH + 5];
    test_ids(ids, LENGTH + 5, V, 3);
    OK(pal_model_open(&model, root, PAL_FOR_INFERENCE, cx, err));
    OK(pal_work_new(&work, model, cx, &(pal_work_options){ .tokens = LENGTH }, err));
    OK(pal_state_new(&s, model, 64, err));
    test_join(path, root, "state");
    OK(pal_state_load(s, path, err));
    const size_t rows = (size_t)pal_model_config_of(model)->vocab_rows;
    for (size_t t = 0; t < 5; t++) OK(pal_model_step(model, work, &s, 1, &ids[LENGTH + t], logits + t * rows, err));
    test_spill(root, "logits", logits, 5 * rows * sizeof *logits);
    pal_state_free(s);
    pal_work_free(work);
    pal_model_close(model);
    pal_context_free(cx);
    return 0;
}

static void a_state_saved_and_continued_elsewhere_equals_one_uninterrupted(void **state) {
    (void)state;
    pal_context *cx = test_context(2, NULL);
    char root[256], path[512], self[512];
    test_directory(root);
    test_join(path, root, "state");
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(length > 0);
    self[length] = 0;
    for (size_t k = 0; k < test_kind_count; k++) {
        if (!getenv("PALIMPSA_TEST_LONG") && k % 3) continue;
        pal_model *made = test_model(&test_kinds[k], PAL_FOR_TRAINING, cx), *model;
        pal_work *work;
        pal_state *s;
        float logits[5 * MOST_ROWS];
        int32_t ids[LENGTH + 5];
        test_ids(ids, LENGTH + 5, V, 3);
        OK(pal_model_save(made, root, PAL_F32, err));
        pal_model_close(made);
        OK(pal_model_open(&model, root, PAL_FOR_INFERENCE, cx, err));
        OK(pal_work_new(&work, model, cx, &(pal_work_options){ .tokens = LENGTH }, err));
        OK(pal_state_new(&s, model, 64, err));
        OK(pal_model_prefill(model, work, s, ids, LENGTH, NULL, err));
        OK(pal_state_save(s, path, err));
        const size_t rows = (size_t)pal_model_config_of(model)->vocab_rows;
        for (size_t t = 0; t < 5; t++) OK(pal_model_step(model, work, &s, 1, &ids[LENGTH + t], logits + t * rows, err));
        const pid_t child = fork();
        if (child == 0) {
            if (test_emulator()) execlp(test_emulator(), test_emulator(), self, "--continue", root, (char *)NULL);
            else execl(self, self, "--continue", root, (char *)NULL);
            _exit(127);
        }
        int status;
        waitpid(child, &status, 0);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
            fail_msg("%s: the other process failed", test_kinds[k].name);
        const test_blob other = test_slurp(root, "logits");
        assert_int_equal(other.size, 5 * rows * sizeof *logits);
        float there[5 * MOST_ROWS];
        memcpy(there, other.bytes, other.size);
        test_same_bits(test_kinds[k].name, there, logits, 5 * rows);
        free(other.bytes);
        pal_state_free(s);
        pal_work_free(work);
        pal_model_close(model);
    }
    test_remove(root);
    pal_context_free(cx);
}

static void states_of_other_models_and_damaged_files_are_refused(void **state) {
    (void)state;
    pal_context *cx = test_context(1, NULL);
    char root[256], path[512];
    pal_error why;
    test_directory(root);
    test_join(path, root, "state");
    pal_model *model = test_model(&test_kinds[9], PAL_FOR_TRAINING, cx),
              *other = test_model(&test_kinds[9], PAL_FOR_TRAINING, cx);
    pal_state *s, *t, *copy;
    OK(pal_state_new(&s, model, 8, err));
    OK(pal_state_new(&t, other, 8, err));
    OK(pal_state_new(&copy, model, 8, err));
    OK(pal_state_save(s, path, err));
    OK(pal_state_load(copy, path, err));
    OK(pal_state_load(t, path, err)); /* the same weights are the same model */
    other->parameters[7] += 0.5f;
    assert_int_equal(pal_state_load(t, path, &why), PAL_E_ARGUMENT);
    assert_non_null(strstr(why.text, "another model"));
    assert_int_equal(pal_state_copy(copy, t, &why), PAL_E_ARGUMENT);
    assert_int_equal(pal_state_copy(copy, s, &why), PAL_OK);
    test_blob file = test_slurp(root, "state");
    for (size_t size = 0; size < file.size; size += size < 80 ? 1 : (size_t)test_cases(41, 1)) {
        test_spill(root, "state", file.bytes, size);
        assert_int_not_equal(pal_state_load(copy, path, &why), PAL_OK);
    }
    pal_rng rng = pal_rng_at(4, 0);
    for (int i = 0; i < test_cases(300, 10000); i++) {
        const size_t at = i < 160 ? (size_t)i / 2 : pal_rng_below(&rng, (uint32_t)file.size);
        const unsigned char bit = (unsigned char)(1u << pal_rng_below(&rng, 8));
        file.bytes[at] = (char)(file.bytes[at] ^ bit);
        test_spill(root, "state", file.bytes, file.size);
        if (pal_state_load(copy, path, &why) == PAL_OK) fail_msg("bit %02x of byte %zu was not seen", bit, at);
        file.bytes[at] = (char)(file.bytes[at] ^ bit);
    }
    free(file.bytes);
    pal_state_free(s);
    pal_state_free(t);
    pal_state_free(copy);
    pal_model_close(model);
    pal_model_close(other);
    test_remove(root);
    pal_context_free(cx);
}

/* Numbers of a state file that only a writer that knows the checksum makes. */
typedef struct {
    int64_t position;
    uint32_t pending;
} forged_state;

static pal_status load_forged(pal_state *s, const char *root, const forged_state *numbers, pal_error *err) {
    enum { PENDING = 12, POSITION = 24, CHECKSUM = 48, HEADER = 64 };
    char path[512];
    test_join(path, root, "state");
    test_blob file = test_slurp(root, "state");
    memcpy(file.bytes + PENDING, &numbers->pending, sizeof numbers->pending);
    memcpy(file.bytes + POSITION, &numbers->position, sizeof numbers->position);
    const size_t floats = (file.size - HEADER) / sizeof(float);
    float *data = malloc(floats * sizeof *data);
    assert_non_null(data);
    memcpy(data, file.bytes + HEADER, floats * sizeof *data);
    const uint64_t checksum = pal_hash_floats((uint64_t)numbers->position ^ (uint64_t)numbers->pending << 32, data,
                                              floats);
    memcpy(file.bytes + CHECKSUM, &checksum, sizeof checksum);
    test_spill(root, "state", file.bytes, file.size);
    free(data);
    free(file.bytes);
    return pal_state_load(s, path, err);
}

static void a_forged_state_cannot_claim_more_tokens_than_its_context(void **state) {
    (void)state;
    enum { CONTEXT = 8 };
    static const struct {
        const char *kind;
        forged_state numbers;
        const char *refusal; /* NULL: it is fine */
    } cases[] = {
        { "transformer", { CONTEXT, 0 }, NULL },
        { "transformer", { CONTEXT, V }, NULL },
        { "transformer", { CONTEXT + 1, 0 }, "the state has 9 tokens, expected 0 to 8" },
        { "transformer", { INT64_MAX, 0 }, "tokens, expected 0 to" },
        { "transformer", { INT64_MIN, 0 }, "tokens, expected 0 to" },
        { "transformer", { -1, 0 }, "tokens, expected 0 to" },
        { "transformer", { 0, V + 1 }, "the vocabulary has 0 to" },
        { "transformer", { 0, UINT32_MAX }, "the vocabulary has 0 to" },
        { "palimpsa-d", { (int64_t)1 << 40, 0 }, NULL },
        { "palimpsa-d", { INT64_MAX, 0 }, "tokens, expected 0 to" },
        { "palimpsa-d", { INT64_MAX, 1 }, "tokens, expected 0 to" },
    };
    pal_context *cx = test_context(1, NULL);
    for (size_t i = 0; i < PAL_COUNT(cases); i++) {
        char root[256], path[512];
        test_directory(root);
        test_join(path, root, "state");
        pal_model *model = test_model(test_kind_named(cases[i].kind), PAL_FOR_INFERENCE, cx);
        pal_state *s;
        pal_error why = { .text = "" };
        OK(pal_state_new(&s, model, CONTEXT, err));
        if (!cases[i].refusal) { /* a file of attention has as many rows */
            OK(pal_state_make_room(s, CONTEXT, err));
            s->position = cases[i].numbers.position;
        }
        OK(pal_state_save(s, path, err));
        s->position = 0;
        const pal_status st = load_forged(s, root, &cases[i].numbers, &why);
        pal_state_head head;
        if (pal_state_peek(&head, path, NULL) == PAL_OK) { /* which does not know the model */
            assert_in_range(cases[i].numbers.position, 0, INT64_MAX / 2);
            assert_int_equal(head.tokens, cases[i].numbers.position + (cases[i].numbers.pending != 0));
            assert_int_equal(truncate(path, (off_t)head.bytes + 1), 0);
            assert_int_equal(pal_state_peek(&head, path, NULL), PAL_E_FORMAT);
        } else {
            assert_false(cases[i].numbers.position >= 0 && cases[i].numbers.position <= INT64_MAX / 2);
        }
        if (cases[i].refusal) {
            assert_int_equal(st, PAL_E_FORMAT);
            assert_non_null(strstr(why.text, cases[i].refusal));
            assert_int_equal(pal_state_position(s), 0);
        } else {
            assert_int_equal(st, PAL_OK);
            assert_int_equal(pal_state_position(s), cases[i].numbers.position);
        }
        if (pal_state_position(s) == CONTEXT) { /* full: it takes no token more */
            pal_work *work;
            float logits[MOST_ROWS];
            OK(pal_work_new(&work, model, cx, &(pal_work_options){ .tokens = 1, .context = CONTEXT }, err));
            assert_int_equal(pal_model_step(model, work, &s, 1, &(int32_t){ 0 }, logits, &why), PAL_E_ARGUMENT);
            pal_work_free(work);
        }
        pal_state_free(s);
        pal_model_close(model);
        test_remove(root);
    }
    pal_context_free(cx);
}

/* Before version 3 a file of attention held rows for the whole context. */
static void files_of_the_earlier_versions_still_load(void **state) {
    (void)state;
    enum { CONTEXT = 8, TOKENS = 5 };
    pal_context *cx = test_context(1, NULL);
    pal_model *model = test_model(test_kind_named("transformer"), PAL_FOR_INFERENCE, cx);
    pal_work *work;
    pal_state *s, *back, *wide;
    int32_t ids[TOKENS + 1];
    float expected[MOST_ROWS], found[MOST_ROWS];
    char root[256], path[512];
    pal_error why;
    test_directory(root);
    test_join(path, root, "state");
    test_ids(ids, TOKENS + 1, V, 3);
    OK(pal_work_new(&work, model, cx, &(pal_work_options){ .tokens = TOKENS, .context = 2 * CONTEXT }, err));
    OK(pal_state_new(&s, model, CONTEXT, err));
    OK(pal_state_new(&back, model, CONTEXT, err));
    OK(pal_state_new(&wide, model, 2 * CONTEXT, err));
    OK(pal_model_prefill(model, work, s, ids, TOKENS, NULL, err));
    size_t keys, values;
    assert_non_null(pal_state_part(s, 0, 0, &keys));
    assert_non_null(pal_state_part(s, 0, 1, &values));
    const int layers = pal_model_config_of(model)->layers;
    const size_t floats = (size_t)layers * (keys + values);
    float *whole = calloc(floats, sizeof *whole);
    assert_non_null(whole);
    assert_int_equal((keys + values) % 16, 0); /* each cache began on its own line */
    for (int i = 0; i < layers; i++) {
        float *part = whole + (size_t)i * (keys + values);
        OK(pal_state_export(s, i, part, part + keys, err));
    }
    struct {
        char magic[8];
        uint32_t version, pending;
        uint64_t fingerprint;
        int64_t position, context;
        uint64_t floats, checksum, more;
    } header = { .version = 2,
                 .fingerprint = pal_model_fingerprint(model),
                 .position = TOKENS,
                 .context = CONTEXT,
                 .floats = floats,
                 .checksum = pal_hash_floats(TOKENS, whole, floats) };
    memcpy(header.magic, "PALSTATE", 8);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(&header, sizeof header, 1, file), 1);
    assert_int_equal(fwrite(whole, sizeof *whole, floats, file), floats);
    free(whole);
    assert_int_equal(fclose(file), 0);
    OK(pal_state_load(back, path, err));
    OK(pal_model_step(model, work, &s, 1, &ids[TOKENS], expected, err));
    OK(pal_model_step(model, work, &back, 1, &ids[TOKENS], found, err));
    assert_memory_equal(expected, found, V * sizeof *found);
    assert_int_equal(pal_state_load(wide, path, &why), PAL_E_ARGUMENT); /* only the same context, as it always was */
    /* What is written now takes the room of its tokens, and goes into any state that holds them. */
    OK(pal_state_save(s, path, err));
    test_blob blob = test_slurp(root, "state");
    assert_int_equal(blob.size, sizeof header + pal_state_used_floats(model, TOKENS + 1) * sizeof(float));
    assert_true(blob.size < sizeof header + floats * sizeof(float));
    free(blob.bytes);
    OK(pal_state_load(wide, path, err));
    OK(pal_model_step(model, work, &s, 1, &ids[0], expected, err));
    OK(pal_model_step(model, work, &wide, 1, &ids[0], found, err));
    assert_memory_equal(expected, found, V * sizeof *found);
    pal_state_free(s);
    pal_state_free(back);
    pal_state_free(wide);
    pal_work_free(work);
    pal_model_close(model);
    pal_context_free(cx);
    test_remove(root);
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "--continue") == 0) return continue_elsewhere(argv[2]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_state_saved_and_continued_elsewhere_equals_one_uninterrupted),
        cmocka_unit_test(states_of_other_models_and_damaged_files_are_refused),
        cmocka_unit_test(a_forged_state_cannot_claim_more_tokens_than_its_context),
        cmocka_unit_test(files_of_the_earlier_versions_still_load),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
