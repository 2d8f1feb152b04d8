/* SPDX-License-Identifier: MIT */
/* Programs are built when one of their kernels is used first; a launch turns addresses into buffers with offsets. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "device/opencl.h"

static const pal_cl_source *source_of(const char *file) {
    const pal_cl_source *s = pal_cl_sources;
    while (s->name && strcmp(s->name, file) != 0) s++;
    return s;
}

/* The compiler's first words, as one line. */
static void first_words(pal_opencl *d, cl_program program, char out[240]) {
    char *log = pal_alloc(1 << 16, 1);
    snprintf(out, 240, "no message");
    if (!log) return;
    d->cl.GetProgramBuildInfo(program, d->device, CL_PROGRAM_BUILD_LOG, (1 << 16) - 1, log, NULL);
    const char *error = strstr(log, "error:");
    snprintf(out, 240, "%s", error ? error : log);
    for (char *c = out; *c; c++)
        if (*c < ' ') *c = ' ';
    pal_free(log);
}

static cl_program build(pal_opencl *d, const char *file, const char *options) {
    const pal_cl_source *common = source_of("common"), *own = source_of(file);
    const char *texts[2] = { (const char *)common->text, (const char *)own->text };
    const size_t sizes[2] = { common->size, own->size };
    char all[160], words[240];
    cl_int failed = 0;
    cl_program program = d->cl.CreateProgramWithSource(d->context, 2, texts, sizes, &failed);
    if (failed) {
        pal_cl_broke(d, "a program", failed);
        return NULL;
    }
    snprintf(all, sizeof all, "-cl-std=CL1.2 -cl-denorms-are-zero %s", options);
    if ((failed = d->cl.BuildProgram(program, 1, &d->device, all, NULL, NULL))) {
        first_words(d, program, words);
        pal_cl_broke(d, "its compiler", failed);
        const size_t used = strlen(d->sentence);
        snprintf(d->sentence + used, sizeof d->sentence - used, ": %s.cl %s: %s", file, options, words);
        d->cl.ReleaseProgram(program);
        return NULL;
    }
    return program;
}

static cl_program program_of(pal_opencl *d, const char *file, const char *options) {
    for (int i = 0; i < d->program_count; i++)
        if (strcmp(d->programs[i].file, file) == 0 && strcmp(d->programs[i].options, options) == 0)
            return d->programs[i].program;
    if (d->program_count == (int)PAL_COUNT(d->programs)) {
        pal_cl_broke(d, "too many programs", 0);
        return NULL;
    }
    pal_cl_program *p = &d->programs[d->program_count];
    snprintf(p->file, sizeof p->file, "%s", file);
    snprintf(p->options, sizeof p->options, "%s", options);
    if ((p->program = build(d, file, options))) d->program_count++;
    return p->program;
}

static cl_kernel kernel_of(pal_opencl *d, const char *file, const char *options, const char *name) {
    cl_int failed = 0;
    for (int i = 0; i < d->kernel_count; i++) {
        const pal_cl_kernel *k = &d->kernels[i];
        if (strcmp(k->name, name) == 0 && strcmp(k->file, file) == 0 && strcmp(k->options, options) == 0)
            return k->kernel;
    }
    cl_program program = program_of(d, file, options);
    if (!program) return NULL;
    if (d->kernel_count == (int)PAL_COUNT(d->kernels)) {
        pal_cl_broke(d, "too many kernels", 0);
        return NULL;
    }
    pal_cl_kernel *k = &d->kernels[d->kernel_count];
    snprintf(k->file, sizeof k->file, "%s", file);
    snprintf(k->options, sizeof k->options, "%s", options);
    snprintf(k->name, sizeof k->name, "%s", name);
    k->kernel = d->cl.CreateKernel(program, name, &failed);
    if (failed) {
        pal_cl_broke(d, name, failed);
        return NULL;
    }
    d->kernel_count++;
    return k->kernel;
}

/* Arguments of one launch. */
typedef struct {
    pal_opencl *d;
    cl_kernel kernel;
    cl_uint next;
    cl_int failed;
    const pal_cl_range *lent[32];
    int lent_count;
} arguments;

