/* SPDX-License-Identifier: MIT */
/* The strict reader and the atomic writer: one test a rule of the format, then every truncation and many flipped bits.
 */
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/blocks.h"
#include "format/source.h"
#include "support/files.h"

/* A file of header text and data bytes, with a claimed header length (or the true one when claim is negative). */
typedef struct {
    unsigned char bytes[4096];
    size_t size;
} image;

static image make(const char *header, size_t data, long long claim) {
    image f = { .size = 0 };
    const uint64_t length = claim < 0 ? strlen(header) : (uint64_t)claim;
    for (int i = 0; i < 8; i++) f.bytes[i] = (unsigned char)(length >> (8 * i));
    memcpy(f.bytes + 8, header, strlen(header));
    f.size = 8 + strlen(header) + data;
    for (size_t i = f.size - data; i < f.size; i++) f.bytes[i] = (unsigned char)i;
    return f;
}

static void refuses(const char *header, size_t data, long long claim, const char *sentence) {
    const image f = make(header, data, claim);
    pal_safetensors *st = (pal_safetensors *)1;
    pal_error err = { 0 };
    assert_int_not_equal(pal_safetensors_parse(&st, "case", f.bytes, f.size, &err), PAL_OK);
    assert_null(st);
    if (strncmp(err.text, "case: ", 6) != 0 || !strstr(err.text, sentence))
        fail_msg("'%s' does not say '%s'", err.text, sentence);
}

static void accepts(const char *header, size_t data) {
    const image f = make(header, data, -1);
    pal_safetensors *st;
    pal_error err;
    if (pal_safetensors_parse(&st, "case", f.bytes, f.size, &err)) fail_msg("%s", err.text);
    pal_safetensors_close(st);
}

#define T(name, dtype, shape, begin, end) \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" begin "," end "]}"

static void reader_accepts_what_the_format_allows(void **state) {
    (void)state;
    accepts("{}", 0);
    accepts("{}   ", 0);
    accepts("{\"__metadata__\":{\"a\":\"b\"}}", 0);
    accepts("{" T("a", "F32", "[2,3]", "0", "24") "}", 24);
    accepts("{\"__metadata__\":{}," T("", "U8", "[]", "0", "1") "," T("b", "U8", "[]", "1", "2") "," T("c", "U8", "[]",
                                                                                                       "2", "3") "}",
            3);
    accepts("{" T("scalar", "F64", "[]", "0", "8") "}", 8);
    accepts("{" T("b", "U8", "[4]", "8", "12") "," T("a", "F32", "[2]", "0", "8") "}", 12);
    accepts("{" T("empty", "F32", "[0,5]", "0", "0") "," T("a", "F32", "[1]", "0", "4") "}", 4);
    accepts("{" T("a", "F32", "[1]", "0", "4") "," T("empty", "F32", "[0]", "4", "4") "}", 4);
}

