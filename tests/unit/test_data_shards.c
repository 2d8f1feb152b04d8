/* SPDX-License-Identifier: MIT */
/* Reading shards: damage is refused, parts are kept apart, and rows for training show every token once an epoch. */
#include <unistd.h>

#include "data/loader.h"
#include "data/permutation.h"
#include "support/shards.h"

static void permutation_is_a_bijection(void **state) {
    (void)state;
    static unsigned char seen[5000];
    for (uint64_t n = 1; n < 5000; n += n < 70 ? 1 : 617) {
        int moved = 0;
        memset(seen, 0, sizeof seen);
        for (uint64_t i = 0; i < n; i++) {
            const uint64_t j = pal_permute(i, n, n * 7919);
            assert_true(j < n && !seen[j]);
            seen[j] = 1;
            moved += i != j;
        }
        if (n > 20) assert_true(moved > (int)n / 2);
    }
    /* Far beyond any table, and different under another key. */
    const uint64_t huge = ((uint64_t)1 << 40) + 12345;
    int same = 0;
    for (uint64_t i = 0; i < 100; i++) {
        assert_true(pal_permute(i, huge, 1) < huge);
        same += pal_permute(i, huge, 1) == pal_permute(i, huge, 2);
    }
    assert_true(same < 3);
}

static void damaged_shards_are_refused(void **state) {
    (void)state;
    static const uint64_t lengths[] = { 5, 1, 17, 3, 9 };
    pal_shards_close(test_shards("damaged", lengths, 5, 3, 0.2));
    char path[TEST_PATH], set[TEST_PATH];
    strcpy(set, in_folder("damaged"));
    static const char *const names[] = { "damaged/00000.shard", "damaged/00001.shard" };
    pal_shards *s;
    pal_error err;
    for (int n = 0; n < 2; n++) {
        strcpy(path, in_folder(names[n]));
        size_t whole;
        unsigned char *good = test_read_file(path, &whole);
        for (size_t size = 0; size < whole; size++) {
            test_write_file(path, good, size);
            if (pal_shards_open(&s, set, &err) == PAL_OK)
                fail_msg("%s was taken when cut to %zu bytes", names[n], size);
        }
        for (size_t bit = 0; bit < 8 * whole; bit++) {
            good[bit / 8] ^= (unsigned char)(1u << bit % 8);
            test_write_file(path, good, whole);
            good[bit / 8] ^= (unsigned char)(1u << bit % 8);
            if (pal_shards_open(&s, set, &err)) continue;
            if (bit / 8 < 128 || pal_shards_verify(s, &err) == PAL_OK)
                fail_msg("%s was taken with bit %zu turned", names[n], bit);
            pal_shards_close(s);
        }
        test_write_file(path, good, whole + 1); /* with the zero byte after it */
        assert_int_equal(pal_shards_open(&s, set, &err), PAL_E_FORMAT);
        test_write_file(path, good, whole);
        pal_shards_close(test_shards_open(set));
        free(good);
    }
    /* The list itself: cut, or with numbers that do not fit. */
    strcpy(path, in_folder("damaged/shards.json"));
    size_t listed;
    unsigned char *list = test_read_file(path, &listed);
    for (size_t size = 0; size + 2 < listed; size++) {
        test_write_file(path, list, size);
        assert_int_not_equal(pal_shards_open(&s, set, &err), PAL_OK);
    }
    for (size_t i = 0; i < listed; i++) {
        if (list[i] < '0' || list[i] > '9') continue;
        const unsigned char digit = list[i];
        list[i] = digit == '9' ? '1' : (unsigned char)(digit + 1);
        test_write_file(path, list, listed);
        if (pal_shards_open(&s, set, &err) == PAL_OK) { /* a count that nothing depends on */
            const pal_shards_info *info = pal_shards_info_of(s);
            for (int subset = 0; subset < PAL_SUBSETS; subset++)
                for (uint64_t d = 0; d < info->subset[subset].documents; d++) {
                    const pal_document doc = pal_shards_document(s, (pal_subset)subset, d);
                    volatile uint32_t last = pal_document_token(&doc, doc.tokens - 1);
                    (void)last;
                }
            pal_shards_close(s);
        }
        list[i] = digit;
    }
    test_write_file(path, list, listed);
    unlink(in_folder(names[1]));
    assert_int_equal(pal_shards_open(&s, set, &err), PAL_E_IO);
    free(list);
}

