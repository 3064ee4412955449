// weights.c — lists of extents for the reader; each piece is packed where it belongs.
//
//     list      | entry 0      | entry 1   | ...          an entry is a unit
//     extents   | w.data w.scale | v.data  | ...          one for each part of each weight
//
// After the last streamed entry the list starts over at once, so that the reader fills the staging
// for the next run while this one still computes.
#include "runtime/weights.h"
#include "base/checked.h"
#include "io/checkpoint.h"
#include "memory/account.h"
#include "tensor/conv_panels.h"
#include "tensor/panels.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

// A part of a weight, as an extent of a file.
typedef struct part_of {
    rn_value value;
    rn_part part;
} part_of;

typedef struct unit_list {
    uint32_t *units;    // (count): the unit of an entry
    uint32_t *first;    // (count + 1): an entry's first extent
    rn_extent *extents; // (first[count])
    part_of *parts;     // (first[count])
    uint32_t count;
    uint32_t extent_count; // while it is being made
} unit_list;

// A weight on its way: its parts follow each other in the list, the data first.
typedef struct packing {
    rn_value value;
    rn_layout layout;
    uint8_t *target;
    rn_plain_parts parts;
    union {
        rn_packer panels;
        rn_conv_packer conv;
    } as;
} packing;

struct rn_weights {
    const rn_plan *plan;
    rn_weight_source source;
    const _Atomic bool *cancel, *stop;
    rn_workers *workers;  // or NULL
    rn_allocator staging; // large blocks to staging, the reader's bookkeeping to io
    rn_reader *reader;    // NULL: from memory
    const void **plain;   // (values + 1): bytes in memory, where there is no checkpoint
    rn_arena memory;
    unit_list lists[2];
    bool reading; // the reader is at `list`, before `entry`
    rn_weight_list list;
    uint32_t entry, base; // base: the extent at which the reader's list began
    packing packing;
    _Atomic uint64_t read_bytes;
};

// ---- a weight's parts ---------------------------------------------------------------------------

static const char *part_suffix(rn_dtype dtype, rn_part part) {
    static const char *const int8[RN_PART_COUNT] = {"._data", "._scale", ""};
    static const char *const int4[RN_PART_COUNT] = {"._data._data", "._scale", "._shift"};
    static const char *const nf4[RN_PART_COUNT] = {"", ".absmax", ""};
    if (dtype == RN_DTYPE_INT8) return int8[part];
    if (dtype == RN_DTYPE_INT4) return int4[part];
    return dtype == RN_DTYPE_NF4 ? nf4[part] : "";
}

// What the part's tensor is in the file; NONE: it need not be anything in particular.
static rn_dtype part_dtype(rn_dtype dtype, rn_part part) {
    if (part != RN_PART_DATA) return RN_DTYPE_F32;
    if (dtype == RN_DTYPE_INT8) return RN_DTYPE_I8;
    return dtype == RN_DTYPE_INT4 || dtype == RN_DTYPE_NF4 ? RN_DTYPE_U8 : dtype;
}

static void matrix_of(const rn_value_info *info, uint64_t *rows, uint64_t *cols) {
    *rows = info->shape.rank >= 2 ? info->shape.dims[0] : 1;
    *cols = *rows ? rn_shape_elements(info->shape, 1) / *rows : 0;
}

static rn_status find_parts(const rn_value_info *info, rn_plain_parts *out) {
    uint64_t rows, cols;
    matrix_of(info, &rows, &cols);
    if (rn_plain_parts_of(info->dtype, rows, cols, out)) return RN_OK;
    return rn_fail(RN_INVALID, "weight '%s': %s has no %s form", info->name,
                   rn_shape_format(info->shape).text, rn_dtype_get(info->dtype)->name);
}

static rn_status find_tensor(const rn_weights *w, const rn_value_info *info, rn_part part,
                             uint64_t bytes, const rn_tensor_info **out) {
    char name[512];
    int length = snprintf(name, sizeof name, "%s%s", info->name, part_suffix(info->dtype, part));
    *out = length < (int)sizeof name ? rn_checkpoint_find(w->source.checkpoint, name) : NULL;
    if (!*out) return rn_fail(RN_NOT_FOUND, "the model's files have no tensor '%s'", name);
    rn_dtype want = part_dtype(info->dtype, part);
    if ((*out)->dtype != want)
        return rn_fail(RN_INVALID, "'%s' is %s in the file, %s in the graph", name,
                       rn_dtype_get((*out)->dtype)->name, rn_dtype_get(want)->name);
    if ((*out)->bytes != bytes)
        return rn_fail(RN_INVALID, "'%s' has %llu bytes in the file, %llu in the graph %s", name,
                       (unsigned long long)(*out)->bytes, (unsigned long long)bytes,
                       rn_shape_format(info->shape).text);
    return RN_OK;
}

