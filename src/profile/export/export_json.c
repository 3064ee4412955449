// export_json.c — the seed's JSON document: metadata, tensors and PyTorch's operations; the rest is
// in export_json_snapshots.c and export_json_operations.c.
//
// Devices are called as PyTorch calls them: the host is "cpu", one device with a "cpu" that
// PyTorch's own tensors may have brought along.
#include "profile/export/export_json.h"

#include "io/json_read.h"
#include "memory/account.h"

#include <stdio.h>
#include <time.h>

#define FROM (&rn_host_allocators[RN_PURPOSE_PROFILER])

// ---- values -------------------------------------------------------------------------------------

// Seconds repeat: thousands of events have the same one.
static void write_prefix(rn_json_export *x, int64_t second) {
    struct tm tm;
    time_t when = (time_t)second;
    if (x->prefix[0] && second == x->second) return;
    x->second = second;
    if (!localtime_r(&when, &tm)) tm = (struct tm){.tm_mday = 1, .tm_year = 70};
    strftime(x->prefix, sizeof x->prefix, "%Y-%m-%dT%H:%M:%S", &tm);
}

static void put_time(rn_json_export *x, const char *key, uint64_t unix_ns) {
    char text[40];
    write_prefix(x, (int64_t)(unix_ns / 1000000000));
    snprintf(text, sizeof text, "%s.%06u", x->prefix, (unsigned)(unix_ns / 1000 % 1000000));
    rn_json_string(&x->json, key, text);
}

void rn_json_export_time(rn_json_export *x, const char *key, uint64_t time_ns) {
    put_time(x, key, x->timeline->start_unix_ns + time_ns);
}

void rn_json_export_mb(rn_json_export *x, const char *key, double bytes) {
    rn_json_f64(&x->json, key, bytes / 1048576);
}

void rn_json_export_shape(rn_json_export *x, const char *key, const rn_export_shape *shape) {
    rn_json_array(&x->json, key);
    for (size_t i = 0; i < shape->count; i++)
        rn_json_i64(&x->json, NULL, shape->dims[i]);
    rn_json_end(&x->json);
}

bool rn_json_export_is_persistent(const rn_timeline_alloc *alloc) {
    return alloc->purpose == RN_PURPOSE_WEIGHTS || alloc->purpose == RN_PURPOSE_KV ||
           alloc->purpose == RN_PURPOSE_OPTIMIZER;
}

// Said of each tensor in its label; what has none was never seen as a tensor.
static bool requires_grad(const rn_export_label *label) {
    return rn_str_ends(label->detail, RN_STR(RN_REQUIRES_GRAD));
}

void rn_json_export_device(rn_json_export *x, const char *key, uint8_t device) {
    rn_json_text(&x->json, key, x->names.devices[x->device_of[device]]);
}

static void put_purpose(rn_json_export *x, const rn_timeline_alloc *a) {
    rn_json_string(&x->json, "purpose", rn_purpose_name((rn_purpose)a->purpose));
}

static void put_habits(rn_json_export *x, const rn_timeline_alloc *a) {
    rn_json_bool(&x->json, "is_persistent", rn_json_export_is_persistent(a));
    rn_json_bool(&x->json, "is_reusable", a->inner);
}

static void put_tensor_size(rn_json_export *x, const rn_timeline_alloc *a) {
    rn_json_u64(&x->json, "size_bytes", a->bytes);
    rn_json_export_mb(x, "size_mb", (double)a->bytes);
}

void rn_json_export_tensor(rn_json_export *x, uint32_t alloc) {
    const rn_timeline_alloc *a = &x->timeline->allocs[alloc];
    const rn_export_label *name = &x->names.names[a->name];
    rn_str rest = name->detail;
    rn_export_shape shape;
    rn_export_shape_next(&rest, &shape);
    rn_json_u64(&x->json, "tensor_id", alloc);
    put_tensor_size(x, a);
    rn_json_export_shape(x, "shape", &shape);
    rn_json_text(&x->json, "dtype", shape.dtype);
    rn_json_export_device(x, "device", a->device);
    rn_json_bool(&x->json, "requires_grad", requires_grad(name));
    const rn_timeline_op *op = a->op == RN_NO_INDEX ? NULL : &x->timeline->ops[a->op];
    rn_json_text(&x->json, "allocated_by",
                 op ? rn_export_op_name(&x->names, op) : RN_STR("unknown"));
    put_purpose(x, a);
    put_habits(x, a);
    if (op)
        rn_json_text(&x->json, "operation", rn_export_op_name(&x->names, op));
    else
        rn_json_null(&x->json, "operation");
    if (name->name.bytes) rn_json_text(&x->json, "name", name->name);
    if (name->group.bytes) rn_json_text(&x->json, "block", name->group);
}

