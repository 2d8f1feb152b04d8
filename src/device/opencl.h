/* SPDX-License-Identifier: MIT */
/* An OpenCL device: its buffers with reserved addresses, its programs, and how kernels are launched. One queue, in
 * order; no atomics; every sum has a fixed shape, so that the same device and driver give the same bits. */
#ifndef PAL_DEVICE_OPENCL_H
#define PAL_DEVICE_OPENCL_H

#include <pthread.h>

#include "base/device.h"
#include "device/cl.h"
#include "palimpsa/device.h"

enum { PAL_CL_ITEMS = 64 }; /* work-items of a group wherever nothing else is said */

/* A buffer and the addresses that stand for it. */
typedef struct pal_cl_range {
    char *base;
    size_t bytes, reserved;
    cl_mem mem;
    bool lent; /* the base is memory of the host, for tests */
} pal_cl_range;

typedef struct pal_cl_program {
    char file[16], options[64];
    cl_program program;
} pal_cl_program;
typedef struct pal_cl_kernel {
    char file[16], options[64], name[32];
    cl_kernel kernel;
} pal_cl_kernel;

typedef struct pal_opencl {
    pal_device base;
    pal_device_info info;
    pal_cl_library cl;
    cl_device device;
    cl_context context;
    cl_queue queue;
    pthread_mutex_t lock;
    pal_cl_range *ranges; /* in order of addresses */
    int range_count, range_room;
    pal_cl_program programs[64];
    int program_count;
    pal_cl_kernel kernels[128];
    int kernel_count;
    cl_mem nothing; /* what a pointer that is NULL points to */
    /* Lists that the host gives kernels, in a ring that is mirrored on the device. */
    char *ring;
    cl_mem ring_mem;
    size_t ring_bytes, ring_at;
    float *temporary; /* of one operation */
    size_t temporary_floats;
    bool failed;
    char sentence[1024]; /* what failed first */
} pal_opencl;

static inline pal_opencl *pal_opencl_of(pal_device *d) { return (pal_opencl *)(void *)d; }

/* The sources of src/device/kernels, made by the build; the last has no name. */
typedef struct pal_cl_source {
    const char *name;
    const unsigned char *text;
    size_t size;
} pal_cl_source;
extern const pal_cl_source pal_cl_sources[];

/* Keeps the first failure. */
void pal_cl_broke(pal_opencl *d, const char *what, cl_int code);

/* buffers.c */
pal_status pal_cl_alloc(pal_device *d, void **out, size_t bytes, const char *what, pal_error *err);
void pal_cl_free(pal_device *d, void *block);
pal_status pal_cl_lend(pal_device *d, void *host, size_t bytes, pal_error *err);
/* Between the host and the device: what is lent of this range. */
void pal_cl_bring_lent(pal_opencl *d, const pal_cl_range *range);
void pal_cl_return_lent(pal_opencl *d, const pal_cl_range *range);
const pal_cl_range *pal_cl_find(const pal_opencl *d, const void *at); /* NULL: not of the device */
void pal_cl_upload(pal_device *d, void *to, const void *from, size_t bytes);
void pal_cl_download(pal_device *d, void *to, const void *from, size_t bytes);
void pal_cl_copy(pal_device *d, float *to, const float *from, size_t n);
void pal_cl_fill(pal_device *d, float *x, size_t n, float value);
/* So many floats until the next operation asks; NULL after a failure. */
float *pal_cl_temporary(pal_opencl *d, size_t floats);
/* Puts a list into the ring; returns where it begins there. Half of the ring is free after pal_cl_make_room; longer
 * lists are cut by who gives them. */
enum { PAL_CL_RING = 32 << 20, PAL_CL_LIST = 8 << 20 };
void pal_cl_make_room(pal_opencl *d);
size_t pal_cl_list(pal_opencl *d, const void *list, size_t bytes);

/* launch.c: starts kernel `name` of file `file`, built with `options`, over groups x y groups of `items` work-items.
 * `kinds` says what follows, a letter each:
 *   p  const void *: an address of the device, or NULL
 *   v  pal_const_view
 *   l  const void *, size_t: a list on the host and its bytes
 *   s  const void *, size_t: a structure that the kernel takes by value
 *   i  int         u  size_t         f  double, which becomes a float
 *   m  size_t: bytes of local memory */
typedef struct pal_cl_groups {
    size_t x, y;
    int items;
} pal_cl_groups;
void pal_cl_launch(pal_opencl *d, const char *file, const char *options, const char *name, pal_cl_groups groups,
                   const char *kinds, ...);
/* Groups of PAL_CL_ITEMS for so many work-items. */
static inline pal_cl_groups pal_cl_items(size_t n) {
    return (pal_cl_groups){ (n + PAL_CL_ITEMS - 1) / PAL_CL_ITEMS, 1, PAL_CL_ITEMS };
}

/* Consecutive sequences whose pointers lie in one buffer: those from `first` on. at: (n) their bytes from the buffer's
 * start. Returns how many; 0 after a failure. */
int pal_cl_run_of(pal_opencl *d, float *const *pointers, int first, int n, uint64_t *at, const void **base);

/* rows.c, products.c, memories.c */
extern const pal_device_ops pal_opencl_ops;
void pal_cl_rmsnorm(pal_device *d, const struct pal_rmsnorm_args *a);
void pal_cl_layernorm(pal_device *d, const struct pal_layernorm_args *a);
void pal_cl_l2norm(pal_device *d, const struct pal_l2norm_args *a);
void pal_cl_activate(pal_device *d, const struct pal_activation_args *a);
void pal_cl_swiglu(pal_device *d, const struct pal_swiglu_args *a);
void pal_cl_head_gate(pal_device *d, const struct pal_head_gate_args *a);
void pal_cl_head_skip(pal_device *d, const struct pal_head_gate_args *a);
void pal_cl_conv_silu(pal_device *d, const struct pal_conv_args *a);
void pal_cl_elementwise(pal_device *d, pal_device_elementwise kind, const struct pal_elementwise_args *a);
void pal_cl_cross_entropy(pal_device *d, const struct pal_cross_entropy_args *a);
void pal_cl_product(pal_device *d, const struct pal_matvec_args *a, bool steps);
void pal_cl_gather_rows(pal_device *d, const pal_matrix *w, const int32_t *ids, size_t count, float *out, size_t ld);
void pal_cl_rotary(pal_device *d, const struct pal_rotary_args *a, float sign, pal_const_view from, pal_view to);
void pal_cl_bias_add(pal_device *d, float *y, size_t ld, size_t rows, int width, const float *bias);
void pal_cl_take_rows(pal_device *d, float *to, const float *from, const int *at, size_t n, int width);
void pal_cl_positive(pal_device *d, bool softplus, size_t n, const float *x, float *y);
void pal_cl_clamp(pal_device *d, size_t n, float low, float high, float *x);
void pal_cl_log_decay(pal_device *d, size_t rows, int heads, int each, const float *A, const float *dt, float *g);
void pal_cl_memory(pal_device *d, const struct pal_memory_rule *rule, const struct pal_memory_run *run, int pass);
bool pal_cl_runs_rule(const pal_device *d, const struct pal_memory_rule *rule);
bool pal_cl_runs_type(const pal_device *d, pal_dtype type);

#endif
