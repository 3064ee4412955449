// model_fuzz.h — any bytes as a model file: it is refused with a reason, or everything that it
// claims holds and every small tensor loads.
#ifndef RN_MODEL_FUZZ_H
#define RN_MODEL_FUZZ_H

#include <ration/checkpoint.h>
#include <ration/memory.h>
#include <ration/summary.h>

#include "base/str.h"

#include "fuzz_file.h"

#include <stdlib.h>

enum { MOST_LOADED_BYTES = 1 << 20 };

static void check_metadata(const rn_checkpoint *c) {
    for (size_t i = 0; i < rn_checkpoint_metadata_count(c); i++) {
        const rn_metadata *m = rn_checkpoint_metadata(c, i);
        rn_metadata item;
        uint64_t cursor = 0, count = 0;
        while (rn_metadata_next(m, &cursor, &item)) {
            if (item.kind == RN_METADATA_TEXT && item.text.bytes) // every byte may be touched
                require(memchr(item.text.data, item.text.data[item.text.bytes - 1],
                               item.text.bytes) != NULL);
            count++;
        }
        require(count == m->count);
    }
}

static void load_tensor(const rn_checkpoint *c, const rn_tensor_info *t) {
    static float values[MOST_LOADED_BYTES / sizeof(float)];
    static char raw[MOST_LOADED_BYTES];
    if (t->bytes <= sizeof raw)
        require(rn_checkpoint_read(c, t, 0, raw, (size_t)t->bytes) == RN_OK);
    if (t->elements > MOST_LOADED_BYTES / sizeof(float)) return;
    rn_status s = rn_checkpoint_load(c, t, RN_DTYPE_F32, values, t->elements * sizeof(float));
    bool readable = rn_dtype_get(t->dtype)->readable || t->elements == 0;
    require(s == (readable ? RN_OK : RN_UNSUPPORTED));
}

static void check_tensors(const rn_checkpoint *c) {
    uint64_t end = 0, total = 0, bytes;
    for (size_t i = 0; i < rn_checkpoint_count(c); i++) {
        const rn_tensor_info *t = rn_checkpoint_tensor(c, i);
        require(rn_dtype_bytes(t->dtype, t->elements, &bytes) && bytes == t->bytes);
        require(t->offset >= end || t->bytes == 0); // in file order, none over another
        if (t->bytes) end = t->offset + t->bytes;
        require(end <= rn_checkpoint_file(c, t->file)->bytes &&
                t->name.data[t->name.bytes] == '\0');
        if (strlen(t->name.data) == t->name.bytes)
            require(rn_checkpoint_find(c, t->name.data) == t);
        total += t->bytes;
        load_tensor(c, t);
    }
    require(total == rn_checkpoint_total_bytes(c));
}

static void check_refusal(rn_status s, size_t size) {
    const rn_error_info *story = rn_last_error();
    require(s == RN_CORRUPT || s == RN_UNSUPPORTED);
    require(story->message[0] && story->path[0]);
    require(story->offset == RN_NO_OFFSET || story->offset <= size);
}

static int fuzz_model(const uint8_t *data, size_t size) {
    rn_checkpoint *c;
    rn_summary summary;
    rn_status s = rn_checkpoint_open(make_file(data, size), &c);
    if (s == RN_OK) {
        check_tensors(c);
        check_metadata(c);
        require(rn_summary_make(c, &summary) == RN_OK);
        require(summary.bytes == rn_checkpoint_total_bytes(c));
        rn_summary_free(&summary);
        rn_checkpoint_close(c);
    } else {
        check_refusal(s, size);
    }
    require(rn_ledger_total(RN_DEVICE_HOST).now_bytes == 0);
    return 0;
}

#endif
