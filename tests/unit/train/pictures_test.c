// pictures_test.c — folders of pictures with captions: what is read, buckets, batches, bad files.
#include "support.h"

#include <ration/image.h>
#include <ration/train_images.h>

#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[4096];

static const char *in_folder(const char *name) {
    static char paths[4][4096];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%.4000s/%s", folder, name);
    return path;
}

static void put_picture(const char *name, uint32_t width, uint32_t height) {
    rn_image image;
    assert_ok(rn_image_create(width, height, 3, &image));
    memset(image.pixels, 128, (size_t)width * height * 3);
    assert_ok(rn_image_write(in_folder(name), &image));
    rn_image_free(&image);
}

static void put_text(const char *name, const char *text) {
    FILE *file = fopen(in_folder(name), "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void make_folder(const char *name) {
    snprintf(folder, sizeof folder, "%s", test_path(name));
    assert_int_equal(0, mkdir(folder, 0777));
}

static void captions_come_from_texts_and_metadata(void **state) {
    (void)state;
    make_folder("captions");
    rn_pictures *p;
    put_picture("b.png", 64, 64);
    put_picture("a.PNG", 64, 64);
    put_picture("c.png", 64, 64);
    put_picture("d.png", 64, 64);
    put_text("a.txt", "  a cat\n");
    put_text("nobody.txt", "an orphan");
    put_text("metadata.jsonl", "{\"file_name\": \"b.png\", \"text\": \"a \\u00e9t\\u00e9\"}\n\n"
                               "{\"caption\": \"a dog\", \"file_name\": \"c.png\", \"more\": [1]}\n"
                               "{\"file_name\": \"gone.png\", \"text\": \"x\"}\n");
    assert_ok(rn_pictures_open(folder, &(rn_picture_options){.width = 64}, &p));
    const rn_pictures_info *info = rn_pictures_get_info(p);
    assert_int_equal(4, info->count);
    assert_int_equal(1, info->without_caption);
    assert_int_equal(2, info->orphans); // a text and a line
    assert_string_equal("a cat", rn_pictures_get(p, 0)->caption);
    assert_string_equal("a \xc3\xa9t\xc3\xa9", rn_pictures_get(p, 1)->caption);
    assert_string_equal("a dog", rn_pictures_get(p, 2)->caption);
    assert_string_equal("", rn_pictures_get(p, 3)->caption);
    assert_null(rn_pictures_get(p, 4));
    float values[64 * 64 * 3];
    assert_ok(rn_pictures_values(p, 0, values));
    assert_true(fabsf(values[0] - (128 * 2.0f / 255 - 1)) < 1e-6f);
    rn_pictures_close(p);
}

// Sides are multiples, areas at most the one asked for, each picture in the nearest; few buckets
// take the others' pictures.
static void pictures_go_to_the_bucket_of_their_shape(void **state) {
    (void)state;
    make_folder("shapes");
    static const uint32_t sizes[][2] = {{200, 100}, {100, 200}, {128, 128}, {130, 120},
                                        {210, 100}, {64, 64},   {150, 100}, {1000, 10}};
    char name[16];
    rn_pictures *p;
    for (int i = 0; i < 8; i++) {
        snprintf(name, sizeof name, "%d.png", i);
        put_picture(name, sizes[i][0], sizes[i][1]);
    }
    for (uint32_t most = 1; most <= RN_PICTURE_BUCKETS; most++) {
        rn_picture_options o = {.width = 128, .height = 128, .multiple = 16, .buckets = most};
        assert_ok(rn_pictures_open(folder, &o, &p));
        const rn_pictures_info *info = rn_pictures_get_info(p);
        assert_true(info->bucket_count >= 1 && info->bucket_count <= most);
        uint64_t all = 0;
        for (uint32_t b = 0; b < info->bucket_count; b++) {
            const rn_picture_bucket *bucket = &info->buckets[b];
            assert_true(bucket->width % 16 == 0 && bucket->height % 16 == 0);
            assert_true(bucket->width * bucket->height <= 128 * 128);
            all += bucket->count;
        }
        assert_int_equal(8, all);
        if (most >= 3) {
            const rn_picture_bucket *wide = &info->buckets[rn_pictures_get(p, 0)->bucket];
            const rn_picture_bucket *square = &info->buckets[rn_pictures_get(p, 2)->bucket];
            assert_true(wide->width > wide->height);
            assert_true(rn_pictures_get(p, 2)->bucket == rn_pictures_get(p, 5)->bucket);
            assert_true(square->width * 10 < square->height * 13);
        }
        rn_pictures_close(p);
    }
    assert_fails(RN_INVALID, rn_pictures_open(folder, &(rn_picture_options){.buckets = 8}, &p));
    assert_fails(RN_INVALID, rn_pictures_open(folder, &(rn_picture_options){.width = 100}, &p));
}

// Every picture once an epoch, batches of one bucket, the same again, another order next time;
// what validates is never trained on.
static void batches_have_each_picture_once_an_epoch(void **state) {
    (void)state;
    make_folder("batches");
    enum { COUNT = 23, BATCH = 4 };
    char name[16];
    rn_pictures *p;
    for (int i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, "%02d.png", i);
        put_picture(name, i % 3 ? 64 : 128, 64);
    }
    rn_picture_options o = {.width = 64, .multiple = 16, .validation = 0.2, .seed = 5};
    assert_ok(rn_pictures_open(folder, &o, &p));
    const rn_pictures_info *info = rn_pictures_get_info(p);
    assert_true(info->bucket_count == 2 && info->validation_count > 0);
    uint64_t batches = rn_pictures_batches(p, false, BATCH), order[2][COUNT * 2];
    for (int epoch = 0; epoch < 2; epoch++) {
        int seen[COUNT] = {0}, at = 0;
        for (uint64_t i = 0; i < batches; i++) {
            uint64_t numbers[BATCH], again[BATCH];
            uint32_t bucket;
            uint64_t step = (uint64_t)epoch * batches + i;
            assert_ok(rn_pictures_batch(p, false, step, BATCH, numbers, &bucket));
            assert_ok(rn_pictures_batch(p, false, step, BATCH, again, &bucket));
            assert_memory_equal(numbers, again, sizeof again);
            for (int k = 0; k < BATCH; k++) {
                assert_false(rn_pictures_get(p, numbers[k])->validates);
                assert_int_equal(bucket, rn_pictures_get(p, numbers[k])->bucket);
                seen[numbers[k]]++;
                order[epoch][at++] = numbers[k];
            }
        }
        for (uint64_t i = 0; i < COUNT; i++)
            assert_true(rn_pictures_get(p, i)->validates ? seen[i] == 0 : seen[i] >= 1);
    }
    assert_memory_not_equal(order[0], order[1], batches * BATCH * sizeof(uint64_t));
    uint64_t numbers[BATCH];
    uint32_t bucket;
    for (uint64_t i = 0; i < rn_pictures_batches(p, true, BATCH); i++) {
        assert_ok(rn_pictures_batch(p, true, i, BATCH, numbers, &bucket));
        assert_true(rn_pictures_get(p, numbers[0])->validates);
    }
    rn_pictures_close(p);
}

