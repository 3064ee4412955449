// pprof's profile.proto, taken apart again by a decoder that knows the wire format and the field
// numbers of the published schema, and nothing of the writer.
#include "export_support.h"

enum { MOST = 64 };

typedef struct field {
    uint64_t number, value; // value: of a varint, or the bytes of a text
    const uint8_t *data;    // NULL: a varint
} field;

typedef struct reader {
    const uint8_t *at, *end;
} reader;

static uint64_t take_varint(reader *r) {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        assert_true(r->at < r->end);
        value |= (uint64_t)(*r->at & 127) << shift;
        if (*r->at++ < 128) return value;
    }
    fail_msg("a varint of more than ten bytes");
    return 0;
}

static bool next_field(reader *r, field *out) {
    if (r->at == r->end) return false;
    uint64_t tag = take_varint(r);
    *out = (field){.number = tag >> 3, .value = take_varint(r)};
    if ((tag & 7) == 0) return true;
    assert_int_equal(tag & 7, 2);
    assert_true(out->value <= (uint64_t)(r->end - r->at));
    out->data = r->at;
    r->at += out->value;
    return true;
}

static reader inside(field f) {
    assert_non_null(f.data);
    return (reader){f.data, f.data + f.value};
}

// ---- what is in a profile -----------------------------------------------------------------------

typedef struct decoded_sample {
    uint64_t frames[MOST], values[4], labels[MOST][2];
    size_t frame_count, value_count, label_count;
} decoded_sample;

typedef struct decoded {
    rn_buffer text;
    rn_str strings[4096];
    size_t string_count;
    uint64_t types[MOST][2], function_name[4096], function_file[4096], location_function[4096];
    size_t type_count, sample_count;
    decoded_sample samples[MOST];
    uint64_t time_nanos, duration_nanos, default_type, comment;
} decoded;

static void read_packed(field f, uint64_t *out, size_t *count) {
    reader r = inside(f);
    while (r.at < r.end) {
        assert_true(*count < MOST);
        out[(*count)++] = take_varint(&r);
    }
}

static void read_pair(field f, uint64_t out[2]) {
    reader r = inside(f);
    for (field inner; next_field(&r, &inner);)
        if (inner.number == 1 || inner.number == 2) out[inner.number - 1] = inner.value;
}

static void read_sample(field f, decoded_sample *out) {
    reader r = inside(f);
    for (field inner; next_field(&r, &inner);) {
        if (inner.number == 1) read_packed(inner, out->frames, &out->frame_count);
        if (inner.number == 2) read_packed(inner, out->values, &out->value_count);
        if (inner.number == 3) read_pair(inner, out->labels[out->label_count++]);
    }
    assert_int_equal(out->value_count, 4);
}

static void read_location(field f, decoded *d) {
    uint64_t id = 0, line[2] = {0};
    reader r = inside(f);
    for (field inner; next_field(&r, &inner);) {
        if (inner.number == 1) id = inner.value;
        if (inner.number == 4) read_pair(inner, line);
    }
    assert_true(id > 0 && id < 4096);
    d->location_function[id] = line[0];
}

static void read_function(field f, decoded *d) {
    uint64_t values[8] = {0};
    reader r = inside(f);
    for (field inner; next_field(&r, &inner);)
        if (inner.number < 8) values[inner.number] = inner.value;
    assert_true(values[1] > 0 && values[1] < 4096);
    d->function_name[values[1]] = values[2];
    d->function_file[values[1]] = values[4];
}

static void read_profile_field(field f, decoded *d) {
    switch (f.number) {
    case 1:
        read_pair(f, d->types[d->type_count++]);
        break;
    case 2:
        assert_true(d->sample_count < MOST);
        read_sample(f, &d->samples[d->sample_count++]);
        break;
    case 4:
        read_location(f, d);
        break;
    case 5:
        read_function(f, d);
        break;
    case 6:
        assert_true(d->string_count < 4096);
        d->strings[d->string_count++] = (rn_str){(const char *)f.data, f.value};
        break;
    case 9:
        d->time_nanos = f.value;
        break;
    case 10:
        d->duration_nanos = f.value;
        break;
    case 13:
        d->comment = f.value;
        break;
    case 14:
        d->default_type = f.value;
        break;
    default:
        assert_true(f.number == 11 || f.number == 12); // period_type, period
    }
}

