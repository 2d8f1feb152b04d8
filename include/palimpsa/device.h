/* SPDX-License-Identifier: MIT */
/* Devices that compute in place of the CPU, over OpenCL 1.2. libOpenCL is opened when a device is asked for; a program
 * runs as before where there is none. Nothing is computed on the CPU in silence: a model that a device cannot run is
 * refused when it is opened. */
#ifndef PALIMPSA_DEVICE_H
#define PALIMPSA_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "palimpsa/context.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pal_device_info {
    char name[128], platform[64], driver[64], version[64];
    uint64_t memory, largest, local; /* bytes: in all, of one buffer, of one group's local memory */
    int units, group;                /* compute units; most work-items of a group */
    bool is_cpu;                     /* a CPU that speaks OpenCL */
    bool usable;
    char why[128]; /* it is not usable */
} pal_device_info;

/* Describes at most `most` devices and says how many there are. No OpenCL at all: none, and no error. */
PAL_API pal_status pal_devices(pal_device_info *out, int most, int *count, pal_error *err);

/* pal_context_new for a device: "cpu", "opencl" (the first that is not a CPU) or "opencl:N", N as pal_devices counts;
 * NULL takes PALIMPSA_DEVICE, else the CPU. Models, workspaces and states that are made with the context live
 * there. */
PAL_API pal_status pal_context_new_on(pal_context **out, int threads, const char *cpu, const char *device,
                                      pal_error *err);
/* The device of a context; NULL: the CPU. */
PAL_API const pal_device_info *pal_context_device(const pal_context *cx);

#ifdef __cplusplus
}
#endif
#endif
