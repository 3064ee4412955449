// torch_snapshot_fold.c — the many small dictionaries of a snapshot become records as they are
// read.
//
// A trace has hundreds of thousands of events, each a dictionary with six or seven keys and a list
// of frames. Torch shares the frames between the lists, but makes a list for every event, although
// most come from the same few places. Here an event is one record, and equal frames and equal
// stacks are kept once.
#include "profile/foreign/torch_snapshot.h"

#include "base/checked.h"
#include "profile/foreign/foreign.h"

// ---- words --------------------------------------------------------------------------------------

static const char *const words[RN_TORCH_WORD_COUNT] = {
    [RN_TORCH_ALLOC] = "alloc",
    [RN_TORCH_FREE] = "free",
    [RN_TORCH_FREE_COMPLETED] = "free_completed",
    [RN_TORCH_FREE_REQUESTED] = "free_requested",
    [RN_TORCH_SEGMENT_ALLOC] = "segment_alloc",
    [RN_TORCH_SEGMENT_FREE] = "segment_free",
    [RN_TORCH_SEGMENT_MAP] = "segment_map",
    [RN_TORCH_SEGMENT_UNMAP] = "segment_unmap",
    [RN_TORCH_SNAPSHOT] = "snapshot",
    [RN_TORCH_OOM] = "oom",
    [RN_TORCH_ACTION] = "action",
    [RN_TORCH_ADDR] = "addr",
    [RN_TORCH_DEVICE_FREE] = "device_free",
    [RN_TORCH_SIZE] = "size",
    [RN_TORCH_STREAM] = "stream",
    [RN_TORCH_TIME_US] = "time_us",
    [RN_TORCH_FRAMES] = "frames",
    [RN_TORCH_CATEGORY] = "category",
    [RN_TORCH_USER_METADATA] = "user_metadata",
    [RN_TORCH_FILENAME] = "filename",
    [RN_TORCH_LINE] = "line",
    [RN_TORCH_NAME] = "name",
};

// A pickle names a key again by its node: what word it is, is found once.
static rn_torch_word word_of(rn_pickle_value value) {
    rn_pickle_node *node = rn_pickle_node_of(value);
    if (!node || node->kind != RN_PICKLE_TEXT) return RN_TORCH_UNKNOWN;
    if (node->tag) return (rn_torch_word)(node->tag - 1);
    int word = RN_TORCH_WORD_COUNT - 1;
    while (word > RN_TORCH_UNKNOWN && !rn_str_equal(node->text, rn_str_from(words[word])))
        word--;
    node->tag = (uint32_t)word + 1;
    return (rn_torch_word)word;
}

// The values of a dictionary by their words.
typedef struct fields {
    rn_pickle_value of[RN_TORCH_WORD_COUNT];
    uint32_t seen; // bits
} fields;
_Static_assert(RN_TORCH_WORD_COUNT <= 32, "words are bits");

static bool has(const fields *f, rn_torch_word word) {
    return f->seen >> word & 1;
}

static void collect(const rn_pickle_value *items, size_t count, fields *out) {
    out->seen = 0;
    for (size_t i = 0; i + 1 < count; i += 2) {
        rn_torch_word word = word_of(items[i]);
        out->of[word] = items[i + 1];
        out->seen |= 1u << word;
    }
}

static uint64_t number_of(const fields *f, rn_torch_word word) {
    uint64_t number = 0;
    if (has(f, word)) rn_pickle_u64_of(f->of[word], &number);
    return number;
}

static rn_str text_of(const fields *f, rn_torch_word word) {
    return has(f, word) ? rn_pickle_text_of(f->of[word]) : (rn_str){"", 0};
}

// ---- frames and stacks --------------------------------------------------------------------------

// The record of this key, or a new one of `bytes` bytes whose key is kept; *out_new says which.
static rn_status intern(rn_torch_reader *r, rn_map *map, rn_str key, size_t bytes, void **out,
                        bool *out_new) {
    uint64_t known;
    void *copy = NULL;
    *out = NULL;
    *out_new = !rn_map_find(map, key, &known);
    if (!*out_new) {
        *out = (void *)(uintptr_t)known;
        return RN_OK;
    }
    RN_TRY(rn_arena_alloc(&r->pickle.arena, bytes, out));
    RN_TRY(rn_arena_copy(&r->pickle.arena, key.data, key.bytes, &copy));
    return rn_map_add(map, (rn_str){copy, key.bytes}, (uintptr_t)*out, NULL);
}

