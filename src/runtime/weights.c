// weights.c — a session's weights: their life, and the filling of an entry.
//
// After the last streamed entry the list starts over at once, so that the reader fills the staging
// for the next run while this one still computes. Raw weights cannot run ahead of their slot: they
// are read straight into it, and the next entry's follow as soon as its slot is free.
#include "runtime/weights_internal.h"

#include "base/checked.h"
#include "memory/account.h"

#include <stdatomic.h>
#include <string.h>

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

// Copying cached pages takes the processor's time, which packing and computing want; a fast disk
// takes none. Measured with a disk of 4.5 GB/s, 2.2 GB of f16: 0.65 s from the disk, 1.1 s and more
// from the cache. Fast is what was measured to be (ration calibrate); a guess is not.
static bool is_disk_fast(const rn_plan *plan) {
    return plan->caps.disk_bytes_second >= 2.5e9;
}

static rn_status open_reader(rn_weights *w) {
    if (w->plan->summary.staging_bytes < RN_PAGE_BYTES)
        return rn_fail(RN_INTERNAL, "the plan has %llu bytes of staging to read weights through",
                       (unsigned long long)w->plan->summary.staging_bytes);
    w->staging = (rn_allocator){NULL, staging_alloc, staging_free};
    rn_reader_options options = {.buffer_bytes = w->plan->summary.staging_bytes,
                                 .allocator = &w->staging,
                                 .ignore_page_cache = is_disk_fast(w->plan),
                                 .cancel = w->cancel};
    return rn_checkpoint_open_reader(w->source.checkpoint, &options, &w->reader);
}

static bool needs_fetcher(const rn_weights *w) {
    bool needed = w->lists[RN_WEIGHTS_STREAMED].file_weight_count > 0;
    for (uint32_t i = 0; i < w->plan->row_table_count; i++)
        needed |= !w->tables[i].plain && !w->tables[i].form;
    return needed;
}

static rn_status open_fetcher(rn_weights *w) {
    const rn_group_list *l = &w->lists[RN_WEIGHTS_STREAMED];
    rn_reader_options options = {.allocator = RN_HOST_IO,
                                 .ignore_page_cache = is_disk_fast(w->plan)};
    uint32_t most = 0;
    for (uint32_t i = 0; i < l->count; i++)
        if (l->first_file_weight[i + 1] - l->first_file_weight[i] > most)
            most = l->first_file_weight[i + 1] - l->first_file_weight[i];
    for (int i = 0; i < 2 && !w->fetching[i].items; i++) {
        void *items = NULL;
        RN_TRY(rn_arena_array(&w->memory, most, sizeof(rn_fetch), &items));
        w->fetching[i].items = items;
    }
    return rn_checkpoint_open_fetcher(w->source.checkpoint, &options, &w->fetcher);
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
    rn_status s = rn_weights_make_lists(w);
    if (s == RN_OK) s = rn_weights_wake(w);
    if (s == RN_OK)
        *out = w;
    else
        rn_weights_close(w);
    return s;
}

// In a phase of a program there may be nothing to read: all its weights are another phase's.
rn_status rn_weights_wake(rn_weights *w) {
    const rn_group_list *lists = w->lists;
    bool reads = lists[RN_WEIGHTS_RESIDENT].count || lists[RN_WEIGHTS_STREAMED].count;
    if (w->source.checkpoint && reads && !w->reader) RN_TRY(open_reader(w));
    return needs_fetcher(w) && !w->fetcher ? open_fetcher(w) : RN_OK;
}

void rn_weights_rest(rn_weights *w) {
    rn_weights_rewind(w);
    rn_reader_destroy(w->reader);
    rn_fetcher_destroy(w->fetcher);
    w->reader = NULL;
    w->fetcher = NULL;
}

void rn_weights_close(rn_weights *weights) {
    if (!weights) return;
    rn_reader_destroy(weights->reader);
    rn_fetcher_destroy(weights->fetcher);
    rn_arena_free_all(&weights->memory);
    rn_free(RN_HOST_OTHER, weights, sizeof *weights);
}

uint32_t rn_weights_count(const rn_weights *weights, rn_weight_list list) {
    return weights->lists[list].count;
}

uint32_t rn_weights_group(const rn_weights *weights, rn_weight_list list, uint32_t entry) {
    return weights->lists[list].groups[entry];
}

uint64_t rn_weights_read_bytes(const rn_weights *weights) {
    return atomic_load(&weights->read_bytes);
}

void rn_weights_look_ahead(rn_weights *weights, rn_weights_ahead ahead, void *self) {
    weights->ahead = ahead;
    weights->ahead_self = self;
}

