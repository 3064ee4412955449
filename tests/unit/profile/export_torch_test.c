// export_torch_test.c — the pickle: opcodes that the viewer knows, and our own reader gets back
// what was there. tests/python/torch_snapshot_export.py looks at the same with Python and torch.
#include "export_support.h"

#include "profile/export/export_pickle.h"

// ---- opcodes ------------------------------------------------------------------------------------

typedef struct scan {
    const uint8_t *at, *end;
    size_t marks[64], depth, items, most; // items since the mark; the most of any
    uint32_t kept, asked;                 // MEMOIZEs; the highest number asked for
} scan;

static uint64_t take(scan *s, size_t bytes) {
    uint64_t value = 0;
    assert_true((size_t)(s->end - s->at) >= bytes);
    for (size_t i = 0; i < bytes && i < 8; i++)
        value |= (uint64_t)s->at[i] << 8 * i;
    s->at += bytes;
    return value;
}

static void leave_mark(scan *s) {
    if (s->items > s->most) s->most = s->items;
    assert_true(s->depth > 0);
    s->items = s->marks[--s->depth];
}

static void take_get(scan *s, size_t bytes) {
    uint32_t number = (uint32_t)take(s, bytes);
    assert_true(number < s->kept);
    s->items++;
}

// Steps over one opcode; false at STOP.
static bool step(scan *s) {
    uint8_t opcode = (uint8_t)take(s, 1);
    switch (opcode) {
    case 0x80:
        assert_int_equal(take(s, 1), 4);
        return true;
    case '.':
        return false;
    case '(':
        assert_true(s->depth < 64);
        s->marks[s->depth++] = s->items;
        s->items = 0;
        return true;
    case 'u':
        s->items /= 2;
        leave_mark(s);
        return true;
    case 'e':
        leave_mark(s);
        return true;
    case '}':
    case ']':
    case 0x88:
    case 0x89:
        s->items++;
        return true;
    case 'K':
        take(s, 1);
        s->items++;
        return true;
    case 'M':
        take(s, 2);
        s->items++;
        return true;
    case 'J':
        take(s, 4);
        s->items++;
        return true;
    case 'G':
        take(s, 8);
        s->items++;
        return true;
    case 0x8c:
        take(s, take(s, 1));
        s->items++;
        return true;
    case 'X':
        take(s, take(s, 4));
        s->items++;
        return true;
    case 0x8a: {
        uint64_t bytes = take(s, 1);
        assert_in_range(bytes, 1, 8);
        take(s, bytes);
        s->items++;
        return true;
    }
    case 0x86:
        s->items--;
        return true;
    case 0x94:
        s->kept++;
        return true;
    case 'h':
        take_get(s, 1);
        return true;
    case 'j':
        take_get(s, 4);
        return true;
    default:
        fail_msg("opcode 0x%02x", opcode);
        return false;
    }
}

static void check_opcodes(const rn_buffer *text) {
    scan s = {.at = (const uint8_t *)text->data, .end = (const uint8_t *)text->data + text->bytes};
    while (step(&s)) {
    }
    assert_ptr_equal(s.at, s.end);
    assert_int_equal(s.depth, 0);
    assert_int_equal(s.items, 1);
    assert_true(s.most <= RN_PICKLER_BATCH);
}

static void only_opcodes_of_the_viewer_are_written(void **state) {
    (void)state;
    rn_timeline *timelines[] = {make_small(), make_hostile(), make_long(3000), make_empty()};
    assert_ok(rn_timeline_finish(timelines[3]));
    for (size_t i = 0; i < 4; i++) {
        rn_buffer text = export_text(timelines[i], RN_EXPORT_TORCH);
        check_opcodes(&text);
        rn_buffer_free(&text);
        rn_timeline_destroy(timelines[i]);
    }
}

static void numbers_have_the_shortest_form(void **state) {
    (void)state;
    static const uint64_t values[] = {0,          255,        256,          65535,     65536,
                                      0x7fffffff, 0x80000000, 0x8000000000, INT64_MAX, UINT64_MAX};
    static const uint8_t expected[] = {
        0x80, 4,    'K',  0,   'K', 255,  'M',  0,    1,   'M', 255, 255,  'J',  0,   0,
        1,    0,    'J',  255, 255, 255,  0x7f, 0x8a, 5,   0,   0,   0,    0x80, 0,   0x8a,
        6,    0,    0,    0,   0,   0x80, 0,    0x8a, 8,   255, 255, 255,  255,  255, 255,
        255,  0x7f, 0x8a, 8,   255, 255,  255,  255,  255, 255, 255, 0x7f, '.'};
    rn_buffer text;
    rn_out out;
    rn_pickler p;
    rn_buffer_init(&text, &rn_system_allocator, 4096);
    assert_ok(rn_out_open(&out, rn_buffer_sink(&text)));
    rn_pickler_begin(&p, &out);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        rn_pickler_u64(&p, values[i]);
    rn_pickler_end(&p);
    assert_ok(rn_out_close(&out));
    assert_int_equal(text.bytes, sizeof expected);
    assert_memory_equal(text.data, expected, sizeof expected);
    rn_buffer_free(&text);
}

// ---- read back ----------------------------------------------------------------------------------

static rn_timeline *read_back(const rn_timeline *t) {
    rn_buffer text = export_text(t, RN_EXPORT_TORCH);
    rn_timeline *back = NULL;
    assert_ok(rn_torch_snapshot_read("x.pickle", (const uint8_t *)text.data, text.bytes, &back));
    assert_ok(rn_timeline_finish(back));
    rn_buffer_free(&text);
    return back;
}

static void our_reader_finds_the_same_memory(void **state) {
    (void)state;
    rn_timeline *timelines[] = {make_small(), make_long(3000)};
    for (size_t i = 0; i < 2; i++) {
        rn_timeline *t = timelines[i], *back = read_back(t);
        assert_int_equal(rn_timeline_peak(back, 0).reserved_bytes,
                         rn_timeline_peak(t, 0).reserved_bytes);
        rn_timeline_level a = {0}, b = {0};
        rn_timeline_walk walk;
        rn_timeline_walk_begin(&walk, t, RN_DEVICE_ANY);
        while (rn_timeline_walk_next(&walk))
            if (walk.level.active_bytes > a.active_bytes) a = walk.level;
        rn_timeline_walk_begin(&walk, back, RN_DEVICE_ANY);
        while (rn_timeline_walk_next(&walk))
            if (walk.level.active_bytes > b.active_bytes) b = walk.level;
        assert_int_equal(a.active_bytes, b.active_bytes);
        assert_memory_equal(a.purpose_bytes, b.purpose_bytes, sizeof a.purpose_bytes);
        rn_timeline_destroy(back);
        rn_timeline_destroy(t);
    }
}

static void failing_sinks_are_reported(void **state) {
    (void)state;
    check_failing_sinks(RN_EXPORT_TORCH);
}

static void no_memory_is_reported(void **state) {
    (void)state;
    check_torture(RN_EXPORT_TORCH);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_opcodes_of_the_viewer_are_written),
        cmocka_unit_test(numbers_have_the_shortest_form),
        cmocka_unit_test(our_reader_finds_the_same_memory),
        cmocka_unit_test(failing_sinks_are_reported),
        cmocka_unit_test(no_memory_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
