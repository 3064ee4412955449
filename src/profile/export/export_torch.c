// export_torch.c — PyTorch's memory snapshot: device_traces (what happened) and segments (what is
// there at the end), as a pickle that memory_viz opens.
//
//     arena                 a segment; segment_alloc, segment_free
//     part of an arena      a block in it; alloc, free_requested, free_completed
//     any other block       a segment of its own with one block: all five
//     refusal, no memory    oom
//     purpose               category: the viewer's legend and colours
//     operations around it  frames, innermost first; before them the tensor itself, if it has a
//                           name (file: dtype and shape)
//
// The viewer finds blocks by address and throws where one lies in no segment. So whatever has no
// address, or one at which something else is live, gets one of its own, above what any process
// has and below 2^53, up to which JavaScript counts exactly. The viewer also wants at least one
// entry of category 'unknown': the one for the snapshot itself.
#include "base/checked.h"
#include "memory/account.h"
#include "profile/export/export_pickle.h"
#include "profile/timeline/radix.h"

#define FROM          (&rn_host_allocators[RN_PURPOSE_PROFILER])
#define OWN_ADDRESSES ((uint64_t)1 << 52)
#define MAX_FRAMES    64 // of one stack: a hostile depth times every operation would be a square
#define SMALL_BYTES   ((uint64_t)1 << 20) // below it, PyTorch's segments are 'small'

// Keys and values that are written once and named after.
// clang-format off
#define WORDS(W) \
    W(ACTION, "action") W(ADDR, "addr") W(SIZE, "size") W(STREAM, "stream") \
    W(TIME_US, "time_us") W(FRAMES, "frames") W(CATEGORY, "category") \
    W(USER_METADATA, "user_metadata") W(DEVICE_FREE, "device_free") W(FILENAME, "filename") \
    W(LINE, "line") W(NAME, "name") W(DEVICE, "device") W(ADDRESS, "address") \
    W(TOTAL_SIZE, "total_size") W(ALLOCATED_SIZE, "allocated_size") \
    W(ACTIVE_SIZE, "active_size") W(REQUESTED_SIZE, "requested_size") \
    W(SEGMENT_TYPE, "segment_type") W(SEGMENT_POOL_ID, "segment_pool_id") \
    W(IS_EXPANDABLE, "is_expandable") W(BLOCKS, "blocks") W(STATE, "state") W(ALLOC, "alloc") \
    W(FREE_REQUESTED, "free_requested") W(FREE_COMPLETED, "free_completed") \
    W(SEGMENT_ALLOC, "segment_alloc") W(SEGMENT_FREE, "segment_free") W(OOM, "oom") \
    W(SNAPSHOT, "snapshot") W(ACTIVE_ALLOCATED, "active_allocated") W(INACTIVE, "inactive") \
    W(SMALL, "small") W(LARGE, "large") W(UNKNOWN, "unknown") W(TENSOR, "tensor") \
    W(UNNAMED, "(unnamed)")
// clang-format on
#define NAME_OF(name, text) name,
typedef enum word { WORDS(NAME_OF) WORD_COUNT } word;
#define TEXT_OF(name, text) text,
static const char *const words[WORD_COUNT] = {WORDS(TEXT_OF)};

typedef struct torch {
    const rn_timeline *t;
    rn_export_names names;
    rn_out out;
    rn_pickler p;
    rn_arena arena;
    uint64_t *addresses;     // (alloc_count): as they are written
    bool *alone;             // (alloc_count): a segment of its own, with one block
    uint32_t *stacks;        // (alloc_count): kept stacks of allocations that have a name
    uint32_t *op_stacks;     // (op_count): the same of operations
    uint32_t *op_frames;     // (name_count): kept frames of operations
    uint32_t *tensor_frames; // (name_count): the same of tensors
    uint32_t *texts, *groups, *details; // (name_count): kept texts
    uint32_t words[WORD_COUNT];
    uint32_t purposes[RN_PURPOSE_COUNT];
} torch;

// ---- addresses ----------------------------------------------------------------------------------

static bool is_arena(const rn_timeline_alloc *a) {
    return !rn_is_in_use(a);
}

