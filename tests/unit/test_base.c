/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "base/directory.h"
#include "base/half.h"
#include "base/io.h"
#include "base/log.h"
#include "base/map.h"
#include "base/math.h"
#include "base/parallel.h"
#include "base/processors.h"
#include "base/size.h"
#include "support/files.h"

static void arena_places_what_it_measured(void **state) {
    (void)state;
    pal_arena arena = { 0 };
    pal_error err;
    assert_null(pal_take(&arena, 3, 4));
    assert_null(pal_take(&arena, 100, 8));
    assert_int_equal(arena.used, 64 + 800);
    assert_int_equal(pal_arena_reserve(&arena, "test", &err), PAL_OK);
    char *first = pal_take(&arena, 3, 4), *second = pal_take(&arena, 100, 8);
    assert_int_equal(second - first, 64);
    assert_int_equal((uintptr_t)first % 64, 0);
    assert_null(pal_take(&arena, 1, 1));
    assert_true(arena.bad);
    pal_arena_release(&arena);
}

static void arena_refuses_overflow(void **state) {
    (void)state;
    pal_arena arena = { 0 };
    pal_error err;
    pal_take(&arena, SIZE_MAX / 2, 4);
    assert_true(arena.bad);
    assert_int_equal(pal_arena_reserve(&arena, "a test", &err), PAL_E_MEMORY);
    assert_non_null(strstr(err.text, "a test"));
}

static void sizes_from_files_never_wrap_around(void **state) {
    (void)state;
    const size_t half = SIZE_MAX / 2 + 1;
    assert_true(pal_size_add(3, 4) == 7);
    assert_true(pal_size_add(SIZE_MAX - 4, 3) == SIZE_MAX - 1);
    assert_true(pal_size_add(SIZE_MAX - 4, 5) == PAL_TOO_LARGE);
    assert_true(pal_size_add(half, half) == PAL_TOO_LARGE);
    assert_true(pal_size_add(PAL_TOO_LARGE, 1) == PAL_TOO_LARGE);

    assert_true(pal_size_mul(6, 7) == 42);
    assert_true(pal_size_mul(0, 7) == 0 && pal_size_mul(7, 0) == 0);
    assert_true(pal_size_mul(half / 2, 2) == half && pal_size_mul(2, half / 2) == half);
    assert_true(pal_size_mul(half, 2) == PAL_TOO_LARGE && pal_size_mul(2, half) == PAL_TOO_LARGE);
    assert_true(pal_size_mul(PAL_TOO_LARGE, 0) == PAL_TOO_LARGE && pal_size_mul(0, PAL_TOO_LARGE) == PAL_TOO_LARGE);

    assert_true(pal_size_pad(0, 32) == 0 && pal_size_pad(1, 32) == 32 && pal_size_pad(32, 32) == 32);
    assert_true(pal_size_pad(SIZE_MAX - 32, 32) == SIZE_MAX - 31);
    assert_true(pal_size_pad(SIZE_MAX - 30, 32) == PAL_TOO_LARGE && pal_size_pad(PAL_TOO_LARGE, 8) == PAL_TOO_LARGE);

    assert_true(pal_size_of_shape(0, NULL) == 1);
    assert_true(pal_size_of_shape(3, (int64_t[]){ 2, 3, 4 }) == 24);
    assert_true(pal_size_of_shape(2, (int64_t[]){ 0, INT64_MAX }) == 0);
    assert_true(pal_size_of_shape(2, (int64_t[]){ 5, -1 }) == PAL_TOO_LARGE);
    assert_true(pal_size_of_shape(3, (int64_t[]){ -1, 0, 2 }) == PAL_TOO_LARGE);
    assert_true(pal_size_of_shape(3, (int64_t[]){ INT64_MAX, INT64_MAX, 0 }) == PAL_TOO_LARGE);

    assert_true(pal_size_inside(0, 10, 10) && pal_size_inside(10, 0, 10) && pal_size_inside(4, 6, 10));
    assert_false(pal_size_inside(4, 7, 10) || pal_size_inside(11, 0, 10));
    assert_false(pal_size_inside(UINT64_MAX, 2, 10) || pal_size_inside(2, UINT64_MAX, 10));

    assert_true(pal_count_of(3.9) == 3 && pal_count_of(0) == 0 && pal_count_of(-0.5) == 0);
    assert_true(pal_count_of(INT_MAX - 1) == INT_MAX - 1 && pal_count_of(INT_MAX) == PAL_TOO_MANY);
    assert_true(pal_count_of(-1) == PAL_TOO_MANY && pal_count_of(1e300) == PAL_TOO_MANY);
    assert_true(pal_count_of(-1e300) == PAL_TOO_MANY && pal_count_of(INFINITY) == PAL_TOO_MANY);
    assert_true(pal_count_of(NAN) == PAL_TOO_MANY);
}

