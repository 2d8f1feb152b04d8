/* SPDX-License-Identifier: MIT */
/* Building blocks of `palimpsa selftest`: norms, convolution, rotary, attention, MLP, loss, optimiser. Sizes come from
 * the tensors, attributes from the metadata; whatever does not fit together is one sentence in the case's error. */
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

/* After the first failure every helper does nothing and returns NULL or 0, so a runner may collect all it needs and
 * look at c->broken once. */

static const pal_tensor *find(selftest_case *c, const char *name) {
    const pal_tensor *t = pal_safetensors_find(c->file, name);
    if (!t) {
        selftest_break(c, "op '%s' needs tensor '%s', which is missing", c->op, name);
        return NULL;
    }
    for (int i = 0; i < t->rank; i++)
        if (t->shape[i] < 1 || t->shape[i] > INT_MAX) {
            selftest_break(c, "tensor '%s': dimension %d is %lld, expected 1 to %d", name, i, (long long)t->shape[i],
                           INT_MAX);
            return NULL;
        }
    if (t->count > INT_MAX) {
        selftest_break(c, "tensor '%s' has %zu elements, a case may have at most %d", name, t->count, INT_MAX);
        return NULL;
    }
    return t;
}

static float *floats(selftest_case *c, const pal_tensor *t) {
    float *x = t ? selftest_floats(c, t->count) : NULL;
    if (x && pal_tensor_to_f32(t, x, &c->error)) c->broken = true;
    return c->broken ? NULL : x;
}

/* Tensor `name` with exactly `count` elements. */
static float *sized(selftest_case *c, const char *name, size_t count) {
    const pal_tensor *t = c->broken ? NULL : find(c, name);
    if (t && t->count != count) selftest_break(c, "tensor '%s' has %zu elements, expected %zu", name, t->count, count);
    return c->broken ? NULL : floats(c, t);
}

/* The same, or zeros when the file has none: an absent upstream gradient. */
static float *upstream(selftest_case *c, const char *name, size_t count) {
    if (c->broken) return NULL;
    return pal_safetensors_find(c->file, name) ? sized(c, name, count) : selftest_floats(c, count);
}

/* Integers of any integer dtype, each in low .. high or equal to `also`. */
static int *integers(selftest_case *c, const pal_tensor *t, long long low, long long high, long long also) {
    int *x = t && !c->broken ? selftest_bytes(c, (t->count) * sizeof *x) : NULL;
    if (!x) return NULL;
    if (t->dtype != PAL_I64 && t->dtype != PAL_I32) {
        selftest_break(c, "tensor '%s' is %s, expected I64 or I32", t->name, pal_dtype_name(t->dtype));
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
            selftest_break(c, "tensor '%s': element %zu is %lld, expected %lld to %lld", t->name, i, (long long)value,
                           low, high);
            return NULL;
        }
        x[i] = (int)value;
    }
    return x;
}

static double attribute(selftest_case *c, const char *key) {
    const char *text = pal_safetensors_metadata(c->file, key);
    char *end;
    if (c->broken) return 0;
    if (!text) {
        selftest_break(c, "op '%s' needs the attribute '%s', which is missing", c->op, key);
        return 0;
    }
    const double value = strtod(text, &end);
    if (end == text || *end || !isfinite(value))
        selftest_break(c, "attribute '%s' is '%s', expected a number", key, text);
    return value;
}

/* Spec section 10. */
static void check(selftest_case *c, const char *name, const float *value, size_t count) {
    if (!c->broken) selftest_check(c, name, NULL, value, count, strncmp(name, "grad.", 5) == 0 ? 5e-6 : 2e-6);
}

static pal_const_view in_rows(const float *data, size_t stride) { return (pal_const_view){ data, stride }; }
static pal_view rows(float *data, size_t stride) { return (pal_view){ data, stride }; }

static int last_axis(const pal_tensor *t) { return t->rank ? (int)t->shape[t->rank - 1] : 1; }

