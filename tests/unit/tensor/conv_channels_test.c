// conv_channels_test.c — kernels of convolutions with their channels last: every number at its
// place, however the file's bytes are cut; what is no such weight is refused.
#include "support.h"

#include "tensor/conv_channels.h"

enum { O = 3, C = 5, H = 2, W = 3, COUNT = O * C * H * W };

static void numbers_lie_with_their_channels_last(void **state) {
    static const uint64_t pieces[] = {1, 2, 3, 7, 16, 1000};
    uint64_t dims[] = {O, C, H, W}, bytes = 0;
    uint16_t file[COUNT], packed[COUNT];
    (void)state;
    for (int i = 0; i < COUNT; i++)
        file[i] = (uint16_t)(1000 + i);
    assert_true(rn_layout_bytes(RN_LAYOUT_CONV_CHANNELS, RN_DTYPE_BF16, O, C * H * W, &bytes));
    assert_int_equal(bytes, sizeof packed);
    for (size_t p = 0; p < sizeof pieces / sizeof *pieces; p++) {
        rn_packer_room room;
        memset(packed, 0, sizeof packed);
        assert_ok(
            RN_LAYOUT_CONV_CHANNELS->begin(&room, RN_DTYPE_F16, dims, 4, NULL, (uint8_t *)packed));
        for (uint64_t at = 0; at < sizeof file; at += pieces[p]) {
            uint64_t left = sizeof file - at, take = left < pieces[p] ? left : pieces[p];
            assert_ok(RN_LAYOUT_CONV_CHANNELS->take(&room, RN_COMPONENT_DATA, at,
                                                    (const uint8_t *)file + at, take));
        }
        for (int o = 0; o < O; o++)
            for (int tap = 0; tap < H * W; tap++)
                for (int c = 0; c < C; c++)
                    assert_int_equal(packed[(o * H * W + tap) * C + c],
                                     file[(o * C + c) * H * W + tap]);
    }
}

static void other_weights_are_refused(void **state) {
    uint64_t dims[] = {O, C, H, W}, huge[] = {1ull << 40, 1ull << 40, 1, 1}, bytes = 0;
    uint16_t packed[COUNT], file[COUNT] = {0};
    rn_packer_room room;
    (void)state;
    assert_false(rn_layout_bytes(RN_LAYOUT_CONV_CHANNELS, RN_DTYPE_F32, O, C * H * W, &bytes));
    assert_int_equal(
        RN_LAYOUT_CONV_CHANNELS->begin(&room, RN_DTYPE_F32, dims, 4, NULL, (uint8_t *)packed),
        RN_INVALID);
    assert_int_equal(
        RN_LAYOUT_CONV_CHANNELS->begin(&room, RN_DTYPE_F16, dims, 3, NULL, (uint8_t *)packed),
        RN_INVALID);
    assert_int_equal(
        RN_LAYOUT_CONV_CHANNELS->begin(&room, RN_DTYPE_F16, huge, 4, NULL, (uint8_t *)packed),
        RN_INVALID);
    assert_ok(
        RN_LAYOUT_CONV_CHANNELS->begin(&room, RN_DTYPE_F16, dims, 4, NULL, (uint8_t *)packed));
    assert_int_equal(RN_LAYOUT_CONV_CHANNELS->take(&room, RN_COMPONENT_DATA, 2, file, 2),
                     RN_INVALID); // not the next
    assert_int_equal(
        RN_LAYOUT_CONV_CHANNELS->take(&room, RN_COMPONENT_DATA, 0, file, sizeof file + 2),
        RN_INVALID);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_lie_with_their_channels_last),
        cmocka_unit_test(other_weights_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
