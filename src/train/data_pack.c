// data_pack.c — samples into sequences: best fit decreasing, as TRL packs.
//
// The longest samples first, each into the open sequence that it leaves the least room in; among
// those with the same room the one that has had it longest. Sequences with the same room are a
// queue, and a bit a size says which queues are not empty.
#include "train/data.h"

#include <stdio.h>

#include "base/checked.h"
#include "base/reserved.h"
#include "base/str.h"
#include "graph/philox.h"
#include "memory/account.h"

enum { STREAM_SPLIT = 1, STREAM_ORDER = 2 };
#define NONE UINT32_MAX

typedef struct packing {
    const rn_train_data *data;
    uint32_t most;          // tokens of a sequence
    uint32_t count;         // samples
    uint32_t *sorted;       // (count) samples, the longest first
    uint32_t *sequence_of;  // (count) by place in `sorted`
    uint32_t *next;         // (count) sequences: the next with as much room
    uint32_t *first, *last; // (most + 1) by room
    uint64_t *bits;         // (most / 64 + 1)
    uint32_t sequences;
} packing;

static bool is_validation(const rn_train_data *data, uint64_t sample) {
    uint32_t word = rn_philox_word(data->options.seed, STREAM_SPLIT, sample);
    return (double)rn_philox_unit(word) < data->options.validation;
}

// ---- best fit -----------------------------------------------------------------------------------

// A counting sort: stable, so that equal lengths keep the source's order.
static void sort_samples(packing *p, rn_data_part part, uint32_t *counts) {
    uint32_t at = 0;
    for (uint64_t i = 0; i < p->data->header.samples; i++)
        if (is_validation(p->data, i) == (part == RN_DATA_VALIDATION))
            counts[p->most - rn_data_length(p->data, i)]++;
    for (uint32_t n = 0; n <= p->most; n++) {
        uint32_t here = counts[n];
        counts[n] = at;
        at += here;
    }
    for (uint64_t i = 0; i < p->data->header.samples; i++)
        if (is_validation(p->data, i) == (part == RN_DATA_VALIDATION))
            p->sorted[counts[p->most - rn_data_length(p->data, i)]++] = (uint32_t)i;
}

static void put_room(packing *p, uint32_t sequence, uint32_t room) {
    p->next[sequence] = NONE;
    if (p->first[room] == NONE)
        p->first[room] = sequence;
    else
        p->next[p->last[room]] = sequence;
    p->last[room] = sequence;
    p->bits[room / 64] |= 1ull << room % 64;
}

// The least room of at least `length`; NONE: there is none.
static uint32_t find_room(const packing *p, uint32_t length) {
    for (uint32_t word = length / 64; word <= p->most / 64; word++) {
        uint64_t bits = p->bits[word];
        if (word == length / 64) bits &= ~0ull << length % 64;
        if (bits) return word * 64 + (uint32_t)__builtin_ctzll(bits);
    }
    return NONE;
}

static void fit(packing *p) {
    for (uint32_t i = 0; i < p->count; i++) {
        uint32_t length = rn_data_length(p->data, p->sorted[i]);
        uint32_t room = p->data->options.unpacked ? NONE : find_room(p, length), sequence;
        if (room == NONE) {
            sequence = p->sequences++;
            room = p->most;
        } else {
            sequence = p->first[room];
            p->first[room] = p->next[sequence];
            if (p->first[room] == NONE) p->bits[room / 64] &= ~(1ull << room % 64);
        }
        p->sequence_of[i] = sequence;
        if (room > length) put_room(p, sequence, room - length);
    }
}

