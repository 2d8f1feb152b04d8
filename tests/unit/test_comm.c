/* SPDX-License-Identifier: MIT */
/* Ranks as threads of one process, over a transport that hands messages through memory: sums in the order of ranks,
 * shares, the exchange of gradients and parameters, a rank that fails, and one that stays silent. */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "comm/exchange.h"
#include "support/support.h"

enum { RANKS = 5, MOST = 4096, ROOM = 6 /* messages of a rank, of each kind */ };

/* One message under way, begun by one side or by both. */
typedef struct {
    int from, to;
    pal_comm_kind kind;
    const void *sent;
    void *wanted;
    size_t bytes;
    int *sender, *receiver; /* what is counted down */
} message;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static message queue[MOST];
static size_t queued;
static int *done[RANKS][MOST]; /* what a rank counts down when it looks next */
static size_t done_count[RANKS];
static bool failed;
static int sent_by_root_beyond_rank_1;
static int most_under_way; /* that one rank counted at a time */

typedef struct {
    int rank;
} place;

/* A message is delivered when the other side comes to it: the oldest of its kind that has no such side yet. */
static pal_status post(message m, pal_error *err) {
    const int under_way = *(m.sender ? m.sender : m.receiver);
    pthread_mutex_lock(&lock);
    if (under_way > most_under_way) most_under_way = under_way;
    if (m.sent && m.from == 0 && m.to > 1) sent_by_root_beyond_rank_1++;
    for (size_t i = 0; i < queued; i++) {
        message *q = &queue[i];
        if (q->from != m.from || q->to != m.to || q->kind != m.kind || !q->sent == !m.sent) continue;
        assert_int_equal(q->bytes, m.bytes);
        memcpy(m.wanted ? m.wanted : q->wanted, m.sent ? m.sent : q->sent, m.bytes);
        done[m.from][done_count[m.from]++] = m.sender ? m.sender : q->sender;
        done[m.to][done_count[m.to]++] = m.receiver ? m.receiver : q->receiver;
        memmove(q, q + 1, (--queued - i) * sizeof *q);
        pthread_mutex_unlock(&lock);
        return PAL_OK;
    }
    const bool room = queued < MOST;
    if (room) queue[queued++] = m;
    pthread_mutex_unlock(&lock);
    return room ? PAL_OK : pal_fail(err, PAL_E_MEMORY, "too many messages");
}

static pal_status begin_send(void *self, int to, pal_comm_kind kind, const void *data, size_t bytes, int *left,
                             pal_error *err) {
    ++*left;
    return post((message){ ((place *)self)->rank, to, kind, data, NULL, bytes, left, NULL }, err);
}

static pal_status begin_receive(void *self, int from, pal_comm_kind kind, void *data, size_t bytes, int *left,
                                pal_error *err) {
    ++*left;
    return post((message){ from, ((place *)self)->rank, kind, NULL, data, bytes, NULL, left }, err);
}

static pal_status progress(void *self, pal_error *err) {
    const int rank = ((place *)self)->rank;
    pthread_mutex_lock(&lock);
    while (done_count[rank]) --*done[rank][--done_count[rank]];
    const bool bad = failed;
    pthread_mutex_unlock(&lock);
    return bad ? pal_fail(err, PAL_E_IO, "a rank failed") : PAL_OK;
}

static int silent(void *self, const int *left) {
    int peer = -1;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < queued; i++)
        if (queue[i].receiver == left) peer = queue[i].from;
        else if (queue[i].sender == left) peer = queue[i].to;
    pthread_mutex_unlock(&lock);
    (void)self;
    return peer;
}

static const pal_transport in_memory = {
    .send = begin_send, .receive = begin_receive, .progress = progress, .silent = silent
};

typedef struct {
    place at;
    pal_comm comm;
    size_t flat;
    float *gradients, *parameters;
    pal_status status;
    pal_error err;
    void (*work)(void *self);
} member;

static void *run_member(void *arg) {
    member *m = arg;
    m->work(m);
    return NULL;
}