// Asked once, by the thread that opens the session.
static rn_status find_plain(const rn_weights *w, rn_value value) {
    const rn_value_info *info = rn_graph_value(w->plan->graph, value);
    const rn_weight_source *source = &w->source;
    rn_plain_parts parts = {0};
    RN_TRY(find_parts(info, &parts));
    if (source->find)
        w->plain[value] = source->find(source->self, info->name, info->dtype, parts.total_bytes);
    return w->plain[value] ? RN_OK : rn_fail(RN_NOT_FOUND, "there is no weight '%s'", info->name);
}

// ---- lists --------------------------------------------------------------------------------------

// The file's bytes of the rows that lie side by side in a panel: pieces of whole ones are packed
// fastest.
static uint64_t panel_bytes(const rn_weights *w, rn_value value, const rn_tensor_info *tensor) {
    uint64_t rows = 0, cols = 0;
    if (w->plan->places[value].layout != RN_LAYOUT_PANELS) return 0;
    matrix_of(rn_graph_value(w->plan->graph, value), &rows, &cols);
    return tensor->bytes / rows * RN_PANEL_ROWS;
}

static rn_status list_weight(const rn_weights *w, unit_list *list, rn_value value) {
    const rn_value_info *info = rn_graph_value(w->plan->graph, value);
    rn_plain_parts parts = {0};
    if (!w->source.checkpoint) return find_plain(w, value);
    RN_TRY(find_parts(info, &parts));
    for (rn_part part = 0; part < RN_PART_COUNT; part++) {
        const rn_tensor_info *tensor = NULL;
        if (part != RN_PART_DATA && parts.bytes[part] == 0) continue;
        RN_TRY(find_tensor(w, info, part, parts.bytes[part], &tensor));
        list->extents[list->extent_count] =
            (rn_extent){.file = tensor->file,
                        .offset = tensor->offset,
                        .bytes = tensor->bytes,
                        .grain_bytes = panel_bytes(w, value, tensor)};
        list->parts[list->extent_count++] = (part_of){value, part};
    }
    return RN_OK;
}

static rn_status list_unit(const rn_weights *w, unit_list *list, uint32_t entry) {
    const rn_plan_unit *unit = &w->plan->units[list->units[entry]];
    list->first[entry] = list->extent_count;
    for (uint32_t i = 0; i < unit->value_count; i++)
        RN_TRY(list_weight(w, list, w->plan->unit_values[unit->first_value + i]));
    list->first[entry + 1] = list->extent_count;
    return RN_OK;
}

static rn_status make_list(rn_weights *w, unit_list *list) {
    size_t extents = 0;
    void *first = NULL, *items = NULL, *parts = NULL;
    for (uint32_t i = 0; i < list->count; i++)
        extents += (size_t)w->plan->units[list->units[i]].value_count * RN_PART_COUNT;
    RN_TRY(rn_arena_array(&w->memory, list->count + 1u, sizeof(uint32_t), &first));
    RN_TRY(rn_arena_array(&w->memory, extents, sizeof(rn_extent), &items));
    RN_TRY(rn_arena_array(&w->memory, extents, sizeof(part_of), &parts));
    list->first = first;
    list->extents = items;
    list->parts = parts;
    for (uint32_t i = 0; i < list->count; i++)
        RN_TRY(list_unit(w, list, i));
    return RN_OK;
}

static rn_status make_lists(rn_weights *w) {
    const rn_plan *plan = w->plan;
    unit_list *resident = &w->lists[RN_WEIGHTS_RESIDENT],
              *streamed = &w->lists[RN_WEIGHTS_STREAMED];
    void *units = NULL, *uses = NULL, *plain = NULL;
    if (!w->source.checkpoint)
        RN_TRY(rn_arena_array(&w->memory, plan->value_count + 1u, sizeof(void *), &plain));
    w->plain = plain;
    RN_TRY(rn_arena_array(&w->memory, plan->unit_count, sizeof(uint32_t), &units));
    RN_TRY(rn_arena_array(&w->memory, plan->use_count, sizeof(uint32_t), &uses));
    resident->units = units;
    streamed->units = uses;
    for (uint32_t i = 0; i < plan->unit_count; i++)
        if (plan->units[i].resident) resident->units[resident->count++] = i;
    for (uint32_t i = 0; i < plan->use_count; i++)
        streamed->units[streamed->count++] = plan->uses[i].unit;
    RN_TRY(make_list(w, resident));
    return make_list(w, streamed);
}