static void allocations_are_counted_and_can_fail(void **state) {
    (void)state;
    const uint64_t before = pal_alloc_count();
    void *block = pal_alloc(10, 10);
    assert_non_null(block);
    assert_int_equal((uintptr_t)block % 64, 0);
    pal_free(block);
    assert_int_equal(pal_alloc_count() - before, 1);
    pal_alloc_fail_at(2);
    block = pal_alloc(1, 1);
    assert_non_null(block);
    pal_free(block);
    assert_null(pal_alloc(1, 1));
    assert_null(pal_alloc(1, 1));
    pal_alloc_fail_at(0);
    assert_null(pal_alloc(SIZE_MAX / 2, 3));
}

static void philox_matches_published_vectors(void **state) {
    (void)state;
    uint32_t out[4];
    pal_random_block(0, 0, 0, out);
    const uint32_t zeros[4] = { 0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u };
    assert_memory_equal(out, zeros, sizeof zeros);
    pal_random_block(UINT64_MAX, UINT64_MAX, UINT64_MAX, out);
    const uint32_t ones[4] = { 0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu };
    assert_memory_equal(out, ones, sizeof ones);
}

static void random_fill_has_the_right_moments(void **state) {
    (void)state;
    enum { N = 200000 };
    pal_context *cx = test_context(2, NULL);
    float *x = pal_alloc(N, sizeof *x);
    double mean = 0, square = 0, fourth = 0;
    pal_fill_normal(cx, x, N, 7, 1, 0.5);
    for (int i = 0; i < N; i++) {
        const double v = (double)x[i] / 0.5;
        mean += v / N, square += v * v / N, fourth += v * v * v * v / N;
    }
    assert_true(fabs(mean) < 0.01 && fabs(square - 1) < 0.02 && fabs(fourth - 3) < 0.12);
    mean = square = 0;
    pal_fill_uniform(cx, x, N, 7, 2, 1.0, 3.0);
    for (int i = 0; i < N; i++) {
        assert_true(x[i] >= 1.0f && x[i] <= 3.0f);
        mean += (double)x[i] / N, square += ((double)x[i] - 2) * ((double)x[i] - 2) / N;
    }
    assert_true(fabs(mean - 2) < 0.01 && fabs(square - 1.0 / 3) < 0.01);
    pal_free(x);
    pal_context_free(cx);
}

static void random_fill_is_the_same_for_any_thread_count(void **state) {
    (void)state;
    enum { N = 10001 };
    float *one = pal_alloc(N, sizeof *one), *many = pal_alloc(N, sizeof *many);
    for (int threads = 1; threads <= 7; threads += 2) {
        pal_context *cx = test_context(threads, NULL);
        pal_fill_normal(cx, threads == 1 ? one : many, N, 3, 9, 1.0);
        pal_context_free(cx);
        if (threads > 1) test_same_bits("normal numbers", many, one, N);
    }
    pal_free(one);
    pal_free(many);
}

static void below_is_uniform(void **state) {
    (void)state;
    int counts[7] = { 0 };
    pal_rng rng = pal_rng_at(1, 2);
    for (int i = 0; i < 70000; i++) counts[pal_rng_below(&rng, 7)]++;
    for (int i = 0; i < 7; i++) assert_in_range(counts[i], 9600, 10400);
}