// Whether it lies in its arena in time and space.
static bool lies_in_arena(const rn_timeline *t, uint32_t index) {
    const rn_timeline_alloc *a = &t->allocs[index];
    if (!a->inner || a->parent >= index) return false; // RN_NO_INDEX as well
    const rn_timeline_alloc *arena = &t->allocs[a->parent];
    return is_arena(arena) && a->device == arena->device && a->address >= arena->address &&
           a->bytes <= arena->bytes && a->address - arena->address <= arena->bytes - a->bytes &&
           a->begin_ns >= arena->begin_ns && a->end_ns <= arena->end_ns;
}

typedef struct shadows {
    uint64_t block_ends[RN_DEVICE_MAX], segment_ends[RN_DEVICE_MAX]; // of those at one address
} shadows;

// Whether something else is live at this address; takes note of this one.
static bool is_shadowed(shadows *s, const rn_timeline_alloc *a, bool is_block, bool is_segment) {
    uint64_t *block = &s->block_ends[a->device], *segment = &s->segment_ends[a->device];
    if ((is_block && a->begin_ns < *block) || (is_segment && a->begin_ns < *segment)) return true;
    if (is_block) *block = a->end_ns;
    if (is_segment) *segment = a->end_ns;
    return false;
}

// Marks in `own` what needs an address of its own.
static void find_shadowed(const torch *x, const rn_sort_item *by_address, bool *own) {
    shadows s = {{0}, {0}};
    for (uint32_t i = 0; i < x->t->alloc_count; i++) {
        uint32_t index = by_address[i].index;
        const rn_timeline_alloc *a = &x->t->allocs[index];
        if (i && by_address[i].key != by_address[i - 1].key) s = (shadows){{0}, {0}};
        own[index] = a->address == 0 ||
                     is_shadowed(&s, a, !is_arena(a), is_arena(a) || !lies_in_arena(x->t, index));
    }
}

static void give_addresses(torch *x, const bool *own) {
    uint64_t next = OWN_ADDRESSES;
    for (uint32_t i = 0; i < x->t->alloc_count; i++) {
        const rn_timeline_alloc *a = &x->t->allocs[i];
        bool in_arena = !own[i] && lies_in_arena(x->t, i);
        x->alone[i] = !is_arena(a) && !in_arena;
        x->addresses[i] = a->address;
        if (in_arena)
            x->addresses[i] =
                x->addresses[a->parent] + (a->address - x->t->allocs[a->parent].address);
        else if (own[i]) {
            x->addresses[i] = next;
            next += rn_round_up(a->bytes + 1, 512);
            if (next >> 53) next = OWN_ADDRESSES;
        }
    }
}

static rn_status find_addresses(torch *x) {
    uint32_t count = x->t->alloc_count;
    rn_sort_item *by_address;
    bool *own;
    RN_TRY(rn_arena_array(&x->arena, count, sizeof *by_address, (void **)&by_address));
    RN_TRY(rn_arena_array(&x->arena, count, sizeof *own, (void **)&own));
    for (uint32_t i = 0; i < count; i++)
        by_address[i] = (rn_sort_item){.key = x->t->allocs[i].address, .index = i};
    RN_TRY(rn_radix_sort(FROM, by_address, count));
    find_shadowed(x, by_address, own);
    give_addresses(x, own);
    return RN_OK;
}

// ---- words and frames ---------------------------------------------------------------------------

static void put_word(torch *x, word w) {
    if (x->words[w])
        rn_pickler_again(&x->p, x->words[w]);
    else
        rn_pickler_text_once(&x->p, &x->words[w], rn_str_from(words[w]));
}

static void put_u64(torch *x, word key, uint64_t value) {
    put_word(x, key);
    rn_pickler_u64(&x->p, value);
}

static void put_pair(torch *x, word key, word value) {
    put_word(x, key);
    put_word(x, value);
}

static void put_purpose(torch *x, uint8_t purpose) {
    put_word(x, CATEGORY);
    rn_pickler_text_once(&x->p, &x->purposes[purpose],
                         rn_str_from(rn_purpose_name((rn_purpose)purpose)));
}

