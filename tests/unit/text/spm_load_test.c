// spm_load_test.c — `.model` files written field by field: what is read, and what is refused.
#include "support.h"

#include <ration/memory.h>

#include "base/fault.h"
#include "base/str.h"
#include "io/protobuf.h"
#include "text/spm.h"

// ---- writing ------------------------------------------------------------------------------------

typedef struct message {
    char data[4096];
    size_t bytes;
} message;

static void put(message *m, const void *data, size_t bytes) {
    assert_true(m->bytes + bytes <= sizeof m->data);
    memcpy(m->data + m->bytes, data, bytes);
    m->bytes += bytes;
}

static void put_varint(message *m, uint64_t value) {
    for (; value >= 0x80; value >>= 7)
        put(m, &(char){(char)(value | 0x80)}, 1);
    put(m, &(char){(char)value}, 1);
}

static void put_number(message *m, uint32_t field, uint64_t value) {
    put_varint(m, field << 3);
    put_varint(m, value);
}

static void put_float(message *m, uint32_t field, float value) {
    put_varint(m, field << 3 | RN_PROTOBUF_FIXED32);
    put(m, &value, 4);
}

static void put_bytes(message *m, uint32_t field, rn_str bytes) {
    put_varint(m, field << 3 | RN_PROTOBUF_BYTES);
    put_varint(m, bytes.bytes);
    put(m, bytes.data, bytes.bytes);
}

static void put_piece(message *m, const char *text, float score, int kind) {
    message piece = {.bytes = 0};
    put_bytes(&piece, 1, rn_str_from(text));
    put_float(&piece, 2, score);
    if (kind) put_number(&piece, 3, (uint64_t)kind);
    put_bytes(m, 1, (rn_str){piece.data, piece.bytes});
}

static rn_str whole(const message *m) {
    return (rn_str){m->data, m->bytes};
}

// A unigram model with a few pieces, fields that nobody knows among them.
static message make(void) {
    message m = {.bytes = 0}, trainer = {.bytes = 0}, normalizer = {.bytes = 0};
    put_piece(&m, "<unk>", 0, RN_SPM_UNKNOWN);
    put_piece(&m, "<go>", 0, RN_SPM_CONTROL);
    put_piece(&m, "</s>", 0, RN_SPM_CONTROL);
    put_number(&trainer, 3, RN_SPM_UNIGRAM);
    put_number(&trainer, 99, 12345678901234u);
    put_bytes(&trainer, 46, RN_STR("<go>"));
    put_bytes(&m, 2, whole(&trainer));
    put_piece(&m, "\xe2\x96\x81", -2, 0);
    put_piece(&m, "a", -1, RN_SPM_NORMAL);
    put_piece(&m, "b", -1, RN_SPM_NORMAL);
    put_piece(&m, "ab", -1.5f, RN_SPM_NORMAL);
    put_number(&normalizer, 4, 0);
    put_bytes(&m, 3, whole(&normalizer));
    put_varint(&m, 1000 << 3 | RN_PROTOBUF_FIXED64);
    put(&m, "12345678", 8);
    return m;
}

static rn_spm *load(const message *m) {
    rn_spm *spm;
    assert_ok(rn_spm_load(whole(m), &spm));
    return spm;
}

static void refuse(rn_status expected, const message *m, const char *word) {
    rn_spm *spm;
    assert_fails(expected, rn_spm_load(whole(m), &spm));
    assert_null(spm);
    if (!strstr(rn_last_error()->message, word))
        fail_msg("\"%s\" does not say \"%s\"", rn_last_error()->message, word);
}

// ---- tests --------------------------------------------------------------------------------------

static void a_model_has_what_the_file_says(void **state) {
    (void)state;
    message m = make();
    rn_spm *spm = load(&m);
    const rn_spm_options *o = rn_spm_get_options(spm);
    assert_int_equal(rn_spm_count(spm), 7);
    assert_int_equal(o->algorithm, RN_SPM_UNIGRAM);
    assert_int_equal(o->unknown, 0);
    assert_int_equal(o->begin, 1);
    assert_int_equal(o->end, 2);
    assert_int_equal(o->pad, RN_NO_TOKEN);
    assert_true(o->add_dummy_prefix && o->escape_whitespaces && !o->remove_extra_whitespaces);
    assert_int_equal(rn_spm_find(spm, RN_STR("ab")), 6);
    assert_int_equal(rn_spm_find(spm, RN_STR("</s>")), 2);
    assert_int_equal(rn_spm_find(spm, RN_STR("c")), RN_NO_TOKEN);
    assert_true(rn_spm_get(spm, 6).score == -1.5f);
    assert_int_equal(rn_spm_get(spm, 7).text.bytes, 0);
    rn_tokens tokens = {0};
    assert_ok(rn_spm_encode(spm, RN_STR("ab ?!ba"), true, &tokens));
    const uint32_t want[] = {3, 6, 3, 0, 5, 4};
    assert_int_equal(tokens.count, 6);
    assert_memory_equal(tokens.ids, want, sizeof want);
    rn_tokens_free(&tokens);
    rn_spm_destroy(spm);
}

