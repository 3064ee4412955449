// export_names.c — texts that any reader takes, and shapes out of them.
//
// Names come from programs and files: they may hold anything. JSON and pickles must be UTF-8, and a
// damaged name must not make a whole export unreadable, so all texts are made valid once, before
// anything is written. Keys are compared in this form, too: two different damaged names that look
// the same are the same key.
#include "memory/account.h"
#include "profile/export/export.h"

#include <stdio.h>

static const char replacement[] = "\xef\xbf\xbd"; // U+FFFD

rn_status rn_export_clean(rn_arena *arena, const char *text, rn_str *out) {
    char *copy;
    *out = rn_str_from(text ? text : "");
    if (rn_utf8_valid(*out)) return RN_OK;
    RN_TRY(rn_arena_alloc(arena, out->bytes * 3, (void **)&copy)); // a byte becomes three at most
    size_t filled = 0;
    for (size_t i = 0; i < out->bytes;) {
        size_t bytes = rn_utf8_sequence(out->data + i, out->bytes - i);
        memcpy(copy + filled, bytes ? out->data + i : replacement, bytes ? bytes : 3);
        filled += bytes ? bytes : 3;
        i += bytes ? bytes : 1;
    }
    *out = (rn_str){copy, filled};
    return RN_OK;
}

// Devices are keys: names that differ only in what is not UTF-8 get a number.
static rn_status clean_device(const rn_timeline *t, uint32_t device, rn_export_names *out) {
    rn_str *name = &out->devices[device];
    RN_TRY(rn_export_clean(&out->arena, t->devices[device].name, name));
    for (uint32_t i = 0; i < device; i++) {
        if (!rn_str_equal(*name, out->devices[i])) continue;
        char *copy;
        RN_TRY(rn_arena_alloc(&out->arena, name->bytes + 16, (void **)&copy));
        int bytes = snprintf(copy, name->bytes + 16, "%.*s #%u", RN_STR_ARG(*name), device);
        *name = (rn_str){copy, (size_t)bytes};
    }
    return RN_OK;
}

static rn_status clean_all(const rn_timeline *t, rn_export_names *out) {
    rn_arena *arena = &out->arena;
    RN_TRY(rn_arena_array(arena, t->name_count, sizeof *out->names, (void **)&out->names));
    for (uint32_t i = 0; i < t->name_count; i++) {
        RN_TRY(rn_export_clean(arena, t->names[i].name, &out->names[i].name));
        RN_TRY(rn_export_clean(arena, t->names[i].group, &out->names[i].group));
        RN_TRY(rn_export_clean(arena, t->names[i].detail, &out->names[i].detail));
    }
    RN_TRY(rn_arena_array(arena, t->lane_count, sizeof *out->lanes, (void **)&out->lanes));
    for (uint32_t i = 0; i < t->lane_count; i++)
        RN_TRY(rn_export_clean(arena, t->lanes[i].name, &out->lanes[i]));
    for (uint32_t i = 0; i < t->device_count; i++)
        RN_TRY(clean_device(t, i, out));
    return RN_OK;
}

rn_status rn_export_names_make(const rn_timeline *t, rn_export_names *out) {
    *out = (rn_export_names){.names = NULL};
    rn_arena_init(&out->arena, &rn_host_allocators[RN_PURPOSE_PROFILER], 0);
    rn_status s = clean_all(t, out);
    if (s != RN_OK) rn_export_names_free(out);
    return s;
}

void rn_export_names_free(rn_export_names *names) {
    rn_arena_free_all(&names->arena);
}

rn_str rn_export_alloc_name(const rn_export_names *names, const rn_timeline_alloc *alloc) {
    rn_str name = names->names[alloc->name].name;
    return name.bytes ? name : rn_str_from(rn_purpose_name((rn_purpose)alloc->purpose));
}

rn_str rn_export_op_name(const rn_export_names *names, const rn_timeline_op *op) {
    rn_str name = names->names[op->name].name;
    return name.bytes ? name : RN_STR("(unnamed)");
}

const char *rn_export_mark_name(uint8_t kind) {
    static const char *const kinds[RN_MARK_COUNT] = {
        [RN_MARK_STAGE] = "stage",         [RN_MARK_CHECKPOINT] = "checkpoint",
        [RN_MARK_PERIODIC] = "periodic",   [RN_MARK_REFUSAL] = "refusal",
        [RN_MARK_NO_MEMORY] = "no memory", [RN_MARK_SIGNAL] = "signal",
        [RN_MARK_FORK] = "fork",           [RN_MARK_START] = "start",
    };
    return kind < RN_MARK_COUNT ? kinds[kind] : "mark";
}

// ---- shapes -------------------------------------------------------------------------------------

// "4096, 1024" into out->dims.
static bool parse_dims(const char *at, const char *end, rn_export_shape *out) {
    bool digits = false;
    out->count = 0;
    for (; at < end; at++) {
        if (*at >= '0' && *at <= '9') {
            if (!digits) {
                if (out->count == RN_SHAPE_DIMS) return false;
                out->dims[out->count++] = 0;
            }
            uint64_t *dim = &out->dims[out->count - 1];
            if (*dim > (INT64_MAX - 9) / 10) return false;
            *dim = *dim * 10 + (uint64_t)(*at - '0');
            digits = true;
        } else if (*at == ',' || *at == ' ')
            digits = false;
        else
            return false;
    }
    return true;
}

// The word before `end`.
static rn_str last_word(const char *begin, const char *end) {
    while (end > begin && end[-1] == ' ')
        end--;
    const char *at = end;
    while (at > begin && at[-1] != ' ')
        at--;
    return (rn_str){at, (size_t)(end - at)};
}

bool rn_export_shape_next(rn_str *rest, rn_export_shape *out) {
    while (rest->bytes) {
        const char *begin = rest->data, *end = rest->data + rest->bytes;
        const char *open = memchr(begin, '[', rest->bytes);
        const char *close = open ? memchr(open, ']', (size_t)(end - open)) : NULL;
        if (!close) break;
        *rest = (rn_str){close + 1, (size_t)(end - close - 1)};
        out->dtype = last_word(begin, open);
        if (parse_dims(open + 1, close, out)) return true;
    }
    *out = (rn_export_shape){.dtype = {"", 0}};
    *rest = (rn_str){NULL, 0};
    return false;
}
