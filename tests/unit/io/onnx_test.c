// ONNX files as structures and as checkpoints: where initializers lie, and what is refused.
#include "onnx_write.h"

#include <ration/checkpoint.h>

#include "base/str.h"
#include "io/onnx.h"
#include "memory/account.h"

#include <sys/stat.h>
#include <unistd.h>

static const int64_t two[] = {2};
static const float numbers[] = {1.5f, -2};

static rn_status open_model(const message *graph, rn_checkpoint **out) {
    message model = model_message(graph);
    test_write(test_own_path("m.onnx"), model.data, model.bytes);
    return rn_checkpoint_open(test_own_path("m.onnx"), out);
}

static void initializers_are_tensors_of_a_checkpoint(void **state) {
    (void)state;
    message graph = {0}, raw = tensor_message("w", 1, two, 1, numbers, 8), typed = {0}, half = {0};
    rn_checkpoint *checkpoint;
    float got[2];
    int64_t longs[2];
    put_message(&graph, 5, &raw);
    put_int(&typed, 1, 2); // int64_data, one by one
    put_int(&typed, 2, 7);
    put_int(&typed, 7, -3);
    put_int(&typed, 7, 1ll << 40);
    put_text(&typed, 8, "axes");
    put_message(&graph, 5, &typed);
    put_int(&half, 1, 3); // int4: three elements in two bytes
    put_int(&half, 2, 22);
    put_text(&half, 8, "q");
    put_bytes(&half, 9, "\x8f\x07", 2);
    put_message(&graph, 5, &half);
    assert_ok(open_model(&graph, &checkpoint));
    assert_int_equal(rn_checkpoint_container(checkpoint), RN_CONTAINER_ONNX);
    assert_int_equal(rn_checkpoint_count(checkpoint), 3);
    const rn_tensor_info *w = rn_checkpoint_find(checkpoint, "w");
    assert_ok(rn_checkpoint_read(checkpoint, w, 0, got, sizeof got));
    assert_memory_equal(got, numbers, sizeof numbers);
    const rn_tensor_info *axes = rn_checkpoint_find(checkpoint, "axes");
    assert_ok(rn_checkpoint_read(checkpoint, axes, 0, longs, sizeof longs));
    assert_int_equal(longs[0], -3);
    assert_true(longs[1] == 1ll << 40);
    const rn_tensor_info *q = rn_checkpoint_find(checkpoint, "q");
    int8_t small[3];
    assert_ok(rn_checkpoint_read(checkpoint, q, 0, small, sizeof small));
    assert_int_equal(small[0], -1);
    assert_int_equal(small[1], -8);
    assert_int_equal(small[2], 7);
    rn_checkpoint_close(checkpoint);
}

static void put_external(message *t, const char *key, const char *value) {
    message entry = {0};
    put_text(&entry, 1, key);
    put_text(&entry, 2, value);
    put_message(t, 13, &entry);
}

static rn_status open_external(const char *location, const char *offset, const char *length,
                               rn_checkpoint **out) {
    message graph = {0}, t = {0};
    put_int(&t, 1, 2);
    put_int(&t, 2, 1);
    put_text(&t, 8, "w");
    put_external(&t, "location", location);
    if (offset) put_external(&t, "offset", offset);
    if (length) put_external(&t, "length", length);
    put_int(&t, 14, 1);
    put_message(&graph, 5, &t);
    return open_model(&graph, out);
}

static void external_data_lies_in_the_folder(void **state) {
    (void)state;
    rn_checkpoint *checkpoint;
    float got[2];
    char bytes[64 + 8] = {0};
    memcpy(bytes + 64, numbers, 8);
    test_write(test_own_path("weights.bin"), bytes, sizeof bytes);
    assert_ok(open_external("weights.bin", "64", "8", &checkpoint));
    const rn_tensor_info *w = rn_checkpoint_find(checkpoint, "w");
    assert_ok(rn_checkpoint_read(checkpoint, w, 0, got, sizeof got));
    assert_memory_equal(got, numbers, sizeof numbers);
    assert_int_equal(w->offset, 64);
    rn_checkpoint_close(checkpoint);
    assert_fails(RN_CORRUPT, open_external("weights.bin", "68", "8", &checkpoint));
    assert_fails(RN_CORRUPT, open_external("weights.bin", "64", "7", &checkpoint));
    assert_fails(RN_CORRUPT,
                 open_external("weights.bin", "18446744073709551615", "8", &checkpoint));
    assert_fails(RN_CORRUPT, open_external("weights.bin", "-1", "8", &checkpoint));
    assert_fails(RN_NOT_FOUND, open_external("missing.bin", "0", "8", &checkpoint));
}

