/* SPDX-License-Identifier: MIT */
/* Building blocks of `palimpsa selftest`: norms, convolution, rotary, attention, MLP, loss, optimiser. Sizes come from the
 * tensors, attributes from the metadata; whatever does not fit together is one sentence in the case's error. */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "kernels/activations/activations.h"
#include "kernels/conv/conv.h"
#include "kernels/loss/cross_entropy.h"
#include "kernels/matmul/matmul.h"
#include "kernels/norms/norms.h"
#include "kernels/optimiser/adamw.h"
#include "kernels/rotary/rotary.h"
#include "selftest.h"

enum { MAX_BLOCKS = 64 };

/* A case while it runs. Blocks are freed together at the end. After the first failure every helper does nothing and
 * returns NULL or 0, so a runner may collect all it needs and look at failed() once. */
typedef struct {
    selftest_case *c;
    void *blocks[MAX_BLOCKS];
    int used;
} prim;

static bool failed(const prim *p) { return p->c->status != PAL_OK; }

static void complain(prim *p, pal_status status, const char *format, ...) PAL_PRINTF(3, 4);
static void complain(prim *p, pal_status status, const char *format, ...) {
    if (failed(p)) return;
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    p->c->status = pal_fail(&p->c->error, status, "%s: %s", p->c->path, text);
}

static void *take(prim *p, size_t n, size_t size) {
    if (failed(p)) return NULL;
    if (p->used == MAX_BLOCKS) {
        complain(p, PAL_E_UNSUPPORTED, "more than %d tensors in a case", MAX_BLOCKS);
        return NULL;
    }
    void *block = pal_alloc(n ? n : 1, size);
    if (!block) {
        complain(p, PAL_E_MEMORY, "no memory for %zu elements of %zu bytes", n, size);
        return NULL;
    }
    p->blocks[p->used++] = block;
    return block;
}
static float *take_floats(prim *p, size_t n) { return take(p, n, sizeof(float)); }

static const pal_tensor *find(prim *p, const char *name) {
    const pal_tensor *t = pal_safetensors_find(p->c->file, name);
    if (!t) {
        complain(p, PAL_E_FORMAT, "op '%s' needs tensor '%s', which is missing", p->c->op, name);
        return NULL;
    }
    for (int i = 0; i < t->rank; i++)
        if (t->shape[i] < 1 || t->shape[i] > INT_MAX) {
            complain(p, PAL_E_FORMAT, "tensor '%s': dimension %d is %lld, expected 1 to %d", name, i, (long long)t->shape[i], INT_MAX);
            return NULL;
        }
    if (t->count > INT_MAX) {
        complain(p, PAL_E_UNSUPPORTED, "tensor '%s' has %zu elements, a case may have at most %d", name, t->count, INT_MAX);
        return NULL;
    }
    return t;
}

static float *floats(prim *p, const pal_tensor *t) {
    float *x = t ? take_floats(p, t->count) : NULL;
    if (x && pal_tensor_to_f32(t, x, &p->c->error)) p->c->status = p->c->error.status;
    return failed(p) ? NULL : x;
}

/* Tensor `name` with exactly `count` elements. */
static float *sized(prim *p, const char *name, size_t count) {
    const pal_tensor *t = failed(p) ? NULL : find(p, name);
    if (t && t->count != count) complain(p, PAL_E_FORMAT, "tensor '%s' has %zu elements, expected %zu", name, t->count, count);
    return failed(p) ? NULL : floats(p, t);
}

/* The same, or zeros when the file has none: an absent upstream gradient. */
static float *upstream(prim *p, const char *name, size_t count) {
    if (failed(p)) return NULL;
    return pal_safetensors_find(p->c->file, name) ? sized(p, name, count) : take_floats(p, count);
}

