/* SPDX-License-Identifier: MIT */
/* Zip files whose members are stored as they are, which is how torch writes them. Nothing is ever unpacked: a member is
 * a range of the mapped file. Compressed, encrypted and overlapping members are refused. */
#ifndef PAL_FORMAT_ZIP_H
#define PAL_FORMAT_ZIP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/map.h"

typedef struct pal_zip_member {
    const char *name; /* not ended by a zero byte */
    size_t name_size;
    const unsigned char *data;
    size_t size, begin; /* begin: of its local header in the file */
    uint32_t crc;
    bool checked;
} pal_zip_member;

typedef struct pal_zip {
    const char *path; /* borrowed, for messages */
    pal_map map;
    size_t count;
    pal_zip_member *members; /* by position */
    pal_zip_member **sorted; /* by length of the name, then by name */
    uint32_t (*table)[256];  /* of pal_crc32 */
} pal_zip;

pal_status pal_zip_open(pal_zip *out, const char *path, pal_error *err);
void pal_zip_close(pal_zip *zip);                                   /* a zeroed one is fine */
pal_zip_member *pal_zip_find(const pal_zip *zip, const char *name); /* NULL if absent */
/* Compares a member's bytes with its checksum, once. */
pal_status pal_zip_check(const pal_zip *zip, pal_zip_member *member, pal_error *err);

#endif