/* Runs work on so many ranks at once. */
static void together(member *members, int size, void (*work)(void *)) {
    pthread_t thread[RANKS];
    queued = 0;
    failed = false;
    most_under_way = sent_by_root_beyond_rank_1 = 0;
    memset(done_count, 0, sizeof done_count);
    for (int r = 0; r < size; r++) {
        member *m = &members[r];
        m->at.rank = r;
        if (!(m->comm.timeout > 0)) m->comm.timeout = 20;
        m->comm = (pal_comm){ .rank = r,
                              .size = size,
                              .timeout = m->comm.timeout,
                              .room = ROOM,
                              .transport = &in_memory,
                              .self = &m->at };
        m->work = work;
        assert_int_equal(pthread_create(&thread[r], NULL, run_member, m), 0);
    }
    for (int r = 0; r < size; r++) pthread_join(thread[r], NULL);
}

static void shares_cover_all(void **state) {
    (void)state;
    for (int size = 1; size <= 7; size++)
        for (int n = size; n < 40; n++) {
            const pal_comm c = { .size = size };
            int next = 0;
            for (int r = 0; r < size; r++) {
                const pal_share s = pal_comm_share_of(&c, r, n);
                assert_int_equal(s.first, next);
                assert_true(s.count >= n / size && s.count <= pal_comm_largest_share(&c, n));
                next += s.count;
            }
            assert_int_equal(next, n);
        }
}

/* Of three or more such numbers the order of the sum decides the last bits. */
static double term(int i, int rank) { return (i + 1) / (3.0 + rank) * (rank % 2 ? 1e8 : 1); }

static void sum_and_talk(void *self) {
    member *m = self;
    const pal_comm *c = &m->comm;
    double x[100];
    bool any;
    for (int i = 0; i < 100; i++) x[i] = term(i, c->rank);
    m->status = pal_comm_sum(c, x, 100, &m->err);
    for (int i = 0; i < 100 && !m->status; i++) {
        double expected = term(i, 0);
        for (int r = 1; r < c->size; r++) expected += term(i, r);
        if (x[i] != expected) m->status = PAL_E_ARGUMENT;
    }
    if (!m->status) m->status = pal_comm_any(c, c->rank == c->size - 1, &any, &m->err);
    if (!m->status && !any) m->status = PAL_E_ARGUMENT;
    if (!m->status) m->status = pal_comm_any(c, false, &any, &m->err);
    if (!m->status && any) m->status = PAL_E_ARGUMENT;
    char *text = c->rank ? NULL : "from the root";
    if (!m->status) m->status = pal_comm_broadcast_text(c, &text, &m->err);
    if (!m->status && strcmp(text, "from the root") != 0) m->status = PAL_E_ARGUMENT;
    if (c->rank) pal_free(text);
    int moved = c->rank;
    if (!m->status) m->status = pal_comm_move(c, c->size - 1, 0, &moved, sizeof moved, &m->err);
    if (!m->status && moved != (c->rank ? c->rank : c->size - 1)) m->status = PAL_E_ARGUMENT;
    if (!m->status) m->status = pal_comm_meet(c, &m->err);
}

static void sums_are_in_the_order_of_ranks(void **state) {
    (void)state;
    for (int size = 1; size <= RANKS; size++) {
        member members[RANKS] = { 0 };
        together(members, size, sum_and_talk);
        for (int r = 0; r < size; r++) assert_int_equal(members[r].status, PAL_OK);
    }
    assert_int_equal(queued, 0);
}

enum { LARGE = 5 * 1000 * 1000 / (int)sizeof(float) + 3 }; /* floats: several pieces, and a part of one */

static float weight(size_t i) { return (float)(i % 9973); }

static void broadcast_large(void *self) {
    member *m = self;
    for (size_t i = 0; i < LARGE; i++) m->parameters[i] = m->comm.rank ? 0 : weight(i);
    m->status = pal_comm_broadcast(&m->comm, m->parameters, LARGE * sizeof(float), &m->err);
}

/* A rank hands the weights on: if the root sent them to one rank after the other, the last would wait for all before
 * it, and take the root for silent. */
static void large_data_go_from_rank_to_rank(void **state) {
    (void)state;
    for (int size = 2; size <= RANKS; size++) {
        member members[RANKS] = { 0 };
        for (int r = 0; r < size; r++) members[r].parameters = pal_alloc(LARGE, sizeof(float));
        together(members, size, broadcast_large);
        for (int r = 0; r < size; r++) {
            assert_int_equal(members[r].status, PAL_OK);
            for (size_t i = 0; i < LARGE; i++) assert_true(members[r].parameters[i] == weight(i));
            pal_free(members[r].parameters);
        }
        assert_int_equal(sent_by_root_beyond_rank_1, 0);
        assert_true(most_under_way <= ROOM);
    }
    assert_int_equal(queued, 0);
}

