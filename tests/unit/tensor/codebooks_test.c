// codebooks_test.c — ggml's codebook kinds against gguf-py, over blocks that touch every entry
// (scripts/reference/codebooks.py), and the parts that products read.
#include "support.h"

#include <ration/tensor.h>

#include "levels.h"

#include "base/str.h"
#include "tensor/ggml_codebooks.h"

enum { MOST_BLOCKS = 512, MOST_BYTES = 110 };

static uint8_t blocks[MOST_BLOCKS * MOST_BYTES];
static float values[MOST_BLOCKS * 256];

static uint64_t splitmix(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

// Random bytes with scales below 2.
static void make_blocks(rn_dtype dtype, size_t count) {
    const rn_dtype_info *info = rn_dtype_get(dtype);
    uint64_t state = (uint64_t)info->ggml;
    for (size_t at = 0; at < count * info->block_bytes; at += 8) {
        uint64_t word = splitmix(&state);
        memcpy(blocks + at, &word, 8);
    }
    for (size_t b = 0; b < count; b++)
        blocks[b * info->block_bytes + (dtype == RN_DTYPE_IQ1_M ? 55 : 1)] &= 0xbf;
}

static uint64_t hash(const void *data, size_t bytes) {
    uint64_t value = 0xcbf29ce484222325u;
    for (size_t i = 0; i < bytes; i++)
        value = (value ^ ((const uint8_t *)data)[i]) * 0x100000001b3u;
    return value;
}

static void every_entry_widens_as_in_the_reference(void **unused) {
    (void)unused;
    size_t bytes, kinds = 0;
    char *golden = test_read("tests/golden/codebooks.txt", &bytes), name[16];
    assert_non_null(golden);
    unsigned long long expected;
    size_t count;
    int length;
    for (char *line = golden;
         sscanf(line, "%15s %zu %llx\n%n", name, &count, &expected, &length) == 3;
         line += length, kinds++)
        for_each_level(level) {
            rn_dtype dtype = rn_dtype_parse(rn_str_from(name));
            assert_true(count <= MOST_BLOCKS);
            make_blocks(dtype, count);
            assert_ok(rn_dtype_to_f32(dtype, blocks, values, count * 256));
            if (hash(values, count * 256 * sizeof *values) != expected)
                fail_msg("%s differs from the reference", name);
        }
    assert_int_equal(kinds, 7);
    free(golden);
}

// number = unit * scale * byte, with small odd scales: what products count on.
static void parts_are_the_numbers(void **unused) {
    (void)unused;
    for (rn_dtype dtype = 0; dtype < RN_DTYPE_COUNT; dtype++) {
        if (!rn_codebook_is(dtype)) continue;
        make_blocks(dtype, 8);
        assert_ok(rn_dtype_to_f32(dtype, blocks, values, 8 * 256));
        for (int i = 0; i < 8 * 256; i++) {
            const uint8_t *super = blocks + i / 256 * rn_dtype_get(dtype)->block_bytes;
            rn_codebook_part part;
            rn_codebook_read(dtype, super, i / 32 % 8, &part);
            int scale = part.scales[i / 16 % 2];
            assert_true(scale > 0 && scale < 32 && scale % 2 == 1);
            assert_true(values[i] ==
                        rn_codebook_unit(dtype, super) * (float)(scale * part.q[i % 32]));
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_entry_widens_as_in_the_reference),
        cmocka_unit_test(parts_are_the_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
