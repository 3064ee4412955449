// export_json_operations.c — operations by name: each invocation, sums, who calls whom, and the
// log.
//
// An operation's key is its name, whatever block or shapes it has. memory_delta is what the
// operation took from the system less what it gave back; where that is nothing, because it works
// within an arena, it is the same of the arena's parts. Adding both would count parts twice.
// pre_total and post_total are the bytes in use on all devices before and after: found for all
// listed invocations in one walk, by asking in the order of time.
#include "profile/export/export_json.h"

#include "base/map.h"
#include "memory/account.h"
#include "profile/timeline/radix.h"

#define FROM (&rn_host_allocators[RN_PURPOSE_PROFILER])

typedef struct key_stats {
    rn_str name;
    uint64_t count, alloc_count;
    double delta_sum, delta_most;
    uint64_t reads, writes; // tensors of all invocations, where they were recorded
    uint32_t purposes;      // bit p: something of purpose p was allocated in it
    uint32_t listed;        // invocations that are listed
    uint32_t first;         // of them in `order`
} key_stats;

typedef struct op_table {
    rn_json_export *x;
    rn_arena arena;
    uint32_t *key_of; // (name_count): of an operation with that name
    key_stats *keys;  // (key_count), in the order of their first call
    uint32_t key_count;
    uint32_t listed_count;
    uint32_t *order;     // (listed_count): operations by key, then by time
    uint64_t *totals;    // (2 * listed_count): in use before and after
    rn_sort_item *calls; // (call_count): caller << 32 | called, in order
    size_t call_count;
    struct tensor_count {
        uint32_t reads, writes;
    } * tensors; // (name_count): of an operation with those operands
    rn_live_places places;
} op_table;

static int64_t delta_of(const rn_timeline_op *op) {
    return op->delta_bytes || op->told ? op->delta_bytes : op->inner_delta_bytes;
}

static uint32_t key_of(const op_table *ops, const rn_timeline_op *op) {
    return ops->key_of[op->name];
}

// ---- keys and their sums ------------------------------------------------------------------------

static rn_status add_key(op_table *ops, rn_map *map, uint32_t number) {
    uint64_t key = ops->key_count;
    if (ops->key_of[number] != RN_NO_INDEX) return RN_OK;
    rn_str name = rn_export_op_name(&ops->x->names, &(rn_timeline_op){.name = number});
    if (!rn_map_find(map, name, &key)) {
        RN_TRY(rn_map_add(map, name, key, NULL));
        ops->keys[ops->key_count++].name = name;
    }
    ops->key_of[number] = (uint32_t)key;
    return RN_OK;
}

static rn_status find_keys(op_table *ops) {
    const rn_timeline *t = ops->x->timeline;
    rn_map map;
    RN_TRY(rn_arena_array(&ops->arena, t->name_count, sizeof *ops->key_of, (void **)&ops->key_of));
    RN_TRY(rn_arena_array(&ops->arena, t->name_count, sizeof *ops->keys, (void **)&ops->keys));
    for (uint32_t i = 0; i < t->name_count; i++)
        ops->key_of[i] = RN_NO_INDEX;
    rn_map_init(&map, FROM);
    rn_status s = RN_OK;
    for (uint32_t i = 0; i < t->op_count && s == RN_OK; i++)
        s = add_key(ops, &map, t->ops[i].name);
    for (uint32_t i = 0; i < t->sum_count && s == RN_OK; i++)
        s = add_key(ops, &map, t->sums[i].name);
    rn_map_free(&map);
    return s;
}

static void sum_keys(op_table *ops) {
    const rn_timeline *t = ops->x->timeline;
    for (uint32_t i = 0; i < t->op_count; i++) {
        key_stats *key = &ops->keys[key_of(ops, &t->ops[i])];
        double delta = (double)delta_of(&t->ops[i]);
        if (key->count == 0 || delta > key->delta_most) key->delta_most = delta;
        key->delta_sum += delta;
        key->count++;
        key->alloc_count += t->ops[i].alloc_count;
        key->reads += ops->tensors[t->ops[i].operands].reads;
        key->writes += ops->tensors[t->ops[i].operands].writes;
        key->listed += i < ops->listed_count;
    }
    for (uint32_t i = 0; i < t->sum_count; i++) { // a file's own sums stay what they are
        key_stats *key = &ops->keys[ops->key_of[t->sums[i].name]];
        key->count = t->sums[i].count;
        key->delta_sum = (double)t->sums[i].delta_bytes;
        key->delta_most = (double)t->sums[i].most_delta_bytes;
    }
    for (uint32_t i = 0; i < t->alloc_count; i++)
        if (t->allocs[i].op != RN_NO_INDEX)
            ops->keys[key_of(ops, &t->ops[t->allocs[i].op])].purposes |= 1u << t->allocs[i].purpose;
}

