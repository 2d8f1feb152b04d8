/* SPDX-License-Identifier: MIT */
/* Every recorded building-block case, through the program's own runner, at every CPU level and with several threads; and
 * the same cases damaged, which must end in a sentence. */
#include <dirent.h>
#include <math.h>
#include <unistd.h>

#include "../../cli/selftest_prims.c" /* the program is not a library; this is its runner */
#include "support/support.h"

typedef struct {
    int checked;
    double worst_out, worst_grad;
} tally;

static void compare(selftest_case *c, const char *name, const float *value, size_t count) {
    tally *t = c->user;
    const pal_tensor *expected = pal_safetensors_find(c->file, name);
    if (!expected) return;
    if (expected->count != count || expected->dtype != PAL_F64) fail_msg("%s: %s has %zu elements, computed %zu", c->path, name, expected->count, count);
    double *copy = pal_alloc(count, sizeof *copy);
    memcpy(copy, expected->data, count * sizeof *copy);
    const double error = test_nmax_f64(value, copy, count), accept = strncmp(name, "grad.", 5) == 0 ? 5e-6 : 2e-6;
    pal_free(copy);
    if (!(error <= accept)) fail_msg("%s: %s: error %.3g, accepted %.3g", c->path, name, error, accept);
    double *worst = accept > 2e-6 ? &t->worst_grad : &t->worst_out;
    *worst = fmax(*worst, error);
    t->checked++;
}

static void ignore(selftest_case *c, const char *name, const float *value, size_t count) {
    (void)c, (void)name, (void)value, (void)count;
}

static selftest_case opened(pal_context *cx, const char *path, pal_safetensors **file) {
    pal_error err;
    if (pal_safetensors_open(file, path, &err)) fail_msg("%s", err.text);
    return (selftest_case){ .cx = cx, .path = path, .op = pal_safetensors_metadata(*file, "op"), .file = *file };
}

/* Calls visit for each prim_*.safetensors; returns how many there are. */
static int each_case(void (*visit)(const char *path, void *arg), void *arg) {
    DIR *dir = opendir(PAL_TEST_GOLDEN "/ops");
    assert_non_null(dir);
    int found = 0;
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (strncmp(entry->d_name, "prim_", 5) != 0) continue;
        char path[1024];
        snprintf(path, sizeof path, "%s/ops/%s", PAL_TEST_GOLDEN, entry->d_name);
        visit(path, arg);
        found++;
    }
    closedir(dir);
    return found;
}

typedef struct {
    pal_context *cx;
    tally tally;
} golden_run;

static void run_case(const char *path, void *arg) {
    golden_run *run = arg;
    pal_safetensors *file;
    selftest_case c = opened(run->cx, path, &file);
    c.check = compare;
    c.user = &run->tally;
    const int before = run->tally.checked;
    assert_int_equal(selftest_prim(&c), 1);
    if (c.status == PAL_E_UNSUPPORTED) {
        assert_null(pal_memory_find("attention"));
        assert_non_null(strstr(path, "attention"));
    } else {
        if (c.status) fail_msg("%s", c.error.text);
        int expected = 0; /* every out.* and grad.* of the file must have been computed */
        for (size_t i = 0; i < pal_safetensors_count(file); i++) {
            const char *name = pal_safetensors_at(file, i)->name;
            expected += strncmp(name, "out.", 4) == 0 || strncmp(name, "grad.", 5) == 0;
        }
        assert_int_equal(run->tally.checked - before, expected);
    }
    pal_safetensors_close(file);
}

static void building_blocks_match_golden(void **state) {
    (void)state;
    for (TEST_LEVELS(level))
        for (int threads = 1; threads <= 3; threads += 2) {
            golden_run run = { .cx = test_context(threads, pal_cpu_level_name(level)) };
            assert_true(each_case(run_case, &run) >= 17);
            print_message("%s, %d threads: %d tensors, worst out %.2g, worst grad %.2g\n", pal_cpu_level_name(level), threads,
                          run.tally.checked, run.tally.worst_out, run.tally.worst_grad);
            pal_context_free(run.cx);
        }
}

/* Leaves out one tensor at a time, then gives one tensor at a time another shape, then drops the metadata. */
static void run_damaged(const char *path, void *arg) {
    golden_run *run = arg;
    pal_safetensors *file;
    pal_error err;
    selftest_case c = opened(run->cx, path, &file);
    char op[64];
    snprintf(op, sizeof op, "%s", c.op);
    const size_t count = pal_safetensors_count(file);
    pal_tensor *tensors = pal_alloc(count, sizeof *tensors);
    const char *const only_op[] = { "op", op, NULL };
    const char *const all[] = { "op", op, "eps", "1e-5", "groups", "1", "theta", "10000", "betas", "[0.9, 0.95]", "weight_decay", "0.1", "clip", "1", NULL };
    char damaged[] = "palimpsa_damaged_XXXXXX";
    const int fd = mkstemp(damaged);
    assert_true(fd >= 0);
    close(fd);
    for (size_t drop = 0; drop <= 2 * count; drop++) {
        size_t n = 0;
        const char *victim = NULL;
        for (size_t i = 0; i < count; i++) {
            const pal_tensor *t = pal_safetensors_at(file, i);
            if (i == drop) {
                victim = t->name;
                continue;
            }
            tensors[n] = *t;
            if (i + count == drop && t->rank > 0) { /* one row (or number) less */
                victim = t->name;
                const size_t inner = t->count / (size_t)t->shape[0];
                tensors[n].shape[0]--;
                tensors[n].count -= inner;
            }
            n++;
        }
        if (pal_safetensors_write(damaged, tensors, n, drop == 2 * count ? only_op : all, &err)) fail_msg("%s", err.text);
        pal_safetensors *bad;
        selftest_case b = opened(run->cx, damaged, &bad);
        b.check = ignore;
        assert_int_equal(selftest_prim(&b), 1);
        if (b.status) {
            assert_non_null(strstr(b.error.text, damaged));
            run->tally.checked++;
        } else if (victim && strncmp(victim, "in.", 3) == 0 && drop < count && !strstr(victim, "in.d") && strcmp(victim, "in.k") != 0 &&
                   strcmp(victim, "in.b") != 0 && strcmp(victim, "in.cu_seqlens") != 0 && victim[3] != 'p') {
            fail_msg("%s: ran without %s", path, victim);
        }
        pal_safetensors_close(bad);
    }
    remove(damaged);
    pal_free(tensors);
    pal_safetensors_close(file);
}

static void damaged_cases_end_in_a_sentence(void **state) {
    (void)state;
    golden_run run = { .cx = test_context(1, NULL) };
    each_case(run_damaged, &run);
    assert_true(run.tally.checked > 50);
    pal_context_free(run.cx);
}

static void unknown_words_are_not_ours(void **state) {
    (void)state;
    selftest_case c = { .op = "palimpsa" };
    assert_int_equal(selftest_prim(&c), 0);
    c.op = "rmsnormal";
    assert_int_equal(selftest_prim(&c), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(building_blocks_match_golden),
        cmocka_unit_test(damaged_cases_end_in_a_sentence),
        cmocka_unit_test(unknown_words_are_not_ours),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