// ---- life ---------------------------------------------------------------------------------------

// The reader's one large block is what the plan calls staging; its tables are not.
static const rn_allocator *choose_line(size_t bytes) {
    return bytes >= RN_MAP_THRESHOLD / 4 ? RN_HOST_STAGING : RN_HOST_IO;
}

static void *staging_alloc(void *self, size_t bytes, size_t align) {
    (void)self;
    const rn_allocator *line = choose_line(bytes);
    return line->alloc(line->self, bytes, align);
}

static void staging_free(void *self, void *block, size_t bytes) {
    (void)self;
    const rn_allocator *line = choose_line(bytes);
    line->free(line->self, block, bytes);
}

static rn_status open_reader(rn_weights *w) {
    if (w->plan->summary.staging_bytes < RN_PAGE_BYTES)
        return rn_fail(RN_INTERNAL, "the plan has %llu bytes of staging to read weights through",
                       (unsigned long long)w->plan->summary.staging_bytes);
    w->staging = (rn_allocator){NULL, staging_alloc, staging_free};
    rn_reader_options options = {.buffer_bytes = w->plan->summary.staging_bytes,
                                 .allocator = &w->staging,
                                 .cancel = w->cancel};
    return rn_checkpoint_open_reader(w->source.checkpoint, &options, &w->reader);
}

rn_status rn_weights_open(const rn_plan *plan, const rn_weight_source *source,
                          const _Atomic bool *cancel, const _Atomic bool *stop, rn_workers *workers,
                          rn_weights **out) {
    void *block = NULL;
    *out = NULL;
    RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, 1, sizeof(rn_weights), &block));
    rn_weights *w = block;
    w->plan = plan;
    w->cancel = cancel;
    w->stop = stop;
    w->workers = workers;
    if (source) w->source = *source;
    rn_arena_init(&w->memory, RN_HOST_OTHER, 0);
    rn_status s = make_lists(w);
    if (s == RN_OK && w->source.checkpoint && plan->unit_count > 0) s = open_reader(w);
    if (s == RN_OK)
        *out = w;
    else
        rn_weights_close(w);
    return s;
}

void rn_weights_close(rn_weights *weights) {
    if (!weights) return;
    rn_reader_destroy(weights->reader);
    rn_arena_free_all(&weights->memory);
    rn_free(RN_HOST_OTHER, weights, sizeof *weights);
}

uint32_t rn_weights_count(const rn_weights *weights, rn_weight_list list) {
    return weights->lists[list].count;
}

uint32_t rn_weights_unit(const rn_weights *weights, rn_weight_list list, uint32_t entry) {
    return weights->lists[list].units[entry];
}

uint64_t rn_weights_read_bytes(const rn_weights *weights) {
    return atomic_load(&weights->read_bytes);
}

// ---- packing ------------------------------------------------------------------------------------

static rn_status begin_weight(const rn_plan *plan, rn_value value, uint8_t *target, packing *out) {
    const rn_value_info *info = rn_graph_value(plan->graph, value);
    const uint64_t *dims = info->shape.dims;
    uint64_t rows, cols;
    *out = (packing){.value = value, .target = target, .layout = plan->places[value].layout};
    matrix_of(info, &rows, &cols);
    RN_TRY(find_parts(info, &out->parts));
    switch (out->layout) {
    case RN_LAYOUT_PANELS:
        return rn_packer_begin(&out->as.panels, info->dtype, rows, cols, target);
    case RN_LAYOUT_CONV_PANELS: // (O, C, KH, KW)
        return rn_conv_packer_begin(&out->as.conv, dims[0], dims[1], dims[2] * dims[3], target);
    default:
        return RN_OK;
    }
}

