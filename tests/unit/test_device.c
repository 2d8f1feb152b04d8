/* SPDX-License-Identifier: MIT */
/* What a device computes, against the CPU. Any OpenCL device serves, PoCL for one; without one the tests are skipped.
 */
#include "support/support.h"

#include <math.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/blocks.h"
#include "base/device.h"
#include "device/opencl.h"
#include "kernels/matvec/matvec.h"
#include "model/state.h"
#include "palimpsa/device.h"
#include "support/files.h"
#include "support/memory_case.h"

static pal_context *cx, *host;

static int open_device(void **state) {
    pal_error err;
    int count;
    (void)state;
    host = test_context(2, NULL);
    if (pal_devices(NULL, 0, &count, &err) || !count) {
        puts("skipped: there is no OpenCL device here");
        return 0;
    }
    return pal_context_new_on(&cx, 1, NULL, "opencl:0", &err) ? (fputs(err.text, stderr), -1) : test_folder_make(state);
}

static int close_device(void **state) {
    if (cx) test_folder_remove(state);
    pal_context_free(cx);
    pal_context_free(host);
    return 0;
}

static void need_device(void) {
    if (!cx) skip();
}

static void *on_device(const void *from, size_t bytes) {
    void *at;
    OK(cx->device->ops->alloc(cx->device, &at, bytes, "a test", err));
    if (from) cx->device->ops->upload(cx->device, at, from, bytes);
    return at;
}

static void back(void *to, const void *from, size_t bytes) {
    cx->device->ops->download(cx->device, to, from, bytes);
    OK(pal_device_check(cx, err));
}

/* y = 0.5 + x W' in double. */
static void expected_product(const pal_matrix *w, const float *x, int rows, float *y) {
    float *row = malloc((size_t)w->columns * sizeof *row);
    for (int o = 0; o < w->rows; o++) {
        pal_matrix_row(w, (size_t)o, row);
        for (int r = 0; r < rows; r++) {
            double sum = 0.5;
            for (int i = 0; i < w->columns; i++)
                sum += (double)row[i] * (double)x[(size_t)r * (size_t)w->columns + (size_t)i];
            y[(size_t)r * (size_t)w->rows + (size_t)o] = (float)sum;
        }
    }
    free(row);
}

static void check_product(pal_dtype type, int rows, int in, int out, bool steps, pal_rng *rng) {
    const pal_block_format *format = pal_block_format_of(type);
    const size_t count = (size_t)in * (size_t)out, bytes = count / format->values * format->bytes,
                 nx = (size_t)rows * (size_t)in, ny = (size_t)rows * (size_t)out;
    float *values = malloc(count * sizeof *values), *x = malloc(nx * sizeof *x), *y = malloc(ny * sizeof *y),
          *expected = malloc(ny * sizeof *y);
    unsigned char *stored = malloc(bytes);
    char what[80];
    test_fill_normal(values, count, rng, 1);
    test_fill_normal(x, nx, rng, 1);
    for (size_t i = 0; i < ny; i++) y[i] = 0.5f;
    pal_blocks_encode(format, values, count, stored);
    const pal_matrix here = pal_matrix_of(type, stored, out, in);
    expected_product(&here, x, rows, expected);
    void *w = on_device(stored, bytes);
    float *dx = on_device(x, nx * sizeof *x), *dy = on_device(y, ny * sizeof *y);
    const pal_matrix there = pal_matrix_of(type, w, out, in);
    cx->device->ops->product(
        cx->device,
        &(pal_matvec_args){
            .w = &there, .rows = rows, .x = dx, .ldx = (size_t)in, .add = true, .y = dy, .ldy = (size_t)out },
        steps);
    back(y, dy, ny * sizeof *y);
    snprintf(what, sizeof what, "%s, %d rows, %d x %d, %s", pal_dtype_name(type), rows, out, in,
             steps ? "steps" : "tiles");
    test_near(what, y, expected, ny, 2e-6);
    cx->device->ops->free(cx->device, w);
    cx->device->ops->free(cx->device, dx);
    cx->device->ops->free(cx->device, dy);
    free(values), free(x), free(y), free(expected), free(stored);
}

