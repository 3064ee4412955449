// double_quant.c — a small JSON object and a table of 256 floats, for each weight.
#include "io/double_quant.h"

#include "base/number.h"
#include "base/str.h"
#include "io/checkpoint.h"
#include "io/json_read.h"
#include "memory/account.h"
#include "tensor/quant.h"

#include <math.h>
#include <stdio.h>

enum { NAME_BYTES = 512, STATE_BYTES = 4096 };

static rn_status find(const rn_checkpoint *checkpoint, const char *name, const char *suffix,
                      rn_dtype dtype, const rn_tensor_info **out) {
    char text[NAME_BYTES];
    int length = snprintf(text, sizeof text, "%s%s", name, suffix);
    *out = length < NAME_BYTES ? rn_checkpoint_find(checkpoint, text) : NULL;
    if (!*out)
        return rn_hint(rn_fail(RN_NOT_FOUND,
                               "'%s' is nf4 with double quantisation, but '%s%s' is "
                               "missing",
                               name, name, suffix),
                       "the files are incomplete");
    if ((*out)->dtype == dtype) return RN_OK;
    return rn_fail(RN_CORRUPT, "the tensor '%s' is %s, not %s", text,
                   rn_dtype_get((*out)->dtype)->name, rn_dtype_get(dtype)->name);
}

// torch writes as many digits as every float has its own.
static rn_status read_offset(const rn_json_item *item, float *out) {
    double value = 0;
    if (item->kind != RN_JSON_NUMBER) return rn_fail(RN_CORRUPT, "nested_offset is no number");
    RN_TRY(rn_number_read(item->text, &value));
    *out = (float)value;
    return isfinite(*out) ? RN_OK : rn_fail(RN_CORRUPT, "nested_offset is not finite");
}

static rn_status expect_size(const rn_json_item *item, const char *what, uint64_t size) {
    uint64_t found = 0;
    RN_TRY(rn_json_u64_of(item, &found));
    if (found == size) return RN_OK;
    return rn_fail(RN_UNSUPPORTED, "%s is %llu: ration reads nf4 with blocks of %llu", what,
                   (unsigned long long)found, (unsigned long long)size);
}

static rn_status read_state(rn_json_reader *json, float *out) {
    rn_json_item item;
    bool found = false;
    RN_TRY(rn_json_expect(json, RN_JSON_OBJECT, NULL));
    while (true) {
        RN_TRY(rn_json_next(json, &item));
        if (item.kind != RN_JSON_KEY) break;
        bool block = rn_str_equal(item.text, RN_STR("blocksize"));
        bool nested = rn_str_equal(item.text, RN_STR("nested_blocksize"));
        bool offset = rn_str_equal(item.text, RN_STR("nested_offset"));
        if (!block && !nested && !offset) {
            RN_TRY(rn_json_skip(json));
            continue;
        }
        RN_TRY(rn_json_next(json, &item));
        if (block) RN_TRY(expect_size(&item, "blocksize", RN_NF4_BLOCK));
        if (nested) RN_TRY(expect_size(&item, "nested_blocksize", RN_NF4_NESTED));
        if (offset) RN_TRY(read_offset(&item, out));
        found |= offset;
    }
    return found ? RN_OK : rn_fail(RN_CORRUPT, "there is no nested_offset");
}

static rn_status check_map(const rn_checkpoint *checkpoint, const char *name) {
    const rn_tensor_info *map = NULL;
    float values[256];
    RN_TRY(find(checkpoint, name, ".nested_quant_map", RN_DTYPE_F32, &map));
    if (map->bytes != sizeof values)
        return rn_fail(RN_CORRUPT, "the tensor '%.*s' has no 256 numbers", RN_STR_ARG(map->name));
    RN_TRY(rn_checkpoint_read(checkpoint, map, 0, values, sizeof values));
    for (int i = 0; i < 256; i++)
        if (values[i] != rn_dynamic_map[i])
            return rn_hint(rn_fail(RN_UNSUPPORTED,
                                   "the tensor '%.*s' is not bitsandbytes' map of 8-bit codes",
                                   RN_STR_ARG(map->name)),
                           "quantise the original weights: ration convert --to nf4_dq");
    return RN_OK;
}

rn_status rn_double_quant_offset(const rn_checkpoint *checkpoint, const char *name,
                                 float *out_offset) {
    const rn_tensor_info *state = NULL;
    char text[STATE_BYTES];
    rn_json_reader json;
    *out_offset = 0;
    RN_TRY(find(checkpoint, name, ".quant_state.bitsandbytes__nf4", RN_DTYPE_U8, &state));
    if (state->bytes > sizeof text)
        return rn_fail(RN_CORRUPT, "the tensor '%.*s' is too long", RN_STR_ARG(state->name));
    RN_TRY(rn_checkpoint_read(checkpoint, state, 0, text, (size_t)state->bytes));
    rn_json_reader_init(&json, (rn_str){text, (size_t)state->bytes}, RN_HOST_IO);
    json.base = state->offset;
    rn_status s = read_state(&json, out_offset);
    rn_json_reader_free(&json);
    if (s != RN_OK)
        return rn_error_locate(s, rn_checkpoint_file(checkpoint, state->file)->path, state->offset);
    return check_map(checkpoint, name);
}
