/* SPDX-License-Identifier: MIT */
#include "format/gguf.h"
pal_status pal_gguf_open(pal_source *out, const char *path, pal_error *err) {
    (void)out;
    return pal_fail(err, PAL_E_IO, "%s: not a directory; expected a model directory with config.json", path);
}
