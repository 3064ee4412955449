// vocab.c — a pool, spans into it, and an open-addressing map at two thirds full. Slots keep 32
// bits of the hash, so that a probe reads the pool only where the text is most likely the right
// one.
#include "text/vocab.h"

#include "base/checked.h"
#include "base/map.h"

#include <time.h>

enum { POOL_CAP_BYTES = 1 << 30 };

void rn_vocab_init(rn_vocab *vocab, const rn_allocator *from) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t moment = (uint64_t)now.tv_nsec ^ (uint64_t)now.tv_sec << 32;
    *vocab = (rn_vocab){.from = from, .seed = rn_hash(&moment, sizeof moment, (uintptr_t)vocab)};
    rn_buffer_init(&vocab->pool, from, POOL_CAP_BYTES);
}

void rn_vocab_free(rn_vocab *vocab) {
    rn_buffer_free(&vocab->pool);
    rn_free(vocab->from, vocab->texts, vocab->capacity * sizeof *vocab->texts);
    rn_free(vocab->from, vocab->shown, vocab->capacity * sizeof *vocab->shown);
    rn_free(vocab->from, vocab->flags, vocab->capacity);
    rn_free(vocab->from, vocab->slots, vocab->slot_count * sizeof *vocab->slots);
    *vocab = (rn_vocab){.from = vocab->from};
}

// A zeroed array of `capacity` items in place of the old one.
static rn_status regrow(const rn_allocator *from, void **array, size_t item, size_t old,
                        size_t capacity) {
    void *block;
    RN_TRY(rn_alloc_zeroed(from, capacity, item, &block));
    if (old) memcpy(block, *array, old * item);
    rn_free(from, *array, old * item);
    *array = block;
    return RN_OK;
}

static rn_status grow(rn_vocab *vocab, size_t need) {
    size_t capacity = rn_max_u64(need, vocab->capacity + vocab->capacity / 2),
           old = vocab->capacity;
    void *texts = vocab->texts, *flags = vocab->flags;
    RN_TRY(regrow(vocab->from, &texts, sizeof *vocab->texts, old, capacity));
    vocab->texts = texts;
    rn_status s = regrow(vocab->from, &flags, 1, old, capacity);
    if (s != RN_OK) { // the arrays share one capacity
        rn_free(vocab->from, texts, capacity * sizeof *vocab->texts);
        vocab->texts = NULL;
        rn_free(vocab->from, vocab->flags, old);
        vocab->flags = NULL;
        vocab->capacity = vocab->count = 0;
        return s;
    }
    vocab->flags = flags;
    vocab->capacity = capacity;
    return RN_OK;
}

static rn_status keep(rn_vocab *vocab, rn_str text, rn_vocab_span *out) {
    *out = (rn_vocab_span){(uint32_t)vocab->pool.bytes, (uint32_t)text.bytes};
    return rn_buffer_append(&vocab->pool, text.data, text.bytes);
}

rn_status rn_vocab_put(rn_vocab *vocab, uint64_t id, rn_str text, uint8_t flags) {
    if (id >= RN_VOCAB_MAX)
        return rn_fail(RN_CORRUPT, "token id %llu is beyond %u", (unsigned long long)id,
                       RN_VOCAB_MAX);
    if (rn_vocab_has(vocab, id))
        return rn_fail(RN_CORRUPT, "token id %llu is given twice", (unsigned long long)id);
    if (id >= vocab->capacity) RN_TRY(grow(vocab, rn_max_u64(id + 1, 256)));
    RN_TRY(keep(vocab, text, &vocab->texts[id]));
    vocab->flags[id] = (uint8_t)(flags | RN_TOKEN_EXISTS);
    vocab->count = rn_max_u64(vocab->count, id + 1);
    return RN_OK;
}

// ---- text -> id -------------------------------------------------------------------------

static uint64_t load(const char *from, size_t bytes) {
    uint64_t word = 0;
    memcpy(&word, from, bytes);
    return word;
}