static void run_rmsnorm(selftest_case *c, pal_norm_gate gate) {
    const pal_tensor *t = find(c, "in.x");
    if (!t) return;
    const int channels = last_axis(t);
    const size_t n = t->count, C = (size_t)channels;
    double groups = 1;
    if (gate == PAL_GATE_BEFORE && pal_safetensors_metadata(c->file, "groups")) groups = attribute(c, "groups");
    if (!(groups >= 1 && groups <= channels) || groups != floor(groups) || channels % (int)groups) {
        selftest_break(c, "attribute 'groups' is %g, expected a divisor of the %d channels", groups, channels);
        return;
    }
    pal_rmsnorm_args a = { .rows = n / C, .groups = (int)groups, .width = channels / (int)groups, .gate = gate };
    float *scratch = selftest_floats(c, pal_rmsnorm_scratch_floats(&a));
    a.eps = (float)attribute(c, "eps");
    a.x = in_rows(floats(c, t), C);
    if (gate) a.z = in_rows(sized(c, "in.z", n), C);
    a.w = sized(c, "in.w", C);
    a.dy = in_rows(upstream(c, "in.dy", n), C);
    a.y = rows(selftest_floats(c, n), C);
    a.dx = rows(selftest_floats(c, n), C);
    if (gate) a.dz = rows(selftest_floats(c, n), C);
    a.dw = selftest_floats(c, C);
    if (c->broken) return;
    pal_rmsnorm(c->cx, &a);
    pal_rmsnorm_backward(c->cx, &a, scratch);
    check(c, "out.y", a.y.data, n);
    check(c, "grad.x", a.dx.data, n);
    if (gate) check(c, "grad.z", a.dz.data, n);
    check(c, "grad.w", a.dw, C);
}
static void run_rmsnorm_plain(selftest_case *c) { run_rmsnorm(c, PAL_GATE_NONE); }
static void run_rmsnorm_then_gate(selftest_case *c) { run_rmsnorm(c, PAL_GATE_AFTER); }
static void run_gate_then_rmsnorm(selftest_case *c) { run_rmsnorm(c, PAL_GATE_BEFORE); }

static void run_layernorm(selftest_case *c) {
    const pal_tensor *t = find(c, "in.x");
    if (!t) return;
    const size_t n = t->count, C = (size_t)last_axis(t);
    pal_layernorm_args a = { .rows = n / C, .width = (int)C };
    float *scratch = selftest_floats(c, pal_layernorm_scratch_floats(&a));
    a.eps = (float)attribute(c, "eps");
    a.x = in_rows(floats(c, t), C);
    a.w = sized(c, "in.w", C);
    a.b = sized(c, "in.b", C);
    a.dy = in_rows(upstream(c, "in.dy", n), C);
    a.y = rows(selftest_floats(c, n), C);
    a.dx = rows(selftest_floats(c, n), C);
    a.dw = selftest_floats(c, C);
    a.db = selftest_floats(c, C);
    if (c->broken) return;
    pal_layernorm(c->cx, &a);
    pal_layernorm_backward(c->cx, &a, scratch);
    check(c, "out.y", a.y.data, n);
    check(c, "grad.x", a.dx.data, n);
    check(c, "grad.w", a.dw, C);
    check(c, "grad.b", a.db, C);
}

static void run_l2(selftest_case *c, pal_l2_kind kind) {
    const pal_tensor *t = find(c, "in.x");
    if (!t) return;
    const size_t n = t->count, C = (size_t)last_axis(t);
    pal_l2norm_args a = { .rows = n / C, .groups = 1, .width = (int)C, .kind = kind };
    a.x = in_rows(floats(c, t), C);
    a.dy = in_rows(upstream(c, "in.dy", n), C);
    a.y = rows(selftest_floats(c, n), C);
    a.dx = rows(selftest_floats(c, n), C);
    if (c->broken) return;
    pal_l2norm(c->cx, &a);
    pal_l2norm_backward(c->cx, &a);
    check(c, "out.y", a.y.data, n);
    check(c, "grad.x", a.dx.data, n);
}
static void run_l2_clamp(selftest_case *c) { run_l2(c, PAL_L2_CLAMP); }
static void run_l2_eps(selftest_case *c) { run_l2(c, PAL_L2_EPS); }

/* Sequences of an input [batch, tokens, ...] whose last `inner` axes belong to a token: the file's in.cu_seqlens (batch
 * must be 1 then), or equal lengths. */
typedef struct {
    int sequences, tokens;
    const int *cu_seqlens;
} packing;

