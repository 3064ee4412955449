// json_profile_tree.c — values of the types that are wanted, out of a stream that may hold any.
#include "profile/foreign/json_profile.h"

#include "base/checked.h"
#include "profile/foreign/foreign.h"

static const char *const words[RN_JP_WORD_COUNT] = {
    [RN_JP_METADATA] = "metadata",
    [RN_JP_SNAPSHOTS] = "snapshots",
    [RN_JP_OPERATION_ALLOCATIONS] = "operation_allocations",
    [RN_JP_OPERATION_SUMMARY] = "operation_summary",
    [RN_JP_OPERATION_LOG] = "operation_log",
    [RN_JP_TENSOR_LIFECYCLE] = "tensor_lifecycle",
    [RN_JP_PYTORCH_OPERATIONS] = "pytorch_operations",
    [RN_JP_COMMAND] = "command",
    [RN_JP_STARTED_AT] = "started_at",
    [RN_JP_TIMESTAMP] = "timestamp",
    [RN_JP_CHECKPOINT_NAME] = "checkpoint_name",
    [RN_JP_KIND] = "kind",
    [RN_JP_TOTAL_BYTES] = "total_bytes",
    [RN_JP_TOTAL_MB] = "total_mb",
    [RN_JP_TOP_ALLOCATIONS] = "top_allocations",
    [RN_JP_DEVICE_BREAKDOWN] = "device_breakdown",
    [RN_JP_TENSORS] = "tensors",
    [RN_JP_TENSOR_ID] = "tensor_id",
    [RN_JP_SIZE_BYTES] = "size_bytes",
    [RN_JP_SIZE_MB] = "size_mb",
    [RN_JP_SHAPE] = "shape",
    [RN_JP_DTYPE] = "dtype",
    [RN_JP_DEVICE] = "device",
    [RN_JP_REQUIRES_GRAD] = "requires_grad",
    [RN_JP_ALLOCATED_BY] = "allocated_by",
    [RN_JP_OPERATION] = "operation",
    [RN_JP_PURPOSE] = "purpose",
    [RN_JP_NAME] = "name",
    [RN_JP_BLOCK] = "block",
    [RN_JP_MEMORY_DELTA_MB] = "memory_delta_mb",
    [RN_JP_TENSOR_DELTA] = "tensor_delta",
    [RN_JP_TENSORS_ALLOCATED] = "tensors_allocated",
    [RN_JP_TENSORS_DEALLOCATED] = "tensors_deallocated",
    [RN_JP_PRE_TOTAL_MB] = "pre_total_mb",
    [RN_JP_INVOCATION_COUNT] = "invocation_count",
    [RN_JP_TOTAL_MEMORY_DELTA_MB] = "total_memory_delta_mb",
    [RN_JP_MAX_MEMORY_DELTA_MB] = "max_memory_delta_mb",
    [RN_JP_DURATION_US] = "duration_us",
    [RN_JP_LANE] = "lane",
    [RN_JP_MODULE_NAME] = "module_name",
    [RN_JP_INPUT_SHAPES] = "input_shapes",
    [RN_JP_EVENTS] = "events",
    [RN_JP_EVENT_TYPE] = "event_type",
    [RN_JP_OP_NAME] = "op_name",
    [RN_JP_COUNT] = "count",
    [RN_JP_CPU_TIME_US] = "cpu_time_us",
    [RN_JP_CUDA_TIME_US] = "cuda_time_us",
    [RN_JP_CPU_MEMORY_MB] = "cpu_memory_mb",
    [RN_JP_CUDA_MEMORY_MB] = "cuda_memory_mb",
};

// ---- structure ----------------------------------------------------------------------------------

// The rest of an array or object that was just opened.
static rn_status leave(rn_json_profile *p) {
    rn_json_item item;
    for (int level = p->json.depth; p->json.depth >= level;)
        RN_TRY(rn_json_next(&p->json, &item));
    return RN_OK;
}

static bool is_opening(const rn_json_item *item) {
    return item->kind == RN_JSON_OBJECT || item->kind == RN_JSON_ARRAY;
}

