/* SPDX-License-Identifier: MIT */
#include "format/pickle.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/size.h"

enum { MARK = UINT32_MAX, SIZE_LIMIT = 16 << 20, NODES_MAX = 1 << 21 };

typedef struct {
    pal_pickle *p;
    const char *path;
    const unsigned char *bytes;
    size_t size, at, start; /* start: of the current instruction */
    const char *const *globals;
    uint32_t *stack, *memo;
    size_t depth, stack_room, memo_count, memo_room;
    pal_error *err;
    pal_status st;
} machine;

static void refuse(machine *m, const char *what) {
    if (!m->st)
        m->st = pal_fail(m->err, PAL_E_FORMAT, "%s: the pickle is damaged at byte %zu: %s", m->path, m->start, what);
}

/* Doubles a list that is full. Instructions bound what can be added, so memory stays in proportion to the file. */
static bool grow(machine *m, void **list, size_t *room, size_t count, size_t size) {
    if (count < *room) return true;
    const size_t more = *room ? 2 * *room : 256;
    void *bigger;
    if (m->st || (m->st = pal_alloc_named(&bigger, more, size, "a pickle", m->err))) return false;
    if (count) memcpy(bigger, *list, count * size);
    pal_free(*list);
    *list = bigger;
    *room = more;
    return true;
}

static void push(machine *m, uint32_t node) {
    void *list = m->stack;
    if (!grow(m, &list, &m->stack_room, m->depth, sizeof *m->stack)) return;
    m->stack = list;
    m->stack[m->depth++] = node;
}

static uint32_t make(machine *m, pal_pickle_node node) {
    void *list = m->p->nodes;
    if (m->p->node_count >= NODES_MAX) refuse(m, "more values than a checkpoint needs");
    if (m->st || !grow(m, &list, &m->p->node_room, m->p->node_count, sizeof *m->p->nodes)) return 0;
    m->p->nodes = list;
    node.first = node.last = PAL_PICKLE_END;
    m->p->nodes[m->p->node_count] = node;
    return (uint32_t)m->p->node_count++;
}

static void push_new(machine *m, pal_pickle_node node) {
    const uint32_t made = make(m, node);
    if (!m->st) push(m, made);
}

static void append(machine *m, uint32_t to, uint32_t item) {
    void *list = m->p->cells;
    if (m->st || !grow(m, &list, &m->p->cell_room, m->p->cell_count, sizeof *m->p->cells)) return;
    m->p->cells = list;
    const uint32_t cell = (uint32_t)m->p->cell_count++;
    pal_pickle_node *node = &m->p->nodes[to];
    m->p->cells[cell] = (pal_pickle_cell){ item, PAL_PICKLE_END };
    if (node->count++) m->p->cells[node->last].next = cell;
    else node->first = cell;
    node->last = cell;
}

static uint32_t pop(machine *m) {
    if (m->depth == 0 || m->stack[m->depth - 1] == MARK) {
        refuse(m, "it takes a value that is not there");
        return 0;
    }
    return m->stack[--m->depth];
}

static uint32_t top(machine *m) {
    const uint32_t node = pop(m);
    if (!m->st) m->depth++;
    return node;
}

static const unsigned char *take(machine *m, size_t bytes) {
    if (!pal_size_inside(m->at, bytes, m->size)) {
        refuse(m, "it is cut short");
        return NULL;
    }
    const unsigned char *p = m->bytes + m->at;
    m->at += bytes;
    return p;
}

static uint64_t number(machine *m, size_t bytes) {
    const unsigned char *p = take(m, bytes);
    uint64_t x = 0;
    for (size_t i = 0; p && i < bytes; i++) x |= (uint64_t)p[i] << (8 * i);
    return x;
}

static void push_int(machine *m, int64_t value) {
    push_new(m, (pal_pickle_node){ .kind = PAL_PICKLE_INT, .value = value });
}

static void push_long(machine *m) {
    const size_t bytes = (size_t)number(m, 1);
    if (bytes > 8) refuse(m, "a whole number of more than 64 bits");
    uint64_t x = number(m, m->st ? 0 : bytes);
    if (bytes && bytes < 8 && x >> (8 * bytes - 1)) x |= ~(uint64_t)0 << (8 * bytes);
    push_int(m, (int64_t)x);
}

static void push_float(machine *m) {
    const unsigned char *p = take(m, 8);
    uint64_t bits = 0;
    double x;
    for (int i = 0; p && i < 8; i++) bits = bits << 8 | p[i];
    memcpy(&x, &bits, sizeof x);
    push_new(m, (pal_pickle_node){ .kind = PAL_PICKLE_FLOAT, .real = x });
}

static void push_text(machine *m, size_t length_bytes) {
    const size_t size = (size_t)number(m, length_bytes);
    const unsigned char *p = m->st ? NULL : take(m, size);
    if (p) push_new(m, (pal_pickle_node){ .kind = PAL_PICKLE_TEXT, .text = (const char *)p, .size = size });
}