static uint64_t random_lengths(uint64_t *lengths, size_t n, uint64_t seed, uint32_t most) {
    pal_rng rng = pal_rng_at(seed, 9);
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) sum += lengths[i] = 1 + pal_rng_below(&rng, pal_rng_below(&rng, 4) ? 12 : most);
    return sum;
}

enum { DOCUMENTS = 300, MOST_ROW = 256 };

/* One epoch shows every token once, in sequences that never hold two documents and are at most `context` long; a target
 * is the next token of the document. */
static void rows_show_every_document_once_and_keep_them_apart(void **state) {
    (void)state;
    uint64_t lengths[DOCUMENTS];
    const uint64_t tokens = random_lengths(lengths, DOCUMENTS, 4, 90);
    pal_shards *s = test_shards("rows", lengths, DOCUMENTS, 60, 0);
    static const struct {
        int row, context, sequences;
        pal_order order;
    } cases[] = {
        { 64, 16, 0, PAL_ORDER_DOCUMENTS },  { 61, 16, 0, PAL_ORDER_SEQUENCES }, { 37, 0, 0, PAL_ORDER_STORED },
        { 200, 64, 5, PAL_ORDER_DOCUMENTS }, { 16, 16, 0, PAL_ORDER_SEQUENCES }, { 1, 1, 0, PAL_ORDER_SEQUENCES },
    };
    for (size_t c = 0; c < PAL_COUNT(cases); c++) {
        const pal_loader_options o = { .sources = 1,
                                       .source = { { s, PAL_SUBSET_ALL, 1 } },
                                       .row = cases[c].row,
                                       .context = cases[c].context,
                                       .sequences = cases[c].sequences,
                                       .order = cases[c].order,
                                       .seed = 7 };
        pal_loader *l;
        pal_error err;
        if (pal_loader_new(&l, &o, &err)) fail_msg("%s", err.text);
        assert_int_equal(pal_loader_tokens(l), tokens);
        for (int epoch = 0; epoch < 2; epoch++) {
            size_t histogram[256] = { 0 }, expected[256] = { 0 };
            uint64_t seen = 0, starts = 0;
            while (pal_loader_tell(l).of[0].tokens < tokens * (uint64_t)(epoch + 1)) {
                int32_t ids[MOST_ROW], targets[MOST_ROW];
                int ends[MOST_ROW];
                pal_row row;
                if (pal_loader_next(l, ids, targets, ends, &row, &err)) fail_msg("%s", err.text);
                assert_true(row.tokens >= 1 && row.tokens <= o.row && row.sequences >= 1 &&
                            ends[row.sequences - 1] == row.tokens);
                if (o.sequences) assert_true(row.sequences <= o.sequences);
                else if (o.order == PAL_ORDER_STORED) assert_int_equal(row.tokens, o.row);
                for (int n = 0, at = 0; n < row.sequences; at = ends[n++]) {
                    assert_true(ends[n] > at);
                    if (o.context) assert_true(ends[n] - at <= o.context);
                    starts++;
                    for (int t = at; t < ends[n]; t++) {
                        if (t + 1 < ends[n])
                            assert_int_equal((ids[t] + 7) % 256, ids[t + 1]); /* tokens of one document rise by 7 */
                        if (t + 1 < ends[n]) assert_int_equal(targets[t], ids[t + 1]);
                        else if (targets[t] != PAL_IGNORE &&
                                 targets[t] != (ids[t] + 7) % 256) /* else the next document's first */
                            assert_true(o.order != PAL_ORDER_SEQUENCES && n + 1 < row.sequences &&
                                        targets[t] == ids[t + 1]);
                    }
                }
                for (int t = 0; t < row.tokens && seen < tokens; t++, seen++) histogram[ids[t]]++;
                if (seen == tokens && o.order == PAL_ORDER_STORED) break;
            }
            if (o.order != PAL_ORDER_STORED && (o.row != 1 && epoch)) break; /* rows run across the end of an epoch */
            for (size_t d = 0; d < DOCUMENTS; d++)
                for (uint64_t i = 0; i < lengths[d]; i++) expected[(d * 31 + i * 7) % 256]++;
            assert_memory_equal(histogram, expected, sizeof expected);
            assert_true(starts >= DOCUMENTS);
            if (o.order == PAL_ORDER_STORED) break;
        }
        pal_loader_free(l);
    }
    pal_shards_close(s);
}