static void products_with_every_stored_type_are_those_of_the_cpu(void **state) {
    static const pal_dtype types[] = { PAL_F32,  PAL_F16,  PAL_BF16, PAL_Q8_0, PAL_Q4_0,
                                       PAL_Q5_0, PAL_Q4_K, PAL_Q5_K, PAL_Q6_K };
    static const int rows[] = { 1, 3, 8, 9, 33 };
    pal_rng rng = pal_rng_at(7, 0);
    (void)state;
    need_device();
    for (size_t t = 0; t < PAL_COUNT(types); t++)
        for (size_t r = 0; r < PAL_COUNT(rows); r++) {
            const int block = (int)pal_dtype_values(types[t]), in = block == 1 ? 83 : 512;
            check_product(types[t], rows[r], in, 37, false, &rng);
            check_product(types[t], rows[r], in, 37, true, &rng);
        }
}

static void a_host_loop_that_reads_a_devices_numbers_faults(void **state) {
    int how;
    (void)state;
    need_device();
    const volatile float *at = on_device(NULL, 64);
    fflush(stdout);
    const pid_t child = fork();
    if (!child) {
        signal(SIGSEGV, SIG_DFL); /* cmocka's handler would run the other tests here */
        signal(SIGBUS, SIG_DFL);
        const float x = at[3];
        _exit(isnan(x));
    }
    assert_true(waitpid(child, &how, 0) == child);
    assert_true(WIFSIGNALED(how));
    cx->device->ops->free(cx->device, (void *)(uintptr_t)at);
}

enum { PROMPT = 21, MORE = 5 };

typedef struct {
    pal_model *model;
    pal_work *work;
    pal_state *state;
    float *logits;
} side;

static side open_side(const pal_context *where, const char *path) {
    side s;
    OK(pal_model_open(&s.model, path, PAL_FOR_INFERENCE, where, err));
    OK(pal_work_new(&s.work, s.model, where, &(pal_work_options){ .tokens = 8, .sequences = 2, .variance = true },
                    err));
    OK(pal_state_new(&s.state, s.model, 64, err));
    s.logits = malloc((size_t)pal_model_config_of(s.model)->vocab_rows * sizeof *s.logits);
    return s;
}

static void close_side(side *s) {
    pal_state_free(s->state);
    pal_work_free(s->work);
    pal_model_close(s->model);
    free(s->logits);
}

/* Memories of `from` continue in `to` by way of a file; both then write on, and agree. */
static void travel(side *from, side *to, const char *file) {
    const size_t V = (size_t)pal_model_config_of(from->model)->vocab_rows;
    int32_t ids[PROMPT];
    size_t floats;
    for (int i = 0; i < PROMPT; i++) ids[i] = (7 * i + 3) % pal_model_config_of(from->model)->vocab;
    pal_state_reset(from->state);
    OK(pal_model_prefill(from->model, from->work, from->state, ids, PROMPT, from->logits, err));
    OK(pal_state_save(from->state, in_folder(file), err));
    OK(pal_state_load(to->state, in_folder(file), err));
    assert_int_equal(pal_state_position(to->state), PROMPT);
    assert_true(pal_state_is_finite(to->state));
    for (int i = 0; i < MORE; i++) {
        OK(pal_model_step(from->model, from->work, &from->state, 1, ids + i, from->logits, err));
        OK(pal_model_step(to->model, to->work, &to->state, 1, ids + i, to->logits, err));
        test_near("logits", to->logits, from->logits, V, 2e-5);
        const double one = pal_work_variance(from->work, 0), other = pal_work_variance(to->work, 0);
        assert_true((isnan(one) && isnan(other)) || fabs(one - other) < 1e-4 * fabs(one));
    }
    for (int layer = 0; layer < pal_model_config_of(from->model)->layers; layer++) {
        if (!pal_state_part(from->state, layer, 0, &floats)) continue;
        float *a = calloc(4, floats * sizeof *a);
        OK(pal_state_export(from->state, layer, a, a + floats, err));
        OK(pal_state_export(to->state, layer, a + 2 * floats, a + 3 * floats, err));
        test_near("memory", a + 2 * floats, a, floats, 2e-5);
        free(a);
    }
}