// A name shows no more of it; and frames that share one long text would each have a copy of it.
static rn_str shorten(rn_str text) {
    return (rn_str){text.data, rn_min_u64(text.bytes, 512)};
}

static rn_status intern_frame(rn_torch_reader *r, const fields *f, rn_torch_frame **out) {
    rn_torch_frame frame = {.file = shorten(text_of(f, RN_TORCH_FILENAME)),
                            .function = shorten(text_of(f, RN_TORCH_NAME)),
                            .line = number_of(f, RN_TORCH_LINE)};
    void *record = NULL;
    bool is_new = false;
    r->key.bytes = 0;
    RN_TRY(rn_buffer_append(&r->key, frame.file.data, frame.file.bytes));
    RN_TRY(rn_buffer_append(&r->key, &frame.line, sizeof frame.line));
    RN_TRY(rn_buffer_append(&r->key, frame.function.data, frame.function.bytes));
    rn_str key = {r->key.data, r->key.bytes};
    RN_TRY(intern(r, &r->frame_ids, key, sizeof frame, &record, &is_new));
    *out = record;
    if (is_new) **out = frame;
    return RN_OK;
}

static rn_status intern_stack(rn_torch_reader *r, rn_torch_frame *const *frames, size_t count,
                              rn_torch_stack **out) {
    void *record = NULL;
    bool is_new = false;
    size_t bytes = count * sizeof *frames;
    RN_TRY(intern(r, &r->stack_ids, (rn_str){(const char *)frames, bytes},
                  sizeof(rn_torch_stack) + bytes, &record, &is_new));
    *out = record;
    if (!is_new) return RN_OK;
    (*out)->count = (uint32_t)count;
    memcpy((*out)->frames, frames, bytes);
    return RN_OK;
}

// ---- folding ------------------------------------------------------------------------------------

// The value itself, so that an event holds 8 bytes of it; a word of 0 where there is none.
static rn_pickle_value group_of(const fields *f, rn_purpose purpose) {
    rn_str category = text_of(f, RN_TORCH_CATEGORY);
    if (text_of(f, RN_TORCH_USER_METADATA).bytes) return f->of[RN_TORCH_USER_METADATA];
    bool plain = purpose != RN_PURPOSE_OTHER || !category.bytes ||
                 rn_str_equal(category, RN_STR("unknown")) ||
                 rn_str_equal(category, RN_STR("other"));
    static const rn_pickle_value none = {0};
    return plain ? none : f->of[RN_TORCH_CATEGORY];
}

static uint32_t stream_index(rn_torch_reader *r, uint64_t stream) {
    const uint32_t most = sizeof r->streams / sizeof r->streams[0];
    uint32_t i = 0;
    while (i < r->stream_count && r->streams[i] != stream)
        i++;
    if (i == most) return most - 1;
    if (i == r->stream_count) r->streams[r->stream_count++] = stream;
    return i;
}

static rn_status make_entry(rn_torch_reader *r, const fields *f, rn_pickle_node *node) {
    rn_torch_entry *entry;
    void *block = NULL;
    RN_TRY(rn_arena_alloc(&r->pickle.arena, sizeof *entry, &block));
    entry = block;
    *entry = (rn_torch_entry){
        .addr = number_of(f, has(f, RN_TORCH_ADDR) ? RN_TORCH_ADDR : RN_TORCH_DEVICE_FREE),
        .size = number_of(f, RN_TORCH_SIZE),
        .time_us = number_of(f, RN_TORCH_TIME_US),
        .stream = stream_index(r, number_of(f, RN_TORCH_STREAM)),
        .action = (uint8_t)word_of(f->of[RN_TORCH_ACTION]),
        .purpose = (uint8_t)rn_foreign_purpose(text_of(f, RN_TORCH_CATEGORY)),
    };
    entry->group = group_of(f, entry->purpose);
    // Anything that is no list stands for "no frames".
    entry->frames = f->of[has(f, RN_TORCH_FRAMES) ? RN_TORCH_FRAMES : RN_TORCH_ACTION];
    *node = (rn_pickle_node){.kind = RN_PICKLE_RECORD, .type = RN_TORCH_RECORD_ENTRY};
    node->record = entry;
    return RN_OK;
}

