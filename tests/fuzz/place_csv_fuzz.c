// place_csv_fuzz.c — any bytes: the reader answers or refuses with a line; what it answers can be
// placed, and printed and read again it is the same.
#include "base/buffer.h"
#include "base/str.h"
#include "plan/place.h"
#include "plan/place_csv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
    if (!holds) __builtin_trap();
}

static void check_round(const rn_place_table *table) {
    rn_buffer text;
    rn_place_table again;
    rn_buffer_init(&text, &rn_system_allocator, 64 << 20);
    require(rn_place_csv_print(table, rn_buffer_sink(&text)) == RN_OK);
    rn_str printed = {text.data, text.bytes};
    require(rn_place_csv_parse(printed, &rn_system_allocator, &again) == RN_OK);
    require(again.count == table->count);
    for (size_t i = 0; i < table->count; i++) {
        const rn_place_buffer *a = &table->buffers[i], *b = &again.buffers[i];
        require(rn_str_equal(table->ids[i], again.ids[i]));
        require(table->offsets[i] == again.offsets[i]);
        require(a->lower == b->lower && a->upper == b->upper && a->align == b->align);
        require(a->size_bytes == b->size_bytes);
    }
    rn_place_table_free(&again);
    rn_buffer_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    rn_place_table table;
    rn_placement p;
    rn_place_options options = {.effort = RN_PLACE_BEST, .node_limit = 500};
    rn_str text = {(const char *)data, size};
    rn_status s = rn_place_csv_parse(text, &rn_system_allocator, &table);
    if (s != RN_OK) {
        require(s == RN_CORRUPT && strncmp(rn_last_error()->message, "line ", 5) == 0);
        return 0;
    }
    check_round(&table);
    s = rn_place_in(&rn_system_allocator, table.buffers, table.count, &options, table.offsets, &p);
    require(s == RN_OK);
    require(rn_place_is_valid(table.buffers, table.count, table.offsets, p.height_bytes));
    require(p.lower_bound_bytes <= p.height_bytes);
    rn_place_table_free(&table);
    return 0;
}
