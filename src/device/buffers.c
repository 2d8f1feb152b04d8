/* SPDX-License-Identifier: MIT */
/* Buffers with reserved addresses, and what goes to and from the device. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/alloc.h"
#include "device/opencl.h"

enum { BLOCKING = 1 };

/* The first range that begins after `at`. */
static int position_of(const pal_opencl *d, const void *at) {
    int low = 0, high = d->range_count;
    while (low < high) {
        const int middle = (low + high) / 2;
        if ((uintptr_t)d->ranges[middle].base <= (uintptr_t)at) low = middle + 1;
        else high = middle;
    }
    return low;
}

const pal_cl_range *pal_cl_find(const pal_opencl *d, const void *at) {
    const int i = position_of(d, at) - 1;
    return i >= 0 && (uintptr_t)at - (uintptr_t)d->ranges[i].base < d->ranges[i].reserved ? &d->ranges[i] : NULL;
}

static pal_status insert(pal_opencl *d, pal_cl_range range, pal_error *err) {
    if (d->range_count == d->range_room) {
        const int room = d->range_room ? 2 * d->range_room : 64;
        void *block;
        const pal_status st = pal_alloc_named(&block, (size_t)room, sizeof *d->ranges, "a device's buffers", err);
        if (st) return st;
        if (d->range_count) memcpy(block, d->ranges, (size_t)d->range_count * sizeof *d->ranges);
        pal_free(d->ranges);
        d->ranges = block;
        d->range_room = room;
    }
    const int at = position_of(d, range.base);
    memmove(d->ranges + at + 1, d->ranges + at, (size_t)(d->range_count - at) * sizeof *d->ranges);
    d->ranges[at] = range;
    d->range_count++;
    return PAL_OK;
}

