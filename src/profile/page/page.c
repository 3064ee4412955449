// page.c — the page in the order in which a browser reads it: markup and style, then what was
// recorded, then the scripts, so that these find everything when they run.
//
// Texts are JSON in a script element (base/script_text.h).
#include "profile/page/page.h"

#include "base/json.h"
#include "base/script_text.h"
#include "base/str.h"
#include "profile/export/export.h"
#include "profile/page/page_assets.h"
#include "profile/page/page_columns.h"
#include "profile/page/page_space.h"
#include "profile/timeline/radix.h"

typedef struct page {
    const rn_timeline *timeline;
    rn_sink sink;
    rn_page_space space;
    rn_page_columns columns;
    uint64_t *edges; // (edge_count): see page_columns.h
    size_t edge_count;
} page;

// ---- texts --------------------------------------------------------------------------------------

static void put_devices(rn_json *json, const rn_timeline *t) {
    rn_json_array(json, "devices");
    for (uint32_t i = 0; i < t->device_count; i++) {
        rn_timeline_level peak = rn_timeline_peak(t, (uint8_t)i);
        rn_json_object(json, NULL);
        rn_json_string(json, "name", t->devices[i].name);
        rn_json_u64(json, "peak_bytes", peak.reserved_bytes);
        rn_json_u64(json, "peak_ns", peak.time_ns);
        rn_json_u64(json, "counted_peak_bytes", t->counted_peaks[i].bytes);
        rn_json_end(json);
    }
    rn_json_end(json);
}

static void put_lanes(rn_json *json, const rn_timeline *t) {
    rn_json_array(json, "lanes");
    for (uint32_t i = 0; i < t->lane_count; i++) {
        rn_json_object(json, NULL);
        rn_json_string(json, "name", t->lanes[i].name);
        rn_json_bool(json, "is_queue", t->lanes[i].is_queue);
        rn_json_end(json);
    }
    rn_json_end(json);
}

static void put_names(rn_json *json, const rn_timeline *t) {
    rn_json_array(json, "names"); // [name, group, detail, name, group, detail, ...]
    for (uint32_t i = 0; i < t->name_count; i++) {
        rn_json_string(json, NULL, t->names[i].name);
        rn_json_string(json, NULL, t->names[i].group);
        rn_json_string(json, NULL, t->names[i].detail);
    }
    rn_json_end(json);
}

static void put_facts(rn_json *json, const rn_timeline *t) {
    rn_json_string(json, "path", t->path);
    rn_json_string(json, "format", t->format);
    rn_json_string(json, "command", t->command);
    rn_json_u64(json, "start_unix_ns", t->start_unix_ns);
    rn_json_u64(json, "end_ns", t->end_ns);
    rn_json_u64(json, "event_count", t->event_count);
    rn_json_u64(json, "dropped_count", t->dropped_count);
    rn_json_bool(json, "has_end", t->has_end);
    rn_json_string(json, "reason", t->reason);
    rn_json_array(json, "notes");
    for (uint32_t i = 0; i < t->note_count; i++)
        rn_json_string(json, NULL, t->notes[i]);
    rn_json_end(json);
    rn_json_array(json, "purposes");
    for (int i = 0; i < RN_PURPOSE_COUNT; i++)
        rn_json_string(json, NULL, rn_purpose_name((rn_purpose)i));
    rn_json_end(json);
}

static rn_status write_texts(page *p) {
    rn_json json;
    RN_TRY(rn_sink_print(p->sink, "<script type=\"application/json\" id=\"facts\">"));
    rn_json_begin(&json, rn_script_text(&p->sink), false);
    rn_json_object(&json, NULL);
    put_facts(&json, p->timeline);
    put_devices(&json, p->timeline);
    put_lanes(&json, p->timeline);
    put_names(&json, p->timeline);
    rn_json_end(&json);
    RN_TRY(rn_json_finish(&json));
    return rn_sink_print(p->sink, "</script>\n");
}

// ---- numbers ------------------------------------------------------------------------------------

// A row's value of one column.
typedef uint64_t get_value(const page *p, size_t row);
typedef struct column {
    const char *name;
    get_value *get;
    rn_page_rule rule;
} column;

// Behind the begin, from 1; 0: no end was seen.
static uint64_t length_of(uint64_t begin, uint64_t end) {
    return end == RN_STILL_LIVE ? 0 : end > begin ? end - begin + 1 : 1;
}
// An index, from 1; 0: none.
static uint64_t index_of(uint32_t index) {
    return index == RN_NO_INDEX ? 0 : (uint64_t)index + 1;
}

