// token_masks.c — see token_masks.h.
#include "text/constraint/token_masks.h"

#include "base/checked.h"
#include "base/str.h"
#include "memory/account.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define FROM RN_HOST_OTHER

enum { LONGEST = 96, KEPT = 24, MOST_ENDS = 32 }; // bytes of a token; masks; end tokens

typedef struct kept_mask {
    uint64_t hash; // of the state; 0: none
    uint64_t used; // when, in masks that were asked for
    bool any;
} kept_mask;

// Tokens in order of their bytes.
typedef struct order {
    uint32_t *ids;   // (count)
    uint8_t *common; // (count): bytes that it shares with the one before
    uint32_t count;
    uint32_t begins[257]; // where those of a first byte begin
} order;

struct rn_vocabulary {
    const rn_tokenizer *tokenizer;
    uint32_t vocab_size;
    size_t words, block_bytes;
    pthread_mutex_t lock;
    bool sorted;
    order all, rough;    // rough: those that are not just characters of a string
    uint32_t *plain;     // (words): those that are ...
    uint8_t *characters; // (vocab_size): ... of so many characters; 0: not such a token
    uint32_t ends[MOST_ENDS];
    uint32_t end_count;
    uint64_t asked;
    kept_mask kept[KEPT];
    uint32_t *masks;                   // (KEPT, words)
    rn_json_state states[LONGEST + 1]; // behind so many bytes of the token that is walked
};

// ---- life ---------------------------------------------------------------------------------------

static size_t count_bytes(uint32_t vocab_size, size_t words) {
    return (size_t)vocab_size * (2 * sizeof(uint32_t) + 3) + (KEPT + 1) * words * sizeof(uint32_t);
}

static void cut_block(rn_vocabulary *m, void *block) {
    m->masks = block;
    m->plain = m->masks + KEPT * m->words;
    m->all.ids = m->plain + m->words;
    m->rough.ids = m->all.ids + m->vocab_size;
    m->all.common = (uint8_t *)(m->rough.ids + m->vocab_size);
    m->rough.common = m->all.common + m->vocab_size;
    m->characters = m->rough.common + m->vocab_size;
}

rn_status rn_vocabulary_create(const rn_tokenizer *tokenizer, uint32_t vocab_size,
                               rn_vocabulary **out) {
    void *block = NULL, *large = NULL;
    *out = NULL;
    RN_TRY(rn_alloc_zeroed(FROM, 1, sizeof(rn_vocabulary), &block));
    rn_vocabulary *m = block;
    m->tokenizer = tokenizer;
    m->vocab_size = vocab_size;
    m->words = rn_div_up(vocab_size, 32);
    m->block_bytes = count_bytes(vocab_size, m->words);
    rn_status s = rn_alloc_zeroed(FROM, 1, m->block_bytes, &large);
    if (s != RN_OK) {
        rn_free(FROM, m, sizeof *m);
        return s;
    }
    cut_block(m, large);
    pthread_mutex_init(&m->lock, NULL);
    *out = m;
    return RN_OK;
}

void rn_vocabulary_destroy(rn_vocabulary *m) {
    if (!m) return;
    pthread_mutex_destroy(&m->lock);
    rn_free(FROM, m->masks, m->block_bytes);
    rn_free(FROM, m, sizeof *m);
}

size_t rn_token_masks_words(const rn_vocabulary *m) {
    return m->words;
}

// ---- the order of tokens ------------------------------------------------------------------------

static rn_str bytes_of(const rn_vocabulary *m, uint32_t id) {
    return rn_tokenizer_bytes(m->tokenizer, id, false);
}

static int compare_bytes(rn_str a, rn_str b) {
    int by = memcmp(a.data, b.data, rn_min_u64(a.bytes, b.bytes));
    return by ? by : (a.bytes > b.bytes) - (a.bytes < b.bytes);
}

