// export_json_test.c — every key of the seed's and pie's document, and the numbers in them.
#include "export_support.h"
#include "json_check.h"

#include "profile/export/export_json.h"

#include <time.h>

static rn_buffer text;

static void export_it(rn_timeline *t) {
    text = export_text(t, RN_EXPORT_JSON);
    assert_true(test_json_valid(text.data, text.bytes));
}

static void forget(rn_timeline *t) {
    rn_buffer_free(&text);
    rn_timeline_destroy(t);
}

static void expect(const char *path, const char *value) {
    char got[512];
    if (!test_json_get(text.data, text.bytes, path, got, sizeof got)) fail_msg("no %s", path);
    if (strcmp(got, value) != 0) fail_msg("%s: '%s' instead of '%s'", path, got, value);
}

static bool has(const char *path) {
    static char got[65536];
    return test_json_get(text.data, text.bytes, path, got, sizeof got);
}

static void it_has_every_key_of_the_seed_and_of_pie(void **state) {
    (void)state;
    static const char *const paths[] = {
        "metadata/generated_at",
        "metadata/num_snapshots",
        "metadata/operation_tracking_enabled",
        "metadata/pytorch_ops_tracking_enabled",
        "metadata/tensor_lifecycle_tracking_enabled",
        "metadata/operation_log_enabled",
        "metadata/mb_is",
        "snapshots/0/timestamp",
        "snapshots/0/checkpoint_name",
        "snapshots/0/total_bytes",
        "snapshots/0/total_mb",
        "snapshots/0/tensor_count",
        "snapshots/0/top_allocations/0/tensor_id",
        "snapshots/0/top_allocations/0/size_bytes",
        "snapshots/0/top_allocations/0/size_mb",
        "snapshots/0/top_allocations/0/shape",
        "snapshots/0/top_allocations/0/dtype",
        "snapshots/0/top_allocations/0/device",
        "snapshots/0/top_allocations/0/requires_grad",
        "snapshots/0/top_allocations/0/allocated_by",
        "snapshots/0/top_allocations/0/purpose",
        "snapshots/0/top_allocations/0/is_persistent",
        "snapshots/0/top_allocations/0/is_reusable",
        "snapshots/0/top_allocations/0/operation",
        "snapshots/0/device_breakdown/cpu/total_bytes",
        "snapshots/0/device_breakdown/cpu/total_mb",
        "snapshots/0/device_breakdown/cpu/count",
        "snapshots/0/device_breakdown/cpu/tensors/0/tensor_id",
        "operation_allocations/matmul/0/memory_delta_mb",
        "operation_allocations/matmul/0/tensor_delta",
        "operation_allocations/matmul/0/tensors_allocated",
        "operation_allocations/matmul/0/tensors_deallocated",
        "operation_allocations/matmul/0/tensors_accessed",
        "operation_allocations/matmul/0/pre_total_mb",
        "operation_allocations/matmul/0/post_total_mb",
        "operation_allocations/matmul/0/timestamp",
        "operation_summary/matmul/invocation_count",
        "operation_summary/matmul/total_memory_delta_mb",
        "operation_summary/matmul/avg_memory_delta_mb",
        "operation_summary/matmul/max_memory_delta_mb",
        "operation_graph/matmul/invocations",
        "operation_graph/matmul/total_memory_delta_mb",
        "operation_graph/matmul/tensors_allocated",
        "operation_graph/matmul/tensors_read",
        "operation_graph/matmul/tensors_written",
        "operation_graph/matmul/child_operations",
        "operation_graph/matmul/tensor_details/allocated",
        "operation_graph/matmul/tensor_details/read",
        "tensor_lifecycle/0/purpose",
        "tensor_lifecycle/0/size_mb",
        "tensor_lifecycle/0/shape",
        "tensor_lifecycle/0/is_persistent",
        "tensor_lifecycle/0/is_reusable",
        "tensor_lifecycle/0/events/0/tensor_id",
        "tensor_lifecycle/0/events/0/event_type",
        "tensor_lifecycle/0/events/0/operation",
        "tensor_lifecycle/0/events/0/timestamp",
        "tensor_lifecycle/0/events/0/size_mb",
        "tensor_lifecycle/0/events/0/shape",
        "pytorch_operations/0/op_name",
        "pytorch_operations/0/count",
        "pytorch_operations/0/cpu_time_us",
        "pytorch_operations/0/cuda_time_us",
        "pytorch_operations/0/cpu_memory_mb",
        "pytorch_operations/0/cuda_memory_mb",
        "pytorch_operations/0/input_shapes",
        "operation_log/0/operation_id",
        "operation_log/0/timestamp",
        "operation_log/0/name",
        "operation_log/0/module_type",
        "operation_log/0/module_name",
        "operation_log/0/input_tensor_ids",
        "operation_log/0/output_tensor_ids",
        "operation_log/0/input_shapes",
        "operation_log/0/output_shape",
        "operation_log/0/num_inputs",
        "operation_log/0/num_outputs",
    };
    rn_timeline *t = make_small();
    export_it(t);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        if (!has(paths[i])) fail_msg("no %s", paths[i]);
    forget(t);
}

