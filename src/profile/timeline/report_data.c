// report_data.c — gathers the numbers of a report: one walk a device, one pass over the operations.
#include "base/checked.h"
#include "base/map.h"
#include "base/reserved.h"
#include "profile/timeline/radix.h"
#include "profile/timeline/report.h"

#include <stdio.h>
#include <string.h>

// ---- texts --------------------------------------------------------------------------------------

rn_label rn_label_of(const char *text, const char *instead) {
    rn_label label;
    size_t bytes = 0, most = sizeof label.text - 4;
    text = text[0] ? text : instead;
    while (text[bytes]) {
        size_t step = rn_utf8_sequence(text + bytes, strnlen(text + bytes, 4));
        if (bytes + (step ? step : 1) > most) break;
        bytes += step ? step : 1;
    }
    snprintf(label.text, sizeof label.text, "%.*s%s", (int)bytes, text, text[bytes] ? "..." : "");
    rn_str_clean(label.text);
    for (char *line = label.text; (line = strchr(line, '\n'));)
        *line = ' ';
    return label;
}

rn_size_text rn_change_format(int64_t bytes) {
    uint64_t size = bytes < 0 ? 0 - (uint64_t)bytes : (uint64_t)bytes;
    rn_size_text plain = rn_size_format(size), signed_text;
    snprintf(signed_text.text, sizeof signed_text.text, "%s%.30s",
             bytes > 0   ? "+"
             : bytes < 0 ? "-"
                         : "",
             plain.text);
    return signed_text;
}

// Numbers the names by one of their texts: the first name that has it.
static rn_status number_by(const rn_timeline *t, bool by_group, rn_map *map, uint32_t *out) {
    for (uint32_t i = 0; i < t->name_count; i++) {
        rn_str text = rn_str_from(by_group ? t->names[i].group : t->names[i].name);
        uint64_t first = i;
        if (!rn_map_find(map, text, &first)) RN_TRY(rn_map_add(map, text, i, NULL));
        out[i] = (uint32_t)first;
    }
    return RN_OK;
}

static rn_status number_names(const rn_timeline *t, bool by_group, uint32_t **out) {
    void *block = NULL;
    rn_map map;
    RN_TRY(rn_alloc(t->allocator, t->name_count * sizeof **out, &block));
    *out = block;
    rn_map_init(&map, t->allocator);
    rn_status s = number_by(t, by_group, &map, *out);
    rn_map_free(&map);
    return s;
}

// ---- tables -------------------------------------------------------------------------------------

static void clear_rows(rn_report *r) {
    memset(r->rows_of, 0xff, r->timeline->name_count * sizeof *r->rows_of);
}

static rn_status grow_table(const rn_allocator *from, rn_report_table *table) {
    if (table->count < table->capacity) return RN_OK;
    size_t more = table->capacity ? table->capacity * 2 : 16;
    void *block = NULL;
    RN_TRY(rn_alloc(from, more * sizeof *table->rows, &block));
    if (table->count) memcpy(block, table->rows, table->count * sizeof *table->rows);
    rn_free(from, table->rows, table->capacity * sizeof *table->rows);
    table->rows = block;
    table->capacity = more;
    return RN_OK;
}

// Adds a block to the row of `key`, a name's number; rows_of says where that is.
static rn_status add_to(rn_report *r, rn_report_table *table, uint32_t key, const char *text,
                        uint64_t bytes) {
    if (r->rows_of[key] == RN_NO_INDEX) {
        RN_TRY(grow_table(r->timeline->allocator, table));
        r->rows_of[key] = (uint32_t)table->count;
        table->rows[table->count++] = (rn_report_row){.text = text};
    }
    rn_report_row *row = &table->rows[r->rows_of[key]];
    row->bytes += bytes;
    row->count++;
    return RN_OK;
}

static rn_status sort_table(const rn_allocator *from, rn_report_table *table) {
    if (table->count < 2) return RN_OK;
    void *block = NULL, *rows = NULL;
    size_t item_bytes = table->count * sizeof(rn_sort_item);
    RN_TRY(rn_alloc(from, item_bytes, &block));
    rn_sort_item *items = block;
    for (size_t i = 0; i < table->count; i++)
        items[i] = (rn_sort_item){.key = ~table->rows[i].bytes, .index = (uint32_t)i};
    rn_status s = rn_radix_sort(from, items, table->count);
    if (s == RN_OK) s = rn_alloc(from, table->capacity * sizeof *table->rows, &rows);
    if (s == RN_OK) {
        for (size_t i = 0; i < table->count; i++)
            ((rn_report_row *)rows)[i] = table->rows[items[i].index];
        rn_free(from, table->rows, table->capacity * sizeof *table->rows);
        table->rows = rows;
    }
    rn_free(from, block, item_bytes);
    return s;
}

