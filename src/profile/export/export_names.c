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

// ---- shapes -------------------------------------------------------------------------------------

static bool parse_dim(rn_str text, int64_t *out) {
    bool is_open = rn_str_equal(text, RN_STR("rows")) || rn_str_equal(text, RN_STR("-1"));
    *out = is_open ? -1 : 0;
    if (is_open) return true;
    for (size_t i = 0; i < text.bytes; i++) {
        if (text.data[i] < '0' || text.data[i] > '9' || *out > (INT64_MAX - 9) / 10) return false;
        *out = *out * 10 + (text.data[i] - '0');
    }
    return true;
}

// "4096, 1024" into out->dims.
static bool parse_dims(const char *at, const char *end, rn_export_shape *out) {
    for (out->count = 0; at < end;) {
        const char *begin = at;
        while (at < end && *at != ',' && *at != ' ')
            at++;
        rn_str word = {begin, (size_t)(at - begin)};
        if (!word.bytes)
            at++;
        else if (out->count == RN_SHAPE_DIMS || !parse_dim(word, &out->dims[out->count++]))
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
        open = memrchr(open, '[', (size_t)(close - open)); // the innermost of a list of lists
        *rest = (rn_str){close + 1, (size_t)(end - close - 1)};
        out->dtype = last_word(begin, open);
        if (parse_dims(open + 1, close, out)) return true;
    }
    *out = (rn_export_shape){.dtype = {"", 0}};
    *rest = (rn_str){NULL, 0};
    return false;
}

void rn_export_shape_bind(rn_export_shape *shape, uint32_t rows) {
    for (size_t i = 0; i < shape->count && rows; i++)
        if (shape->dims[i] < 0) shape->dims[i] = rows;
}

rn_str rn_export_take_outputs(rn_str *detail) {
    static const char arrow[] = {'-', '>'};
    const char *at =
        detail->bytes ? memmem(detail->data, detail->bytes, arrow, sizeof arrow) : NULL;
    if (!at) return (rn_str){NULL, 0};
    const char *begin = at + sizeof arrow, *end = detail->data + detail->bytes;
    detail->bytes = (size_t)(at - detail->data);
    return (rn_str){begin, (size_t)(end - begin)};
}