static void count_task(void *arg, size_t index, int thread) {
    (void)thread;
    ((int *)arg)[index]++;
}

static void parallel_runs_every_item_once(void **state) {
    (void)state;
    for (int threads = 1; threads <= 3; threads++) {
        pal_context *cx = test_context(threads, NULL);
        int seen[100] = { 0 };
        pal_parallel_for(cx, 100, count_task, seen);
        for (int i = 0; i < 100; i++) assert_int_equal(seen[i], 1);
        pal_context_free(cx);
    }
}

/* Without care it would wait for threads that the fork did not copy. */
static void forked_child_works_on_one_thread(void **state) {
    (void)state;
    pal_context *cx = test_context(3, NULL);
    int seen[100] = { 0 }, status = -1;
    pal_parallel_for(cx, 100, count_task, seen);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(20);
        pal_parallel_for(cx, 100, count_task, seen);
        int wrong = pal_threads(cx) != 1;
        for (int i = 0; i < 100; i++) wrong |= seen[i] != 2;
        _exit(wrong);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(pal_threads(cx), 3);
    pal_context_free(cx);
}

/* A task that notes the thread it runs on, and hands on to another context. */
typedef struct {
    const pal_context *inner;
    int threads[64], nested[64];
} thread_notes;
static void note_nested(void *arg, size_t index, int thread) {
    (void)index;
    *(int *)arg = thread;
}
static void note_thread(void *arg, size_t index, int thread) {
    thread_notes *notes = arg;
    notes->threads[index] = thread;
    pal_parallel_for(notes->inner, 1, note_nested, &notes->nested[index]);
}

static void threads_are_numbered_within_their_context(void **state) {
    (void)state;
    pal_context *one = test_context(1, NULL), *four = test_context(4, NULL);
    int told[4] = { -1, -1, -1, -1 }; /* in a region of the caller's own, a context of one thread has thread 0 only */
#pragma omp parallel for num_threads(4) schedule(static, 1)
    for (int i = 0; i < 4; i++) pal_parallel_for(one, 1, note_nested, &told[i]);
    for (int i = 0; i < 4; i++) assert_int_equal(told[i], 0);

    thread_notes same = { .inner = four }, other = { .inner = one };
    pal_parallel_for(four, 64, note_thread, &same);
    pal_parallel_for(four, 64, note_thread, &other);
    for (int i = 0; i < 64; i++) {
        assert_in_range(same.threads[i], 0, 3);
        assert_int_equal(same.nested[i], same.threads[i]);
        assert_int_equal(other.nested[i], 0);
    }
    pal_context_free(one);
    pal_context_free(four);
}

static void put(const char *folder, const char *name, const char *text) {
    char path[TEST_PATH + 32];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    test_write_text(path, text);
}

static void a_containers_limit_counts_as_processors(void **state) {
    (void)state;
    char folder[256], list[TEST_PATH], inner[TEST_PATH];
    test_directory(folder);
    snprintf(list, sizeof list, "%s/list", folder);
    snprintf(inner, sizeof inner, "%s/a", folder);
    assert_int_equal(mkdir(inner, 0700), 0);
    assert_int_equal(pal_processors_granted(list, folder), 0); /* no such file */
    put(folder, "list", "0::/a/b\n");
    assert_int_equal(pal_processors_granted(list, folder), 0);
    put(folder, "cpu.max", "max 100000\n");
    assert_int_equal(pal_processors_granted(list, folder), 0);
    put(folder, "cpu.max", "300000 100000\n");
    assert_int_equal(pal_processors_granted(list, folder), 3);
    put(inner, "cpu.max", "150000 100000\n"); /* the strictest counts, rounded up */
    assert_int_equal(pal_processors_granted(list, folder), 2);
    put(inner, "cpu.max", "-7 0\n");
    put(folder, "cpu.max", "nonsense\n");
    assert_int_equal(pal_processors_granted(list, folder), 0);
    put(folder, "list", "3:memory:/\n4:cpu,cpuacct:/\n"); /* first generation */
    snprintf(inner, sizeof inner, "%s/cpu", folder);
    assert_int_equal(mkdir(inner, 0700), 0);
    put(inner, "cpu.cfs_quota_us", "-1\n");
    put(inner, "cpu.cfs_period_us", "50000\n");
    assert_int_equal(pal_processors_granted(list, folder), 0);
    put(inner, "cpu.cfs_quota_us", "50000\n");
    assert_int_equal(pal_processors_granted(list, folder), 1);
    put(folder, "list", "4:cpuacct,cpu:/\n");
    assert_int_equal(pal_processors_granted(list, folder), 1);
    put(folder, "list", "5:cpuset:/\n6:cpuacct:/\n"); /* other controllers: their groups are not those of time */
    assert_int_equal(pal_processors_granted(list, folder), 0);
    assert_true(pal_processors() >= 1);
    test_remove(folder);
}

