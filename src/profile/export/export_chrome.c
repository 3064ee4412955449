// export_chrome.c — Chrome's trace format, for Perfetto, chrome://tracing and speedscope.
//
//     M  names of the process and its lanes: tid = lane + 1, queues of devices below threads
//     X  operations; a timeline's nest, so they do on their lane
//     C  what is in use on each device by purpose, and what is reserved; limits and predictions
//     i  marks (on the whole picture) and moves (on their lane)
//     b, e  single allocations, where there are few
//
// Times are microseconds with three decimals: nanoseconds, exactly. Every sample of a counter has
// all of its series, because chrome://tracing stacks them by position; and a device has at most
// MAX_SAMPLES, because viewers give up on files of some hundred megabytes. Where there are more
// changes, each of BUCKETS equal spans keeps the sample with the most in use and its last: no peak
// of what is in use is lost.
#include "memory/account.h"
#include "profile/export/export.h"

#define MAX_SAMPLES 200000
#define BUCKETS     (MAX_SAMPLES / 2)
// Each allocation is a row of its own in the viewers: above some ten thousand they are no picture
// any more, and slow. The counters tell their sums in any case.
#define MAX_ROWS 20000

typedef struct chrome {
    const rn_timeline *t;
    rn_export_names names;
    rn_out out;
    bool any; // events so far
} chrome;

// ---- pieces -------------------------------------------------------------------------------------

static void put_us(chrome *c, uint64_t ns) {
    unsigned rest = (unsigned)(ns % 1000);
    rn_out_u64(&c->out, ns / 1000);
    rn_out_put(&c->out,
               (char[]){'.', (char)('0' + rest / 100), (char)('0' + rest / 10 % 10),
                        (char)('0' + rest % 10)},
               4);
}

static void begin_event(chrome *c, const char *phase, rn_str name) {
    rn_out_text(&c->out, c->any ? ",\n{\"ph\":\"" : "\n{\"ph\":\"");
    c->any = true;
    rn_out_text(&c->out, phase);
    rn_out_text(&c->out, "\",\"name\":");
    rn_out_quoted(&c->out, name);
    rn_out_text(&c->out, ",\"pid\":1");
}

static void put_at(chrome *c, uint64_t time_ns) {
    rn_out_text(&c->out, ",\"ts\":");
    put_us(c, time_ns);
}

static void put_tid(chrome *c, uint32_t lane) {
    rn_out_text(&c->out, ",\"tid\":");
    rn_out_u64(&c->out, (uint64_t)lane + 1);
}

// Arguments: `*open` says whether there are some already.
static void put_key(chrome *c, bool *open, const char *key) {
    rn_out_text(&c->out, *open ? ",\"" : ",\"args\":{\"");
    rn_out_text(&c->out, key);
    rn_out_text(&c->out, "\":");
    *open = true;
}

static void put_text(chrome *c, bool *open, const char *key, rn_str value) {
    if (!value.bytes) return;
    put_key(c, open, key);
    rn_out_quoted(&c->out, value);
}

static void put_u64(chrome *c, bool *open, const char *key, uint64_t value) {
    if (!value) return;
    put_key(c, open, key);
    rn_out_u64(&c->out, value);
}

static void put_i64(chrome *c, bool *open, const char *key, int64_t value) {
    if (!value) return;
    put_key(c, open, key);
    rn_out_i64(&c->out, value);
}

static void end_event(chrome *c, bool open) {
    rn_out_text(&c->out, open ? "}}" : "}");
}

static rn_str device_name(const chrome *c, uint8_t device) {
    return device < c->t->device_count ? c->names.devices[device] : RN_STR("disk");
}

// ---- names --------------------------------------------------------------------------------------

static void put_process(chrome *c, rn_str name) {
    bool open = false;
    begin_event(c, "M", RN_STR("process_name"));
    put_text(c, &open, "name", name.bytes ? name : RN_STR("ration"));
    end_event(c, open);
}