static void snapshots_are_the_marks_the_peak_and_the_end(void **state) {
    (void)state;
    rn_timeline *t = make_small();
    export_it(t);
    expect("metadata/num_snapshots", "5");
    expect("snapshots/0/checkpoint_name", "peak");
    expect("snapshots/0/total_bytes", "7168");
    expect("snapshots/0/reserved_bytes", "12288");
    expect("snapshots/0/timestamp", "2023-11-14T22:13:20.123460"); // 4000 ns after ...456789
    expect("snapshots/0/tensor_count", "3");
    expect("snapshots/0/device_breakdown/cpu/total_mb", "0.0068359375");
    expect("snapshots/1/checkpoint_name", "after_load");
    expect("snapshots/1/total_bytes", "7168");
    expect("snapshots/2/checkpoint_name", "snapshot_0001");
    expect("snapshots/2/total_bytes", "4096");
    expect("snapshots/3/checkpoint_name", "refusal");
    expect("snapshots/3/total_bytes", "4608");
    expect("snapshots/4/checkpoint_name", "final");
    expect("snapshots/4/total_bytes", "4608");
    expect("snapshots/4/device_breakdown/cuda:0/total_bytes", "512");
    expect("metadata/peak_bytes", "7168");
    expect("metadata/peak_reserved_bytes", "12800");
    forget(t);
}

static void a_tensor_has_shape_and_dtype_from_its_label(void **state) {
    (void)state;
    rn_timeline *t = make_small();
    export_it(t);
    expect("snapshots/0/top_allocations/0/shape", "[64,32]");
    expect("snapshots/0/top_allocations/0/dtype", "f16");
    expect("snapshots/0/top_allocations/0/purpose", "weights");
    expect("snapshots/0/top_allocations/0/is_persistent", "true");
    expect("snapshots/0/top_allocations/0/allocated_by", "unknown");
    expect("snapshots/0/top_allocations/0/operation", "null");
    expect("snapshots/0/top_allocations/1/operation", "matmul");
    expect("snapshots/0/top_allocations/1/is_reusable", "true");
    expect("snapshots/0/top_allocations/2/dtype", "");
    expect("snapshots/0/top_allocations/2/shape", "[]");
    expect("tensor_lifecycle/2/events/0/event_type", "allocated");
    expect("tensor_lifecycle/2/events/1/event_type", "deallocated");
    expect("tensor_lifecycle/2/events/1/timestamp", "2023-11-14T22:13:20.123462");
    assert_false(has("tensor_lifecycle/1")); // the arena is no tensor
    assert_false(has("tensor_lifecycle/0/events/1"));
    forget(t);
}

static void operations_have_their_bytes_and_children(void **state) {
    (void)state;
    rn_timeline *t = make_small();
    export_it(t);
    expect("operation_allocations/matmul/0/memory_delta_mb", "0.0029296875"); // 3072 of the arena
    expect("operation_allocations/matmul/0/tensors_allocated", "2");
    expect("operation_allocations/matmul/0/pre_total_mb", "0.00390625");
    expect("operation_allocations/matmul/0/post_total_mb", "0.0068359375");
    expect("operation_allocations/forward/0/memory_delta_mb", "0.00048828125");
    expect("operation_summary/forward/invocation_count", "1");
    expect("operation_graph/forward/child_operations", "[\"matmul\"]");
    expect("operation_graph/matmul/child_operations", "[]");
    expect("operation_graph/matmul/tensor_details/allocated", "[\"activations\",\"workspace\"]");
    expect("operation_log/1/module_name", "blk.0");
    expect("operation_log/1/input_shapes", "[[64,64],[1,64]]");
    expect("operation_log/1/num_inputs", "2");
    expect("operation_log/2/lane", "compute");
    expect("pytorch_operations/0/input_shapes", "[[1, 512], [512, 64]]");
    expect("pytorch_operations/0/cpu_memory_mb", "1");
    expect("pytorch_operations/1/input_shapes", "[]"); // what it had was no JSON
    forget(t);
}