/* Integers of any integer dtype, each in low .. high or equal to `also`. */
static int *integers(prim *p, const pal_tensor *t, long long low, long long high, long long also) {
    int *x = t && !failed(p) ? take(p, t->count, sizeof *x) : NULL;
    if (!x) return NULL;
    if (t->dtype != PAL_I64 && t->dtype != PAL_I32) {
        complain(p, PAL_E_FORMAT, "tensor '%s' is %s, expected I64 or I32", t->name, pal_dtype_name(t->dtype));
        return NULL;
    }
    for (size_t i = 0; i < t->count; i++) {
        int32_t narrow;
        int64_t value;
        if (t->dtype == PAL_I32) {
            memcpy(&narrow, (const char *)t->data + i * sizeof narrow, sizeof narrow);
            value = narrow;
        } else memcpy(&value, (const char *)t->data + i * sizeof value, sizeof value);
        if ((value < low || value > high) && value != also) {
            complain(p, PAL_E_FORMAT, "tensor '%s': element %zu is %lld, expected %lld to %lld", t->name, i, (long long)value, low, high);
            return NULL;
        }
        x[i] = (int)value;
    }
    return x;
}

static double attribute(prim *p, const char *key) {
    const char *text = pal_safetensors_metadata(p->c->file, key);
    char *end;
    if (failed(p)) return 0;
    if (!text) {
        complain(p, PAL_E_FORMAT, "op '%s' needs the attribute '%s', which is missing", p->c->op, key);
        return 0;
    }
    const double value = strtod(text, &end);
    if (end == text || *end || !isfinite(value)) complain(p, PAL_E_FORMAT, "attribute '%s' is '%s', expected a number", key, text);
    return value;
}

static void check(prim *p, const char *name, const float *value, size_t count) {
    if (!failed(p)) p->c->check(p->c, name, value, count);
}

static pal_const_view in_rows(const float *data, size_t stride) { return (pal_const_view){ data, stride }; }
static pal_view rows(float *data, size_t stride) { return (pal_view){ data, stride }; }

static int last_axis(const pal_tensor *t) { return t->rank ? (int)t->shape[t->rank - 1] : 1; }

static void run_rmsnorm(prim *p, pal_norm_gate gate) {
    const pal_tensor *t = find(p, "in.x");
    if (!t) return;
    const int channels = last_axis(t);
    const size_t n = t->count, C = (size_t)channels;
    double groups = 1;
    if (gate == PAL_GATE_BEFORE && pal_safetensors_metadata(p->c->file, "groups")) groups = attribute(p, "groups");
    if (!(groups >= 1 && groups <= channels) || groups != floor(groups) || channels % (int)groups) {
        complain(p, PAL_E_FORMAT, "attribute 'groups' is %g, expected a divisor of the %d channels", groups, channels);
        return;
    }
    pal_rmsnorm_args a = { .rows = n / C, .groups = (int)groups, .width = channels / (int)groups, .gate = gate };
    float *scratch = take_floats(p, pal_rmsnorm_scratch_floats(&a));
    a.eps = (float)attribute(p, "eps");
    a.x = in_rows(floats(p, t), C);
    if (gate) a.z = in_rows(sized(p, "in.z", n), C);
    a.w = sized(p, "in.w", C);
    a.dy = in_rows(upstream(p, "in.dy", n), C);
    a.y = rows(take_floats(p, n), C);
    a.dx = rows(take_floats(p, n), C);
    if (gate) a.dz = rows(take_floats(p, n), C);
    a.dw = take_floats(p, C);
    if (failed(p)) return;
    pal_rmsnorm(p->c->cx, &a);
    pal_rmsnorm_backward(p->c->cx, &a, scratch);
    check(p, "out.y", a.y.data, n);
    check(p, "grad.x", a.dx.data, n);
    if (gate) check(p, "grad.z", a.dz.data, n);
    check(p, "grad.w", a.dw, C);
}
static void run_rmsnorm_plain(prim *p) { run_rmsnorm(p, PAL_GATE_NONE); }
static void run_rmsnorm_then_gate(prim *p) { run_rmsnorm(p, PAL_GATE_AFTER); }
static void run_gate_then_rmsnorm(prim *p) { run_rmsnorm(p, PAL_GATE_BEFORE); }

