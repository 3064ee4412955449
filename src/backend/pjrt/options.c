// options.c — the compiler's options as XLA reads them: a CompileOptionsProto, written by hand.
//
//     3: build options {4: replicas 1, 5: partitions N, [6: they are divided by annotations],
//                       [9: the devices {1: replicas, 2: partitions, 3: {1: [device]}, ...}]}
//     7: overrides     {1: "xla_...", 2: {1: text | 2: bool | 3: integer}}, one each
//
// Without replicas and partitions XLA aborts.
#include "backend/pjrt/pjrt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static rn_status put_varint(rn_buffer *out, uint64_t number) {
    do {
        uint8_t byte = (uint8_t)((number & 0x7f) | (number > 0x7f ? 0x80 : 0));
        RN_TRY(rn_buffer_append(out, &byte, 1));
        number >>= 7;
    } while (number);
    return RN_OK;
}

static rn_status put_bytes(rn_buffer *out, uint8_t tag, const void *data, size_t bytes) {
    RN_TRY(rn_buffer_append(out, &tag, 1));
    RN_TRY(put_varint(out, bytes));
    return rn_buffer_append(out, data, bytes);
}

// true, false, a whole number, or a text.
static size_t encode_value(rn_str value, uint8_t out[256]) {
    char text[200];
    size_t used = 0;
    snprintf(text, sizeof text, "%.*s", RN_STR_ARG(value));
    char *end = text;
    long long number = strtoll(text, &end, 10);
    if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0) {
        out[used++] = 0x10;
        out[used++] = text[0] == 't';
    } else if (text[0] && *end == 0) {
        uint64_t rest = (uint64_t)number;
        out[used++] = 0x18;
        do {
            out[used++] = (uint8_t)((rest & 0x7f) | (rest > 0x7f ? 0x80 : 0));
            rest >>= 7;
        } while (rest);
    } else {
        out[used++] = 0x0a;
        size_t bytes = strlen(text);
        if (bytes > 127) bytes = 127; // one byte for its length; no option of XLA is that long
        out[used++] = (uint8_t)bytes;
        memcpy(out + used, text, bytes);
        used += bytes;
    }
    return used;
}

static rn_status put_override(rn_buffer *out, rn_str name, rn_str value) {
    uint8_t encoded[256];
    rn_buffer inner;
    size_t bytes = encode_value(value, encoded);
    rn_buffer_init(&inner, out->from, 1024);
    rn_status s = put_bytes(&inner, 0x0a, name.data, name.bytes);
    if (s == RN_OK) s = put_bytes(&inner, 0x12, encoded, bytes);
    if (s == RN_OK) s = put_bytes(out, 0x3a, inner.data, inner.bytes);
    rn_buffer_free(&inner);
    return s;
}

// The devices from the target's on, one a partition.
static rn_status put_devices(rn_buffer *out, const rn_pjrt_target *target, uint8_t cores) {
    uint8_t list[4 + 5 * RN_PJRT_MOST_CORES] = {0x08, 1, 0x10, cores};
    size_t used = 4;
    for (uint32_t c = 0; c < cores; c++) {
        const uint8_t one[] = {0x1a, 3, 0x0a, 1, (uint8_t)(target->device + c)};
        memcpy(list + used, one, sizeof one);
        used += sizeof one;
    }
    return put_bytes(out, 0x4a, list, used);
}

static rn_status put_build_options(rn_buffer *out, const rn_pjrt_target *target) {
    uint8_t cores = target->core_count > 1 ? (uint8_t)target->core_count : 1;
    const uint8_t head[] = {0x20, 1, 0x28, cores, 0x30, 1};
    rn_buffer inner;
    if (target->device + cores > 128) return rn_fail(RN_INVALID, "device=N is 127 at most");
    rn_buffer_init(&inner, out->from, 1024);
    rn_status s = rn_buffer_append(&inner, head, cores > 1 ? 6 : 4);
    if (s == RN_OK && (cores > 1 || target->device)) s = put_devices(&inner, target, cores);
    if (s == RN_OK) s = put_bytes(out, 0x1a, inner.data, inner.bytes);
    rn_buffer_free(&inner);
    return s;
}

rn_status rn_pjrt_write_options(const rn_pjrt_target *target, rn_buffer *out) {
    RN_TRY(put_build_options(out, target));
    char level[16];
    snprintf(level, sizeof level, "%d", (int)target->level);
    if (target->level >= 0 && strcmp(target->plugin, "neuron") != 0)
        RN_TRY(put_override(out, RN_STR("xla_backend_optimization_level"), rn_str_from(level)));
    rn_str flags = rn_str_from(target->flags);
    while (flags.bytes) {
        rn_str value = rn_target_take(&flags, '&');
        rn_str name = rn_target_take(&value, '=');
        RN_TRY(put_override(out, name, value));
    }
    return RN_OK;
}
