// export_pprof.c — the profile.proto of pprof, as Go's heap profiles are: bytes by who asked for
// them. Plain protobuf; readers take it without gzip, too.
//
//     leaf    what it is: the tensor's or holder's name
//             what it serves: the purpose
//             the operation that allocated it, the one around that, ...
//     root    the outermost operation
//
// Stacks are of names: a step that ran a thousand times is one stack. A frame's file is its block
// (layer), so `-files` sums layers up; labels are `purpose`, `device` and `lane`. Values are those
// of Go: alloc_objects and alloc_space of the whole recording, inuse_objects and inuse_space at its
// peak (in Go: now; a recording's now is its end, when little is left). Arenas are left out where
// their parts were recorded, for those are what is in use.
#include "profile/export/export.h"

#include "base/map.h"
#include "memory/account.h"

#include <stdio.h>

#define FROM (&rn_host_allocators[RN_PURPOSE_PROFILER])

// Fields of profile.proto: github.com/google/pprof/proto/profile.proto
enum {
    PROFILE_SAMPLE_TYPE = 1,
    PROFILE_SAMPLE = 2,
    PROFILE_LOCATION = 4,
    PROFILE_FUNCTION = 5,
    PROFILE_STRING = 6,
    PROFILE_TIME_NANOS = 9,
    PROFILE_DURATION_NANOS = 10,
    PROFILE_PERIOD_TYPE = 11,
    PROFILE_PERIOD = 12,
    PROFILE_COMMENT = 13,
    PROFILE_DEFAULT_TYPE = 14,
    TYPE_TYPE = 1,
    TYPE_UNIT = 2,
    SAMPLE_LOCATIONS = 1,
    SAMPLE_VALUES = 2,
    SAMPLE_LABEL = 3,
    LABEL_KEY = 1,
    LABEL_TEXT = 2,
    LOCATION_ID = 1,
    LOCATION_LINE = 4,
    LINE_FUNCTION = 1,
    FUNCTION_ID = 1,
    FUNCTION_NAME = 2,
    FUNCTION_SYSTEM_NAME = 3,
    FUNCTION_FILE = 4,
};

// The first strings; then purposes, devices, lanes, the comment, and name and block of each name.
static const char *const texts[] = {"",        "alloc_objects", "count",       "alloc_space",
                                    "bytes",   "inuse_objects", "inuse_space", "space",
                                    "purpose", "device",        "lane"};
enum { TEXT_SPACE = 7, TEXT_PURPOSE, TEXT_DEVICE, TEXT_LANE, TEXT_COUNT };
enum { VALUES = 4, MOST_FRAMES = 200 };

// Operations of one name under the same operations.
typedef struct stack {
    struct stack *outer; // NULL: none
    uint32_t name;
    uint32_t depth;
} stack;

typedef struct sample {
    struct sample_key {
        const stack *stack; // NULL: no operation
        uint32_t name, lane;
        uint16_t device, purpose;
    } key;
    int64_t values[VALUES];
    struct sample *next; // in the order in which they came up
} sample;

typedef struct pprof {
    const rn_timeline *t;
    rn_export_names names;
    rn_arena arena;
    rn_map stack_ids, sample_ids; // to pointers
    stack **stack_of;             // (op_count)
    sample *first, *last;
    bool *is_used; // (name_count + RN_PURPOSE_COUNT): functions
    rn_out out;
} pprof;

// ---- stacks and samples -------------------------------------------------------------------------

static rn_status find_stack(pprof *p, stack *outer, uint32_t name, stack **out) {
    struct {
        const stack *outer;
        uint64_t name;
    } key = {outer, name};
    uint64_t known;
    void *copy = NULL, *block = NULL;
    if (rn_map_find(&p->stack_ids, (rn_str){(const char *)&key, sizeof key}, &known)) {
        *out = (stack *)(uintptr_t)known;
        return RN_OK;
    }
    RN_TRY(rn_arena_copy(&p->arena, (const char *)&key, sizeof key, &copy));
    RN_TRY(rn_arena_alloc(&p->arena, sizeof(stack), &block));
    *out = block;
    **out = (stack){.outer = outer, .name = name, .depth = outer ? outer->depth + 1 : 1};
    return rn_map_add(&p->stack_ids, (rn_str){copy, sizeof key}, (uintptr_t)block, NULL);
}

