// records.c — records into a pipe and out of it.
#include "bench/records.h"

#include "memory/account.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { MARK = 0x31424e52 }; // "RNB1"

static uint32_t sum_bytes(uint32_t sum, const void *data, size_t bytes) {
    const uint8_t *at = data;
    for (size_t i = 0; i < bytes; i++)
        sum = (sum ^ at[i]) * 16777619u;
    return sum;
}

static uint32_t sum_record(const uint32_t head[4], const void *payload) {
    return sum_bytes(sum_bytes(2166136261u, head + 1, 8), payload, head[2]);
}

static rn_status write_all(int fd, const void *data, size_t bytes) {
    const char *at = data;
    while (bytes > 0) {
        ssize_t done = write(fd, at, bytes);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return rn_fail(RN_IO, "the harness cannot be reached: %s", strerror(errno));
        at += done;
        bytes -= (size_t)done;
    }
    return RN_OK;
}

rn_status rn_record_write(int fd, rn_record_kind kind, const void *data, size_t bytes) {
    uint32_t head[4] = {MARK, kind, (uint32_t)bytes, 0};
    if (bytes > RN_RECORD_MOST_BYTES)
        return rn_fail(RN_INVALID, "a record of %zu bytes is more than %d", bytes,
                       RN_RECORD_MOST_BYTES);
    head[3] = sum_record(head, data);
    RN_TRY(write_all(fd, head, sizeof head));
    return write_all(fd, data, bytes);
}

// ---- reading ------------------------------------------------------------------------------------

rn_status rn_record_reader_create(rn_record_reader *out) {
    *out = (rn_record_reader){.have = 0};
    return rn_alloc(RN_HOST_IO, RN_RECORD_MOST_BYTES, (void **)&out->payload);
}

void rn_record_reader_free(rn_record_reader *reader) {
    rn_free(RN_HOST_IO, reader->payload, RN_RECORD_MOST_BYTES);
    reader->payload = NULL;
}

static size_t take_some(uint8_t *target, size_t want, const uint8_t **data, size_t *bytes) {
    size_t count = want < *bytes ? want : *bytes;
    memcpy(target, *data, count);
    *data += count;
    *bytes -= count;
    return count;
}

static rn_status check_head(const uint32_t head[4]) {
    if (head[0] == MARK && head[2] <= RN_RECORD_MOST_BYTES) return RN_OK;
    return rn_fail(RN_CORRUPT, "what the worker sent is no record of a benchmark");
}

rn_status rn_record_feed(rn_record_reader *r, const void *data, size_t bytes,
                         rn_status (*take)(void *self, rn_record_kind kind, rn_str payload),
                         void *self) {
    const uint8_t *at = data;
    while (bytes > 0) {
        uint32_t head[4];
        if (r->have < RN_RECORD_HEAD_BYTES)
            r->have += take_some(r->head + r->have, RN_RECORD_HEAD_BYTES - r->have, &at, &bytes);
        if (r->have < RN_RECORD_HEAD_BYTES) return RN_OK;
        memcpy(head, r->head, sizeof head);
        RN_TRY(check_head(head));
        size_t have = r->have - RN_RECORD_HEAD_BYTES;
        have += take_some(r->payload + have, head[2] - have, &at, &bytes);
        r->have = RN_RECORD_HEAD_BYTES + have;
        if (have < head[2]) return RN_OK;
        if (sum_record(head, r->payload) != head[3])
            return rn_fail(RN_CORRUPT, "a record of the worker is damaged: its sum is wrong");
        r->have = 0;
        RN_TRY(take(self, (rn_record_kind)head[1], (rn_str){(char *)r->payload, head[2]}));
    }
    return RN_OK;
}