// A heap sort: in place, and no vocabulary makes it slow.
static void sift(const rn_vocabulary *m, uint32_t *ids, uint32_t at, uint32_t count) {
    uint32_t id = ids[at];
    rn_str bytes = bytes_of(m, id);
    for (uint32_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count &&
            compare_bytes(bytes_of(m, ids[child]), bytes_of(m, ids[child + 1])) < 0)
            child++;
        if (compare_bytes(bytes, bytes_of(m, ids[child])) >= 0) break;
        ids[at] = ids[child];
    }
    ids[at] = id;
}

static void sort(const rn_vocabulary *m, uint32_t *ids, uint32_t count) {
    for (uint32_t i = count / 2; i-- > 0;)
        sift(m, ids, i, count);
    for (uint32_t i = count; i-- > 1;) {
        uint32_t first = ids[0];
        ids[0] = ids[i];
        ids[i] = first;
        sift(m, ids, 0, i);
    }
}

static void find_common(const rn_vocabulary *m, order *o) {
    rn_str before = {0};
    uint32_t byte = 0;
    for (uint32_t i = 0; i < o->count; i++) {
        rn_str bytes = bytes_of(m, o->ids[i]);
        size_t common = 0;
        while (common < before.bytes && common < bytes.bytes &&
               before.data[common] == bytes.data[common])
            common++;
        o->common[i] = (uint8_t)common;
        before = bytes;
        while (byte <= (uint8_t)bytes.data[0])
            o->begins[byte++] = i;
    }
    while (byte <= 256)
        o->begins[byte++] = o->count;
}

// Whole characters that a string may contain as they are.
static bool is_plain(rn_str bytes) {
    for (size_t i = 0; i < bytes.bytes; i++) {
        uint8_t b = (uint8_t)bytes.data[i];
        if (b < 0x20 || b == '"' || b == '\\') return false;
    }
    return rn_utf8_valid(bytes);
}

static uint8_t count_characters(rn_str bytes) {
    uint8_t count = 0;
    for (size_t i = 0; i < bytes.bytes; i++)
        count += ((uint8_t)bytes.data[i] & 0xc0) != 0x80;
    return count;
}

static void read_tokens(rn_vocabulary *m) {
    uint32_t known = rn_tokenizer_get_info(m->tokenizer)->vocab_size;
    for (uint32_t id = 0; id < m->vocab_size && id < known; id++) {
        if (rn_tokenizer_is_end(m->tokenizer, id)) {
            if (m->end_count < MOST_ENDS) m->ends[m->end_count++] = id;
            continue;
        }
        rn_str bytes = bytes_of(m, id);
        bool special = rn_tokenizer_is_special(m->tokenizer, id);
        if (special || bytes.bytes == 0 || bytes.bytes > LONGEST) continue;
        m->all.ids[m->all.count++] = id;
    }
    sort(m, m->all.ids, m->all.count);
    for (uint32_t i = 0; i < m->all.count; i++) {
        uint32_t id = m->all.ids[i];
        if (!is_plain(bytes_of(m, id))) {
            m->rough.ids[m->rough.count++] = id;
            continue;
        }
        m->plain[id / 32] |= 1u << id % 32;
        m->characters[id] = count_characters(bytes_of(m, id));
    }
    find_common(m, &m->all);
    find_common(m, &m->rough);
    m->sorted = true;
}

// ---- masks --------------------------------------------------------------------------------------

// Tokens [begin, end), which all begin with the byte that led to states[1].
static void walk_bucket(rn_vocabulary *m, rn_json_machine *machine, const order *o, uint32_t begin,
                        uint32_t end, uint32_t *out) {
    uint32_t alive = 1, dead = UINT32_MAX; // bytes whose state is known; that nothing begins with
    for (uint32_t i = begin; i < end; i++) {
        uint32_t common = i == begin ? 1 : o->common[i];
        if (common >= dead) continue;
        rn_str bytes = bytes_of(m, o->ids[i]);
        uint32_t at = (uint32_t)rn_min_u64(common, alive);
        dead = UINT32_MAX;
        for (; at < bytes.bytes; at++)
            if (!rn_json_machine_step(machine, &m->states[at], (uint8_t)bytes.data[at],
                                      &m->states[at + 1])) {
                dead = at + 1;
                break;
            }
        alive = at;
        if (dead == UINT32_MAX) out[o->ids[i] / 32] |= 1u << o->ids[i] % 32;
    }
}