void rn_weights_rewind(rn_weights *weights) {
    weights->reading = false;
    if (weights->fetcher) rn_fetcher_drain(weights->fetcher);
    weights->fetching[0].begun = weights->fetching[1].begun = false;
}

// ---- filling ------------------------------------------------------------------------------------

static rn_status check_stop(const rn_weights *w) {
    bool stop = atomic_load(w->stop) || (w->cancel && atomic_load(w->cancel));
    return stop ? rn_fail(RN_CANCELLED, "reading was cancelled") : RN_OK;
}

static rn_status start(rn_weights *w, rn_weight_list list, uint32_t entry) {
    const rn_group_list *l = &w->lists[list];
    w->reading = false;
    w->base = l->first[entry];
    RN_TRY(rn_reader_start(w->reader, l->extents + w->base, l->first[l->count] - w->base));
    w->list = list;
    w->entry = entry;
    w->reading = true;
    return RN_OK;
}

// nf4_dq: behind the last scale of codes comes what no tensor has.
static rn_status end_nested(rn_weights *w, rn_component_of component, uint64_t end) {
    const float *offset = &w->offsets[component.value];
    bool twice = rn_graph_value(w->plan->graph, component.value)->dtype == RN_DTYPE_NF4_DQ;
    if (!twice || component.component != RN_COMPONENT_SHIFT ||
        end + sizeof *offset != w->packing.components.bytes[RN_COMPONENT_SHIFT])
        return RN_OK;
    return rn_packing_take(&w->packing, RN_COMPONENT_SHIFT, end, offset, sizeof *offset);
}

