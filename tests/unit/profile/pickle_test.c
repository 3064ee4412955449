// The pickle reader: every type that CPython writes, nothing that runs, and no memory for lies.
#include "support.h"

#include <ration/memory.h>

#include "base/fault.h"
#include "memory/account.h"
#include "profile/foreign/pickle.h"

#define FROM (&rn_host_allocators[RN_PURPOSE_PROFILER])

static rn_status read_bytes(rn_pickle *p, const void *data, size_t bytes, rn_pickle_value *out) {
    rn_pickle_init(p, FROM);
    return rn_pickle_read(p, data, bytes, out);
}

// A literal's bytes, NULs included.
#define READ(p, literal, out) read_bytes(p, literal, sizeof(literal) - 1, out)

static rn_pickle_value item(rn_pickle_value list, size_t n) {
    rn_pickle_value value = {0};
    rn_pickle_walk walk = rn_pickle_walk_begin(list);
    for (size_t i = 0; i <= n; i++)
        assert_true(rn_pickle_walk_next(&walk, &value));
    return value;
}

static size_t count_items(rn_pickle_value list) {
    size_t count = 0;
    rn_pickle_value value;
    rn_pickle_walk walk = rn_pickle_walk_begin(list);
    while (rn_pickle_walk_next(&walk, &value))
        count++;
    return count;
}

static bool is_text(rn_pickle_value value, const char *text) {
    return rn_pickle_kind_of(value) == RN_PICKLE_TEXT &&
           rn_str_equal(rn_pickle_text_of(value), rn_str_from(text));
}

// ---- what is read -------------------------------------------------------------------------------

static void every_type_of_a_snapshot_is_read(void **state) {
    (void)state;
    static const uint64_t numbers[] = {0, 255, 256, 65536, (uint64_t)1 << 40, UINT64_MAX};
    static const size_t at[] = {3, 5, 6, 7, 9, 11};
    static const size_t negative[] = {4, 8, 10};
    size_t bytes;
    void *file = test_read("tests/fuzz/corpus/torch_snapshot/values.pickle", &bytes);
    rn_pickle p;
    rn_pickle_value top;
    uint64_t number;
    assert_ok(read_bytes(&p, file, bytes, &top));
    assert_int_equal(rn_pickle_kind_of(item(top, 0)), RN_PICKLE_NONE);
    assert_true(rn_pickle_is_true(item(top, 1)));
    assert_int_equal(rn_pickle_kind_of(item(top, 2)), RN_PICKLE_BOOL);
    assert_false(rn_pickle_is_true(item(top, 2)));
    for (size_t i = 0; i < 6; i++) {
        assert_true(rn_pickle_u64_of(item(top, at[i]), &number));
        assert_int_equal(number, numbers[i]);
    }
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(rn_pickle_kind_of(item(top, negative[i])), RN_PICKLE_INT);
        assert_false(rn_pickle_u64_of(item(top, negative[i]), &number));
    }
    assert_int_equal(rn_pickle_kind_of(item(top, 12)), RN_PICKLE_FLOAT);
    assert_true(rn_pickle_node_of(item(top, 12))->number == 1.5);
    assert_true(is_text(item(top, 13), "text"));
    assert_true(is_text(item(top, 14), "\xe2\x82\xac\xc3\xa9"));
    assert_int_equal(rn_pickle_kind_of(item(top, 15)), RN_PICKLE_BYTES);
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(count_items(item(top, 16 + i)), i);
    assert_int_equal(rn_pickle_kind_of(rn_pickle_get(item(top, 21), RN_STR("key"))),
                     RN_PICKLE_LIST);
    rn_pickle_free(&p);
    free(file);
}

static void the_text_protocol_is_read(void **state) {
    (void)state;
    rn_pickle p;
    rn_pickle_value top;
    uint64_t number;
    assert_ok(READ(&p, "(dp0\nVa\np1\nI-7\nsVb\nL12L\nsVc\nI01\nsVd\nF2.5\nsVe\n(lp2\nI3\nag2\nas.",
                   &top));
    assert_false(rn_pickle_u64_of(rn_pickle_get(top, RN_STR("a")), &number));
    assert_true(rn_pickle_u64_of(rn_pickle_get(top, RN_STR("b")), &number));
    assert_int_equal(number, 12);
    assert_true(rn_pickle_is_true(rn_pickle_get(top, RN_STR("c"))));
    assert_true(rn_pickle_node_of(rn_pickle_get(top, RN_STR("d")))->number == 2.5);
    assert_int_equal(count_items(rn_pickle_get(top, RN_STR("e"))), 2); // 3, and itself
    rn_pickle_free(&p);
    assert_ok(READ(&p, "V\\u20ac \xe9 \\U0001f600 \\x \\ud800\n.", &top));
    assert_true(is_text(top, "\xe2\x82\xac \xc3\xa9 \xf0\x9f\x98\x80 \\x ?"));
    rn_pickle_free(&p);
}