// Whatever the place, a cut message is refused or (between two fields) a smaller model.
static void a_cut_file_is_refused(void **state) {
    (void)state;
    message m = make();
    size_t accepted = 0;
    for (size_t bytes = 0; bytes < m.bytes; bytes++) {
        char *copy = malloc(bytes); // its own block, so that reading past it shows
        memcpy(copy, m.data, bytes);
        rn_spm *spm;
        rn_status s = rn_spm_load((rn_str){copy, bytes}, &spm);
        assert_true(s == RN_OK || s == RN_CORRUPT);
        accepted += s == RN_OK;
        rn_spm_destroy(spm);
        free(copy);
    }
    assert_int_equal(accepted, 9); // after <unk>, and after each field that follows
}

static void broken_wires_are_refused(void **state) {
    (void)state;
    message m = make();
    put_varint(&m, 1 << 3 | 3);
    refuse(RN_CORRUPT, &m, "wire type 3");
    m = make();
    put_varint(&m, 0 << 3);
    refuse(RN_CORRUPT, &m, "no valid number");
    m = make();
    put(&m, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 10);
    refuse(RN_CORRUPT, &m, "64 bits");
    m = make();
    put_varint(&m, 1 << 3 | RN_PROTOBUF_BYTES);
    put_varint(&m, UINT64_MAX);
    refuse(RN_CORRUPT, &m, "announced");
    m = make();
    put_number(&m, 1, 5);
    refuse(RN_CORRUPT, &m, "instead of 2");
}

static void broken_models_are_refused(void **state) {
    (void)state;
    message m = {.bytes = 0};
    refuse(RN_CORRUPT, &m, "no pieces");
    put_piece(&m, "a", 0, RN_SPM_NORMAL);
    refuse(RN_CORRUPT, &m, "0 unknown");
    m = make();
    put_piece(&m, "<unk2>", 0, RN_SPM_UNKNOWN);
    refuse(RN_CORRUPT, &m, "2 unknown");
    m = make();
    put_piece(&m, "a", 0, RN_SPM_USER_DEFINED);
    refuse(RN_CORRUPT, &m, "same text");
    m = make();
    put_piece(&m, "", 0, RN_SPM_NORMAL);
    refuse(RN_CORRUPT, &m, "empty");
    m = make();
    put_piece(&m, "nan", __builtin_nanf(""), RN_SPM_NORMAL);
    refuse(RN_CORRUPT, &m, "score");
    m = make();
    put_piece(&m, "kind", 0, 7);
    refuse(RN_UNSUPPORTED, &m, "kind 7");
    m = make();
    put_piece(&m, "<0xG0>", 0, RN_SPM_BYTE);
    refuse(RN_CORRUPT, &m, "byte");
}

static void options_that_cannot_be_are_refused(void **state) {
    (void)state;
    message m = make(), inner = {.bytes = 0};
    put_number(&inner, 3, 5);
    put_bytes(&m, 2, whole(&inner));
    refuse(RN_UNSUPPORTED, &m, "algorithm 5");
    m = make();
    inner.bytes = 0;
    put_number(&inner, 35, 1);
    put_bytes(&m, 2, whole(&inner));
    refuse(RN_CORRUPT, &m, "<0x00>");
    m = make();
    inner.bytes = 0;
    put_bytes(&inner, 2, RN_STR("not a table"));
    put_bytes(&m, 3, whole(&inner));
    refuse(RN_CORRUPT, &m, "replacement table");
}

static void every_failed_allocation_leaves_nothing_behind(void **state) {
    (void)state;
    message m = make();
    rn_ledger_line before = rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_OTHER);
    bool fired = true;
    for (uint64_t n = 1; fired; n++) {
        rn_spm *spm;
        rn_fault_arm(RN_FAULT_ALLOC, n);
        rn_status s = rn_spm_load(whole(&m), &spm);
        fired = rn_fault_fired(RN_FAULT_ALLOC);
        rn_fault_arm(RN_FAULT_ALLOC, 0);
        assert_int_equal(s, fired ? RN_NO_MEMORY : RN_OK);
        rn_spm_destroy(spm);
        assert_int_equal(rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_OTHER).now_bytes,
                         before.now_bytes);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_has_what_the_file_says),
        cmocka_unit_test(a_cut_file_is_refused),
        cmocka_unit_test(broken_wires_are_refused),
        cmocka_unit_test(broken_models_are_refused),
        cmocka_unit_test(options_that_cannot_be_are_refused),
        cmocka_unit_test(every_failed_allocation_leaves_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
