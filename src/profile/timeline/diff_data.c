// diff_data.c — rows of both sides by their text, then by how much they differ.
#include "base/checked.h"
#include "base/map.h"
#include "profile/timeline/diff.h"
#include "profile/timeline/radix.h"

#include <string.h>

static rn_status find_row(rn_diff_table *table, rn_map *rows, const char *text, size_t *out) {
    uint64_t known = 0;
    if (rn_map_find(rows, rn_str_from(text), &known)) {
        *out = (size_t)known;
        return RN_OK;
    }
    RN_TRY(rn_map_add(rows, rn_str_from(text), table->count, NULL));
    table->rows[table->count] = (rn_diff_row){.text = text};
    *out = table->count++;
    return RN_OK;
}

// Rows of either kind begin with their text.
static rn_status add_side(rn_diff_table *table, rn_map *rows, int side, const void *items,
                          size_t count, size_t item_bytes) {
    for (size_t i = 0; i < count; i++) {
        const char *item = (const char *)items + i * item_bytes, *text;
        size_t row = 0;
        memcpy(&text, item, sizeof text);
        RN_TRY(find_row(table, rows, text, &row));
        table->rows[row].sides[side] = item;
    }
    return RN_OK;
}

static uint64_t distance(uint64_t a, uint64_t b) {
    return a > b ? a - b : b - a;
}

static rn_status sort_rows(rn_diff_table *table) {
    if (table->count == 0) return RN_OK;
    void *items = NULL, *copy = NULL;
    size_t item_bytes = table->count * sizeof(rn_sort_item);
    rn_status s = rn_alloc(table->from, item_bytes, &items);
    if (s == RN_OK) s = rn_alloc(table->from, table->count * sizeof *table->rows, &copy);
    rn_sort_item *order = items;
    for (size_t i = 0; s == RN_OK && i < table->count; i++)
        order[i] = (rn_sort_item){.key = ~table->rows[i].size, .index = (uint32_t)i};
    if (s == RN_OK) s = rn_radix_sort(table->from, order, table->count);
    if (s == RN_OK) {
        memcpy(copy, table->rows, table->count * sizeof *table->rows);
        for (size_t i = 0; i < table->count; i++)
            table->rows[i] = ((rn_diff_row *)copy)[order[i].index];
    }
    rn_free(table->from, copy, table->count * sizeof *table->rows);
    rn_free(table->from, items, item_bytes);
    return s;
}

typedef struct row_list {
    const void *items;
    size_t count;
} row_list;

static rn_status merge(rn_diff_table *table, row_list a, row_list b, size_t item_bytes) {
    void *block = NULL;
    rn_map rows;
    RN_TRY(rn_alloc(table->from, (a.count + b.count) * sizeof *table->rows, &block));
    table->rows = block;
    table->capacity = a.count + b.count;
    rn_map_init(&rows, table->from);
    rn_status s = add_side(table, &rows, 0, a.items, a.count, item_bytes);
    if (s == RN_OK) s = add_side(table, &rows, 1, b.items, b.count, item_bytes);
    rn_map_free(&rows);
    return s;
}

uint64_t rn_diff_bytes(const rn_diff_row *row, int side) {
    const rn_report_row *of = row->sides[side];
    return of ? of->bytes : 0;
}

rn_status rn_diff_tables(const rn_allocator *from, const rn_report_table *a,
                         const rn_report_table *b, rn_diff_table *out) {
    *out = (rn_diff_table){.from = from};
    row_list first = {a ? a->rows : NULL, a ? a->count : 0};
    row_list second = {b ? b->rows : NULL, b ? b->count : 0};
    RN_TRY(merge(out, first, second, sizeof(rn_report_row)));
    for (size_t i = 0; i < out->count; i++)
        out->rows[i].size =
            distance(rn_diff_bytes(&out->rows[i], 0), rn_diff_bytes(&out->rows[i], 1));
    return sort_rows(out);
}

static uint64_t self_ns(const rn_diff_row *row, int side) {
    const rn_report_op *op = row->sides[side];
    return op ? op->self_ns : 0;
}

rn_status rn_diff_ops(const rn_report *a, const rn_report *b, rn_diff_table *out) {
    *out = (rn_diff_table){.from = a->timeline->allocator};
    RN_TRY(merge(out, (row_list){a->ops, a->op_count}, (row_list){b->ops, b->op_count},
                 sizeof *a->ops));
    for (size_t i = 0; i < out->count; i++)
        out->rows[i].size = distance(self_ns(&out->rows[i], 0), self_ns(&out->rows[i], 1));
    return sort_rows(out);
}

void rn_diff_free(rn_diff_table *table) {
    rn_free(table->from, table->rows, table->capacity * sizeof *table->rows);
    table->rows = NULL;
}
