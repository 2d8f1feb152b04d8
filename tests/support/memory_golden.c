/* SPDX-License-Identifier: MIT */
/* The recorded cases of the harness: reading one, running it in every way, and what error it may have. */
#include "support/memory_harness.h"

#include <dirent.h>

#include "base/alloc.h"

static const pal_tensor *tensor(const pal_safetensors *file, const char *format, const char *name) {
    char text[64];
    snprintf(text, sizeof text, format, name);
    return pal_safetensors_find(file, text);
}
static void read_tensor(const pal_safetensors *file, const char *format, const char *name, float *to, size_t count) {
    const pal_tensor *t = tensor(file, format, name);
    pal_error err;
    if (!t) fail_msg("no tensor %s (%s)", name, format);
    assert_int_equal(t->count, count);
    memory_must(pal_tensor_to_f32(t, to, &err), &err);
}

static memory_case *read_case(const memory_subject *subject, const pal_safetensors *file) {
    const pal_tensor *q = tensor(file, "in.%s", "q"), *v = tensor(file, "in.%s", "v"),
                     *packed = tensor(file, "in.%s", "cu_seqlens");
    assert_true(q && v && q->rank == 4 && v->rank == 4);
    const int batch = (int)q->shape[0], length = (int)q->shape[1], n = packed ? (int)packed->count - 1 : batch;
    int *lengths = pal_alloc((size_t)n, sizeof *lengths);
    for (int i = 0; i < n; i++) {
        int64_t ends[2] = { 0, length };
        if (packed)
            memcpy(ends, (const char *)packed->data + (size_t)i * sizeof *ends,
                   sizeof ends); /* a file's data may lie anywhere */
        lengths[i] = (int)(ends[1] - ends[0]);
    }
    memory_case *c = memory_case_of_shape(subject, n, lengths, (int)q->shape[2], (int)q->shape[2], (int)q->shape[3],
                                          (int)v->shape[3]);
    pal_free(lengths);
    const bool longhorn = strcmp(subject->rule, "longhorn") == 0; /* files call its gate beta, the interface b */
    for (int i = 0; i < MEMORY_INPUTS; i++)
        if (c->input[i])
            read_tensor(file, "in.%s", 1u << i == PAL_INPUT_B && longhorn ? "beta" : memory_fields[i].name, c->input[i],
                        c->count[i]);
    read_tensor(file, "in.%s", "scale", &c->scale, 1);
    read_tensor(file, "in.%s", "dy", c->dy, (size_t)c->shape.tokens * (size_t)c->shape.heads * (size_t)c->shape.dv);
    if (c->dy_var && tensor(file, "in.%s", "dy_var"))
        read_tensor(file, "in.%s", "dy_var", c->dy_var,
                    (size_t)c->shape.tokens * (size_t)c->shape.heads * (size_t)c->shape.dv);
    for (int p = 0; p < 2 && c->part[p]; p++) {
        const size_t count = (size_t)n * c->part[p];
        if (tensor(file, "in.d%s_T", c->rule->parts[p]))
            read_tensor(file, "in.d%s_T", c->rule->parts[p], c->dfinal[p], count);
        if (!tensor(file, "in.%s0", c->rule->parts[p])) continue;
        c->initial[p] = memory_floats(count);
        read_tensor(file, "in.%s0", c->rule->parts[p], c->initial[p], count);
    }
    return c;
}

static void check_recorded(const pal_safetensors *file, const char *path, const char *how, const char *format,
                           const char *name, const float *x, size_t count, double accept) {
    const pal_tensor *t = tensor(file, format, name);
    if (!t) return;
    assert_int_equal(t->dtype, PAL_F64);
    assert_int_equal(t->count, count);
    double *ref = pal_alloc(count, sizeof *ref);
    memcpy(ref, t->data, count * sizeof *ref);
    const double found = test_nmax_f64(x, ref, count);
    pal_free(ref);
    if (!(found <= accept))
        fail_msg("%s, %s: %s (%s) has error %.3g, accepted %.3g", path, how, name, format, found, accept);
}