// An operation's parent comes before it.
static rn_status find_stacks(pprof *p) {
    const rn_timeline *t = p->t;
    RN_TRY(rn_arena_array(&p->arena, t->op_count, sizeof *p->stack_of, (void **)&p->stack_of));
    for (uint32_t i = 0; i < t->op_count; i++) {
        uint32_t parent = t->ops[i].parent;
        stack *outer = parent == RN_NO_INDEX ? NULL : p->stack_of[parent];
        RN_TRY(find_stack(p, outer, t->ops[i].name, &p->stack_of[i]));
    }
    return RN_OK;
}

static rn_status find_sample(pprof *p, const rn_timeline_alloc *a, sample **out) {
    struct sample_key key; // with its padding, for it is compared as bytes
    uint64_t known;
    void *block = NULL;
    memset(&key, 0, sizeof key);
    key.stack = a->op == RN_NO_INDEX ? NULL : p->stack_of[a->op];
    key.name = a->name;
    key.lane = a->lane;
    key.device = a->device;
    key.purpose = a->purpose;
    if (rn_map_find(&p->sample_ids, (rn_str){(const char *)&key, sizeof key}, &known)) {
        *out = (sample *)(uintptr_t)known;
        return RN_OK;
    }
    RN_TRY(rn_arena_alloc(&p->arena, sizeof(sample), &block));
    *out = block;
    memset(*out, 0, sizeof **out);
    memcpy(&(*out)->key, &key, sizeof key);
    *(p->last ? &p->last->next : &p->first) = *out;
    p->last = *out;
    return rn_map_add(&p->sample_ids, (rn_str){(const char *)&(*out)->key, sizeof key},
                      (uintptr_t)block, NULL);
}

static rn_status collect(pprof *p, uint64_t peak_ns) {
    const rn_timeline *t = p->t;
    RN_TRY(find_stacks(p));
    for (uint32_t i = 0; i < t->alloc_count; i++) {
        const rn_timeline_alloc *a = &t->allocs[i];
        sample *s = NULL;
        if (!rn_is_in_use(a)) continue;
        RN_TRY(find_sample(p, a, &s));
        bool is_live = a->begin_ns <= peak_ns && peak_ns < a->end_ns;
        s->values[0]++;
        s->values[1] += (int64_t)a->bytes; // all together below RN_TIMELINE_MAX_SUM
        s->values[2] += is_live;
        s->values[3] += is_live ? (int64_t)a->bytes : 0;
    }
    return RN_OK;
}

// ---- protobuf -----------------------------------------------------------------------------------

// A message within another: its length comes first, so it is collected.
typedef struct message {
    uint8_t data[4096];
    size_t bytes;
} message;

static void add_varint(message *m, uint64_t value) {
    if (m->bytes + 10 > sizeof m->data) return; // MOST_FRAMES fit
    for (; value >= 128; value >>= 7)
        m->data[m->bytes++] = (uint8_t)(value | 128);
    m->data[m->bytes++] = (uint8_t)value;
}

static void add_number(message *m, int field, uint64_t value) {
    if (value == 0) return;
    add_varint(m, (uint64_t)field << 3);
    add_varint(m, value);
}

static void add_message(message *m, int field, const message *inner) {
    if (m->bytes + inner->bytes + 20 > sizeof m->data) return;
    add_varint(m, (uint64_t)field << 3 | 2);
    add_varint(m, inner->bytes);
    memcpy(m->data + m->bytes, inner->data, inner->bytes);
    m->bytes += inner->bytes;
}

static void put_bytes(pprof *p, int field, const void *data, size_t bytes) {
    message head = {.bytes = 0};
    add_varint(&head, (uint64_t)field << 3 | 2);
    add_varint(&head, bytes);
    rn_out_put(&p->out, head.data, head.bytes);
    rn_out_put(&p->out, data, bytes);
}

static void put_message(pprof *p, int field, const message *m) {
    put_bytes(p, field, m->data, m->bytes);
}

static void put_number(pprof *p, int field, uint64_t value) {
    message m = {.bytes = 0};
    add_number(&m, field, value);
    rn_out_put(&p->out, m.data, m.bytes);
}

// ---- strings and functions ----------------------------------------------------------------------

static uint64_t text_of_purpose(unsigned purpose) {
    return TEXT_COUNT + (uint64_t)purpose;
}

