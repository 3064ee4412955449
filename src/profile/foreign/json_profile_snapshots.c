// json_profile_snapshots.c — snapshots become lives.
//
//     snapshot 0   [ a b c      ]  total 10       a      0 ──────────▶ end
//     snapshot 1   [ a   c d    ]  total 12       b      0 ──▶ 1
//     snapshot 2   [ a     d    ]  total 12       rest   1 changes whenever the difference does
//
// Keys may come in any order, so a snapshot is collected first and taken when it is complete.
#include "profile/foreign/json_profile.h"

#include "base/checked.h"
#include "profile/foreign/foreign.h"

// Totals in megabytes are rounded: differences up to this much on a device are the rounding's.
#define ROUNDING_BYTES ((uint64_t)16 << 10)

typedef struct size_fields {
    uint64_t bytes, mb_bytes;
    bool has_bytes, has_mb;
} size_fields;

typedef struct device_total {
    size_fields total;
    uint64_t listed;
    bool is_named, has_tensors; // in device_breakdown
    bool is_met;                // by a tensor that counts
} device_total;

typedef struct tensor_fields {
    size_fields size;
    rn_str id, shape, dtype, device, allocated_by, operation, purpose, name, block;
    bool requires_grad;
} tensor_fields;

// One snapshot while it is read. Tensors are met in two lists: `top` of them are of
// top_allocations.
typedef struct collected {
    rn_json_snapshot snapshot;
    rn_str name, kind;
    size_fields total;
    device_total devices[RN_DEVICE_MAX];
    RN_JSON_ARRAY_OF(tensor_fields) tops;
    RN_JSON_ARRAY_OF(tensor_fields) tensors;
} collected;

static uint64_t value_of(const size_fields *size) {
    return size->has_bytes ? size->bytes : size->has_mb ? size->mb_bytes : 0;
}

static bool has_value(const size_fields *size) {
    return size->has_bytes || size->has_mb;
}

// ---- reading ------------------------------------------------------------------------------------

static rn_status read_size(rn_json_profile *p, rn_json_word word, size_fields *size) {
    if (word == RN_JP_TOTAL_BYTES || word == RN_JP_SIZE_BYTES)
        return rn_jp_bytes(p, &size->bytes, &size->has_bytes);
    return rn_jp_megabytes(p, &size->mb_bytes, &size->has_mb);
}

static rn_status read_tensor_field(rn_json_profile *p, rn_json_word word, tensor_fields *t) {
    switch (word) {
    case RN_JP_SIZE_BYTES:
    case RN_JP_SIZE_MB:
        return read_size(p, word, &t->size);
    case RN_JP_TENSOR_ID:
        return rn_jp_text(p, &t->id);
    case RN_JP_SHAPE:
        return rn_jp_list(p, &t->shape);
    case RN_JP_DTYPE:
        return rn_jp_text(p, &t->dtype);
    case RN_JP_DEVICE:
        return rn_jp_text(p, &t->device);
    case RN_JP_REQUIRES_GRAD:
        return rn_jp_flag(p, &t->requires_grad);
    case RN_JP_ALLOCATED_BY:
        return rn_jp_text(p, &t->allocated_by);
    case RN_JP_OPERATION:
        return rn_jp_text(p, &t->operation);
    case RN_JP_PURPOSE:
        return rn_jp_text(p, &t->purpose);
    case RN_JP_NAME:
        return rn_jp_text(p, &t->name);
    case RN_JP_BLOCK:
        return rn_jp_text(p, &t->block);
    default:
        return rn_jp_skip(p);
    }
}

static rn_status read_tensor(rn_json_profile *p, rn_str device, tensor_fields *out) {
    rn_json_word word;
    bool more;
    *out = (tensor_fields){.device = device};
    for (;;) {
        RN_TRY(rn_jp_next_word(p, &word, &more));
        if (!more) return RN_OK;
        RN_TRY(read_tensor_field(p, word, out));
    }
}

