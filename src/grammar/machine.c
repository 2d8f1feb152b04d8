/* SPDX-License-Identifier: MIT */
#include "grammar/machine.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "text/strings.h"

enum {
    FRAMES = 1 << 16,
    FRAME_SLOTS = 2 * FRAMES,
    PLACES = PAL_MACHINE_PLACES,
    PLACE_SLOTS = 2 * PLACES,
    MEMBERS = 1 << 17, /* of all sets together */
    NOTHING = 0,       /* the stack that is empty: the grammar's end */
};

/* The top of a stack: what comes next. Below it lies another stack, which was made before it. */
typedef struct {
    uint32_t node, below;
    uint32_t at, most; /* SEQUENCE: the next child; REPEAT: how often it must still come, and may */
} frame;

typedef struct {
    uint32_t first, count; /* members, in rising order */
    int32_t near;          /* pal_machine_near(), when it is known; else ODD */
} place;

struct pal_machine {
    const pal_grammar *g;
    uint32_t reach, age;
    frame *frame;
    uint32_t frames;
    uint32_t *frame_slot; /* hash to number; 0: free, since frame 0 is never looked for */
    uint32_t *seen;       /* by frame: the closure that has it */
    bool *far;            /* by frame: a count in this stack is beyond reach */
    uint32_t turn;
    uint32_t *todo; /* frames of a closure that are still to be opened, and the set that it makes */
    uint32_t *made;
    uint32_t todo_count, made_count;
    place *place;
    int32_t places;
    int32_t *place_slot;
    uint32_t *member;
    uint32_t members;
    int32_t *way; /* (PLACES, classes) */
    bool full;
    pal_place *held;
};

void pal_machine_free(pal_machine *m) {
    if (!m) return;
    pal_free(m->frame), pal_free(m->frame_slot), pal_free(m->seen), pal_free(m->far), pal_free(m->todo);
    pal_free(m->made), pal_free(m->place), pal_free(m->place_slot), pal_free(m->member), pal_free(m->way);
    pal_free(m);
}

static uint64_t hash_frame(frame f) {
    return pal_hash_u64(((uint64_t)f.node << 32 | f.below) ^ pal_hash_u64((uint64_t)f.at << 32 | f.most));
}

static void place_frame(pal_machine *m, uint32_t i) {
    uint64_t slot = hash_frame(m->frame[i]);
    while (m->frame_slot[slot % FRAME_SLOTS]) slot++;
    m->frame_slot[slot % FRAME_SLOTS] = i;
}

/* The number of a frame, new or old. */
static uint32_t intern(pal_machine *m, frame f) {
    uint64_t slot = hash_frame(f);
    for (;; slot++) {
        const uint32_t i = m->frame_slot[slot % FRAME_SLOTS];
        if (!i) break;
        const frame *old = &m->frame[i];
        if (old->node == f.node && old->below == f.below && old->at == f.at && old->most == f.most) return i;
    }
    if (m->frames == FRAMES) {
        m->full = true;
        return NOTHING;
    }
    const pal_node *n = &m->g->node[f.node];
    const bool counted = n->kind == PAL_NODE_REPEAT &&
                         (f.at > m->reach + 1 || (f.most > m->reach && f.most != PAL_NO_BOUND));
    m->frame[m->frames] = f;
    m->seen[m->frames] = 0;
    m->far[m->frames] = counted || m->far[f.below];
    m->frame_slot[slot % FRAME_SLOTS] = m->frames;
    return m->frames++;
}

static void open_later(pal_machine *m, uint32_t i) {
    if (m->seen[i] == m->turn) return;
    m->seen[i] = m->turn;
    if (m->todo_count == FRAMES) m->full = true;
    else m->todo[m->todo_count++] = i;
}

static void push(pal_machine *m, uint32_t node, uint32_t below) {
    const pal_node *n = &m->g->node[node];
    const bool repeat = n->kind == PAL_NODE_REPEAT;
    const uint32_t i = intern(m, (frame){ node, below, repeat ? n->least : 0, repeat ? n->most : 0 });
    if (!m->full) open_later(m, i);
}

static void open_frame(pal_machine *m, uint32_t i) {
    const pal_grammar *g = m->g;
    const frame f = m->frame[i];
    const pal_node *n = &g->node[f.node];
    uint32_t below = f.below;
    if (i == NOTHING || n->kind == PAL_NODE_RANGE) {
        m->made[m->made_count++] = i; /* no more than frames */
        return;
    }
    switch (n->kind) {
    case PAL_NODE_RULE: push(m, g->rule[n->first], below); break;
    case PAL_NODE_CHOICE:
        for (uint32_t k = 0; k < n->count; k++) push(m, g->child[n->first + k], below);
        break;
    case PAL_NODE_SEQUENCE:
        if (!n->count) {
            open_later(m, below);
            break;
        }
        if (f.at + 1 < n->count) below = intern(m, (frame){ f.node, below, f.at + 1, 0 });
        push(m, g->child[n->first + f.at], below);
        break;
    default:
        if (!f.at) open_later(m, below);
        if (!f.most) break;
        if (f.most != 1)
            below = intern(m,
                           (frame){ f.node, below, f.at ? f.at - 1 : 0, f.most == PAL_NO_BOUND ? f.most : f.most - 1 });
        push(m, n->first, below);
    }
}