// Those of the order that may come. Mostly few first bytes are allowed: all others' tokens are not
// even looked at.
static void walk(rn_vocabulary *m, rn_json_machine *machine, const order *o, uint32_t *out) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t begin = o->begins[byte], end = o->begins[byte + 1];
        if (begin < end &&
            rn_json_machine_step(machine, &m->states[0], (uint8_t)byte, &m->states[1]))
            walk_bucket(m, machine, o, begin, end, out);
    }
}

// The place of the mask that was not used for the longest time.
static uint32_t find_place(const rn_vocabulary *m) {
    uint32_t oldest = 0;
    for (uint32_t i = 1; i < KEPT; i++)
        if (m->kept[i].used < m->kept[oldest].used) oldest = i;
    return oldest;
}

static uint32_t find_kept(const rn_vocabulary *m, uint64_t hash) {
    uint32_t i = 0;
    while (i < KEPT && m->kept[i].hash != hash)
        i++;
    return i;
}

// Characters of a string as far as there is room for them.
static void add_plain(const rn_vocabulary *m, uint32_t room, uint32_t *mask) {
    if (room >= LONGEST) {
        for (size_t w = 0; w < m->words; w++)
            mask[w] |= m->plain[w];
        return;
    }
    for (uint32_t id = 0; id < m->vocab_size; id++)
        mask[id / 32] |= (uint32_t)(m->characters[id] - 1u < room) << id % 32; // 0 wraps round
}

static void make(rn_vocabulary *m, rn_json_machine *machine, const rn_json_state *state,
                 kept_mask *kept, uint32_t *mask) {
    uint32_t room = 0;
    bool in_text = rn_json_machine_in_text(state, &room);
    memset(mask, 0, m->words * sizeof *mask);
    m->states[0] = *state;
    walk(m, machine, in_text ? &m->rough : &m->all, mask);
    if (in_text) add_plain(m, room, mask);
    for (uint32_t i = 0; rn_json_machine_may_end(machine, state) && i < m->end_count; i++)
        mask[m->ends[i] / 32] |= 1u << m->ends[i] % 32;
    for (size_t w = 0; w < m->words; w++)
        kept->any |= mask[w] != 0;
}

bool rn_token_masks_fill(rn_vocabulary *m, rn_json_machine *machine, const rn_json_state *state,
                         uint32_t *out) {
    pthread_mutex_lock(&m->lock);
    if (!m->sorted) read_tokens(m);
    uint64_t hash = rn_json_machine_hash(machine, state, LONGEST) | 1;
    uint32_t i = find_kept(m, hash);
    if (i == KEPT) {
        i = find_place(m);
        m->kept[i] = (kept_mask){.hash = hash};
        make(m, machine, state, &m->kept[i], m->masks + i * m->words);
    }
    m->kept[i].used = ++m->asked;
    bool any = m->kept[i].any;
    memcpy(out, m->masks + i * m->words, m->words * sizeof *out);
    pthread_mutex_unlock(&m->lock);
    return any;
}

bool rn_token_masks_advance(const rn_vocabulary *m, rn_json_machine *machine, rn_json_state *state,
                            uint32_t token) {
    rn_json_state next;
    if (rn_tokenizer_is_end(m->tokenizer, token)) return rn_json_machine_may_end(machine, state);
    rn_str bytes = bytes_of(m, token);
    for (size_t i = 0; i < bytes.bytes; i++) {
        if (!rn_json_machine_step(machine, state, (uint8_t)bytes.data[i], &next)) return false;
        *state = next;
    }
    rn_json_machine_tidy(machine, state);
    return bytes.bytes > 0;
}