static void put_lane(chrome *c, uint32_t lane) {
    bool open = false;
    rn_str name = c->names.lanes[lane];
    begin_event(c, "M", RN_STR("thread_name"));
    put_tid(c, lane);
    put_text(c, &open, "name",
             name.bytes                   ? name
             : c->t->lanes[lane].is_queue ? RN_STR("queue")
                                          : RN_STR("thread"));
    end_event(c, open);
    open = false;
    begin_event(c, "M", RN_STR("thread_sort_index"));
    put_tid(c, lane);
    put_u64(c, &open, "sort_index",
            (c->t->lanes[lane].is_queue ? (uint64_t)c->t->lane_count : 0) + lane + 1);
    end_event(c, open);
}

// ---- operations, marks, moves -------------------------------------------------------------------

static void put_op(chrome *c, const rn_timeline_op *op) {
    const rn_export_label *name = &c->names.names[op->name];
    bool open = false;
    begin_event(c, "X", rn_export_op_name(&c->names, op));
    rn_out_text(&c->out, ",\"cat\":\"op\"");
    put_tid(c, op->lane);
    put_at(c, op->begin_ns);
    rn_out_text(&c->out, ",\"dur\":");
    put_us(c, op->end_ns - op->begin_ns);
    put_text(c, &open, "block", name->group);
    put_text(c, &open, "shapes", name->detail);
    put_i64(c, &open, "delta_bytes", op->delta_bytes);
    put_i64(c, &open, "inner_delta_bytes", op->inner_delta_bytes);
    put_u64(c, &open, "allocated_bytes", op->allocated_bytes);
    put_u64(c, &open, "peak_bytes", op->peak_bytes);
    put_u64(c, &open, "allocations", op->alloc_count);
    put_u64(c, &open, "releases", op->free_count);
    if (op->unfinished) put_text(c, &open, "unfinished", RN_STR("no end was seen"));
    end_event(c, open);
}

static void put_mark(chrome *c, const rn_timeline_mark *mark) {
    bool open = false;
    rn_str name = c->names.names[mark->name].name;
    rn_str kind = rn_str_from(rn_mark_name(mark->kind));
    begin_event(c, "i", name.bytes ? name : kind);
    rn_out_text(&c->out, ",\"cat\":\"mark\",\"s\":\"g\"");
    put_tid(c, mark->lane);
    put_at(c, mark->time_ns);
    put_text(c, &open, "kind", kind);
    put_u64(c, &open, "bytes", mark->bytes);
    if (mark->device < c->t->device_count && mark->bytes)
        put_text(c, &open, "device", c->names.devices[mark->device]);
    end_event(c, open);
}

static void put_move(chrome *c, const rn_timeline_move *move) {
    bool open = false;
    rn_str name = c->names.names[move->name].name;
    begin_event(c, "i", name.bytes ? name : RN_STR("move"));
    rn_out_text(&c->out, ",\"cat\":\"move\",\"s\":\"t\"");
    put_tid(c, move->lane);
    put_at(c, move->time_ns);
    put_text(c, &open, "from", device_name(c, move->from));
    put_text(c, &open, "to", device_name(c, move->to));
    put_u64(c, &open, "bytes", move->bytes);
    end_event(c, open);
}

// ---- counters of memory -------------------------------------------------------------------------

// "memory host"; what a counter is called does not depend on the order of events.
static void begin_counter(chrome *c, const char *what, rn_str device, uint64_t time_ns) {
    rn_out_text(&c->out, c->any ? ",\n{\"ph\":\"C\",\"name\":" : "\n{\"ph\":\"C\",\"name\":");
    c->any = true;
    char text[160];
    size_t bytes = strlen(what), rest = sizeof text - bytes - 1;
    memcpy(text, what, bytes);
    text[bytes++] = ' ';
    if (device.bytes < rest) rest = device.bytes;
    while (rest && rest < device.bytes && ((unsigned char)device.data[rest] & 0xC0) == 0x80)
        rest--; // a long name is cut between characters
    memcpy(text + bytes, device.data, rest);
    rn_out_quoted(&c->out, (rn_str){text, device.bytes ? bytes + rest : bytes - 1});
    rn_out_text(&c->out, ",\"pid\":1");
    put_at(c, time_ns);
    rn_out_text(&c->out, ",\"args\":{");
}

