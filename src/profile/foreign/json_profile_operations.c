// json_profile_operations.c — operations, tracked lives of tensors, and PyTorch's own operations.
//
// pie stamps an operation when it ends and does not say how long it took; such an operation is a
// moment, not a bar: a bar up to the next stamp would be made up. ration's own exports have
// duration_us; then the stamp is the begin. They list operations twice, by name and in the log: the
// log knows their lanes.
#include "profile/foreign/json_profile.h"

#include "base/checked.h"
#include "profile/foreign/foreign.h"

enum { MAX_LANES = 1024 };
#define MOST_TOLD_BYTES ((uint64_t)1 << 60)

static const rn_str none = {"", 0};

typedef struct operation_fields {
    rn_json_operation operation;
    rn_str name, module_name, shapes, lane;
    double delta_mb, duration_us;
    double allocated, deallocated, tensor_delta;
    uint64_t pre_bytes;
    bool has_delta, has_allocated, has_deallocated, has_tensor_delta, has_pre;
} operation_fields;

// The lane of this name; beyond a great many, the first one.
static rn_status find_lane(rn_json_profile *p, rn_str name, uint32_t *out) {
    rn_foreign_text text = {.bytes = 0};
    uint64_t known;
    rn_str kept;
    *out = 0;
    rn_foreign_append(&text, name);
    if (rn_map_find(&p->lane_ids, rn_foreign_str(&text), &known)) {
        *out = (uint32_t)known;
        return RN_OK;
    }
    if (p->timeline->lane_count >= MAX_LANES) return RN_OK;
    RN_TRY(rn_jp_keep(p, rn_foreign_str(&text), &kept));
    RN_TRY(rn_timeline_add_lane(p->timeline, kept, false, out));
    return rn_map_add(&p->lane_ids, kept, *out, NULL);
}

static rn_status read_field(rn_json_profile *p, rn_json_word word, operation_fields *f) {
    switch (word) {
    case RN_JP_TIMESTAMP:
        return rn_jp_time(p, &f->operation.time_ns);
    case RN_JP_DURATION_US:
        return rn_jp_number(p, &f->duration_us, &f->operation.has_duration);
    case RN_JP_MEMORY_DELTA_MB:
        return rn_jp_number(p, &f->delta_mb, &f->has_delta);
    case RN_JP_TENSORS_ALLOCATED:
        return rn_jp_number(p, &f->allocated, &f->has_allocated);
    case RN_JP_TENSORS_DEALLOCATED:
        return rn_jp_number(p, &f->deallocated, &f->has_deallocated);
    case RN_JP_TENSOR_DELTA:
        return rn_jp_number(p, &f->tensor_delta, &f->has_tensor_delta);
    case RN_JP_PRE_TOTAL_MB:
        return rn_jp_megabytes(p, &f->pre_bytes, &f->has_pre);
    case RN_JP_LANE:
        return rn_jp_text(p, &f->lane);
    case RN_JP_NAME:
        return rn_jp_text(p, &f->name);
    case RN_JP_MODULE_NAME:
        return rn_jp_text(p, &f->module_name);
    case RN_JP_INPUT_SHAPES:
        return rn_jp_list(p, &f->shapes);
    default:
        return rn_jp_skip(p);
    }
}

// Without a time it happened when the one before it did.
static void set_time(const rn_json_profile *p, operation_fields *f) {
    rn_json_operation *op = &f->operation;
    if (op->time_ns == RN_NO_TIME && p->operations.count)
        op->time_ns = p->operations.items[p->operations.count - 1].time_ns;
    bool good = op->has_duration && f->duration_us >= 0 && f->duration_us < 1e15;
    op->has_duration = good;
    op->duration_ns = good ? (uint64_t)(f->duration_us * 1000 + 0.5) : 0;
}

// Bytes of a change in megabytes; false where no machine has so many.
static bool change_of(double megabytes, int64_t *out) {
    const double most = (double)((uint64_t)1 << 56);
    double bytes = megabytes * 1048576;
    if (!(bytes > -most && bytes < most)) return false; // NaN as well
    *out = (int64_t)(bytes + (bytes < 0 ? -0.5 : 0.5));
    return true;
}

static uint32_t count_of(double number) {
    return number >= 0 && number < UINT32_MAX ? (uint32_t)number : 0;
}