static rn_status count_tensors(op_table *ops) {
    const rn_timeline *t = ops->x->timeline;
    rn_export_operand operand;
    RN_TRY(
        rn_arena_array(&ops->arena, t->name_count, sizeof *ops->tensors, (void **)&ops->tensors));
    for (uint32_t i = 0; i < t->op_count; i++) {
        struct tensor_count *count = &ops->tensors[t->ops[i].operands];
        rn_str rest = ops->x->names.names[t->ops[i].operands].detail;
        if (!t->ops[i].operands || count->reads || count->writes) continue;
        while (rn_export_operand_next(&rest, 0, &operand))
            (*(operand.is_made ? &count->writes : &count->reads))++;
    }
    return RN_OK;
}

// ---- order, totals, calls -----------------------------------------------------------------------

static rn_status order_listed(op_table *ops) {
    const rn_timeline *t = ops->x->timeline;
    uint32_t first = 0;
    RN_TRY(
        rn_arena_array(&ops->arena, ops->listed_count, sizeof *ops->order, (void **)&ops->order));
    for (uint32_t i = 0; i < ops->key_count; i++) {
        ops->keys[i].first = first;
        first += ops->keys[i].listed;
        ops->keys[i].listed = 0;
    }
    for (uint32_t i = 0; i < ops->listed_count; i++) {
        key_stats *key = &ops->keys[key_of(ops, &t->ops[i])];
        ops->order[key->first + key->listed++] = i;
    }
    return RN_OK;
}

// A question about what is in use before its time has an even key, one about after an odd one.
static void answer(op_table *ops, const rn_sort_item *questions, size_t count) {
    const rn_timeline *t = ops->x->timeline;
    rn_change_walk walk;
    rn_change change;
    uint64_t bytes = 0;
    size_t next = 0;
    rn_change_walk_begin(&walk, t);
    while (next < count && rn_change_walk_next(&walk, &change)) {
        for (; next < count && questions[next].key < 2 * change.time_ns + 1; next++)
            ops->totals[questions[next].index] = bytes;
        const rn_timeline_alloc *a = &t->allocs[change.alloc];
        if (rn_json_counts(a)) bytes += change.is_end ? 0 - a->bytes : a->bytes;
    }
    for (; next < count; next++)
        ops->totals[questions[next].index] = bytes;
}

static rn_status find_totals(op_table *ops) {
    const rn_timeline *t = ops->x->timeline;
    size_t count = 2 * (size_t)ops->listed_count;
    rn_sort_item *questions;
    RN_TRY(rn_arena_array(&ops->arena, count, sizeof *ops->totals, (void **)&ops->totals));
    RN_TRY(rn_arena_array(&ops->arena, count, sizeof *questions, (void **)&questions));
    for (uint32_t i = 0; i < ops->listed_count; i++) {
        questions[2 * i] = (rn_sort_item){.key = 2 * t->ops[i].begin_ns, .index = 2 * i};
        questions[2 * i + 1] = (rn_sort_item){.key = 2 * t->ops[i].end_ns + 1, .index = 2 * i + 1};
    }
    RN_TRY(rn_radix_sort(FROM, questions, count));
    answer(ops, questions, count);
    return RN_OK;
}

static rn_status find_calls(op_table *ops) {
    const rn_timeline *t = ops->x->timeline;
    size_t filled = 0;
    RN_TRY(rn_arena_array(&ops->arena, t->op_count, sizeof *ops->calls, (void **)&ops->calls));
    for (uint32_t i = 0; i < t->op_count; i++) {
        const rn_timeline_op *op = &t->ops[i];
        if (op->parent == RN_NO_INDEX) continue;
        ops->calls[filled++].key =
            (uint64_t)key_of(ops, &t->ops[op->parent]) << 32 | key_of(ops, op);
    }
    RN_TRY(rn_radix_sort(FROM, ops->calls, filled));
    for (size_t i = 0; i < filled; i++)
        if (i == 0 || ops->calls[i].key != ops->calls[i - 1].key)
            ops->calls[ops->call_count++] = ops->calls[i];
    return RN_OK;
}

static rn_status make_table(op_table *ops) {
    rn_arena_init(&ops->arena, FROM, 0);
    RN_TRY(find_keys(ops));
    RN_TRY(count_tensors(ops));
    sum_keys(ops);
    RN_TRY(rn_live_places_begin(&ops->places, &ops->arena, ops->x->timeline));
    RN_TRY(order_listed(ops));
    RN_TRY(find_totals(ops));
    return find_calls(ops);
}