static void a_key_that_comes_again_counts_last(void **state) {
    (void)state;
    rn_pickle p;
    rn_pickle_value top;
    uint64_t number;
    assert_ok(READ(&p, "\x80\x04}(\x8c\1aK\1\x8c\1aK\2u\x8c\1aK\3s.", &top));
    assert_true(rn_pickle_u64_of(rn_pickle_get(top, RN_STR("a")), &number));
    assert_int_equal(number, 3);
    assert_int_equal(rn_pickle_kind_of(rn_pickle_get(top, RN_STR("b"))), RN_PICKLE_NONE);
    rn_pickle_free(&p);
}

// POP takes a value or a mark, POP_MARK all down to a mark, DUP says it again.
static void what_the_stack_opcodes_do(void **state) {
    (void)state;
    rn_pickle p;
    rn_pickle_value top;
    assert_ok(READ(&p,
                   "\x80\x02K\1K\2"
                   "0((0NN12\x86.",
                   &top));
    assert_int_equal(rn_pickle_kind_of(top), RN_PICKLE_TUPLE);
    assert_int_equal(count_items(top), 2);
    assert_true(item(top, 0).word == item(top, 1).word);
    rn_pickle_free(&p);
}

static void one_item_after_another_makes_a_long_list(void **state) {
    (void)state;
    enum { COUNT = 5000 };
    char *data = malloc(8 + 3 * COUNT);
    size_t bytes = 0;
    rn_pickle p;
    rn_pickle_value top;
    uint64_t number;
    data[bytes++] = ']';
    for (int i = 0; i < COUNT; i++) {
        memcpy(data + bytes, "K", 1);
        data[bytes + 1] = (char)(i % 256);
        data[bytes + 2] = 'a';
        bytes += 3;
    }
    data[bytes++] = '.';
    assert_ok(read_bytes(&p, data, bytes, &top));
    assert_int_equal(count_items(top), COUNT);
    assert_true(rn_pickle_u64_of(item(top, 4321), &number));
    assert_int_equal(number, 4321 % 256);
    assert_true(p.arena.held_bytes < 1 << 20);
    rn_pickle_free(&p);
    free(data);
}

// ---- what is refused ----------------------------------------------------------------------------