// What the file says that the operation took, and how many tensors. Sums of changes that are larger
// than any memory are not believed.
static void set_delta(rn_json_profile *p, const operation_fields *f, rn_json_operation *op) {
    double gained = f->has_tensor_delta ? f->tensor_delta : 0;
    uint64_t size;
    op->has_delta = f->has_delta && change_of(f->delta_mb, &op->delta_bytes);
    size = op->delta_bytes < 0 ? 0 - (uint64_t)op->delta_bytes : (uint64_t)op->delta_bytes;
    if (op->has_delta && !rn_add_u64(p->told_bytes, size, &p->told_bytes)) op->has_delta = false;
    if (p->told_bytes > MOST_TOLD_BYTES) op->has_delta = false;
    op->alloc_count = count_of(f->has_allocated ? f->allocated : gained);
    op->free_count = count_of(f->has_deallocated ? f->deallocated : -gained);
    op->pre_bytes = f->has_pre ? f->pre_bytes : UINT64_MAX;
}

static rn_status take_operation(rn_json_profile *p, operation_fields *f) {
    rn_json_operation *op = &f->operation;
    set_delta(p, f, op);
    set_time(p, f);
    op->key = f->name;
    RN_TRY(rn_jp_name(p, f->name, f->module_name, f->shapes, &op->name));
    RN_TRY(find_lane(p, f->lane, &op->lane));
    p->has_operations = true;
    RN_JSON_PUSH(p, operations, *op);
    return RN_OK;
}

// The rest of an operation's object.
static rn_status read_operation(rn_json_profile *p, operation_fields *f) {
    rn_json_word word;
    bool more;
    f->operation.time_ns = RN_NO_TIME;
    for (;;) {
        RN_TRY(rn_jp_next_word(p, &word, &more));
        if (!more) return take_operation(p, f);
        RN_TRY(read_field(p, word, f));
    }
}

static rn_status read_invocations(rn_json_profile *p, rn_str name) {
    bool more;
    RN_TRY(rn_jp_enter(p, RN_JSON_ARRAY, &more));
    while (more) {
        operation_fields f = {.name = name, .lane = RN_STR("operations")};
        RN_TRY(rn_jp_next_object(p, &more));
        if (more) RN_TRY(read_operation(p, &f));
    }
    return RN_OK;
}

rn_status rn_jp_operation_allocations(rn_json_profile *p) {
    rn_str key, name;
    bool more;
    RN_TRY(rn_jp_enter(p, RN_JSON_OBJECT, &more));
    p->has_operations |= more;
    while (more) {
        RN_TRY(rn_jp_next_key(p, &key, &more));
        if (!more) break;
        RN_TRY(rn_jp_keep(p, key, &name));
        RN_TRY(read_invocations(p, name));
    }
    return RN_OK;
}

// ---- sums ---------------------------------------------------------------------------------------

static rn_status read_sum(rn_json_profile *p, rn_str name) {
    rn_timeline_sum sum = {0};
    double count = 0, delta_mb = 0, most_mb = 0;
    bool more, has_count = false, has_delta = false, has_most = false;
    rn_json_word word;
    RN_TRY(rn_jp_enter(p, RN_JSON_OBJECT, &more));
    if (!more) return RN_OK;
    for (;;) {
        RN_TRY(rn_jp_next_word(p, &word, &more));
        if (!more) break;
        if (word == RN_JP_INVOCATION_COUNT)
            RN_TRY(rn_jp_number(p, &count, &has_count));
        else if (word == RN_JP_TOTAL_MEMORY_DELTA_MB)
            RN_TRY(rn_jp_number(p, &delta_mb, &has_delta));
        else if (word == RN_JP_MAX_MEMORY_DELTA_MB)
            RN_TRY(rn_jp_number(p, &most_mb, &has_most));
        else
            RN_TRY(rn_jp_skip(p));
    }
    bool good = has_count && count >= 1 && count < 0x1p53 && has_delta &&
                change_of(delta_mb, &sum.delta_bytes);
    if (!good) return RN_OK;
    sum.count = (uint64_t)count;
    if (!has_most || !change_of(most_mb, &sum.most_delta_bytes))
        sum.most_delta_bytes = sum.delta_bytes / (int64_t)sum.count;
    RN_TRY(rn_jp_name(p, name, none, none, &sum.name));
    p->has_operations = true;
    return rn_timeline_add_sum(p->timeline, &sum);
}