static void memories_travel_between_a_device_and_the_cpu(void **state) {
    static const char *const models[] = { "palimpsa_d", "hybrid_m", "gated_deltanet", "transformer" };
    (void)state;
    need_device();
    for (size_t i = 0; i < PAL_COUNT(models); i++) {
        char path[TEST_PATH];
        snprintf(path, sizeof path, "%s/models/%s", PAL_TEST_GOLDEN, models[i]);
        side here = open_side(host, path), there = open_side(cx, path);
        travel(&here, &there, "to");
        travel(&there, &here, "from");
        pal_state *copy;
        OK(pal_state_new(&copy, there.model, 64, err));
        OK(pal_state_copy(copy, there.state, err));
        assert_int_equal(pal_model_step(there.model, there.work, (pal_state *[]){ copy, there.state }, 2,
                                        (int32_t[]){ 1, 1 }, NULL, NULL),
                         PAL_OK);
        assert_int_equal(pal_state_position(copy), PROMPT + MORE + 1);
        pal_state_free(copy);
        close_side(&here);
        close_side(&there);
    }
}

static void fill_importance(memory_case *c, pal_rng *rng) {
    const size_t count = (size_t)c->shape.sequences * c->part[1];
    for (size_t i = 0; i < count; i++) c->initial[1][i] = 0.5f + 3 * (float)pal_rng_uniform(rng);
}

/* Packed sequences, shared keys, sizes that fill no tile, memories to start from; whole, in pieces and in steps. */
static void memory_rules_are_those_of_the_cpu(void **state) {
    static const memory_subject subjects[] = { { .rule = "palimpsa", .fill_initial = fill_importance },
                                               { .rule = "gla" },
                                               { .rule = "delta" },
                                               { .rule = "gdn" },
                                               { .rule = "gdn_app" },
                                               { .rule = "kda" },
                                               { .rule = "attention", .cache = true } };
    static const int lengths[] = { 1, 37, 8, 70 };
    static const struct {
        int heads, key_heads, dk, dv;
    } shapes[] = { { 4, 2, 7, 19 }, { 2, 2, 32, 48 }, { 6, 3, 65, 5 } };
    pal_rng rng = pal_rng_at(11, 0);
    (void)state;
    need_device();
    for (size_t i = 0; i < PAL_COUNT(subjects); i++)
        for (size_t k = 0; k < PAL_COUNT(shapes); k++) {
            memory_case *c = memory_case_new(&subjects[i], 4, lengths, shapes[k].heads, shapes[k].key_heads,
                                             shapes[k].dk, shapes[k].dv, !subjects[i].cache && k % 2 == 0, 1, &rng);
            const size_t outputs = (size_t)c->shape.tokens * (size_t)c->shape.heads * (size_t)c->shape.dv;
            memory_result *right = memory_run_case(c, host, 0, false), *got[2];
            got[0] = memory_run_case(c, cx, (int)k, false);
            got[1] = memory_run_pieces(c, cx, k == 2, &rng);
            for (int way = 0; way < 2; way++) {
                char what[64];
                snprintf(what, sizeof what, "%s, shape %zu, %s", subjects[i].rule, k, way ? "pieces" : "whole");
                test_near(what, got[way]->y, right->y, outputs, 1e-5);
                if (right->y_var) test_near(what, got[way]->y_var, right->y_var, outputs, 1e-5);
                for (int p = 0; p < 2 && right->final[p]; p++)
                    test_near(what, got[way]->final[p], right->final[p], 4 * c->part[p], 1e-5);
                memory_result_free(got[way]);
            }
            memory_result_free(right);
            memory_case_free(c);
        }
}