static void reader_rejects_each_broken_rule(void **state) {
    (void)state;
    refuses("{}", 0, 1LL << 62, "at most 100000000");
    refuses("{}", 0, 100000001, "at most 100000000");
    refuses("{}", 0, 3, "the file has");
    refuses("", 0, 0, "start with '{'");
    refuses(" {}", 0, -1, "start with '{'");
    refuses("[]", 0, -1, "start with '{'");
    refuses("{", 0, -1, "not valid JSON");
    refuses("{}x", 0, -1, "not valid JSON");
    refuses("{\"a\":1}", 0, -1, "not described by an object");
    refuses("{" T("a", "F32", "[1]", "0", "4") "," T("a", "F32", "[1]", "0", "4") "}", 4, -1, "not valid JSON");
    refuses("{" T("a", "Q9", "[1]", "0", "4") "}", 4, -1, "dtype 'Q9'");
    refuses("{\"a\":{\"shape\":[1],\"data_offsets\":[0,4],\"x\":1}}", 4, -1, "no dtype");
    refuses("{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4],\"x\":1}}", 4, -1, "no shape");
    refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"x\":[0,4]}}", 4, -1, "data_offsets");
    refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":1}}", 4, -1, "exactly");
    refuses("{" T("a", "F32", "[-1]", "0", "4") "}", 4, -1, "dimension 0");
    refuses("{" T("a", "F32", "[1.5]", "0", "4") "}", 4, -1, "dimension 0");
    refuses("{" T("a", "F32", "[\"1\"]", "0", "4") "}", 4, -1, "dimension 0");
    refuses("{" T("a", "F32", "[1,1,1,1,1,1,1,1,1]", "0", "4") "}", 4, -1, "9 dimensions");
    refuses("{" T("a", "F32", "[4294967296,4294967296]", "0", "4") "}", 4, -1, "overflows");
    refuses("{" T("a", "F32", "[4611686018427387904]", "0", "4") "}", 4, -1, "bytes");
    refuses("{" T("a", "F32", "[2]", "0", "4") "}", 4, -1, "2 elements of F32 but 4 bytes");
    refuses("{" T("a", "F32", "[1]", "-4", "0") "}", 4, -1, "claims bytes");
    refuses("{" T("a", "F32", "[1]", "4", "0") "}", 4, -1, "claims bytes");
    refuses("{" T("a", "F32", "[1]", "4", "8") "}", 4, -1, "claims bytes");
    refuses("{" T("a", "F32", "[1]", "4", "8") "}", 8, -1, "there is a hole");
    refuses("{" T("a", "F32", "[2]", "0", "8") "," T("b", "F32", "[1]", "4", "8") "}", 8, -1, "overlap");
    refuses("{" T("a", "F32", "[1]", "0", "4") "," T("b", "F32", "[1]", "0", "4") "}", 4, -1, "overlap");
    refuses("{" T("a", "F32", "[1]", "0", "4") "}", 5, -1, "cover 4 bytes");
    refuses("{" T("a", "F32", "[1]", "0", "99999999999999999999") "}", 4, -1, "not valid JSON");
    refuses("{\"__metadata__\":{\"a\":\"b\\u0000c\"}}", 0, -1, "not valid JSON");
    refuses("{\"a\":1,\"b\":1,\"c\":1}", 0, -1, "3 entries in a header of 19 bytes");
    refuses("{\"__metadata__\":[]}", 0, -1, "__metadata__");
    refuses("{\"__metadata__\":{\"a\":1}}", 0, -1, "not a string");
}

static void reader_survives_deep_nesting(void **state) {
    (void)state;
    enum { DEPTH = 100000 };
    char *header = pal_alloc(8 + DEPTH + 1, 1);
    memset(header + 8, '[', DEPTH);
    header[8] = '{';
    const uint64_t length = DEPTH;
    memcpy(header, &length, sizeof length);
    pal_safetensors *st;
    assert_int_equal(pal_safetensors_parse(&st, "deep", header, 8 + DEPTH, NULL), PAL_E_FORMAT);
    pal_free(header);
}

static const float sample_a[6] = { 1, -2, 3.5f, 0, 1e-30f, 7 };
static const double sample_b[2] = { 1e300, -0.5 };
static const uint16_t sample_c[3] = { 0x3c00, 0xc000, 0x7bff };

static void write_sample(const char *path) {
    const pal_tensor tensors[] = {
        { .name = "a", .dtype = PAL_F32, .rank = 2, .shape = { 2, 3 }, .count = 6, .data = sample_a },
        { .name = "half \"quoted\"", .dtype = PAL_F16, .rank = 1, .shape = { 3 }, .count = 3, .data = sample_c },
        { .name = "b", .dtype = PAL_F64, .rank = 1, .shape = { 2 }, .count = 2, .data = sample_b },
    };
    const char *const metadata[] = { "format", "pt", "note", "two words", NULL };
    pal_error err;
    if (pal_safetensors_write(path, tensors, 3, metadata, &err)) fail_msg("%s", err.text);
}

