// trace.c — sealing blocks and telling whole ones from damaged ones.
#include "profile/trace.h"

#include <pthread.h>
#include <string.h>

const char *rn_mark_name(unsigned kind) {
    static const char *const names[RN_MARK_COUNT] = {
        [RN_MARK_STAGE] = "stage",         [RN_MARK_CHECKPOINT] = "checkpoint",
        [RN_MARK_PERIODIC] = "periodic",   [RN_MARK_REFUSAL] = "refusal",
        [RN_MARK_NO_MEMORY] = "no memory", [RN_MARK_SIGNAL] = "signal",
        [RN_MARK_FORK] = "fork",           [RN_MARK_START] = "start",
    };
    return kind < RN_MARK_COUNT ? names[kind] : "mark";
}

// ---- CRC-32C ------------------------------------------------------------------------------------

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

static uint32_t crc_by_table(const uint8_t *at, const uint8_t *end) {
    uint32_t crc = UINT32_MAX;
    for (; end - at >= 8; at += 8)
        crc = take_eight(crc, at);
    for (; at < end; at++)
        crc = crc >> 8 ^ tables[0][(crc ^ *at) & 255];
    return ~crc;
}

#if defined(__x86_64__)
// The instruction is for this polynomial. A recorder's thread waits for this sum when its ring is
// full: it is four times as fast.
__attribute__((target("sse4.2"))) static uint32_t crc_by_instruction(const uint8_t *at,
                                                                     const uint8_t *end) {
    uint64_t crc = UINT32_MAX, word;
    for (; end - at >= 8; at += 8) {
        memcpy(&word, at, 8);
        crc = __builtin_ia32_crc32di(crc, word);
    }
    for (; at < end; at++)
        crc = __builtin_ia32_crc32qi((uint32_t)crc, *at);
    return ~(uint32_t)crc;
}
#endif

uint32_t rn_crc32c(const void *data, size_t bytes) {
    const uint8_t *at = data, *end = at + bytes;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2")) return crc_by_instruction(at, end);
#endif
    pthread_once(&tables_once, make_tables);
    return crc_by_table(at, end);
}

// ---- blocks -------------------------------------------------------------------------------------

static uint32_t header_crc(const rn_trace_block *block) {
    rn_trace_block copy = *block;
    copy.header_crc = 0;
    return rn_crc32c(&copy, sizeof copy);
}

void rn_trace_seal(rn_trace_block *block, const void *payload) {
    memcpy(block->magic, RN_TRACE_MAGIC, sizeof block->magic);
    block->version = RN_TRACE_VERSION;
    block->unused[0] = block->unused[1] = 0;
    block->payload_crc = rn_crc32c(payload, block->payload_bytes);
    block->header_crc = header_crc(block);
}

bool rn_trace_is_header(const void *at) {
    rn_trace_block block;
    if (memcmp(at, RN_TRACE_MAGIC, sizeof block.magic) != 0) return false;
    memcpy(&block, at, sizeof block);
    return block.version == RN_TRACE_VERSION && block.header_crc == header_crc(&block) &&
           block.kind >= RN_TRACE_PREAMBLE && block.kind <= RN_TRACE_END &&
           block.payload_bytes <= RN_TRACE_MAX_PAYLOAD;
}

bool rn_trace_is_whole(const rn_trace_block *block, const void *payload) {
    return block->payload_crc == rn_crc32c(payload, block->payload_bytes);
}