static rn_status read_tops(rn_json_profile *p, collected *c) {
    bool more;
    RN_TRY(rn_jp_enter(p, RN_JSON_ARRAY, &more));
    while (more) {
        tensor_fields tensor;
        RN_TRY(rn_jp_next_object(p, &more));
        if (!more) break;
        RN_TRY(read_tensor(p, (rn_str){"", 0}, &tensor));
        RN_TRY(rn_foreign_grow(p->from, &c->tops.items, c->tops.count, &c->tops.capacity,
                               sizeof tensor));
        c->tops.items[c->tops.count++] = tensor;
    }
    return RN_OK;
}

// The list belongs to the device that it stands under, whatever its tensors say.
static rn_status read_tensors(rn_json_profile *p, collected *c, rn_str device,
                              device_total *total) {
    bool more;
    RN_TRY(rn_jp_enter(p, RN_JSON_ARRAY, &more));
    while (more) {
        tensor_fields tensor;
        RN_TRY(rn_jp_next_object(p, &more));
        if (!more) break;
        RN_TRY(read_tensor(p, device, &tensor));
        tensor.device = device;
        total->has_tensors = true;
        RN_TRY(rn_foreign_grow(p->from, &c->tensors.items, c->tensors.count, &c->tensors.capacity,
                               sizeof tensor));
        c->tensors.items[c->tensors.count++] = tensor;
    }
    return RN_OK;
}

static rn_status read_device(rn_json_profile *p, collected *c, rn_str name) {
    rn_json_word word;
    uint8_t device;
    bool more;
    RN_TRY(rn_jp_enter(p, RN_JSON_OBJECT, &more));
    if (!more) return RN_OK;
    RN_TRY(rn_jp_device(p, name, &device));
    device_total *total = &c->devices[device];
    total->is_named = true;
    for (;;) {
        RN_TRY(rn_jp_next_word(p, &word, &more));
        if (!more) return RN_OK;
        if (word == RN_JP_TENSORS)
            RN_TRY(read_tensors(p, c, name, total));
        else if (word == RN_JP_TOTAL_BYTES || word == RN_JP_TOTAL_MB)
            RN_TRY(read_size(p, word, &total->total));
        else
            RN_TRY(rn_jp_skip(p));
    }
}

static rn_status read_breakdown(rn_json_profile *p, collected *c) {
    rn_str key, name = {"", 0};
    bool more;
    RN_TRY(rn_jp_enter(p, RN_JSON_OBJECT, &more));
    while (more) {
        RN_TRY(rn_jp_next_key(p, &key, &more));
        if (!more) break;
        RN_TRY(rn_jp_keep(p, key, &name));
        RN_TRY(read_device(p, c, name));
    }
    return RN_OK;
}

static rn_status read_snapshot_field(rn_json_profile *p, rn_json_word word, collected *c) {
    switch (word) {
    case RN_JP_TIMESTAMP:
        return rn_jp_time(p, &c->snapshot.time_ns);
    case RN_JP_CHECKPOINT_NAME:
        return rn_jp_text(p, &c->name);
    case RN_JP_KIND:
        return rn_jp_text(p, &c->kind);
    case RN_JP_TOTAL_BYTES:
    case RN_JP_TOTAL_MB:
        return read_size(p, word, &c->total);
    case RN_JP_TOP_ALLOCATIONS:
        return read_tops(p, c);
    case RN_JP_DEVICE_BREAKDOWN:
        return read_breakdown(p, c);
    default:
        return rn_jp_skip(p);
    }
}

// ---- tensors ------------------------------------------------------------------------------------

static rn_status append_key(rn_json_profile *p, rn_str text) {
    RN_TRY(rn_buffer_append(&p->key, text.data, text.bytes));
    return rn_buffer_append(&p->key, "", 1);
}

static rn_str origin_of(const tensor_fields *t) {
    return t->allocated_by.bytes ? t->allocated_by : t->operation;
}

