/* SPDX-License-Identifier: MIT */
#include "format/zip.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/size.h"
#include "format/crc32.h"

enum { END = 22, END64 = 56, LOCATOR = 20, CENTRAL = 46, LOCAL = 30, COMMENT_MAX = 65535 };

static uint64_t number(const unsigned char *p, int bytes) {
    uint64_t x = 0;
    for (int i = 0; i < bytes; i++) x |= (uint64_t)p[i] << (8 * i);
    return x;
}

static bool is(const unsigned char *p, const char *signature) { return memcmp(p, signature, 4) == 0; }

pal_status pal_zip_check(const pal_zip *zip, pal_zip_member *m, pal_error *err) {
    if (m->checked) return PAL_OK;
    const uint32_t found = pal_crc32(zip->table, m->data, m->size);
    if (found != m->crc)
        return pal_fail(err, PAL_E_FORMAT, "%s: member '%.*s' is damaged: its checksum is %08x, the file says %08x",
                        zip->path, (int)(m->name_size < 100 ? m->name_size : 100), m->name, (unsigned)found,
                        (unsigned)m->crc);
    m->checked = true;
    return PAL_OK;
}

typedef struct {
    uint64_t count, offset, size; /* of the central directory */
    size_t limit;                 /* where the records of the end begin */
} directory;

static pal_status find_directory(const pal_zip *zip, directory *out, pal_error *err) {
    const unsigned char *file = zip->map.data;
    const size_t size = zip->map.size;
    if (size < END) return pal_fail(err, PAL_E_FORMAT, "%s: %zu bytes are not a zip file", zip->path, size);
    size_t at = size - END;
    const size_t last = at > COMMENT_MAX ? at - COMMENT_MAX : 0;
    while (!(is(file + at, "PK\5\6") && at + END + number(file + at + 20, 2) == size)) {
        if (at == last)
            return pal_fail(err, PAL_E_FORMAT, "%s: the end of the zip file is missing; it is cut short or damaged",
                            zip->path);
        at--;
    }
    const unsigned char *end = file + at;
    *out = (directory){
        .count = number(end + 10, 2), .size = number(end + 12, 4), .offset = number(end + 16, 4), .limit = at
    };
    const uint64_t disk = number(end + 4, 2), disk_start = number(end + 6, 2), here = number(end + 8, 2);
    const bool wide = at >= LOCATOR && is(end - LOCATOR, "PK\6\7");
    if ((disk && disk != 0xffff) || (disk_start && disk_start != 0xffff) || here != out->count)
        return pal_fail(err, PAL_E_UNSUPPORTED, "%s: a zip file in several parts is not read", zip->path);
    if (wide) {
        const uint64_t where = number(end - LOCATOR + 8, 8);
        if (!pal_size_inside(where, END64, at - LOCATOR) || !is(file + where, "PK\6\6"))
            return pal_fail(err, PAL_E_FORMAT, "%s: the zip64 record of the end is not where the file says", zip->path);
        const unsigned char *end64 = file + where;
        const directory big = { .count = number(end64 + 32, 8),
                                .size = number(end64 + 40, 8),
                                .offset = number(end64 + 48, 8),
                                .limit = (size_t)where };
        if ((out->count != 0xffff && out->count != big.count) || (out->size != 0xffffffff && out->size != big.size) ||
            (out->offset != 0xffffffff && out->offset != big.offset))
            return pal_fail(err, PAL_E_FORMAT, "%s: the two records of the zip file's end contradict each other",
                            zip->path);
        *out = big;
    }
    if (!pal_size_inside(out->offset, out->size, out->limit))
        return pal_fail(err, PAL_E_FORMAT,
                        "%s: the zip directory claims %llu bytes from %llu on, it must end before %zu", zip->path,
                        (unsigned long long)out->size, (unsigned long long)out->offset, out->limit);
    if (out->count > out->size / CENTRAL)
        return pal_fail(err, PAL_E_FORMAT, "%s: claims %llu members in a directory of %llu bytes", zip->path,
                        (unsigned long long)out->count, (unsigned long long)out->size);
    return PAL_OK;
}