typedef struct sampler {
    chrome *c;
    uint8_t device;
    uint32_t purposes; // bit p: the device has it
    bool has_arenas;
    rn_timeline_level written; // the last sample
    bool any;
} sampler;

static void put_sample(sampler *s, const rn_timeline_level *level) {
    chrome *c = s->c;
    rn_str device = c->names.devices[s->device];
    const char *comma = "";
    if (s->any &&
        memcmp(level->purpose_bytes, s->written.purpose_bytes, sizeof level->purpose_bytes) == 0 &&
        level->reserved_bytes == s->written.reserved_bytes)
        return;
    begin_counter(c, "memory", device, level->time_ns);
    for (int p = 0; p < RN_PURPOSE_COUNT; p++) {
        if (!(s->purposes & 1u << p)) continue;
        rn_out_text(&c->out, comma);
        rn_out_quoted(&c->out, rn_str_from(rn_purpose_name((rn_purpose)p)));
        rn_out_put(&c->out, ":", 1);
        rn_out_u64(&c->out, level->purpose_bytes[p]);
        comma = ",";
    }
    rn_out_text(&c->out, "}}");
    if (s->has_arenas && (!s->any || level->reserved_bytes != s->written.reserved_bytes)) {
        begin_counter(c, "reserved", device, level->time_ns);
        rn_out_text(&c->out, "\"bytes\":");
        rn_out_u64(&c->out, level->reserved_bytes);
        rn_out_text(&c->out, "}}");
    }
    s->written = *level;
    s->any = true;
}

// Keeps of each span of time the highest sample and the last.
static void put_thinned(sampler *s, rn_timeline_walk *walk) {
    rn_timeline_level high = {0}, last = {0};
    uint64_t width = s->c->t->end_ns / BUCKETS + 1, bucket = UINT64_MAX;
    while (rn_timeline_walk_next(walk)) {
        if (walk->level.time_ns / width != bucket) {
            if (bucket != UINT64_MAX) {
                put_sample(s, &high);
                put_sample(s, &last);
            }
            bucket = walk->level.time_ns / width;
            high = walk->level;
        }
        last = walk->level;
        if (last.active_bytes > high.active_bytes) high = last;
    }
    put_sample(s, &high);
    put_sample(s, &last);
}

static void put_memory(chrome *c, uint8_t device) {
    sampler s = {.c = c, .device = device};
    rn_timeline_walk walk;
    uint64_t changes = 0;
    for (uint32_t i = 0; i < c->t->alloc_count; i++) {
        const rn_timeline_alloc *a = &c->t->allocs[i];
        if (a->device != device) continue;
        if (rn_is_in_use(a)) s.purposes |= 1u << a->purpose;
        s.has_arenas |= a->is_arena;
        changes += 2;
    }
    if (!changes) return;
    rn_timeline_walk_begin(&walk, c->t, device);
    if (changes > MAX_SAMPLES) {
        put_thinned(&s, &walk);
        return;
    }
    while (rn_timeline_walk_next(&walk))
        put_sample(&s, &walk.level);
}

// ---- other counters -----------------------------------------------------------------------------

static const char *counter_name(const rn_timeline_counter *counter) {
    static const char *const kinds[RN_COUNTER_COUNT] = {
        [RN_COUNTER_OTHER] = "counter",
        [RN_COUNTER_RESIDENT] = "resident",
        [RN_COUNTER_BUDGET] = "budget",
        [RN_COUNTER_PREDICTED] = "predicted",
        [RN_COUNTER_PREDICTED_PEAK] = "predicted peak",
    };
    return kinds[counter->kind];
}