static uint64_t text_of_device(const pprof *p, unsigned device) {
    return device < p->t->device_count ? TEXT_COUNT + RN_PURPOSE_COUNT + (uint64_t)device : 0;
}

static uint64_t text_of_lane(const pprof *p, uint32_t lane) {
    return TEXT_COUNT + RN_PURPOSE_COUNT + (uint64_t)p->t->device_count + lane;
}

static uint64_t text_of_comment(const pprof *p) {
    return text_of_lane(p, p->t->lane_count);
}

static uint64_t text_of_name(const pprof *p, uint32_t name, bool block) {
    return text_of_comment(p) + 1 + 2 * (uint64_t)name + block;
}

// A function and its one location have the same number, from 1: names, then purposes.
static uint64_t function_of_name(uint32_t name) {
    return (uint64_t)name + 1;
}

static uint64_t function_of_purpose(const pprof *p, unsigned purpose) {
    return p->t->name_count + (uint64_t)purpose + 1;
}

static void put_strings(pprof *p, const char *comment) {
    const rn_timeline *t = p->t;
    for (size_t i = 0; i < TEXT_COUNT; i++)
        put_bytes(p, PROFILE_STRING, texts[i], strlen(texts[i]));
    for (int i = 0; i < RN_PURPOSE_COUNT; i++) {
        const char *text = rn_purpose_name((rn_purpose)i);
        put_bytes(p, PROFILE_STRING, text, strlen(text));
    }
    for (uint32_t i = 0; i < t->device_count; i++)
        put_bytes(p, PROFILE_STRING, p->names.devices[i].data, p->names.devices[i].bytes);
    for (uint32_t i = 0; i < t->lane_count; i++)
        put_bytes(p, PROFILE_STRING, p->names.lanes[i].data, p->names.lanes[i].bytes);
    put_bytes(p, PROFILE_STRING, comment, strlen(comment));
    for (uint32_t i = 0; i < t->name_count; i++) {
        rn_str name = p->names.names[i].name, block = p->names.names[i].group;
        if (!p->is_used[i]) name = block = (rn_str){"", 0};
        if (p->is_used[i] && !name.bytes) name = RN_STR("(unnamed)");
        put_bytes(p, PROFILE_STRING, name.data, name.bytes);
        put_bytes(p, PROFILE_STRING, block.data, block.bytes);
    }
}

static void put_function(pprof *p, uint64_t id, uint64_t name, uint64_t file) {
    message function = {.bytes = 0}, location = {.bytes = 0}, line = {.bytes = 0};
    add_number(&function, FUNCTION_ID, id);
    add_number(&function, FUNCTION_NAME, name);
    add_number(&function, FUNCTION_SYSTEM_NAME, name);
    add_number(&function, FUNCTION_FILE, file);
    put_message(p, PROFILE_FUNCTION, &function);
    add_number(&line, LINE_FUNCTION, id);
    add_number(&location, LOCATION_ID, id);
    add_message(&location, LOCATION_LINE, &line);
    put_message(p, PROFILE_LOCATION, &location);
}

static void put_functions(pprof *p) {
    for (uint32_t i = 0; i < p->t->name_count; i++)
        if (p->is_used[i])
            put_function(p, function_of_name(i), text_of_name(p, i, false),
                         text_of_name(p, i, true));
    for (unsigned i = 0; i < RN_PURPOSE_COUNT; i++)
        if (p->is_used[p->t->name_count + i])
            put_function(p, function_of_purpose(p, i), text_of_purpose(i), 0);
}

// ---- samples ------------------------------------------------------------------------------------

static void add_label(message *m, uint64_t key, uint64_t text) {
    message label = {.bytes = 0};
    if (!text) return;
    add_number(&label, LABEL_KEY, key);
    add_number(&label, LABEL_TEXT, text);
    add_message(m, SAMPLE_LABEL, &label);
}