// Samples by sequences: within one in the order in which they were put there.
static rn_status lay_out(rn_train_data *data, rn_data_part part, const packing *p) {
    void *starts = NULL, *order = NULL;
    RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, (size_t)p->sequences + 2, sizeof(uint64_t), &starts));
    data->sequences[part] = starts;
    uint64_t *at = starts;
    if (part == RN_DATA_TRAIN)
        data->info.sequences = p->sequences;
    else
        data->info.validation_sequences = p->sequences;
    RN_TRY(rn_alloc(RN_HOST_OTHER, (size_t)p->count * sizeof(uint32_t) + 1, &order));
    data->order[part] = order;
    data->order_count[part] = p->count;
    for (uint32_t i = 0; i < p->count; i++)
        at[p->sequence_of[i] + 2]++;
    for (uint32_t n = 2; n < p->sequences + 2; n++)
        at[n] += at[n - 1];
    for (uint32_t i = 0; i < p->count; i++)
        data->order[part][at[p->sequence_of[i] + 1]++] = p->sorted[i];
    return RN_OK;
}

static rn_status pack_part(rn_train_data *data, rn_data_part part, uint32_t count) {
    uint32_t most = data->options.tokens;
    packing p = {.data = data, .most = most, .count = count};
    rn_arena memory;
    void *blocks[7] = {NULL};
    const size_t counts[7] = {count, count, count, most + 1, most + 1, most + 1, most / 64 + 1};
    rn_status s = RN_OK;
    rn_arena_init(&memory, RN_HOST_OTHER, 0);
    for (int i = 0; s == RN_OK && i < 7; i++)
        s = rn_arena_array(&memory, counts[i] ? counts[i] : 1,
                           i == 6 ? sizeof(uint64_t) : sizeof(uint32_t), &blocks[i]);
    if (s == RN_OK) {
        p.sorted = blocks[0];
        p.sequence_of = blocks[1];
        p.next = blocks[2];
        p.first = blocks[3];
        p.last = blocks[4];
        p.bits = blocks[6];
        for (uint32_t room = 0; room <= most; room++)
            p.first[room] = NONE;
        sort_samples(&p, part, blocks[5]);
        fit(&p);
        s = lay_out(data, part, &p);
    }
    rn_arena_free_all(&memory);
    return s;
}

rn_status rn_data_pack(rn_train_data *data) {
    const rn_data_header *h = &data->header;
    uint64_t apart = 0;
    if (h->samples >= NONE) return rn_fail(RN_UNSUPPORTED, "more than 4 billion samples");
    for (uint64_t i = 0; i < h->samples; i++)
        apart += is_validation(data, i);
    data->info.samples = h->samples - apart;
    data->info.validation_samples = apart;
    RN_TRY(pack_part(data, RN_DATA_TRAIN, (uint32_t)data->info.samples));
    return pack_part(data, RN_DATA_VALIDATION, (uint32_t)apart);
}

// ---- data ---------------------------------------------------------------------------------------

rn_status rn_train_data_open(const char *path, const rn_train_data_options *options,
                             rn_train_data **out) {
    void *block = NULL;
    *out = NULL;
    RN_TRY(rn_check_reserved(options->reserved, "rn_train_data_options"));
    if (options->tokens < 2 || options->tokens > 1 << 26)
        return rn_fail(RN_INVALID, "sequences of %u tokens cannot be trained", options->tokens);
    if ((unsigned)options->too_long > RN_LONG_SPLIT || !(options->validation >= 0) ||
        !(options->validation < 1))
        return rn_fail(RN_INVALID, "the share of validation must be within 0 and 1");
    RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, 1, sizeof(rn_train_data), &block));
    rn_train_data *data = block;
    data->options = *options;
    rn_status s = rn_data_open_file(data, path, options);
    if (s == RN_OK) {
        const rn_data_header *h = &data->header;
        bool reused = data->info.reused;
        data->info = (rn_train_data_info){.truncated = h->truncated,
                                          .dropped = h->dropped,
                                          .split = h->split,
                                          .masked = h->masked,
                                          .tokens = h->tokens,
                                          .targets = h->targets,
                                          .longest = h->longest,
                                          .reused = reused};
        for (int i = 0; i < 8; i++)
            snprintf(data->info.key + 2 * i, sizeof data->info.key - 2 * (size_t)i, "%02x",
                     h->key[i]);
        s = rn_data_pack(data);
    }
    if (s == RN_OK)
        *out = data;
    else
        rn_train_data_close(data);
    return s;
}

