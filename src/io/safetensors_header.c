// safetensors_header.c — the JSON header, padded with spaces so that the data begin on an 8-byte
// boundary.
#include "io/layout.h"

#include "base/str.h"

#include <endian.h>
#include "base/json.h"

static rn_status check_tensor(const rn_write_tensor *tensor) {
    const rn_dtype_info *dtype = rn_dtype_get(tensor->dtype);
    if (!dtype->safetensors)
        return rn_hint(rn_fail(RN_UNSUPPORTED, "tensor '%.*s': safetensors has no dtype %s",
                               RN_STR_ARG(tensor->name), dtype->name),
                       "ggml's block types go into a .gguf file");
    if (!rn_utf8_valid(tensor->name))
        return rn_fail(RN_UNSUPPORTED, "a tensor's name is not UTF-8");
    if (rn_str_equal(tensor->name, RN_STR("__metadata__")))
        return rn_fail(RN_UNSUPPORTED, "a tensor cannot be called __metadata__");
    return RN_OK;
}

static void write_tensor(rn_json *json, const rn_layout *layout, uint32_t index) {
    const rn_write_tensor *tensor = &layout->tensors[index];
    rn_json_key(json, tensor->name);
    rn_json_object(json, NULL);
    rn_json_string(json, "dtype", rn_dtype_get(tensor->dtype)->safetensors);
    rn_json_array(json, "shape");
    for (uint32_t i = 0; i < tensor->rank; i++)
        rn_json_u64(json, NULL, tensor->dims[i]);
    rn_json_end(json);
    rn_json_array(json, "data_offsets");
    rn_json_u64(json, NULL, layout->offsets[index]);
    rn_json_u64(json, NULL, layout->offsets[index] + layout->bytes[index]);
    rn_json_end(json);
    rn_json_end(json);
}

static void write_metadata(rn_json *json, const rn_layout *layout) {
    rn_json_object(json, "__metadata__");
    for (size_t i = 0; i < layout->metadata_count; i++) {
        rn_json_key(json, layout->metadata[i].key);
        rn_json_text(json, NULL, layout->metadata[i].text);
    }
    rn_json_end(json);
}

static rn_status write_header(const rn_layout *layout, rn_buffer *out) {
    rn_json json;
    for (size_t i = 0; i < layout->metadata_count; i++)
        if (layout->metadata[i].kind != RN_METADATA_TEXT)
            return rn_fail(RN_UNSUPPORTED, "metadata '%.*s' is not text",
                           RN_STR_ARG(layout->metadata[i].key));
    for (size_t i = 0; i < layout->metadata_count; i++)
        if (!rn_utf8_valid(layout->metadata[i].key))
            return rn_fail(RN_UNSUPPORTED, "a metadata key is not UTF-8");
    rn_json_begin(&json, rn_buffer_sink(out), false);
    rn_json_object(&json, NULL);
    if (layout->metadata_count) write_metadata(&json, layout);
    for (size_t i = 0; i < layout->count && json.status == RN_OK; i++) {
        RN_TRY(check_tensor(&layout->tensors[layout->order[i]]));
        write_tensor(&json, layout, layout->order[i]);
    }
    rn_json_end(&json);
    return json.status;
}

rn_status rn_safetensors_header(const rn_layout *layout, rn_buffer *out) {
    size_t start = out->bytes;
    uint64_t length = 0;
    RN_TRY(rn_buffer_append(out, &length, sizeof length));
    RN_TRY(write_header(layout, out));
    while ((out->bytes - start) % 8)
        RN_TRY(rn_buffer_append(out, " ", 1));
    length = htole64(out->bytes - start - sizeof length);
    if (length > 100000000)
        return rn_fail(RN_UNSUPPORTED, "the header has %zu bytes, safetensors allows 100000000",
                       out->bytes - start);
    memcpy(out->data + start, &length, sizeof length);
    return RN_OK;
}