// From the leaf to the root. Of operations deeper than any program's only the innermost are there.
static void put_sample(pprof *p, const sample *s) {
    message m = {.bytes = 0}, frames = {.bytes = 0}, values = {.bytes = 0};
    int count = 0;
    if (s->key.name) {
        add_varint(&frames, function_of_name(s->key.name));
        p->is_used[s->key.name] = true;
    }
    add_varint(&frames, function_of_purpose(p, s->key.purpose));
    p->is_used[p->t->name_count + s->key.purpose] = true;
    for (const stack *at = s->key.stack; at && count < MOST_FRAMES; at = at->outer, count++) {
        add_varint(&frames, function_of_name(at->name));
        p->is_used[at->name] = true;
    }
    for (int i = 0; i < VALUES; i++)
        add_varint(&values, (uint64_t)s->values[i]);
    add_message(&m, SAMPLE_LOCATIONS, &frames);
    add_message(&m, SAMPLE_VALUES, &values);
    add_label(&m, TEXT_PURPOSE, text_of_purpose(s->key.purpose));
    add_label(&m, TEXT_DEVICE, text_of_device(p, s->key.device));
    add_label(&m, TEXT_LANE, text_of_lane(p, s->key.lane));
    put_message(p, PROFILE_SAMPLE, &m);
}

static void put_type(pprof *p, int field, uint64_t type, uint64_t unit) {
    message m = {.bytes = 0};
    add_number(&m, TYPE_TYPE, type);
    add_number(&m, TYPE_UNIT, unit);
    put_message(p, field, &m);
}

static void put_profile(pprof *p, uint64_t peak_ns) {
    enum { ALLOC_OBJECTS = 1, COUNT, ALLOC_SPACE, BYTES, INUSE_OBJECTS, INUSE_SPACE };
    char comment[128];
    snprintf(comment, sizeof comment,
             "inuse is when most was in use, %.6f s after the beginning; alloc is of the whole "
             "recording",
             (double)peak_ns / 1e9);
    put_type(p, PROFILE_SAMPLE_TYPE, ALLOC_OBJECTS, COUNT);
    put_type(p, PROFILE_SAMPLE_TYPE, ALLOC_SPACE, BYTES);
    put_type(p, PROFILE_SAMPLE_TYPE, INUSE_OBJECTS, COUNT);
    put_type(p, PROFILE_SAMPLE_TYPE, INUSE_SPACE, BYTES);
    for (const sample *s = p->first; s; s = s->next)
        put_sample(p, s);
    put_functions(p);
    put_strings(p, comment);
    put_number(p, PROFILE_TIME_NANOS, p->t->start_unix_ns);
    put_number(p, PROFILE_DURATION_NANOS, p->t->end_ns);
    put_type(p, PROFILE_PERIOD_TYPE, TEXT_SPACE, BYTES);
    put_number(p, PROFILE_PERIOD, 1);
    put_number(p, PROFILE_COMMENT, text_of_comment(p));
    put_number(p, PROFILE_DEFAULT_TYPE, INUSE_SPACE);
}

// When the most was in use, on all devices together.
static uint64_t find_peak(const rn_timeline *t) {
    uint64_t bytes = 0, most = 0, peak_ns = 0;
    rn_change_walk walk;
    rn_change change;
    rn_change_walk_begin(&walk, t);
    while (rn_change_walk_next(&walk, &change)) {
        const rn_timeline_alloc *a = &t->allocs[change.alloc];
        if (rn_is_in_use(a)) bytes += change.is_end ? 0 - a->bytes : a->bytes;
        if (bytes > most) {
            most = bytes;
            peak_ns = change.time_ns;
        }
    }
    return peak_ns;
}

static rn_status write_profile(pprof *p, rn_sink sink) {
    uint64_t peak_ns = find_peak(p->t);
    size_t functions = (size_t)p->t->name_count + RN_PURPOSE_COUNT;
    RN_TRY(rn_arena_array(&p->arena, functions, sizeof *p->is_used, (void **)&p->is_used));
    RN_TRY(collect(p, peak_ns));
    RN_TRY(rn_out_open(&p->out, sink));
    put_profile(p, peak_ns);
    return rn_out_close(&p->out);
}

rn_status rn_export_pprof(const rn_timeline *t, rn_sink sink) {
    pprof p = {.t = t};
    RN_TRY(rn_export_names_make(t, &p.names));
    rn_arena_init(&p.arena, FROM, 0);
    rn_map_init(&p.stack_ids, FROM);
    rn_map_init(&p.sample_ids, FROM);
    rn_status s = write_profile(&p, sink);
    rn_map_free(&p.sample_ids);
    rn_map_free(&p.stack_ids);
    rn_arena_free_all(&p.arena);
    rn_export_names_free(&p.names);
    return s;
}
