/* SPDX-License-Identifier: MIT */
/* The recorded cases of the harness, run in every way. */
#include "support/memory_harness.h"

#include <dirent.h>

#include "base/alloc.h"
#include "recorded_memory.h"

static memory_case *case_of(const memory_subject *subject, const recorded_memory *r) {
    const pal_memory_shape *s = &r->shape;
    int *lengths = pal_alloc((size_t)s->sequences, sizeof *lengths);
    for (int i = 0; i < s->sequences; i++) lengths[i] = s->cu_seqlens[i + 1] - s->cu_seqlens[i];
    memory_case *c = memory_case_of_shape(subject, s->sequences, lengths, s->heads, s->key_heads, s->dk, s->dv);
    pal_free(lengths);
    assert_int_equal(c->shape.tokens, s->tokens);
    for (int i = 0; i < MEMORY_INPUTS; i++) {
        const void *field = (const char *)&r->in + memory_fields[i].view;
        const float *x = memory_fields[i].parameter ? *(const float *const *)field
                                                    : ((const pal_const_view *)field)->data;
        if (c->input[i]) memcpy(c->input[i], x, c->count[i] * sizeof *x);
    }
    c->scale = r->in.scale;
    const size_t outputs = (size_t)s->tokens * (size_t)s->heads * (size_t)s->dv;
    assert_non_null(r->dy);
    memcpy(c->dy, r->dy, outputs * sizeof *c->dy);
    if (r->dy_var) memcpy(c->dy_var, r->dy_var, outputs * sizeof *c->dy_var);
    else if (c->dy_var) memset(c->dy_var, 0, outputs * sizeof *c->dy_var);
    for (int p = 0; p < 2 && c->part[p]; p++) {
        const size_t count = (size_t)s->sequences * c->part[p];
        if (r->dfinal[p]) memcpy(c->dfinal[p], r->dfinal[p], count * sizeof(float));
        if (!r->initial[p]) continue;
        c->initial[p] = memory_floats(count);
        memcpy(c->initial[p], r->initial[p], count * sizeof(float));
    }
    return c;
}

/* One case of a file, for messages too. */
typedef struct {
    const pal_safetensors *file;
    const char *path;
    const recorded_memory *recorded;
} golden;

static void check_recorded(const golden *g, const char *how, const char *format, const char *word, const float *x,
                           size_t count) {
    char name[64];
    snprintf(name, sizeof name, format, word);
    const pal_tensor *t = pal_safetensors_find(g->file, name);
    if (!t) return;
    assert_int_equal(t->dtype, PAL_F64);
    assert_int_equal(t->count, count);
    double *ref = pal_alloc(count, sizeof *ref);
    memcpy(ref, t->data, count * sizeof *ref);
    const double found = test_nmax_f64(x, ref, count), accept = recorded_memory_accept(g->recorded, name);
    pal_free(ref);
    if (!(found <= accept)) fail_msg("%s, %s: %s has error %.3g, accepted %.3g", g->path, how, name, found, accept);
}

static void check_results(const memory_case *c, const golden *g, const char *how, const memory_result *r) {
    const size_t outputs = (size_t)c->shape.tokens * (size_t)c->shape.heads * (size_t)c->shape.dv,
                 N = (size_t)c->shape.sequences;
    check_recorded(g, how, "out.%s", "y", r->y, outputs);
    if (r->y_var) check_recorded(g, how, "out.%s", "y_var", r->y_var, outputs);
    for (int p = 0; p < 2 && c->part[p]; p++) {
        check_recorded(g, how, "out.%s_T", c->rule->parts[p], r->final[p], N * c->part[p]);
        if (r->dinitial[p]) check_recorded(g, how, "grad.%s0", c->rule->parts[p], r->dinitial[p], N * c->part[p]);
    }
    for (int i = 0; i < MEMORY_INPUTS; i++)
        if (r->grad[i])
            check_recorded(g, how, "grad.%s", recorded_memory_name(c->rule, 1u << i), r->grad[i], c->count[i]);
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
            recorded_memory recorded;
            memory_must(recorded_memory_read(&recorded, pal_memory_find(op), file, &err), &err);
            memory_case *c = case_of(subject, &recorded);
            const golden g = { file, path, &recorded };
            cases++;
            for (TEST_LEVELS(level)) {
                pal_context *cx = test_context(2, pal_cpu_level_name(level));
                pal_rng rng = pal_rng_at(20, 0);
                memory_result *whole = memory_run_case(c, cx, 0, true), *steps = memory_run_pieces(c, cx, true, &rng);
                check_results(c, &g, pal_cpu_level_name(level), whole);
                check_results(c, &g, "token by token", steps);
                memory_result_free(whole);
                memory_result_free(steps);
                pal_context_free(cx);
            }
            memory_case_free(c);
            recorded_memory_free(&recorded);
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
    } else print_message("skipped: recorded sequences next to the project (PALIMPSA_GOLDEN is not set)\n");
    assert_true(cases > 0);
}
