/* SPDX-License-Identifier: MIT */
#include "format/torch_bin.h"
pal_status pal_torch_open(pal_source *out, const char *directory, pal_error *err) {
    (void)out;
    return pal_fail(err, PAL_E_UNSUPPORTED, "%s: has pytorch_model.bin but no model.safetensors; convert it first", directory);
}