static rn_status fold_dict(void *self, const rn_pickle_value *items, size_t count,
                           rn_pickle_node *node) {
    rn_torch_reader *r = self;
    rn_torch_frame *frame = NULL;
    fields f;
    collect(items, count, &f);
    if (has(&f, RN_TORCH_ACTION)) return make_entry(r, &f, node);
    if (!has(&f, RN_TORCH_FILENAME)) return RN_OK;
    RN_TRY(intern_frame(r, &f, &frame));
    *node = (rn_pickle_node){.kind = RN_PICKLE_RECORD, .type = RN_TORCH_RECORD_FRAME};
    node->record = frame;
    return RN_OK;
}

static void *record_of(rn_pickle_value value, uint8_t type) {
    const rn_pickle_node *node = rn_pickle_node_of(value);
    return node && node->kind == RN_PICKLE_RECORD && node->type == type ? node->record : NULL;
}

// A list of frames only; what lies far out of a deep stack is left out.
static rn_status fold_list(void *self, const rn_pickle_value *items, size_t count,
                           rn_pickle_node *node) {
    rn_torch_frame *frames[RN_TORCH_STACK_FRAMES];
    rn_torch_stack *stack = NULL;
    size_t kept = rn_min_u64(count, RN_TORCH_STACK_FRAMES);
    for (size_t i = 0; i < kept; i++)
        if (!(frames[i] = record_of(items[i], RN_TORCH_RECORD_FRAME))) return RN_OK;
    RN_TRY(intern_stack(self, frames, kept, &stack));
    *node = (rn_pickle_node){.kind = RN_PICKLE_RECORD, .type = RN_TORCH_RECORD_STACK};
    node->record = stack;
    return RN_OK;
}

rn_pickle_folder rn_torch_folder(rn_torch_reader *r) {
    return (rn_pickle_folder){.self = r, .dict = fold_dict, .list = fold_list};
}

// ---- what was not folded ------------------------------------------------------------------------

// Protocol 0 sets items one by one, so its dictionaries are offered only here.
static rn_status fold_late(rn_torch_reader *r, rn_pickle_value value) {
    rn_pickle_value items[64];
    rn_pickle_node *node = rn_pickle_node_of(value);
    size_t count = 0;
    if (!node || node->kind != RN_PICKLE_DICT) return RN_OK;
    rn_pickle_walk walk = rn_pickle_walk_begin(value);
    while (count < 64 && rn_pickle_walk_next(&walk, &items[count]))
        count++;
    return fold_dict(r, items, count, node);
}

rn_status rn_torch_entry_of(rn_torch_reader *r, rn_pickle_value value, rn_torch_entry **out) {
    *out = NULL;
    RN_TRY(fold_late(r, value));
    *out = record_of(value, RN_TORCH_RECORD_ENTRY);
    return RN_OK;
}

static rn_status stack_of(rn_torch_reader *r, rn_pickle_value value, rn_torch_stack **out) {
    rn_torch_frame *frames[RN_TORCH_STACK_FRAMES];
    size_t count = 0;
    rn_pickle_value item;
    *out = record_of(value, RN_TORCH_RECORD_STACK);
    if (*out || rn_pickle_kind_of(value) != RN_PICKLE_LIST) return RN_OK;
    rn_pickle_walk walk = rn_pickle_walk_begin(value);
    for (int i = 0; i < RN_TORCH_STACK_FRAMES && rn_pickle_walk_next(&walk, &item); i++) {
        RN_TRY(fold_late(r, item));
        frames[count] = record_of(item, RN_TORCH_RECORD_FRAME);
        if (frames[count]) count++;
    }
    return count ? intern_stack(r, frames, count, out) : RN_OK;
}

