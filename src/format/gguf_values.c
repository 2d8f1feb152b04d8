/* SPDX-License-Identifier: MIT */
#include "format/gguf_values.h"

#include <string.h>

#include "base/size.h"

static const uint8_t type_size[PAL_GGUF_TYPES] = { 1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8 };

uint64_t pal_gguf_number(pal_gguf_reader *r, size_t bytes) {
    uint64_t value = 0;
    if (r->bad || !pal_size_inside(r->at, bytes, r->size)) {
        r->bad = true;
        return 0;
    }
    for (size_t i = 0; i < bytes; i++) value |= (uint64_t)r->data[r->at++] << (8 * i);
    return value;
}

pal_slice pal_gguf_string(pal_gguf_reader *r) {
    const uint64_t size = pal_gguf_number(r, 8);
    if (r->bad || !pal_size_inside(r->at, size, r->size)) {
        r->bad = true;
        return (pal_slice){ (const unsigned char *)"", 0 };
    }
    const pal_slice s = { r->data + r->at, (size_t)size };
    r->at += (size_t)size;
    return s;
}

pal_gguf_value pal_gguf_read(pal_gguf_reader *r) {
    pal_gguf_value v = { .type = pal_gguf_number(r, 4) };
    if (v.type == PAL_GGUF_STRING) {
        v.text = pal_gguf_string(r);
    } else if (v.type == PAL_GGUF_ARRAY) {
        v.element = pal_gguf_number(r, 4);
        v.count = pal_gguf_number(r, 8);
        v.at = r->at;
        const uint64_t least = v.element == PAL_GGUF_STRING ? 8 : v.element < PAL_GGUF_TYPES ? type_size[v.element] : 0;
        const size_t bytes = pal_size_mul(v.count, least);
        if (r->bad || least == 0 || !pal_size_inside(r->at, bytes, r->size))
            r->bad = true; /* arrays of arrays are not used */
        if (r->bad) return v;
        if (v.element == PAL_GGUF_STRING)
            for (uint64_t i = 0; i < v.count && !r->bad; i++) pal_gguf_string(r);
        else r->at += bytes;
    } else if (v.type < PAL_GGUF_TYPES) {
        v.bits = pal_gguf_number(r, type_size[v.type]);
    } else {
        r->bad = true;
    }
    return v;
}

bool pal_gguf_is(pal_slice key, const char *name) {
    return key.size == strlen(name) && memcmp(key.data, name, key.size) == 0;
}

pal_status pal_gguf_begin(pal_gguf_reader *r, const char *path, uint64_t *tensors, uint64_t *pairs, pal_error *err) {
    if (r->size < 24 || memcmp(r->data, "GGUF", 4) != 0)
        return pal_fail(err, PAL_E_FORMAT, "%s: not a GGUF file", path);
    r->at = 4;
    const uint64_t version = pal_gguf_number(r, 4);
    *tensors = pal_gguf_number(r, 8);
    *pairs = pal_gguf_number(r, 8);
    if (version > 0xffff) /* 2 or 3 with its bytes turned around */
        return pal_fail(err, PAL_E_UNSUPPORTED, "%s: is big-endian; only little-endian GGUF files are read", path);
    if (version < 2 || version > 3)
        return pal_fail(err, PAL_E_UNSUPPORTED, "%s: GGUF version %llu; 2 and 3 are supported", path,
                        (unsigned long long)version);
    return PAL_OK;
}