// ---- metadata -----------------------------------------------------------------------------------

static uint64_t now_unix_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static uint64_t tensor_count(const rn_timeline *t) {
    uint64_t count = 0;
    for (uint32_t i = 0; i < t->alloc_count; i++)
        count += rn_json_counts(&t->allocs[i]);
    return count;
}

static bool has_operands(const rn_timeline *t) {
    for (uint32_t i = 0; i < t->op_count; i++)
        if (t->ops[i].operands) return true;
    return false;
}

// What is left out stands here; without these keys everything is there.
static void put_omissions(rn_json_export *x) {
    const rn_timeline *t = x->timeline;
    uint64_t tensors = tensor_count(t);
    if (x->snapshot_omitted_count)
        rn_json_u64(&x->json, "snapshots_omitted", x->snapshot_omitted_count);
    if (tensors > RN_JSON_LIFECYCLES)
        rn_json_u64(&x->json, "tensor_lifecycles_omitted", tensors - RN_JSON_LIFECYCLES);
    if (t->op_count > RN_JSON_OPERATIONS)
        rn_json_u64(&x->json, "operations_omitted", t->op_count - RN_JSON_OPERATIONS);
    if (t->dropped_count) rn_json_u64(&x->json, "dropped_events", t->dropped_count);
}

static rn_status put_texts(rn_json_export *x) {
    const rn_timeline *t = x->timeline;
    rn_str command, reason;
    RN_TRY(rn_export_clean(&x->names.arena, t->command, &command));
    RN_TRY(rn_export_clean(&x->names.arena, t->reason, &reason));
    rn_json_string(&x->json, "source", t->format);
    rn_json_text(&x->json, "command", command);
    rn_json_text(&x->json, "end_reason", reason);
    rn_json_array(&x->json, "notes");
    for (uint32_t i = 0; i < t->note_count; i++)
        rn_json_string(&x->json, NULL, t->notes[i]);
    rn_json_end(&x->json);
    return RN_OK;
}

static rn_status put_metadata(rn_json_export *x) {
    const rn_timeline *t = x->timeline;
    rn_json_object(&x->json, "metadata");
    put_time(x, "generated_at", now_unix_ns());
    rn_json_u64(&x->json, "num_snapshots", x->snapshot_count);
    rn_json_bool(&x->json, "operation_tracking_enabled", t->op_count > 0);
    rn_json_bool(&x->json, "pytorch_ops_tracking_enabled", t->torch_op_count > 0);
    rn_json_bool(&x->json, "tensor_lifecycle_tracking_enabled", t->alloc_count > 0);
    rn_json_bool(&x->json, "operation_log_enabled", t->op_count > 0);
    rn_json_u64(&x->json, "mb_is", 1048576);
    rn_json_bool(&x->json, "tensor_accesses_recorded", has_operands(t));
    rn_json_bool(&x->json, "profiler_memory_counted", false);
    rn_json_export_time(x, "started_at", 0);
    rn_json_f64(&x->json, "seconds", (double)t->end_ns / 1e9);
    rn_json_u64(&x->json, "peak_bytes", x->peak_bytes);
    rn_json_u64(&x->json, "peak_reserved_bytes", rn_timeline_peak(t, RN_DEVICE_ANY).reserved_bytes);
    RN_TRY(put_texts(x));
    put_omissions(x);
    rn_json_end(&x->json);
    return RN_OK;
}

// ---- tensors from begin to end ------------------------------------------------------------------