static decoded *decode(rn_timeline *t) {
    decoded *d = calloc(1, sizeof *d);
    d->text = export_text(t, RN_EXPORT_PPROF);
    reader r = {(const uint8_t *)d->text.data, (const uint8_t *)d->text.data + d->text.bytes};
    for (field f; next_field(&r, &f);)
        read_profile_field(f, d);
    rn_timeline_destroy(t);
    return d;
}

static void forget(decoded *d) {
    rn_buffer_free(&d->text);
    free(d);
}

static const char *text_of(const decoded *d, uint64_t index) {
    static char text[4][256];
    static int next;
    assert_true(index < d->string_count);
    next = (next + 1) % 4;
    snprintf(text[next], sizeof text[next], "%.*s", RN_STR_ARG(d->strings[index]));
    return text[next];
}

static const char *frame_of(const decoded *d, const decoded_sample *s, size_t i) {
    assert_true(i < s->frame_count);
    return text_of(d, d->function_name[d->location_function[s->frames[i]]]);
}

static const char *label_of(const decoded *d, const decoded_sample *s, const char *key) {
    for (size_t i = 0; i < s->label_count; i++)
        if (strcmp(text_of(d, s->labels[i][0]), key) == 0) return text_of(d, s->labels[i][1]);
    return "";
}

static const decoded_sample *find_leaf(const decoded *d, const char *name) {
    for (size_t i = 0; i < d->sample_count; i++)
        if (strcmp(frame_of(d, &d->samples[i], 0), name) == 0) return &d->samples[i];
    fail_msg("no sample of %s", name);
    return NULL;
}

// ---- tests --------------------------------------------------------------------------------------

static void types_times_and_strings_are_those_of_a_heap_profile(void **state) {
    (void)state;
    static const char *const types[4][2] = {{"alloc_objects", "count"},
                                            {"alloc_space", "bytes"},
                                            {"inuse_objects", "count"},
                                            {"inuse_space", "bytes"}};
    decoded *d = decode(make_small());
    assert_int_equal(d->type_count, 4);
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 2; k++)
            assert_string_equal(text_of(d, d->types[i][k]), types[i][k]);
    assert_int_equal(d->strings[0].bytes, 0); // as the format wants it
    assert_string_equal(text_of(d, d->default_type), "inuse_space");
    assert_int_equal(d->time_nanos, (uint64_t)1700000000 * 1000000000 + 123456789);
    assert_int_equal(d->duration_nanos, 9000);
    assert_non_null(strstr(text_of(d, d->comment), "when most was in use, 0.000004 s"));
    forget(d);
}

// The arena's bytes are its parts'; what was in use at most, 4096 + 2048 + 1024, is at 4000.
static void bytes_stand_where_they_were_asked_for(void **state) {
    (void)state;
    decoded *d = decode(make_small());
    int64_t sums[4] = {0};
    assert_int_equal(d->sample_count, 4); // w, a, b and kv; not the arena
    for (size_t i = 0; i < d->sample_count; i++)
        for (int v = 0; v < 4; v++)
            sums[v] += (int64_t)d->samples[i].values[v];
    assert_int_equal(sums[0], 4);
    assert_int_equal(sums[1], 4096 + 2048 + 1024 + 512);
    assert_int_equal(sums[2], 3);
    assert_int_equal(sums[3], 4096 + 2048 + 1024);
    const decoded_sample *a = find_leaf(d, "a");
    assert_string_equal(frame_of(d, a, 1), "activations");
    assert_string_equal(frame_of(d, a, 2), "matmul");
    assert_int_equal(a->values[1], 2048);
    assert_string_equal(label_of(d, a, "purpose"), "activations");
    assert_string_equal(label_of(d, a, "device"), "host");
    assert_string_equal(label_of(d, a, "lane"), "main");
    const decoded_sample *w = find_leaf(d, "w");
    uint64_t function = d->location_function[w->frames[0]];
    assert_string_equal(text_of(d, d->function_file[function]), "blk.0");
    const decoded_sample *kv = find_leaf(d, "kv"); // without a name: its purpose
    assert_string_equal(label_of(d, kv, "device"), "cuda:0");
    assert_int_equal(kv->values[3], 0); // it came after the peak
    forget(d);
}