static void what_would_run_is_refused_by_name(void **state) {
    (void)state;
    static const struct {
        uint8_t code;
        const char *name;
    } cases[] = {{'c', "GLOBAL"},          {0x93, "STACK_GLOBAL"}, {'R', "REDUCE"},
                 {'b', "BUILD"},           {'i', "INST"},          {'o', "OBJ"},
                 {0x81, "NEWOBJ"},         {0x92, "NEWOBJ_EX"},    {0x82, "EXT1"},
                 {0x83, "EXT2"},           {0x84, "EXT4"},         {'P', "PERSID"},
                 {'Q', "BINPERSID"},       {'S', "STRING"},        {'T', "BINSTRING"},
                 {'U', "SHORT_BINSTRING"}, {0x8f, "EMPTY_SET"},    {0x90, "ADDITEMS"},
                 {0x91, "FROZENSET"},      {0x97, "NEXT_BUFFER"},  {0x98, "READONLY_BUFFER"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint8_t data[] = {0x80, 4, 'N', cases[i].code, 'o', 's', '\n', 's', '\n', '.'};
        char wanted[64];
        rn_pickle p;
        rn_pickle_value top;
        assert_fails(RN_UNSUPPORTED, read_bytes(&p, data, sizeof data, &top));
        snprintf(wanted, sizeof wanted, "opcode %s at byte 3", cases[i].name);
        assert_non_null(strstr(rn_last_error()->message, wanted));
        assert_int_equal(rn_last_error()->offset, 3);
        rn_pickle_free(&p);
    }
}

static void a_byte_that_is_no_opcode_is_corrupt(void **state) {
    (void)state;
    rn_pickle p;
    rn_pickle_value top;
    assert_fails(RN_CORRUPT, READ(&p, "\x80\x04\xff.", &top));
    rn_pickle_free(&p);
}

// Every length is held against what is left of the file.
static void lengths_that_lie_are_corrupt_and_cost_nothing(void **state) {
    (void)state;
    static const struct {
        const char *data;
        size_t bytes;
    } cases[] = {
#define CASE(literal) {literal, sizeof(literal) - 1}
        CASE(""),
        CASE("\x80"),
        CASE("\x80\x06."),
        CASE("\x8c\xff"
             "abc."),
        CASE("X\xff\xff\xff\x7f"
             "abc."),
        CASE("\x8d\xff\xff\xff\xff\xff\xff\xff\xff"
             "abc."),
        CASE("\x8e\0\0\0\0\0\0\0\x80"
             "abc."),
        CASE("B\xff\xff\xff\xff"
             "abc."),
        CASE("\x95\xff\xff\xff\xff\xff\xff\xff\x7fN."),
        CASE("\x8a\x09"
             "12345678\1."),
        CASE("\x8a\xff"
             "1."),
        CASE("\x8b\xff\xff\xff\xff"
             "1."),
        CASE("I12"),
        CASE("I1x\n."),
        CASE("I99999999999999999999\n."),
        CASE("L\n."),
        CASE("Fabc\n."),
        CASE("G123."),
        CASE("N"),
        CASE("."),
        CASE("NN."),
        CASE("(N."),
        CASE("Nr\xff\xff\xff\xff."),
        CASE("Np4294967296\n."),
        CASE("Np-1\n."),
        CASE("h\0."),
        CASE("j\xff\xff\xff\xff."),
        CASE("g7\n."),
        CASE("Nq\1h\0."),
        CASE("q\0."),
        CASE("\x94."),
        CASE("a."),
        CASE("]a."),
        CASE("NNa."),
        CASE("](Na."),
        CASE("e."),
        CASE("(e."),
        CASE("N(Ne."),
        CASE("}NNNs0."),
        CASE("}Ns."),
        CASE("]NNs."),
        CASE("}(Nu."),
        CASE("}](u."),
        CASE("(Nd."),
        CASE("t."),
        CASE("\x85."),
        CASE("N\x87."),
        CASE("0."),
        CASE("1."),
        CASE("2."),
#undef CASE
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rn_pickle p;
        rn_pickle_value top;
        rn_status s = read_bytes(&p, cases[i].data, cases[i].bytes, &top);
        if (s != RN_CORRUPT) fail_msg("case %zu is %s", i, rn_status_name(s));
        assert_true(rn_last_error()->offset <= cases[i].bytes);
        assert_true(p.arena.held_bytes + p.memo_capacity * 8 < 1 << 20);
        rn_pickle_free(&p);
    }
}

static void nesting_is_only_memory(void **state) {
    (void)state;
    enum { DEPTH = 200000 };
    char *data = malloc(2 * DEPTH + 2);
    rn_pickle p;
    rn_pickle_value top;
    memset(data, ']', DEPTH);
    memset(data + DEPTH, 'a', DEPTH - 1);
    data[2 * DEPTH - 1] = '.';
    assert_ok(read_bytes(&p, data, 2 * DEPTH, &top));
    assert_int_equal(count_items(top), 1);
    rn_pickle_free(&p);
    free(data);
}

// Each level names the one below it ten times: 10^100 items, of which a hundred lists are stored.
static void a_billion_laughs_are_a_hundred_lists(void **state) {
    (void)state;
    char data[4096];
    size_t bytes = 0;
    rn_pickle p;
    rn_pickle_value top;
    for (int level = 0; level < 100; level++) {
        data[bytes++] = ']';
        data[bytes++] = '(';
        for (int i = 0; i < 10; i++) {
            data[bytes++] = level ? 'h' : 'K';
            data[bytes++] = (char)(level ? level - 1 : i);
        }
        data[bytes++] = 'e';
        data[bytes++] = 'q';
        data[bytes++] = (char)level;
        if (level < 99) data[bytes++] = '0';
    }
    data[bytes++] = '.';
    assert_ok(read_bytes(&p, data, bytes, &top));
    assert_int_equal(count_items(top), 10);
    assert_true(p.arena.held_bytes < 1 << 20);
    rn_pickle_free(&p);
}

static void a_large_text_named_again_is_not_copied(void **state) {
    (void)state;
    enum { TEXT = 1 << 20, TIMES = 10000 };
    char *data = malloc(TEXT + 2 * TIMES + 64);
    size_t bytes = 0;
    rn_pickle p;
    rn_pickle_value top;
    memcpy(data, "\x80\x02](X\0\0\x10\0", 9);
    bytes = 9;
    memset(data + bytes, 'x', TEXT);
    bytes += TEXT;
    data[bytes++] = 'q';
    data[bytes++] = 0;
    for (int i = 0; i < TIMES; i++) {
        data[bytes++] = 'h';
        data[bytes++] = 0;
    }
    data[bytes++] = 'e';
    data[bytes++] = '.';
    assert_ok(read_bytes(&p, data, bytes, &top));
    assert_int_equal(count_items(top), TIMES + 1);
    assert_true(p.arena.held_bytes < 1 << 20);
    rn_pickle_free(&p);
    free(data);
}

static void a_file_cut_anywhere_is_corrupt(void **state) {
    (void)state;
    for (int protocol = 0; protocol <= 5; protocol++) {
        char path[128];
        size_t bytes;
        snprintf(path, sizeof path, "tests/fuzz/corpus/torch_snapshot/protocol_%d.pickle",
                 protocol);
        char *file = test_read(path, &bytes);
        for (size_t cut = 0; cut < bytes; cut += cut < 64 ? 1 : 13) {
            char *exact = malloc(cut + 1);
            rn_pickle p;
            rn_pickle_value top;
            memcpy(exact, file, cut);
            assert_fails(RN_CORRUPT, read_bytes(&p, exact, cut, &top));
            rn_pickle_free(&p);
            free(exact);
        }
        free(file);
    }
}

static void a_failing_allocation_leaves_nothing(void **state) {
    (void)state;
    size_t bytes;
    void *file = test_read("tests/fuzz/corpus/torch_snapshot/protocol_4.pickle", &bytes);
    uint64_t before = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    bool fired = true;
    for (uint64_t n = 1; fired; n++) {
        rn_pickle p;
        rn_pickle_value top;
        rn_fault_arm(RN_FAULT_ALLOC, n);
        rn_status s = read_bytes(&p, file, bytes, &top);
        fired = rn_fault_fired(RN_FAULT_ALLOC);
        rn_fault_arm(RN_FAULT_ALLOC, 0);
        assert_int_equal(s, fired ? RN_NO_MEMORY : RN_OK);
        rn_pickle_free(&p);
        assert_int_equal(rn_ledger_total(RN_DEVICE_HOST).now_bytes, before);
    }
    free(file);
}

// A pickle may name one huge dictionary a million times: each look at it has to be short.
static void keys_far_behind_are_not_looked_for(void **state) {
    (void)state;
    char text[2048];
    size_t at = (size_t)snprintf(text, sizeof text, "}(");
    for (int i = 0; i < 65; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "Vk%d\nI%d\n", i, i);
    at += (size_t)snprintf(text + at, sizeof text - at, "u.");
    rn_pickle p;
    rn_pickle_value top;
    uint64_t number;
    assert_ok(read_bytes(&p, text, at, &top));
    assert_true(rn_pickle_u64_of(rn_pickle_get(top, RN_STR("k63")), &number));
    assert_int_equal(number, 63);
    assert_int_equal(rn_pickle_kind_of(rn_pickle_get(top, RN_STR("k64"))), RN_PICKLE_NONE);
    rn_pickle_free(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_of_a_snapshot_is_read),
        cmocka_unit_test(keys_far_behind_are_not_looked_for),
        cmocka_unit_test(the_text_protocol_is_read),
        cmocka_unit_test(a_key_that_comes_again_counts_last),
        cmocka_unit_test(what_the_stack_opcodes_do),
        cmocka_unit_test(one_item_after_another_makes_a_long_list),
        cmocka_unit_test(what_would_run_is_refused_by_name),
        cmocka_unit_test(a_byte_that_is_no_opcode_is_corrupt),
        cmocka_unit_test(lengths_that_lie_are_corrupt_and_cost_nothing),
        cmocka_unit_test(nesting_is_only_memory),
        cmocka_unit_test(a_billion_laughs_are_a_hundred_lists),
        cmocka_unit_test(a_large_text_named_again_is_not_copied),
        cmocka_unit_test(a_file_cut_anywhere_is_corrupt),
        cmocka_unit_test(a_failing_allocation_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