// As sessions label their operations.
static void inputs_and_outputs_are_told_apart(void **state) {
    (void)state;
    rn_timeline *t = make_empty();
    uint8_t device;
    uint32_t lane;
    assert_ok(rn_timeline_add_device(t, RN_STR("host"), &device));
    assert_ok(rn_timeline_add_lane(t, RN_STR("main"), false, &lane));
    const char *matmul = "matmul f32 [rows, 192] x f16 [64, 192] -> f32 [rows, 64]";
    add_op(t, 0, 10, add_name(t, "matmul.3", "", matmul));
    add_op(t, 20, 30, add_name(t, "split", "", "split f32 [8] -> f32 [2] x f32 [6]"));
    add_op(t, 40, 50, add_name(t, "none", "", "[]"));
    assert_ok(rn_timeline_finish(t));
    export_it(t);
    expect("operation_log/2/input_shapes", "[]");
    expect("operation_log/0/input_shapes", "[[-1,192],[64,192]]");
    expect("operation_log/0/output_shape", "[-1,64]");
    expect("operation_log/0/num_inputs", "2");
    expect("operation_log/0/num_outputs", "1");
    expect("operation_log/1/input_shapes", "[[8]]");
    expect("operation_log/1/output_shape", "[2]");
    expect("operation_log/1/num_outputs", "2");
    forget(t);
}

// A frozen weight beside one that is trained, a gradient (which has none of its own), an activation
// that is part of the graph.
static void requires_grad_is_each_tensors_own(void **state) {
    (void)state;
    rn_timeline *t = make_empty();
    uint8_t device;
    uint32_t lane;
    assert_ok(rn_timeline_add_device(t, RN_STR("host"), &device));
    assert_ok(rn_timeline_add_lane(t, RN_STR("main"), false, &lane));
    uint32_t trained = add_name(t, "w", "", "f32 [16] requires_grad");
    uint32_t frozen = add_name(t, "frozen", "", "f32 [12]");
    uint32_t gradient = add_name(t, "w.grad", "", "f32 [8]");
    uint32_t made = add_name(t, "tensor", "", "torch.float32 [4] requires_grad");
    add_block(t, 0, RN_STILL_LIVE, 0x1000, 64, trained, RN_PURPOSE_WEIGHTS, false);
    add_block(t, 0, RN_STILL_LIVE, 0x1800, 48, frozen, RN_PURPOSE_WEIGHTS, false);
    add_block(t, 1, RN_STILL_LIVE, 0x2000, 32, gradient, RN_PURPOSE_GRADIENTS, false);
    add_block(t, 2, RN_STILL_LIVE, 0x3000, 16, made, RN_PURPOSE_ACTIVATIONS, false);
    assert_ok(rn_timeline_finish(t));
    export_it(t);
    expect("snapshots/0/top_allocations/0/requires_grad", "true");
    expect("snapshots/0/top_allocations/1/requires_grad", "false");
    expect("snapshots/0/top_allocations/2/requires_grad", "false");
    expect("snapshots/0/top_allocations/3/requires_grad", "true");
    expect("snapshots/0/top_allocations/3/shape", "[4]");
    forget(t);
}

// The ledger calls it the host; who reads this form knows PyTorch's names.
static void host_is_called_cpu(void **state) {
    (void)state;
    rn_timeline *t = make_small();
    export_it(t);
    expect("snapshots/0/top_allocations/0/device", "cpu");
    expect("tensor_lifecycle/0/device", "cpu");
    expect("tensor_lifecycle/4/device", "cuda:0");
    assert_false(has("snapshots/0/device_breakdown/host"));
    expect("snapshots/0/device_breakdown/cpu/count", "3");
    forget(t);
}

