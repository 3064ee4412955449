// pictures.h — the parts of a folder of pictures, for its own files.
#ifndef RN_TRAIN_PICTURES_H
#define RN_TRAIN_PICTURES_H

#include <ration/train_images.h>

#include "base/arena.h"

struct rn_pictures {
    rn_picture_options options;
    rn_pictures_info info;
    rn_arena memory;
    rn_picture *items; // (info.count), by name
    uint64_t *order;   // (info.count): by bucket, what is trained before what validates
};

// Chooses the buckets and puts every picture into one (picture_buckets.c).
RN_MUST_USE rn_status rn_pictures_sort(rn_pictures *pictures);

#endif