static rn_status take_piece(rn_weights *w, uint8_t *target, uint64_t *left_bytes) {
    rn_reader_piece piece = {0};
    RN_TRY(check_stop(w));
    RN_TRY(rn_reader_next(w->reader, &piece));
    if (piece.bytes == 0 || piece.bytes > *left_bytes)
        return rn_fail(RN_INTERNAL, "the reader's list does not end with a unit");
    rn_component_of component = w->lists[w->list].components[w->base + piece.extent];
    rn_status s = RN_OK;
    uint64_t offset = component.first_byte + piece.offset_in_extent;
    if (component.component == RN_COMPONENT_DATA && offset == 0)
        s = rn_packing_begin(w->plan, component.value,
                             target + w->plan->places[component.value].offset, w->workers,
                             &w->packing);
    if (component.component == RN_COMPONENT_DATA) w->packing.narrow = component.narrow;
    if (s == RN_OK)
        s = rn_packing_take(&w->packing, component.component, offset, piece.data, piece.bytes);
    if (s == RN_OK) s = end_nested(w, component, offset + piece.bytes);
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
    const rn_group_list *l = &w->lists[list];
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

static rn_status fill_from_memory(rn_weights *w, const rn_plan_group *group, uint8_t *target) {
    RN_TRY(check_stop(w));
    for (uint32_t i = 0; i < group->value_count; i++) {
        rn_value value = w->plan->group_values[group->first_value + i];
        uint8_t *at = target + w->plan->places[value].offset;
        if (w->plain[value] && w->narrow[value] != RN_DTYPE_NONE)
            RN_TRY(rn_dtype_to_f32(
                w->narrow[value], w->plain[value], (float *)(void *)at,
                rn_shape_elements(rn_graph_value(w->plan->graph, value)->shape, 1)));
        else if (w->plain[value])
            RN_TRY(rn_weights_pack(w->plan, value, w->plain[value], at));
    }
    return RN_OK;
}

// ---- weights of several tensors
// ------------------------------------------------------------------

typedef struct form_filling {
    rn_weights *weights;
    rn_packing packing;
} form_filling;

static rn_status take_form(void *self, rn_component component, uint64_t offset, const void *data,
                           uint64_t bytes) {
    form_filling *f = self;
    RN_TRY(check_stop(f->weights));
    RN_TRY(rn_packing_take(&f->packing, component, offset, data, bytes));
    atomic_fetch_add(&f->weights->read_bytes, bytes);
    return RN_OK;
}

static rn_status fill_from_forms(rn_weights *w, const rn_plan_group *group, uint8_t *target) {
    for (uint32_t i = 0; i < group->value_count; i++) {
        rn_value value = w->plan->group_values[group->first_value + i];
        const rn_weight_form *form = w->forms[value];
        const rn_value_info *info = rn_graph_value(w->plan->graph, value);
        form_filling f = {.weights = w};
        if (!form) continue;
        RN_TRY(rn_packing_begin(w->plan, value, target + w->plan->places[value].offset, w->workers,
                                &f.packing));
        RN_TRY(rn_weight_form_read(w->source.checkpoint, form, info->tensor ? info->first_row : 0,
                                   info->tensor ? info->shape.dims[0] : form->rows, take_form, &f));
    }
    return RN_OK;
}

// ---- file-layout weights
// --------------------------------------------------------------------------------

static uint32_t count_raw(const rn_weights *w, uint32_t entry) {
    const rn_group_list *l = &w->lists[RN_WEIGHTS_STREAMED];
    return l->first_file_weight[entry + 1] - l->first_file_weight[entry];
}

static void begin_fetching(rn_weights *w, rn_fetching *f, uint32_t entry, uint8_t *target) {
    const rn_group_list *l = &w->lists[RN_WEIGHTS_STREAMED];
    const rn_file_weight *file_weights = l->file_weights + l->first_file_weight[entry];
    f->begun = true;
    f->entry = entry;
    f->target = target;
    f->batch = (rn_fetch_batch){.items = f->items, .count = count_raw(w, entry)};
    for (uint32_t i = 0; i < f->batch.count; i++)
        f->items[i] = (rn_fetch){.file = file_weights[i].file,
                                 .offset = file_weights[i].offset,
                                 .bytes = file_weights[i].bytes,
                                 .target = target + w->plan->places[file_weights[i].value].offset};
    rn_fetcher_begin(w->fetcher, &f->batch);
}

// While the last requests of an entry are under way, the disk goes on with the next one, if its
// slot is free already.
static void feed_ahead(rn_weights *w) {
    rn_fetching *next = &w->fetching[1 - w->turn];
    uint32_t entry = 0;
    uint8_t *target = NULL;
    if (!next->begun && w->ahead && w->ahead(w->ahead_self, &entry, &target))
        begin_fetching(w, next, entry, target);
    if (next->begun) rn_fetcher_feed(w->fetcher, &next->batch);
}

// A weight at an odd offset of its file moves to where numbers can be read.
static void move_odd(const rn_fetching *f) {
    for (uint32_t i = 0; i < f->batch.count; i++) {
        const rn_fetch *item = &f->items[i];
        uint64_t at = item->offset % RN_PAGE_BYTES, lead = rn_file_weight_lead(item->offset);
        if (at != lead) memmove(item->target + lead, item->target + at, item->bytes);
    }
}

static rn_status finish_fetching(rn_weights *w, rn_fetching *f) {
    for (;;) {
        RN_TRY(check_stop(w));
        rn_fetcher_feed(w->fetcher, &f->batch);
        if (rn_fetcher_is_done(&f->batch)) break;
        if (rn_fetcher_is_fed(&f->batch)) feed_ahead(w);
        rn_fetcher_wait(w->fetcher);
    }
    f->begun = false;
    w->turn = 1 - w->turn;
    RN_TRY(rn_fetcher_status(&f->batch));
    for (uint32_t i = 0; i < f->batch.count; i++)
        atomic_fetch_add(&w->read_bytes, f->items[i].bytes);
    move_odd(f);
    return RN_OK;
}

// The entry that was begun ahead, or a new one.
static rn_fetching *take_fetching(rn_weights *w, uint32_t entry, uint8_t *target) {
    rn_fetching *f = &w->fetching[w->turn];
    if (f->begun && f->entry == entry && f->target == target) return f;
    rn_fetcher_drain(w->fetcher);
    w->fetching[0].begun = w->fetching[1].begun = false;
    begin_fetching(w, f, entry, target);
    return f;
}

// ---- an entry -----------------------------------------------------------------------------------

rn_status rn_weights_fill(rn_weights *w, rn_weight_list list, uint32_t entry, uint8_t *target) {
    bool file_weights = list == RN_WEIGHTS_STREAMED && w->lists[list].file_weight_count > 0;
    rn_fetching *fetching = file_weights ? take_fetching(w, entry, target) : NULL;
    if (file_weights) rn_fetcher_feed(w->fetcher, &fetching->batch);
    RN_TRY(fill_from_memory(w, &w->plan->groups[w->lists[list].groups[entry]], target));
    RN_TRY(fill_from_forms(w, &w->plan->groups[w->lists[list].groups[entry]], target));
    if (file_weights) RN_TRY(finish_fetching(w, fetching));
    return w->reader ? fill_from_files(w, list, entry, target) : RN_OK;
}

uint64_t rn_weights_lead(const rn_weights *w, rn_value value) {
    const rn_group_list *l = &w->lists[RN_WEIGHTS_STREAMED];
    for (uint32_t i = 0; i < l->file_weight_count; i++)
        if (l->file_weights[i].value == value)
            return rn_file_weight_lead(l->file_weights[i].offset);
    return 0;
}
