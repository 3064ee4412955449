// model_folder_test.c — which files of a folder are the model, and whether an index and its shards
// agree.
#include "model_files.h"

#include "base/str.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define INDEX "model.safetensors.index.json"

// A safetensors file with tensors of one byte each, called by the letters of `names`.
static void make_shard(const char *file, const char *names) {
    blob header = {0};
    put_text(&header, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (int i = 0; names[i]; i++)
        put_format(&header, ",\"%c\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%d,%d]}",
                   names[i], i, i + 1);
    put_text(&header, "}");
    write_safetensors(test_own_path(file), header.data, header.count, names, strlen(names));
    free(header.data);
}

static void make_index(const char *text) {
    test_write(test_own_path(INDEX), text, strlen(text));
}

static rn_status open_folder(rn_checkpoint **out) {
    return rn_checkpoint_open(test_own_folder, out);
}

static void expect_refused(rn_status expected, const char *words) {
    rn_checkpoint *c;
    rn_status s = open_folder(&c);
    if (s != expected)
        fail_msg("%s (%s) instead of '%s'", rn_status_name(s), rn_last_error()->message, words);
    assert_null(c);
    assert_said(words);
    assert_int_equal(held_bytes(), 0);
}

static void expect_names(const char *names) {
    rn_checkpoint *c;
    assert_ok(open_folder(&c));
    assert_int_equal(rn_checkpoint_count(c), strlen(names));
    for (size_t i = 0; names[i]; i++) {
        const rn_tensor_info *t = rn_checkpoint_tensor(c, i);
        char value = 0;
        assert_int_equal(t->name.data[0], names[i]);
        assert_ptr_equal(rn_checkpoint_find(c, t->name.data), t);
        assert_ok(rn_checkpoint_read(c, t, 0, &value, 1));
        assert_int_equal(value, names[i]); // it comes from the right file
    }
    rn_checkpoint_close(c);
    assert_int_equal(held_bytes(), 0);
}

// ---- without an index --------------------------------------------------------------------------

static void a_folder_with_one_file_is_that_file(void **state) {
    (void)state;
    make_shard("model.safetensors", "abc");
    expect_names("abc");
}

static void any_only_safetensors_file_will_do(void **state) {
    (void)state;
    make_shard("adapter.safetensors", "xy");
    test_write(test_own_path("config.json"), "{}", 2);
    make_shard(".hidden.safetensors", "h");
    expect_names("xy");
}

static void the_usual_name_comes_before_others(void **state) {
    (void)state;
    make_shard("model.safetensors", "m");
    make_shard("other.safetensors", "o");
    expect_names("m");
    unlink(test_own_path("model.safetensors"));
    make_shard("diffusion_pytorch_model.safetensors", "d");
    expect_names("d");
}

static void two_candidates_are_not_guessed_between(void **state) {
    (void)state;
    make_shard("one.safetensors", "a");
    make_shard("two.safetensors", "b");
    expect_refused(RN_INVALID, "holds 2 files *.safetensors");
    assert_contains(rn_last_error()->hint, "name one");
}

static void an_empty_folder_holds_no_model(void **state) {
    (void)state;
    expect_refused(RN_NOT_FOUND, "holds no safetensors or GGUF file");
    assert_string_equal(rn_last_error()->path, test_own_folder);
    test_write(test_own_path("config.json"), "{}", 2);
    expect_refused(RN_NOT_FOUND, "holds no safetensors or GGUF file");
    make_shard("model.safetensors", "m"); // with a slash at the end, too
    strcat(test_own_folder, "/");
    expect_names("m");
}

static void a_folder_may_hold_a_gguf_file(void **state) {
    blob file = {0};
    rn_checkpoint *c;
    (void)state;
    put_gguf_start(&file, 3, 0, 0);
    test_write(test_own_path("x.gguf"), file.data, file.count);
    assert_ok(open_folder(&c));
    assert_int_equal(rn_checkpoint_container(c), RN_CONTAINER_GGUF);
    rn_checkpoint_close(c);
    test_write(test_own_path("y.gguf"), file.data, file.count);
    free(file.data);
    expect_refused(RN_INVALID, "holds 2 files *.gguf");
    make_shard("weights.safetensors", "s"); // safetensors come first
    expect_names("s");
}

// ---- shards ------------------------------------------------------------------------------------

#define MAP(entries) "{\"metadata\": {\"total_size\": 4}, \"weight_map\": {" entries "}}"
#define TWO_SHARDS                                                                                 \
    MAP("\"c\": \"model-2.safetensors\", \"a\": \"model-1.safetensors\", "                         \
        "\"d\": \"model-2.safetensors\", \"b\": \"model-1.safetensors\"")

static void make_two_shards(void) {
    make_shard("model-1.safetensors", "ab");
    make_shard("model-2.safetensors", "cd");
}

static void shards_are_read_in_the_order_of_their_names(void **state) {
    rn_checkpoint *c;
    (void)state;
    make_two_shards();
    make_index(TWO_SHARDS);
    make_shard("unrelated.safetensors", "z");
    expect_names("abcd");
    assert_ok(
        rn_checkpoint_open(test_own_path(INDEX), &c)); // the index itself names the model, too
    assert_int_equal(rn_checkpoint_file_count(c), 2);
    assert_int_equal(rn_checkpoint_tensor(c, 3)->file, 1);
    assert_string_equal(rn_checkpoint_file(c, 1)->path, test_own_path("model-2.safetensors"));
    assert_string_equal(rn_checkpoint_format(c), "safetensors");
    rn_checkpoint_close(c);
}

static void an_index_may_be_in_the_current_folder(void **state) {
    rn_checkpoint *c;
    int back = open(".", O_RDONLY | O_DIRECTORY);
    (void)state;
    make_two_shards();
    make_index(TWO_SHARDS);
    assert_int_equal(chdir(test_own_folder), 0);
    rn_status s = rn_checkpoint_open(INDEX, &c);
    assert_int_equal(fchdir(back), 0);
    close(back);
    assert_ok(s);
    rn_checkpoint_close(c);
}

static void metadata_that_every_shard_repeats_is_kept_once(void **state) {
    rn_checkpoint *c;
    (void)state;
    make_two_shards();
    make_index(TWO_SHARDS);
    assert_ok(open_folder(&c));
    assert_int_equal(rn_checkpoint_metadata_count(c), 1);
    assert_true(rn_str_equal(rn_checkpoint_metadata(c, 0)->text, RN_STR("pt")));
    rn_checkpoint_close(c);
}

static void an_index_comes_before_single_files(void **state) {
    (void)state;
    make_two_shards();
    make_shard("model.safetensors", "m");
    make_index(TWO_SHARDS);
    expect_names("abcd");
}

static void an_index_must_not_reach_outside_its_folder(void **state) {
    static const char *const names[] = {
        "../secret.safetensors", "/etc/passwd", "sub/x.safetensors", "..", ".", "",
        ".hidden.safetensors",   "a\\u0000b"};
    char text[256];
    (void)state;
    make_two_shards();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(text, sizeof text, MAP("\"a\": \"%s\""), names[i]);
        make_index(text);
        expect_refused(RN_CORRUPT, "which is no file of its folder");
        assert_string_equal(rn_last_error()->path, test_own_path(INDEX));
    }
    char name[300];
    memset(name, 'n', 256);
    name[256] = '\0';
    blob index = {0};
    put_format(&index, MAP("\"a\": \"%s\""), name);
    put_file(test_own_path(INDEX), &index);
    expect_refused(RN_CORRUPT, "which is no file of its folder");
}

