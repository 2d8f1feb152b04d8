/* SPDX-License-Identifier: MIT */
/* A GGUF file that is described by the input: counts, lengths, offsets and padding are made here and sound, so that
 * mutations reach what lies after them. A line is a pair or a tensor, of fields with a tab between:
 *
 *   KEY  TYPE  VALUE                 types are numbers, as in the files
 *   KEY  9  TYPE  VALUE  VALUE ...   an array
 *   +NAME  TYPE  EXTENT ...          a tensor; all of them hold the same bytes */
#include "base/blocks.h"
#include "base/half.h"
#include "base/size.h"
#include "format/gguf_values.h"
#include "gguf.h"
#include "input.h"
#include "text/strings.h"

enum {
    EXTENTS = 8,
    DATA_MOST = 1 << 16,
    ALIGNMENT_MOST = 4096,
    BYTE = 0xbe /* numbers of it are finite in every type, and negative, as ssm_a has to be */
};

typedef struct {
    pal_bytes file, pairs, infos, data;
    uint64_t pair_count, info_count;
    size_t alignment;
} description;

static void put(pal_bytes *to, const void *data, size_t size) {
    pal_error err;
    if (size) FUZZ_CHECK(pal_bytes_append(to, data, size, &err) == PAL_OK);
}

static void put_number(pal_bytes *to, uint64_t x, size_t bytes) {
    unsigned char out[8];
    for (size_t i = 0; i < bytes; i++) out[i] = (unsigned char)(x >> 8 * i);
    put(to, out, bytes);
}

static void put_same(pal_bytes *to, int byte, size_t count) {
    static unsigned char bytes[DATA_MOST];
    memset(bytes, byte, count);
    put(to, bytes, count);
}

static void put_padding(pal_bytes *to, size_t alignment) { put_same(to, 0, -to->size & (alignment - 1)); }

static void put_string(pal_bytes *to, pal_slice text) {
    put_number(to, text.size, 8);
    put(to, text.data, text.size);
}

/* Takes the next field off a line, or the next line off a text. */
static pal_slice next(pal_slice *rest, char end) {
    const unsigned char *at = rest->size ? memchr(rest->data, end, rest->size) : NULL;
    const pal_slice part = { rest->data, at ? (size_t)(at - rest->data) : rest->size };
    const size_t used = part.size + (at != NULL);
    *rest = (pal_slice){ rest->data + used, rest->size - used };
    return part;
}

static const char *text_of(pal_slice field) {
    static char text[32];
    snprintf(text, sizeof text, "%.*s", (int)(field.size < sizeof text ? field.size : sizeof text),
             (const char *)field.data);
    return text;
}

static uint64_t number_of(pal_slice field) { return strtoull(text_of(field), NULL, 10); }

static void put_value(pal_bytes *to, uint64_t type, pal_slice field) {
    static const uint8_t sizes[PAL_GGUF_TYPES] = { 1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8 };
    if (type == PAL_GGUF_STRING) {
        put_string(to, field);
    } else if (type == PAL_GGUF_F32) {
        put_number(to, pal_f32_bits((float)strtod(text_of(field), NULL)), 4);
    } else if (type == PAL_GGUF_F64) {
        const double x = strtod(text_of(field), NULL);
        put(to, &x, sizeof x);
    } else if (type < PAL_GGUF_TYPES) {
        put_number(to, number_of(field), sizes[type]);
    }
}

static void add_pair(description *d, pal_slice key, pal_slice line) {
    const uint64_t type = number_of(next(&line, '\t'));
    put_string(&d->pairs, key);
    put_number(&d->pairs, type, 4);
    d->pair_count++;
    if (type != PAL_GGUF_ARRAY) {
        const uint64_t unit = pal_gguf_is(key, "general.alignment") ? number_of(line) : 0;
        if (unit && unit <= ALIGNMENT_MOST && !(unit & (unit - 1))) d->alignment = unit;
        put_value(&d->pairs, type, line);
        return;
    }
    const uint64_t element = number_of(next(&line, '\t'));
    uint64_t count = line.size > 0;
    for (size_t i = 0; i < line.size; i++) count += line.data[i] == '\t';
    put_number(&d->pairs, element, 4);
    put_number(&d->pairs, count, 8);
    for (uint64_t i = 0; i < count; i++) put_value(&d->pairs, element, next(&line, '\t'));
}

static void add_tensor(description *d, pal_slice name, pal_slice line) {
    const uint64_t type = number_of(next(&line, '\t'));
    const pal_block_format *format = pal_block_format_of_ggml(type);
    uint64_t rank = 0, extents[EXTENTS];
    size_t values = 1;
    for (; line.size && rank < EXTENTS; rank++) {
        extents[rank] = number_of(next(&line, '\t'));
        values = pal_size_mul(values, extents[rank]);
    }
    put_string(&d->infos, name);
    put_number(&d->infos, rank, 4);
    for (uint64_t i = 0; i < rank; i++) put_number(&d->infos, extents[i], 8);
    put_number(&d->infos, type, 4);
    put_number(&d->infos, d->data.size, 8);
    d->info_count++;
    const size_t bytes = format ? pal_size_mul(values / format->values, format->bytes) : 0;
    if (pal_size_inside(d->data.size, bytes, DATA_MOST)) put_same(&d->data, BYTE, bytes); /* else too short a file */
    put_padding(&d->data, d->alignment);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static description d;
    pal_slice rest = { data, size };
    d.file.size = d.pairs.size = d.infos.size = d.data.size = 0;
    d.pair_count = d.info_count = 0;
    d.alignment = 32;
    while (rest.size) {
        pal_slice line = next(&rest, '\n');
        const pal_slice name = next(&line, '\t');
        if (name.size && name.data[0] == '+') add_tensor(&d, (pal_slice){ name.data + 1, name.size - 1 }, line);
        else add_pair(&d, name, line);
    }
    put(&d.file, "GGUF\3\0\0\0", 8);
    put_number(&d.file, d.info_count, 8);
    put_number(&d.file, d.pair_count, 8);
    put(&d.file, d.pairs.data, d.pairs.size);
    put(&d.file, d.infos.data, d.infos.size);
    put_padding(&d.file, d.alignment);
    put(&d.file, d.data.data, d.data.size);
    fuzz_gguf(d.file.data, d.file.size);
    return 0;
}
