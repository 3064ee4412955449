// images_test.c — PNG files against what Pillow reads in them, resizing against what it makes of
// them (scripts/reference/images.py); damaged files; what we write is read again.
#include "support.h"

#include <ration/image.h>
#include <ration/memory.h>

#include "base/fault.h"

#include <math.h>
#include <stdlib.h>

#define FOLDER "tests/golden/images/"

static uint8_t *read_file(const char *path, size_t *out_bytes) {
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    uint8_t *data = malloc(1 << 20);
    *out_bytes = fread(data, 1, 1 << 20, file);
    fclose(file);
    return data;
}

typedef void (*visit)(const char *path, const rn_image *want);

static void each_file(visit call) {
    size_t bytes, at = 0;
    char name[64], path[128];
    rn_image want;
    uint8_t *pixels = read_file(FOLDER "pixels.bin", &bytes);
    FILE *list = fopen(FOLDER "pixels.txt", "r");
    assert_non_null(list);
    while (fscanf(list, "%63s %u %u %u", name, &want.width, &want.height, &want.channels) == 4) {
        snprintf(path, sizeof path, FOLDER "%s.png", name);
        want.pixels = pixels + at;
        at += (size_t)want.width * want.height * want.channels;
        call(path, &want);
    }
    assert_int_equal(at, bytes);
    fclose(list);
    free(pixels);
}

static void assert_same(const char *path, const rn_image *want, const rn_image *got) {
    size_t bytes = (size_t)want->width * want->height * want->channels;
    if (want->width != got->width || want->height != got->height ||
        want->channels != got->channels || memcmp(want->pixels, got->pixels, bytes) != 0)
        fail_msg("%s has other pixels, %u x %u x %u", path, got->width, got->height, got->channels);
}

static void check_pixels(const char *path, const rn_image *want) {
    rn_image got;
    assert_ok(rn_image_read(path, &got));
    assert_same(path, want, &got);
    rn_image_free(&got);
    assert_ok(rn_image_write(test_path("again.png"), want));
    assert_ok(rn_image_read(test_path("again.png"), &got));
    assert_same("what was written", want, &got);
    rn_image_free(&got);
}

static void every_kind_of_png_has_pillows_pixels(void **state) {
    (void)state;
    each_file(check_pixels);
}

// Every cut and every changed byte is found: chunks have checksums.
static void check_damage(const char *path, const rn_image *want) {
    size_t bytes;
    uint8_t *data = read_file(path, &bytes);
    rn_image got;
    (void)want;
    for (size_t i = 0; i<bytes; i += bytes> 1000 ? 97 : 1) {
        assert_int_not_equal(RN_OK, rn_image_decode(data, i, &got));
        assert_null(got.pixels);
        data[i] ^= 0x10;
        assert_int_not_equal(RN_OK, rn_image_decode(data, bytes, &got));
        data[i] ^= 0x10;
    }
    free(data);
}

static void damaged_files_are_refused(void **state) {
    uint64_t before = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    (void)state;
    each_file(check_damage);
    assert_int_equal(before, rn_ledger_total(RN_DEVICE_HOST).now_bytes);
}

static void a_header_that_promises_too_much_takes_no_memory(void **state) {
    static const uint8_t file[] = "\x89PNG\r\n\x1a\n"
                                  "\0\0\0\x0dIHDR\0\x0f\xff\xff\0\x0f\xff\xff\x08\x06\0\0\0"
                                  "\x1d\xb1\x54\x8d"
                                  "\0\0\0\x06IDAT\x78\x01\x01\0\0\0"
                                  "\x52\x5b\xd8\xb9"
                                  "\0\0\0\0IEND\xae\x42\x60\x82";
    rn_image got;
    uint64_t peak = rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_IO).peak_bytes;
    (void)state;
    assert_fails(RN_CORRUPT, rn_image_decode(file, sizeof file - 1, &got));
    assert_true(rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_IO).peak_bytes <= peak + (64 << 10));
}