// The next `bytes` bytes of a part, from `offset` on.
static rn_status pack_piece(packing *p, rn_part part, uint64_t offset, const void *data,
                            uint64_t bytes) {
    switch (p->layout) {
    case RN_LAYOUT_PANELS:
        return rn_packer_take(&p->as.panels, part, offset, data, bytes);
    case RN_LAYOUT_CONV_PANELS:
        return rn_conv_packer_take(&p->as.conv, offset, data, bytes);
    default:
        memcpy(p->target + p->parts.offset[part] + offset, data, bytes);
        return RN_OK;
    }
}

rn_status rn_weights_pack(const rn_plan *plan, rn_value value, const void *plain, uint8_t *target) {
    packing p;
    RN_TRY(begin_weight(plan, value, target, &p));
    for (rn_part part = 0; part < RN_PART_COUNT; part++)
        if (p.parts.bytes[part])
            RN_TRY(pack_piece(&p, part, 0, (const uint8_t *)plain + p.parts.offset[part],
                              p.parts.bytes[part]));
    return RN_OK;
}

// ---- filling ------------------------------------------------------------------------------------

static rn_status check_stop(const rn_weights *w) {
    bool stop = atomic_load(w->stop) || (w->cancel && atomic_load(w->cancel));
    return stop ? rn_fail(RN_CANCELLED, "reading was cancelled") : RN_OK;
}

static rn_status start(rn_weights *w, rn_weight_list list, uint32_t entry) {
    const unit_list *l = &w->lists[list];
    w->reading = false;
    w->base = l->first[entry];
    RN_TRY(rn_reader_start(w->reader, l->extents + w->base, l->first[l->count] - w->base));
    w->list = list;
    w->entry = entry;
    w->reading = true;
    return RN_OK;
}

static rn_status take_piece(rn_weights *w, uint8_t *target, uint64_t *left_bytes) {
    rn_reader_piece piece = {0};
    RN_TRY(check_stop(w));
    RN_TRY(rn_reader_next(w->reader, &piece));
    if (piece.bytes == 0 || piece.bytes > *left_bytes)
        return rn_fail(RN_INTERNAL, "the reader's list does not end with a unit");
    part_of part = w->lists[w->list].parts[w->base + piece.extent];
    rn_status s = RN_OK;
    if (part.part == RN_PART_DATA && piece.offset_in_extent == 0) {
        s = begin_weight(w->plan, part.value, target + w->plan->places[part.value].offset,
                         &w->packing);
        if (w->packing.layout == RN_LAYOUT_PANELS) w->packing.as.panels.workers = w->workers;
    }
    if (s == RN_OK)
        s = pack_piece(&w->packing, part.part, piece.offset_in_extent, piece.data, piece.bytes);
    *left_bytes -= piece.bytes;
    atomic_fetch_add(&w->read_bytes, piece.bytes);
    rn_reader_release(w->reader, &piece);
    return s;
}

// After the last entry: were these files the ones that were opened? Then round again.
static rn_status end_list(rn_weights *w) {
    w->reading = false;
    RN_TRY(rn_reader_check(w->reader));
    return w->list == RN_WEIGHTS_STREAMED ? start(w, w->list, 0) : RN_OK;
}

static rn_status fill_from_files(rn_weights *w, rn_weight_list list, uint32_t entry,
                                 uint8_t *target) {
    const unit_list *l = &w->lists[list];
    uint64_t left = 0;
    if (!w->reading || w->list != list || w->entry != entry) RN_TRY(start(w, list, entry));
    for (uint32_t i = l->first[entry]; i < l->first[entry + 1]; i++)
        left += l->extents[i].bytes;
    w->reading = false;
    while (left > 0)
        RN_TRY(take_piece(w, target, &left));
    w->reading = true;
    w->entry++;
    return w->entry == l->count ? end_list(w) : RN_OK;
}

static rn_status fill_from_memory(rn_weights *w, const rn_plan_unit *unit, uint8_t *target) {
    RN_TRY(check_stop(w));
    for (uint32_t i = 0; i < unit->value_count; i++) {
        rn_value value = w->plan->unit_values[unit->first_value + i];
        RN_TRY(rn_weights_pack(w->plan, value, w->plain[value],
                               target + w->plan->places[value].offset));
    }
    return RN_OK;
}

rn_status rn_weights_fill(rn_weights *weights, rn_weight_list list, uint32_t entry,
                          uint8_t *target) {
    if (weights->reader) return fill_from_files(weights, list, entry, target);
    return fill_from_memory(weights, &weights->plan->units[weights->lists[list].units[entry]],
                            target);
}
