// constraint.c — one text that must keep to a schema: its rules, which copies share, where it
// stands, and the tokens that may come next.
#include "base/checked.h"
#include "memory/account.h"
#include "text/constraint/token_masks.h"

#include <ration/constraint.h>

#include <stdatomic.h>

#define FROM RN_HOST_IO

typedef struct shared_rules {
    rn_json_rules rules;
    atomic_uint holders;
} shared_rules;

struct rn_constraint {
    rn_vocabulary *vocabulary;
    shared_rules *shared;
    rn_json_state state;
    bool is_known; // the mask is of this state
    bool any;
    uint32_t *mask; // (words)
    rn_json_machine machine;
};

static size_t mask_bytes(const rn_vocabulary *vocabulary) {
    return rn_token_masks_words(vocabulary) * sizeof(uint32_t);
}

static void release(shared_rules *shared) {
    if (!shared || atomic_fetch_sub(&shared->holders, 1) > 1) return;
    rn_json_rules_free(&shared->rules);
    rn_free(FROM, shared, sizeof *shared);
}

void rn_constraint_destroy(rn_constraint *c) {
    if (!c) return;
    release(c->shared);
    rn_free(FROM, c->mask, mask_bytes(c->vocabulary));
    rn_free(FROM, c, sizeof *c);
}

// Takes over one hold of `shared`, also where it fails.
static rn_status create(rn_vocabulary *vocabulary, shared_rules *shared, rn_constraint **out) {
    void *block = NULL, *mask = NULL;
    rn_status s = rn_alloc_zeroed(FROM, 1, sizeof(rn_constraint), &block);
    if (s != RN_OK) {
        release(shared);
        return s;
    }
    rn_constraint *c = block;
    c->vocabulary = vocabulary;
    c->shared = shared;
    s = rn_alloc_zeroed(FROM, 1, mask_bytes(vocabulary), &mask);
    c->mask = mask;
    if (s != RN_OK) {
        rn_constraint_destroy(c);
        return s;
    }
    rn_json_machine_begin(&c->machine, &shared->rules, &c->state);
    *out = c;
    return RN_OK;
}

rn_status rn_constraint_create(rn_vocabulary *vocabulary, rn_str schema, rn_constraint **out) {
    void *block = NULL;
    *out = NULL;
    RN_TRY(rn_alloc_zeroed(FROM, 1, sizeof(shared_rules), &block));
    shared_rules *shared = block;
    atomic_init(&shared->holders, 1);
    rn_status s = rn_json_rules_compile(schema, &shared->rules);
    if (s != RN_OK) {
        rn_free(FROM, shared, sizeof *shared);
        return s;
    }
    return create(vocabulary, shared, out);
}

rn_status rn_constraint_clone(const rn_constraint *c, rn_constraint **out) {
    *out = NULL;
    atomic_fetch_add(&c->shared->holders, 1);
    return create(c->vocabulary, c->shared, out);
}

size_t rn_constraint_bytes(const rn_vocabulary *vocabulary, size_t schema_bytes) {
    return rn_json_rules_bytes(schema_bytes) + sizeof(shared_rules) + sizeof(rn_constraint) +
           mask_bytes(vocabulary);
}

const uint32_t *rn_constraint_mask(rn_constraint *c) {
    if (!c->is_known) {
        rn_json_machine_tidy(&c->machine, &c->state);
        c->any = rn_token_masks_fill(c->vocabulary, &c->machine, &c->state, c->mask);
        c->is_known = true;
    }
    return c->any ? c->mask : NULL;
}

rn_status rn_constraint_advance(rn_constraint *c, uint32_t token) {
    rn_json_state before = c->state;
    c->is_known = false;
    if (rn_token_masks_advance(c->vocabulary, &c->machine, &c->state, token)) return RN_OK;
    c->state = before;
    return rn_fail(RN_INVALID, "token %u cannot go on this text", token);
}

bool rn_constraint_may_end(const rn_constraint *c) {
    return rn_json_machine_may_end(&c->machine, &c->state);
}