#define GETTER(name, array, expression)                                                            \
    static uint64_t name(const page *p, size_t row) {                                              \
        const rn_timeline_##array *it = &p->timeline->array##s[row];                               \
        return (expression);                                                                       \
    }

GETTER(alloc_begin, alloc, it->begin_ns)
GETTER(alloc_bytes, alloc, it->bytes)
GETTER(alloc_name, alloc, it->name)
GETTER(alloc_site, alloc, it->site)
GETTER(alloc_lane, alloc, it->lane)
GETTER(alloc_op, alloc, index_of(it->op))
GETTER(alloc_parent, alloc, index_of(it->parent))
GETTER(alloc_device, alloc, it->device)
GETTER(alloc_purpose, alloc, it->purpose)
GETTER(alloc_flags, alloc,
       (it->inner ? 1u : 0u) | (it->is_arena ? 2u : 0u) | (it->before ? 4u : 0u))
static uint64_t alloc_place(const page *p, size_t row) {
    return p->space.places[row];
}
static uint64_t alloc_by_end(const page *p, size_t row) {
    return rn_timeline_by_end(p->timeline)[row];
}
static const column alloc_columns[] = {{"alloc.begin", alloc_begin, RN_PAGE_BEHIND_EDGE},
                                       {"alloc.bytes", alloc_bytes, RN_PAGE_PLAIN},
                                       {"alloc.name", alloc_name, RN_PAGE_PLAIN},
                                       {"alloc.site", alloc_site, RN_PAGE_PLAIN},
                                       {"alloc.lane", alloc_lane, RN_PAGE_PLAIN},
                                       {"alloc.op", alloc_op, RN_PAGE_NEAR_LAST},
                                       {"alloc.parent", alloc_parent, RN_PAGE_NEAR_LAST},
                                       {"alloc.device", alloc_device, RN_PAGE_PLAIN},
                                       {"alloc.purpose", alloc_purpose, RN_PAGE_PLAIN},
                                       {"alloc.flags", alloc_flags, RN_PAGE_PLAIN},
                                       {"alloc.place", alloc_place, RN_PAGE_PLAIN},
                                       {"alloc.by_end", alloc_by_end, RN_PAGE_NEAR_ROW},
                                       {0}};

// The ends that were seen, in the order of ends.
static uint64_t alloc_end(const page *p, size_t row) {
    return p->timeline->allocs[rn_timeline_by_end(p->timeline)[row]].end_ns;
}
static const column end_columns[] = {{"alloc.ends", alloc_end, RN_PAGE_BEFORE_EDGE}, {0}};
static size_t count_ends(const rn_timeline *t) {
    size_t count = t->alloc_count;
    while (count && t->allocs[rn_timeline_by_end(t)[count - 1]].end_ns == RN_STILL_LIVE)
        count--;
    return count;
}

GETTER(op_begin, op, it->begin_ns)
GETTER(op_length, op, length_of(it->begin_ns, it->end_ns))
GETTER(op_name, op, it->name)
GETTER(op_lane, op, it->lane)
GETTER(op_depth, op, it->depth)
// How many rows before it the operation around it stands; 0: none.
GETTER(op_back, op, it->parent == RN_NO_INDEX ? 0 : row - it->parent)
GETTER(op_allocs, op, it->alloc_count)
GETTER(op_frees, op, it->free_count)
GETTER(op_delta, op, (uint64_t)it->delta_bytes)
GETTER(op_inner_delta, op, (uint64_t)it->inner_delta_bytes)
GETTER(op_allocated, op, it->allocated_bytes)
GETTER(op_peak, op, it->peak_bytes)
GETTER(op_unfinished, op, it->unfinished)
GETTER(op_operands, op, it->operands)
GETTER(op_rows, op, it->rows)
static const column op_columns[] = {{"op.begin", op_begin, RN_PAGE_DIFFERENCE},
                                    {"op.length", op_length, RN_PAGE_PLAIN},
                                    {"op.name", op_name, RN_PAGE_PLAIN},
                                    {"op.lane", op_lane, RN_PAGE_PLAIN},
                                    {"op.depth", op_depth, RN_PAGE_PLAIN},
                                    {"op.back", op_back, RN_PAGE_PLAIN},
                                    {"op.allocs", op_allocs, RN_PAGE_PLAIN},
                                    {"op.frees", op_frees, RN_PAGE_PLAIN},
                                    {"op.delta", op_delta, RN_PAGE_SIGNED},
                                    {"op.inner_delta", op_inner_delta, RN_PAGE_SIGNED},
                                    {"op.allocated", op_allocated, RN_PAGE_PLAIN},
                                    {"op.peak", op_peak, RN_PAGE_PLAIN},
                                    {"op.unfinished", op_unfinished, RN_PAGE_PLAIN},
                                    {"op.operands", op_operands, RN_PAGE_PLAIN},
                                    {"op.rows", op_rows, RN_PAGE_PLAIN},
                                    {0}};

