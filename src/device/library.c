/* SPDX-License-Identifier: MIT */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/context.h"
#include "device/cl.h"

#ifdef PAL_STATIC
pal_status pal_cl_library_open(pal_cl_library *cl, pal_error *err) {
    *cl = (pal_cl_library){ 0 };
    return pal_fail(err, PAL_E_UNSUPPORTED, "this file is linked statically, and cannot open OpenCL's library");
}

void pal_cl_library_close(pal_cl_library *cl) { (void)cl; }
#else
pal_status pal_cl_library_open(pal_cl_library *cl, pal_error *err) {
    const char *named = getenv("PALIMPSA_OPENCL");
    const char *const names[] = { "libOpenCL.so.1", "libOpenCL.so" };
    *cl = (pal_cl_library){ 0 };
    if (named && !*named) named = NULL;
    if (named) cl->handle = dlopen(named, RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; i < PAL_COUNT(names) && !cl->handle && !named; i++)
        cl->handle = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!cl->handle)
        return pal_fail(err, PAL_E_UNSUPPORTED, "there is no OpenCL here: %s was not found", named ? named : names[0]);
#define X(name, result, arguments)                                                                                  \
    {                                                                                                               \
        void *found = dlsym(cl->handle, "cl" #name);                                                                \
        if (!found) {                                                                                               \
            pal_cl_library_close(cl);                                                                               \
            return pal_fail(err, PAL_E_UNSUPPORTED, "libOpenCL has no function cl" #name ": OpenCL 1.2 is needed"); \
        }                                                                                                           \
        memcpy(&cl->name, &found, sizeof found);                                                                    \
    }
    PAL_CL_FUNCTIONS(X)
#undef X
    return PAL_OK;
}

void pal_cl_library_close(pal_cl_library *cl) {
    if (cl->handle) dlclose(cl->handle);
    cl->handle = NULL;
}
#endif

const char *pal_cl_code(cl_int code, char out[32]) {
    static const struct {
        cl_int code;
        const char *name;
    } known[] = {
        { -1, "CL_DEVICE_NOT_FOUND" },
        { -2, "CL_DEVICE_NOT_AVAILABLE" },
        { -4, "CL_MEM_OBJECT_ALLOCATION_FAILURE" },
        { -5, "CL_OUT_OF_RESOURCES" },
        { -6, "CL_OUT_OF_HOST_MEMORY" },
        { -11, "CL_BUILD_PROGRAM_FAILURE" },
        { -30, "CL_INVALID_VALUE" },
        { -36, "CL_INVALID_COMMAND_QUEUE" },
        { -38, "CL_INVALID_MEM_OBJECT" },
        { -46, "CL_INVALID_KERNEL_NAME" },
        { -49, "CL_INVALID_ARG_INDEX" },
        { -51, "CL_INVALID_ARG_SIZE" },
        { -52, "CL_INVALID_KERNEL_ARGS" },
        { -54, "CL_INVALID_WORK_GROUP_SIZE" },
        { -61, "CL_INVALID_BUFFER_SIZE" },
    };
    for (size_t i = 0; i < PAL_COUNT(known); i++)
        if (known[i].code == code) return known[i].name;
    snprintf(out, 32, "OpenCL error %d", (int)code);
    return out;
}