static packing packed(selftest_case *c, const pal_tensor *t, int inner) {
    packing s = { 0 };
    if (c->broken) return s;
    if (t->rank < inner + 1 || t->rank > inner + 2) {
        selftest_break(c, "tensor '%s' has %d axes, expected %d or %d", t->name, t->rank, inner + 1, inner + 2);
        return s;
    }
    const int length = (int)t->shape[t->rank - inner - 1], batch = t->rank == inner + 2 ? (int)t->shape[0] : 1;
    s.tokens = batch * length;
    if (pal_safetensors_find(c->file, "in.cu_seqlens")) {
        const pal_tensor *cu = find(c, "in.cu_seqlens");
        const int *at = integers(c, cu, 0, s.tokens, 0);
        if (c->broken) return s;
        s.sequences = (int)cu->count - 1;
        s.cu_seqlens = at;
        if (batch != 1) selftest_break(c, "a packed case has batch 1, found %d", batch);
        if (s.sequences < 1 || at[0] != 0 || at[s.sequences] != s.tokens)
            selftest_break(c, "in.cu_seqlens must go from 0 to the number of tokens, %d", s.tokens);
        for (int i = 0; i < s.sequences; i++)
            if (at[i + 1] <= at[i])
                selftest_break(c, "in.cu_seqlens must increase; entry %d is %d after %d", i + 1, at[i + 1], at[i]);
        return s;
    }
    int *at = selftest_bytes(c, ((size_t)batch + 1) * sizeof *at);
    for (int i = 0; at && i <= batch; i++) at[i] = i * length;
    s.sequences = batch;
    s.cu_seqlens = at;
    return s;
}

static void run_conv(selftest_case *c) {
    const pal_tensor *t = find(c, "in.x"), *w = c->broken ? NULL : find(c, "in.w");
    if (c->broken) return;
    const packing s = packed(c, t, 1);
    const size_t n = t->count, C = (size_t)last_axis(t), W = (size_t)last_axis(w);
    if (w->count != C * W || w->rank < 2 || W > PAL_CONV_MAX_TAPS)
        selftest_break(c, "tensor 'in.w' must be [%zu, 1, taps] with at most %d taps; it has %d axes and %zu elements",
                       C, PAL_CONV_MAX_TAPS, w->rank, w->count);
    if (c->broken) return;
    const bool bias = pal_safetensors_find(c->file, "in.b") != NULL;
    pal_conv_args a = { .sequences = s.sequences, .cu_seqlens = s.cu_seqlens, .channels = (int)C, .taps = (int)W };
    float *scratch = selftest_floats(c, pal_conv_silu_scratch_floats(&a));
    a.x = in_rows(floats(c, t), C);
    a.w = floats(c, w);
    if (bias) a.bias = sized(c, "in.b", C);
    a.dy = in_rows(upstream(c, "in.dy", n), C);
    a.y = rows(selftest_floats(c, n), C);
    a.dx = rows(selftest_floats(c, n), C);
    a.dw = selftest_floats(c, C * W);
    if (bias) a.dbias = selftest_floats(c, C);
    if (c->broken) return;
    pal_conv_silu(c->cx, &a);
    pal_conv_silu_backward(c->cx, &a, scratch);
    check(c, "out.y", a.y.data, n);
    check(c, "grad.x", a.dx.data, n);
    check(c, "grad.w", a.dw, C * W);
    if (bias) check(c, "grad.b", a.dbias, C);
}

static void rotate(selftest_case *c, const char *in, const char *up, const char *out, const char *grad, double theta) {
    const pal_tensor *t = find(c, in);
    if (c->broken) return;
    const packing s = packed(c, t, 2);
    const int d = last_axis(t);
    if (d % 2) selftest_break(c, "tensor '%s': heads of %d channels, expected an even number", in, d);
    if (c->broken) return;
    const size_t n = t->count, C = n / (size_t)s.tokens;
    pal_rotary_args a = { .sequences = s.sequences, .cu_seqlens = s.cu_seqlens, .heads = (int)C / d, .width = d };
    float *table = selftest_floats(c, pal_rotary_table_floats(s.tokens, d));
    a.table = table;
    a.x = in_rows(floats(c, t), C);
    a.dy = in_rows(upstream(c, up, n), C);
    a.y = rows(selftest_floats(c, n), C);
    a.dx = rows(selftest_floats(c, n), C);
    if (c->broken) return;
    pal_rotary_table(c->cx, table, 0, s.tokens, d, theta);
    pal_rotary(c->cx, &a);
    pal_rotary_backward(c->cx, &a);
    check(c, out, a.y.data, n);
    check(c, grad, a.dx.data, n);
}

