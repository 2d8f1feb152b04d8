/* SPDX-License-Identifier: MIT */
/* A pickle, as bytes; every node and cell that comes out points to one that exists. */
#include "format/pickle.h"
#include "input.h"

static const char *const globals[] = { "collections OrderedDict", "torch._utils _rebuild_tensor_v2",
                                       "torch FloatStorage", NULL };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    pal_pickle p = { 0 };
    pal_error err;
    if (pal_pickle_read(&p, "input", data, size, globals, &err) == PAL_OK) {
        FUZZ_CHECK(p.root < p.node_count);
        for (size_t i = 0; i < p.node_count; i++)
            for (uint32_t c = p.nodes[i].first; c != PAL_PICKLE_END && p.nodes[i].count; c = p.cells[c].next)
                FUZZ_CHECK(c < p.cell_count && p.cells[c].node < p.node_count);
    }
    pal_pickle_free(&p);
    return 0;
}