// As a recording of PyTorch has them: its tensors on "cpu", the library's own on "host".
static void host_and_cpu_are_one_device(void **state) {
    (void)state;
    rn_timeline *t = make_empty();
    uint8_t host, cpu;
    uint32_t lane;
    assert_ok(rn_timeline_add_device(t, RN_STR("host"), &host));
    assert_ok(rn_timeline_add_device(t, RN_STR("cpu"), &cpu));
    assert_ok(rn_timeline_add_lane(t, RN_STR("main"), false, &lane));
    rn_timeline_alloc block = {.end_ns = RN_STILL_LIVE, .address = 0x1000, .bytes = 64};
    block.device = host;
    assert_ok(rn_timeline_add_alloc(t, &block));
    block.device = cpu;
    block.address = 0x2000;
    block.bytes = 32;
    assert_ok(rn_timeline_add_alloc(t, &block));
    assert_ok(rn_timeline_finish(t));
    export_it(t);
    expect("snapshots/0/device_breakdown/cpu/total_bytes", "96");
    expect("snapshots/0/device_breakdown/cpu/count", "2");
    expect("snapshots/0/device_breakdown/cpu/tensors/0/device", "cpu");
    expect("snapshots/0/device_breakdown/cpu/tensors/1/device", "cpu");
    assert_false(has("snapshots/0/device_breakdown/host"));
    forget(t);
}

// Two runs of one operation, with 3 rows and with 5; w is in a block with another weight.
static void operations_have_their_tensors_with_the_rows_of_the_run(void **state) {
    (void)state;
    rn_timeline *t = make_empty();
    uint8_t device;
    uint32_t lane;
    assert_ok(rn_timeline_add_device(t, RN_STR("host"), &device));
    assert_ok(rn_timeline_add_lane(t, RN_STR("main"), false, &lane));
    uint32_t name =
        add_name(t, "up", "blk.0", "matmul f16 [8, 4] x f32 [rows, 4] -> f32 [rows, 8]");
    uint32_t operands = add_name(t, "", "",
                                 "< 1000 f16 [8, 4] blk.0.up\n< 2000 f32 [rows, 4] a b\n"
                                 "no line of ours\n> 3000 f32 [rows, 8] y\n> 0 f9 [2] none\n");
    add_block(t, 0, RN_STILL_LIVE, 0x1000, 64, 0, RN_PURPOSE_WEIGHTS, false);
    add_block(t, 1, 100, 0x2000, 80, 0, RN_PURPOSE_ACTIVATIONS, false);
    add_block(t, 10, 20, 0x3000, 160, 0, RN_PURPOSE_ACTIVATIONS, false);
    add_block(t, 30, 40, 0x3000, 160, 0, RN_PURPOSE_ACTIVATIONS, false);
    for (uint32_t i = 0; i < 2; i++)
        assert_ok(rn_timeline_add_op(t, &(rn_timeline_op){.begin_ns = 9 + 20 * i,
                                                          .end_ns = 20 + 20 * i,
                                                          .name = name,
                                                          .operands = operands,
                                                          .rows = 3 + 2 * i}));
    assert_ok(rn_timeline_finish(t));
    export_it(t);
    expect("metadata/tensor_accesses_recorded", "true");
    expect("operation_log/0/input_shapes", "[[8,4],[3,4]]");
    expect("operation_log/1/input_shapes", "[[8,4],[5,4]]");
    expect("operation_log/1/output_shape", "[5,8]");
    expect("operation_log/0/input_tensor_ids", "[0,1]");
    expect("operation_log/0/output_tensor_ids", "[2]");
    expect("operation_log/1/output_tensor_ids", "[3]");
    expect("operation_log/1/inputs/1/name", "a b");
    expect("operation_log/1/inputs/1/dtype", "f32");
    expect("operation_log/1/inputs/1/shape", "[5,4]");
    expect("operation_log/1/inputs/1/bytes", "80");
    expect("operation_log/1/inputs/0/bytes", "64");
    expect("operation_log/1/outputs/0/tensor_id", "3");
    expect("operation_log/1/outputs/1/tensor_id", "null");
    expect("operation_allocations/up/0/tensors_accessed", "2");
    expect("operation_graph/up/tensors_read", "4");
    expect("operation_graph/up/tensors_written", "4");
    forget(t);
}

