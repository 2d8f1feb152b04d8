/* SPDX-License-Identifier: MIT */
/* What this library calls of OpenCL 1.2, declared here, so that it builds where no headers of OpenCL are. The functions
 * are found in libOpenCL when a device is asked for. */
#ifndef PAL_DEVICE_CL_H
#define PAL_DEVICE_CL_H

#include <stddef.h>
#include <stdint.h>

#include "palimpsa/status.h"

typedef int32_t cl_int;
typedef uint32_t cl_uint, cl_bool;
typedef uint64_t cl_ulong, cl_flags;
typedef struct cl_platform *cl_platform;
typedef struct cl_device *cl_device;
typedef struct cl_context *cl_context;
typedef struct cl_queue *cl_queue;
typedef struct cl_mem *cl_mem;
typedef struct cl_program *cl_program;
typedef struct cl_kernel *cl_kernel;
typedef struct cl_event *cl_event;

enum {
    CL_DEVICE_NOT_FOUND = -1,
    CL_PLATFORM_NAME = 0x0902,
    CL_DEVICE_TYPE = 0x1000,
    CL_DEVICE_MAX_COMPUTE_UNITS = 0x1002,
    CL_DEVICE_MAX_WORK_GROUP_SIZE = 0x1004,
    CL_DEVICE_MAX_MEM_ALLOC_SIZE = 0x1010,
    CL_DEVICE_GLOBAL_MEM_SIZE = 0x101F,
    CL_DEVICE_LOCAL_MEM_SIZE = 0x1023,
    CL_DEVICE_ENDIAN_LITTLE = 0x1026,
    CL_DEVICE_AVAILABLE = 0x1027,
    CL_DEVICE_COMPILER_AVAILABLE = 0x1028,
    CL_DEVICE_NAME = 0x102B,
    CL_DRIVER_VERSION = 0x102D,
    CL_DEVICE_PROFILE = 0x102E,
    CL_DEVICE_VERSION = 0x102F,
    CL_MEM_READ_WRITE = 1,
    CL_PROGRAM_BUILD_LOG = 0x1183
};
#define CL_DEVICE_TYPE_CPU ((cl_flags)2)
#define CL_DEVICE_TYPE_ALL ((cl_flags)0xFFFFFFFF)

/* Name, what it returns, what it takes. */
#define PAL_CL_FUNCTIONS(X)                                                                                        \
    X(GetPlatformIDs, cl_int, (cl_uint, cl_platform *, cl_uint *))                                                 \
    X(GetPlatformInfo, cl_int, (cl_platform, cl_uint, size_t, void *, size_t *))                                   \
    X(GetDeviceIDs, cl_int, (cl_platform, cl_flags, cl_uint, cl_device *, cl_uint *))                              \
    X(GetDeviceInfo, cl_int, (cl_device, cl_uint, size_t, void *, size_t *))                                       \
    X(CreateContext, cl_context,                                                                                   \
      (const intptr_t *, cl_uint, const cl_device *, void (*)(const char *, const void *, size_t, void *), void *, \
       cl_int *))                                                                                                  \
    X(ReleaseContext, cl_int, (cl_context))                                                                        \
    X(CreateCommandQueue, cl_queue, (cl_context, cl_device, cl_flags, cl_int *))                                   \
    X(ReleaseCommandQueue, cl_int, (cl_queue))                                                                     \
    X(CreateBuffer, cl_mem, (cl_context, cl_flags, size_t, void *, cl_int *))                                      \
    X(ReleaseMemObject, cl_int, (cl_mem))                                                                          \
    X(CreateProgramWithSource, cl_program, (cl_context, cl_uint, const char **, const size_t *, cl_int *))         \
    X(BuildProgram, cl_int,                                                                                        \
      (cl_program, cl_uint, const cl_device *, const char *, void (*)(cl_program, void *), void *))                \
    X(GetProgramBuildInfo, cl_int, (cl_program, cl_device, cl_uint, size_t, void *, size_t *))                     \
    X(ReleaseProgram, cl_int, (cl_program))                                                                        \
    X(CreateKernel, cl_kernel, (cl_program, const char *, cl_int *))                                               \
    X(ReleaseKernel, cl_int, (cl_kernel))                                                                          \
    X(SetKernelArg, cl_int, (cl_kernel, cl_uint, size_t, const void *))                                            \
    X(EnqueueNDRangeKernel, cl_int,                                                                                \
      (cl_queue, cl_kernel, cl_uint, const size_t *, const size_t *, const size_t *, cl_uint, const cl_event *,    \
       cl_event *))                                                                                                \
    X(EnqueueReadBuffer, cl_int,                                                                                   \
      (cl_queue, cl_mem, cl_bool, size_t, size_t, void *, cl_uint, const cl_event *, cl_event *))                  \
    X(EnqueueWriteBuffer, cl_int,                                                                                  \
      (cl_queue, cl_mem, cl_bool, size_t, size_t, const void *, cl_uint, const cl_event *, cl_event *))            \
    X(EnqueueCopyBuffer, cl_int,                                                                                   \
      (cl_queue, cl_mem, cl_mem, size_t, size_t, size_t, cl_uint, const cl_event *, cl_event *))                   \
    X(EnqueueFillBuffer, cl_int,                                                                                   \
      (cl_queue, cl_mem, const void *, size_t, size_t, size_t, cl_uint, const cl_event *, cl_event *))             \
    X(Finish, cl_int, (cl_queue))

typedef struct pal_cl_library {
    void *handle;
#define X(name, result, arguments) result(*name) arguments;
    PAL_CL_FUNCTIONS(X)
#undef X
} pal_cl_library;

/* Opens libOpenCL, or the file that PALIMPSA_OPENCL names. */
pal_status pal_cl_library_open(pal_cl_library *cl, pal_error *err);
void pal_cl_library_close(pal_cl_library *cl);
/* "CL_OUT_OF_RESOURCES", or the number. */
const char *pal_cl_code(cl_int code, char out[32]);

#endif