static void give(arguments *a, size_t size, const void *value) {
    if (!a->failed) a->failed = a->d->cl.SetKernelArg(a->kernel, a->next++, size, value);
}

static void give_place(arguments *a, cl_mem mem, cl_ulong at) {
    give(a, sizeof mem, &mem);
    give(a, sizeof at, &at);
}

static void give_address(arguments *a, const void *p) {
    const pal_cl_range *r = p ? pal_cl_find(a->d, p) : NULL;
    if (p && !r) pal_cl_broke(a->d, "a kernel was given an address that is not the device's", 0);
    if (r && r->lent && a->lent_count < (int)PAL_COUNT(a->lent)) {
        pal_cl_bring_lent(a->d, r);
        a->lent[a->lent_count++] = r;
    }
    if (r) give_place(a, r->mem, (cl_ulong)((const char *)p - r->base));
    else give_place(a, a->d->nothing, ~(cl_ulong)0);
}

static void give_list(arguments *a, const void *list, size_t bytes) {
    if (!list) give_place(a, a->d->nothing, ~(cl_ulong)0);
    else {
        const size_t at = pal_cl_list(a->d, list, bytes);
        give_place(a, a->d->ring_mem, at);
    }
}

static void give_one(arguments *a, char kind, va_list *list) {
    if (kind == 'p') {
        give_address(a, va_arg(*list, const void *));
    } else if (kind == 'v') {
        const pal_const_view view = va_arg(*list, pal_const_view);
        const cl_ulong stride = view.stride;
        give_address(a, view.data);
        give(a, sizeof stride, &stride);
    } else if (kind == 'l' || kind == 's') {
        const void *data = va_arg(*list, const void *);
        const size_t bytes = va_arg(*list, size_t);
        if (kind == 'l') give_list(a, data, bytes);
        else give(a, bytes, data);
    } else if (kind == 'i') {
        const cl_int x = va_arg(*list, int);
        give(a, sizeof x, &x);
    } else if (kind == 'u') {
        const cl_ulong x = va_arg(*list, size_t);
        give(a, sizeof x, &x);
    } else if (kind == 'f') {
        const float x = (float)va_arg(*list, double);
        give(a, sizeof x, &x);
    } else { /* m */
        give(a, va_arg(*list, size_t), NULL);
    }
}

void pal_cl_launch(pal_opencl *d, const char *file, const char *options, const char *name, pal_cl_groups groups,
                   const char *kinds, ...) {
    va_list list;
    if (!groups.x || !groups.y) return;
    pthread_mutex_lock(&d->lock);
    pal_cl_make_room(d);
    arguments a = { .d = d, .kernel = d->failed ? NULL : kernel_of(d, file, options, name) };
    if (a.kernel) {
        const size_t items = (size_t)groups.items, local[2] = { items, 1 }, global[2] = { groups.x * items, groups.y };
        va_start(list, kinds);
        for (const char *kind = kinds; *kind; kind++) give_one(&a, *kind, &list);
        va_end(list);
        if (!a.failed && !d->failed)
            a.failed = d->cl.EnqueueNDRangeKernel(d->queue, a.kernel, 2, NULL, global, local, 0, NULL, NULL);
        if (a.failed) pal_cl_broke(d, name, a.failed);
        for (int i = 0; i < a.lent_count; i++) pal_cl_return_lent(d, a.lent[i]);
    }
    pthread_mutex_unlock(&d->lock);
}

int pal_cl_run_of(pal_opencl *d, float *const *pointers, int first, int n, uint64_t *at, const void **base) {
    int count = 0;
    pthread_mutex_lock(&d->lock);
    const pal_cl_range *own = pal_cl_find(d, pointers[first]);
    if (!own) pal_cl_broke(d, "a state is not on the device", 0);
    for (; own && first + count < n && pal_cl_find(d, pointers[first + count]) == own; count++)
        at[count] = (uint64_t)((const char *)pointers[first + count] - own->base);
    if (own) *base = own->base;
    pthread_mutex_unlock(&d->lock);
    return d->failed ? 0 : count;
}