void rn_train_data_close(rn_train_data *data) {
    if (!data) return;
    for (int part = 0; part < 2; part++) {
        uint64_t sequences = part ? data->info.validation_sequences : data->info.sequences;
        rn_free(RN_HOST_OTHER, data->sequences[part], (sequences + 2) * sizeof(uint64_t));
        rn_free(RN_HOST_OTHER, data->order[part], data->order_count[part] * sizeof(uint32_t) + 1);
    }
    rn_data_close_file(data);
    rn_free(RN_HOST_OTHER, data, sizeof *data);
}

const rn_train_data_info *rn_train_data_get_info(const rn_train_data *data) {
    return &data->info;
}

// ---- batches ------------------------------------------------------------------------------------

// Place `at` of an epoch's order: a permutation by a cycle-walking Feistel network, which needs no
// memory.
static uint64_t shuffle(uint64_t seed, uint64_t epoch, uint64_t at, uint64_t count) {
    uint32_t half = 1;
    while (half < 32 && 1ull << 2 * half < count)
        half++;
    uint64_t mask = (1ull << half) - 1;
    do {
        uint64_t left = at >> half, right = at & mask;
        for (uint64_t round = 0; round < 6; round++) {
            uint32_t word = rn_philox_word(seed ^ epoch << 8, STREAM_ORDER, right * 8 + round);
            uint64_t swap = left ^ (word & mask);
            left = right;
            right = swap;
        }
        at = left << half | right;
    } while (at >= count);
    return at;
}

// Ids are read where tokens go; the mark of each says whether the one before it has a target.
static rn_status fill_sequence(const rn_train_data *data, rn_data_part part, uint64_t sequence,
                               int32_t *tokens, int32_t *targets, int32_t *documents) {
    uint32_t at = 0, most = data->options.tokens;
    for (uint64_t i = data->sequences[part][sequence]; i < data->sequences[part][sequence + 1];
         i++) {
        uint32_t sample = data->order[part][i], count = rn_data_length(data, sample);
        uint32_t *ids = (uint32_t *)tokens + at;
        RN_TRY(rn_data_read(data, sample, ids));
        for (uint32_t n = 0; n < count; n++) {
            bool learned = n + 1 < count && ids[n + 1] & RN_DATA_LEARNED;
            ids[n] &= ~RN_DATA_LEARNED;
            targets[at + n] = learned ? (int32_t)(ids[n + 1] & ~RN_DATA_LEARNED) : -100;
            documents[at + n] = (int32_t)at;
        }
        at += count;
    }
    for (; at < most; at++) {
        tokens[at] = 0;
        targets[at] = -100;
        documents[at] = (int32_t)at;
    }
    return RN_OK;
}

rn_status rn_train_data_batch(const rn_train_data *data, rn_data_part part, uint64_t step,
                              uint32_t batch, int32_t *tokens, int32_t *targets,
                              int32_t *documents) {
    uint64_t count =
        part == RN_DATA_VALIDATION ? data->info.validation_sequences : data->info.sequences;
    if (count == 0) return rn_fail(RN_INVALID, "there are no sequences to take a batch of");
    for (uint32_t i = 0; i < batch; i++) {
        uint64_t at = step * batch + i, most = data->options.tokens;
        uint64_t sequence = part == RN_DATA_VALIDATION
                                ? at % count
                                : shuffle(data->options.seed, at / count, at % count, count);
        RN_TRY(fill_sequence(data, part, sequence, tokens + i * most, targets + i * most,
                             documents + i * most));
    }
    return RN_OK;
}
