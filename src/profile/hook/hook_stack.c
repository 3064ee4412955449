// hook_stack.c — stacks become names of the recording once; after that they are found by a hash of
// their instructions and of Python's code objects and lines.
//
// The interpreter's lock is taken before the table's, never the other way round. Code objects of a
// stack that is kept are held for good, so that no other object has their address.
#include "profile/hook/hook_stack.h"

#include "base/map.h"

#include <ration/profile.h>

#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum {
    SLOTS = 1 << 14, // a power of two
    MOST_STACKS = SLOTS / 2,
    TEXT_BYTES = 5900,
    FRAME_BYTES = 200,
};

typedef struct slot {
    uint64_t hash[2]; // of the stack, by two seeds: equal ones are believed to be the same
    uint32_t name;    // 0: empty
} slot;

typedef struct captured {
    void *pcs[RN_STACK_FRAMES]; // innermost first
    size_t pc_count, first_pc;
    rn_python_stack python;
} captured;

static slot slots[SLOTS];
static uint32_t slot_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

// ---- capturing ----------------------------------------------------------------------------------

// Frames of ration itself stand first: the hooks, and the library that stands in malloc's place.
static rn_code_range ours[2];
static pthread_once_t ours_once = PTHREAD_ONCE_INIT;

static void find_ours(void) {
    void *ready = dlsym(RTLD_DEFAULT, "rn_preload_is_here");
    void *own;
    uint32_t (*here)(bool) = rn_hook_stack;
    memcpy(&own, &here, sizeof own);
    ours[0] = rn_code_range_of(own);
    if (ready) ours[1] = rn_code_range_of(ready);
}

static void capture(captured *c, bool may_wait) {
    (void)pthread_once(&ours_once, find_ours);
    int count = backtrace(c->pcs, RN_STACK_FRAMES);
    c->pc_count = count > 0 ? (size_t)count : 0;
    for (c->first_pc = 0; c->first_pc < c->pc_count; c->first_pc++)
        if (!rn_code_has(ours[0], c->pcs[c->first_pc]) &&
            !rn_code_has(ours[1], c->pcs[c->first_pc]))
            break;
    if (!rn_python_enter(&c->python, may_wait)) return;
    for (size_t i = c->first_pc; i < c->pc_count; i++) // behind it, Python's own frames say more
        if (rn_python_has(c->pcs[i])) c->pc_count = i;
}

static slot key_of(const captured *c) {
    slot key = {0};
    for (int i = 0; i < 2; i++) {
        uint64_t seed = i ? 0x9e3779b97f4a7c15u : 0x2545f4914f6cdd1du;
        uint64_t hash =
            rn_hash(c->pcs + c->first_pc, (c->pc_count - c->first_pc) * sizeof *c->pcs, seed);
        for (size_t f = 0; f < c->python.count; f++) {
            uint64_t words[3] = {hash, (uintptr_t)c->python.frames[f].code,
                                 (uint64_t)c->python.frames[f].line};
            hash = rn_hash(words, sizeof words, seed);
        }
        key.hash[i] = hash;
    }
    return key;
}

// ---- texts --------------------------------------------------------------------------------------

typedef struct text {
    char data[TEXT_BYTES];
    size_t bytes;
} text;

static void add_frame(text *out, const char *frame) {
    size_t bytes = strlen(frame);
    if (out->bytes + bytes + 2 > sizeof out->data) return;
    if (out->bytes) out->data[out->bytes++] = '\n';
    memcpy(out->data + out->bytes, frame, bytes + 1);
    out->bytes += bytes;
}

// Outermost first. Of a stack that is too long, what is innermost counts.
static uint32_t name_stack(const captured *c) {
    text *out = &(text){.bytes = 0};
    char frame[FRAME_BYTES], site[FRAME_BYTES] = "";
    enum { MOST_C = 24 };
    for (size_t i = c->python.count; i-- > 0;) {
        rn_python_describe(&c->python.frames[i], frame, sizeof frame);
        add_frame(out, frame);
        if (i == 0) memcpy(site, frame, sizeof site);
    }
    size_t from = c->pc_count;
    if (from - c->first_pc > MOST_C) from = c->first_pc + MOST_C;
    for (size_t i = from; i-- > c->first_pc;) {
        rn_symbol_describe(c->pcs[i], frame, sizeof frame);
        add_frame(out, frame);
        if (i == c->first_pc && !site[0]) memcpy(site, frame, sizeof site);
    }
    return site[0] ? rn_profile_label(site, "call stack", out->data) : 0;
}

// ---- the table ----------------------------------------------------------------------------------

static slot *find(const slot *key) {
    size_t i = key->hash[0] & (SLOTS - 1);
    while (slots[i].name && memcmp(slots[i].hash, key->hash, sizeof key->hash) != 0)
        i = (i + 1) & (SLOTS - 1);
    return &slots[i];
}

uint32_t rn_hook_stack(bool may_wait_for_python) {
    captured c = {.pc_count = 0};
    capture(&c, may_wait_for_python);
    slot key = key_of(&c);
    pthread_mutex_lock(&lock);
    slot *found = find(&key);
    uint32_t name = found->name;
    if (!name && slot_count < MOST_STACKS) {
        name = name_stack(&c);
        key.name = name;
        *found = key;
        slot_count += name != 0;
    } else if (!name) {
        name = rn_profile_label("(more call stacks than are kept)", "call stack", "");
    }
    pthread_mutex_unlock(&lock);
    rn_python_leave(&c.python);
    return name;
}
