/* SPDX-License-Identifier: MIT */
/* Operations on rows: arguments of src/kernels to kernels of rows.cl. */
#include <assert.h>

#include "device/opencl.h"
#include "kernels/activations/activations.h"
#include "kernels/conv/conv.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/loss/cross_entropy.h"
#include "kernels/norms/norms.h"
#include "kernels/rotary/rotary.h"

static const size_t group_floats = PAL_CL_ITEMS * sizeof(float);
static const char rows[] = "rows";

void pal_cl_rmsnorm(pal_device *device, const pal_rmsnorm_args *a) {
    const pal_cl_groups groups = { a->rows * (size_t)a->groups, 1, PAL_CL_ITEMS };
    pal_cl_launch(pal_opencl_of(device), rows, "", "rmsnorm", groups, "vvvpiiiifm", a->x, a->z, pal_reading(a->y), a->w,
                  a->groups, a->width, (int)a->gate, (int)a->shared_weight, (double)a->eps, group_floats);
}

void pal_cl_layernorm(pal_device *device, const pal_layernorm_args *a) {
    pal_cl_launch(pal_opencl_of(device), rows, "", "layernorm", (pal_cl_groups){ a->rows, 1, PAL_CL_ITEMS }, "vvppifm",
                  a->x, pal_reading(a->y), a->w, a->b, a->width, (double)a->eps, group_floats);
}

void pal_cl_l2norm(pal_device *device, const pal_l2norm_args *a) {
    const pal_cl_groups groups = { a->rows * (size_t)a->groups, 1, PAL_CL_ITEMS };
    pal_cl_launch(pal_opencl_of(device), rows, "", "l2norm", groups, "vviiim", a->x, pal_reading(a->y), a->groups,
                  a->width, (int)(a->kind == PAL_L2_CLAMP), group_floats);
}

void pal_cl_activate(pal_device *device, const pal_activation_args *a) {
    const size_t n = a->rows * (size_t)a->width;
    pal_cl_launch(pal_opencl_of(device), rows, "", "activate", pal_cl_items(n), "vvpuii", a->x, pal_reading(a->y),
                  a->bias, n, a->width, (int)a->kind);
}

void pal_cl_swiglu(pal_device *device, const pal_swiglu_args *a) {
    const size_t n = a->rows * (size_t)a->width;
    pal_cl_launch(pal_opencl_of(device), rows, "", "swiglu", pal_cl_items(n), "vvvui", a->gate, a->up,
                  pal_reading(a->y), n, a->width);
}

static size_t elements_of(const pal_head_gate_args *a) { return a->rows * (size_t)a->heads * (size_t)a->width; }

void pal_cl_head_gate(pal_device *device, const pal_head_gate_args *a) {
    pal_cl_launch(pal_opencl_of(device), rows, "", "head_gate", pal_cl_items(elements_of(a)), "vvvvvpuii", a->x, a->pre,
                  a->s, pal_reading(a->v), pal_reading(a->b), a->c, elements_of(a), a->heads, a->width);
}

void pal_cl_head_skip(pal_device *device, const pal_head_gate_args *a) {
    pal_cl_launch(pal_opencl_of(device), rows, "", "head_skip", pal_cl_items(elements_of(a)), "vvpuii", a->x,
                  pal_reading(a->o), a->D, elements_of(a), a->heads, a->width);
}

void pal_cl_elementwise(pal_device *device, pal_device_elementwise kind, const pal_elementwise_args *a) {
    const size_t n = a->rows * (size_t)a->width;
    pal_cl_launch(pal_opencl_of(device), rows, "", "elementwise", pal_cl_items(n), "vvvuifi", a->x, a->by,
                  pal_reading(a->y), n, a->width, (double)a->factor, (int)kind);
}

void pal_cl_bias_add(pal_device *device, float *y, size_t ld, size_t count, int width, const float *bias) {
    const size_t n = count * (size_t)width;
    pal_cl_launch(pal_opencl_of(device), rows, "", "bias_add", pal_cl_items(n), "vpui", (pal_const_view){ y, ld }, bias,
                  n, width);
}

void pal_cl_take_rows(pal_device *device, float *to, const float *from, const int *at, size_t n, int width) {
    const size_t most = PAL_CL_LIST / sizeof *at;
    for (size_t done = 0; done < n; done += most) {
        const size_t now = n - done < most ? n - done : most, floats = now * (size_t)width, skip = done * (size_t)width;
        pal_cl_launch(pal_opencl_of(device), rows, "", "take_rows", pal_cl_items(floats), "pplui", to + skip,
                      at ? from : from + skip, at ? at + done : NULL, now * sizeof *at, floats, width);
    }
}