static void free_table(const rn_allocator *from, rn_report_table *table) {
    rn_free(from, table->rows, table->capacity * sizeof *table->rows);
}

// ---- what was in use ----------------------------------------------------------------------------

static uint32_t op_name(const rn_timeline *t, const rn_timeline_alloc *alloc) {
    return alloc->op == RN_NO_INDEX ? 0 : t->ops[alloc->op].name;
}

static rn_status fill_purposes(rn_report *r, rn_report_device *d) {
    uint64_t counts[RN_PURPOSE_COUNT] = {0};
    for (size_t i = 0; i < d->live_count; i++)
        counts[r->timeline->allocs[d->live[i]].purpose]++;
    for (int p = 0; p < RN_PURPOSE_COUNT; p++) {
        if (!counts[p]) continue;
        RN_TRY(grow_table(r->timeline->allocator, &d->purposes));
        d->purposes.rows[d->purposes.count++] =
            (rn_report_row){.text = rn_purpose_name((rn_purpose)p),
                            .bytes = d->moment.purpose_bytes[p],
                            .count = counts[p]};
    }
    return sort_table(r->timeline->allocator, &d->purposes);
}

static rn_status fill_blocks(rn_report *r, rn_report_device *d) {
    const rn_timeline *t = r->timeline;
    clear_rows(r);
    for (size_t i = 0; i < d->live_count; i++) {
        const rn_timeline_alloc *alloc = &t->allocs[d->live[i]];
        uint32_t key = r->groups[alloc->name];
        RN_TRY(add_to(r, &d->blocks, key, t->names[key].group, alloc->bytes));
    }
    return sort_table(t->allocator, &d->blocks);
}

static rn_status fill_ops(rn_report *r, rn_report_device *d) {
    const rn_timeline *t = r->timeline;
    clear_rows(r);
    for (size_t i = 0; i < d->live_count; i++) {
        const rn_timeline_alloc *alloc = &t->allocs[d->live[i]];
        uint32_t key = r->name_ids[op_name(t, alloc)];
        RN_TRY(add_to(r, &d->ops, key, t->names[key].name, alloc->bytes));
    }
    return sort_table(t->allocator, &d->ops);
}

// A row for each call stack; blocks without one are in none.
static rn_status fill_sites(rn_report *r, rn_report_device *d) {
    const rn_timeline *t = r->timeline;
    clear_rows(r);
    for (size_t i = 0; i < d->live_count; i++) {
        const rn_timeline_alloc *alloc = &t->allocs[d->live[i]];
        if (!alloc->site) continue;
        RN_TRY(add_to(r, &d->sites, alloc->site, t->names[alloc->site].name, alloc->bytes));
        d->sites.rows[r->rows_of[alloc->site]].detail = t->names[alloc->site].detail;
    }
    return sort_table(t->allocator, &d->sites);
}

static rn_status list_live(rn_report *r, rn_report_device *d) {
    const rn_timeline *t = r->timeline;
    void *block = NULL;
    size_t count = rn_timeline_live_at(t, d->device, d->moment.time_ns, NULL, 0);
    RN_TRY(rn_alloc(t->allocator, count * sizeof *d->live, &block));
    d->live = block;
    d->live_count = count;
    rn_timeline_live_at(t, d->device, d->moment.time_ns, d->live, count);
    return RN_OK;
}

// What an operation left behind when it ended, and nobody has released since.
static rn_status fill_left(rn_report *r, rn_report_device *d) {
    const rn_timeline *t = r->timeline;
    clear_rows(r);
    for (uint32_t i = 0; i < t->alloc_count; i++) {
        const rn_timeline_alloc *alloc = &t->allocs[i];
        bool in_use = alloc->inner || !alloc->is_arena;
        if (alloc->device != d->device || alloc->end_ns != RN_STILL_LIVE || !in_use) continue;
        d->end_bytes += alloc->bytes;
        d->end_count++;
        if (alloc->op == RN_NO_INDEX || t->ops[alloc->op].unfinished) continue;
        d->left_bytes += alloc->bytes;
        d->left_count++;
        uint32_t key = r->name_ids[op_name(t, alloc)];
        RN_TRY(add_to(r, &d->left, key, t->names[key].name, alloc->bytes));
    }
    return sort_table(t->allocator, &d->left);
}

