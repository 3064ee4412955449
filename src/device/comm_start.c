// comm_start.c — the start of a job: whether all ranks are of one mind.
#include "device/comm.h"

#include "base/sha256.h"
#include "memory/account.h"

#include <stdio.h>
#include <string.h>

#define FROM RN_HOST_IO
enum { SHOWN = 48 };

// What a rank has of an item: equal where the digests are.
typedef struct sample {
    uint8_t digest[RN_SHA256_BYTES];
    char text[SHOWN]; // the first bytes, to show
} sample;

static sample sample_of(const char *text) {
    sample s = {{0}, {0}};
    rn_sha256 hash;
    rn_sha256_begin(&hash);
    rn_sha256_add(&hash, text, strlen(text));
    rn_sha256_end(&hash, s.digest);
    snprintf(s.text, sizeof s.text, "%s", text);
    return s;
}

static bool equal(const sample *a, const sample *b) {
    return memcmp(a->digest, b->digest, sizeof a->digest) == 0;
}

// The sample that most ranks have; of several the first.
static uint32_t find_usual(const sample *samples, uint32_t ranks) {
    uint32_t usual = 0, most = 0;
    for (uint32_t i = 0; i < ranks; i++) {
        uint32_t same = 0;
        for (uint32_t r = 0; r < ranks; r++)
            same += equal(&samples[i], &samples[r]);
        if (same > most) {
            usual = i;
            most = same;
        }
    }
    return usual;
}

static rn_status judge(const rn_comm *comm, const char *name, const sample *samples) {
    uint32_t usual = find_usual(samples, comm->size), odd = 0, first = RN_NO_RANK;
    char list[128] = "";
    size_t used = 0;
    for (uint32_t r = 0; r < comm->size; r++) {
        if (equal(&samples[usual], &samples[r])) continue;
        if (first == RN_NO_RANK) first = r;
        odd++;
        if (used < sizeof list - 16)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%u", used ? ", " : "", r);
    }
    if (!odd) return RN_OK;
    return rn_hint(rn_fail(RN_INVALID,
                           "rank%s %s of %u differ%s from the others in %s: '%s' there, '%s' on "
                           "rank %u",
                           odd == 1 ? "" : "s", list, comm->size, odd == 1 ? "s" : "", name,
                           samples[first].text, samples[usual].text, usual),
                   "start the same program with the same model, data and options on every rank");
}

rn_status rn_comm_compare(rn_comm *comm, const rn_comm_item *items, uint32_t count) {
    void *block = NULL;
    if (rn_comm_size(comm) == 1) return RN_OK;
    size_t bytes = comm->size * sizeof(sample);
    RN_TRY(rn_alloc_zeroed(FROM, 1, bytes, &block));
    sample *samples = block;
    rn_status s = RN_OK;
    for (uint32_t i = 0; s == RN_OK && i < count; i++) {
        samples[comm->rank] = sample_of(items[i].text);
        s = rn_comm_all_gather(comm, samples, sizeof(sample));
        if (s == RN_OK) s = judge(comm, items[i].name, samples);
    }
    rn_free(FROM, block, bytes);
    return s;
}

typedef struct outcome {
    uint32_t status;
    char message[508];
} outcome;

rn_status rn_comm_agree(rn_comm *comm, rn_status status) {
    void *block = NULL;
    if (rn_comm_size(comm) == 1) return status;
    rn_error_info own = *rn_last_error();
    size_t bytes = comm->size * sizeof(outcome);
    RN_TRY(rn_alloc_zeroed(FROM, 1, bytes, &block));
    outcome *all = block;
    all[comm->rank].status = (uint32_t)status;
    if (status != RN_OK)
        snprintf(all[comm->rank].message, sizeof all[0].message, "%.500s", own.message);
    rn_status s = rn_comm_all_gather(comm, all, sizeof(outcome));
    for (uint32_t r = 0; s == RN_OK && status == RN_OK && r < comm->size; r++) {
        if (all[r].status == RN_OK) continue;
        all[r].message[sizeof all[r].message - 1] = 0;
        s = rn_fail(all[r].status < RN_STATUS_COUNT ? (rn_status)all[r].status : RN_INTERNAL,
                    "rank %u of %u: %s", r, comm->size, all[r].message);
    }
    rn_free(FROM, block, bytes);
    return status != RN_OK ? rn_error_restore(&own) : s;
}