static void a_missing_shard_is_named(void **state) {
    (void)state;
    make_two_shards();
    make_index(TWO_SHARDS);
    unlink(test_own_path("model-2.safetensors"));
    expect_refused(RN_NOT_FOUND, "model-2.safetensors");
    assert_contains(rn_last_error()->hint, "shard");
    assert_string_equal(rn_last_error()->path, test_own_path("model-2.safetensors"));
}

static void a_broken_shard_is_named(void **state) {
    (void)state;
    make_two_shards();
    make_index(TWO_SHARDS);
    write_safetensors(test_own_path("model-2.safetensors"), "{\"x\":1}", 7, NULL, 0);
    expect_refused(RN_CORRUPT, "JSON");
    assert_string_equal(rn_last_error()->path, test_own_path("model-2.safetensors"));
    assert_int_equal(rn_last_error()->offset, 13);
}

static void index_and_shards_must_agree(void **state) {
    (void)state;
    make_two_shards();
    make_index(MAP("\"a\":\"model-1.safetensors\",\"b\":\"model-1.safetensors\","
                   "\"c\":\"model-2.safetensors\",\"d\":\"model-1.safetensors\""));
    expect_refused(RN_CORRUPT, "'d' is in");
    make_index(MAP("\"a\":\"model-1.safetensors\",\"b\":\"model-1.safetensors\","
                   "\"c\":\"model-2.safetensors\""));
    expect_refused(RN_CORRUPT, "holds tensor 'd', which the index does not name");
    make_index(MAP("\"a\":\"model-1.safetensors\",\"b\":\"model-1.safetensors\","
                   "\"e\":\"model-1.safetensors\""));
    expect_refused(RN_CORRUPT, "names 3 tensors, the files hold 2");
    make_shard("model-2.safetensors", "cda"); // a is in both
    make_index(TWO_SHARDS);
    expect_refused(RN_CORRUPT, "'a' is there twice");
}