/* The zip64 extra field holds those of size, packed size and offset whose short fields are full, in this order. */
static bool widen(const unsigned char *extra, size_t size, uint64_t *fields[3]) {
    if (*fields[0] != 0xffffffff && *fields[1] != 0xffffffff && *fields[2] != 0xffffffff) return true;
    while (size >= 4) {
        const size_t body = (size_t)number(extra + 2, 2);
        if (body > size - 4) return false;
        if (number(extra, 2) == 1) {
            size_t at = 0;
            for (int i = 0; i < 3; i++) {
                if (*fields[i] != 0xffffffff) continue;
                if (body - at < 8) return false;
                *fields[i] = number(extra + 4 + at, 8);
                at += 8;
            }
            return true;
        }
        extra += 4 + body;
        size -= 4 + body;
    }
    return false;
}

static pal_status read_member(const pal_zip *zip, const directory *d, pal_zip_member *m, const unsigned char *entry,
                              size_t left, size_t *taken, pal_error *err) {
    const unsigned char *file = zip->map.data;
    if (left < CENTRAL || !is(entry, "PK\1\2"))
        return pal_fail(err, PAL_E_FORMAT, "%s: the zip directory is damaged at byte %zu", zip->path,
                        (size_t)(entry - file));
    const uint64_t flags = number(entry + 8, 2), method = number(entry + 10, 2);
    const size_t name = (size_t)number(entry + 28, 2), extra = (size_t)number(entry + 30, 2),
                 comment = (size_t)number(entry + 32, 2);
    uint64_t packed = number(entry + 20, 4), size = number(entry + 24, 4), offset = number(entry + 42, 4);
    *taken = CENTRAL + name + extra + comment;
    if (left < *taken)
        return pal_fail(err, PAL_E_FORMAT, "%s: the zip directory is cut short at byte %zu", zip->path,
                        (size_t)(entry - file));
    *m = (pal_zip_member){ .name = (const char *)entry + CENTRAL,
                           .name_size = name,
                           .crc = (uint32_t)number(entry + 16, 4) };
    const int shown = (int)(name < 100 ? name : 100);
    if (flags & 1) return pal_fail(err, PAL_E_UNSUPPORTED, "%s: member '%.*s' is encrypted", zip->path, shown, m->name);
    if (!widen(entry + CENTRAL + name, extra, (uint64_t *[3]){ &size, &packed, &offset }))
        return pal_fail(err, PAL_E_FORMAT, "%s: member '%.*s' lacks its zip64 sizes", zip->path, shown, m->name);
    if (method != 0 || packed != size)
        return pal_fail(err, PAL_E_UNSUPPORTED,
                        "%s: member '%.*s' is compressed (method %llu); torch stores members as they are", zip->path,
                        shown, m->name, (unsigned long long)method);
    if (!pal_size_inside(offset, LOCAL, (size_t)d->offset) || !is(file + offset, "PK\3\4"))
        return pal_fail(err, PAL_E_FORMAT, "%s: member '%.*s' does not begin at byte %llu, where the directory says",
                        zip->path, shown, m->name, (unsigned long long)offset);
    const unsigned char *local = file + offset;
    const size_t local_name = (size_t)number(local + 26, 2), head = LOCAL + local_name + (size_t)number(local + 28, 2);
    const size_t room = (size_t)(d->offset - offset);
    if (!pal_size_inside(head, size, room))
        return pal_fail(err, PAL_E_FORMAT,
                        "%s: member '%.*s' of %llu bytes reaches beyond byte %llu, where the directory begins",
                        zip->path, shown, m->name, (unsigned long long)size, (unsigned long long)d->offset);
    if (local_name != name || memcmp(local + LOCAL, m->name, name) != 0 || number(local + 8, 2) != method)
        return pal_fail(err, PAL_E_FORMAT, "%s: member '%.*s' is described in two ways", zip->path, shown, m->name);
    m->data = local + head;
    m->size = (size_t)size;
    m->begin = (size_t)offset;
    return PAL_OK;
}