// What a tensor looks like. With an id the operation does not matter; without one it may help.
static rn_status make_key(rn_json_profile *p, const tensor_fields *t, uint64_t bytes) {
    uint8_t device;
    p->key.bytes = 0;
    RN_TRY(rn_jp_device(p, t->device, &device));
    RN_TRY(rn_buffer_append(&p->key, &bytes, sizeof bytes));
    RN_TRY(append_key(p, t->id));
    RN_TRY(rn_buffer_append(&p->key, &device, sizeof device));
    RN_TRY(append_key(p, t->shape));
    RN_TRY(append_key(p, t->dtype));
    if (t->id.bytes) return RN_OK;
    RN_TRY(rn_buffer_append(&p->key, &t->requires_grad, sizeof t->requires_grad));
    return append_key(p, origin_of(t));
}

static rn_status add_tensor(rn_json_profile *p, const tensor_fields *t, uint64_t bytes,
                            uint32_t *out) {
    rn_foreign_text detail = {.bytes = 0};
    rn_json_tensor tensor = {.bytes = bytes, .id = t->id, .next = RN_NO_INDEX};
    rn_str name = t->name.bytes ? t->name : origin_of(t);
    if (rn_str_equal(name, RN_STR("unknown"))) name = (rn_str){"", 0};
    rn_foreign_append(&detail, t->dtype);
    if (t->dtype.bytes && t->shape.bytes) rn_foreign_append(&detail, RN_STR(" "));
    rn_foreign_append(&detail, t->shape);
    if (t->requires_grad) rn_foreign_append(&detail, RN_STR(RN_REQUIRES_GRAD));
    RN_TRY(rn_jp_name(p, name, t->block, rn_foreign_str(&detail), &tensor.name));
    RN_TRY(rn_jp_device(p, t->device, &tensor.device));
    tensor.purpose = (uint8_t)rn_foreign_purpose(t->purpose);
    *out = (uint32_t)p->tensors.count;
    RN_JSON_PUSH(p, tensors, tensor);
    return RN_OK;
}

// The first tensor that looks like this; it is made where there is none.
static rn_status find_tensor(rn_json_profile *p, const tensor_fields *t, uint32_t *out) {
    uint64_t bytes = value_of(&t->size), known;
    void *copy = NULL;
    RN_TRY(make_key(p, t, bytes));
    rn_str key = {p->key.data, p->key.bytes};
    bool found = rn_map_find(&p->tensor_ids, key, &known);
    *out = (uint32_t)(found ? known : 0);
    if (found) return RN_OK;
    RN_TRY(rn_arena_copy(&p->texts, key.data, key.bytes, &copy));
    RN_TRY(add_tensor(p, t, bytes, out));
    p->tensors.items[*out].met_in = RN_NO_INDEX;
    return rn_map_add(&p->tensor_ids, (rn_str){copy, key.bytes}, *out, NULL);
}

// Of those that look like `first`, the one behind the one that this snapshot has met last.
static rn_status next_alike(rn_json_profile *p, const tensor_fields *t, uint32_t first,
                            uint32_t *out) {
    uint32_t now = (uint32_t)p->snapshots.count;
    rn_json_tensor *head = &p->tensors.items[first];
    *out = first;
    if (head->met_in != now) {
        head->met_in = now;
        head->met_last = first;
        return RN_OK;
    }
    uint32_t last = head->met_last;
    *out = p->tensors.items[last].next;
    if (*out == RN_NO_INDEX) {
        RN_TRY(add_tensor(p, t, p->tensors.items[first].bytes, out));
        p->tensors.items[last].next = *out;
    }
    p->tensors.items[first].met_last = *out;
    return RN_OK;
}

static rn_status meet_tensor(rn_json_profile *p, collected *c, const tensor_fields *t) {
    uint32_t first, index, now = (uint32_t)p->snapshots.count;
    RN_TRY(find_tensor(p, t, &first));
    RN_TRY(next_alike(p, t, first, &index));
    rn_json_tensor *tensor = &p->tensors.items[index];
    device_total *device = &c->devices[tensor->device];
    device->is_met = true;
    if (!rn_add_u64(device->listed, tensor->bytes, &device->listed))
        return rn_fail(RN_CORRUPT, "a snapshot lists more bytes than can be counted");
    bool is_new = !tensor->is_live;
    if (is_new) tensor->first = now;
    tensor->is_live = true;
    tensor->last = now;
    if (is_new) RN_JSON_PUSH(p, live, index);
    return RN_OK;
}