// ---- devices ------------------------------------------------------------------------------------

static void read_counters(const rn_timeline *t, rn_report_device *d) {
    for (uint32_t i = 0; i < t->counter_count; i++) {
        const rn_timeline_counter *counter = &t->counters[i];
        if (counter->device != d->device) continue;
        uint64_t *most = NULL;
        if (counter->kind == RN_COUNTER_BUDGET && counter->value != RN_NO_LIMIT)
            d->budget_bytes = counter->value; // the last; when the work is done there is none
        if (counter->kind == RN_COUNTER_RESIDENT) most = &d->resident_peak_bytes;
        if (counter->kind == RN_COUNTER_PREDICTED_PEAK) most = &d->predicted_peak_bytes;
        if (most) *most = rn_max_u64(*most, counter->value);
    }
}

static void compare_predicted(rn_report_device *d, uint64_t predicted, uint64_t actual) {
    d->predicted_count++;
    if (actual > predicted)
        d->most_over_bytes = rn_max_u64(d->most_over_bytes, actual - predicted);
    else
        d->most_under_bytes = rn_max_u64(d->most_under_bytes, predicted - actual);
}

// The next sample of the predicted curve of a device, from `at` on.
static uint32_t next_predicted(const rn_timeline *t, uint8_t device, uint32_t at) {
    while (at < t->counter_count &&
           (t->counters[at].kind != RN_COUNTER_PREDICTED || t->counters[at].device != device))
        at++;
    return at;
}

// One walk: the peaks, and what was in use whenever something was predicted.
static void walk_device(const rn_timeline *t, rn_report_device *d) {
    rn_timeline_walk walk;
    uint64_t active = 0;
    uint32_t sample = next_predicted(t, d->device, 0);
    rn_timeline_walk_begin(&walk, t, d->device);
    while (rn_timeline_walk_next(&walk)) {
        for (; sample < t->counter_count && t->counters[sample].time_ns < walk.level.time_ns;
             sample = next_predicted(t, d->device, sample + 1))
            compare_predicted(d, t->counters[sample].value, active);
        active = walk.level.active_bytes;
        if (rn_timeline_is_more(&walk.level, &d->peak)) d->peak = walk.level;
        if (active > d->active_peak_bytes) {
            d->active_peak_bytes = active;
            d->active_peak_ns = walk.level.time_ns;
        }
    }
    for (; sample < t->counter_count; sample = next_predicted(t, d->device, sample + 1))
        compare_predicted(d, t->counters[sample].value, active);
}

static bool is_used(const rn_timeline *t, uint8_t device) {
    if (t->counted_peaks[device].bytes) return true;
    for (uint32_t i = 0; i < t->alloc_count; i++)
        if (t->allocs[i].device == device) return true;
    for (uint32_t i = 0; i < t->counter_count; i++)
        if (t->counters[i].device == device) return true;
    return false;
}

static rn_status fill_device(rn_report *r, rn_report_device *d) {
    const rn_timeline *t = r->timeline;
    d->counted_bytes = t->counted_peaks[d->device].bytes;
    d->counted_ns = t->counted_peaks[d->device].time_ns;
    walk_device(t, d);
    read_counters(t, d);
    d->moment = r->at_peak ? d->peak : rn_timeline_level_at(t, d->device, r->at_ns);
    RN_TRY(list_live(r, d));
    RN_TRY(fill_purposes(r, d));
    RN_TRY(fill_blocks(r, d));
    RN_TRY(fill_ops(r, d));
    RN_TRY(fill_sites(r, d));
    return fill_left(r, d);
}

// ---- marks --------------------------------------------------------------------------------------

static rn_status fill_marks(rn_report *r) {
    const rn_timeline *t = r->timeline;
    void *block = NULL;
    RN_TRY(rn_alloc_zeroed(t->allocator, (size_t)t->mark_count * r->device_count, sizeof *r->held,
                           &block));
    r->held = block;
    for (size_t d = 0; d < r->device_count; d++) {
        rn_timeline_walk walk;
        rn_timeline_level level = {0};
        rn_timeline_walk_begin(&walk, t, r->devices[d].device);
        bool more = rn_timeline_walk_next(&walk);
        for (uint32_t i = 0; i < t->mark_count; i++) {
            for (; more && walk.level.time_ns <= t->marks[i].time_ns;
                 more = rn_timeline_walk_next(&walk))
                level = walk.level;
            r->held[i * r->device_count + d] =
                (rn_report_held){level.reserved_bytes, level.active_bytes};
        }
    }
    return RN_OK;
}