static bool is_line(const char *wanted, size_t wanted_size, const unsigned char *line, size_t size) {
    return wanted_size == size && memcmp(wanted, line, size) == 0;
}

static const unsigned char *line(machine *m, size_t *size) {
    const unsigned char *begin = m->bytes + m->at, *end = memchr(begin, '\n', m->size - m->at);
    if (!end) {
        refuse(m, "a name does not end");
        return NULL;
    }
    *size = (size_t)(end - begin);
    m->at += *size + 1;
    return begin;
}

static void push_global(machine *m) {
    size_t module_size = 0, name_size = 0;
    const unsigned char *module = line(m, &module_size), *name = module ? line(m, &name_size) : NULL;
    if (!name) return;
    for (size_t i = 0; m->globals[i]; i++) {
        const char *blank = strchr(m->globals[i], ' ');
        if (!is_line(m->globals[i], (size_t)(blank - m->globals[i]), module, module_size) ||
            !is_line(blank + 1, strlen(blank + 1), name, name_size))
            continue;
        push_new(m, (pal_pickle_node){ .kind = PAL_PICKLE_GLOBAL, .value = (int64_t)i });
        return;
    }
    char text[120];
    snprintf(text, sizeof text, "%.*s.%.*s", (int)(module_size < 50 ? module_size : 50), (const char *)module,
             (int)(name_size < 60 ? name_size : 60), (const char *)name);
    for (char *c = text; *c; c++)
        if (*c < ' ' || *c > '~') *c = '?';
    m->st = pal_fail(m->err, PAL_E_UNSUPPORTED,
                     "%s: the pickle asks for '%s', which tensors do not need; it is refused, and nothing was run",
                     m->path, text);
}

static bool is_dictionary(const machine *m, const pal_pickle_node *global) {
    return strncmp(m->globals[global->value], "collections", 11) == 0;
}

static void call(machine *m, bool object) {
    const uint32_t arguments = pop(m), function = pop(m);
    if (m->st) return;
    const pal_pickle_node f = m->p->nodes[function], a = m->p->nodes[arguments];
    if (f.kind != PAL_PICKLE_GLOBAL || a.kind != PAL_PICKLE_LIST) {
        refuse(m, "a call of something that is not a function");
        return;
    }
    if (is_dictionary(m, &f)) {
        if (a.count) refuse(m, "a dictionary with arguments");
        push_new(m, (pal_pickle_node){ .kind = PAL_PICKLE_DICT });
        return;
    }
    if (object) {
        refuse(m, "an object of a kind that tensors do not need");
        return;
    }
    const uint32_t made = make(m, (pal_pickle_node){ .kind = PAL_PICKLE_CALL, .value = f.value });
    append(m, made, arguments);
    if (!m->st) push(m, made);
}

/* The items above the last mark, in order; the mark goes too. *count is their number. */
static const uint32_t *above_mark(machine *m, size_t *count) {
    size_t at = m->depth;
    while (at && m->stack[at - 1] != MARK) at--;
    if (!at) {
        refuse(m, "there is no mark");
        *count = 0;
        return NULL;
    }
    *count = m->depth - at;
    m->depth = at - 1;
    return m->stack + at;
}

/* A tuple of the last n items. */
static void tuple(machine *m, size_t n) {
    uint32_t items[3];
    for (size_t i = n; i-- > 0;) items[i] = pop(m);
    const uint32_t made = make(m, (pal_pickle_node){ .kind = PAL_PICKLE_LIST });
    for (size_t i = 0; i < n; i++) append(m, made, items[i]);
    if (!m->st) push(m, made);
}

static void marked_tuple(machine *m) {
    size_t n;
    const uint32_t *items = above_mark(m, &n);
    const uint32_t made = make(m, (pal_pickle_node){ .kind = PAL_PICKLE_LIST });
    for (size_t i = 0; i < n && !m->st; i++) append(m, made, items[i]);
    if (!m->st) push(m, made);
}

/* Appends one item or a pair, or all above the mark, to the container below. */
static void extend(machine *m, pal_pickle_kind kind, size_t each, bool marked) {
    uint32_t few[2] = { 0 };
    const uint32_t *items = few;
    size_t n = each;
    if (marked) items = above_mark(m, &n);
    else
        for (size_t i = each; i-- > 0;) few[i] = pop(m);
    if (m->st) return;
    const uint32_t to = top(m);
    if (m->st) return;
    if (m->p->nodes[to].kind != kind || n % each) refuse(m, "items for what does not take them");
    for (size_t i = 0; i < n && !m->st; i++) append(m, to, items[i]);
}

static void build(machine *m) {
    pop(m);
    const uint32_t object = top(m);
    if (!m->st && m->p->nodes[object].kind != PAL_PICKLE_DICT) refuse(m, "a state for what takes none");
}

static void remember(machine *m, uint64_t index) {
    const uint32_t node = top(m);
    if (!m->st && index > m->p->node_count) refuse(m, "a memo number that is out of order");
    while (!m->st && m->memo_count <= index) {
        void *list = m->memo;
        if (!grow(m, &list, &m->memo_room, m->memo_count, sizeof *m->memo)) return;
        m->memo = list;
        m->memo[m->memo_count++] = MARK;
    }
    if (!m->st) m->memo[index] = node;
}

