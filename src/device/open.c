/* SPDX-License-Identifier: MIT */
/* Which devices there are, and contexts that compute on one. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "device/opencl.h"

enum { MOST_PLATFORMS = 16, MOST_DEVICES = 64, LEAST_LOCAL = 16 << 10 };

static void text_of(const pal_cl_library *cl, cl_device device, cl_uint what, char *out, size_t size) {
    char whole[1024] = "";
    cl->GetDeviceInfo(device, what, sizeof whole - 1, whole, NULL);
    snprintf(out, size, "%s", whole);
}
static uint64_t number_of(const pal_cl_library *cl, cl_device device, cl_uint what, size_t size) {
    uint64_t number = 0; /* little-endian, as every machine this runs on is */
    cl->GetDeviceInfo(device, what, size, &number, NULL);
    return number;
}

/* What a device lacks; NULL: nothing. */
static const char *lacks(const pal_cl_library *cl, cl_device device, const pal_device_info *info) {
    char profile[64];
    text_of(cl, device, CL_DEVICE_PROFILE, profile, sizeof profile);
    if (!number_of(cl, device, CL_DEVICE_AVAILABLE, sizeof(cl_bool))) return "it is not available";
    if (!number_of(cl, device, CL_DEVICE_COMPILER_AVAILABLE, sizeof(cl_bool))) return "it has no compiler";
    if (strcmp(profile, "FULL_PROFILE") != 0) return "it has the embedded profile, whose functions are less exact";
    if (strncmp(info->version, "OpenCL 1.0", 10) == 0 || strncmp(info->version, "OpenCL 1.1", 10) == 0)
        return "it is older than OpenCL 1.2";
    if (!number_of(cl, device, CL_DEVICE_ENDIAN_LITTLE, sizeof(cl_bool))) return "it is big-endian";
    if (info->local < LEAST_LOCAL) return "it has less than 16 KiB of local memory";
    if (info->group < PAL_CL_ITEMS) return "its work-groups have fewer than 64 work-items";
    return NULL;
}

static void describe(const pal_cl_library *cl, cl_platform platform, cl_device device, pal_device_info *info) {
    *info = (pal_device_info){ 0 };
    cl->GetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof info->platform - 1, info->platform, NULL);
    text_of(cl, device, CL_DEVICE_NAME, info->name, sizeof info->name);
    text_of(cl, device, CL_DRIVER_VERSION, info->driver, sizeof info->driver);
    text_of(cl, device, CL_DEVICE_VERSION, info->version, sizeof info->version);
    info->memory = number_of(cl, device, CL_DEVICE_GLOBAL_MEM_SIZE, sizeof(cl_ulong));
    info->largest = number_of(cl, device, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof(cl_ulong));
    info->local = number_of(cl, device, CL_DEVICE_LOCAL_MEM_SIZE, sizeof(cl_ulong));
    info->units = (int)number_of(cl, device, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof(cl_uint));
    const uint64_t group = number_of(cl, device, CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof(size_t));
    info->group = group > 1024 ? 1024 : (int)group;
    info->is_cpu = number_of(cl, device, CL_DEVICE_TYPE, sizeof(cl_flags)) & CL_DEVICE_TYPE_CPU;
    const char *why = lacks(cl, device, info);
    info->usable = !why;
    if (why) snprintf(info->why, sizeof info->why, "%s", why);
}

typedef struct {
    cl_device device[MOST_DEVICES];
    cl_platform platform[MOST_DEVICES];
    int count;
} found_devices;

static pal_status find_all(const pal_cl_library *cl, found_devices *found, pal_error *err) {
    cl_platform platforms[MOST_PLATFORMS];
    cl_uint count = 0;
    char code[32];
    enum { NO_PLATFORM = -1001 };
    found->count = 0;
    const cl_int failed = cl->GetPlatformIDs(MOST_PLATFORMS, platforms, &count);
    if (failed == NO_PLATFORM) return PAL_OK;
    if (failed)
        return pal_fail(err, PAL_E_UNSUPPORTED, "OpenCL cannot list its platforms: %s", pal_cl_code(failed, code));
    for (cl_uint p = 0; p < count && p < MOST_PLATFORMS; p++) {
        cl_uint more = 0;
        const cl_uint room = (cl_uint)(MOST_DEVICES - found->count);
        const cl_int none = room ? cl->GetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, room,
                                                    found->device + found->count, &more)
                                 : CL_DEVICE_NOT_FOUND;
        if (none == CL_DEVICE_NOT_FOUND) continue;
        if (none)
            return pal_fail(err, PAL_E_UNSUPPORTED, "OpenCL cannot list its devices: %s", pal_cl_code(none, code));
        if (more > room) more = room;
        for (cl_uint i = 0; i < more; i++) found->platform[found->count++] = platforms[p];
    }
    return PAL_OK;
}

