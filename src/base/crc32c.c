// crc32c.c — see crc32c.h.
#include "base/crc32c.h"

#include <pthread.h>
#include <string.h>

// tables[k][b]: the remainder of byte b with k zero bytes behind it; eight bytes a step.
static uint32_t tables[8][256];
static pthread_once_t tables_once = PTHREAD_ONCE_INIT;

static void make_tables(void) {
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t rest = b;
        for (int bit = 0; bit < 8; bit++)
            rest = rest & 1 ? rest >> 1 ^ 0x82f63b78 : rest >> 1;
        tables[0][b] = rest;
    }
    for (int k = 1; k < 8; k++)
        for (uint32_t b = 0; b < 256; b++)
            tables[k][b] = tables[k - 1][b] >> 8 ^ tables[0][tables[k - 1][b] & 255];
}

static uint32_t take_eight(uint32_t crc, const uint8_t at[8]) {
    uint32_t low, high;
    memcpy(&low, at, 4);
    memcpy(&high, at + 4, 4);
    low ^= crc;
    return tables[7][low & 255] ^ tables[6][low >> 8 & 255] ^ tables[5][low >> 16 & 255] ^
           tables[4][low >> 24] ^ tables[3][high & 255] ^ tables[2][high >> 8 & 255] ^
           tables[1][high >> 16 & 255] ^ tables[0][high >> 24];
}

static uint32_t crc_by_table(uint32_t crc, const uint8_t *at, const uint8_t *end) {
    for (; end - at >= 8; at += 8)
        crc = take_eight(crc, at);
    for (; at < end; at++)
        crc = crc >> 8 ^ tables[0][(crc ^ *at) & 255];
    return crc;
}

#if defined(__x86_64__)
// The instruction is for this polynomial. A recorder's thread waits for this sum when its ring is
// full: it is four times as fast.
__attribute__((target("sse4.2"))) static uint32_t
crc_by_instruction(uint32_t begin, const uint8_t *at, const uint8_t *end) {
    uint64_t crc = begin, word;
    for (; end - at >= 8; at += 8) {
        memcpy(&word, at, 8);
        crc = __builtin_ia32_crc32di(crc, word);
    }
    for (; at < end; at++)
        crc = __builtin_ia32_crc32qi((uint32_t)crc, *at);
    return (uint32_t)crc;
}
#endif

uint32_t rn_crc32c(uint32_t before, const void *data, size_t bytes) {
    const uint8_t *at = data, *end = at + bytes;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2")) return ~crc_by_instruction(~before, at, end);
#endif
    pthread_once(&tables_once, make_tables);
    return ~crc_by_table(~before, at, end);
}