static void recall(machine *m, uint64_t index) {
    if (!m->st && (index >= m->memo_count || m->memo[index] == MARK)) refuse(m, "a memo that was never made");
    if (!m->st) push(m, m->memo[index]);
}

static void persistent(machine *m) {
    const uint32_t description = pop(m);
    if (m->st) return;
    const uint32_t made = make(m, (pal_pickle_node){ .kind = PAL_PICKLE_PERSISTENT });
    append(m, made, description);
    if (!m->st) push(m, made);
}

static void protocol(machine *m) {
    const uint64_t version = number(m, 1);
    if (!m->st && version != 2 && version != 3)
        m->st = pal_fail(m->err, PAL_E_UNSUPPORTED, "%s: pickle protocol %llu; torch writes 2", m->path,
                         (unsigned long long)version);
}

static void instruction(machine *m, unsigned char code) {
    switch (code) {
    case 0x80: protocol(m); break;
    case '(': push(m, MARK); break;
    case ')': tuple(m, 0); break;
    case 0x85: tuple(m, 1); break;
    case 0x86: tuple(m, 2); break;
    case 0x87: tuple(m, 3); break;
    case 't': marked_tuple(m); break;
    case ']':
    case 0x8f: push_new(m, (pal_pickle_node){ .kind = PAL_PICKLE_LIST }); break;
    case '}': push_new(m, (pal_pickle_node){ .kind = PAL_PICKLE_DICT }); break;
    case 'N': push_new(m, (pal_pickle_node){ .kind = PAL_PICKLE_NONE }); break;
    case 0x88: push_new(m, (pal_pickle_node){ .kind = PAL_PICKLE_BOOL, .value = 1 }); break;
    case 0x89: push_new(m, (pal_pickle_node){ .kind = PAL_PICKLE_BOOL }); break;
    case 'J': push_int(m, (int32_t)(uint32_t)number(m, 4)); break;
    case 'K': push_int(m, (int64_t)number(m, 1)); break;
    case 'M': push_int(m, (int64_t)number(m, 2)); break;
    case 0x8a: push_long(m); break;
    case 'G': push_float(m); break;
    case 'X': push_text(m, 4); break;
    case 'U': push_text(m, 1); break;
    case 'q': remember(m, number(m, 1)); break;
    case 'r': remember(m, number(m, 4)); break;
    case 'h': recall(m, number(m, 1)); break;
    case 'j': recall(m, number(m, 4)); break;
    case 'a': extend(m, PAL_PICKLE_LIST, 1, false); break;
    case 'e': extend(m, PAL_PICKLE_LIST, 1, true); break;
    case 's': extend(m, PAL_PICKLE_DICT, 2, false); break;
    case 'u': extend(m, PAL_PICKLE_DICT, 2, true); break;
    case 'c': push_global(m); break;
    case 'R': call(m, false); break;
    case 0x81: call(m, true); break;
    case 'b': build(m); break;
    case 'Q': persistent(m); break;
    default:
        m->st = pal_fail(m->err, PAL_E_UNSUPPORTED,
                         "%s: the pickle has the instruction 0x%02x at byte %zu, which checkpoints of tensors do not "
                         "need; it is refused, and nothing was run",
                         m->path, code, m->start);
    }
}

pal_status pal_pickle_read(pal_pickle *out, const char *path, const void *bytes, size_t size,
                           const char *const *globals, pal_error *err) {
    machine m = { .p = out, .path = path, .bytes = bytes, .size = size, .globals = globals, .err = err };
    *out = (pal_pickle){ 0 };
    if (size > SIZE_LIMIT)
        return pal_fail(err, PAL_E_FORMAT, "%s: a pickle of %zu bytes, at most %d are read", path, size, SIZE_LIMIT);
    bool stopped = false;
    while (!m.st && !stopped) {
        m.start = m.at;
        const unsigned char *code = take(&m, 1);
        if (!code) break;
        if (*code == '.') stopped = true;
        else instruction(&m, *code);
    }
    if (!m.st) {
        out->root = pop(&m);
        if (!m.st && m.depth) refuse(&m, "it leaves more than one value");
        if (!m.st && m.at != size) refuse(&m, "bytes follow its end");
    }
    pal_free(m.stack);
    pal_free(m.memo);
    if (m.st) pal_pickle_free(out);
    return m.st;
}

void pal_pickle_free(pal_pickle *p) {
    pal_free(p->nodes);
    pal_free(p->cells);
    *p = (pal_pickle){ 0 };
}

const pal_pickle_node *pal_pickle_item(const pal_pickle *p, const pal_pickle_node *node, uint32_t i) {
    uint32_t c = node->first;
    for (; c != PAL_PICKLE_END && i; i--) c = p->cells[c].next;
    return c == PAL_PICKLE_END ? NULL : &p->nodes[p->cells[c].node];
}
