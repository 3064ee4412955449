// onnx_bytes.c — walks model, graph and initializers field by field and reads the pages it passes;
// over the payload of a large initializer it steps.
#include "io/onnx_bytes.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/file.h"
#include "io/onnx.h"
#include "memory/account.h"

#include <sys/mman.h>

static const rn_account account = {RN_DEVICE_HOST, RN_PURPOSE_IO, NULL};

typedef struct reading {
    int fd;
    const char *path;
    uint8_t *bytes; // (file_bytes)
    uint64_t file_bytes;
    uint64_t have;     // the end of the pages that were read last
    uint64_t resident; // bytes of pages that were read
    uint64_t units;    // that were charged for them
} reading;

// In units, each of which is one block on the ledger: a page at a time would be thousands.
enum { UNIT = 64 << 10 };

static rn_status charge(reading *r, uint64_t bytes) {
    r->resident += bytes;
    for (; r->units * UNIT < r->resident; r->units++)
        RN_TRY(rn_budget_charge(account, r->bytes + r->units, UNIT));
    return RN_OK;
}

// The bytes [offset, end) are there afterwards. Calls go forwards, but for a payload that turns out
// to be needed.
static rn_status load(reading *r, uint64_t offset, uint64_t end) {
    uint64_t from = rn_round_down(offset, RN_PAGE_BYTES);
    if (from < r->have && end > r->have) from = r->have;
    if (end <= r->have && offset >= rn_round_down(r->have - 1, RN_PAGE_BYTES)) return RN_OK;
    uint64_t to = rn_min_u64(rn_round_up(end, RN_PAGE_BYTES), r->file_bytes);
    if (from >= to) return RN_OK;
    RN_TRY(charge(r, rn_round_up(to, RN_PAGE_BYTES) - from));
    r->have = rn_max_u64(r->have, rn_round_up(to, RN_PAGE_BYTES));
    return rn_file_read_at(r->fd, r->path, from, r->bytes + from, (size_t)(to - from));
}

static rn_status cut_short(const reading *r, uint64_t offset) {
    return rn_error_locate(rn_fail(RN_CORRUPT, "%s: the field at byte %llu is cut short", r->path,
                                   (unsigned long long)offset),
                           r->path, offset);
}

static rn_status read_varint(reading *r, uint64_t *at, uint64_t end, uint64_t *out) {
    *out = 0;
    RN_TRY(load(r, *at, rn_min_u64(*at + 10, end)));
    for (int shift = 0; *at < end && shift < 64; shift += 7) {
        uint8_t byte = r->bytes[(*at)++];
        *out |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) return RN_OK;
    }
    return cut_short(r, *at);
}

typedef struct place {
    uint64_t begin, end;
} place;

// The next field: its number, and where its payload lies.
static rn_status next_field(reading *r, uint64_t *at, uint64_t end, uint32_t *out_number,
                            uint32_t *out_wire, place *out) {
    uint64_t tag = 0, bytes = 0, start = *at;
    RN_TRY(read_varint(r, at, end, &tag));
    *out_number = (uint32_t)(tag >> 3);
    *out_wire = (uint32_t)(tag & 7);
    out->begin = *at;
    if (*out_wire == 0) RN_TRY(read_varint(r, at, end, &bytes));
    if (*out_wire == 2) {
        RN_TRY(read_varint(r, at, end, &bytes));
        out->begin = *at;
    }
    uint64_t length = *out_wire == 2 ? bytes : *out_wire == 1 ? 8 : *out_wire == 5 ? 4 : 0;
    if (length > end - *at || *out_wire == 3 || *out_wire == 4 || *out_wire > 5)
        return cut_short(r, start);
    *at += length;
    out->end = *at;
    return RN_OK;
}

// raw_data and floats of a fixed width are read through a checkpoint, from their place; numbers in
// other fields, and elements of less than a byte, have to be decoded from here.
static rn_status walk_initializer(reading *r, place p) {
    enum { TYPE = 2, FLOATS = 4, RAW = 9, DOUBLES = 10 };
    place left_out = {0};
    uint64_t type = 0;
    for (uint64_t at = p.begin; at < p.end;) {
        uint32_t number, wire;
        place field;
        RN_TRY(next_field(r, &at, p.end, &number, &wire, &field));
        bool payload = number == RAW || number == FLOATS || number == DOUBLES;
        if (number == TYPE && wire == 0) {
            uint64_t again = field.begin;
            RN_TRY(read_varint(r, &again, p.end, &type));
        }
        if (wire == 2 && payload && field.end - field.begin > RN_ONNX_LOADED)
            left_out = field;
        else
            RN_TRY(load(r, field.begin, field.end));
    }
    bool packed = type == RN_ONNX_UINT4 || type == RN_ONNX_INT4 || type == RN_ONNX_FLOAT4 ||
                  type == RN_ONNX_UINT2 || type == RN_ONNX_INT2;
    return packed && left_out.end ? load(r, left_out.begin, left_out.end) : RN_OK;
}

static rn_status walk_graph(reading *r, place p) {
    enum { INITIALIZER = 5 };
    for (uint64_t at = p.begin; at < p.end;) {
        uint32_t number, wire;
        place field;
        RN_TRY(next_field(r, &at, p.end, &number, &wire, &field));
        if (number == INITIALIZER && wire == 2)
            RN_TRY(walk_initializer(r, field));
        else
            RN_TRY(load(r, field.begin, field.end));
    }
    return RN_OK;
}

static rn_status walk_model(reading *r) {
    enum { GRAPH = 7 };
    for (uint64_t at = 0; at < r->file_bytes;) {
        uint32_t number, wire;
        place field;
        RN_TRY(next_field(r, &at, r->file_bytes, &number, &wire, &field));
        if (number == GRAPH && wire == 2)
            RN_TRY(walk_graph(r, field));
        else
            RN_TRY(load(r, field.begin, field.end));
    }
    return RN_OK;
}

rn_status rn_onnx_bytes_read(int fd, const char *path, uint64_t file_bytes, rn_onnx_bytes *out) {
    *out = (rn_onnx_bytes){0};
    if (file_bytes == 0) return rn_fail(RN_CORRUPT, "%s is empty", path);
    void *map = mmap(NULL, (size_t)file_bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) return rn_file_fail("map", path);
    reading r = {.fd = fd, .path = path, .bytes = map, .file_bytes = file_bytes};
    out->bytes = (rn_str){map, (size_t)file_bytes};
    rn_status s = walk_model(&r);
    out->units = r.units;
    return s;
}

void rn_onnx_bytes_free(rn_onnx_bytes *bytes) {
    for (uint64_t i = 0; i < bytes->units; i++)
        rn_ledger_release(account, bytes->bytes.data + i, UNIT);
    if (bytes->bytes.data) munmap((void *)(uintptr_t)bytes->bytes.data, bytes->bytes.bytes);
    *bytes = (rn_onnx_bytes){0};
}