// ---- writing ------------------------------------------------------------------------------------

static void put_invocation(const op_table *ops, uint32_t index) {
    rn_json_export *x = ops->x;
    const rn_timeline_op *op = &x->timeline->ops[index];
    rn_json_object(&x->json, NULL);
    rn_json_export_mb(x, "memory_delta_mb", (double)delta_of(op));
    rn_json_i64(&x->json, "tensor_delta", (int64_t)op->alloc_count - (int64_t)op->free_count);
    rn_json_u64(&x->json, "tensors_allocated", op->alloc_count);
    rn_json_u64(&x->json, "tensors_deallocated", op->free_count);
    rn_json_u64(&x->json, "tensors_accessed", ops->tensors[op->operands].reads);
    double pre = (double)ops->totals[2 * index], post = (double)ops->totals[2 * index + 1];
    if (op->told && op->pre_bytes != UINT64_MAX) {
        pre = (double)op->pre_bytes;
        post = pre + (double)op->delta_bytes;
    }
    rn_json_export_mb(x, "pre_total_mb", pre);
    rn_json_export_mb(x, "post_total_mb", post);
    rn_json_export_time(x, "timestamp", op->begin_ns);
    rn_json_f64(&x->json, "duration_us", (double)(op->end_ns - op->begin_ns) / 1e3);
    rn_json_u64(&x->json, "peak_bytes", op->peak_bytes);
    rn_json_end(&x->json);
}

static void put_allocations(const op_table *ops) {
    rn_json *json = &ops->x->json;
    rn_json_object(json, "operation_allocations");
    for (uint32_t i = 0; i < ops->key_count; i++) {
        const key_stats *key = &ops->keys[i];
        rn_json_key(json, key->name);
        rn_json_array(json, NULL);
        for (uint32_t k = 0; k < key->listed; k++)
            put_invocation(ops, ops->order[key->first + k]);
        rn_json_end(json);
    }
    rn_json_end(json);
}

static void put_summary(const op_table *ops) {
    rn_json_export *x = ops->x;
    rn_json_object(&x->json, "operation_summary");
    for (uint32_t i = 0; i < ops->key_count; i++) {
        const key_stats *key = &ops->keys[i];
        rn_json_key(&x->json, key->name);
        rn_json_object(&x->json, NULL);
        rn_json_u64(&x->json, "invocation_count", key->count);
        rn_json_export_mb(x, "total_memory_delta_mb", key->delta_sum);
        rn_json_export_mb(x, "avg_memory_delta_mb", key->delta_sum / (double)key->count);
        rn_json_export_mb(x, "max_memory_delta_mb", key->delta_most);
        rn_json_end(&x->json);
    }
    rn_json_end(&x->json);
}

static void put_details(rn_json *json, const key_stats *key) {
    rn_json_object(json, "tensor_details");
    rn_json_array(json, "allocated");
    for (int p = 0; p < RN_PURPOSE_COUNT; p++)
        if (key->purposes & 1u << p) rn_json_string(json, NULL, rn_purpose_name((rn_purpose)p));
    rn_json_end(json);
    rn_json_array(json, "read");
    rn_json_end(json);
    rn_json_end(json);
}

static void put_graph(const op_table *ops) {
    rn_json_export *x = ops->x;
    size_t call = 0;
    rn_json_object(&x->json, "operation_graph");
    for (uint32_t i = 0; i < ops->key_count; i++) {
        const key_stats *key = &ops->keys[i];
        rn_json_key(&x->json, key->name);
        rn_json_object(&x->json, NULL);
        rn_json_u64(&x->json, "invocations", key->count);
        rn_json_export_mb(x, "total_memory_delta_mb", key->delta_sum);
        rn_json_u64(&x->json, "tensors_allocated", key->alloc_count);
        rn_json_u64(&x->json, "tensors_read", key->reads);
        rn_json_u64(&x->json, "tensors_written", key->writes);
        rn_json_array(&x->json, "child_operations");
        for (; call < ops->call_count && ops->calls[call].key >> 32 == i; call++)
            rn_json_text(&x->json, NULL, ops->keys[(uint32_t)ops->calls[call].key].name);
        rn_json_end(&x->json);
        put_details(&x->json, key);
        rn_json_end(&x->json);
    }
    rn_json_end(&x->json);
}