// A saw whose teeth grow: 1, 2, ... units, each released before the next.
static void new_peaks_are_thinned_and_the_last_is_the_true_one(void **state) {
    (void)state;
    rn_timeline *t = make_empty();
    uint8_t device;
    uint32_t lane;
    assert_ok(rn_timeline_add_device(t, RN_STR("host"), &device));
    assert_ok(rn_timeline_add_lane(t, RN_STR("main"), false, &lane));
    for (uint64_t i = 1; i <= 2000; i++)
        add_block(t, 10 * i, 10 * i + 5, 0x1000, i * 100, 0, RN_PURPOSE_OTHER, false);
    assert_ok(rn_timeline_finish(t));
    text = export_text(t, RN_EXPORT_JSON);
    char path[64];
    uint64_t count = test_json_u64(text.data, text.bytes, "metadata/num_snapshots"), last = 0;
    assert_in_range(count, 16, RN_JSON_PEAKS + 1);
    for (uint64_t i = 0; i + 1 < count; i++) {
        snprintf(path, sizeof path, "snapshots/%llu/checkpoint_name", (unsigned long long)i);
        expect(path, "peak");
        snprintf(path, sizeof path, "snapshots/%llu/total_bytes", (unsigned long long)i);
        uint64_t bytes = test_json_u64(text.data, text.bytes, path);
        assert_true(bytes > last);
        last = bytes;
    }
    assert_int_equal(last, 200000);
    forget(t);
}

static void lists_of_tensors_are_bounded_and_say_so(void **state) {
    (void)state;
    rn_timeline *t = make_empty();
    uint8_t device;
    uint32_t lane;
    assert_ok(rn_timeline_add_device(t, RN_STR("host"), &device));
    assert_ok(rn_timeline_add_lane(t, RN_STR("main"), false, &lane));
    for (uint64_t i = 0; i < RN_JSON_LISTED + 5; i++)
        add_block(t, i, RN_STILL_LIVE, 0x1000 * (i + 1), 8 + i, 0, RN_PURPOSE_OTHER, false);
    assert_ok(rn_timeline_finish(t));
    text = export_text(t, RN_EXPORT_JSON);
    expect("snapshots/0/device_breakdown/cpu/count", "1005");
    expect("snapshots/0/device_breakdown/cpu/tensors_omitted", "5");
    expect("snapshots/0/device_breakdown/cpu/tensors/0/size_bytes", "1012");
    expect("snapshots/0/device_breakdown/cpu/tensors/999/size_bytes", "13");
    assert_false(has("snapshots/0/device_breakdown/cpu/tensors/1000"));
    assert_false(has("snapshots/0/top_allocations/10"));
    forget(t);
}

// Sizes 1, 2, 3 in turn: all of 3, all of 2, and of 1 the first that still have room.
static void the_largest_lifecycles_are_listed(void **state) {
    (void)state;
    rn_timeline *t = make_empty();
    uint8_t device;
    uint32_t lane;
    assert_ok(rn_timeline_add_device(t, RN_STR("host"), &device));
    assert_ok(rn_timeline_add_lane(t, RN_STR("main"), false, &lane));
    for (uint64_t i = 0; i < RN_JSON_LIFECYCLES + 3; i++)
        add_block(t, i, i + 1, 0x1000, 1 + i % 3, 0, RN_PURPOSE_OTHER, false);
    assert_ok(rn_timeline_finish(t));
    text = export_text(t, RN_EXPORT_JSON);
    expect("metadata/tensor_lifecycles_omitted", "3");
    const char *lifecycles = strstr(text.data, "\"tensor_lifecycle\":");
    assert_non_null(strstr(lifecycles, "\"100001\":{")); // of size 3
    assert_non_null(strstr(lifecycles, "\"99993\":{"));  // of size 1, the last that has room
    static const char *const left_out[] = {"\"99996\":{", "\"99999\":{", "\"100002\":{"};
    for (size_t i = 0; i < 3; i++)
        assert_null(strstr(lifecycles, left_out[i]));
    forget(t);
}

static void many_marks_are_thinned(void **state) {
    (void)state;
    rn_timeline *t = make_empty();
    uint32_t lane;
    assert_ok(rn_timeline_add_lane(t, RN_STR("main"), false, &lane));
    for (uint64_t i = 0; i < 5000; i++)
        add_mark(t, i, 0, i % 2 ? RN_MARK_PERIODIC : RN_MARK_CHECKPOINT, 0);
    assert_ok(rn_timeline_finish(t));
    export_it(t);
    expect("metadata/num_snapshots", "2501");
    expect("metadata/snapshots_omitted", "2500");
    expect("snapshots/2500/checkpoint_name", "final");
    assert_false(has("snapshots/2501"));
    forget(t);
}

static void hostile_names_are_valid_json_with_unique_keys(void **state) {
    (void)state;
    rn_timeline *t = make_hostile();
    export_it(t);
    // "\xff" and "\xfe" look the same, and are one operation.
    expect("operation_summary/\xef\xbf\xbd/invocation_count", "2");
    assert_non_null(strstr(text.data, "\"\xef\xbf\xbd #1\":{\"total_bytes\":281474976710656,"));
    forget(t);
}