static char *temporary_folder(void) {
    static char folder[256];
    test_directory(folder);
    return folder;
}

static size_t read_all(const char *path, unsigned char *bytes, size_t capacity) {
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    const size_t n = fread(bytes, 1, capacity, f);
    fclose(f);
    return n;
}

static void written_file_reads_back(void **state) {
    (void)state;
    char path[300];
    snprintf(path, sizeof path, "%s/x.safetensors", temporary_folder());
    write_sample(path);
    write_sample(path); /* overwriting is fine */
    pal_safetensors *st;
    pal_error err;
    if (pal_safetensors_open(&st, path, &err)) fail_msg("%s", err.text);
    assert_int_equal(pal_safetensors_count(st), 3);
    assert_string_equal(pal_safetensors_at(st, 0)->name, "b"); /* widest elements first */
    assert_null(pal_safetensors_at(st, 3));
    const pal_tensor *a = pal_safetensors_find(st, "a"), *half = pal_safetensors_find(st, "half \"quoted\"");
    assert_int_equal(a->rank, 2);
    assert_int_equal(a->shape[1], 3);
    assert_memory_equal(a->data, sample_a, sizeof sample_a);
    assert_int_equal((uintptr_t)pal_safetensors_at(st, 0)->data % 8, 0);
    float converted[3];
    assert_int_equal(pal_tensor_to_f32(half, converted, &err), PAL_OK);
    assert_true(converted[0] == 1 && converted[1] == -2 && converted[2] == 65504);
    assert_null(pal_safetensors_find(st, "c"));
    assert_string_equal(pal_safetensors_metadata(st, "note"), "two words");
    assert_null(pal_safetensors_metadata(st, "absent"));
    pal_safetensors_close(st);
    unlink(path);
    char *slash = strrchr(path, '/');
    *slash = '\0';
    assert_int_equal(rmdir(path), 0); /* no temporary left over */
}

static void failed_write_leaves_the_old_file(void **state) {
    (void)state;
    char path[300];
    unsigned char before[4096], after[4096];
    snprintf(path, sizeof path, "%s/x.safetensors", temporary_folder());
    write_sample(path);
    const size_t n = read_all(path, before, sizeof before);

    const pal_tensor big = {
        .name = "a", .dtype = PAL_F32, .rank = 1, .shape = { 1 << 20 }, .count = 1 << 20, .data = pal_alloc(1 << 20, 4)
    };
    const struct rlimit small = { 65536, RLIM_INFINITY };
    struct rlimit old;
    pal_error err;
    getrlimit(RLIMIT_FSIZE, &old);
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    assert_int_equal(pal_safetensors_write(path, &big, 1, NULL, &err), PAL_E_IO);
    setrlimit(RLIMIT_FSIZE, &old);
    signal(SIGXFSZ, handler);
    pal_free((void *)big.data);

    assert_int_equal(read_all(path, after, sizeof after), n);
    assert_memory_equal(before, after, n);
    unlink(path);
    *strrchr(path, '/') = '\0';
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(pal_safetensors_write("/nonexistent/x", NULL, 0, NULL, &err), PAL_E_IO);
    assert_non_null(strstr(err.text, "/nonexistent/x"));
}

static void writer_refuses_two_tensors_of_one_name(void **state) {
    (void)state;
    const pal_tensor tensors[] = {
        { .name = "a", .dtype = PAL_F32, .rank = 1, .shape = { 1 }, .count = 1, .data = sample_a },
        { .name = "a", .dtype = PAL_F64, .rank = 1, .shape = { 1 }, .count = 1, .data = sample_b },
        { .name = "A", .dtype = PAL_F32, .rank = 1, .shape = { 1 }, .count = 1, .data = sample_a }, /* written between
                                                                                                       them */
    };
    pal_error err;
    assert_int_equal(pal_safetensors_write("/tmp/palimpsa-never-written", tensors, 3, NULL, &err), PAL_E_ARGUMENT);
    assert_non_null(strstr(err.text, "two tensors are named 'a'"));
    assert_int_not_equal(access("/tmp/palimpsa-never-written", F_OK), 0);
}