// ---- operations ---------------------------------------------------------------------------------

static rn_status find_op_row(rn_report *r, uint32_t key, rn_report_op **out) {
    if (r->rows_of[key] == RN_NO_INDEX) {
        if (r->op_count == r->op_capacity) {
            size_t more = r->op_capacity ? r->op_capacity * 2 : 64;
            void *block = NULL;
            RN_TRY(rn_alloc(r->timeline->allocator, more * sizeof *r->ops, &block));
            if (r->op_count) memcpy(block, r->ops, r->op_count * sizeof *r->ops);
            rn_free(r->timeline->allocator, r->ops, r->op_capacity * sizeof *r->ops);
            r->ops = block;
            r->op_capacity = more;
        }
        r->rows_of[key] = (uint32_t)r->op_count;
        r->ops[r->op_count++] = (rn_report_op){.text = r->timeline->names[key].name};
    }
    *out = &r->ops[r->rows_of[key]];
    return RN_OK;
}

static void add_op(rn_report_op *row, const rn_timeline_op *op, bool within_same) {
    uint64_t ns = op->end_ns - op->begin_ns;
    row->count++;
    row->unfinished_count += op->unfinished;
    row->self_ns += ns;
    row->peak_bytes = rn_max_u64(row->peak_bytes, op->peak_bytes);
    if (within_same) return;
    row->total_ns += ns;
    row->alloc_count += op->alloc_count;
    row->free_count += op->free_count;
    row->allocated_bytes += op->allocated_bytes;
    row->delta_bytes += op->delta_bytes;
    row->inner_delta_bytes += op->inner_delta_bytes;
}

// Lane by lane an operation's parent is the one before it, or around that: `order` has them so.
// under_way: (name_count), 0; how many of a name are around an operation.
static void mark_within(const rn_report *r, const rn_sort_item *order, uint32_t *under_way,
                        bool *within) {
    const rn_timeline *t = r->timeline;
    for (uint32_t i = 0, around = RN_NO_INDEX; i < t->op_count; i++) {
        uint32_t index = order[i].index, parent = t->ops[index].parent;
        for (; around != parent; around = t->ops[around].parent)
            under_way[r->name_ids[t->ops[around].name]]--;
        within[index] = under_way[r->name_ids[t->ops[index].name]]++ > 0;
        around = index;
    }
}

// Which operations lie within another of the same name, however far up: (op_count).
static rn_status find_within(const rn_report *r, bool *within) {
    const rn_timeline *t = r->timeline;
    void *order = NULL, *under_way = NULL;
    RN_TRY(rn_alloc(t->allocator, t->op_count * sizeof(rn_sort_item), &order));
    rn_sort_item *items = order;
    for (uint32_t i = 0; i < t->op_count; i++)
        items[i] = (rn_sort_item){.key = t->ops[i].lane, .index = i};
    rn_status s = rn_radix_sort(t->allocator, items, t->op_count);
    if (s == RN_OK) s = rn_alloc_zeroed(t->allocator, t->name_count, sizeof(uint32_t), &under_way);
    if (s == RN_OK) mark_within(r, items, under_way, within);
    rn_free(t->allocator, under_way, t->name_count * sizeof(uint32_t));
    rn_free(t->allocator, order, t->op_count * sizeof(rn_sort_item));
    return s;
}

// An operation's parent comes before it, so its row is there.
static rn_status add_ops(rn_report *r, const bool *within) {
    const rn_timeline *t = r->timeline;
    for (uint32_t i = 0; i < t->op_count; i++) {
        const rn_timeline_op *op = &t->ops[i];
        rn_report_op *row = NULL;
        RN_TRY(find_op_row(r, r->name_ids[op->name], &row));
        add_op(row, op, within[i]);
        if (op->parent == RN_NO_INDEX) continue;
        uint32_t around = r->name_ids[t->ops[op->parent].name];
        r->ops[r->rows_of[around]].self_ns -= op->end_ns - op->begin_ns;
    }
    return RN_OK;
}

