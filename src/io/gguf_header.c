// gguf_header.c — a GGUF version 3 header; see gguf.c for the layout.
#include "io/gguf.h"
#include "io/layout.h"

#include "base/str.h"

enum { MAX_NAME_BYTES = 63, MAX_RANK = 4 };

static rn_status put(rn_buffer *out, const void *data, size_t bytes) {
    return rn_buffer_append(out, data, bytes);
}

static rn_status put_u32(rn_buffer *out, uint32_t value) {
    return put(out, &value, sizeof value);
}

static rn_status put_u64(rn_buffer *out, uint64_t value) {
    return put(out, &value, sizeof value);
}

static rn_status put_string(rn_buffer *out, rn_str text) {
    RN_TRY(put_u64(out, text.bytes));
    return put(out, text.data, text.bytes);
}

static rn_status put_float(rn_buffer *out, uint32_t type, double value) {
    float narrow = (float)value;
    return type == RN_GGUF_F32 ? put(out, &narrow, sizeof narrow) : put(out, &value, sizeof value);
}

// Little-endian: the low bytes of a wide integer are the narrow one.
static rn_status put_value(rn_buffer *out, const rn_metadata *pair) {
    switch (pair->kind) {
    case RN_METADATA_TEXT:
        return put_string(out, pair->text);
    case RN_METADATA_BOOL:
        return put(out, pair->value.boolean ? "\1" : "\0", 1);
    case RN_METADATA_F64:
        return put_float(out, pair->gguf_type, pair->value.f64);
    case RN_METADATA_ARRAY:
        RN_TRY(put_u32(out, pair->gguf_type));
        RN_TRY(put_u64(out, pair->count));
        return put(out, pair->raw.data, pair->raw.bytes);
    default:
        return put(out, &pair->value, rn_gguf_type_bytes(pair->gguf_type));
    }
}

static rn_status put_pair(rn_buffer *out, const rn_layout *layout, const rn_metadata *pair) {
    if (pair->key.bytes == 0) return rn_fail(RN_UNSUPPORTED, "GGUF has no empty metadata keys");
    if (rn_str_equal(pair->key, RN_STR("general.alignment")) &&
        (pair->gguf_type != RN_GGUF_U32 || pair->value.u64 != layout->alignment))
        return rn_fail(RN_UNSUPPORTED, "general.alignment must be a u32 of %d or %d",
                       RN_GGUF_WRITE_ALIGNMENT, RN_GGUF_PACKED_ALIGNMENT);
    RN_TRY(put_string(out, pair->key));
    RN_TRY(put_u32(out, pair->kind == RN_METADATA_ARRAY ? RN_GGUF_ARRAY : pair->gguf_type));
    return put_value(out, pair);
}

static rn_status check_tensor(const rn_write_tensor *tensor) {
    const rn_dtype_info *dtype = rn_dtype_get(tensor->dtype);
    if (dtype->ggml < 0)
        return rn_hint(rn_fail(RN_UNSUPPORTED, "tensor '%.*s': GGUF has no dtype %s",
                               RN_STR_ARG(tensor->name), dtype->name),
                       "int8, int4, nf4, fp8 and unsigned integers go into a .safetensors file");
    if (tensor->name.bytes > MAX_NAME_BYTES)
        return rn_hint(rn_fail(RN_UNSUPPORTED, "tensor '%.*s': GGUF names have at most %d bytes",
                               RN_STR_ARG(tensor->name), MAX_NAME_BYTES),
                       "write a .safetensors file instead");
    if (tensor->rank > MAX_RANK)
        return rn_fail(RN_UNSUPPORTED, "tensor '%.*s' has %u dimensions, GGUF allows %d",
                       RN_STR_ARG(tensor->name), tensor->rank, MAX_RANK);
    return RN_OK;
}

static rn_status put_tensor(rn_buffer *out, const rn_layout *layout, uint32_t index) {
    const rn_write_tensor *tensor = &layout->tensors[index];
    RN_TRY(check_tensor(tensor));
    RN_TRY(put_string(out, tensor->name));
    RN_TRY(put_u32(out, tensor->rank));
    for (uint32_t i = tensor->rank; i > 0; i--)
        RN_TRY(put_u64(out, tensor->dims[i - 1]));
    RN_TRY(put_u32(out, (uint32_t)rn_dtype_get(tensor->dtype)->ggml));
    return put_u64(out, layout->offsets[index]);
}

rn_status rn_gguf_header(const rn_layout *layout, rn_buffer *out) {
    size_t start = out->bytes;
    RN_TRY(put(out, "GGUF", 4));
    RN_TRY(put_u32(out, 3));
    RN_TRY(put_u64(out, layout->count));
    RN_TRY(put_u64(out, layout->metadata_count));
    for (size_t i = 0; i < layout->metadata_count; i++)
        RN_TRY(put_pair(out, layout, &layout->metadata[i]));
    for (size_t i = 0; i < layout->count; i++)
        RN_TRY(put_tensor(out, layout, layout->order[i]));
    while ((out->bytes - start) % layout->alignment)
        RN_TRY(put(out, "", 1));
    return RN_OK;
}