static void what_a_device_cannot_run_is_refused(void **state) {
    pal_error sentence;
    pal_context *none;
    pal_model *model;
    pal_work *work;
    (void)state;
    need_device();
    assert_int_equal(pal_context_new_on(&none, 1, NULL, "opencl:99", &sentence), PAL_E_ARGUMENT);
    assert_non_null(strstr(sentence.text, "numbered from opencl:0"));
    assert_int_equal(pal_context_new_on(&none, 1, NULL, "gpu", &sentence), PAL_E_ARGUMENT);
    const pal_preset_options tiny = {
        .task = "mqar", .rule = "longhorn", .vocab = 32, .hidden = 32, .layers = 1, .heads = 2, .head_dim = 16
    };
    pal_model_config config;
    OK(pal_model_preset(&config, "palimpsa-d", &tiny, err));
    assert_int_equal(pal_model_new(&model, &config, 1, PAL_FOR_INFERENCE, cx, &sentence), PAL_E_UNSUPPORTED);
    assert_non_null(strstr(sentence.text, "memory rule 'longhorn'"));
    OK(pal_model_open(&model, PAL_TEST_GOLDEN "/models/palimpsa_d", PAL_FOR_INFERENCE, host, err));
    assert_int_equal(pal_work_new(&work, model, cx, &(pal_work_options){ .tokens = 8 }, &sentence), PAL_E_ARGUMENT);
    pal_model_close(model);
    pal_observer *observer;
    pal_windows windows;
    OK(pal_model_open(&model, PAL_TEST_GOLDEN "/models/palimpsa_d", PAL_FOR_INFERENCE, cx, err));
    assert_int_equal(pal_observer_new(&observer, model, 8, 1, &sentence), PAL_E_UNSUPPORTED);
    assert_int_equal(pal_windows_measure(&windows, model, cx, (int32_t[]){ 1, 2 }, 2, NULL, NULL, &sentence),
                     PAL_E_UNSUPPORTED);
    pal_windows_free(&windows);
    pal_model_close(model);
    void *block;
    assert_int_equal(cx->device->ops->alloc(cx->device, &block, SIZE_MAX / 4, "weights", &sentence), PAL_E_MEMORY);
    assert_non_null(strstr(sentence.text, "weights: "));
}

/* Functions of OpenCL that fail at one call, the countdown-th from now. */
static pal_cl_library real;
static int countdown;
static bool reached;
static bool fails(void) { return --countdown == 0; }
enum { RESOURCES = -5 };

static cl_int fail_arg(cl_kernel k, cl_uint i, size_t n, const void *x) {
    return fails() ? RESOURCES : real.SetKernelArg(k, i, n, x);
}
static cl_int fail_launch(cl_queue q, cl_kernel k, cl_uint n, const size_t *o, const size_t *g, const size_t *l,
                          cl_uint w, const cl_event *a, cl_event *e) {
    return fails() ? RESOURCES : real.EnqueueNDRangeKernel(q, k, n, o, g, l, w, a, e);
}
static cl_int fail_read(cl_queue q, cl_mem m, cl_bool b, size_t at, size_t n, void *to, cl_uint w, const cl_event *a,
                        cl_event *e) {
    return fails() ? RESOURCES : real.EnqueueReadBuffer(q, m, b, at, n, to, w, a, e);
}
static cl_int fail_write(cl_queue q, cl_mem m, cl_bool b, size_t at, size_t n, const void *from, cl_uint w,
                         const cl_event *a, cl_event *e) {
    return fails() ? RESOURCES : real.EnqueueWriteBuffer(q, m, b, at, n, from, w, a, e);
}
static cl_int fail_copy(cl_queue q, cl_mem x, cl_mem y, size_t i, size_t j, size_t n, cl_uint w, const cl_event *a,
                        cl_event *e) {
    return fails() ? RESOURCES : real.EnqueueCopyBuffer(q, x, y, i, j, n, w, a, e);
}
static cl_int fail_fill(cl_queue q, cl_mem m, const void *x, size_t size, size_t at, size_t n, cl_uint w,
                        const cl_event *a, cl_event *e) {
    return fails() ? RESOURCES : real.EnqueueFillBuffer(q, m, x, size, at, n, w, a, e);
}
static cl_int fail_finish(cl_queue q) { return fails() ? RESOURCES : real.Finish(q); }
static cl_mem fail_buffer(cl_context c, cl_flags f, size_t n, void *x, cl_int *code) {
    if (!fails()) return real.CreateBuffer(c, f, n, x, code);
    *code = RESOURCES;
    return NULL;
}
static cl_program fail_program(cl_context c, cl_uint n, const char **text, const size_t *size, cl_int *code) {
    if (!fails()) return real.CreateProgramWithSource(c, n, text, size, code);
    *code = RESOURCES;
    return NULL;
}
static cl_int fail_build(cl_program p, cl_uint n, const cl_device *d, const char *options,
                         void (*fn)(cl_program, void *), void *user) {
    return fails() ? RESOURCES : real.BuildProgram(p, n, d, options, fn, user);
}
static cl_kernel fail_kernel(cl_program p, const char *name, cl_int *code) {
    if (!fails()) return real.CreateKernel(p, name, code);
    *code = RESOURCES;
    return NULL;
}