static int by_position(const void *a, const void *b) {
    const size_t x = ((const pal_zip_member *)a)->begin, y = ((const pal_zip_member *)b)->begin;
    return x < y ? -1 : x > y;
}

static int by_name(const void *a, const void *b) {
    const pal_zip_member *x = *(const pal_zip_member *const *)a, *y = *(const pal_zip_member *const *)b;
    if (x->name_size != y->name_size) return x->name_size < y->name_size ? -1 : 1;
    return memcmp(x->name, y->name, x->name_size);
}

static pal_status check_members(pal_zip *zip, pal_error *err) {
    void *block;
    for (size_t i = 1; i < zip->count; i++) {
        const pal_zip_member *a = &zip->members[i - 1], *b = &zip->members[i];
        if (zip->map.data + b->begin < a->data + a->size)
            return pal_fail(err, PAL_E_FORMAT, "%s: members '%.*s' and '%.*s' overlap", zip->path,
                            (int)(a->name_size < 100 ? a->name_size : 100), a->name,
                            (int)(b->name_size < 100 ? b->name_size : 100), b->name);
    }
    pal_status st = pal_alloc_named(&block, zip->count, sizeof *zip->sorted, "the members of a zip file", err);
    if (st) return st;
    pal_zip_member **order = zip->sorted = block;
    for (size_t i = 0; i < zip->count; i++) order[i] = &zip->members[i];
    qsort(order, zip->count, sizeof *order, by_name);
    for (size_t i = 1; i < zip->count; i++)
        if (by_name(&order[i - 1], &order[i]) == 0)
            return pal_fail(err, PAL_E_FORMAT, "%s: two members are named '%.*s'", zip->path,
                            (int)(order[i]->name_size < 100 ? order[i]->name_size : 100), order[i]->name);
    return PAL_OK;
}

static pal_status read_all(pal_zip *zip, pal_error *err) {
    directory d = { 0 };
    pal_status st;
    void *block;
    if ((st = find_directory(zip, &d, err))) return st;
    if ((st = pal_alloc_named(&block, (size_t)d.count, sizeof *zip->members, "the members of a zip file", err)))
        return st;
    zip->members = block;
    if ((st = pal_alloc_named(&block, PAL_CRC32_LANES, sizeof *zip->table, "a table for checksums", err))) return st;
    zip->table = block;
    pal_crc32_table(zip->table);
    size_t at = (size_t)d.offset, end = (size_t)(d.offset + d.size);
    for (; zip->count < d.count; zip->count++) {
        size_t taken = 0;
        if ((st = read_member(zip, &d, &zip->members[zip->count], zip->map.data + at, end - at, &taken, err)))
            return st;
        at += taken;
    }
    if (at != end)
        return pal_fail(err, PAL_E_FORMAT, "%s: %zu bytes of the zip directory belong to no member", zip->path,
                        end - at);
    qsort(zip->members, zip->count, sizeof *zip->members, by_position);
    return check_members(zip, err);
}

pal_status pal_zip_open(pal_zip *out, const char *path, pal_error *err) {
    *out = (pal_zip){ .path = path };
    pal_status st = pal_map_open(&out->map, path, err);
    if (!st) st = read_all(out, err);
    if (st) pal_zip_close(out);
    return st;
}

void pal_zip_close(pal_zip *zip) {
    pal_free(zip->members);
    pal_free(zip->sorted);
    pal_free(zip->table);
    pal_map_close(&zip->map);
    *zip = (pal_zip){ 0 };
}

pal_zip_member *pal_zip_find(const pal_zip *zip, const char *name) {
    const pal_zip_member key = { .name = name, .name_size = strlen(name) }, *const pointer = &key;
    pal_zip_member **found = zip->count ? bsearch(&pointer, zip->sorted, zip->count, sizeof *zip->sorted, by_name)
                                        : NULL;
    return found ? *found : NULL;
}