static void put_event(rn_json_export *x, uint32_t index, const char *type, rn_str operation,
                      uint64_t time_ns, const rn_export_shape *shape) {
    rn_json_object(&x->json, NULL);
    rn_json_u64(&x->json, "tensor_id", index);
    rn_json_string(&x->json, "event_type", type);
    rn_json_text(&x->json, "operation", operation);
    rn_json_export_time(x, "timestamp", time_ns);
    rn_json_export_mb(x, "size_mb", (double)x->timeline->allocs[index].bytes);
    rn_json_export_shape(x, "shape", shape);
    rn_json_end(&x->json);
}

static void put_lifecycle(rn_json_export *x, uint32_t index) {
    const rn_timeline_alloc *a = &x->timeline->allocs[index];
    char key[16];
    rn_str rest = x->names.names[a->name].detail;
    rn_export_shape shape;
    rn_export_shape_next(&rest, &shape);
    snprintf(key, sizeof key, "%u", index);
    rn_json_object(&x->json, key);
    put_purpose(x, a);
    put_tensor_size(x, a);
    rn_json_export_shape(x, "shape", &shape);
    put_habits(x, a);
    rn_json_export_device(x, "device", a->device);
    rn_json_array(&x->json, "events");
    put_event(x, index, "allocated",
              a->op == RN_NO_INDEX ? RN_STR("unknown")
                                   : rn_export_op_name(&x->names, &x->timeline->ops[a->op]),
              a->begin_ns, &shape);
    if (a->end_ns != RN_STILL_LIVE)
        put_event(x, index, "deallocated", RN_STR("unknown"), a->end_ns, &shape);
    rn_json_end(&x->json);
    rn_json_end(&x->json);
}

// Which tensors are listed: those larger than `bytes`, and the first `ties` of just that size.
typedef struct cut {
    uint64_t bytes, ties;
} cut;

#define DIGIT_BITS 13 // 4 digits make 52 bits; no block has more
#define DIGITS     ((uint32_t)1 << DIGIT_BITS)

// The size of the `want`-th largest, digit by digit from the top: no sorting of all. There are that
// many.
static cut find_cut(const rn_timeline *t, uint64_t want, uint32_t *counts) {
    uint64_t size = 0;
    for (int shift = 3 * DIGIT_BITS; shift >= 0; shift -= DIGIT_BITS) {
        uint32_t digit = DIGITS - 1;
        memset(counts, 0, DIGITS * sizeof *counts);
        for (uint32_t i = 0; i < t->alloc_count; i++) {
            uint64_t bytes = t->allocs[i].bytes;
            bool counted = (bytes ^ size) >> (shift + DIGIT_BITS) == 0;
            if (counted && rn_json_counts(&t->allocs[i])) counts[bytes >> shift & (DIGITS - 1)]++;
        }
        for (; counts[digit] < want; digit--)
            want -= counts[digit];
        size |= (uint64_t)digit << shift;
    }
    return (cut){size, want};
}

static rn_status put_lifecycles(rn_json_export *x) {
    const rn_timeline *t = x->timeline;
    cut from = {0, UINT64_MAX};
    if (tensor_count(t) > RN_JSON_LIFECYCLES) {
        uint32_t *counts;
        RN_TRY(rn_alloc(FROM, DIGITS * sizeof *counts, (void **)&counts));
        from = find_cut(t, RN_JSON_LIFECYCLES, counts);
        rn_free(FROM, counts, DIGITS * sizeof *counts);
    }
    rn_json_object(&x->json, "tensor_lifecycle");
    for (uint32_t i = 0; i < t->alloc_count; i++) {
        const rn_timeline_alloc *a = &t->allocs[i];
        if (!rn_json_counts(a) || a->bytes < from.bytes) continue;
        if (a->bytes == from.bytes && from.ties == 0) continue;
        if (a->bytes == from.bytes) from.ties--;
        put_lifecycle(x, i);
    }
    rn_json_end(&x->json);
    return RN_OK;
}

// ---- PyTorch's operations -----------------------------------------------------------------------

#define SHAPES_DEPTH 8 // a list of lists, or of lists of those; not what no reader goes through