static void run_layernorm(prim *p) {
    const pal_tensor *t = find(p, "in.x");
    if (!t) return;
    const size_t n = t->count, C = (size_t)last_axis(t);
    pal_layernorm_args a = { .rows = n / C, .width = (int)C };
    float *scratch = take_floats(p, pal_layernorm_scratch_floats(&a));
    a.eps = (float)attribute(p, "eps");
    a.x = in_rows(floats(p, t), C);
    a.w = sized(p, "in.w", C);
    a.b = sized(p, "in.b", C);
    a.dy = in_rows(upstream(p, "in.dy", n), C);
    a.y = rows(take_floats(p, n), C);
    a.dx = rows(take_floats(p, n), C);
    a.dw = take_floats(p, C);
    a.db = take_floats(p, C);
    if (failed(p)) return;
    pal_layernorm(p->c->cx, &a);
    pal_layernorm_backward(p->c->cx, &a, scratch);
    check(p, "out.y", a.y.data, n);
    check(p, "grad.x", a.dx.data, n);
    check(p, "grad.w", a.dw, C);
    check(p, "grad.b", a.db, C);
}

static void run_l2(prim *p, pal_l2_kind kind) {
    const pal_tensor *t = find(p, "in.x");
    if (!t) return;
    const size_t n = t->count, C = (size_t)last_axis(t);
    pal_l2norm_args a = { .rows = n / C, .groups = 1, .width = (int)C, .kind = kind };
    a.x = in_rows(floats(p, t), C);
    a.dy = in_rows(upstream(p, "in.dy", n), C);
    a.y = rows(take_floats(p, n), C);
    a.dx = rows(take_floats(p, n), C);
    if (failed(p)) return;
    pal_l2norm(p->c->cx, &a);
    pal_l2norm_backward(p->c->cx, &a);
    check(p, "out.y", a.y.data, n);
    check(p, "grad.x", a.dx.data, n);
}
static void run_l2_clamp(prim *p) { run_l2(p, PAL_L2_CLAMP); }
static void run_l2_eps(prim *p) { run_l2(p, PAL_L2_EPS); }

/* Sequences of an input [batch, tokens, ...] whose last `inner` axes belong to a token: the file's in.cu_seqlens (batch
 * must be 1 then), or equal lengths. */
typedef struct {
    int sequences, tokens;
    const int *cu_seqlens;
} packing;

static packing packed(prim *p, const pal_tensor *t, int inner) {
    packing s = { 0 };
    if (failed(p)) return s;
    if (t->rank < inner + 1 || t->rank > inner + 2) {
        complain(p, PAL_E_FORMAT, "tensor '%s' has %d axes, expected %d or %d", t->name, t->rank, inner + 1, inner + 2);
        return s;
    }
    const int length = (int)t->shape[t->rank - inner - 1], batch = t->rank == inner + 2 ? (int)t->shape[0] : 1;
    s.tokens = batch * length;
    if (pal_safetensors_find(p->c->file, "in.cu_seqlens")) {
        const pal_tensor *cu = find(p, "in.cu_seqlens");
        const int *at = integers(p, cu, 0, s.tokens, 0);
        if (failed(p)) return s;
        s.sequences = (int)cu->count - 1;
        s.cu_seqlens = at;
        if (batch != 1) complain(p, PAL_E_FORMAT, "a packed case has batch 1, found %d", batch);
        if (s.sequences < 1 || at[0] != 0 || at[s.sequences] != s.tokens)
            complain(p, PAL_E_FORMAT, "in.cu_seqlens must go from 0 to the number of tokens, %d", s.tokens);
        for (int i = 0; i < s.sequences; i++)
            if (at[i + 1] <= at[i]) complain(p, PAL_E_FORMAT, "in.cu_seqlens must increase; entry %d is %d after %d", i + 1, at[i + 1], at[i]);
        return s;
    }
    int *at = take(p, (size_t)batch + 1, sizeof *at);
    for (int i = 0; at && i <= batch; i++) at[i] = i * length;
    s.sequences = batch;
    s.cu_seqlens = at;
    return s;
}