static void run_rotary(selftest_case *c) {
    const double theta = attribute(c, "theta");
    if (!c->broken && !(theta > 0)) selftest_break(c, "attribute 'theta' is %g, expected a number above 0", theta);
    if (c->broken) return;
    rotate(c, "in.q", "in.dqr", "out.qr", "grad.q", theta);
    if (pal_safetensors_find(c->file, "in.k")) rotate(c, "in.k", "in.dkr", "out.kr", "grad.k", theta);
}

static void run_attention(selftest_case *c) {
    const pal_memory_rule *rule = pal_memory_find("attention");
    const pal_tensor *q = find(c, "in.q"), *k = c->broken ? NULL : find(c, "in.k"),
                     *v = c->broken ? NULL : find(c, "in.v");
    if (c->broken) return;
    const packing s = packed(c, q, 2);
    if (c->broken) return;
    if (k->rank != q->rank || v->rank != q->rank) {
        selftest_break(c, "in.q, in.k and in.v have %d, %d and %d axes, expected equal numbers", q->rank, k->rank,
                       v->rank);
        return;
    }
    const int dk = last_axis(q), dv = last_axis(v), heads = (int)q->shape[q->rank - 2],
              key_heads = (int)k->shape[k->rank - 2];
    const size_t T = (size_t)s.tokens;
    if (k->count != T * (size_t)key_heads * (size_t)dk || last_axis(k) != dk ||
        v->count != T * (size_t)key_heads * (size_t)dv || heads % key_heads) {
        selftest_break(c, "in.k and in.v do not fit in.q (%d tokens, %d heads of %d)", s.tokens, heads, dk);
        return;
    }
    pal_memory_run run = { .shape = { .sequences = s.sequences,
                                      .tokens = s.tokens,
                                      .cu_seqlens = s.cu_seqlens,
                                      .heads = heads,
                                      .key_heads = key_heads,
                                      .dk = dk,
                                      .dv = dv,
                                      .context = s.tokens } };
    const size_t Cq = (size_t)heads * (size_t)dk, Ck = (size_t)key_heads * (size_t)dk,
                 Cv = (size_t)key_heads * (size_t)dv, Co = (size_t)heads * (size_t)dv;
    const size_t forward = pal_memory_scratch_bytes(rule, c->cx, &run.shape, PAL_FORWARD);
    const size_t backward = pal_memory_scratch_bytes(rule, c->cx, &run.shape, PAL_BACKWARD);
    run.in.scale = (float)(1 / sqrt((double)dk));
    run.in.q = in_rows(floats(c, q), Cq);
    run.in.k = in_rows(floats(c, k), Ck);
    run.in.v = in_rows(floats(c, v), Cv);
    run.saved = selftest_floats(c, pal_memory_saved_floats(rule, &run.shape));
    run.scratch = selftest_bytes(c, forward > backward ? forward : backward);
    run.y = rows(selftest_floats(c, T * Co), Co);
    run.dy = in_rows(upstream(c, "in.do", T * Co), Co);
    run.grad.q = rows(selftest_floats(c, q->count), Cq);
    run.grad.k = rows(selftest_floats(c, k->count), Ck);
    run.grad.v = rows(selftest_floats(c, v->count), Cv);
    if (c->broken) return;
    pal_error err;
    if (pal_memory_forward(rule, c->cx, &run, &err) || pal_memory_backward(rule, c->cx, &run, &err)) {
        selftest_break(c, "%s", err.text);
        return;
    }
    check(c, "out.o", run.y.data, T * Co);
    check(c, "grad.q", run.grad.q.data, q->count);
    check(c, "grad.k", run.grad.k.data, k->count);
    check(c, "grad.v", run.grad.v.data, v->count);
}