/* Spec section 10. */
static double accepted_gradient(const memory_case *c, int input) {
    const bool palimpsa = strcmp(c->rule->name, "palimpsa") == 0;
    const double base = palimpsa && 1u << input == PAL_INPUT_A                                     ? 3e-4
                        : palimpsa && (1u << input == PAL_INPUT_IP || 1u << input == PAL_INPUT_DT) ? 5e-5
                                                                                                   : 1e-5;
    return base + memory_longest(c) * 0x1p-24;
}

static void check_results(const memory_case *c, const pal_safetensors *file, const char *path, const char *how,
                          const memory_result *r) {
    const size_t outputs = (size_t)c->shape.tokens * (size_t)c->shape.heads * (size_t)c->shape.dv,
                 N = (size_t)c->shape.sequences;
    const double out = (strcmp(c->rule->name, "palimpsa") == 0 ? 2e-5 : 5e-6) + memory_longest(c) * 0x1p-24;
    const bool longhorn = strcmp(c->rule->name, "longhorn") == 0;
    check_recorded(file, path, how, "out.%s", "y", r->y, outputs, out);
    if (r->y_var) check_recorded(file, path, how, "out.%s", "y_var", r->y_var, outputs, out);
    for (int p = 0; p < 2 && c->part[p]; p++) {
        check_recorded(file, path, how, "out.%s_T", c->rule->parts[p], r->final[p], N * c->part[p], out);
        if (r->dinitial[p])
            check_recorded(file, path, how, "grad.%s0", c->rule->parts[p], r->dinitial[p], N * c->part[p],
                           1e-5 + memory_longest(c) * 0x1p-24);
    }
    for (int i = 0; i < MEMORY_INPUTS; i++)
        if (r->grad[i])
            check_recorded(file, path, how, "grad.%s",
                           1u << i == PAL_INPUT_B && longhorn ? "beta" : memory_fields[i].name, r->grad[i], c->count[i],
                           accepted_gradient(c, i));
}

static int check_folder(const memory_subject *subject, const char *folder) {
    DIR *dir = opendir(folder);
    int cases = 0;
    if (!dir) return 0;
    for (struct dirent *entry; (entry = readdir(dir));) {
        const size_t length = strlen(entry->d_name);
        if (length < 12 || strcmp(entry->d_name + length - 12, ".safetensors") != 0) continue;
        char path[4096];
        pal_safetensors *file;
        pal_error err;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        memory_must(pal_safetensors_open(&file, path, &err), &err);
        const char *op = pal_safetensors_metadata(file, "op");
        if (op && strcmp(op, subject->rule) == 0) {
            memory_case *c = read_case(subject, file);
            cases++;
            for (TEST_LEVELS(level)) {
                pal_context *cx = test_context(2, pal_cpu_level_name(level));
                pal_rng rng = pal_rng_at(20, 0);
                memory_result *whole = memory_run_case(c, cx, 0, true), *steps = memory_run_pieces(c, cx, true, &rng);
                check_results(c, file, path, pal_cpu_level_name(level), whole);
                check_results(c, file, path, "token by token", steps);
                memory_result_free(whole);
                memory_result_free(steps);
                pal_context_free(cx);
            }
            memory_case_free(c);
        }
        pal_safetensors_close(file);
    }
    closedir(dir);
    return cases;
}

void memory_check_golden(void **given) {
    const memory_subject *subject = *given;
    const char *more = getenv("PALIMPSA_GOLDEN");
    int cases = check_folder(subject, PAL_TEST_GOLDEN "/ops");
    if (more) {
        char folder[2048];
        snprintf(folder, sizeof folder, "%s/ops", more);
        cases += check_folder(subject, folder);
    }
    assert_true(cases > 0);
}
