/* SPDX-License-Identifier: MIT */
/* States with their text in files that have pages in common. */
#include "base/random.h"
#include "model/kept.h"
#include "model/model.h"
#include "support/files.h"
#include "support/models.h"

enum { V = TEST_VOCAB, CONTEXT = 300, MOST_ROWS = 32, PAGE = PAL_PAGE_TOKENS };

static pal_context *cx;
static char root[256], kept_path[512], pages_path[512];

typedef struct {
    pal_model *model;
    pal_work *work;
    int32_t ids[CONTEXT];
    uint32_t text[CONTEXT];
    size_t rows;
} reader;

static reader open_reader(size_t kind) {
    reader r;
    r.model = test_model(&test_kinds[kind], PAL_FOR_INFERENCE, cx);
    OK(pal_work_new(&r.work, r.model, cx, &(pal_work_options){ .tokens = CONTEXT, .context = CONTEXT }, err));
    test_ids(r.ids, CONTEXT, V, 5);
    for (int i = 0; i < CONTEXT; i++) r.text[i] = (uint32_t)r.ids[i];
    r.rows = (size_t)pal_model_config_of(r.model)->vocab_rows;
    return r;
}

static void close_reader(reader *r) {
    pal_work_free(r->work);
    if (r->model->pages) assert_int_equal(atomic_load(&r->model->pages->count), 0);
    pal_model_close(r->model);
}

static pal_state *read_tokens(const reader *r, int tokens) {
    pal_state *s;
    OK(pal_state_new(&s, r->model, CONTEXT, err));
    if (tokens) OK(pal_model_prefill(r->model, r->work, s, r->ids, tokens, NULL, err));
    return s;
}

static void write_files(const reader *r, const pal_state *s) {
    pal_kept_place places[CONTEXT / PAGE];
    const size_t full = s->pages ? (size_t)s->position / PAGE : 0;
    for (size_t i = 0; i < full; i++) places[i] = (pal_kept_place){ 7, i };
    if (full) OK(pal_kept_save_pages(r->model, s->pages, full, pages_path, err));
    OK(pal_kept_save(s, r->text, places, kept_path, err));
}

/* Both files into a state; the first error. */
static pal_status read_files(const reader *r, pal_state *s, pal_error *err) {
    pal_kept kept;
    pal_kept_pages pages = { 0 };
    pal_page *full[CONTEXT / PAGE];
    size_t made = 0;
    pal_status st = pal_kept_open(&kept, r->model, kept_path, err);
    if (st) return st;
    assert_true(kept.pages <= PAL_COUNT(full));
    if (kept.pages) st = pal_kept_open_pages(&pages, r->model, pages_path, err);
    while (!st && made < kept.pages) {
        st = pal_kept_read_page(&full[made], &pages, r->model, kept.places[made].page, pages_path, err);
        made += !st;
    }
    if (!st) st = pal_kept_take(s, &kept, full, err);
    while (st && made) pal_page_leave(r->model->pages, full[--made]);
    pal_kept_close_pages(&pages);
    pal_kept_close(&kept);
    return st;
}

static void what_was_kept_continues_as_if_it_had_never_stopped(void **state) {
    (void)state;
    static const int at[] = { 0, 1, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE + 5 };
    for (size_t k = 0; k < test_kind_count; k++) {
        reader r = open_reader(k);
        for (size_t i = 0; i < PAL_COUNT(at); i++) {
            pal_state *a = read_tokens(&r, at[i]), *b = read_tokens(&r, 40);
            float expected[MOST_ROWS], found[MOST_ROWS];
            write_files(&r, a);
            OK(read_files(&r, b, err));
            assert_int_equal(b->position, at[i]);
            for (int t = at[i]; t < at[i] + 3; t++) {
                OK(pal_model_step(r.model, r.work, &a, 1, &r.ids[t], expected, err));
                OK(pal_model_step(r.model, r.work, &b, 1, &r.ids[t], found, err));
            }
            test_same_bits(test_kinds[k].name, found, expected, r.rows);
            pal_state_free(a);
            pal_state_free(b);
        }
        close_reader(&r);
    }
}