static void an_empty_timeline_has_one_snapshot(void **state) {
    (void)state;
    rn_timeline *t = make_empty();
    assert_ok(rn_timeline_finish(t));
    export_it(t);
    expect("metadata/num_snapshots", "1");
    expect("metadata/operation_tracking_enabled", "false");
    expect("snapshots/0/total_bytes", "0");
    expect("operation_allocations", "{}");
    expect("tensor_lifecycle", "{}");
    forget(t);
}

static void failing_sinks_are_reported(void **state) {
    (void)state;
    check_failing_sinks(RN_EXPORT_JSON);
}

static void no_memory_is_reported(void **state) {
    (void)state;
    check_torture(RN_EXPORT_JSON);
}

static void forms_have_names(void **state) {
    (void)state;
    static const char *const names[] = {"html", "json",       "chrome", "torch",
                                        "csv",  "prometheus", "pprof"};
    for (int i = 0; i < RN_EXPORT_COUNT; i++)
        assert_string_equal(rn_export_name((rn_export)i), names[i]);
    rn_timeline *t = make_small();
    breaking_sink sink = {0};
    assert_fails(RN_INVALID,
                 rn_timeline_export(t, RN_EXPORT_COUNT, (rn_sink){&sink, write_or_break}));
    assert_int_equal(sink.writes, 0);
    rn_timeline_destroy(t);
}

static void shapes_are_found_in_labels(void **state) {
    (void)state;
    rn_export_shape shape;
    rn_str rest = RN_STR("torch.float32 [10, 3] x [x] q8_0 [] y [1");
    assert_true(rn_export_shape_next(&rest, &shape));
    assert_true(rn_str_equal(shape.dtype, RN_STR("torch.float32")));
    assert_int_equal(shape.count, 2);
    assert_int_equal(shape.dims[0], 10);
    assert_int_equal(shape.dims[1], 3);
    assert_true(rn_export_shape_next(&rest, &shape));
    assert_true(rn_str_equal(shape.dtype, RN_STR("q8_0")));
    assert_int_equal(shape.count, 0);
    assert_false(rn_export_shape_next(&rest, &shape));
    assert_int_equal(shape.dtype.bytes, 0);
    rest = RN_STR("[[-1, 512], [512, 64]]");
    assert_true(rn_export_shape_next(&rest, &shape));
    assert_int_equal(shape.count, 2);
    assert_int_equal(shape.dims[0], -1);
    assert_int_equal(shape.dims[1], 512);
    assert_true(rn_export_shape_next(&rest, &shape));
    assert_int_equal(shape.dims[1], 64);
    assert_false(rn_export_shape_next(&rest, &shape));
    rest = RN_STR("f32 [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]");
    assert_false(rn_export_shape_next(&rest, &shape));
    rest = RN_STR("f32 [99999999999999999999]");
    assert_false(rn_export_shape_next(&rest, &shape));
}

int main(void) {
    setenv("TZ", "UTC", 1);
    tzset();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_has_every_key_of_the_seed_and_of_pie),
        cmocka_unit_test(snapshots_are_the_marks_the_peak_and_the_end),
        cmocka_unit_test(a_tensor_has_shape_and_dtype_from_its_label),
        cmocka_unit_test(operations_have_their_bytes_and_children),
        cmocka_unit_test(inputs_and_outputs_are_told_apart),
        cmocka_unit_test(requires_grad_is_each_tensors_own),
        cmocka_unit_test(host_is_called_cpu),
        cmocka_unit_test(host_and_cpu_are_one_device),
        cmocka_unit_test(operations_have_their_tensors_with_the_rows_of_the_run),
        cmocka_unit_test(new_peaks_are_thinned_and_the_last_is_the_true_one),
        cmocka_unit_test(lists_of_tensors_are_bounded_and_say_so),
        cmocka_unit_test(the_largest_lifecycles_are_listed),
        cmocka_unit_test(many_marks_are_thinned),
        cmocka_unit_test(hostile_names_are_valid_json_with_unique_keys),
        cmocka_unit_test(an_empty_timeline_has_one_snapshot),
        cmocka_unit_test(failing_sinks_are_reported),
        cmocka_unit_test(no_memory_is_reported),
        cmocka_unit_test(forms_have_names),
        cmocka_unit_test(shapes_are_found_in_labels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