static void run_conv(prim *p) {
    const pal_tensor *t = find(p, "in.x"), *w = failed(p) ? NULL : find(p, "in.w");
    if (failed(p)) return;
    const packing s = packed(p, t, 1);
    const size_t n = t->count, C = (size_t)last_axis(t), W = (size_t)last_axis(w);
    if (w->count != C * W || w->rank < 2 || W > PAL_CONV_MAX_TAPS)
        complain(p, PAL_E_FORMAT, "tensor 'in.w' must be [%zu, 1, taps] with at most %d taps; it has %d axes and %zu elements", C,
                 PAL_CONV_MAX_TAPS, w->rank, w->count);
    if (failed(p)) return;
    const bool bias = pal_safetensors_find(p->c->file, "in.b") != NULL;
    pal_conv_args a = { .sequences = s.sequences, .cu_seqlens = s.cu_seqlens, .channels = (int)C, .taps = (int)W };
    float *scratch = take_floats(p, pal_conv_silu_scratch_floats(&a));
    a.x = in_rows(floats(p, t), C);
    a.w = floats(p, w);
    if (bias) a.bias = sized(p, "in.b", C);
    a.dy = in_rows(upstream(p, "in.dy", n), C);
    a.y = rows(take_floats(p, n), C);
    a.dx = rows(take_floats(p, n), C);
    a.dw = take_floats(p, C * W);
    if (bias) a.dbias = take_floats(p, C);
    if (failed(p)) return;
    pal_conv_silu(p->c->cx, &a);
    pal_conv_silu_backward(p->c->cx, &a, scratch);
    check(p, "out.y", a.y.data, n);
    check(p, "grad.x", a.dx.data, n);
    check(p, "grad.w", a.dw, C * W);
    if (bias) check(p, "grad.b", a.dbias, C);
}

static void rotate(prim *p, const char *in, const char *up, const char *out, const char *grad, double theta) {
    const pal_tensor *t = find(p, in);
    if (failed(p)) return;
    const packing s = packed(p, t, 2);
    const int d = last_axis(t);
    if (d % 2) complain(p, PAL_E_FORMAT, "tensor '%s': heads of %d channels, expected an even number", in, d);
    if (failed(p)) return;
    const size_t n = t->count, C = n / (size_t)s.tokens;
    pal_rotary_args a = { .sequences = s.sequences, .cu_seqlens = s.cu_seqlens, .heads = (int)C / d, .width = d };
    float *table = take_floats(p, pal_rotary_table_floats(s.tokens, d));
    a.table = table;
    a.x = in_rows(floats(p, t), C);
    a.dy = in_rows(upstream(p, up, n), C);
    a.y = rows(take_floats(p, n), C);
    a.dx = rows(take_floats(p, n), C);
    if (failed(p)) return;
    pal_rotary_table(p->c->cx, table, 0, s.tokens, d, theta);
    pal_rotary(p->c->cx, &a);
    pal_rotary_backward(p->c->cx, &a);
    check(p, out, a.y.data, n);
    check(p, grad, a.dx.data, n);
}

static void run_rotary(prim *p) {
    const double theta = attribute(p, "theta");
    if (!failed(p) && !(theta > 0)) complain(p, PAL_E_FORMAT, "attribute 'theta' is %g, expected a number above 0", theta);
    if (failed(p)) return;
    rotate(p, "in.q", "in.dqr", "out.qr", "grad.q", theta);
    if (pal_safetensors_find(p->c->file, "in.k")) rotate(p, "in.k", "in.dkr", "out.kr", "grad.k", theta);
}