rn_status rn_jp_operation_summary(rn_json_profile *p) {
    rn_str key, name;
    bool more;
    RN_TRY(rn_jp_enter(p, RN_JSON_OBJECT, &more));
    while (more) {
        RN_TRY(rn_jp_next_key(p, &key, &more));
        if (!more) break;
        RN_TRY(rn_jp_keep(p, key, &name));
        RN_TRY(read_sum(p, name));
    }
    return RN_OK;
}

rn_status rn_jp_operation_log(rn_json_profile *p) {
    bool more;
    RN_TRY(rn_jp_enter(p, RN_JSON_ARRAY, &more));
    while (more) {
        operation_fields f = {.operation.is_log = true, .lane = RN_STR("operation log")};
        RN_TRY(rn_jp_next_object(p, &more));
        if (more) RN_TRY(read_operation(p, &f));
    }
    return RN_OK;
}

// ---- tracked lives ------------------------------------------------------------------------------

typedef struct lifecycle {
    rn_json_tracked now; // what is known of the tensor; the life under way
    rn_str purpose, device, shape, name;
    uint64_t bytes, mb_bytes;
    bool has_bytes, has_mb, is_open;
    size_t first; // of its lives
} lifecycle;

static rn_status end_tracked(rn_json_profile *p, lifecycle *l, int64_t end_ns) {
    l->now.end_ns = end_ns;
    if (l->is_open) RN_JSON_PUSH(p, tracked, l->now);
    l->is_open = false;
    return RN_OK;
}

// "deallocated" is said again at every later scan: only the first counts.
static rn_status take_event(rn_json_profile *p, lifecycle *l, rn_str type, int64_t time_ns,
                            rn_str operation) {
    if (rn_str_equal(type, RN_STR("deallocated"))) return end_tracked(p, l, time_ns);
    if (!rn_str_equal(type, RN_STR("allocated"))) return RN_OK;
    RN_TRY(end_tracked(p, l, RN_NO_TIME));
    l->now.begin_ns = time_ns;
    l->name = operation;
    l->is_open = true;
    return RN_OK;
}

static rn_status read_event(rn_json_profile *p, lifecycle *l) {
    rn_json_word word;
    rn_str type = none, operation = none;
    int64_t time_ns = RN_NO_TIME;
    bool more;
    for (;;) {
        RN_TRY(rn_jp_next_word(p, &word, &more));
        if (!more) return take_event(p, l, type, time_ns, operation);
        if (word == RN_JP_EVENT_TYPE)
            RN_TRY(rn_jp_text(p, &type));
        else if (word == RN_JP_OPERATION)
            RN_TRY(rn_jp_text(p, &operation));
        else if (word == RN_JP_TIMESTAMP)
            RN_TRY(rn_jp_time(p, &time_ns));
        else if (word == RN_JP_SIZE_MB)
            RN_TRY(rn_jp_megabytes(p, &l->mb_bytes, &l->has_mb));
        else
            RN_TRY(rn_jp_skip(p));
    }
}

static rn_status read_events(rn_json_profile *p, lifecycle *l) {
    bool more;
    RN_TRY(rn_jp_enter(p, RN_JSON_ARRAY, &more));
    while (more) {
        RN_TRY(rn_jp_next_object(p, &more));
        if (more) RN_TRY(read_event(p, l));
    }
    return end_tracked(p, l, RN_NO_TIME);
}

static rn_status read_lifecycle_field(rn_json_profile *p, rn_json_word word, lifecycle *l) {
    switch (word) {
    case RN_JP_PURPOSE:
        return rn_jp_text(p, &l->purpose);
    case RN_JP_DEVICE:
        return rn_jp_text(p, &l->device);
    case RN_JP_SHAPE:
        return rn_jp_list(p, &l->shape);
    case RN_JP_SIZE_BYTES:
        return rn_jp_bytes(p, &l->bytes, &l->has_bytes);
    case RN_JP_SIZE_MB:
        return rn_jp_megabytes(p, &l->mb_bytes, &l->has_mb);
    case RN_JP_EVENTS:
        return read_events(p, l);
    default:
        return rn_jp_skip(p);
    }
}