static void context_refuses_what_it_cannot_do(void **state) {
    (void)state;
    pal_context *cx;
    pal_error err;
    assert_int_equal(pal_context_new(&cx, -1, NULL, &err), PAL_E_ARGUMENT);
    assert_int_equal(pal_context_new(&cx, 1, "sse9", &err), PAL_E_ARGUMENT);
    assert_non_null(strstr(err.text, "sse9"));
    for (pal_cpu_level level = 0; level < PAL_CPU_LEVELS; level++)
        if (!pal_cpu_runs(level))
            assert_int_equal(pal_context_new(&cx, 1, pal_cpu_level_name(level), &err), PAL_E_UNSUPPORTED);
    assert_false(pal_cpu_runs(PAL_CPU_NEON) && pal_cpu_runs(PAL_CPU_AVX2));
    setenv("PALIMPSA_THREADS", "many", 1);
    assert_int_equal(pal_context_new(&cx, 0, NULL, &err), PAL_E_ARGUMENT);
    setenv("PALIMPSA_THREADS", "3", 1);
    setenv("PALIMPSA_CPU", "ref", 1);
    assert_int_equal(pal_context_new(&cx, 0, NULL, &err), PAL_OK);
    assert_int_equal(pal_context_threads(cx), 3);
    assert_int_equal(pal_context_level(cx), PAL_CPU_REF);
    assert_int_equal(pal_context_features(cx), 0);
    pal_context_free(cx);
    unsetenv("PALIMPSA_THREADS");
    unsetenv("PALIMPSA_CPU");
}

static void variants_are_chosen_by_the_features_they_need(void **state) {
    (void)state;
    static const pal_variant list[] = { { 0, (pal_fn *)1 },
                                        { PAL_NEEDS_avx2, (pal_fn *)2 },
                                        { PAL_NEEDS_avx512, (pal_fn *)3 },
                                        { PAL_NEEDS_avx512vnni, (pal_fn *)4 },
                                        PAL_VARIANTS_END };
    assert_true(pal_variant_best(list, 0) == (pal_fn *)1);
    assert_true(pal_variant_best(list, PAL_HAS_AVX2) == (pal_fn *)1); /* without F16C */
    assert_true(pal_variant_best(list, PAL_NEEDS_avx2 | PAL_HAS_AVX512_VNNI) == (pal_fn *)2);
    assert_true(pal_variant_best(list, PAL_NEEDS_avx512) == (pal_fn *)3);
    assert_true(pal_variant_best(list, ~0u) == (pal_fn *)4);
    const unsigned found = pal_cpu_features();
    for (TEST_LEVELS(level)) {
        pal_context *cx = test_context(1, pal_cpu_level_name(level));
        const unsigned used = pal_context_features(cx);
        assert_int_equal(used & ~found, 0);
        assert_int_equal(used & (PAL_HAS_AVX_VNNI | PAL_HAS_AVX512_BF16), 0);
        assert_true((used & (PAL_HAS_AVX2 | PAL_HAS_NEON)) != 0 || level == PAL_CPU_REF);
        assert_true(!(used & PAL_HAS_AVX512) == (level != PAL_CPU_AVX512));
        assert_true(!(used & PAL_HAS_NEON) == (level != PAL_CPU_NEON));
        pal_context_free(cx);
    }
}