static void run_attention(prim *p) {
    const pal_memory_rule *rule = pal_memory_find("attention");
    if (!rule) {
        complain(p, PAL_E_UNSUPPORTED, "attention is not yet supported");
        return;
    }
    const pal_tensor *q = find(p, "in.q"), *k = failed(p) ? NULL : find(p, "in.k"), *v = failed(p) ? NULL : find(p, "in.v");
    if (failed(p)) return;
    const packing s = packed(p, q, 2);
    if (failed(p)) return;
    if (k->rank != q->rank || v->rank != q->rank) {
        complain(p, PAL_E_FORMAT, "in.q, in.k and in.v have %d, %d and %d axes, expected equal numbers", q->rank, k->rank, v->rank);
        return;
    }
    const int dk = last_axis(q), dv = last_axis(v), heads = (int)q->shape[q->rank - 2], key_heads = (int)k->shape[k->rank - 2];
    const size_t T = (size_t)s.tokens;
    if (k->count != T * (size_t)key_heads * (size_t)dk || last_axis(k) != dk || v->count != T * (size_t)key_heads * (size_t)dv || heads % key_heads) {
        complain(p, PAL_E_FORMAT, "in.k and in.v do not fit in.q (%d tokens, %d heads of %d)", s.tokens, heads, dk);
        return;
    }
    pal_memory_run run = { .shape = { .sequences = s.sequences, .tokens = s.tokens, .cu_seqlens = s.cu_seqlens, .heads = heads,
                                      .key_heads = key_heads, .dk = dk, .dv = dv, .context = s.tokens } };
    const size_t Cq = q->count / T, Ck = k->count / T, Cv = v->count / T, Co = (size_t)heads * (size_t)dv;
    const size_t forward = pal_memory_scratch_bytes(rule, p->c->cx, &run.shape, PAL_FORWARD);
    const size_t backward = pal_memory_scratch_bytes(rule, p->c->cx, &run.shape, PAL_BACKWARD);
    run.in.scale = (float)(1 / sqrt((double)dk));
    run.in.q = in_rows(floats(p, q), Cq);
    run.in.k = in_rows(floats(p, k), Ck);
    run.in.v = in_rows(floats(p, v), Cv);
    run.saved = take_floats(p, pal_memory_saved_floats(rule, &run.shape));
    run.scratch = take(p, forward > backward ? forward : backward, 1);
    run.y = rows(take_floats(p, T * Co), Co);
    run.dy = in_rows(upstream(p, "in.do", T * Co), Co);
    run.grad.q = rows(take_floats(p, q->count), Cq);
    run.grad.k = rows(take_floats(p, k->count), Ck);
    run.grad.v = rows(take_floats(p, v->count), Cv);
    if (failed(p)) return;
    pal_error err;
    if (pal_memory_forward(rule, p->c->cx, &run, &err) || pal_memory_backward(rule, p->c->cx, &run, &err)) {
        complain(p, err.status, "%s", err.text);
        return;
    }
    check(p, "out.o", run.y.data, T * Co);
    check(p, "grad.q", run.grad.q.data, q->count);
    check(p, "grad.k", run.grad.k.data, k->count);
    check(p, "grad.v", run.grad.v.data, v->count);
}

static void run_swiglu_mlp(prim *p) {
    const pal_tensor *t = find(p, "in.x"), *gate = failed(p) ? NULL : find(p, "in.w_gate"), *down = failed(p) ? NULL : find(p, "in.w_down");
    if (failed(p)) return;
    const pal_context *cx = p->c->cx;
    const size_t e = (size_t)last_axis(t), T = t->count / e, f = gate->count / e, o = down->count / f;
    if (gate->rank != 2 || (size_t)last_axis(gate) != e || down->rank != 2 || (size_t)last_axis(down) != f) {
        complain(p, PAL_E_FORMAT, "in.w_gate and in.w_down must be [F, %zu] and [out, F]", e);
        return;
    }
    const int M = (int)T, E = (int)e, F = (int)f, O = (int)o;
    const float *x = floats(p, t), *w_gate = floats(p, gate), *w_up = sized(p, "in.w_up", f * e), *w_down = floats(p, down);
    const float *dy = upstream(p, "in.dy", T * o);
    float *g = take_floats(p, T * f), *u = take_floats(p, T * f), *a = take_floats(p, T * f), *y = take_floats(p, T * o);
    float *dg = take_floats(p, T * f), *du = take_floats(p, T * f), *da = take_floats(p, T * f), *dx = take_floats(p, T * e);
    float *dw_gate = take_floats(p, f * e), *dw_up = take_floats(p, f * e), *dw_down = take_floats(p, o * f);
    if (failed(p)) return;
    const pal_swiglu_args args = { .rows = T, .width = F, .gate = in_rows(g, f), .up = in_rows(u, f), .y = rows(a, f),
                                   .dy = in_rows(da, f), .dgate = rows(dg, f), .dup = rows(du, f) };
    pal_matmul(cx, PAL_KEEP, PAL_TRANSPOSE, M, F, E, x, e, w_gate, e, PAL_OVERWRITE, g, f);
    pal_matmul(cx, PAL_KEEP, PAL_TRANSPOSE, M, F, E, x, e, w_up, e, PAL_OVERWRITE, u, f);
    pal_swiglu(cx, &args);
    pal_matmul(cx, PAL_KEEP, PAL_TRANSPOSE, M, O, F, a, f, w_down, f, PAL_OVERWRITE, y, o);
    pal_matmul(cx, PAL_KEEP, PAL_KEEP, M, F, O, dy, o, w_down, f, PAL_OVERWRITE, da, f);
    pal_matmul(cx, PAL_TRANSPOSE, PAL_KEEP, O, F, M, dy, o, a, f, PAL_ADD, dw_down, f);
    pal_swiglu_backward(cx, &args);
    pal_matmul(cx, PAL_KEEP, PAL_KEEP, M, E, F, dg, f, w_gate, e, PAL_OVERWRITE, dx, e);
    pal_matmul(cx, PAL_KEEP, PAL_KEEP, M, E, F, du, f, w_up, e, PAL_ADD, dx, e);
    pal_matmul(cx, PAL_TRANSPOSE, PAL_KEEP, F, E, M, dg, f, x, e, PAL_ADD, dw_gate, e);
    pal_matmul(cx, PAL_TRANSPOSE, PAL_KEEP, F, E, M, du, f, x, e, PAL_ADD, dw_up, e);
    check(p, "out.y", y, T * o);
    check(p, "grad.x", dx, T * e);
    check(p, "grad.w_gate", dw_gate, f * e);
    check(p, "grad.w_up", dw_up, f * e);
    check(p, "grad.w_down", dw_down, o * f);
}