/* The tokens of two epochs, one after the other: the same ones, in another order each time, and in a different one by
 * another seed. */
static void every_epoch_is_shuffled_anew(void **state) {
    (void)state;
    enum { MOST_TOKENS = 20000 };
    uint64_t lengths[DOCUMENTS];
    const uint64_t tokens = random_lengths(lengths, DOCUMENTS, 5, 90);
    static int32_t seen[2][2 * MOST_TOKENS]; /* by seed */
    assert_true(tokens <= MOST_TOKENS);
    pal_shards *s = test_shards("epochs", lengths, DOCUMENTS, 60, 0);
    for (pal_order order = PAL_ORDER_DOCUMENTS; order <= PAL_ORDER_SEQUENCES; order++) {
        for (int seed = 0; seed < 2; seed++) {
            const pal_loader_options o = { .sources = 1,
                                           .source = { { s, PAL_SUBSET_ALL, 1 } },
                                           .row = 1,
                                           .context = 1,
                                           .order = order,
                                           .seed = 7 + (uint64_t)seed };
            pal_loader *l;
            pal_error err;
            if (pal_loader_new(&l, &o, &err)) fail_msg("%s", err.text);
            for (uint64_t i = 0; i < 2 * tokens; i++) {
                int32_t target;
                int end;
                pal_row row;
                if (pal_loader_next(l, &seen[seed][i], &target, &end, &row, &err)) fail_msg("%s", err.text);
            }
            pal_loader_free(l);
            assert_memory_not_equal(seen[seed], seen[seed] + tokens, (size_t)tokens * sizeof seen[0][0]);
        }
        assert_memory_not_equal(seen[0], seen[1], (size_t)tokens * sizeof seen[0][0]);
    }
    pal_shards_close(s);
}