static void resizing_is_pillows(void **state) {
    static const uint32_t sizes[3][2] = {{24, 18}, {70, 60}, {11, 37}};
    size_t bytes;
    uint8_t *all = read_file(FOLDER "resized.bin", &bytes);
    const float *want = (const float *)(void *)all;
    rn_image photo;
    (void)state;
    assert_ok(rn_image_read(FOLDER "photo.png", &photo));
    for (int i = 0; i < 3; i++) {
        size_t count = (size_t)sizes[i][0] * sizes[i][1] * 3;
        float *got = malloc(count * sizeof *got);
        rn_image_form form = {
            .width = sizes[i][0], .height = sizes[i][1], .stretch = true, .channels_last = true};
        assert_ok(rn_image_values(&photo, &form, got));
        for (size_t k = 0; k < count; k++)
            assert_true(fabsf(got[k] - want[k]) <= 1.01f / 255);
        want += count;
        free(got);
    }
    assert_ptr_equal(want, all + bytes);
    rn_image_free(&photo);
    free(all);
}

static void values_are_cut_ordered_and_normed(void **state) {
    rn_image x;
    float y[3 * 2 * 2], grey[2 * 2];
    (void)state;
    assert_ok(rn_image_create(4, 2, 3, &x));
    for (int i = 0; i < 4 * 2 * 3; i++)
        x.pixels[i] = (uint8_t)(10 * i);
    rn_image_form form = {.width = 2, .height = 2, .scale = 1, .mean = {1, 2, 3}, .std = {2, 2, 2}};
    assert_ok(rn_image_values(&x, &form, y)); // columns 1 and 2
    assert_true(y[0] == (30 - 1) / 2.f && y[1] == (60 - 1) / 2.f && y[2] == (150 - 1) / 2.f);
    assert_true(y[4] == (40 - 2) / 2.f && y[8] == (50 - 3) / 2.f);
    form.bgr = form.channels_last = true;
    assert_ok(rn_image_values(&x, &form, y));
    assert_true(y[0] == (50 - 1) / 2.f && y[1] == (40 - 2) / 2.f && y[2] == (30 - 3) / 2.f);
    form = (rn_image_form){.width = 2, .height = 2, .channels = 1, .scale = 1};
    assert_ok(rn_image_values(&x, &form, grey));
    assert_true(grey[0] == 38); // 0.299 * 30 + 0.587 * 40 + 0.114 * 50
    form.resize = 1;
    assert_fails(RN_INVALID, rn_image_values(&x, &form, grey));
    form.channels = 2;
    assert_fails(RN_INVALID, rn_image_values(&x, &form, grey));
    rn_image_free(&x);
}

static void every_failed_allocation_is_survived(void **state) {
    uint64_t before = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    float y[3 * 9 * 9];
    (void)state;
    for (uint64_t n = 1, fired = 1; fired; n++) {
        rn_image x;
        rn_fault_arm(RN_FAULT_ALLOC, n);
        rn_status s = rn_image_read(FOLDER "photo.png", &x);
        rn_image_form form = {.width = 9, .height = 9};
        if (s == RN_OK) s = rn_image_values(&x, &form, y);
        fired = rn_fault_fired(RN_FAULT_ALLOC);
        rn_fault_arm(RN_FAULT_ALLOC, 0);
        assert_int_equal(s, fired ? RN_NO_MEMORY : RN_OK);
        rn_image_free(&x);
        assert_int_equal(before, rn_ledger_total(RN_DEVICE_HOST).now_bytes);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_of_png_has_pillows_pixels),
        cmocka_unit_test(damaged_files_are_refused),
        cmocka_unit_test(a_header_that_promises_too_much_takes_no_memory),
        cmocka_unit_test(resizing_is_pillows),
        cmocka_unit_test(values_are_cut_ordered_and_normed),
        cmocka_unit_test(every_failed_allocation_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