static void broken_indices_are_refused(void **state) {
    static const struct {
        const char *text, *words;
    } bad[] = {
        {"", "a value is expected"},
        {"[]", "an array where an object"},
        {"{}", "no weight_map"},
        {"{\"weight_map\":{}}", "names no tensor"},
        {"{\"weight_map\":[]}", "an array where an object"},
        {"{\"weight_map\":{\"a\":1}}", "a number where a string"},
        {"{\"weight_map\":{\"a\":\"model-1.safetensors\"},\"weight_map\":{}}",
         "weight_map is there"},
        {MAP("\"a\":\"model-1.safetensors\",\"a\":\"model-1.safetensors\""), "tensor 'a' twice"},
        {"{\"weight_map\":{\"a\":\"model-1.safetensors\"}} x", "text after the end"},
        {"{\"x\":[[[", "a value is expected"},
    };
    (void)state;
    make_two_shards();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        make_index(bad[i].text);
        expect_refused(RN_CORRUPT, bad[i].words);
        assert_string_equal(rn_last_error()->path, test_own_path(INDEX));
    }
}

static void an_index_of_too_many_files_is_refused(void **state) {
    blob index = {0};
    (void)state;
    put_text(&index, "{\"weight_map\":{");
    for (int i = 0; i < 4097; i++)
        put_format(&index, "%s\"t%d\":\"f%d\"", i ? "," : "", i, i);
    put_text(&index, "}}");
    put_file(test_own_path(INDEX), &index);
    expect_refused(RN_UNSUPPORTED, "more than 4096 files");
}

int main(void) {
#define FOLDER_TEST(name) cmocka_unit_test_setup(name, test_make_folder)
    const struct CMUnitTest tests[] = {
        FOLDER_TEST(a_folder_with_one_file_is_that_file),
        FOLDER_TEST(any_only_safetensors_file_will_do),
        FOLDER_TEST(the_usual_name_comes_before_others),
        FOLDER_TEST(two_candidates_are_not_guessed_between),
        FOLDER_TEST(an_empty_folder_holds_no_model),
        FOLDER_TEST(a_folder_may_hold_a_gguf_file),
        FOLDER_TEST(shards_are_read_in_the_order_of_their_names),
        FOLDER_TEST(an_index_may_be_in_the_current_folder),
        FOLDER_TEST(metadata_that_every_shard_repeats_is_kept_once),
        FOLDER_TEST(an_index_comes_before_single_files),
        FOLDER_TEST(an_index_must_not_reach_outside_its_folder),
        FOLDER_TEST(a_missing_shard_is_named),
        FOLDER_TEST(a_broken_shard_is_named),
        FOLDER_TEST(index_and_shards_must_agree),
        FOLDER_TEST(broken_indices_are_refused),
        FOLDER_TEST(an_index_of_too_many_files_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
