// picture_buckets.c — aspect buckets, and which pictures a batch has.
//
// Pictures of one batch have one size. A bucket's area is at most the one that was asked for, its
// sides are multiples (the VAE's and the denoiser's); a picture goes to the bucket whose aspect
// ratio is nearest to its own, by the logarithm. Where that makes more buckets than there may be
// (each is a plan of its own), the smallest ones join their nearest neighbours.
#include "train/pictures.h"

#include "graph/philox.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SHAPES = 2048, STREAM_VALIDATION = 1, STREAM_ORDER = 2 };

typedef struct shape {
    uint32_t width, height;
    double ratio; // its logarithm
    uint64_t count;
} shape;

static double ratio_of(uint32_t width, uint32_t height) {
    return log((double)width / (double)height);
}

// For each width the largest height; aspect ratios to 4 : 1.
static size_t list_shapes(const rn_picture_options *o, shape *out) {
    uint64_t area = (uint64_t)o->width * o->height;
    size_t count = 0;
    if (o->buckets == 1) {
        out[0] = (shape){o->width, o->height, ratio_of(o->width, o->height), 0};
        return 1;
    }
    for (uint64_t w = o->multiple; w * o->multiple <= area && count < MOST_SHAPES;
         w += o->multiple) {
        uint64_t h = area / w / o->multiple * o->multiple;
        if (w > 4 * h || h > 4 * w) continue;
        out[count++] = (shape){(uint32_t)w, (uint32_t)h, ratio_of((uint32_t)w, (uint32_t)h), 0};
    }
    return count;
}

static size_t nearest(const shape *shapes, size_t count, double ratio) {
    size_t best = 0;
    for (size_t i = 1; i < count; i++)
        if (fabs(shapes[i].ratio - ratio) < fabs(shapes[best].ratio - ratio)) best = i;
    return best;
}

static void leave_out(shape *shapes, size_t *count, size_t at) {
    memmove(&shapes[at], &shapes[at + 1], (--*count - at) * sizeof *shapes);
}

static void count_pictures(rn_pictures *p, shape *shapes, size_t count) {
    for (size_t i = 0; i < count; i++)
        shapes[i].count = 0;
    for (uint64_t i = 0; i < p->info.count; i++) {
        rn_picture *one = &p->items[i];
        one->bucket = (uint32_t)nearest(shapes, count, ratio_of(one->width, one->height));
        shapes[one->bucket].count++;
    }
}

static void choose_buckets(rn_pictures *p, shape *shapes, size_t count) {
    count_pictures(p, shapes, count);
    for (size_t i = count; i-- > 0;)
        if (!shapes[i].count) leave_out(shapes, &count, i);
    while (count > p->options.buckets) {
        size_t least = 0;
        for (size_t i = 1; i < count; i++)
            if (shapes[i].count < shapes[least].count) least = i;
        leave_out(shapes, &count, least);
        count_pictures(p, shapes, count);
    }
    count_pictures(p, shapes, count);
    p->info.bucket_count = (uint32_t)count;
    for (size_t i = 0; i < count; i++)
        p->info.buckets[i] = (rn_picture_bucket){shapes[i].width, shapes[i].height, 0, 0};
}

// A picture validates by its number and the seed: adding others behind it does not change it.
static void set_apart(rn_pictures *p) {
    for (uint64_t i = 0; i < p->info.count; i++) {
        rn_picture *one = &p->items[i];
        uint32_t word = rn_philox_word(p->options.seed, STREAM_VALIDATION, i);
        one->validates = rn_philox_unit(word) < p->options.validation;
        p->info.validation_count += one->validates;
        p->info.buckets[one->bucket].count++;
        p->info.buckets[one->bucket].validation_count += one->validates;
    }
}

rn_status rn_pictures_sort(rn_pictures *p) {
    shape shapes[MOST_SHAPES];
    void *block = NULL;
    size_t count = list_shapes(&p->options, shapes);
    choose_buckets(p, shapes, count);
    set_apart(p);
    if (p->info.validation_count == p->info.count)
        return rn_fail(RN_INVALID, "all %llu pictures validate, none is left to train on",
                       (unsigned long long)p->info.count);
    RN_TRY(rn_arena_array(&p->memory, p->info.count, sizeof *p->order, &block));
    p->order = block;
    uint64_t at = 0;
    for (uint32_t b = 0; b < p->info.bucket_count; b++)
        for (int validates = 0; validates < 2; validates++)
            for (uint64_t i = 0; i < p->info.count; i++)
                if (p->items[i].bucket == b && p->items[i].validates == validates)
                    p->order[at++] = i;
    return RN_OK;
}

// ---- batches ------------------------------------------------------------------------------------

static uint64_t count_of(const rn_picture_bucket *b, bool validation) {
    return validation ? b->validation_count : b->count - b->validation_count;
}

uint64_t rn_pictures_batches(const rn_pictures *p, bool validation, uint32_t batch) {
    uint64_t batches = 0;
    for (uint32_t b = 0; batch && b < p->info.bucket_count; b++)
        batches += (count_of(&p->info.buckets[b], validation) + batch - 1) / batch;
    return batches;
}

// Position `i` of `count` in another order: one that is drawn for the epoch. Fisher and Yates' way
// would hold it; this is a network of four rounds over the next power of four, walked until it
// lands within the count.
static uint64_t shuffle(uint64_t i, uint64_t count, uint64_t seed, uint64_t epoch) {
    uint32_t bits = 1;
    while ((UINT64_C(1) << (2 * bits)) < count)
        bits++;
    uint64_t mask = (UINT64_C(1) << bits) - 1;
    do {
        uint64_t left = i >> bits, right = i & mask;
        for (uint32_t round = 0; round < 4; round++) {
            uint32_t block[4];
            rn_philox_block(seed ^ (epoch << 8 | round), STREAM_ORDER, right, block);
            uint64_t next = left ^ (block[0] & mask);
            left = right;
            right = next;
        }
        i = left << bits | right;
    } while (i >= count);
    return i;
}

rn_status rn_pictures_batch(const rn_pictures *p, bool validation, uint64_t step, uint32_t batch,
                            uint64_t *out_numbers, uint32_t *out_bucket) {
    uint64_t batches = rn_pictures_batches(p, validation, batch), begin = 0;
    if (batches == 0) return rn_fail(RN_INVALID, "there is no batch of such pictures");
    uint64_t epoch = validation ? 0 : step / batches, at = step % batches;
    if (!validation) at = shuffle(at, batches, p->options.seed, epoch);
    for (uint32_t b = 0; b < p->info.bucket_count; b++) {
        const rn_picture_bucket *bucket = &p->info.buckets[b];
        uint64_t count = count_of(bucket, validation), own = (count + batch - 1) / batch;
        uint64_t first = begin + (validation ? bucket->count - count : 0);
        begin += bucket->count;
        if (at >= own) {
            at -= own;
            continue;
        }
        for (uint32_t i = 0; i < batch; i++) {
            uint64_t place = (at * batch + i) % count;
            if (!validation) place = shuffle(place, count, p->options.seed + b + 1, epoch);
            out_numbers[i] = p->order[first + place];
        }
        *out_bucket = b;
        return RN_OK;
    }
    return rn_fail(RN_INTERNAL, "a batch beyond the last bucket");
}