// The shapes that the operation's label has, "f16 [64, 64] x f32 [1, 64] -> f32 [1, 64]". Of
// several outputs, the form has room for the first.
static void put_shapes(rn_json_export *x, rn_str detail, uint32_t rows) {
    uint64_t inputs = 0, outputs = 0;
    rn_export_shape shape;
    rn_str made = rn_export_take_outputs(&detail);
    if (rn_str_equal(detail, RN_STR("[]"))) detail.bytes = 0; // an empty list, not one scalar
    rn_json_array(&x->json, "input_shapes");
    for (; rn_export_shape_next(&detail, &shape); inputs++) {
        rn_export_shape_bind(&shape, rows);
        rn_json_export_shape(x, NULL, &shape);
    }
    rn_json_end(&x->json);
    outputs = rn_export_shape_next(&made, &shape);
    rn_export_shape_bind(&shape, rows);
    rn_json_export_shape(x, "output_shape", &shape);
    while (rn_export_shape_next(&made, &shape))
        outputs++;
    rn_json_u64(&x->json, "num_inputs", inputs);
    rn_json_u64(&x->json, "num_outputs", outputs);
}

// The allocations in which the tensors lay that the operation reads, or makes: a weight that was
// read together with others lies in theirs.
static void put_tensor_ids(op_table *ops, const char *key, const rn_timeline_op *op, bool made) {
    rn_json_export *x = ops->x;
    rn_str rest = x->names.names[op->operands].detail;
    rn_export_operand operand;
    rn_json_array(&x->json, key);
    while (op->operands && rn_export_operand_next(&rest, op->rows, &operand)) {
        uint32_t alloc = rn_live_places_at(&ops->places, operand.address);
        if (operand.is_made == made && alloc != RN_NO_INDEX) rn_json_u64(&x->json, NULL, alloc);
    }
    rn_json_end(&x->json);
}

static void put_operands(op_table *ops, const char *key, const rn_timeline_op *op, bool made) {
    rn_json_export *x = ops->x;
    rn_str rest = x->names.names[op->operands].detail;
    rn_export_operand operand;
    rn_json_array(&x->json, key);
    while (rn_export_operand_next(&rest, op->rows, &operand)) {
        if (operand.is_made != made) continue;
        uint32_t alloc = rn_live_places_at(&ops->places, operand.address);
        rn_json_object(&x->json, NULL);
        rn_json_text(&x->json, "name", operand.name);
        rn_json_text(&x->json, "dtype", operand.shape.dtype);
        rn_json_export_shape(x, "shape", &operand.shape);
        rn_json_u64(&x->json, "bytes", operand.bytes);
        if (alloc == RN_NO_INDEX)
            rn_json_null(&x->json, "tensor_id");
        else
            rn_json_u64(&x->json, "tensor_id", alloc);
        rn_json_end(&x->json);
    }
    rn_json_end(&x->json);
}

static void put_log_entry(op_table *ops, uint32_t index) {
    rn_json_export *x = ops->x;
    const rn_timeline_op *op = &x->timeline->ops[index];
    rn_live_places_go(&ops->places, index);
    const rn_export_label *name = &x->names.names[op->name];
    rn_json_object(&x->json, NULL);
    rn_json_u64(&x->json, "operation_id", index);
    rn_json_export_time(x, "timestamp", op->begin_ns);
    rn_json_text(&x->json, "name", rn_export_op_name(&x->names, op));
    rn_json_text(&x->json, "module_type", rn_export_op_name(&x->names, op));
    rn_json_text(&x->json, "module_name", name->group);
    put_tensor_ids(ops, "input_tensor_ids", op, false);
    put_tensor_ids(ops, "output_tensor_ids", op, true);
    put_shapes(x, name->detail, op->rows);
    if (op->operands) {
        put_operands(ops, "inputs", op, false);
        put_operands(ops, "outputs", op, true);
    }
    rn_json_f64(&x->json, "duration_us", (double)(op->end_ns - op->begin_ns) / 1e3);
    rn_json_text(&x->json, "lane", x->names.lanes[op->lane]);
    rn_json_u64(&x->json, "depth", op->depth);
    rn_json_end(&x->json);
}

static void put_log(op_table *ops) {
    rn_json_array(&ops->x->json, "operation_log");
    for (uint32_t i = 0; i < ops->listed_count; i++)
        put_log_entry(ops, i);
    rn_json_end(&ops->x->json);
}

rn_status rn_json_export_operations(rn_json_export *x) {
    op_table ops = {.x = x, .listed_count = x->timeline->op_count};
    if (ops.listed_count > RN_JSON_OPERATIONS) ops.listed_count = RN_JSON_OPERATIONS;
    rn_status s = make_table(&ops);
    if (s == RN_OK) {
        put_allocations(&ops);
        put_summary(&ops);
        put_graph(&ops);
        put_log(&ops);
    }
    rn_arena_free_all(&ops.arena);
    return s;
}
