/* SPDX-License-Identifier: MIT */
/* A zip of stored members, as bytes. */
#include "format/zip.h"
#include "input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    pal_zip zip = { 0 };
    pal_error err;
    if (pal_zip_open(&zip, fuzz_file("file.zip", data, size), &err) == PAL_OK)
        for (size_t i = 0; i < zip.count; i++) pal_zip_check(&zip, &zip.members[i], &err);
    pal_zip_close(&zip);
    return 0;
}