pal_status pal_devices(pal_device_info *out, int most, int *count, pal_error *err) {
    pal_cl_library cl;
    found_devices found;
    *count = 0;
    if (pal_cl_library_open(&cl, NULL)) return PAL_OK;
    const pal_status st = find_all(&cl, &found, err);
    if (!st) *count = found.count;
    for (int i = 0; i < *count && i < most; i++) describe(&cl, found.platform[i], found.device[i], &out[i]);
    pal_cl_library_close(&cl);
    return st;
}

static pal_status choose(const pal_cl_library *cl, const char *name, cl_device *device, pal_device_info *info,
                         pal_error *err) {
    found_devices found;
    const pal_status st = find_all(cl, &found, err);
    if (st) return st;
    if (!found.count) return pal_fail(err, PAL_E_UNSUPPORTED, "device '%s': OpenCL finds no device here", name);
    int chosen = -1;
    if (strcmp(name, "opencl") == 0) {
        for (int i = 0; i < found.count && chosen < 0; i++) {
            describe(cl, found.platform[i], found.device[i], info);
            if (info->usable && !info->is_cpu) chosen = i;
        }
        if (chosen < 0)
            return pal_fail(err, PAL_E_UNSUPPORTED,
                            "device 'opencl': of the %d that OpenCL finds none is a usable GPU; 'palimpsa devices' "
                            "lists them, and opencl:N names one",
                            found.count);
    } else {
        char *end;
        errno = 0;
        const long number = strtol(name + strlen("opencl:"), &end, 10);
        if (errno || *end || end == name + strlen("opencl:") || number < 0 || number >= found.count)
            return pal_fail(err, PAL_E_ARGUMENT, "device '%s': OpenCL finds %d device%s here, numbered from opencl:0",
                            name, found.count, found.count == 1 ? "" : "s");
        chosen = (int)number;
    }
    describe(cl, found.platform[chosen], found.device[chosen], info);
    if (!info->usable) return pal_fail(err, PAL_E_UNSUPPORTED, "device '%s', %s: %s", name, info->name, info->why);
    *device = found.device[chosen];
    return PAL_OK;
}

static void close_device(pal_device *device) {
    pal_opencl *d = pal_opencl_of(device);
    if (d->queue) d->cl.Finish(d->queue);
    pal_cl_free(device, d->temporary);
    while (d->range_count) pal_cl_free(device, d->ranges[0].base);
    for (int i = 0; i < d->kernel_count; i++) d->cl.ReleaseKernel(d->kernels[i].kernel);
    for (int i = 0; i < d->program_count; i++) d->cl.ReleaseProgram(d->programs[i].program);
    if (d->nothing) d->cl.ReleaseMemObject(d->nothing);
    if (d->ring_mem) d->cl.ReleaseMemObject(d->ring_mem);
    if (d->queue) d->cl.ReleaseCommandQueue(d->queue);
    if (d->context) d->cl.ReleaseContext(d->context);
    pal_cl_library_close(&d->cl);
    pthread_mutex_destroy(&d->lock);
    pal_free(d->ring);
    pal_free(d->ranges);
    pal_free(d);
}

void pal_cl_broke(pal_opencl *d, const char *what, cl_int code) {
    char number[32];
    if (d->failed) return;
    d->failed = true;
    snprintf(d->sentence, sizeof d->sentence, "device %s: %s: %s", d->info.name, what, pal_cl_code(code, number));
}