GETTER(mark_time, mark, it->time_ns)
GETTER(mark_bytes, mark, it->bytes)
GETTER(mark_name, mark, it->name)
GETTER(mark_lane, mark, it->lane)
GETTER(mark_kind, mark, it->kind)
GETTER(mark_device, mark, it->device)
static const column mark_columns[] = {{"mark.time", mark_time, RN_PAGE_BEHIND_EDGE},
                                      {"mark.bytes", mark_bytes, RN_PAGE_PLAIN},
                                      {"mark.name", mark_name, RN_PAGE_PLAIN},
                                      {"mark.lane", mark_lane, RN_PAGE_PLAIN},
                                      {"mark.kind", mark_kind, RN_PAGE_PLAIN},
                                      {"mark.device", mark_device, RN_PAGE_PLAIN},
                                      {0}};

GETTER(counter_time, counter, it->time_ns)
GETTER(counter_value, counter, it->value)
GETTER(counter_name, counter, it->name)
GETTER(counter_kind, counter, it->kind)
GETTER(counter_device, counter, it->device)
static const column counter_columns[] = {{"counter.time", counter_time, RN_PAGE_BEHIND_EDGE},
                                         {"counter.value", counter_value, RN_PAGE_PLAIN},
                                         {"counter.name", counter_name, RN_PAGE_PLAIN},
                                         {"counter.kind", counter_kind, RN_PAGE_PLAIN},
                                         {"counter.device", counter_device, RN_PAGE_PLAIN},
                                         {0}};

GETTER(move_time, move, it->time_ns)
GETTER(move_bytes, move, it->bytes)
GETTER(move_name, move, it->name)
GETTER(move_from, move, it->from)
GETTER(move_to, move, it->to)
static const column move_columns[] = {
    {"move.time", move_time, RN_PAGE_BEFORE_EDGE}, {"move.bytes", move_bytes, RN_PAGE_PLAIN},
    {"move.name", move_name, RN_PAGE_PLAIN},       {"move.from", move_from, RN_PAGE_PLAIN},
    {"move.to", move_to, RN_PAGE_PLAIN},           {0}};

static uint64_t piece_address(const page *p, size_t row) {
    return p->space.pieces[row].address;
}
static uint64_t piece_bytes(const page *p, size_t row) {
    return p->space.pieces[row].bytes;
}
static uint64_t piece_place(const page *p, size_t row) {
    return p->space.pieces[row].place;
}
static uint64_t piece_device(const page *p, size_t row) {
    return p->space.pieces[row].device;
}
static const column piece_columns[] = {{"piece.address", piece_address, RN_PAGE_PLAIN},
                                       {"piece.bytes", piece_bytes, RN_PAGE_PLAIN},
                                       {"piece.place", piece_place, RN_PAGE_PLAIN},
                                       {"piece.device", piece_device, RN_PAGE_PLAIN},
                                       {0}};

static rn_status write_table(page *p, const column *columns, size_t count) {
    for (const column *c = columns; c->name; c++) {
        for (size_t row = 0; row < count; row++)
            p->columns.values[row] = c->get(p, row);
        RN_TRY(rn_page_columns_write(&p->columns, c->name, count, c->rule));
    }
    return RN_OK;
}

static rn_status write_tables(page *p) {
    const rn_timeline *t = p->timeline;
    RN_TRY(write_table(p, op_columns, t->op_count)); // first: the others' times lie at its edges
    RN_TRY(write_table(p, alloc_columns, t->alloc_count));
    RN_TRY(write_table(p, end_columns, count_ends(t)));
    RN_TRY(write_table(p, mark_columns, t->mark_count));
    RN_TRY(write_table(p, counter_columns, t->counter_count));
    RN_TRY(write_table(p, move_columns, t->move_count));
    return write_table(p, piece_columns, p->space.piece_count);
}