static void writer_refuses_tensors_that_contradict_themselves(void **state) {
    (void)state;
    static const struct {
        pal_tensor t;
        const char *sentence;
    } cases[] = {
        { { .name = NULL, .rank = 1, .shape = { 1 }, .count = 1, .data = sample_a }, "tensor 0 has no name" },
        { { .name = "__metadata__", .rank = 1, .shape = { 1 }, .count = 1, .data = sample_a }, "cannot be named" },
        { { .name = "a", .dtype = PAL_DTYPES, .rank = 1, .shape = { 1 }, .count = 1, .data = sample_a }, "no dtype" },
        { { .name = "a", .rank = PAL_MAX_RANK + 1, .count = 1, .data = sample_a }, "9 dimensions" },
        { { .name = "a", .rank = -1, .count = 1, .data = sample_a }, "-1 dimensions" },
        { { .name = "a", .rank = 1, .shape = { -1 }, .count = 1, .data = sample_a }, "dimension 0 is -1" },
        { { .name = "a", .rank = 2, .shape = { INT64_MAX, 4 }, .count = 1, .data = sample_a }, "dimension 1 is 4" },
        { { .name = "a", .rank = 2, .shape = { 2, 3 }, .count = 5, .data = sample_a }, "5 elements, its shape 6" },
        { { .name = "a", .rank = 1, .shape = { 1 }, .count = 1, .data = NULL }, "no data" },
    };
    for (size_t i = 0; i < PAL_COUNT(cases); i++) {
        pal_error err;
        assert_int_equal(pal_safetensors_write("/tmp/palimpsa-never-written", &cases[i].t, 1, NULL, &err),
                         PAL_E_ARGUMENT);
        if (!strstr(err.text, cases[i].sentence)) fail_msg("'%s' does not say '%s'", err.text, cases[i].sentence);
    }
    assert_int_not_equal(access("/tmp/palimpsa-never-written", F_OK), 0);
}

static void open_names_the_file_it_cannot_read(void **state) {
    (void)state;
    pal_safetensors *st;
    pal_error err;
    assert_int_equal(pal_safetensors_open(&st, "/nonexistent.safetensors", &err), PAL_E_IO);
    assert_non_null(strstr(err.text, "/nonexistent.safetensors"));
    assert_int_equal(pal_safetensors_open(&st, "/tmp", &err), PAL_E_IO);
    assert_non_null(strstr(err.text, "not a regular file"));
}

static size_t sample_bytes(unsigned char *bytes, size_t capacity) {
    char path[300];
    snprintf(path, sizeof path, "%s/x.safetensors", temporary_folder());
    write_sample(path);
    const size_t n = read_all(path, bytes, capacity);
    unlink(path);
    *strrchr(path, '/') = '\0';
    rmdir(path);
    return n;
}

static void every_truncation_is_refused(void **state) {
    (void)state;
    unsigned char bytes[4096];
    const size_t n = sample_bytes(bytes, sizeof bytes);
    for (size_t cut = 0; cut < n; cut++) {
        unsigned char *copy = malloc(cut ? cut : 1); /* exact size, so that a sanitizer sees any overrun */
        memcpy(copy, bytes, cut);
        pal_safetensors *st;
        assert_int_not_equal(pal_safetensors_parse(&st, "cut", copy, cut, NULL), PAL_OK);
        free(copy);
    }
}

static int same_tensors(const pal_safetensors *x, const pal_safetensors *y) {
    if (pal_safetensors_count(x) != pal_safetensors_count(y)) return 0;
    for (size_t i = 0; i < pal_safetensors_count(x); i++) {
        const pal_tensor *a = pal_safetensors_at(x, i), *b = pal_safetensors_at(y, i);
        if (strcmp(a->name, b->name) != 0 || a->dtype != b->dtype || a->count != b->count) return 0;
    }
    return 1;
}