void pal_cl_positive(pal_device *device, bool softplus, size_t n, const float *x, float *y) {
    pal_cl_launch(pal_opencl_of(device), rows, "", "positive", pal_cl_items(n), "ppui", x, y, n, (int)softplus);
}

void pal_cl_clamp(pal_device *device, size_t n, float low, float high, float *x) {
    pal_cl_launch(pal_opencl_of(device), rows, "", "limit", pal_cl_items(n), "puff", x, n, (double)low, (double)high);
}

void pal_cl_log_decay(pal_device *device, size_t count, int heads, int each, const float *A, const float *dt,
                      float *g) {
    const size_t n = count * (size_t)heads * (size_t)each;
    pal_cl_launch(pal_opencl_of(device), rows, "", "log_decay", pal_cl_items(n), "pppuii", A, dt, g, n, heads, each);
}

void pal_cl_rotary(pal_device *device, const pal_rotary_args *a, float sign, pal_const_view from, pal_view to) {
    const size_t tokens = (size_t)pal_sequence_begin(a->cu_seqlens, a->sequences), N = (size_t)a->sequences;
    const size_t n = tokens * (size_t)a->heads * (size_t)(a->width / 2);
    pal_cl_launch(pal_opencl_of(device), rows, "", "rotary", pal_cl_items(n), "vvllpuiiiif", from, pal_reading(to),
                  a->cu_seqlens, (N + 1) * sizeof(int), a->offsets, N * sizeof(int), a->table, n, a->sequences,
                  a->heads, a->width, a->stride ? a->stride : a->width, (double)sign);
}

/* Sequences first .. first+count-1, whose windows lie in one buffer; at: their bytes in it. */
static void convolve(pal_opencl *d, const pal_conv_args *a, int first, int count, const void *base,
                     const uint64_t *at) {
    const size_t N = (size_t)count;
    const int *cu = a->cu_seqlens ? a->cu_seqlens + first : NULL;
    const int begin = pal_sequence_begin(a->cu_seqlens, first), end = pal_sequence_begin(a->cu_seqlens, first + count);
    const size_t n = (size_t)(end - begin) * (size_t)a->channels, windows = N * (size_t)a->channels;
    pal_cl_launch(d, rows, "", "conv", pal_cl_items(n), "vvpplpluiiiii", a->x, pal_reading(a->y), a->w, a->bias, cu,
                  (N + 1) * sizeof *cu, base, a->fresh ? NULL : at, N * sizeof *at, n, begin, count, a->channels,
                  a->taps, (int)a->linear);
    if (!at || a->taps < 2) return;
    pal_cl_launch(d, rows, "", "conv_window", pal_cl_items(windows), "vlplluiiii", a->x, cu, (N + 1) * sizeof *cu, base,
                  at, N * sizeof *at, a->borrowed ? a->borrowed + first : NULL, N * sizeof(bool), windows, begin,
                  (int)a->fresh, a->channels, a->taps);
}

void pal_cl_conv_silu(pal_device *device, const pal_conv_args *a) {
    enum { RUN = 1024 };
    pal_opencl *d = pal_opencl_of(device);
    uint64_t at[RUN];
    assert(a->y.data != a->x.data); /* tokens do not wait for each other */
    for (int first = 0, count; first < a->sequences; first += count) {
        const void *base = NULL;
        const int most = a->sequences - first < RUN ? a->sequences : first + RUN;
        count = a->window ? pal_cl_run_of(d, a->window, first, most, at, &base) : a->sequences;
        if (!count) return;
        convolve(d, a, first, count, base, a->window ? at : NULL);
    }
}

void pal_cl_cross_entropy(pal_device *device, const pal_cross_entropy_args *a) {
    pal_opencl *d = pal_opencl_of(device);
    float *nll = pal_cl_temporary(d, 2 * a->rows);
    if (nll)
        pal_cl_launch(d, rows, "", "cross_entropy", (pal_cl_groups){ a->rows, 1, PAL_CL_ITEMS }, "vvlppifimmm",
                      a->logits, pal_reading(a->dlogits), a->labels, a->rows * sizeof *a->labels, nll, nll + a->rows,
                      a->vocab, (double)a->scale, (int)PAL_LABEL_IGNORED, group_floats, group_floats, group_floats);
    pal_cl_download(device, a->nll, nll, a->rows * sizeof *a->nll);
    if (a->argmax) pal_cl_download(device, a->argmax, nll ? nll + a->rows : NULL, a->rows * sizeof *a->argmax);
}