static void begin_frame(torch *x, uint32_t name, word otherwise) {
    rn_pickler_dict(&x->p);
    put_u64(x, LINE, 0);
    put_word(x, NAME);
    if (x->names.names[name].name.bytes)
        rn_pickler_text_once(&x->p, &x->texts[name], x->names.names[name].name);
    else
        put_word(x, otherwise);
    put_word(x, FILENAME);
}

static void put_op_frame(torch *x, uint32_t name) {
    if (x->op_frames[name]) {
        rn_pickler_again(&x->p, x->op_frames[name]);
        return;
    }
    begin_frame(x, name, UNNAMED);
    rn_pickler_text_once(&x->p, &x->groups[name], x->names.names[name].group);
    rn_pickler_dict_end(&x->p);
    x->op_frames[name] = rn_pickler_keep(&x->p);
}

static void put_tensor_frame(torch *x, uint32_t name) {
    if (x->tensor_frames[name]) {
        rn_pickler_again(&x->p, x->tensor_frames[name]);
        return;
    }
    begin_frame(x, name, TENSOR);
    if (x->names.names[name].detail.bytes)
        rn_pickler_text_once(&x->p, &x->details[name], x->names.names[name].detail);
    else
        put_word(x, TENSOR);
    rn_pickler_dict_end(&x->p);
    x->tensor_frames[name] = rn_pickler_keep(&x->p);
}

static void put_op_frames(torch *x, rn_pickler_list_state *list, uint32_t op) {
    for (int i = 0; i < MAX_FRAMES && op != RN_NO_INDEX; i++, op = x->t->ops[op].parent) {
        rn_pickler_item(&x->p, list);
        put_op_frame(x, x->t->ops[op].name);
    }
}

// The stack of an allocation: written once for it, or once for its operation if it has no name.
static void put_stack(torch *x, uint32_t index) {
    const rn_timeline_alloc *a = &x->t->allocs[index];
    uint32_t *kept = a->name                ? &x->stacks[index]
                     : a->op == RN_NO_INDEX ? NULL
                                            : &x->op_stacks[a->op];
    rn_pickler_list_state list;
    if (kept && *kept) {
        rn_pickler_again(&x->p, *kept);
        return;
    }
    rn_pickler_list(&x->p, &list);
    if (a->name) {
        rn_pickler_item(&x->p, &list);
        put_tensor_frame(x, a->name);
    }
    put_op_frames(x, &list, a->op);
    rn_pickler_list_end(&x->p);
    if (kept) *kept = rn_pickler_keep(&x->p);
}

static void put_no_stack(torch *x) {
    rn_pickler_list_state list;
    put_word(x, FRAMES);
    rn_pickler_list(&x->p, &list);
    rn_pickler_list_end(&x->p);
}

// ---- the trace of a device ----------------------------------------------------------------------

static void begin_entry(torch *x, rn_pickler_list_state *list, word action, uint64_t time_ns) {
    rn_pickler_item(&x->p, list);
    rn_pickler_dict(&x->p);
    put_pair(x, ACTION, action);
    put_u64(x, STREAM, 0);
    put_u64(x, TIME_US, (x->t->start_unix_ns + time_ns) / 1000);
}

static void put_entry(torch *x, rn_pickler_list_state *list, word action, uint32_t index,
                      uint64_t time_ns) {
    const rn_timeline_alloc *a = &x->t->allocs[index];
    begin_entry(x, list, action, time_ns);
    put_u64(x, ADDR, x->addresses[index]);
    put_u64(x, SIZE, a->bytes);
    put_word(x, FRAMES);
    put_stack(x, index);
    put_purpose(x, a->purpose);
    if (a->name) {
        put_word(x, USER_METADATA);
        rn_pickler_text_once(&x->p, &x->texts[a->name], x->names.names[a->name].name);
    }
    rn_pickler_dict_end(&x->p);
}

static void put_change(torch *x, rn_pickler_list_state *list, const rn_change *change) {
    uint32_t i = change->alloc;
    bool arena = is_arena(&x->t->allocs[i]), segment = arena || x->alone[i];
    if (change->is_end && !arena) {
        put_entry(x, list, FREE_REQUESTED, i, change->time_ns);
        put_entry(x, list, FREE_COMPLETED, i, change->time_ns);
    }
    if (segment)
        put_entry(x, list, change->is_end ? SEGMENT_FREE : SEGMENT_ALLOC, i, change->time_ns);
    if (!change->is_end && !arena) put_entry(x, list, ALLOC, i, change->time_ns);
}