static void put_counters(chrome *c) {
    uint64_t written[RN_COUNTER_COUNT][RN_DEVICE_MAX + 1]; // on change only; the last is no device
    memset(written, 0xff, sizeof written);
    for (uint32_t i = 0; i < c->t->counter_count; i++) {
        const rn_timeline_counter *counter = &c->t->counters[i];
        uint32_t device = counter->device < RN_DEVICE_MAX ? counter->device : RN_DEVICE_MAX;
        rn_str where = device < c->t->device_count ? c->names.devices[device] : RN_STR("");
        rn_str own = c->names.names[counter->name].name;
        bool is_other = counter->kind == RN_COUNTER_OTHER;
        if (!is_other && written[counter->kind][device] == counter->value) continue;
        if (counter->kind == RN_COUNTER_BUDGET && counter->value == RN_NO_LIMIT) continue;
        written[counter->kind][device] = counter->value;
        begin_counter(c, counter_name(counter), is_other && own.bytes ? own : where,
                      counter->time_ns);
        rn_out_text(&c->out, is_other ? "\"value\":" : "\"bytes\":");
        rn_out_u64(&c->out, counter->value);
        rn_out_text(&c->out, "}}");
    }
}

// ---- single allocations -------------------------------------------------------------------------

static void begin_row(chrome *c, const char *phase, uint32_t index, uint64_t time_ns) {
    const rn_timeline_alloc *a = &c->t->allocs[index];
    begin_event(c, phase, rn_export_alloc_name(&c->names, a));
    rn_out_text(&c->out, ",\"cat\":\"memory\",\"id\":\"");
    rn_out_u64(&c->out, index);
    rn_out_put(&c->out, "\"", 1);
    put_tid(c, a->lane);
    put_at(c, time_ns);
}

static void put_row(chrome *c, uint32_t index) {
    const rn_timeline_alloc *a = &c->t->allocs[index];
    bool open = false;
    begin_row(c, "b", index, a->begin_ns);
    put_u64(c, &open, "bytes", a->bytes);
    put_text(c, &open, "purpose", rn_str_from(rn_purpose_name((rn_purpose)a->purpose)));
    put_text(c, &open, "device", c->names.devices[a->device]);
    put_text(c, &open, "shape", c->names.names[a->name].detail);
    put_text(c, &open, "block", c->names.names[a->name].group);
    end_event(c, open);
    open = false;
    bool live = a->end_ns == RN_STILL_LIVE;
    begin_row(c, "e", index, live ? c->t->end_ns : a->end_ns);
    if (live) put_text(c, &open, "live", RN_STR("at the end of the recording"));
    end_event(c, open);
}

static void put_rows(chrome *c) {
    if (c->t->alloc_count > MAX_ROWS) return;
    for (uint32_t i = 0; i < c->t->alloc_count; i++)
        put_row(c, i);
}

// ---- all of it ----------------------------------------------------------------------------------

static void put_events(chrome *c, rn_str command) {
    const rn_timeline *t = c->t;
    put_process(c, command);
    for (uint32_t i = 0; i < t->lane_count; i++)
        put_lane(c, i);
    for (uint32_t i = 0; i < t->op_count; i++)
        put_op(c, &t->ops[i]);
    for (uint32_t i = 0; i < t->device_count; i++)
        put_memory(c, (uint8_t)i);
    put_counters(c);
    for (uint32_t i = 0; i < t->mark_count; i++)
        put_mark(c, &t->marks[i]);
    for (uint32_t i = 0; i < t->move_count; i++)
        put_move(c, &t->moves[i]);
    put_rows(c);
}

static rn_status put_document(chrome *c) {
    rn_str command;
    RN_TRY(rn_export_clean(&c->names.arena, c->t->command, &command));
    rn_out_text(&c->out, "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"source\":");
    rn_out_quoted(&c->out, rn_str_from(c->t->format));
    rn_out_text(&c->out, ",\"start_unix_ns\":\"");
    rn_out_u64(&c->out, c->t->start_unix_ns);
    rn_out_text(&c->out, "\"},\"traceEvents\":[");
    put_events(c, command);
    rn_out_text(&c->out, "\n]}\n");
    return RN_OK;
}

rn_status rn_export_chrome(const rn_timeline *t, rn_sink sink) {
    chrome c = {.t = t};
    RN_TRY(rn_export_names_make(t, &c.names));
    rn_status s = rn_out_open(&c.out, sink);
    if (s == RN_OK) {
        s = put_document(&c);
        rn_status closed = rn_out_close(&c.out);
        if (s == RN_OK) s = closed;
    }
    rn_export_names_free(&c.names);
    return s;
}