static rn_status end_life(rn_json_profile *p, rn_json_tensor *tensor) {
    rn_json_life life = {.bytes = tensor->bytes,
                         .id = tensor->id,
                         .name = tensor->name,
                         .first = tensor->first,
                         .last = tensor->last,
                         .device = tensor->device,
                         .purpose = tensor->purpose};
    RN_JSON_PUSH(p, lives, life);
    tensor->is_live = false;
    return RN_OK;
}

// Those that this snapshot has not listed have ended.
static rn_status end_missing(rn_json_profile *p) {
    size_t kept = 0;
    for (size_t i = 0; i < p->live.count; i++) {
        rn_json_tensor *tensor = &p->tensors.items[p->live.items[i]];
        if (tensor->last == p->snapshots.count)
            p->live.items[kept++] = p->live.items[i];
        else
            RN_TRY(end_life(p, tensor));
    }
    p->live.count = kept;
    return RN_OK;
}

// ---- what is not listed -------------------------------------------------------------------------

static rn_status end_rest(rn_json_profile *p, uint8_t device) {
    rn_json_life life = {.bytes = p->rests[device].bytes,
                         .id = {"", 0},
                         .first = p->rests[device].first,
                         .last = (uint32_t)p->snapshots.count - 1,
                         .device = device,
                         .purpose = RN_PURPOSE_OTHER};
    if (!life.bytes) return RN_OK;
    RN_TRY(rn_jp_name(p, RN_STR("not listed"), (rn_str){"", 0}, (rn_str){"", 0}, &life.name));
    RN_JSON_PUSH(p, lives, life);
    return RN_OK;
}

static rn_status set_rest(rn_json_profile *p, uint8_t device, uint64_t bytes) {
    if (p->rests[device].bytes == bytes) return RN_OK;
    RN_TRY(end_rest(p, device));
    p->rests[device].bytes = bytes;
    p->rests[device].first = (uint32_t)p->snapshots.count;
    return RN_OK;
}

// A total that is only known in rounded megabytes may be off by a little; then it gives way.
static bool adjust(device_total *device, uint64_t *rest, uint64_t more, uint64_t less) {
    if (!device->is_named || device->total.has_bytes || !device->total.has_mb) return false;
    if (more > ROUNDING_BYTES || less > ROUNDING_BYTES || *rest < less) return false;
    *rest = *rest + more - less;
    return true;
}

// The only device that has anything, or one named "other".
static rn_status other_device(rn_json_profile *p, const collected *c, uint8_t *out) {
    int only = -1, count = 0;
    for (int d = 0; d < RN_DEVICE_MAX; d++)
        if (c->devices[d].is_met && !c->devices[d].is_named) {
            only = d;
            count++;
        } else if (c->devices[d].is_named)
            count += 2;
    *out = (uint8_t)only;
    return count == 1 ? RN_OK : rn_jp_device(p, count ? RN_STR("other") : RN_STR("all"), out);
}

// Makes the sum of listed and not listed the snapshot's total.
static rn_status balance(rn_json_profile *p, collected *c, uint64_t *rests, uint64_t sum) {
    uint64_t total = value_of(&c->total), more = total > sum ? total - sum : 0;
    uint64_t less = sum > total ? sum - total : 0;
    uint8_t device;
    if (!has_value(&c->total) || (!more && !less)) return RN_OK;
    for (int d = 0; d < RN_DEVICE_MAX; d++)
        if (adjust(&c->devices[d], &rests[d], more, less)) return RN_OK;
    if (less) {
        p->is_inconsistent = true;
        return RN_OK;
    }
    RN_TRY(other_device(p, c, &device));
    rests[device] += more;
    return RN_OK;
}

