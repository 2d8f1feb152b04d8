/* SPDX-License-Identifier: MIT */
/* A torch checkpoint whose pickle is the input: the zip around it, with four storages, is made here and sound. After
 * the pickle may stand an index of shards, of which that zip is one. */
#include "format/source.h"
#include "input.h"

enum { STORAGE = 256, STORAGES = 4 };

typedef struct {
    unsigned char *bytes;
    size_t size, room;
    unsigned char central[1024];
    size_t central_size;
    int members;
} archive;

static void append(archive *a, const void *bytes, size_t size) {
    while (a->size + size > a->room) FUZZ_CHECK(a->bytes = realloc(a->bytes, a->room = 2 * (a->room + size)));
    memcpy(a->bytes + a->size, bytes, size);
    a->size += size;
}

static void number(unsigned char **p, uint64_t x, int bytes) {
    for (int i = 0; i < bytes; i++) *(*p)++ = (unsigned char)(i < 8 ? x >> 8 * i : 0);
}

static uint32_t checksum(const unsigned char *p, size_t size) {
    uint32_t x = 0xffffffffu;
    while (size--) {
        x ^= *p++;
        for (int bit = 0; bit < 8; bit++) x = x >> 1 ^ (x & 1 ? 0xedb88320u : 0);
    }
    return ~x;
}

static void put_member(archive *a, const char *name, const void *bytes, size_t size) {
    unsigned char local[30], *p = local, *c = a->central + a->central_size;
    const uint64_t at = a->size, crc = checksum(bytes, size), length = strlen(name);
    number(&p, 0x04034b50, 4), number(&p, 0, 10), number(&p, crc, 4), number(&p, size, 4), number(&p, size, 4);
    number(&p, length, 2), number(&p, 0, 2);
    append(a, local, sizeof local);
    append(a, name, length);
    append(a, bytes, size);
    number(&c, 0x02014b50, 4), number(&c, 0, 12), number(&c, crc, 4), number(&c, size, 4), number(&c, size, 4);
    number(&c, length, 2), number(&c, 0, 12), number(&c, at, 4);
    memcpy(c, name, length);
    a->central_size += 46 + length;
    a->members++;
}

static void finish(archive *a) {
    unsigned char end[22], *p = end;
    const size_t at = a->size;
    append(a, a->central, a->central_size);
    number(&p, 0x06054b50, 4), number(&p, 0, 4), number(&p, (uint64_t)a->members, 2),
        number(&p, (uint64_t)a->members, 2);
    number(&p, a->central_size, 4), number(&p, at, 4), number(&p, 0, 2);
    append(a, end, sizeof end);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char config[] = "{\"model_type\": \"mamba2\", \"hidden_size\": 8}";
    static archive a;
    pal_source source = { 0 };
    pal_error err;
    pal_slice index = { data, size };
    const pal_slice pickle = fuzz_next(&index);
    a.size = a.central_size = 0;
    a.members = 0;
    put_member(&a, "archive/data.pkl", pickle.data, pickle.size);
    for (int i = 0; i < STORAGES; i++) {
        unsigned char storage[STORAGE];
        char name[32];
        memset(storage, i + 1, sizeof storage);
        snprintf(name, sizeof name, "archive/data/%d", i);
        put_member(&a, name, storage, sizeof storage);
    }
    finish(&a);
    fuzz_file("torch/config.json", config, strlen(config));
    if (index.size) {
        fuzz_no_file("torch/pytorch_model.bin");
        fuzz_file("torch/pytorch_model.bin.index.json", index.data, index.size);
        fuzz_file("torch/a.bin", a.bytes, a.size);
    } else {
        fuzz_no_file("torch/pytorch_model.bin.index.json");
        fuzz_file("torch/pytorch_model.bin", a.bytes, a.size);
    }
    if (pal_source_open(&source, fuzz_path("torch"), &err) == PAL_OK)
        for (size_t i = 0; i < source.count; i++) {
            const pal_tensor *t = &source.tensors[i];
            FUZZ_CHECK(t->count <= STORAGE);
            float values[STORAGE];
            pal_source_read(&source, t, 0, t->count, values, &err);
        }
    pal_source_close(&source);
    return 0;
}