static uint64_t budget_of(const rn_timeline *t, uint8_t device) {
    uint64_t budget = 0;
    for (uint32_t i = 0; i < t->counter_count; i++)
        if (t->counters[i].kind == RN_COUNTER_BUDGET && t->counters[i].device == device &&
            t->counters[i].value != RN_NO_LIMIT)
            budget = t->counters[i].value;
    return budget;
}

typedef struct device_trace {
    rn_pickler_list_state list;
    uint8_t device;
    uint64_t reserved_bytes, budget_bytes;
    uint32_t next_mark;
    bool any;
} device_trace;

static void put_oom(torch *x, device_trace *d, const rn_timeline_mark *mark) {
    uint64_t used = d->reserved_bytes, budget = d->budget_bytes;
    begin_entry(x, &d->list, OOM, mark->time_ns);
    put_u64(x, SIZE, mark->bytes);
    put_u64(x, DEVICE_FREE, budget > used ? budget - used : 0);
    put_pair(x, CATEGORY, UNKNOWN);
    put_no_stack(x);
    rn_pickler_dict_end(&x->p);
    d->any = true;
}

static void put_ooms_before(torch *x, device_trace *d, uint64_t time_ns) {
    const rn_timeline *t = x->t;
    for (; d->next_mark < t->mark_count && t->marks[d->next_mark].time_ns < time_ns;
         d->next_mark++) {
        const rn_timeline_mark *mark = &t->marks[d->next_mark];
        bool is_oom = mark->kind == RN_MARK_REFUSAL || mark->kind == RN_MARK_NO_MEMORY;
        if (is_oom && mark->device == d->device) put_oom(x, d, mark);
    }
}

static void put_snapshot_entry(torch *x, device_trace *d) {
    begin_entry(x, &d->list, SNAPSHOT, x->t->end_ns);
    put_u64(x, ADDR, 0);
    put_u64(x, SIZE, 0);
    put_pair(x, CATEGORY, UNKNOWN);
    put_no_stack(x);
    rn_pickler_dict_end(&x->p);
}

static void put_device_trace(torch *x, uint8_t device) {
    device_trace d = {.device = device, .budget_bytes = budget_of(x->t, device)};
    rn_change_walk walk;
    rn_change change;
    rn_pickler_list(&x->p, &d.list);
    rn_change_walk_begin(&walk, x->t);
    while (rn_change_walk_next(&walk, &change)) {
        const rn_timeline_alloc *a = &x->t->allocs[change.alloc];
        if (a->device != device) continue;
        put_ooms_before(x, &d, change.time_ns);
        if (!a->inner) d.reserved_bytes += change.is_end ? 0 - a->bytes : a->bytes;
        put_change(x, &d.list, &change);
        d.any = true;
    }
    put_ooms_before(x, &d, UINT64_MAX);
    if (d.any) put_snapshot_entry(x, &d);
    rn_pickler_list_end(&x->p);
}

// ---- segments at the end ------------------------------------------------------------------------

static void put_block(torch *x, rn_pickler_list_state *list, uint64_t address, uint64_t bytes,
                      uint32_t index) {
    bool active = index != RN_NO_INDEX;
    if (!bytes && !active) return;
    rn_pickler_item(&x->p, list);
    rn_pickler_dict(&x->p);
    put_u64(x, ADDRESS, address);
    put_u64(x, SIZE, bytes);
    put_u64(x, REQUESTED_SIZE, active ? bytes : 0);
    put_pair(x, STATE, active ? ACTIVE_ALLOCATED : INACTIVE);
    if (active) {
        put_word(x, FRAMES);
        put_stack(x, index);
    } else
        put_no_stack(x);
    rn_pickler_dict_end(&x->p);
}

