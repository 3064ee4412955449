// fingerprint.c — see fingerprint.h.
#include "io/fingerprint.h"

#include "base/checked.h"
#include "base/sha256.h"

enum { SAMPLES = 64, SAMPLE_BYTES = 4096 };

static void add_header(rn_sha256 *hash, const rn_tensor_info *t) {
    uint64_t facts[] = {t->name.bytes, (uint64_t)t->dtype, t->rank, t->bytes};
    rn_sha256_add(hash, facts, sizeof facts);
    rn_sha256_add(hash, t->name.data, t->name.bytes);
    rn_sha256_add(hash, t->dims, t->rank * sizeof *t->dims);
}

// From the middle: where models that were tuned from one another differ.
static rn_status add_sample(rn_sha256 *hash, const rn_checkpoint *checkpoint,
                            const rn_tensor_info *t) {
    uint8_t bytes[SAMPLE_BYTES];
    size_t count = (size_t)rn_min_u64(t->bytes, sizeof bytes);
    if (count == 0) return RN_OK;
    RN_TRY(rn_checkpoint_read(checkpoint, t, (t->bytes - count) / 2, bytes, count));
    rn_sha256_add(hash, bytes, count);
    return RN_OK;
}

rn_status rn_checkpoint_fingerprint(const rn_checkpoint *checkpoint,
                                    char out[RN_FINGERPRINT_BYTES]) {
    rn_sha256 hash;
    uint8_t digest[RN_SHA256_BYTES];
    size_t count = rn_checkpoint_count(checkpoint), step = rn_div_up(count, SAMPLES);
    rn_sha256_begin(&hash);
    for (size_t i = 0; i < count; i++)
        add_header(&hash, rn_checkpoint_tensor(checkpoint, i));
    for (size_t i = 0; i < count; i += step)
        RN_TRY(add_sample(&hash, checkpoint, rn_checkpoint_tensor(checkpoint, i)));
    rn_sha256_end(&hash, digest);
    rn_sha256_text(digest, out);
    return RN_OK;
}