// The text is another program's: whether it is one array of JSON.
static rn_status check_array(rn_str text, bool *out) {
    rn_json_reader reader;
    rn_json_item item;
    rn_json_reader_init(&reader, text, FROM);
    rn_status s = rn_json_expect(&reader, RN_JSON_ARRAY, NULL);
    bool flat = true;
    while (s == RN_OK && flat) {
        s = rn_json_next(&reader, &item);
        if (s == RN_OK && item.kind == RN_JSON_END) break;
        flat = reader.depth <= SHAPES_DEPTH;
    }
    rn_json_reader_free(&reader);
    *out = s == RN_OK && flat;
    return s == RN_CORRUPT ? RN_OK : s;
}

// What stands between the brackets goes through as it is.
static rn_status put_input_shapes(rn_json_export *x, rn_str text) {
    bool is_array = false;
    RN_TRY(check_array(text, &is_array));
    rn_json_array(&x->json, "input_shapes");
    if (is_array && x->json.status == RN_OK) {
        const char *first = memchr(text.data, '[', text.bytes);
        const char *last = text.data + text.bytes - 1;
        while (*last != ']')
            last--;
        x->json.status = rn_sink_write(x->json.sink, first + 1, (size_t)(last - first - 1));
    }
    rn_json_end(&x->json);
    return RN_OK;
}

static rn_status put_torch_op(rn_json_export *x, const rn_timeline_torch_op *op) {
    rn_json_object(&x->json, NULL);
    rn_json_text(&x->json, "op_name", x->names.names[op->name].name);
    rn_json_u64(&x->json, "count", op->count);
    rn_json_f64(&x->json, "cpu_time_us", op->cpu_us);
    rn_json_f64(&x->json, "cuda_time_us", op->cuda_us);
    rn_json_export_mb(x, "cpu_memory_mb", (double)op->cpu_bytes);
    rn_json_export_mb(x, "cuda_memory_mb", (double)op->cuda_bytes);
    RN_TRY(put_input_shapes(x, x->names.names[op->name].detail));
    rn_json_end(&x->json);
    return RN_OK;
}

static rn_status put_torch_ops(rn_json_export *x) {
    rn_json_array(&x->json, "pytorch_operations");
    for (uint32_t i = 0; i < x->timeline->torch_op_count; i++)
        RN_TRY(put_torch_op(x, &x->timeline->torch_ops[i]));
    rn_json_end(&x->json);
    return RN_OK;
}

// ---- all of it ----------------------------------------------------------------------------------

static rn_status put_document(rn_json_export *x) {
    rn_json_object(&x->json, NULL);
    RN_TRY(put_metadata(x));
    RN_TRY(rn_json_export_snapshots(x));
    RN_TRY(rn_json_export_operations(x));
    RN_TRY(put_lifecycles(x));
    RN_TRY(put_torch_ops(x));
    rn_json_end(&x->json);
    return rn_json_finish(&x->json);
}

static void name_devices(rn_json_export *x) {
    uint32_t count = x->timeline->device_count, cpu = RN_NO_INDEX;
    for (uint32_t i = 0; i < count; i++) {
        x->device_of[i] = (uint8_t)i;
        if (rn_str_equal(x->names.devices[i], RN_STR("cpu"))) cpu = i;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (!rn_str_equal(x->names.devices[i], RN_STR("host"))) continue;
        if (cpu == RN_NO_INDEX)
            x->names.devices[i] = RN_STR("cpu");
        else
            x->device_of[i] = (uint8_t)cpu;
    }
}

rn_status rn_export_json(const rn_timeline *t, rn_sink sink) {
    rn_json_export x = {.timeline = t};
    rn_out out;
    RN_TRY(rn_export_names_make(t, &x.names));
    name_devices(&x);
    rn_status s = rn_out_open(&out, sink);
    if (s == RN_OK) {
        rn_json_begin(&x.json, rn_out_sink(&out), false);
        rn_json_export_plan(&x);
        s = put_document(&x);
        rn_status closed = rn_out_close(&out);
        if (s == RN_OK) s = closed;
    }
    rn_export_names_free(&x.names);
    return s;
}