static void what_is_no_picture_is_named(void **state) {
    (void)state;
    rn_pictures *p;
    make_folder("bad");
    assert_fails(RN_NOT_FOUND, rn_pictures_open("no_such_folder", NULL, &p));
    assert_fails(RN_NOT_FOUND, rn_pictures_open(folder, NULL, &p));
    put_text("a.png", "this is no picture at all");
    assert_fails(RN_CORRUPT, rn_pictures_open(folder, NULL, &p));
    assert_non_null(strstr(rn_last_error()->path, "a.png"));
    put_picture("a.png", 64, 64);
    put_text("a.txt", "\xff\xfe");
    assert_fails(RN_CORRUPT, rn_pictures_open(folder, NULL, &p));
    assert_non_null(strstr(rn_last_error()->path, "a.txt"));
    unlink(in_folder("a.txt"));
    put_text("metadata.jsonl", "{\"file_name\": \"a.png\", \"text\": \"x\"}\n{\"text\": 1}\n");
    assert_fails(RN_CORRUPT, rn_pictures_open(folder, NULL, &p));
    assert_non_null(strstr(rn_last_error()->hint, "line 2"));
    unlink(in_folder("metadata.jsonl"));
    // A JPEG's size is in its header; its pixels need a library that may not be here.
    static const uint8_t jpeg[] = {0xFF, 0xD8, 0xFF, 0xE0, 0, 4,  0, 0, 0xFF, 0xC0, 0,
                                   11,   8,    0,    64,   0, 96, 1, 1, 0x11, 0};
    FILE *file = fopen(in_folder("b.jpg"), "wb");
    fwrite(jpeg, 1, sizeof jpeg, file);
    fclose(file);
    assert_ok(rn_pictures_open(folder, &(rn_picture_options){.width = 64}, &p));
    assert_int_equal(96, rn_pictures_get(p, 1)->width);
    assert_int_equal(64, rn_pictures_get(p, 1)->height);
    float values[64 * 128 * 3];
    rn_status s = rn_pictures_values(p, 1, values);
    assert_true(s == RN_UNSUPPORTED || s == RN_CORRUPT); // it has no picture in it
    rn_pictures_close(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(captions_come_from_texts_and_metadata),
        cmocka_unit_test(pictures_go_to_the_bucket_of_their_shape),
        cmocka_unit_test(batches_have_each_picture_once_an_epoch),
        cmocka_unit_test(what_is_no_picture_is_named),
    };
    return test_verdict(cmocka_run_group_tests(tests, NULL, NULL));
}
