/* SPDX-License-Identifier: MIT */
/* Products with stored weights: arguments of src/kernels to kernels of product.cl. */
#include <stdio.h>

#include "device/opencl.h"
#include "kernels/matvec/matvec.h"

bool pal_cl_runs_type(const pal_device *device, pal_dtype type) {
    (void)device;
    switch ((int)type) {
#define X(name, number) \
    case number: return true;
        PAL_MATVEC_TYPES(X)
#undef X
    }
    return false;
}

static void options_of(char out[32], pal_dtype type) { snprintf(out, 32, "-DTYPE=%d", (int)type); }

void pal_cl_product(pal_device *device, const pal_matvec_args *a, bool steps) {
    enum { ROWS = 8, TILE = 32, DEEP = 16 }; /* as in product.cl */
    pal_opencl *d = pal_opencl_of(device);
    const pal_matrix *w = a->w;
    const pal_const_view x = { a->x, a->ldx }, y = { a->y, a->ldy };
    char options[32];
    options_of(options, w->type);
    if (!a->rows) return;
    if (!steps) {
        const size_t tiles = (((size_t)a->rows + TILE - 1) / TILE) * (((size_t)w->rows + TILE - 1) / TILE);
        const size_t local = TILE * DEEP * sizeof(float);
        pal_cl_launch(d, "product", options, "product", (pal_cl_groups){ tiles, 1, PAL_CL_ITEMS }, "puvviiiimm",
                      w->data, w->row_bytes, x, y, a->rows, w->rows, w->columns, (int)a->add, local, local);
        return;
    }
    for (int first = 0; first < a->rows; first += ROWS) {
        const int rows = a->rows - first < ROWS ? a->rows - first : ROWS;
        pal_cl_launch(d, "product", options, "matvec", (pal_cl_groups){ (size_t)w->rows, 1, PAL_CL_ITEMS }, "puvviiiim",
                      w->data, w->row_bytes, x, y, w->columns, first, rows, (int)a->add, PAL_CL_ITEMS * sizeof(float));
    }
}

void pal_cl_gather_rows(pal_device *device, const pal_matrix *w, const int32_t *ids, size_t count, float *out,
                        size_t ld) {
    const size_t eights = ((size_t)w->columns + 7) / 8, most = PAL_CL_LIST / sizeof *ids;
    char options[32];
    options_of(options, w->type);
    for (size_t done = 0; done < count; done += most) {
        const size_t now = count - done < most ? count - done : most;
        const pal_const_view y = { out + done * ld, ld };
        pal_cl_launch(pal_opencl_of(device), "product", options, "gather", pal_cl_items(now * eights), "pulvui",
                      w->data, w->row_bytes, ids + done, now * sizeof *ids, y, now * eights, w->columns);
    }
}