static void no_path_leads_out_of_the_folder(void **state) {
    (void)state;
    rn_checkpoint *checkpoint;
    char outside[300];
    snprintf(outside, sizeof outside, "%s/../outside.bin", test_own_folder);
    test_write(outside, numbers, sizeof numbers);
    assert_fails(RN_CORRUPT, open_external("../outside.bin", NULL, NULL, &checkpoint));
    assert_fails(RN_CORRUPT, open_external("/etc/hostname", NULL, NULL, &checkpoint));
    assert_fails(RN_CORRUPT, open_external("", NULL, NULL, &checkpoint));
    assert_int_equal(symlink(outside, test_own_path("link.bin")), 0);
    assert_fails(RN_CORRUPT, open_external("link.bin", NULL, NULL, &checkpoint));
    unlink(outside);
}

static void lies_about_sizes_are_refused(void **state) {
    (void)state;
    rn_checkpoint *checkpoint;
    static const int64_t huge[] = {1ll << 40, 1ll << 40}, many[] = {1 << 20}, negative[] = {-2};
    const struct {
        const int64_t *dims;
        size_t rank;
    } rows[] = {{huge, 2}, {many, 1}, {negative, 1}};
    for (size_t i = 0; i < 3; i++) {
        message graph = {0},
                t = tensor_message("w", 1, rows[i].dims, rows[i].rank, numbers, sizeof numbers);
        put_message(&graph, 5, &t);
        assert_fails(RN_CORRUPT, open_model(&graph, &checkpoint));
    }
    message graph = {0}, t = {0}; // a typed field with one element too few
    put_int(&t, 1, 2);
    put_int(&t, 2, 7);
    put_int(&t, 7, 1);
    put_message(&graph, 5, &t);
    assert_fails(RN_CORRUPT, open_model(&graph, &checkpoint));
}

static void every_cut_of_a_file_is_refused_or_read(void **state) {
    (void)state;
    message graph = {0}, t = tensor_message("w", 1, two, 1, numbers, 8);
    message node = node_message("Relu", "x", NULL, NULL, "y");
    put_message(&graph, 5, &t);
    put_message(&graph, 1, &node);
    message model = model_message(&graph);
    for (size_t bytes = 0; bytes <= model.bytes; bytes++) {
        rn_onnx_model *parsed = NULL;
        uint8_t *exact = malloc(bytes + !bytes); // so that a byte behind it is seen
        memcpy(exact, model.data, bytes);
        rn_status s = rn_onnx_parse((rn_str){(char *)exact, bytes}, &parsed);
        assert_true(s == RN_CORRUPT || s == RN_OK);
        rn_onnx_free(parsed);
        free(exact);
    }
}

static void names_are_text(void **state) {
    static const char *const names[] = {"a\033[2J", "a\nb", "\xff\xfe", "\x7f"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        message node = {0}, graph = {0};
        put_text(&node, 3, names[i]);
        put_message(&graph, 1, &node);
        message model = model_message(&graph);
        rn_onnx_model *parsed = NULL;
        assert_fails(RN_CORRUPT, rn_onnx_parse((rn_str){(char *)model.data, model.bytes}, &parsed));
    }
}

static void graphs_inside_of_graphs_end_somewhere(void **state) {
    (void)state;
    message graph = {0};
    put_text(&graph, 2, "innermost");
    for (int depth = 0; depth < 40; depth++) {
        message attribute = {0}, node = {0}, outer = {0};
        put_text(&attribute, 1, "body");
        put_message(&attribute, 6, &graph);
        put_message(&node, 5, &attribute);
        put_message(&outer, 1, &node);
        graph = outer;
    }
    message model = model_message(&graph);
    rn_onnx_model *parsed = NULL;
    assert_fails(RN_CORRUPT, rn_onnx_parse((rn_str){(char *)model.data, model.bytes}, &parsed));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(initializers_are_tensors_of_a_checkpoint, test_make_folder),
        cmocka_unit_test_setup(external_data_lies_in_the_folder, test_make_folder),
        cmocka_unit_test_setup(no_path_leads_out_of_the_folder, test_make_folder),
        cmocka_unit_test_setup(lies_about_sizes_are_refused, test_make_folder),
        cmocka_unit_test(every_cut_of_a_file_is_refused_or_read),
        cmocka_unit_test(names_are_text),
        cmocka_unit_test(graphs_inside_of_graphs_end_somewhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