static pal_status check(pal_device *device, pal_error *err) {
    pal_opencl *d = pal_opencl_of(device);
    const cl_int failed = d->cl.Finish(d->queue);
    if (failed) pal_cl_broke(d, "it did not finish its work", failed);
    return d->failed ? pal_fail(err, PAL_E_IO, "%s", d->sentence) : PAL_OK;
}

static pal_status begin(pal_opencl *d, pal_error *err) {
    char code[32];
    void *block;
    cl_int failed = 0;
    d->context = d->cl.CreateContext(NULL, 1, &d->device, NULL, NULL, &failed);
    if (!failed) d->queue = d->cl.CreateCommandQueue(d->context, d->device, 0, &failed);
    if (!failed) d->nothing = d->cl.CreateBuffer(d->context, CL_MEM_READ_WRITE, 64, NULL, &failed);
    if (!failed) d->ring_mem = d->cl.CreateBuffer(d->context, CL_MEM_READ_WRITE, PAL_CL_RING, NULL, &failed);
    if (failed)
        return pal_fail(err, PAL_E_UNSUPPORTED, "device %s cannot be used: %s", d->info.name,
                        pal_cl_code(failed, code));
    const pal_status st = pal_alloc_named(&block, PAL_CL_RING, 1, "a device's lists", err);
    if (st) return st;
    d->ring = block;
    d->ring_bytes = PAL_CL_RING;
    return PAL_OK;
}

static pal_status open_device(pal_device **out, const char *name, pal_error *err) {
    void *block;
    *out = NULL;
    pal_status st = pal_alloc_named(&block, 1, sizeof(pal_opencl), "a device", err);
    if (st) return st;
    pal_opencl *d = block;
    d->base.ops = &pal_opencl_ops;
    pthread_mutex_init(&d->lock, NULL);
    if (!(st = pal_cl_library_open(&d->cl, err)) && !(st = choose(&d->cl, name, &d->device, &d->info, err)))
        st = begin(d, err);
    if (st) close_device(&d->base);
    else *out = &d->base;
    return st;
}

pal_status pal_context_new_on(pal_context **out, int threads, const char *cpu, const char *device, pal_error *err) {
    if (!device) device = getenv("PALIMPSA_DEVICE");
    const bool on_cpu = !device || !*device || strcmp(device, "cpu") == 0;
    *out = NULL;
    if (!on_cpu && strcmp(device, "opencl") != 0 && strncmp(device, "opencl:", 7) != 0)
        return pal_fail(err, PAL_E_ARGUMENT, "device '%s': expected cpu, opencl or opencl:N", device);
    pal_status st = pal_context_new(out, threads, cpu, err);
    if (st || on_cpu) return st;
    if ((st = open_device(&(*out)->device, device, err))) {
        pal_context_free(*out);
        *out = NULL;
    }
    return st;
}

const pal_device_info *pal_context_device(const pal_context *cx) {
    return cx->device ? &pal_opencl_of(cx->device)->info : NULL;
}

const pal_device_ops pal_opencl_ops = {
    .close = close_device,
    .alloc = pal_cl_alloc,
    .free = pal_cl_free,
    .lend = pal_cl_lend,
    .upload = pal_cl_upload,
    .download = pal_cl_download,
    .check = check,
    .runs_rule = pal_cl_runs_rule,
    .runs_type = pal_cl_runs_type,
    .rmsnorm = pal_cl_rmsnorm,
    .layernorm = pal_cl_layernorm,
    .l2norm = pal_cl_l2norm,
    .activate = pal_cl_activate,
    .swiglu = pal_cl_swiglu,
    .head_gate = pal_cl_head_gate,
    .head_skip = pal_cl_head_skip,
    .conv_silu = pal_cl_conv_silu,
    .elementwise = pal_cl_elementwise,
    .cross_entropy = pal_cl_cross_entropy,
    .product = pal_cl_product,
    .gather_rows = pal_cl_gather_rows,
    .rotary = pal_cl_rotary,
    .bias_add = pal_cl_bias_add,
    .copy = pal_cl_copy,
    .fill = pal_cl_fill,
    .take_rows = pal_cl_take_rows,
    .positive = pal_cl_positive,
    .clamp = pal_cl_clamp,
    .log_decay = pal_cl_log_decay,
    .memory = pal_cl_memory,
};