static void paths_fit_or_are_refused(void **state) {
    (void)state;
    char path[8];
    pal_error err;
    assert_int_equal(pal_path(path, sizeof path, &err, "%s/%d", "abcd", 12), PAL_OK);
    assert_string_equal(path, "abcd/12");
    assert_int_equal(pal_path(path, sizeof path, &err, "%s/%d", "abcd", 123), PAL_E_ARGUMENT);
    assert_non_null(strstr(err.text, "abcd/12...: the path is too long (8 bytes)"));
}

static void a_pipe_is_refused_and_not_waited_for(void **state) {
    (void)state;
    char folder[256], path[300];
    pal_map map;
    pal_error err;
    test_directory(folder);
    snprintf(path, sizeof path, "%s/pipe", folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    alarm(20);
    assert_int_equal(pal_map_open(&map, path, &err), PAL_E_IO);
    alarm(0);
    assert_non_null(strstr(err.text, "not a regular file"));
    unlink(path);
    rmdir(folder);
}

static void a_write_that_failed_early_is_told_at_commit(void **state) {
    (void)state;
    char folder[256], path[300];
    pal_writer w;
    pal_error err;
    test_directory(folder);
    snprintf(path, sizeof path, "%s/file", folder);
    assert_int_equal(pal_writer_open(&w, path, &err), PAL_OK);
    const int full = open("/dev/full", O_WRONLY);
    assert_true(full >= 0 && dup2(full, w.file->fd) >= 0);
    close(full);
    fputs("lost", w.stream);
    assert_int_not_equal(fflush(w.stream), 0);
    errno = 0;
    assert_int_equal(pal_writer_commit(&w, &err), PAL_E_IO);
    assert_non_null(strstr(err.text, "No space left on device"));
    assert_int_equal(rmdir(folder), 0); /* nothing left over */
}

/* Another program wrote the target in the meantime: a writer of new files leaves it as it is. */
static void a_fresh_file_replaces_none(void **state) {
    (void)state;
    char folder[256], path[300];
    pal_error err;
    test_directory(folder);
    snprintf(path, sizeof path, "%s/file", folder);
    for (int taken = 0; taken < 2; taken++) {
        pal_writer w;
        assert_int_equal(pal_writer_open(&w, path, &err), PAL_OK);
        w.fresh = true;
        fputs("ours", w.stream);
        if (taken) test_write_text(path, "theirs");
        assert_int_equal(pal_writer_commit(&w, &err), taken ? PAL_E_ARGUMENT : PAL_OK);
        size_t size;
        char *text = (char *)test_read_file(path, &size);
        assert_string_equal(text, taken ? "theirs" : "ours");
        free(text);
        unlink(path);
    }
    assert_non_null(strstr(err.text, "exists already; nothing is overwritten"));
    assert_int_equal(rmdir(folder), 0); /* nothing left over */
}

static void only_ordinary_files_are_replaced(void **state) {
    (void)state;
    char folder[256], path[300];
    pal_writer w;
    pal_error err;
    struct stat info;
    test_directory(folder);
    snprintf(path, sizeof path, "%s/pipe",
             folder); /* stands for /dev/null and its like, which a rename would take away */
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(pal_writer_open(&w, path, &err), PAL_E_IO);
    assert_non_null(strstr(err.text, path));
    assert_true(stat(path, &info) == 0 && S_ISFIFO(info.st_mode));
    assert_int_equal(pal_writer_open(&w, folder, &err), PAL_E_IO);
    unlink(path);
    assert_int_equal(rmdir(folder), 0);
}

static void written_files_get_the_ordinary_mode(void **state) {
    (void)state;
    char folder[256], path[300];
    pal_writer w;
    pal_error err;
    struct stat info;
    test_directory(folder);
    snprintf(path, sizeof path, "%s/file", folder);
    const mode_t before = umask(027);
    assert_int_equal(pal_writer_open(&w, path, &err), PAL_OK);
    assert_int_equal(pal_writer_commit(&w, &err), PAL_OK);
    umask(before);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0640);
    unlink(path);
    assert_int_equal(rmdir(folder), 0);
}