static void run_swiglu_mlp(selftest_case *c) {
    const pal_tensor *t = find(c, "in.x"), *gate = c->broken ? NULL : find(c, "in.w_gate"),
                     *down = c->broken ? NULL : find(c, "in.w_down");
    if (c->broken) return;
    const pal_context *cx = c->cx;
    const size_t e = (size_t)last_axis(t), T = t->count / e;
    if (gate->rank != 2 || (size_t)last_axis(gate) != e || down->rank != 2 || last_axis(down) != gate->shape[0]) {
        selftest_break(c, "in.w_gate and in.w_down must be [F, %zu] and [out, F]", e);
        return;
    }
    const size_t f = (size_t)gate->shape[0], o = (size_t)down->shape[0];
    const int M = (int)T, E = (int)e, F = (int)f, O = (int)o;
    const float *x = floats(c, t), *w_gate = floats(c, gate), *w_up = sized(c, "in.w_up", f * e),
                *w_down = floats(c, down);
    const float *dy = upstream(c, "in.dy", T * o);
    float *g = selftest_floats(c, T * f), *u = selftest_floats(c, T * f), *a = selftest_floats(c, T * f),
          *y = selftest_floats(c, T * o);
    float *dg = selftest_floats(c, T * f), *du = selftest_floats(c, T * f), *da = selftest_floats(c, T * f),
          *dx = selftest_floats(c, T * e);
    float *dw_gate = selftest_floats(c, f * e), *dw_up = selftest_floats(c, f * e),
          *dw_down = selftest_floats(c, o * f);
    if (c->broken) return;
    const pal_swiglu_args args = { .rows = T,
                                   .width = F,
                                   .gate = in_rows(g, f),
                                   .up = in_rows(u, f),
                                   .y = rows(a, f),
                                   .dy = in_rows(da, f),
                                   .dgate = rows(dg, f),
                                   .dup = rows(du, f) };
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
    check(c, "out.y", y, T * o);
    check(c, "grad.x", dx, T * e);
    check(c, "grad.w_gate", dw_gate, f * e);
    check(c, "grad.w_up", dw_up, f * e);
    check(c, "grad.w_down", dw_down, o * f);
}

static void run_cross_entropy(selftest_case *c) {
    const pal_tensor *t = find(c, "in.logits"), *labels = c->broken ? NULL : find(c, "in.labels");
    if (c->broken) return;
    const size_t n = t->count, V = (size_t)last_axis(t);
    if (labels->count != n / V) {
        selftest_break(c, "tensor 'in.labels' has %zu elements for %zu rows of logits", labels->count, n / V);
        return;
    }
    pal_cross_entropy_args a = { .rows = n / V, .vocab = (int)V };
    a.logits = in_rows(floats(c, t), V);
    a.labels = integers(c, labels, 0, (long long)V - 1, PAL_LABEL_IGNORED);
    a.nll = selftest_floats(c, n / V);
    a.dlogits = rows(selftest_floats(c, n), V);
    const float *dloss = upstream(c, "in.dloss", 1);
    if (c->broken) return;
    const size_t count = pal_counted_labels(a.labels, a.rows);
    a.scale = count ? dloss[0] / (float)count : 0;
    const double sum = pal_cross_entropy(c->cx, &a);
    const float loss = count ? (float)(sum / (double)count) : 0;
    check(c, "out.loss", &loss, 1);
    check(c, "grad.logits", a.dlogits.data, n);
}

/* One parameter of an optimiser case; moments start at zero. */
typedef struct {
    const char *name; /* after "in." */
    size_t count;
    float *p, *m, *v, *g;
} parameter;

