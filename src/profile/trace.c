// trace.c — sealing blocks and telling whole ones from damaged ones.
#include "profile/trace.h"

#include "base/crc32c.h"

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

// ---- blocks -------------------------------------------------------------------------------------

static uint32_t header_crc(const rn_trace_block *block) {
    rn_trace_block copy = *block;
    copy.header_crc = 0;
    return rn_crc32c(0, &copy, sizeof copy);
}

void rn_trace_seal(rn_trace_block *block, const void *payload) {
    memcpy(block->magic, RN_TRACE_MAGIC, sizeof block->magic);
    block->version = RN_TRACE_VERSION;
    block->unused[0] = block->unused[1] = 0;
    block->payload_crc = rn_crc32c(0, payload, block->payload_bytes);
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
    return block->payload_crc == rn_crc32c(0, payload, block->payload_bytes);
}