static void run_cross_entropy(prim *p) {
    const pal_tensor *t = find(p, "in.logits"), *labels = failed(p) ? NULL : find(p, "in.labels");
    if (failed(p)) return;
    const size_t n = t->count, V = (size_t)last_axis(t);
    if (labels->count != n / V) {
        complain(p, PAL_E_FORMAT, "tensor 'in.labels' has %zu elements for %zu rows of logits", labels->count, n / V);
        return;
    }
    pal_cross_entropy_args a = { .rows = n / V, .vocab = (int)V };
    a.logits = in_rows(floats(p, t), V);
    a.labels = integers(p, labels, 0, (long long)V - 1, PAL_LABEL_IGNORED);
    a.nll = take_floats(p, n / V);
    a.dlogits = rows(take_floats(p, n), V);
    const float *dloss = upstream(p, "in.dloss", 1);
    if (failed(p)) return;
    const size_t count = pal_counted_labels(a.labels, a.rows);
    a.scale = count ? dloss[0] / (float)count : 0;
    const double sum = pal_cross_entropy(p->c->cx, &a);
    const float loss = count ? (float)(sum / (double)count) : 0;
    check(p, "out.loss", &loss, 1);
    check(p, "grad.logits", a.dlogits.data, n);
}

/* One parameter of an optimiser case; moments start at zero. */
typedef struct {
    const char *name; /* after "in." */
    size_t count;
    float *p, *m, *v, *g;
} parameter;

