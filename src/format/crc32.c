/* SPDX-License-Identifier: MIT */
#include "format/crc32.h"

#include <string.h>

void pal_crc32_table(uint32_t table[PAL_CRC32_LANES][256]) {
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t x = b;
        for (int bit = 0; bit < 8; bit++) x = x >> 1 ^ (x & 1 ? 0xedb88320u : 0);
        table[0][b] = x;
    }
    for (int k = 1; k < PAL_CRC32_LANES; k++)
        for (uint32_t b = 0; b < 256; b++) table[k][b] = table[k - 1][b] >> 8 ^ table[0][table[k - 1][b] & 255];
}

uint32_t pal_crc32(uint32_t (*table)[256], const unsigned char *p, size_t size) {
    uint32_t crc = 0xffffffffu;
    for (; size >= PAL_CRC32_LANES; p += PAL_CRC32_LANES, size -= PAL_CRC32_LANES) {
        uint64_t low, high;
        memcpy(&low, p, 8);
        memcpy(&high, p + 8, 8);
        low ^= crc;
        crc = 0;
        for (int i = 0; i < 8; i++) crc ^= table[15 - i][low >> (8 * i) & 255] ^ table[7 - i][high >> (8 * i) & 255];
    }
    for (; size; p++, size--) crc = crc >> 8 ^ table[0][(crc ^ *p) & 255];
    return ~crc;
}