static void rows_go_on_from_any_place(void **state) {
    (void)state;
    uint64_t lengths[DOCUMENTS];
    random_lengths(lengths, DOCUMENTS, 6, 200);
    pal_shards *a = test_shards("place-a", lengths, DOCUMENTS, 100, 0.1);
    random_lengths(lengths, DOCUMENTS, 7, 50);
    pal_shards *b = test_shards("place-b", lengths, DOCUMENTS / 2, 1000, 0);
    pal_rng rng = pal_rng_at(1, 2);
    for (int i = 0; i < test_cases(60, 1000); i++) {
        const pal_loader_options o = { .sources = 2,
                                       .source = { { a, PAL_SUBSET_TRAIN, 3 }, { b, PAL_SUBSET_TRAIN, 1 } },
                                       .row = 1 + (int)pal_rng_below(&rng, MOST_ROW - 1),
                                       .context = 1 + (int)pal_rng_below(&rng, 100),
                                       .order = (pal_order)pal_rng_below(&rng, 3),
                                       .seed = (uint64_t)i,
                                       .sequences = pal_rng_below(&rng, 2) ? 8 : 0 };
        pal_loader *straight, *resumed;
        pal_error err;
        if (pal_loader_new(&straight, &o, &err) || pal_loader_new(&resumed, &o, &err)) fail_msg("%s", err.text);
        int32_t ids[2][MOST_ROW], targets[2][MOST_ROW];
        int ends[2][MOST_ROW];
        pal_row row[2];
        for (uint32_t skip = pal_rng_below(&rng, 200); skip; skip--)
            if (pal_loader_next(straight, ids[0], targets[0], ends[0], &row[0], &err)) fail_msg("%s", err.text);
        const pal_loader_position place = pal_loader_tell(straight);
        if (pal_loader_seek(resumed, &place, &err)) fail_msg("%s", err.text);
        for (int r = 0; r < 30; r++) {
            if (pal_loader_next(straight, ids[0], targets[0], ends[0], &row[0], &err) ||
                pal_loader_next(resumed, ids[1], targets[1], ends[1], &row[1], &err))
                fail_msg("%s", err.text);
            assert_true(row[0].tokens == row[1].tokens && row[0].sequences == row[1].sequences &&
                        row[0].continues == row[1].continues);
            assert_memory_equal(ids[0], ids[1], (size_t)row[0].tokens * sizeof ids[0][0]);
            assert_memory_equal(targets[0], targets[1], (size_t)row[0].tokens * sizeof targets[0][0]);
            assert_memory_equal(ends[0], ends[1], (size_t)row[0].sequences * sizeof ends[0][0]);
        }
        /* Shares: three tokens of the first for one of the second, to within a document. */
        const pal_loader_position end = pal_loader_tell(straight);
        assert_true((double)end.of[0].tokens - 3 * (double)end.of[1].tokens < 800 &&
                    3 * (double)end.of[1].tokens - (double)end.of[0].tokens < 800);
        /* Places that do not exist. */
        pal_loader_position wrong = place;
        wrong.of[1].unit = 1000000;
        assert_int_equal(pal_loader_seek(resumed, &wrong, &err), PAL_E_FORMAT);
        wrong = place, wrong.source = 2;
        assert_int_equal(pal_loader_seek(resumed, &wrong, &err), PAL_E_FORMAT);
        pal_loader_free(straight), pal_loader_free(resumed);
    }
    pal_shards_close(a), pal_shards_close(b);
}

static void one_document_is_cut_for_validation(void **state) {
    (void)state;
    static const uint64_t length = 1000;
    pal_shards *s = test_shards("single", &length, 1, 1, 0.1);
    const pal_shards_info *info = pal_shards_info_of(s);
    assert_int_equal(info->subset[PAL_SUBSET_TRAIN].tokens, 900);
    assert_int_equal(info->subset[PAL_SUBSET_VALID].tokens, 100);
    assert_int_equal(info->subset[PAL_SUBSET_VALID].bytes, 100);
    const pal_document train = pal_shards_document(s, PAL_SUBSET_TRAIN, 0),
                       valid = pal_shards_document(s, PAL_SUBSET_VALID, 0),
                       all = pal_shards_document(s, PAL_SUBSET_ALL, 0);
    assert_true(train.tokens == 900 && valid.tokens == 100);
    assert_true(all.bytes == 1000 && train.bytes == 900 &&
                valid.bytes == 100); /* or perplexities per byte would be those of nothing */
    assert_int_equal(valid.words, info->subset[PAL_SUBSET_VALID].words);
    assert_int_equal(train.words, info->subset[PAL_SUBSET_TRAIN].words);
    for (uint64_t i = 0; i < 900; i++) assert_int_equal(pal_document_token(&train, i), pal_document_token(&all, i));
    for (uint64_t i = 0; i < 100; i++)
        assert_int_equal(pal_document_token(&valid, i), pal_document_token(&all, 900 + i));
    pal_shards_close(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(permutation_is_a_bijection),
        cmocka_unit_test(damaged_shards_are_refused),
        cmocka_unit_test(one_document_is_cut_for_validation),
        cmocka_unit_test(rows_show_every_document_once_and_keep_them_apart),
        cmocka_unit_test(every_epoch_is_shuffled_anew),
        cmocka_unit_test(rows_go_on_from_any_place),
    };
    return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