static float gradient(size_t i, int rank) { return (float)((i * 2654435761u + (unsigned)rank * 40503u) % 1000) / 7; }

/* Two updates: gradients become final from the end on, in uneven steps; a rank's update is plus one on its slices. */
static void exchange_twice(void *self) {
    member *m = self;
    pal_exchange *x;
    m->status = pal_exchange_new(&x, &m->comm, m->flat, &m->err);
    for (int update = 0; update < 2 && !m->status; update++) {
        for (size_t i = 0; i < m->flat; i++) m->gradients[i] = NAN;
        pal_exchange_begin(x, m->gradients);
        for (size_t from = m->flat, step = 1; from > 0; step = step * 3 + 1) {
            const size_t next = from > step ? from - step : 0;
            for (size_t i = next; i < from; i++) m->gradients[i] = gradient(i, m->comm.rank);
            pal_exchange_ready(x, from = next);
        }
        if ((m->status = pal_exchange_sum(x, &m->err))) break;
        for (size_t s = 0; s < pal_exchange_slices(x); s++) {
            const pal_flat_slice mine = pal_exchange_slice(x, s, m->comm.rank);
            for (size_t i = mine.begin; i < mine.end; i++) m->parameters[i] += m->gradients[i];
        }
        m->status = pal_exchange_share(x, m->parameters, &m->err);
    }
    pal_exchange_free(x);
}

static void exchange_is_the_sum_over_ranks(void **state) {
    (void)state;
    static const size_t sizes[] = { 16, 4096 * 5, 4096 * 5 + 16, 400000, 1500000 };
    for (int size = 1; size <= RANKS; size += size == 1 ? 1 : 3)
        for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
            member members[RANKS] = { 0 };
            for (int r = 0; r < size; r++) {
                members[r].flat = sizes[k];
                members[r].gradients = pal_alloc(sizes[k], sizeof(float));
                members[r].parameters = pal_alloc(sizes[k], sizeof(float));
            }
            together(members, size, exchange_twice);
            assert_true(most_under_way < ROOM + 2 * size);
            for (int r = 0; r < size; r++) {
                assert_int_equal(members[r].status, PAL_OK);
                for (size_t i = 0; i < sizes[k]; i++) {
                    float sum = gradient(i, 0);
                    for (int q = 1; q < size; q++) sum += gradient(i, q);
                    if (members[r].parameters[i] != sum + sum)
                        fail_msg("%d ranks, rank %d, number %zu of %zu: %g, expected %g", size, r, i, sizes[k],
                                 (double)members[r].parameters[i], (double)(sum + sum));
                }
                pal_free(members[r].gradients), pal_free(members[r].parameters);
            }
        }
}

/* Rank 1 never comes. */
static void wait_for_rank_1(void *self) {
    member *m = self;
    double x = 1;
    if (m->comm.rank != 1) m->status = pal_comm_sum(&m->comm, &x, 1, &m->err);
}

static void a_silent_rank_is_named(void **state) {
    (void)state;
    member members[2] = { { .comm.timeout = 0.2 }, { .comm.timeout = 0.2 } };
    together(members, 2, wait_for_rank_1);
    assert_int_equal(members[0].status, PAL_E_IO);
    assert_non_null(strstr(members[0].err.text, "rank 1 has been silent"));
}

static void fail_or_wait(void *self) {
    member *m = self;
    if (m->comm.rank == 0) {
        pthread_mutex_lock(&lock);
        failed = true;
        pthread_mutex_unlock(&lock);
    } else m->status = pal_comm_meet(&m->comm, &m->err);
}

static void a_failed_rank_ends_the_wait_of_others(void **state) {
    (void)state;
    member members[2] = { 0 };
    together(members, 2, fail_or_wait);
    assert_int_equal(members[1].status, PAL_E_IO);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_cover_all),
        cmocka_unit_test(sums_are_in_the_order_of_ranks),
        cmocka_unit_test(large_data_go_from_rank_to_rank),
        cmocka_unit_test(exchange_is_the_sum_over_ranks),
        cmocka_unit_test(a_silent_rank_is_named),
        cmocka_unit_test(a_failed_rank_ends_the_wait_of_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