/* A flipped bit in the header either is refused or changes only names, shapes of equal size, dtypes of equal size or
 * metadata; in the data, exactly that value changes. Never a crash. */
static void flipped_bits_never_crash(void **state) {
    (void)state;
    unsigned char bytes[4096], broken[4096];
    const size_t n = sample_bytes(bytes, sizeof bytes);
    uint64_t header;
    memcpy(&header, bytes, sizeof header);
    pal_safetensors *good, *st;
    assert_int_equal(pal_safetensors_parse(&good, "good", bytes, n, NULL), PAL_OK);
    for (size_t bit = 0; bit < n * 8; bit++) {
        memcpy(broken, bytes, n);
        broken[bit / 8] = (unsigned char)(broken[bit / 8] ^ (1u << (bit % 8)));
        const pal_status status = pal_safetensors_parse(&st, "flip", broken, n, NULL);
        if (bit / 8 >= 8 + header) {
            assert_int_equal(status, PAL_OK);
            assert_true(same_tensors(good, st));
        }
        pal_safetensors_close(st);
    }
    pal_safetensors_close(good);
}

static void memory_shortage_is_an_error_not_a_crash(void **state) {
    (void)state;
    unsigned char bytes[4096];
    const size_t n = sample_bytes(bytes, sizeof bytes);
    int failures = 0;
    for (uint64_t k = 1; k < 20; k++) {
        pal_safetensors *st;
        pal_alloc_fail_at(k);
        const pal_status status = pal_safetensors_parse(&st, "x", bytes, n, NULL);
        pal_alloc_fail_at(0);
        if (status == PAL_OK) pal_safetensors_close(st);
        else failures++;
        assert_true(status == PAL_OK || status == PAL_E_MEMORY);
    }
    assert_int_equal(failures, 3);
}

enum { VERSIONED = 50000 };

/* Overwrites one file forever; every element of version v is v. Says on a pipe when the first is there. */
static void write_versions(const char *path, int ready) {
    float *x = pal_alloc(VERSIONED, sizeof *x);
    const pal_tensor t = {
        .name = "x", .dtype = PAL_F32, .rank = 1, .shape = { VERSIONED }, .count = VERSIONED, .data = x
    };
    for (int version = 1;; version++) {
        for (int i = 0; i < VERSIONED; i++) x[i] = (float)version;
        if (pal_safetensors_write(path, &t, 1, NULL, NULL)) _exit(1);
        if (version == 1 && write(ready, "", 1) != 1) _exit(1);
    }
}

/* Killed at any moment, the writer leaves the old file or the new one, whole. */
static void killed_writer_leaves_a_whole_file(void **state) {
    (void)state;
    const int kills = test_cases(10, 300);
    char folder[256], path[300];
    snprintf(folder, sizeof folder, "%s", temporary_folder());
    snprintf(path, sizeof path, "%s/x.safetensors", folder);
    pal_rng rng = pal_rng_at(5, 0);
    for (int k = 0; k < kills; k++) {
        int ready[2];
        char byte;
        assert_int_equal(pipe(ready), 0);
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) write_versions(path, ready[1]);
        close(ready[1]);
        assert_int_equal(read(ready[0], &byte, 1), 1);
        close(ready[0]);
        usleep(pal_rng_below(&rng, 30000));
        kill(child, SIGKILL);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status)); /* it was writing, not failing */
        pal_safetensors *st;
        pal_error err;
        const pal_status opened = pal_safetensors_open(&st, path, &err);
        if (opened) fail_msg("after kill %d: %s", k, err.text);
        float x[VERSIONED];
        assert_int_equal(pal_tensor_to_f32(pal_safetensors_find(st, "x"), x, NULL), PAL_OK);
        for (int i = 1; i < VERSIONED; i++) assert_true(x[i] == x[0] && x[0] >= 1);
        pal_safetensors_close(st);
    }
    test_remove(folder); /* killed writers leave their temporaries */
}