static void run_adamw(prim *p) {
    enum { MAX_PARAMETERS = 8, MAX_STEPS = 10000 };
    parameter params[MAX_PARAMETERS];
    int count = 0;
    size_t largest = 0;
    pal_adamw_step step = { .eps = attribute(p, "eps"), .weight_decay = attribute(p, "weight_decay") };
    const double clip = pal_safetensors_metadata(p->c->file, "clip") ? attribute(p, "clip") : 0;
    const char *betas = pal_safetensors_metadata(p->c->file, "betas");
    if (!betas || sscanf(betas, " [ %lf , %lf ]", &step.beta1, &step.beta2) != 2 || !(step.beta1 >= 0 && step.beta1 < 1) ||
        !(step.beta2 >= 0 && step.beta2 < 1))
        complain(p, PAL_E_FORMAT, "attribute 'betas' is '%s', expected [b1, b2] in [0, 1)", betas ? betas : "missing");
    for (size_t i = 0; i < pal_safetensors_count(p->c->file) && !failed(p); i++) {
        const pal_tensor *t = pal_safetensors_at(p->c->file, i);
        if (strncmp(t->name, "in.", 3) != 0 || strcmp(t->name, "in.lr") == 0 || strncmp(t->name, "in.grad.", 8) == 0) continue;
        if (count == MAX_PARAMETERS) complain(p, PAL_E_UNSUPPORTED, "more than %d parameters", MAX_PARAMETERS);
        if (!failed(p)) t = find(p, t->name); /* its shape */
        if (failed(p)) return;
        params[count++] = (parameter){ .name = t->name + 3, .count = t->count, .p = floats(p, t), .m = take_floats(p, t->count),
                                       .v = take_floats(p, t->count), .g = take_floats(p, t->count) };
        if (t->count > largest) largest = t->count;
    }
    double *scratch = take(p, pal_sum_squares_blocks(largest), sizeof *scratch);
    const pal_tensor *lr = failed(p) ? NULL : find(p, "in.lr");
    const float *lr32 = floats(p, lr);
    if (!failed(p) && (count == 0 || lr->count > MAX_STEPS))
        complain(p, PAL_E_FORMAT, "found %d parameters and %zu steps, expected at least one and at most %d", count, lr->count, MAX_STEPS);
    for (size_t i = 0; !failed(p) && i < lr->count; i++) {
        char name[256];
        double squares = 0;
        for (int k = 0; k < count; k++) {
            snprintf(name, sizeof name, "in.grad.%zu.%s", i, params[k].name);
            const pal_tensor *g = find(p, name);
            if (g && g->count != params[k].count) complain(p, PAL_E_FORMAT, "tensor '%s' has %zu elements, expected %zu", name, g->count, params[k].count);
            if (!failed(p) && pal_tensor_to_f32(g, params[k].g, &p->c->error)) p->c->status = p->c->error.status;
            if (failed(p)) return;
            squares += pal_sum_squares(p->c->cx, params[k].g, params[k].count, scratch);
        }
        const float norm = (float)sqrt(squares);
        snprintf(name, sizeof name, "out.gradnorm.%zu", i);
        check(p, name, &norm, 1);
        step.step = (int64_t)i + 1;
        step.factor = pal_clip_factor(sqrt(squares), clip);
        step.lr = (double)lr32[i];
        if (lr->dtype == PAL_F64) memcpy(&step.lr, (const char *)lr->data + i * sizeof step.lr, sizeof step.lr);
        for (int k = 0; k < count; k++) {
            pal_adamw(p->c->cx, &step, params[k].p, params[k].m, params[k].v, params[k].g, params[k].count);
            snprintf(name, sizeof name, "out.%zu.%s", i, params[k].name);
            check(p, name, params[k].p, params[k].count);
        }
    }
}

/* An op is its word alone or with a suffix that names a variety ("rmsnorm_small", "conv_silu_packed"); the more special
 * word comes first. */
static const struct {
    const char *word;
    void (*run)(prim *p);
} ops[] = {
    { "rmsnorm_then_gate", run_rmsnorm_then_gate }, { "gate_then_rmsnorm", run_gate_then_rmsnorm },
    { "rmsnorm", run_rmsnorm_plain },               { "layernorm", run_layernorm },
    { "l2_clamp", run_l2_clamp },                   { "l2_eps", run_l2_eps },
    { "conv_silu", run_conv },                      { "rotary", run_rotary },
    { "attention_gqa", run_attention },             { "swiglu_mlp", run_swiglu_mlp },
    { "cross_entropy", run_cross_entropy },         { "adamw", run_adamw },
};

int selftest_prim(selftest_case *c) {
    for (size_t i = 0; i < PAL_COUNT(ops); i++) {
        const size_t length = strlen(ops[i].word);
        if (strncmp(c->op, ops[i].word, length) != 0 || (c->op[length] && c->op[length] != '_')) continue;
        prim p = { .c = c };
        c->status = PAL_OK;
        ops[i].run(&p);
        while (p.used) pal_free(p.blocks[--p.used]);
        return 1;
    }
    return 0;
}