/* The i-th of them takes the place of its function; false: there are no more. */
static bool make_fail(pal_cl_library *cl, int i) {
    switch (i) {
    case 0: cl->SetKernelArg = fail_arg; return true;
    case 1: cl->EnqueueNDRangeKernel = fail_launch; return true;
    case 2: cl->EnqueueReadBuffer = fail_read; return true;
    case 3: cl->EnqueueWriteBuffer = fail_write; return true;
    case 4: cl->EnqueueCopyBuffer = fail_copy; return true;
    case 5: cl->EnqueueFillBuffer = fail_fill; return true;
    case 6: cl->Finish = fail_finish; return true;
    case 7: cl->CreateBuffer = fail_buffer; return true;
    case 8: cl->CreateProgramWithSource = fail_program; return true;
    case 9: cl->BuildProgram = fail_build; return true;
    case 10: cl->CreateKernel = fail_kernel; return true;
    default: return false;
    }
}

/* Everything that a model does, up to the first failure. */
static pal_status use_model(const pal_context *where, pal_error *err) {
    static const int32_t ids[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 };
    static float logits[4096];
    pal_model *model = NULL;
    pal_work *work = NULL;
    pal_state *state = NULL, *copy = NULL;
    pal_status st = pal_model_open(&model, PAL_TEST_GOLDEN "/models/hybrid_m", PAL_FOR_INFERENCE, where, err);
    if (!st) st = pal_work_new(&work, model, where, &(pal_work_options){ .tokens = 9, .sequences = 1 }, err);
    if (!st) st = pal_state_new(&state, model, 32, err);
    if (!st) st = pal_state_new(&copy, model, 32, err);
    if (!st) st = pal_model_prefill(model, work, state, ids, 10, logits, err);
    if (!st) st = pal_state_copy(copy, state, err);
    if (!st) st = pal_model_step(model, work, &copy, 1, ids, logits, err);
    if (!st) st = pal_device_check(where, err);
    reached = countdown <= 0; /* what fails when everything is released has no consequences */
    pal_state_free(copy);
    pal_state_free(state);
    pal_work_free(work);
    pal_model_close(model);
    return st;
}

static void every_call_that_fails_is_one_sentence(void **state) {
    (void)state;
    need_device();
    for (int i = 0, calls; make_fail(&(pal_cl_library){ 0 }, i); i++)
        for (calls = 1;; calls += 1 + (test_cases(1, 0) ? 3 * calls : 0)) {
            pal_context *where;
            pal_error sentence;
            OK(pal_context_new_on(&where, 1, NULL, "opencl:0", err));
            pal_opencl *d = pal_opencl_of(where->device);
            real = d->cl;
            make_fail(&d->cl, i);
            countdown = calls;
            const pal_status st = use_model(where, &sentence);
            pal_context_free(where);
            if (st && !strstr(sentence.text, "CL_OUT_OF_RESOURCES")) fail_msg("function %d: %s", i, sentence.text);
            if (!reached) assert_int_equal(st, PAL_OK);
            else if (!st) fail_msg("function %d, call %d fails, and nothing is said", i, calls);
            if (!reached) break;
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_with_every_stored_type_are_those_of_the_cpu),
        cmocka_unit_test(a_host_loop_that_reads_a_devices_numbers_faults),
        cmocka_unit_test(memories_travel_between_a_device_and_the_cpu),
        cmocka_unit_test(memory_rules_are_those_of_the_cpu),
        cmocka_unit_test(every_call_that_fails_is_one_sentence),
        cmocka_unit_test(what_a_device_cannot_run_is_refused),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