static void every_type_converts_to_f32(void **state) {
    (void)state;
    static const struct {
        pal_dtype dtype;
        union {
            double f64[2];
            uint16_t u16[2];
            int16_t i16[2];
            int32_t i32[2];
            uint32_t u32[2];
            int64_t i64[2];
            uint64_t u64[2];
            int8_t i8[2];
            uint8_t u8[2];
        } data;
        float first, second;
    } cases[] = {
        { PAL_F64, { .f64 = { -0.5, 1e300 } }, -0.5f, INFINITY },
        { PAL_F16, { .u16 = { 0x3C00, 0xC000 } }, 1, -2 },
        { PAL_BF16, { .u16 = { 0x3F80, 0xC000 } }, 1, -2 },
        { PAL_I64, { .i64 = { -100, 1 << 20 } }, -100, 1048576 },
        { PAL_I32, { .i32 = { -100, 1 << 20 } }, -100, 1048576 },
        { PAL_I16, { .i16 = { -100, 1 << 14 } }, -100, 16384 },
        { PAL_I8, { .i8 = { -100, 127 } }, -100, 127 },
        { PAL_U64, { .u64 = { 0, 1ull << 63 } }, 0, 0x1p63f },
        { PAL_U32, { .u32 = { 0, 1u << 31 } }, 0, 0x1p31f },
        { PAL_U16, { .u16 = { 0, 65535 } }, 0, 65535 },
        { PAL_U8, { .u8 = { 0, 255 } }, 0, 255 },
        { PAL_BOOL, { .u8 = { 0, 1 } }, 0, 1 },
    };
    for (size_t i = 0; i < PAL_COUNT(cases); i++) {
        float out[2];
        const pal_tensor t = {
            .name = "t", .dtype = cases[i].dtype, .rank = 1, .shape = { 2 }, .count = 2, .data = &cases[i].data
        };
        assert_int_equal(pal_tensor_to_f32(&t, out, NULL), PAL_OK);
        if (out[0] != cases[i].first || out[1] != cases[i].second)
            fail_msg("%s: %g and %g", pal_dtype_name(t.dtype), (double)out[0], (double)out[1]);
    }
    /* Blocks: whole ones, and any stretch of them. */
    float x[64], out[64];
    unsigned char blocks[2 * 34];
    const pal_block_format *format = pal_block_format_of(PAL_Q8_0);
    for (int i = 0; i < 64; i++) x[i] = (float)(i - 32);
    for (int i = 0; i < 2; i++) format->encode(x + 32 * i, blocks + 34 * i);
    pal_tensor t = { .name = "t", .dtype = PAL_Q8_0, .rank = 1, .shape = { 64 }, .count = 64, .data = blocks };
    assert_int_equal(pal_tensor_to_f32(&t, x, NULL), PAL_OK);
    for (size_t first = 0; first < 64; first += 7)
        for (size_t count = 1; first + count <= 64; count += 5) {
            pal_values_decode(PAL_Q8_0, blocks, first, count, out);
            assert_memory_equal(out, x + first, count * sizeof *x);
        }
    t.count = 33;
    assert_int_equal(pal_tensor_to_f32(&t, x, NULL), PAL_E_UNSUPPORTED);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reader_accepts_what_the_format_allows),
        cmocka_unit_test(reader_rejects_each_broken_rule),
        cmocka_unit_test(reader_survives_deep_nesting),
        cmocka_unit_test(written_file_reads_back),
        cmocka_unit_test(failed_write_leaves_the_old_file),
        cmocka_unit_test(writer_refuses_two_tensors_of_one_name),
        cmocka_unit_test(writer_refuses_tensors_that_contradict_themselves),
        cmocka_unit_test(open_names_the_file_it_cannot_read),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(flipped_bits_never_crash),
        cmocka_unit_test(memory_shortage_is_an_error_not_a_crash),
        cmocka_unit_test(killed_writer_leaves_a_whole_file),
        cmocka_unit_test(every_type_converts_to_f32),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