static void begin_closure(pal_machine *m) {
    m->turn++; /* 2^32 of them: a text of a year */
    m->todo_count = m->made_count = 0;
}

static int by_number(const void *a, const void *b) {
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static uint64_t hash_set(const uint32_t *set, uint32_t count) {
    uint64_t h = count;
    for (uint32_t i = 0; i < count; i++) h = pal_hash_u64(h ^ set[i]);
    return h;
}

static void place_set(pal_machine *m, int32_t i) {
    uint64_t slot = hash_set(m->member + m->place[i].first, m->place[i].count);
    while (m->place_slot[slot % PLACE_SLOTS]) slot++;
    m->place_slot[slot % PLACE_SLOTS] = i;
}

/* The place of the frames that are to be opened. */
static int32_t end_closure(pal_machine *m) {
    while (m->todo_count && !m->full) open_frame(m, m->todo[--m->todo_count]);
    if (m->full) return PAL_PLACE_FULL;
    if (!m->made_count) return PAL_PLACE_DEAD;
    qsort(m->made, m->made_count, sizeof *m->made, by_number);
    uint64_t slot = hash_set(m->made, m->made_count);
    for (;; slot++) {
        const int32_t i = m->place_slot[slot % PLACE_SLOTS];
        if (!i) break;
        if (m->place[i].count == m->made_count &&
            memcmp(m->member + m->place[i].first, m->made, m->made_count * sizeof *m->made) == 0)
            return i;
    }
    if (m->places == PLACES || m->members + m->made_count > MEMBERS) {
        m->full = true;
        return PAL_PLACE_FULL;
    }
    memcpy(m->member + m->members, m->made, m->made_count * sizeof *m->made);
    m->place[m->places] = (place){ m->members, m->made_count, PAL_PLACE_ODD };
    m->members += m->made_count;
    for (int c = 0; c < m->g->classes; c++) m->way[m->places * m->g->classes + c] = PAL_PLACE_ODD;
    m->place_slot[slot % PLACE_SLOTS] = m->places;
    return m->places++;
}

int32_t pal_machine_step(pal_machine *m, int32_t at, unsigned char byte) {
    if (at <= 0 || m->full) return at <= 0 ? at : PAL_PLACE_FULL;
    int32_t *way = &m->way[at * m->g->classes + m->g->class_of[byte]];
    if (*way != PAL_PLACE_ODD) return *way;
    const place from = m->place[at];
    begin_closure(m);
    for (uint32_t i = 0; i < from.count; i++) {
        const uint32_t top = m->member[from.first + i];
        const pal_node *n = &m->g->node[m->frame[top].node];
        if (top != NOTHING && byte >= n->low && byte <= n->high) open_later(m, m->frame[top].below);
    }
    const int32_t to = end_closure(m);
    if (to >= 0) *way = to;
    return to;
}

const int32_t *pal_machine_ways(const pal_machine *m, int32_t at) { return m->way + at * m->g->classes; }

int32_t pal_machine_bytes(pal_machine *m, int32_t at, const unsigned char *bytes, size_t size) {
    for (size_t i = 0; i < size && at > 0; i++) at = pal_machine_step(m, at, bytes[i]);
    return at;
}

bool pal_machine_complete(const pal_machine *m, int32_t at) {
    return at > 0 && m->member[m->place[at].first] == NOTHING; /* the smallest number */
}

bool pal_machine_over(pal_machine *m, int32_t at) { return pal_machine_complete(m, at) && m->place[at].count == 1; }

/* The stack with counts that are far made none, and parts below likewise. Those below were made before: their own are
 * found first, and kept in todo, by their depth. */
static uint32_t near_stack(pal_machine *m, uint32_t top) {
    uint32_t depth = 0, below;
    for (below = top; m->far[below]; below = m->frame[below].below) m->todo[depth++] = below;
    while (depth && !m->full) {
        frame f = m->frame[m->todo[--depth]];
        f.below = below;
        if (m->g->node[f.node].kind == PAL_NODE_REPEAT) {
            if (f.at > m->reach + 1) f.at = m->reach + 1;
            if (f.most > m->reach) f.most = PAL_NO_BOUND;
        }
        below = intern(m, f);
    }
    return below;
}

int32_t pal_machine_near(pal_machine *m, int32_t at) {
    if (at <= 0 || m->full) return at <= 0 ? at : PAL_PLACE_FULL;
    const place from = m->place[at];
    if (from.near != PAL_PLACE_ODD) return from.near;
    bool far = false;
    for (uint32_t i = 0; i < from.count; i++) far |= m->far[m->member[from.first + i]];
    int32_t near = at;
    if (far) {
        begin_closure(m);
        for (uint32_t i = 0; i < from.count && !m->full; i++) {
            const uint32_t top = near_stack(m, m->member[from.first + i]);
            if (m->full || m->seen[top] == m->turn) continue;
            m->seen[top] = m->turn;
            m->made[m->made_count++] = top;
        }
        near = end_closure(m);
    }
    if (near > 0) m->place[at].near = near;
    return near;
}

/* Everything that held places need moves to the front, in the same order: numbers stay in rising order. */
static void keep_held(pal_machine *m) {
    uint32_t *number = m->todo; /* of a frame that is kept; else 0 */
    memset(number, 0, m->frames * sizeof *number);
    int32_t *new_place = m->way; /* room for as many */
    memset(new_place, 0, (size_t)m->places * sizeof *new_place);
    for (pal_place *p = m->held; p; p = p->next) {
        const place *s = &m->place[p->at];
        new_place[p->at] = p->at > 0;
        for (uint32_t i = 0; p->at > 0 && i < s->count; i++)
            for (uint32_t f = m->member[s->first + i]; f != NOTHING && !number[f]; f = m->frame[f].below) number[f] = 1;
    }
    uint32_t frames = 1;
    for (uint32_t i = 1; i < m->frames; i++) {
        if (!number[i]) continue;
        number[i] = frames;
        m->frame[frames] = m->frame[i];
        m->frame[frames].below = number[m->frame[i].below];
        m->far[frames] = m->far[i];
        m->seen[frames++] = 0;
    }
    m->frames = frames;
    uint32_t members = 0;
    int32_t places = 1;
    for (int32_t i = 1; i < m->places; i++) {
        if (!new_place[i]) continue;
        const place old = m->place[i];
        for (uint32_t k = 0; k < old.count; k++) m->member[members + k] = number[m->member[old.first + k]];
        m->place[places] = (place){ members, old.count, PAL_PLACE_ODD };
        members += old.count;
        new_place[i] = places++;
    }
    m->members = members;
    m->places = places;
    for (pal_place *p = m->held; p; p = p->next)
        if (p->at > 0) p->at = new_place[p->at];
}

bool pal_machine_collect(pal_machine *m) {
    keep_held(m);
    memset(m->frame_slot, 0, FRAME_SLOTS * sizeof *m->frame_slot);
    memset(m->place_slot, 0, PLACE_SLOTS * sizeof *m->place_slot);
    for (uint32_t i = 1; i < m->frames; i++) place_frame(m, i);
    for (int32_t i = 1; i < m->places; i++) place_set(m, i);
    for (int32_t i = 0; i < m->places * m->g->classes; i++) m->way[i] = PAL_PLACE_ODD;
    m->full = false;
    m->age++;
    return m->frames < FRAMES / 2 && m->places < PLACES / 2 && m->members < MEMBERS / 2;
}

uint32_t pal_machine_age(const pal_machine *m) { return m->age; }

void pal_machine_drop(pal_place *p) {
    if (!p->back) return;
    *p->back = p->next;
    if (p->next) p->next->back = p->back;
    *p = (pal_place){ 0 };
}

void pal_machine_hold(pal_machine *m, pal_place *p) {
    *p = (pal_place){ .next = m->held, .back = &m->held };
    if (p->next) p->next->back = &p->next;
    m->held = p;
    for (int tries = 0; tries < 2; tries++) {
        begin_closure(m);
        push(m, m->g->root, NOTHING);
        p->at = end_closure(m);
        if (p->at != PAL_PLACE_FULL) return;
        p->at = PAL_PLACE_DEAD;
        (void)pal_machine_collect(m);
    }
    p->at = PAL_PLACE_FULL;
}

pal_status pal_machine_new(pal_machine **out, const pal_grammar *g, uint32_t reach, pal_error *err) {
    void *block;
    const pal_status st = pal_alloc_named(&block, 1, sizeof(pal_machine), "a grammar's machine", err);
    *out = NULL;
    if (st) return st;
    pal_machine *m = block;
    *m = (pal_machine){ .g = g, .reach = reach, .frames = 1, .places = 1 };
    m->frame = pal_alloc(FRAMES, sizeof *m->frame);
    m->frame_slot = pal_alloc(FRAME_SLOTS, sizeof *m->frame_slot);
    m->seen = pal_alloc(FRAMES, sizeof *m->seen);
    m->far = pal_alloc(FRAMES, sizeof *m->far);
    m->todo = pal_alloc_unset(FRAMES, sizeof *m->todo);
    m->made = pal_alloc_unset(FRAMES, sizeof *m->made);
    m->place = pal_alloc(PLACES, sizeof *m->place);
    m->place_slot = pal_alloc(PLACE_SLOTS, sizeof *m->place_slot);
    m->member = pal_alloc_unset(MEMBERS, sizeof *m->member);
    m->way = pal_alloc_unset(PLACES * (size_t)g->classes, sizeof *m->way);
    if (!m->frame || !m->frame_slot || !m->seen || !m->far || !m->todo || !m->made || !m->place || !m->place_slot ||
        !m->member || !m->way) {
        pal_machine_free(m);
        return pal_fail(err, PAL_E_MEMORY, "out of memory for a grammar's machine");
    }
    *out = m;
    return PAL_OK;
}
