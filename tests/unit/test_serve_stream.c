/* SPDX-License-Identifier: MIT */
/* What waits to be sent of a stream: every byte once and in order, and few of them moved. */
#include "serve/unsent.h"
#include "support/support.h"

enum { LONG = 1 << 20, PIECE = 4096 };

/* The byte at a place of the stream; its period is not a power of two. */
static unsigned char byte_at(size_t i) { return (unsigned char)(i % 251); }

static void append(pal_bytes *stream, size_t *made, size_t count) {
    unsigned char more[PIECE];
    for (; count; count -= count < PIECE ? count : PIECE) {
        const size_t n = count < PIECE ? count : PIECE;
        for (size_t i = 0; i < n; i++) more[i] = byte_at((*made)++);
        assert_int_equal(pal_bytes_append(stream, more, n, NULL), PAL_OK);
    }
}

static void take(pal_bytes *stream, size_t *sent, size_t *taken, size_t most, size_t expected) {
    char out[PIECE];
    assert_int_equal(serve_take(stream, sent, out, most), expected);
    for (size_t i = 0; i < expected; i++) assert_int_equal((unsigned char)out[i], byte_at((*taken)++));
}

/* One long event and small reads: the rest moves when half of it is sent, not at every read. */
static void test_rest_moves_seldom(void **state) {
    (void)state;
    pal_bytes stream = { 0 };
    size_t sent = 0, made = 0, taken = 0, moves = 0, moved = 0;
    append(&stream, &made, LONG);
    take(&stream, &sent, &taken, 100, 100);
    assert_int_equal(sent, 100);
    assert_int_equal(stream.size, LONG);
    while (taken < made) {
        const size_t size = stream.size, left = made - taken;
        take(&stream, &sent, &taken, PIECE, left < PIECE ? left : PIECE);
        if (stream.size != size) moves++, moved += stream.size;
        assert_int_equal(stream.size - sent, made - taken);
        assert_true(!sent || sent < stream.size - sent);
    }
    assert_int_equal(sent, 0);
    assert_int_equal(stream.size, 0);
    assert_in_range(moves, 2, 20);
    assert_in_range(moved, 1, LONG);
    take(&stream, &sent, &taken, PIECE, 0);
    pal_bytes_free(&stream);
}

/* Events come while others are read, in all sizes: the buffer stays small. */
static void test_bytes_come_meanwhile(void **state) {
    (void)state;
    pal_bytes stream = { 0 };
    size_t sent = 0, made = 0, taken = 0;
    for (size_t i = 0; i < 20000; i++) {
        if (made - taken < 2 * PIECE) append(&stream, &made, i * 7919 % PIECE);
        const size_t most = i * 104729 % 1500, waits = made - taken;
        take(&stream, &sent, &taken, most, waits < most ? waits : most);
        assert_int_equal(stream.size - sent, made - taken);
        assert_true(stream.capacity <= 16 * PIECE);
    }
    assert_true(made > LONG);
    pal_bytes_free(&stream);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_rest_moves_seldom),
                                        cmocka_unit_test(test_bytes_come_meanwhile) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