// What the file says of a name is believed, also where it lists fewer: those are examples.
static rn_status take_sums(rn_report *r) {
    const rn_timeline *t = r->timeline;
    for (uint32_t i = 0; i < t->sum_count; i++) {
        rn_report_op *row = NULL;
        RN_TRY(find_op_row(r, r->name_ids[t->sums[i].name], &row));
        row->is_told = true;
        row->count = t->sums[i].count;
        row->delta_bytes = t->sums[i].delta_bytes;
        row->most_delta_bytes = t->sums[i].most_delta_bytes;
    }
    return RN_OK;
}

static rn_status sum_ops(rn_report *r) {
    const rn_timeline *t = r->timeline;
    void *within = NULL;
    clear_rows(r);
    if (t->op_count == 0) return take_sums(r);
    RN_TRY(rn_alloc(t->allocator, t->op_count * sizeof(bool), &within));
    rn_status s = find_within(r, within);
    if (s == RN_OK) s = add_ops(r, within);
    rn_free(t->allocator, within, t->op_count * sizeof(bool));
    return s == RN_OK ? take_sums(r) : s;
}

static rn_status sort_ops(rn_report *r, rn_sort_item *items, rn_report_op *copy) {
    for (size_t i = 0; i < r->op_count; i++)
        items[i] = (rn_sort_item){.key = ~r->ops[i].self_ns, .index = (uint32_t)i};
    RN_TRY(rn_radix_sort(r->timeline->allocator, items, r->op_count));
    memcpy(copy, r->ops, r->op_count * sizeof *copy);
    for (size_t i = 0; i < r->op_count; i++)
        r->ops[i] = copy[items[i].index];
    return RN_OK;
}

static rn_status fill_op_rows(rn_report *r) {
    RN_TRY(sum_ops(r));
    if (r->op_count == 0) return RN_OK;
    const rn_allocator *from = r->timeline->allocator;
    size_t item_bytes = r->op_count * sizeof(rn_sort_item);
    void *items = NULL, *copy = NULL;
    rn_status s = rn_alloc(from, item_bytes, &items);
    if (s == RN_OK) s = rn_alloc(from, r->op_count * sizeof *r->ops, &copy);
    if (s == RN_OK) s = sort_ops(r, items, copy);
    rn_free(from, copy, r->op_count * sizeof *r->ops);
    rn_free(from, items, item_bytes);
    return s;
}

// ---- all of it ----------------------------------------------------------------------------------

static void read_options(rn_report *r, const rn_report_options *options) {
    double at = options ? options->at_seconds : -1;
    r->at_peak = !(at >= 0);
    r->at_ns = r->at_peak ? 0 : at < 4e9 ? (uint64_t)(at * 1e9 + 0.5) : UINT64_MAX / 4;
    r->rows = options && options->rows ? options->rows : 10;
}

rn_status rn_report_make(const rn_timeline *t, const rn_report_options *options, rn_report *out) {
    *out = (rn_report){.timeline = t};
    if (options) RN_TRY(rn_check_reserved(options->reserved, "rn_report_options"));
    read_options(out, options);
    void *block = NULL;
    RN_TRY(rn_alloc(t->allocator, t->name_count * sizeof *out->rows_of, &block));
    out->rows_of = block;
    RN_TRY(number_names(t, false, &out->name_ids));
    RN_TRY(number_names(t, true, &out->groups));
    for (uint32_t d = 0; d < t->device_count; d++)
        if (is_used(t, (uint8_t)d)) out->devices[out->device_count++].device = (uint8_t)d;
    for (size_t d = 0; d < out->device_count; d++)
        RN_TRY(fill_device(out, &out->devices[d]));
    RN_TRY(fill_op_rows(out));
    return fill_marks(out);
}

void rn_report_free(rn_report *r) {
    const rn_timeline *t = r->timeline;
    for (size_t d = 0; d < r->device_count; d++) {
        rn_report_device *device = &r->devices[d];
        free_table(t->allocator, &device->purposes);
        free_table(t->allocator, &device->blocks);
        free_table(t->allocator, &device->ops);
        free_table(t->allocator, &device->sites);
        free_table(t->allocator, &device->left);
        rn_free(t->allocator, device->live, device->live_count * sizeof *device->live);
    }
    rn_free(t->allocator, r->ops, r->op_capacity * sizeof *r->ops);
    rn_free(t->allocator, r->held, (size_t)t->mark_count * r->device_count * sizeof *r->held);
    rn_free(t->allocator, r->groups, t->name_count * sizeof *r->groups);
    rn_free(t->allocator, r->name_ids, t->name_count * sizeof *r->name_ids);
    rn_free(t->allocator, r->rows_of, t->name_count * sizeof *r->rows_of);
}
