// json_fuzz.c — any text: the reader refuses it with a place, or gives items that nest; a string
// written by our writer is read back the same.
#include "base/json.h"

#include "base/alloc.h"
#include "io/json_read.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
    if (!holds) __builtin_trap();
}

static void check_round_trip(rn_str text) {
    rn_buffer written;
    rn_json json;
    rn_json_reader reader;
    rn_json_item item;
    rn_buffer_init(&written, &rn_system_allocator, 1 << 24);
    rn_json_begin(&json, rn_buffer_sink(&written), false);
    rn_json_text(&json, NULL, text);
    require(rn_json_finish(&json) == RN_OK);
    rn_json_reader_init(&reader, (rn_str){written.data, written.bytes}, &rn_system_allocator);
    require(rn_json_expect(&reader, RN_JSON_STRING, &item) == RN_OK);
    if (rn_utf8_valid(text)) require(rn_str_equal(item.text, text));
    require(rn_json_expect(&reader, RN_JSON_END, NULL) == RN_OK);
    rn_json_reader_free(&reader);
    rn_buffer_free(&written);
}

static void check_item(const rn_json_item *item, int *depth, uint64_t *last, size_t size) {
    require(item->offset >= *last && item->offset <= size);
    *last = item->offset;
    if (item->kind == RN_JSON_OBJECT || item->kind == RN_JSON_ARRAY) ++*depth;
    if (item->kind == RN_JSON_OBJECT_END || item->kind == RN_JSON_ARRAY_END) --*depth;
    require(*depth >= 0 && *depth <= RN_JSON_READ_DEPTH);
    if (item->kind == RN_JSON_KEY || item->kind == RN_JSON_STRING) {
        require(rn_utf8_valid(item->text));
        check_round_trip(item->text);
    }
    uint64_t number;
    if (item->kind == RN_JSON_NUMBER && rn_json_u64_of(item, &number) == RN_OK)
        require(item->text.bytes <= 20);
}

// The whole text, item by item or skipped at once: both ways agree.
static rn_status skip_all(rn_str text) {
    rn_json_reader reader;
    rn_json_reader_init(&reader, text, &rn_system_allocator);
    rn_status s = rn_json_skip(&reader);
    if (s == RN_OK) s = rn_json_expect(&reader, RN_JSON_END, NULL);
    rn_json_reader_free(&reader);
    return s;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    rn_str text = {(const char *)data, size};
    rn_json_reader reader;
    rn_json_item item = {.kind = RN_JSON_NULL};
    int depth = 0;
    uint64_t last = 0;
    rn_status s = RN_OK;
    rn_json_reader_init(&reader, text, &rn_system_allocator);
    while (s == RN_OK && item.kind != RN_JSON_END) {
        s = rn_json_next(&reader, &item);
        if (s == RN_OK) check_item(&item, &depth, &last, size);
    }
    if (s == RN_OK)
        require(depth == 0);
    else
        require(s == RN_CORRUPT && rn_last_error()->offset <= size);
    rn_json_reader_free(&reader);
    require(skip_all(text) == s);
    check_round_trip(text);
    return 0;
}