// The next value; one with parts is passed whole.
static rn_status next_scalar(rn_json_profile *p, rn_json_item *out) {
    RN_TRY(rn_json_next(&p->json, out));
    return is_opening(out) ? leave(p) : RN_OK;
}

rn_status rn_jp_skip(rn_json_profile *p) {
    rn_json_item item;
    return next_scalar(p, &item);
}

rn_status rn_jp_enter(rn_json_profile *p, rn_json_kind kind, bool *out_in) {
    rn_json_item item;
    *out_in = false;
    RN_TRY(rn_json_next(&p->json, &item));
    *out_in = item.kind == kind;
    return !*out_in && is_opening(&item) ? leave(p) : RN_OK;
}

rn_status rn_jp_next_key(rn_json_profile *p, rn_str *out_key, bool *out_more) {
    rn_json_item item;
    *out_more = false;
    *out_key = (rn_str){"", 0};
    RN_TRY(rn_json_next(&p->json, &item));
    *out_more = item.kind == RN_JSON_KEY;
    if (*out_more) *out_key = item.text;
    return RN_OK;
}

rn_status rn_jp_next_word(rn_json_profile *p, rn_json_word *out, bool *out_more) {
    rn_str key;
    *out = RN_JP_UNKNOWN;
    RN_TRY(rn_jp_next_key(p, &key, out_more));
    for (int i = 1; i < RN_JP_WORD_COUNT; i++)
        if (rn_str_equal(key, rn_str_from(words[i]))) *out = (rn_json_word)i;
    return RN_OK;
}

rn_status rn_jp_next_object(rn_json_profile *p, bool *out_more) {
    rn_json_item item;
    *out_more = false;
    for (;;) {
        RN_TRY(rn_json_next(&p->json, &item));
        if (item.kind == RN_JSON_ARRAY_END) return RN_OK;
        *out_more = item.kind == RN_JSON_OBJECT;
        if (*out_more) return RN_OK;
        if (is_opening(&item)) RN_TRY(leave(p));
    }
}

// ---- values -------------------------------------------------------------------------------------

rn_status rn_jp_keep(rn_json_profile *p, rn_str text, rn_str *out) {
    uint64_t known;
    void *copy = NULL;
    *out = (rn_str){"", 0};
    if (!text.bytes) return RN_OK;
    text.bytes = rn_min_u64(text.bytes, sizeof((rn_foreign_text *)0)->data);
    if (rn_map_find(&p->text_ids, text, &known)) {
        *out = (rn_str){(const char *)(uintptr_t)known, text.bytes};
        return RN_OK;
    }
    RN_TRY(rn_arena_copy(&p->texts, text.data, text.bytes, &copy));
    *out = (rn_str){copy, text.bytes};
    return rn_map_add(&p->text_ids, *out, (uintptr_t)copy, NULL);
}

rn_status rn_jp_text(rn_json_profile *p, rn_str *out) {
    rn_json_item item;
    RN_TRY(next_scalar(p, &item));
    if (item.kind != RN_JSON_STRING && item.kind != RN_JSON_NUMBER) return RN_OK;
    return rn_jp_keep(p, item.text, out);
}

rn_status rn_jp_flag(rn_json_profile *p, bool *out) {
    rn_json_item item;
    RN_TRY(next_scalar(p, &item));
    if (item.kind == RN_JSON_TRUE || item.kind == RN_JSON_FALSE) *out = item.kind == RN_JSON_TRUE;
    return RN_OK;
}

rn_status rn_jp_number(rn_json_profile *p, double *out, bool *out_has) {
    rn_json_item item;
    double number;
    RN_TRY(next_scalar(p, &item));
    bool good = item.kind == RN_JSON_NUMBER && rn_foreign_number(item.text, &number);
    if (good) *out = number;
    if (out_has) *out_has |= good;
    return RN_OK;
}

