/* SPDX-License-Identifier: MIT */
/* A device: something other than the CPU that computes, called through one table of functions. The stack stays the only
 * description of a computation: an operation whose context has a device hands its arguments to that device's table.
 *
 * Numbers on a device are named by addresses that are reserved and can be neither read nor written. Arithmetic on them
 * is ordinary, so views, arenas and offsets work as on the CPU; a loop that reads one by mistake faults at once instead
 * of computing with stale numbers. */
#ifndef PAL_BASE_DEVICE_H
#define PAL_BASE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/context.h"
#include "palimpsa/matrix.h"
#include "palimpsa/view.h"

typedef struct pal_device pal_device;

struct pal_rmsnorm_args;
struct pal_layernorm_args;
struct pal_l2norm_args;
struct pal_activation_args;
struct pal_swiglu_args;
struct pal_head_gate_args;
struct pal_conv_args;
struct pal_elementwise_args;
struct pal_cross_entropy_args;
struct pal_matvec_args;
struct pal_matmul_args;
struct pal_rotary_args;
struct pal_gates_args;
struct pal_memory_run;
struct pal_memory_rule;

typedef enum pal_device_elementwise {
    PAL_DEVICE_SCALE,
    PAL_DEVICE_MULTIPLY,
    PAL_DEVICE_COPY,
    PAL_DEVICE_ADD,
    PAL_DEVICE_RELU2,
    PAL_DEVICE_RELU2_BACKWARD
} pal_device_elementwise;

typedef struct pal_device_ops {
    void (*close)(pal_device *d);
    /* bytes of zeros at an address of the device; released by free (NULL is fine). */
    pal_status (*alloc)(pal_device *d, void **out, size_t bytes, const char *what, pal_error *err);
    void (*free)(pal_device *d, void *block);
    /* For tests of single operations: bytes of the host that operations may be given as if they were the device's. They
     * go there before each operation and come back after it. Released by free, which leaves the host's bytes alone. */
    pal_status (*lend)(pal_device *d, void *host, size_t bytes, pal_error *err);
    void (*upload)(pal_device *d, void *to, const void *from, size_t bytes);   /* `from` may be changed afterwards */
    void (*download)(pal_device *d, void *to, const void *from, size_t bytes); /* waits for what was started before */
    /* Everything below is only started. What goes wrong is kept, and later operations do nothing until check, which
     * waits, has said it. */
    pal_status (*check)(pal_device *d, pal_error *err);
    bool (*runs_rule)(const pal_device *d, const struct pal_memory_rule *rule);
    bool (*runs_type)(const pal_device *d, pal_dtype type); /* of a matrix that products read */

    void (*rmsnorm)(pal_device *d, const struct pal_rmsnorm_args *a);
    void (*layernorm)(pal_device *d, const struct pal_layernorm_args *a);
    void (*l2norm)(pal_device *d, const struct pal_l2norm_args *a);
    void (*activate)(pal_device *d, const struct pal_activation_args *a);
    void (*swiglu)(pal_device *d, const struct pal_swiglu_args *a);
    void (*head_gate)(pal_device *d, const struct pal_head_gate_args *a);
    void (*head_skip)(pal_device *d, const struct pal_head_gate_args *a);
    void (*conv_silu)(pal_device *d, const struct pal_conv_args *a);
    void (*elementwise)(pal_device *d, pal_device_elementwise kind, const struct pal_elementwise_args *a);
    void (*cross_entropy)(pal_device *d, const struct pal_cross_entropy_args *a); /* nll and argmax: on the host */
    void (*product)(pal_device *d, const struct pal_matvec_args *a, bool steps);
    void (*gather_rows)(pal_device *d, const pal_matrix *w, const int32_t *ids, size_t count, float *out, size_t ld);
    void (*rotary)(pal_device *d, const struct pal_rotary_args *a, float sign, pal_const_view from, pal_view to);
    void (*bias_add)(pal_device *d, float *y, size_t ld, size_t rows, int width, const float *bias);
    void (*copy)(pal_device *d, float *to, const float *from, size_t n); /* either may be on the host */
    void (*fill)(pal_device *d, float *x, size_t n, float value);
    void (*take_rows)(pal_device *d, float *to, const float *from, const int *at, size_t n, int width);
    void (*positive)(pal_device *d, bool softplus, size_t n, const float *x, float *y);
    void (*clamp)(pal_device *d, size_t n, float low, float high, float *x);
    void (*log_decay)(pal_device *d, size_t rows, int heads, int each, const float *A, const float *dt, float *g);
    void (*memory)(pal_device *d, const struct pal_memory_rule *rule, const struct pal_memory_run *run, int pass);
} pal_device_ops;

struct pal_device {
    const pal_device_ops *ops;
};

/* The first line of an operation: PAL_ON_DEVICE(cx, rmsnorm, args); */
#define PAL_ON_DEVICE(cx, op, ...)                            \
    do {                                                      \
        if ((cx)->device) {                                   \
            (cx)->device->ops->op((cx)->device, __VA_ARGS__); \
            return;                                           \
        }                                                     \
    } while (0)

/* What went wrong on the context's device since the last call; PAL_OK on the CPU. */
static inline pal_status pal_device_check(const pal_context *cx, pal_error *err) {
    return cx->device ? cx->device->ops->check(cx->device, err) : PAL_OK;
}

#endif