rn_status rn_torch_visit(rn_torch_reader *r) {
    if (++r->visited_count <= r->file_bytes) return RN_OK;
    return rn_fail(RN_CORRUPT, "the snapshot repeats itself: more blocks than %llu bytes can hold",
                   (unsigned long long)r->file_bytes);
}

// ---- names --------------------------------------------------------------------------------------

static bool contains(rn_str text, rn_str part) {
    for (size_t at = 0; at + part.bytes <= text.bytes; at++)
        if (rn_str_starts((rn_str){text.data + at, text.bytes - at}, part)) return true;
    return false;
}

// Frames of torch itself and of compiled code say how memory was asked for, not by whom.
static bool is_interesting(const rn_torch_frame *frame) {
    static const char *const compiled[] = {".cpp", ".h", ".hpp", ".c", ".cc", ".cu", ".so", "??"};
    rn_str file = frame->file;
    if (!file.bytes) return false;
    for (size_t i = 0; i < sizeof compiled / sizeof compiled[0]; i++)
        if (rn_str_ends(file, rn_str_from(compiled[i]))) return false;
    return !contains(file, RN_STR("/torch/")) && !rn_str_starts(file, RN_STR("torch/")) &&
           !rn_str_starts(file, RN_STR("<frozen")) && !contains(file, RN_STR(".so."));
}

static rn_str base_name(rn_str path) {
    size_t at = path.bytes;
    while (at && path.data[at - 1] != '/' && path.data[at - 1] != '\\')
        at--;
    return (rn_str){path.data + at, path.bytes - at};
}

static void append_frame(rn_foreign_text *text, const rn_torch_frame *frame, rn_str file) {
    rn_foreign_append(text, frame->function);
    if (!file.bytes) return;
    rn_foreign_append(text, RN_STR(" ("));
    rn_foreign_append(text, file);
    if (frame->line) rn_foreign_print(text, ":%llu", (unsigned long long)frame->line);
    rn_foreign_append(text, RN_STR(")"));
}

// The place of the first frame that says who asked: a line of the program, or in threads of the
// backward pass, where there is none, the node or the operation; 0 where none does.
static uint32_t choose_frame(const rn_torch_stack *stack) {
    static const char *const compiled[] = {"torch::autograd::generated::", "at::_ops::"};
    for (uint32_t i = 0; i < stack->count; i++)
        if (is_interesting(stack->frames[i])) return i;
    for (int k = 0; k < 2; k++)
        for (uint32_t i = 0; i < stack->count; i++)
            if (rn_str_starts(stack->frames[i]->function, rn_str_from(compiled[k]))) return i;
    return 0;
}

static rn_status name_stack(rn_torch_reader *r, rn_torch_stack *stack, rn_str group) {
    rn_foreign_text name = {.bytes = 0}, detail = {.bytes = 0}, clean = {.bytes = 0};
    uint32_t first = choose_frame(stack);
    append_frame(&name, stack->frames[first], base_name(stack->frames[first]->file));
    for (uint32_t i = first; i < stack->count && detail.bytes < sizeof detail.data; i++) {
        if (i > first) rn_foreign_append(&detail, RN_STR(" < "));
        append_frame(&detail, stack->frames[i], stack->frames[i]->file);
    }
    rn_foreign_append(&clean, group);
    return rn_timeline_add_name(r->timeline, rn_foreign_str(&name), rn_foreign_str(&clean),
                                rn_foreign_str(&detail), &stack->name);
}

rn_status rn_torch_name(rn_torch_reader *r, rn_pickle_value frames, rn_pickle_value group,
                        uint32_t *out) {
    rn_torch_stack *stack = NULL;
    rn_foreign_text clean = {.bytes = 0};
    rn_str text = group.word ? rn_pickle_text_of(group) : (rn_str){"", 0};
    *out = 0;
    RN_TRY(stack_of(r, frames, &stack));
    if (!stack) {
        rn_foreign_append(&clean, text);
        return rn_timeline_add_name(r->timeline, rn_foreign_str(&clean), RN_STR(""), RN_STR(""),
                                    out);
    }
    if (!stack->name || stack->group != group.word) {
        stack->group = group.word;
        RN_TRY(name_stack(r, stack, text));
    }
    *out = stack->name;
    return RN_OK;
}