// items[0] is a segment, the others (count in all) its parts by address, gaps between. Where two
// overlap, the later one has what is left. Returns the bytes in use; writes only where `list`.
static uint64_t put_blocks(torch *x, const rn_sort_item *items, size_t count,
                           rn_pickler_list_state *list) {
    uint32_t segment = items[0].index;
    uint64_t at = x->addresses[segment], end = at + x->t->allocs[segment].bytes, used = 0;
    if (x->alone[segment]) {
        if (list) put_block(x, list, at, end - at, segment);
        return end - at;
    }
    for (size_t i = 1; i < count; i++) {
        uint64_t address = x->addresses[items[i].index];
        uint64_t first = rn_max_u64(address, at);
        uint64_t last = address + x->t->allocs[items[i].index].bytes;
        if (last <= first) continue;
        if (list) put_block(x, list, at, first - at, RN_NO_INDEX);
        if (list) put_block(x, list, first, last - first, items[i].index);
        used += last - first;
        at = last;
    }
    if (list) put_block(x, list, at, end - at, RN_NO_INDEX);
    return used;
}

static void put_segment(torch *x, const rn_sort_item *items, size_t count) {
    uint32_t index = items[0].index;
    const rn_timeline_alloc *a = &x->t->allocs[index];
    uint64_t used = put_blocks(x, items, count, NULL);
    rn_pickler_list_state blocks;
    rn_pickler_dict(&x->p);
    put_u64(x, DEVICE, a->device);
    put_u64(x, ADDRESS, x->addresses[index]);
    put_u64(x, TOTAL_SIZE, a->bytes);
    put_u64(x, ALLOCATED_SIZE, used);
    put_u64(x, ACTIVE_SIZE, used);
    put_u64(x, REQUESTED_SIZE, used);
    put_u64(x, STREAM, 0);
    put_pair(x, SEGMENT_TYPE, a->bytes <= SMALL_BYTES ? SMALL : LARGE);
    put_word(x, SEGMENT_POOL_ID);
    rn_pickler_u64(&x->p, 0);
    rn_pickler_u64(&x->p, 0);
    rn_pickler_pair(&x->p);
    put_word(x, IS_EXPANDABLE);
    rn_pickler_bool(&x->p, false);
    put_word(x, FRAMES);
    put_stack(x, index);
    put_word(x, BLOCKS);
    rn_pickler_list(&x->p, &blocks);
    put_blocks(x, items, count, &blocks);
    rn_pickler_list_end(&x->p);
    rn_pickler_dict_end(&x->p);
}

static uint32_t segment_of(const torch *x, uint32_t index) {
    const rn_timeline_alloc *a = &x->t->allocs[index];
    return is_arena(a) || x->alone[index] ? index : a->parent;
}

// What is live at the end, by segment, then by address: a segment comes before its parts.
static rn_status sort_live(const torch *x, rn_sort_item *items, size_t *out_count) {
    size_t count = 0;
    for (uint32_t i = 0; i < x->t->alloc_count; i++)
        if (x->t->allocs[i].end_ns == RN_STILL_LIVE)
            items[count++] = (rn_sort_item){.key = x->addresses[i], .index = i};
    *out_count = count;
    RN_TRY(rn_radix_sort(FROM, items, count));
    for (size_t i = 0; i < count; i++)
        items[i].key = segment_of(x, items[i].index);
    return rn_radix_sort(FROM, items, count);
}

static rn_status put_segments(torch *x) {
    rn_pickler_list_state list;
    rn_sort_item *items;
    size_t count = 0;
    RN_TRY(rn_arena_array(&x->arena, x->t->alloc_count, sizeof *items, (void **)&items));
    RN_TRY(sort_live(x, items, &count));
    rn_pickler_text(&x->p, RN_STR("segments"));
    rn_pickler_list(&x->p, &list);
    for (size_t i = 0, end = 0; i < count; i = end) {
        while (end < count && items[end].key == items[i].key)
            end++;
        rn_pickler_item(&x->p, &list);
        put_segment(x, items + i, end - i);
    }
    rn_pickler_list_end(&x->p);
    return RN_OK;
}

// ---- all of it ----------------------------------------------------------------------------------

static void put_traces(torch *x) {
    rn_pickler_list_state list;
    rn_pickler_text(&x->p, RN_STR("device_traces"));
    rn_pickler_list(&x->p, &list);
    for (uint32_t i = 0; i < x->t->device_count; i++) {
        rn_pickler_item(&x->p, &list);
        put_device_trace(x, (uint8_t)i);
    }
    rn_pickler_list_end(&x->p);
}