static void run_adamw(selftest_case *c) {
    enum { MAX_PARAMETERS = 8, MAX_STEPS = 10000 };
    parameter params[MAX_PARAMETERS];
    int count = 0;
    size_t largest = 0;
    pal_adamw_step step = { .eps = attribute(c, "eps"), .weight_decay = attribute(c, "weight_decay") };
    const double clip = pal_safetensors_metadata(c->file, "clip") ? attribute(c, "clip") : 0;
    const char *betas = pal_safetensors_metadata(c->file, "betas");
    if (!betas || sscanf(betas, " [ %lf , %lf ]", &step.beta1, &step.beta2) != 2 ||
        !(step.beta1 >= 0 && step.beta1 < 1) || !(step.beta2 >= 0 && step.beta2 < 1))
        selftest_break(c, "attribute 'betas' is '%s', expected [b1, b2] in [0, 1)", betas ? betas : "missing");
    for (size_t i = 0; i < pal_safetensors_count(c->file) && !c->broken; i++) {
        const pal_tensor *t = pal_safetensors_at(c->file, i);
        if (strncmp(t->name, "in.", 3) != 0 || strcmp(t->name, "in.lr") == 0 || strncmp(t->name, "in.grad.", 8) == 0)
            continue;
        if (count == MAX_PARAMETERS) selftest_break(c, "more than %d parameters", MAX_PARAMETERS);
        if (!c->broken) t = find(c, t->name); /* its shape */
        if (c->broken) return;
        params[count++] = (parameter){ .name = t->name + 3,
                                       .count = t->count,
                                       .p = floats(c, t),
                                       .m = selftest_floats(c, t->count),
                                       .v = selftest_floats(c, t->count),
                                       .g = selftest_floats(c, t->count) };
        if (t->count > largest) largest = t->count;
    }
    double *scratch = selftest_bytes(c, (pal_sum_squares_blocks(largest)) * sizeof *scratch);
    const pal_tensor *lr = c->broken ? NULL : find(c, "in.lr");
    const float *lr32 = floats(c, lr);
    if (!c->broken && (count == 0 || lr->count > MAX_STEPS))
        selftest_break(c, "found %d parameters and %zu steps, expected at least one and at most %d", count, lr->count,
                       MAX_STEPS);
    for (size_t i = 0; !c->broken && i < lr->count; i++) {
        char name[256];
        double squares = 0;
        for (int k = 0; k < count; k++) {
            snprintf(name, sizeof name, "in.grad.%zu.%s", i, params[k].name);
            const pal_tensor *g = find(c, name);
            if (g && g->count != params[k].count)
                selftest_break(c, "tensor '%s' has %zu elements, expected %zu", name, g->count, params[k].count);
            if (!c->broken && pal_tensor_to_f32(g, params[k].g, &c->error)) c->broken = true;
            if (c->broken) return;
            squares += pal_sum_squares(c->cx, params[k].g, params[k].count, scratch);
        }
        const float norm = (float)sqrt(squares);
        snprintf(name, sizeof name, "out.gradnorm.%zu", i);
        check(c, name, &norm, 1);
        step.step = (int64_t)i + 1;
        step.factor = pal_clip_factor(sqrt(squares), clip);
        step.lr = (double)lr32[i];
        if (lr->dtype == PAL_F64) memcpy(&step.lr, (const char *)lr->data + i * sizeof step.lr, sizeof step.lr);
        for (int k = 0; k < count; k++) {
            pal_adamw(c->cx, &step, params[k].p, params[k].m, params[k].v, params[k].g, params[k].count);
            snprintf(name, sizeof name, "out.%zu.%s", i, params[k].name);
            check(c, name, params[k].p, params[k].count);
        }
    }
}

/* An op is its word alone or with a suffix that names a variety ("rmsnorm_small", "conv_silu_packed"); the more special
 * word comes first. */
static const struct {
    const char *word;
    void (*run)(selftest_case *c);
} ops[] = {
    { "rmsnorm_then_gate", run_rmsnorm_then_gate },
    { "gate_then_rmsnorm", run_gate_then_rmsnorm },
    { "rmsnorm", run_rmsnorm_plain },
    { "layernorm", run_layernorm },
    { "l2_clamp", run_l2_clamp },
    { "l2_eps", run_l2_eps },
    { "conv_silu", run_conv },
    { "rotary", run_rotary },
    { "attention_gqa", run_attention },
    { "swiglu_mlp", run_swiglu_mlp },
    { "cross_entropy", run_cross_entropy },
    { "adamw", run_adamw },
};

bool selftest_prim(selftest_case *c) {
    for (size_t i = 0; i < PAL_COUNT(ops); i++) {
        const size_t length = strlen(ops[i].word);
        if (strncmp(c->op, ops[i].word, length) != 0 || (c->op[length] && c->op[length] != '_')) continue;
        ops[i].run(c);
        return true;
    }
    return false;
}
