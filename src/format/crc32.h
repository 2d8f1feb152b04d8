/* SPDX-License-Identifier: MIT */
/* The checksum of zip files, 16 bytes at once. */
#ifndef PAL_FORMAT_CRC32_H
#define PAL_FORMAT_CRC32_H

#include <stddef.h>
#include <stdint.h>

enum { PAL_CRC32_LANES = 16 };

/* table[k][b]: what byte b does to the checksum when k more bytes follow. */
void pal_crc32_table(uint32_t table[PAL_CRC32_LANES][256]);
uint32_t pal_crc32(uint32_t (*table)[256], const unsigned char *p, size_t size);

#endif
