// json_machine.h — a pushdown automaton over bytes: which byte may come next, by a schema's rules.
//
// A thread is one way to read the text so far: the value that is being written (its top frame), and
// below it the objects and arrays around it. Several threads are alive where alternatives begin
// alike (anyOf). Frames below are shared and never change: pushing finds the equal one again, so a
// state is a few words and can be compared and hashed.
//
//     {"a": [1, "x           threads: [ STRING in state plain | below: 7 ]
//                            pool:  7: ARRAY behind item 2 | below: 3     3: OBJECT behind "a"
#ifndef RN_TEXT_JSON_MACHINE_H
#define RN_TEXT_JSON_MACHINE_H

#include "text/constraint/json_rules.h"

enum { RN_JSON_THREADS = 32, RN_JSON_POOL = 1024 };

typedef struct rn_json_frame {
    uint32_t rule;
    uint8_t phase; // json_machine.c
    uint8_t space; // white space so far; in strings: what must follow; of a number: its sign
    uint16_t at;   // OBJECT: the first property that may come; NUMBER: digits, and those behind the
                   // point
    uint64_t value; // what the phase counts
} rn_json_frame;

typedef struct rn_json_thread {
    rn_json_frame top;
    uint16_t below; // in the pool; RN_JSON_POOL: nothing
} rn_json_thread;

typedef struct rn_json_state {
    uint32_t count; // 0: no text goes on like this
    rn_json_thread threads[RN_JSON_THREADS];
} rn_json_state;

typedef struct rn_json_pool_frame {
    rn_json_frame frame;
    uint64_t hash; // of it and all below
    uint16_t below, levels;
} rn_json_pool_frame;

typedef struct rn_json_machine {
    const rn_json_rules *rules;
    uint32_t pool_count;
    rn_json_pool_frame pool[RN_JSON_POOL];
    uint16_t table[2 * RN_JSON_POOL]; // by hash; 0: none, else 1 + the index
} rn_json_machine;

void rn_json_machine_begin(rn_json_machine *machine, const rn_json_rules *rules,
                           rn_json_state *out);
// False: the byte cannot follow, and out->count is 0.
bool rn_json_machine_step(rn_json_machine *machine, const rn_json_state *state, uint8_t byte,
                          rn_json_state *out);
// The text may end here.
bool rn_json_machine_may_end(const rn_json_machine *machine, const rn_json_state *state);
// Forgets frames that no thread of the state has below it, where the pool is half full.
void rn_json_machine_tidy(rn_json_machine *machine, rn_json_state *state);
// Equal for states that allow the same texts of at most `ahead` bytes; also of other machines with
// rules of the same key.
uint64_t rn_json_machine_hash(const rn_json_machine *machine, const rn_json_state *state,
                              uint32_t ahead);
// A string is being written, there is no other way to read the text, and it stands between two
// characters. *out_room: how many may still come.
bool rn_json_machine_in_text(const rn_json_state *state, uint32_t *out_room);

#endif