// As PyTorch writes them by default; of ours, what the devices are called.
static void put_settings(torch *x) {
    static const struct {
        const char *key;
        bool is_flag;
        uint64_t value;
    } settings[] = {
        {"max_split_size", false, INT64_MAX},       {"expandable_segments", true, 0},
        {"pinned_num_register_threads", false, 1},  {"release_lock_on_cudamalloc", true, 0},
        {"pinned_use_cuda_host_register", true, 0},
    };
    rn_pickler_text(&x->p, RN_STR("allocator_settings"));
    rn_pickler_dict(&x->p);
    rn_pickler_text(&x->p, RN_STR("PYTORCH_CUDA_ALLOC_CONF"));
    rn_pickler_text(&x->p, RN_STR(""));
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        rn_pickler_text(&x->p, rn_str_from(settings[i].key));
        if (settings[i].is_flag)
            rn_pickler_bool(&x->p, settings[i].value != 0);
        else
            rn_pickler_u64(&x->p, settings[i].value);
    }
    rn_pickler_text(&x->p, RN_STR("garbage_collection_threshold"));
    rn_pickler_f64(&x->p, 0);
    rn_pickler_text(&x->p, RN_STR("roundup_power2_divisions"));
    rn_pickler_dict(&x->p);
    rn_pickler_dict_end(&x->p);
    rn_pickler_dict_end(&x->p);
}

static void put_devices(torch *x) {
    rn_pickler_list_state list;
    rn_pickler_text(&x->p, RN_STR("ration_devices"));
    rn_pickler_list(&x->p, &list);
    for (uint32_t i = 0; i < x->t->device_count; i++) {
        rn_pickler_item(&x->p, &list);
        rn_pickler_text(&x->p, x->names.devices[i]);
    }
    rn_pickler_list_end(&x->p);
}

static rn_status put_snapshot(torch *x) {
    rn_pickler_list_state list;
    rn_pickler_begin(&x->p, &x->out);
    rn_pickler_dict(&x->p);
    RN_TRY(put_segments(x));
    put_traces(x);
    put_settings(x);
    rn_pickler_text(&x->p, RN_STR("external_annotations"));
    rn_pickler_list(&x->p, &list);
    rn_pickler_list_end(&x->p);
    put_devices(x);
    rn_pickler_dict_end(&x->p);
    rn_pickler_end(&x->p);
    return RN_OK;
}

static rn_status make_tables(torch *x) {
    const rn_timeline *t = x->t;
    uint32_t **by_name[] = {&x->op_frames, &x->tensor_frames, &x->texts, &x->groups, &x->details};
    RN_TRY(rn_arena_array(&x->arena, t->alloc_count, sizeof *x->addresses, (void **)&x->addresses));
    RN_TRY(rn_arena_array(&x->arena, t->alloc_count, sizeof *x->alone, (void **)&x->alone));
    RN_TRY(rn_arena_array(&x->arena, t->alloc_count, sizeof *x->stacks, (void **)&x->stacks));
    RN_TRY(rn_arena_array(&x->arena, t->op_count, sizeof *x->op_stacks, (void **)&x->op_stacks));
    for (size_t i = 0; i < sizeof by_name / sizeof *by_name; i++)
        RN_TRY(rn_arena_array(&x->arena, t->name_count, sizeof **by_name[i], (void **)by_name[i]));
    return find_addresses(x);
}

static rn_status write_to(torch *x, rn_sink sink) {
    RN_TRY(make_tables(x));
    RN_TRY(rn_out_open(&x->out, sink));
    rn_status s = put_snapshot(x);
    rn_status closed = rn_out_close(&x->out);
    return s == RN_OK ? closed : s;
}

rn_status rn_export_torch(const rn_timeline *t, rn_sink sink) {
    torch x = {.t = t};
    RN_TRY(rn_export_names_make(t, &x.names));
    rn_arena_init(&x.arena, FROM, 0);
    rn_status s = write_to(&x, sink);
    rn_arena_free_all(&x.arena);
    rn_export_names_free(&x.names);
    return s;
}