static rn_status take_rests(rn_json_profile *p, collected *c) {
    uint64_t rests[RN_DEVICE_MAX] = {0}, sum = 0;
    for (int d = 0; d < RN_DEVICE_MAX; d++) {
        const device_total *device = &c->devices[d];
        uint64_t total = rn_max_u64(value_of(&device->total), device->listed);
        if (has_value(&device->total) && device->listed > value_of(&device->total) &&
            (device->total.has_bytes || device->listed - value_of(&device->total) > ROUNDING_BYTES))
            p->is_inconsistent = true;
        rests[d] = total - device->listed;
        if (!rn_add_u64(sum, total, &sum))
            return rn_fail(RN_CORRUPT, "a snapshot has more bytes than can be counted");
    }
    RN_TRY(balance(p, c, rests, sum));
    for (int d = 0; d < RN_DEVICE_MAX; d++)
        RN_TRY(set_rest(p, (uint8_t)d, rests[d]));
    return RN_OK;
}

// ---- one snapshot -------------------------------------------------------------------------------

// Kinds as ration's own exports name them; others have a name, or come every few seconds.
static uint8_t kind_of(rn_str kind, rn_str name) {
    for (unsigned k = 0; k < RN_MARK_COUNT; k++)
        if (rn_str_equal(kind, rn_str_from(rn_mark_name(k)))) return (uint8_t)k;
    return name.bytes ? RN_MARK_CHECKPOINT : RN_MARK_PERIODIC;
}

// top_allocations repeats what the devices list; it counts where they list nothing.
static rn_status take_snapshot(rn_json_profile *p, collected *c) {
    bool have_lists = c->tensors.count > 0;
    for (size_t i = 0; i < c->tensors.count; i++)
        RN_TRY(meet_tensor(p, c, &c->tensors.items[i]));
    for (size_t i = 0; !have_lists && i < c->tops.count; i++)
        RN_TRY(meet_tensor(p, c, &c->tops.items[i]));
    RN_TRY(end_missing(p));
    RN_TRY(take_rests(p, c));
    RN_TRY(rn_jp_name(p, c->name, (rn_str){"", 0}, (rn_str){"", 0}, &c->snapshot.name));
    c->snapshot.kind = kind_of(c->kind, c->name);
    RN_JSON_PUSH(p, snapshots, c->snapshot);
    return RN_OK;
}

static rn_status read_snapshot(rn_json_profile *p, collected *c) {
    rn_json_word word;
    bool more;
    for (;;) {
        RN_TRY(rn_jp_next_word(p, &word, &more));
        if (!more) break;
        RN_TRY(read_snapshot_field(p, word, c));
    }
    return p->snapshots.count < RN_NO_INDEX - 1 ? take_snapshot(p, c)
                                                : rn_fail(RN_CORRUPT, "too many snapshots");
}

static void clear(collected *c) {
    collected empty = {.snapshot.time_ns = RN_NO_TIME};
    empty.tops.items = c->tops.items;
    empty.tops.capacity = c->tops.capacity;
    empty.tensors.items = c->tensors.items;
    empty.tensors.capacity = c->tensors.capacity;
    *c = empty;
}

static rn_status read_snapshots(rn_json_profile *p, collected *c) {
    bool more;
    RN_TRY(rn_jp_enter(p, RN_JSON_ARRAY, &more));
    p->has_snapshots |= more;
    while (more) {
        RN_TRY(rn_jp_next_object(p, &more));
        if (!more) break;
        clear(c);
        RN_TRY(read_snapshot(p, c));
    }
    return RN_OK;
}

rn_status rn_jp_snapshots(rn_json_profile *p) {
    collected c = {.name = {"", 0}};
    rn_status s = read_snapshots(p, &c);
    rn_free(p->from, c.tops.items, c.tops.capacity * sizeof *c.tops.items);
    rn_free(p->from, c.tensors.items, c.tensors.capacity * sizeof *c.tensors.items);
    return s;
}

rn_status rn_jp_end_snapshots(rn_json_profile *p) {
    for (size_t i = 0; i < p->live.count; i++)
        RN_TRY(end_life(p, &p->tensors.items[p->live.items[i]]));
    p->live.count = 0;
    for (int d = 0; d < RN_DEVICE_MAX; d++)
        RN_TRY(end_rest(p, (uint8_t)d));
    return RN_OK;
}