// What the tensor is may stand behind its events.
static rn_status complete(rn_json_profile *p, const lifecycle *l) {
    uint32_t name;
    uint8_t device = RN_DEVICE_ANY;
    rn_str label = rn_str_equal(l->name, RN_STR("unknown")) ? none : l->name;
    if (p->tracked.count == l->first) return RN_OK;
    RN_TRY(rn_jp_name(p, label, none, l->shape, &name));
    if (l->device.bytes) RN_TRY(rn_jp_device(p, l->device, &device));
    for (size_t i = l->first; i < p->tracked.count; i++) {
        rn_json_tracked *life = &p->tracked.items[i];
        life->name = name;
        life->device = device;
        life->bytes = l->has_bytes ? l->bytes : l->mb_bytes;
        life->purpose = (uint8_t)rn_foreign_purpose(l->purpose);
    }
    return RN_OK;
}

static rn_status read_lifecycle(rn_json_profile *p, rn_str id) {
    lifecycle l = {.now.id = id, .first = p->tracked.count};
    rn_json_word word;
    bool more;
    RN_TRY(rn_jp_enter(p, RN_JSON_OBJECT, &more));
    while (more) {
        RN_TRY(rn_jp_next_word(p, &word, &more));
        if (more) RN_TRY(read_lifecycle_field(p, word, &l));
    }
    return complete(p, &l);
}

rn_status rn_jp_tensor_lifecycle(rn_json_profile *p) {
    rn_str key, id;
    bool more;
    RN_TRY(rn_jp_enter(p, RN_JSON_OBJECT, &more));
    while (more) {
        RN_TRY(rn_jp_next_key(p, &key, &more));
        if (!more) break;
        RN_TRY(rn_jp_keep(p, key, &id));
        RN_TRY(read_lifecycle(p, id));
    }
    return RN_OK;
}

// ---- PyTorch's operations -----------------------------------------------------------------------

static int64_t bytes_of(double megabytes) {
    double bytes = megabytes * 1048576;
    return bytes > -4e18 && bytes < 4e18 ? (int64_t)bytes : 0;
}

static rn_status read_torch_op(rn_json_profile *p) {
    rn_timeline_torch_op op = {0};
    rn_str name = none, shapes = none;
    double count = 0, cpu_mb = 0, cuda_mb = 0;
    rn_json_word word;
    bool more;
    for (;;) {
        RN_TRY(rn_jp_next_word(p, &word, &more));
        if (!more) break;
        switch (word) {
        case RN_JP_OP_NAME:
            RN_TRY(rn_jp_text(p, &name));
            break;
        case RN_JP_INPUT_SHAPES:
            RN_TRY(rn_jp_list(p, &shapes));
            break;
        case RN_JP_COUNT:
            RN_TRY(rn_jp_number(p, &count, NULL));
            break;
        case RN_JP_CPU_TIME_US:
            RN_TRY(rn_jp_number(p, &op.cpu_us, NULL));
            break;
        case RN_JP_CUDA_TIME_US:
            RN_TRY(rn_jp_number(p, &op.cuda_us, NULL));
            break;
        case RN_JP_CPU_MEMORY_MB:
            RN_TRY(rn_jp_number(p, &cpu_mb, NULL));
            break;
        case RN_JP_CUDA_MEMORY_MB:
            RN_TRY(rn_jp_number(p, &cuda_mb, NULL));
            break;
        default:
            RN_TRY(rn_jp_skip(p));
        }
    }
    op.count = count >= 0 && count < 0x1p63 ? (uint64_t)count : 0;
    op.cpu_bytes = bytes_of(cpu_mb);
    op.cuda_bytes = bytes_of(cuda_mb);
    RN_TRY(rn_jp_name(p, name, none, shapes, &op.name));
    p->has_operations = true;
    return rn_timeline_add_torch_op(p->timeline, &op);
}

rn_status rn_jp_pytorch_operations(rn_json_profile *p) {
    bool more;
    RN_TRY(rn_jp_enter(p, RN_JSON_ARRAY, &more));
    while (more) {
        RN_TRY(rn_jp_next_object(p, &more));
        if (more) RN_TRY(read_torch_op(p));
    }
    return RN_OK;
}