static size_t longest_table(const page *p) {
    const rn_timeline *t = p->timeline;
    const size_t counts[] = {t->alloc_count,   t->op_count,   t->mark_count,
                             t->counter_count, t->move_count, p->space.piece_count};
    size_t longest = 1;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (counts[i] > longest) longest = counts[i];
    return longest;
}

// As the page finds them: an operation's end is its begin and its length.
static rn_status find_edges(page *p) {
    const rn_timeline *t = p->timeline;
    size_t count = 2 * (size_t)t->op_count + 2, filled = 0;
    void *block = NULL;
    if (t->op_count == 0 || t->end_ns >> 53) return RN_OK; // beyond what the page counts exactly
    RN_TRY(rn_alloc(t->allocator, count * sizeof(rn_sort_item), &block));
    rn_sort_item *items = block;
    items[filled++].key = 0;
    items[filled++].key = t->end_ns;
    for (uint32_t i = 0; i < t->op_count; i++) {
        uint64_t length = length_of(t->ops[i].begin_ns, t->ops[i].end_ns);
        items[filled++].key = t->ops[i].begin_ns;
        items[filled++].key = length ? t->ops[i].begin_ns + length - 1 : t->end_ns;
    }
    rn_status s = rn_radix_sort(t->allocator, items, count);
    if (s == RN_OK) s = rn_alloc(t->allocator, count * sizeof *p->edges, (void **)&p->edges);
    if (s == RN_OK) p->edge_count = count;
    for (size_t i = 0; i < p->edge_count; i++)
        p->edges[i] = items[i].key;
    rn_free(t->allocator, items, count * sizeof *items);
    return s;
}

static rn_status write_data(page *p) {
    const rn_allocator *from = p->timeline->allocator;
    RN_TRY(write_texts(p));
    rn_status s = find_edges(p);
    if (s == RN_OK) s = rn_page_space_open(&p->space, p->timeline);
    if (s == RN_OK) s = rn_page_columns_open(&p->columns, from, 2 * longest_table(p), p->sink);
    if (s == RN_OK) {
        p->columns.edges = p->edges;
        p->columns.edge_count = p->edge_count;
        s = write_tables(p);
        rn_page_columns_close(&p->columns);
    }
    rn_page_space_close(&p->space);
    rn_free(from, p->edges, p->edge_count * sizeof *p->edges);
    return s;
}

// ---- the whole ----------------------------------------------------------------------------------

static rn_status write_text(rn_sink sink, rn_str text) {
    return rn_sink_write(sink, text.data, text.bytes);
}

static rn_status write_style(page *p) {
    RN_TRY(write_text(p->sink, RN_STR("<style>\n")));
    RN_TRY(write_text(p->sink, rn_page_css()));
    return write_text(p->sink, RN_STR("</style>\n"));
}

// One element and one function around all, so that their names are nobody else's.
static rn_status write_scripts(page *p) {
    RN_TRY(write_text(p->sink, RN_STR("<script>\n\"use strict\";\n(() => {\n")));
    for (size_t i = 0; rn_page_script(i).bytes; i++)
        RN_TRY(write_text(p->sink, rn_page_script(i)));
    return write_text(p->sink, RN_STR("})();\n</script>\n"));
}

// Writes the markup up to the line that is `hole`, and steps behind it.
static rn_status write_up_to(rn_sink sink, rn_str *html, const char *hole) {
    const char *at = strstr(html->data, hole); // the file is followed by a NUL
    size_t bytes = at ? (size_t)(at - html->data) : html->bytes;
    RN_TRY(rn_sink_write(sink, html->data, bytes));
    if (at) bytes += strlen(hole);
    *html = (rn_str){html->data + bytes, html->bytes - bytes};
    return RN_OK;
}

static rn_status write_page(page *p) {
    rn_str html = rn_page_html();
    RN_TRY(write_up_to(p->sink, &html, "<!-- style -->\n"));
    RN_TRY(write_style(p));
    RN_TRY(write_up_to(p->sink, &html, "<!-- data -->\n"));
    RN_TRY(write_data(p));
    RN_TRY(write_up_to(p->sink, &html, "<!-- scripts -->\n"));
    RN_TRY(write_scripts(p));
    return write_text(p->sink, html);
}

rn_status rn_page_write(const rn_timeline *t, rn_sink sink) {
    rn_out out;
    RN_TRY(rn_out_open(&out, sink));
    rn_status s = write_page(&(page){.timeline = t, .sink = rn_out_sink(&out)});
    rn_status closed = rn_out_close(&out);
    return s == RN_OK ? closed : s;
}