static size_t attending(void) {
    for (size_t k = 0; k < test_kind_count; k++) {
        const pal_model_config c = test_model_config(&test_kinds[k]);
        if (pal_model_grows(&c) && strcmp(test_kinds[k].name, "transformer") != 0) return k;
    }
    return 0;
}

/* A flipped bit or a cut in either file is seen, and the state stays as it was. */
static void damaged_files_are_refused_and_change_nothing(void **state) {
    (void)state;
    reader r = open_reader(attending());
    pal_state *a = read_tokens(&r, 2 * PAGE + 3), *b = read_tokens(&r, 9);
    pal_rng rng = pal_rng_at(6, 0);
    pal_error why;
    write_files(&r, a);
    for (int i = 0; i < 200; i++) {
        const char *name = i % 2 ? "kept" : "pages";
        test_blob file = test_slurp(root, name);
        const size_t at = i < 100 ? (size_t)i / 2 : pal_rng_below(&rng, (uint32_t)file.size);
        const bool cut = i % 4 > 1;
        file.bytes[at] = (char)(file.bytes[at] ^ (1 << i % 8));
        test_spill(root, name, file.bytes, cut ? at : file.size);
        const pal_status st = read_files(&r, b, &why);
        if (st == PAL_OK) fail_msg("%s, byte %zu: not seen", name, at);
        assert_non_null(strstr(why.text, name));
        assert_int_equal(b->position, 9);
        file.bytes[at] = (char)(file.bytes[at] ^ (1 << i % 8));
        test_spill(root, name, file.bytes, file.size);
        free(file.bytes);
    }
    OK(read_files(&r, b, err));
    pal_state_free(a);
    pal_state_free(b);
    close_reader(&r);
}

static void files_of_another_model_or_type_or_too_long_are_refused(void **state) {
    (void)state;
    reader r = open_reader(attending()), other = open_reader(0), half = open_reader(attending());
    pal_state *a = read_tokens(&r, 2 * PAGE + 3), *small;
    pal_kept kept;
    pal_kept_pages pages;
    pal_page *page;
    pal_error why;
    write_files(&r, a);
    assert_int_equal(pal_kept_open(&kept, other.model, kept_path, &why), PAL_E_ARGUMENT);
    assert_non_null(strstr(why.text, "of another model"));
    OK(pal_model_keep_as(half.model, PAL_F16, err));
    assert_int_equal(pal_kept_open(&kept, half.model, kept_path, &why), PAL_E_ARGUMENT);
    assert_non_null(strstr(why.text, "keys and values are F32, this model keeps them as F16"));
    assert_int_equal(pal_kept_open_pages(&pages, half.model, pages_path, &why), PAL_E_ARGUMENT);
    OK(pal_kept_open_pages(&pages, r.model, pages_path, err));
    assert_int_equal(pal_kept_read_page(&page, &pages, r.model, 2, pages_path, &why), PAL_E_FORMAT);
    assert_non_null(strstr(why.text, "page 2 is missing, the file has 2"));
    pal_kept_close_pages(&pages);
    OK(pal_state_new(&small, r.model, PAGE, err));
    assert_int_equal(read_files(&r, small, &why), PAL_E_ARGUMENT);
    assert_non_null(strstr(why.text, "a kept prompt of 131 tokens, but the state holds 64"));
    pal_state_free(small);
    pal_state_free(a);
    close_reader(&r);
    close_reader(&other);
    close_reader(&half);
}

static int begin(void **state) {
    (void)state;
    cx = test_context(2, NULL);
    test_directory(root);
    test_join(kept_path, root, "kept");
    test_join(pages_path, root, "pages");
    return 0;
}
static int end(void **state) {
    (void)state;
    test_remove(root);
    pal_context_free(cx);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_kept_continues_as_if_it_had_never_stopped),
        cmocka_unit_test(damaged_files_are_refused_and_change_nothing),
        cmocka_unit_test(files_of_another_model_or_type_or_too_long_are_refused),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