// Sizes that no machine has are not believed.
static bool bytes_of(double number, uint64_t *out) {
    if (!(number >= 0 && number < 0x1p48)) return false;
    *out = (uint64_t)(number + 0.5);
    return true;
}

rn_status rn_jp_bytes(rn_json_profile *p, uint64_t *out, bool *out_has) {
    double number = -1;
    uint64_t bytes;
    RN_TRY(rn_jp_number(p, &number, NULL));
    if (!bytes_of(number, &bytes)) return RN_OK;
    *out = bytes;
    *out_has = true;
    return RN_OK;
}

// A megabyte is 2^20 bytes.
rn_status rn_jp_megabytes(rn_json_profile *p, uint64_t *out, bool *out_has) {
    double number = -1;
    uint64_t bytes;
    RN_TRY(rn_jp_number(p, &number, NULL));
    if (!bytes_of(number * 1048576, &bytes)) return RN_OK;
    *out = bytes;
    *out_has = true;
    return RN_OK;
}

rn_status rn_jp_time(rn_json_profile *p, int64_t *out) {
    rn_json_item item;
    int64_t time_ns;
    RN_TRY(next_scalar(p, &item));
    bool written = item.kind == RN_JSON_STRING || item.kind == RN_JSON_NUMBER;
    if (written && rn_foreign_time(item.text, &time_ns)) *out = time_ns;
    return RN_OK;
}

// What comes after `item` needs a comma before it, unless something was just opened.
static rn_status put_item(rn_buffer *out, const rn_json_item *item, bool comma) {
    if (comma) RN_TRY(rn_buffer_append(out, ", ", 2));
    if (item->kind == RN_JSON_ARRAY) return rn_buffer_append(out, "[", 1);
    if (item->kind == RN_JSON_NUMBER)
        return rn_buffer_append(out, item->text.data, item->text.bytes);
    return rn_buffer_append(out, "null", 4);
}

// Shapes are numbers in lists; other things in them are null.
rn_status rn_jp_list(rn_json_profile *p, rn_str *out) {
    enum { MOST = 1000 }; // fits a name
    rn_json_item item;
    bool comma = false;
    RN_TRY(rn_json_next(&p->json, &item));
    if (item.kind != RN_JSON_ARRAY) return is_opening(&item) ? leave(p) : RN_OK;
    p->shape.bytes = 0;
    RN_TRY(rn_buffer_append(&p->shape, "[", 1));
    for (int level = p->json.depth; p->json.depth >= level;) {
        RN_TRY(rn_json_next(&p->json, &item));
        if (item.kind == RN_JSON_ARRAY_END) {
            RN_TRY(rn_buffer_append(&p->shape, "]", 1));
            comma = true;
            continue;
        }
        RN_TRY(put_item(&p->shape, &item, comma));
        comma = item.kind != RN_JSON_ARRAY;
        if (item.kind == RN_JSON_OBJECT) RN_TRY(leave(p));
    }
    if (p->shape.bytes > MOST) return rn_jp_keep(p, RN_STR("[]"), out);
    return rn_jp_keep(p, (rn_str){p->shape.data, p->shape.bytes}, out);
}

// ---- names --------------------------------------------------------------------------------------

rn_status rn_jp_name(rn_json_profile *p, rn_str name, rn_str group, rn_str detail, uint32_t *out) {
    rn_foreign_text texts[3] = {{.bytes = 0}, {.bytes = 0}, {.bytes = 0}};
    rn_foreign_append(&texts[0], name);
    rn_foreign_append(&texts[1], group);
    rn_foreign_append(&texts[2], detail);
    return rn_timeline_add_name(p->timeline, rn_foreign_str(&texts[0]), rn_foreign_str(&texts[1]),
                                rn_foreign_str(&texts[2]), out);
}

rn_status rn_jp_device(rn_json_profile *p, rn_str name, uint8_t *out) {
    rn_foreign_text text = {.bytes = 0};
    rn_foreign_append(&text, name.bytes ? name : RN_STR("unknown"));
    return rn_timeline_add_device(p->timeline, rn_foreign_str(&text), out);
}