// A step that runs a hundred times is one stack.
static void stacks_are_of_names(void **state) {
    (void)state;
    rn_timeline *t = make_empty();
    uint8_t device;
    uint32_t lane;
    assert_ok(rn_timeline_add_device(t, RN_STR("host"), &device));
    assert_ok(rn_timeline_add_lane(t, RN_STR("main"), false, &lane));
    uint32_t run = add_name(t, "run", "", ""), step = add_name(t, "step", "layer 0", "");
    uint32_t other = add_name(t, "other", "", ""), y = add_name(t, "y", "", "");
    for (uint64_t i = 0; i < 100; i++) {
        add_op(t, 1000 * i, 1000 * i + 900, run);
        add_op(t, 1000 * i + 10, 1000 * i + 100, step);
        add_op(t, 1000 * i + 200, 1000 * i + 300, other);
        add_op(t, 1000 * i + 210, 1000 * i + 290, step);
        add_block(t, 1000 * i + 20, 1000 * i + 30, 0x1000, 8, y, RN_PURPOSE_KV, false);
        add_block(t, 1000 * i + 220, 1000 * i + 230, 0x1000, 16, y, RN_PURPOSE_KV, false);
    }
    assert_ok(rn_timeline_finish(t));
    decoded *d = decode(t);
    assert_int_equal(d->sample_count, 2);
    static const char *const frames[2][5] = {{"y", "kv", "step", "run", NULL},
                                             {"y", "kv", "step", "other", "run"}};
    for (int i = 0; i < 2; i++) {
        for (size_t k = 0; k < d->samples[i].frame_count; k++)
            assert_string_equal(frame_of(d, &d->samples[i], k), frames[i][k]);
        assert_int_equal(d->samples[i].values[0], 100);
        assert_int_equal(d->samples[i].values[1], i ? 1600 : 800);
    }
    forget(d);
}

static void operations_without_end_of_depth_are_cut(void **state) {
    (void)state;
    rn_timeline *t = make_empty();
    uint8_t device;
    uint32_t lane;
    assert_ok(rn_timeline_add_device(t, RN_STR("host"), &device));
    assert_ok(rn_timeline_add_lane(t, RN_STR("main"), false, &lane));
    uint32_t name = add_name(t, "again", "", "");
    for (uint64_t i = 0; i < 5000; i++)
        add_op(t, i, 20000 - i, name);
    add_block(t, 6000, 6001, 0x1000, 8, 0, RN_PURPOSE_KV, false);
    assert_ok(rn_timeline_finish(t));
    rn_buffer text = export_text(t, RN_EXPORT_PPROF);
    assert_true(text.bytes > 100 && text.bytes < 10000);
    rn_buffer_free(&text);
    rn_timeline_destroy(t);
}

static void an_empty_timeline_has_a_profile(void **state) {
    (void)state;
    rn_timeline *t = make_empty();
    assert_ok(rn_timeline_finish(t));
    decoded *d = decode(t);
    assert_int_equal(d->sample_count, 0);
    assert_int_equal(d->type_count, 4);
    forget(d);
}

static void failing_sinks_are_reported(void **state) {
    (void)state;
    check_failing_sinks(RN_EXPORT_PPROF);
}

static void running_out_of_memory_leaves_nothing_behind(void **state) {
    (void)state;
    check_torture(RN_EXPORT_PPROF);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(types_times_and_strings_are_those_of_a_heap_profile),
        cmocka_unit_test(bytes_stand_where_they_were_asked_for),
        cmocka_unit_test(stacks_are_of_names),
        cmocka_unit_test(operations_without_end_of_depth_are_cut),
        cmocka_unit_test(an_empty_timeline_has_a_profile),
        cmocka_unit_test(failing_sinks_are_reported),
        cmocka_unit_test(running_out_of_memory_leaves_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