static pal_status allocate(pal_opencl *d, void **out, size_t bytes, const char *what, pal_error *err) {
    enum { PAGE = 1 << 16 }; /* or a multiple of the system's */
    const size_t rounded = (bytes + 63) / 64 * 64, size = rounded ? rounded : 64;
    const unsigned zero = 0;
    char code[32];
    cl_int failed = 0;
    if (size > d->info.largest)
        return pal_fail(err, PAL_E_MEMORY, "%s: %zu bytes, and one buffer of device %s has at most %llu", what, bytes,
                        d->info.name, (unsigned long long)d->info.largest);
    pal_cl_range range = { .bytes = size, .reserved = (size + PAGE) / PAGE * PAGE };
    range.mem = d->cl.CreateBuffer(d->context, CL_MEM_READ_WRITE, size, NULL, &failed);
    if (!failed) {
        failed = d->cl.EnqueueFillBuffer(d->queue, range.mem, &zero, sizeof zero, 0, size, 0, NULL, NULL);
        if (!failed) failed = d->cl.Finish(d->queue); /* many drivers take memory when it is used first */
        if (failed) d->cl.ReleaseMemObject(range.mem);
    }
    if (failed)
        return pal_fail(err, PAL_E_MEMORY, "%s: device %s has no %zu bytes for it: %s", what, d->info.name, bytes,
                        pal_cl_code(failed, code));
    range.base = mmap(NULL, range.reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if ((void *)range.base == MAP_FAILED) {
        d->cl.ReleaseMemObject(range.mem);
        return pal_fail(err, PAL_E_MEMORY, "%s: no addresses for %zu bytes", what, bytes);
    }
    const pal_status st = insert(d, range, err);
    if (st) {
        munmap(range.base, range.reserved);
        d->cl.ReleaseMemObject(range.mem);
        return st;
    }
    *out = range.base;
    return PAL_OK;
}

pal_status pal_cl_alloc(pal_device *device, void **out, size_t bytes, const char *what, pal_error *err) {
    pal_opencl *d = pal_opencl_of(device);
    *out = NULL;
    pthread_mutex_lock(&d->lock);
    const pal_status st = allocate(d, out, bytes, what, err);
    pthread_mutex_unlock(&d->lock);
    return st;
}

pal_status pal_cl_lend(pal_device *device, void *host, size_t bytes, pal_error *err) {
    pal_opencl *d = pal_opencl_of(device);
    char code[32];
    cl_int failed = 0;
    if (!bytes) return PAL_OK;
    pal_cl_range range = { .base = host, .bytes = bytes, .reserved = bytes, .lent = true };
    range.mem = d->cl.CreateBuffer(d->context, CL_MEM_READ_WRITE, bytes, NULL, &failed);
    if (failed) return pal_fail(err, PAL_E_MEMORY, "a lent block: %s", pal_cl_code(failed, code));
    pthread_mutex_lock(&d->lock);
    const pal_status st = insert(d, range, err);
    pthread_mutex_unlock(&d->lock);
    if (st) d->cl.ReleaseMemObject(range.mem);
    return st;
}

void pal_cl_bring_lent(pal_opencl *d, const pal_cl_range *r) {
    const cl_int failed = d->cl.EnqueueWriteBuffer(d->queue, r->mem, BLOCKING, 0, r->bytes, r->base, 0, NULL, NULL);
    if (failed) pal_cl_broke(d, "a lent block", failed);
}

void pal_cl_return_lent(pal_opencl *d, const pal_cl_range *r) {
    const cl_int failed = d->cl.EnqueueReadBuffer(d->queue, r->mem, BLOCKING, 0, r->bytes, r->base, 0, NULL, NULL);
    if (failed) pal_cl_broke(d, "a lent block", failed);
}

static void release(pal_opencl *d, void *block) {
    const int i = position_of(d, block) - 1;
    if (!block || i < 0 || d->ranges[i].base != block) return;
    const cl_int failed = d->cl.Finish(d->queue);
    if (failed) pal_cl_broke(d, "it did not finish its work", failed);
    d->cl.ReleaseMemObject(d->ranges[i].mem);
    if (!d->ranges[i].lent) munmap(block, d->ranges[i].reserved);
    d->range_count--;
    memmove(d->ranges + i, d->ranges + i + 1, (size_t)(d->range_count - i) * sizeof *d->ranges);
}

void pal_cl_free(pal_device *device, void *block) {
    pal_opencl *d = pal_opencl_of(device);
    pthread_mutex_lock(&d->lock);
    release(d, block);
    pthread_mutex_unlock(&d->lock);
}

void pal_cl_upload(pal_device *device, void *to, const void *from, size_t bytes) {
    pal_opencl *d = pal_opencl_of(device);
    if (!bytes) return;
    pthread_mutex_lock(&d->lock);
    const pal_cl_range *r = pal_cl_find(d, to);
    if (r && r->lent) memcpy(to, from, bytes);
    else if (!r) pal_cl_broke(d, "upload to an address that is not the device's", 0);
    else if (!d->failed) {
        const cl_int failed = d->cl.EnqueueWriteBuffer(d->queue, r->mem, BLOCKING, (size_t)((char *)to - r->base),
                                                       bytes, from, 0, NULL, NULL);
        if (failed) pal_cl_broke(d, "upload", failed);
    }
    pthread_mutex_unlock(&d->lock);
}

void pal_cl_download(pal_device *device, void *to, const void *from, size_t bytes) {
    pal_opencl *d = pal_opencl_of(device);
    if (!bytes) return;
    pthread_mutex_lock(&d->lock);
    const pal_cl_range *r = pal_cl_find(d, from);
    if (r && r->lent) memcpy(to, from, bytes);
    else if (!r) pal_cl_broke(d, "download from an address that is not the device's", 0);
    else if (!d->failed) {
        const cl_int failed = d->cl.EnqueueReadBuffer(d->queue, r->mem, BLOCKING,
                                                      (size_t)((const char *)from - r->base), bytes, to, 0, NULL, NULL);
        if (failed) pal_cl_broke(d, "download", failed);
    }
    if (d->failed) memset(to, 0, bytes); /* what is asked for next sees no old numbers; check() says why */
    pthread_mutex_unlock(&d->lock);
}

void pal_cl_copy(pal_device *device, float *to, const float *from, size_t n) {
    pal_opencl *d = pal_opencl_of(device);
    const size_t bytes = n * sizeof *to;
    if (!n) return;
    pthread_mutex_lock(&d->lock);
    const pal_cl_range *target = pal_cl_find(d, to), *source = pal_cl_find(d, from);
    if (target && target->lent) target = NULL; /* memory of the host */
    if (source && source->lent) source = NULL;
    if (target && source && !d->failed) {
        const cl_int failed = d->cl.EnqueueCopyBuffer(d->queue, source->mem, target->mem,
                                                      (size_t)((const char *)from - source->base),
                                                      (size_t)((char *)to - target->base), bytes, 0, NULL, NULL);
        if (failed) pal_cl_broke(d, "copy", failed);
    }
    pthread_mutex_unlock(&d->lock);
    if (target && !source) pal_cl_upload(device, to, from, bytes);
    if (source && !target) pal_cl_download(device, to, from, bytes);
    if (!source && !target) memcpy(to, from, bytes);
}

void pal_cl_fill(pal_device *device, float *x, size_t n, float value) {
    pal_opencl *d = pal_opencl_of(device);
    if (!n) return;
    pthread_mutex_lock(&d->lock);
    const pal_cl_range *r = pal_cl_find(d, x);
    for (size_t i = 0; r && r->lent && i < n; i++) x[i] = value;
    if (r && r->lent) r = NULL;
    else if (!r) pal_cl_broke(d, "fill of an address that is not the device's", 0);
    if (r && !d->failed) {
        const cl_int failed = d->cl.EnqueueFillBuffer(d->queue, r->mem, &value, sizeof value,
                                                      (size_t)((char *)x - r->base), n * sizeof *x, 0, NULL, NULL);
        if (failed) pal_cl_broke(d, "fill", failed);
    }
    pthread_mutex_unlock(&d->lock);
}

float *pal_cl_temporary(pal_opencl *d, size_t floats) {
    pal_error err;
    void *block;
    if (floats <= d->temporary_floats || d->failed) return d->failed ? NULL : d->temporary;
    pal_cl_free(&d->base, d->temporary);
    d->temporary = NULL;
    d->temporary_floats = 0;
    if (pal_cl_alloc(&d->base, &block, floats * sizeof(float), "a device's workspace", &err)) {
        d->failed = true;
        snprintf(d->sentence, sizeof d->sentence, "%s", err.text);
        return NULL;
    }
    d->temporary_floats = floats;
    return d->temporary = block;
}

void pal_cl_make_room(pal_opencl *d) {
    if (d->ring_at <= d->ring_bytes / 2) return;
    const cl_int failed = d->cl.Finish(d->queue); /* kernels that read the old lists come first */
    if (failed) pal_cl_broke(d, "it did not finish its work", failed);
    d->ring_at = 0;
}

size_t pal_cl_list(pal_opencl *d, const void *list, size_t bytes) {
    const size_t line = (bytes + 63) / 64 * 64, at = d->ring_at;
    if (d->failed) return 0;
    if (line > d->ring_bytes - at) {
        pal_cl_broke(d, "a list is too long", 0);
        return 0;
    }
    memcpy(d->ring + at, list, bytes);
    const cl_int failed = d->cl.EnqueueWriteBuffer(d->queue, d->ring_mem, 0, at, bytes, d->ring + at, 0, NULL, NULL);
    if (failed) pal_cl_broke(d, "upload of a list", failed);
    d->ring_at += line;
    return at;
}