static void scalar_functions_hold_at_the_ends(void **state) {
    (void)state;
    assert_true(pal_softplus(100.0f) == 100.0f && pal_softplus(-100.0f) > 0 && pal_softplus(1e30f) == 1e30f);
    assert_true(pal_sigmoid(-200.0f) >= 0 && pal_sigmoid(200.0f) == 1.0f && pal_sigmoid(0.0f) == 0.5f);
    for (double y = 1e-6; y < 50; y *= 3)
        assert_true(fabs((double)pal_softplus((float)pal_softplus_inverse(y)) / y - 1) < 1e-5);
}

static void half_conversions_are_exact_and_round_to_even(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        const float f = pal_f16_to_f32((uint16_t)h), b = pal_bf16_to_f32((uint16_t)h);
        if (isnan(f)) assert_true(isnan(pal_f16_to_f32(pal_f32_to_f16(f))));
        else assert_int_equal(pal_f32_to_f16(f), h);
        if (isnan(b)) assert_true(isnan(pal_bf16_to_f32(pal_f32_to_bf16(b))));
        else assert_int_equal(pal_f32_to_bf16(b), h);
    }
    assert_int_equal(pal_f32_to_f16(1.0f + 0x1p-11f), 0x3c00); /* tie: to even */
    assert_int_equal(pal_f32_to_f16(1.0f + 0x3p-11f), 0x3c02);
    assert_int_equal(pal_f32_to_f16(65520.0f), 0x7c00);
    assert_int_equal(pal_f32_to_f16(65519.0f), 0x7bff);
    assert_int_equal(pal_f32_to_f16(0x1p-25f), 0);
    assert_int_equal(pal_f32_to_f16(0x1.8p-25f), 1);
    assert_int_equal(pal_f32_to_bf16(1.0f + 0x1p-8f), 0x3f80);
    assert_int_equal(pal_f32_to_bf16(1.0f + 0x3p-8f), 0x3f82);
}

static void take_warning(void *user, const char *text) { snprintf(user, 64, "%s", text); }

static void sentences_hold_no_control_characters(void **state) {
    (void)state;
    pal_error err;
    char said[64] = "";
    pal_fail(&err, PAL_E_FORMAT, "tensor '%s'", "a\x1b[2J\nb\x7f\xc3\xa9");
    assert_string_equal(err.text, "tensor 'a?[2J?b?\xc3\xa9'");
    pal_log_listen(take_warning, said);
    pal_warn("tensor '%s'", "a\r\nb");
    pal_log_listen(NULL, NULL);
    assert_string_equal(said, "tensor 'a??b'");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sentences_hold_no_control_characters),
        cmocka_unit_test(arena_places_what_it_measured),
        cmocka_unit_test(arena_refuses_overflow),
        cmocka_unit_test(sizes_from_files_never_wrap_around),
        cmocka_unit_test(allocations_are_counted_and_can_fail),
        cmocka_unit_test(philox_matches_published_vectors),
        cmocka_unit_test(random_fill_has_the_right_moments),
        cmocka_unit_test(random_fill_is_the_same_for_any_thread_count),
        cmocka_unit_test(below_is_uniform),
        cmocka_unit_test(parallel_runs_every_item_once),
        cmocka_unit_test(forked_child_works_on_one_thread),
        cmocka_unit_test(threads_are_numbered_within_their_context),
        cmocka_unit_test(a_containers_limit_counts_as_processors),
        cmocka_unit_test(context_refuses_what_it_cannot_do),
        cmocka_unit_test(variants_are_chosen_by_the_features_they_need),
        cmocka_unit_test(paths_fit_or_are_refused),
        cmocka_unit_test(a_pipe_is_refused_and_not_waited_for),
        cmocka_unit_test(a_write_that_failed_early_is_told_at_commit),
        cmocka_unit_test(a_fresh_file_replaces_none),
        cmocka_unit_test(only_ordinary_files_are_replaced),
        cmocka_unit_test(written_files_get_the_ordinary_mode),
        cmocka_unit_test(scalar_functions_hold_at_the_ends),
        cmocka_unit_test(half_conversions_are_exact_and_round_to_even),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