static uint64_t fold(uint64_t a, uint64_t b) {
    __extension__ unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

// Words are short: up to 16 bytes are two loads, which overlap, and two products.
rn_vocab_key rn_vocab_key_of(const rn_vocab *vocab, rn_str text) {
    const char *data = text.data;
    size_t bytes = text.bytes;
    uint64_t seed = vocab->seed ^ bytes;
    rn_vocab_key key = {0};
    if (bytes > 16) {
        key.hash = (uint32_t)(rn_hash(data, bytes, seed) >> 32);
        return key;
    }
    if (bytes >= 8) {
        key.a = load(data, 8);
        key.b = load(data + bytes - 8, 8);
    } else if (bytes >= 4) {
        key.a = load(data, 4);
        key.b = load(data + bytes - 4, 4);
    } else if (bytes > 0) {
        key.a = (uint8_t)data[0] | (uint64_t)(uint8_t)data[bytes / 2] << 8;
        key.b = (uint8_t)data[bytes - 1];
    }
    uint64_t hash = fold(key.a ^ seed, key.b ^ 0x9e3779b97f4a7c15u);
    key.hash = (uint32_t)(fold(hash ^ seed, 0xd6e8feb86659fd93u) >> 32);
    return key;
}

// The slot of the text, or the empty one where it belongs.
static rn_vocab_slot *locate(const rn_vocab *vocab, rn_str text, uint32_t hash) {
    size_t at = (size_t)((uint64_t)hash * vocab->slot_count >> 32);
    for (;; at = at + 1 == vocab->slot_count ? 0 : at + 1) {
        rn_vocab_slot *slot = &vocab->slots[at];
        if (slot->next_id == 0) return slot;
        if (slot->hash == hash && rn_str_equal(rn_vocab_text(vocab, slot->next_id - 1), text))
            return slot;
    }
}

static rn_status enter(rn_vocab *vocab, uint32_t id) {
    rn_str text = rn_vocab_text(vocab, id);
    uint32_t hash = rn_vocab_key_of(vocab, text).hash;
    rn_vocab_slot *slot = locate(vocab, text, hash);
    if (slot->next_id)
        return rn_fail(RN_CORRUPT, "tokens %u and %u have the same text", slot->next_id - 1, id);
    *slot = (rn_vocab_slot){hash, id + 1};
    return RN_OK;
}

rn_status rn_vocab_seal(rn_vocab *vocab) {
    size_t count = 0;
    void *slots;
    for (size_t id = 0; id < vocab->count; id++)
        count += (vocab->flags[id] & (RN_TOKEN_EXISTS | RN_TOKEN_APART)) == RN_TOKEN_EXISTS;
    size_t slot_count = count + count / 2 + 1;
    RN_TRY(rn_alloc_zeroed(vocab->from, slot_count, sizeof *vocab->slots, &slots));
    vocab->slots = slots;
    vocab->slot_count = slot_count;
    for (uint32_t id = 0; id < vocab->count; id++)
        if ((vocab->flags[id] & (RN_TOKEN_EXISTS | RN_TOKEN_APART)) == RN_TOKEN_EXISTS)
            RN_TRY(enter(vocab, id));
    return RN_OK;
}

uint32_t rn_vocab_find_hashed(const rn_vocab *vocab, rn_str text, uint32_t hash) {
    const rn_vocab_slot *slot = locate(vocab, text, hash);
    return slot->next_id ? slot->next_id - 1 : RN_NO_TOKEN;
}

uint32_t rn_vocab_find(const rn_vocab *vocab, rn_str text) {
    return rn_vocab_find_hashed(vocab, text, rn_vocab_key_of(vocab, text).hash);
}

// ---- id -> text -------------------------------------------------------------------------

rn_str rn_vocab_text(const rn_vocab *vocab, uint32_t id) {
    if (id >= vocab->count) return (rn_str){0};
    return (rn_str){vocab->pool.data + vocab->texts[id].offset, vocab->texts[id].bytes};
}

rn_status rn_vocab_show(rn_vocab *vocab, uint32_t id, rn_str bytes) {
    if (!vocab->shown) {
        void *block;
        RN_TRY(rn_alloc_zeroed(vocab->from, vocab->capacity, sizeof *vocab->shown, &block));
        vocab->shown = block;
        memcpy(vocab->shown, vocab->texts, vocab->count * sizeof *vocab->texts);
    }
    return keep(vocab, bytes, &vocab->shown[id]);
}

rn_str rn_vocab_shown(const rn_vocab *vocab, uint32_t id) {
    if (!vocab->shown || id >= vocab->count) return rn_vocab_text(vocab, id);
    return (rn_str){vocab->pool.data + vocab->shown[id].offset, vocab->shown[id].bytes};
}
