// export_operands.c — the tensors that an operation reads and makes: out of the text that a session
// has recorded once for each step, with the rows of this run, and which allocation each of them lay
// in then.
#include "profile/export/export.h"

#include "base/checked.h"
#include "profile/timeline/radix.h"
#include "tensor/layout.h"

// ---- text ---------------------------------------------------------------------------------------

static rn_str take_line(rn_str *rest) {
    const char *end = memchr(rest->data, '\n', rest->bytes);
    size_t bytes = end ? (size_t)(end - rest->data) : rest->bytes;
    rn_str line = {rest->data, bytes};
    bytes += end != NULL;
    *rest = (rn_str){rest->data + bytes, rest->bytes - bytes};
    return line;
}

// Hexadecimal digits up to a space, both taken off.
static bool take_address(rn_str *line, uint64_t *out) {
    size_t i = 0;
    *out = 0;
    for (; i < line->bytes && i < 16 && line->data[i] != ' '; i++) {
        char c = line->data[i];
        int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (digit < 0) return false;
        *out = *out << 4 | (uint64_t)digit;
    }
    if (i == 0 || i == line->bytes || line->data[i] != ' ') return false;
    *line = (rn_str){line->data + i + 1, line->bytes - i - 1};
    return true;
}

// In its plain layout. 0 for what no tensor of ours is.
static uint64_t plain_bytes(const rn_export_shape *shape) {
    enum { MOST_BITS = 48 };
    rn_dtype dtype = rn_dtype_parse(shape->dtype);
    uint64_t elements = 1, bytes = 0;
    for (size_t i = 0; i < shape->count; i++)
        if (shape->dims[i] < 0 || !rn_mul_u64(elements, (uint64_t)shape->dims[i], &elements) ||
            elements >> MOST_BITS)
            return 0;
    if (dtype == RN_DTYPE_NONE || elements == 0) return 0;
    uint64_t rows = shape->count >= 2 ? (uint64_t)shape->dims[0] : 1;
    return rn_layout_bytes(RN_LAYOUT_PLAIN, dtype, rows, elements / rows, &bytes) ? bytes : 0;
}

static bool parse(rn_str line, uint32_t rows, rn_export_operand *out) {
    if (line.bytes < 2 || (line.data[0] != '<' && line.data[0] != '>') || line.data[1] != ' ')
        return false;
    *out = (rn_export_operand){.is_made = line.data[0] == '>'};
    line = (rn_str){line.data + 2, line.bytes - 2};
    if (!take_address(&line, &out->address)) return false;
    if (!rn_export_shape_next(&line, &out->shape)) return false;
    rn_export_shape_bind(&out->shape, rows);
    out->bytes = plain_bytes(&out->shape);
    if (line.bytes && line.data[0] == ' ') line = (rn_str){line.data + 1, line.bytes - 1};
    out->name = line;
    return true;
}

bool rn_export_operand_next(rn_str *rest, uint32_t rows, rn_export_operand *out) {
    while (rest->bytes)
        if (parse(take_line(rest), rows, out)) return true;
    return false;
}

// ---- places -------------------------------------------------------------------------------------

static void number(rn_live_places *p, const rn_sort_item *order, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        bool is_new = i == 0 || order[i].key != order[i - 1].key;
        if (is_new) p->places[p->place_count++] = order[i].key;
        p->rank[order[i].index] = p->place_count - 1;
    }
    for (uint32_t i = 0; i < p->place_count; i++)
        p->live[i] = RN_NO_INDEX;
}

rn_status rn_live_places_begin(rn_live_places *p, rn_arena *arena, const rn_timeline *t) {
    rn_sort_item *order;
    uint32_t count = t->alloc_count;
    *p = (rn_live_places){.timeline = t};
    RN_TRY(rn_arena_array(arena, count, sizeof *p->rank, (void **)&p->rank));
    RN_TRY(rn_arena_array(arena, count, sizeof *p->places, (void **)&p->places));
    RN_TRY(rn_arena_array(arena, count, sizeof *p->live, (void **)&p->live));
    RN_TRY(rn_arena_array(arena, count, sizeof *order, (void **)&order));
    for (uint32_t i = 0; i < count; i++)
        order[i] = (rn_sort_item){.key = t->allocs[i].address, .index = i};
    RN_TRY(rn_radix_sort(t->allocator, order, count));
    number(p, order, count);
    rn_change_walk_begin(&p->walk, t);
    p->has_change = rn_change_walk_next(&p->walk, &p->change);
    return RN_OK;
}

void rn_live_places_go(rn_live_places *p, uint32_t op) {
    const rn_timeline *t = p->timeline;
    uint64_t time_ns = t->ops[op].begin_ns;
    p->op = op;
    while (p->next_alloc < t->alloc_count && t->allocs[p->next_alloc].begin_ns < time_ns)
        p->next_alloc++;
    while (p->has_change && p->change.time_ns <= time_ns) {
        uint32_t alloc = p->change.alloc, *live = &p->live[p->rank[alloc]];
        bool counts = rn_is_in_use(&p->timeline->allocs[alloc]);
        if (counts && !p->change.is_end) *live = alloc;
        if (counts && p->change.is_end && *live == alloc) *live = RN_NO_INDEX;
        p->has_change = rn_change_walk_next(&p->walk, &p->change);
    }
}

// Its own parts begin just behind it.
static uint32_t find_own(const rn_live_places *p, uint64_t address) {
    const rn_timeline *t = p->timeline;
    for (uint32_t i = p->next_alloc; i < t->alloc_count; i++) {
        const rn_timeline_alloc *a = &t->allocs[i];
        if (a->begin_ns > t->ops[p->op].end_ns) break;
        if (a->op == p->op && a->address == address && rn_is_in_use(a)) return i;
    }
    return RN_NO_INDEX;
}

uint32_t rn_live_places_at(const rn_live_places *p, uint64_t address) {
    uint32_t own = address ? find_own(p, address) : RN_NO_INDEX;
    if (own != RN_NO_INDEX) return own;
    uint32_t low = 0, high = p->place_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (p->places[middle] < address)
            low = middle + 1;
        else
            high = middle;
    }
    bool found = address && low < p->place_count && p->places[low] == address;
    return found ? p->live[low] : RN_NO_INDEX;
}
