// roster.h — several models in one server, within one budget: which of them are loaded.
//
//     requests ─▶ engine A  loaded     ┐
//     requests ─▶ engine B  waiting    ├─ the roster: shares of the room, who must leave for whom
//     requests ─▶ engine C  loaded     ┘
//
// Each model has a share of the room that the budget leaves for plans, settled before anything is
// loaded: where all fit together, the rest is divided among them and nobody ever leaves; where not,
// each has what it needs with all weights resident (all of the room, where it cannot have company
// anyway). The shares of those that are loaded never exceed the room.
//
// An engine whose jobs wait asks; those that were used longest ago are told to leave, idle ones
// first. Whoever is told ends what runs, what came before the job that waits, and what had come
// before it was loaded itself, but no more than twice as many as run at once; so neither side is
// starved, and requests that come for both in turn are not a switch each.
#ifndef RN_SERVER_ROSTER_H
#define RN_SERVER_ROSTER_H

#include <ration/status.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define RN_ROSTER_MODELS 32

typedef struct rn_engine rn_engine;

typedef struct rn_roster_entry {
    rn_engine *engine;
    uint64_t need_bytes;  // with all weights resident and the fewest pages
    uint64_t share_bytes; // what its plan may take
    bool alone;           // it shares the room with nobody: its device's memory is not divided
    bool held;            // its share is taken: it is loaded, or being loaded
    uint64_t came_ns;     // when its share was taken
    uint64_t used_ns;     // when a job began last
    uint64_t wants_ns;    // when the job came that waits for it to be loaded; 0: none does
    bool leaves;          // told to
    uint32_t begun;       // jobs since then
    uint64_t loads;       // in all
} rn_roster_entry;

typedef struct rn_roster {
    pthread_mutex_t lock;
    pthread_cond_t turned;
    uint64_t room_bytes;
    uint32_t count;
    rn_roster_entry entries[RN_ROSTER_MODELS];
    uint64_t ticket, serving; // of steps: one model computes at a time
} rn_roster;

void rn_roster_init(rn_roster *roster);
void rn_roster_free(rn_roster *roster);
// Its index. The caller has checked that there is one left.
uint32_t rn_roster_add(rn_roster *roster, rn_engine *engine);
// Once all needs are known: the shares of a room.
void rn_roster_divide(rn_roster *roster, uint64_t room_bytes);

// The share is taken, where there is room. Else others are told to leave for a job that came at
// `since_ns`, and false: to be asked again.
bool rn_roster_enter(rn_roster *roster, uint32_t index, uint64_t since_ns, uint64_t now_ns);
// Nobody waits for it any more.
void rn_roster_withdraw(rn_roster *roster, uint32_t index);
// What was loaded is gone.
void rn_roster_leave(rn_roster *roster, uint32_t index);
// Whether it has to go before it begins a job that came at `next_ns` (0: there is none), of at most
// `at_once` that run.
bool rn_roster_must_leave(rn_roster *roster, uint32_t index, uint64_t next_ns, uint32_t at_once);
// A job begins.
void rn_roster_note(rn_roster *roster, uint32_t index, uint64_t now_ns);

// Around a step: models take turns, since each uses all threads.
void rn_roster_turn_begin(rn_roster *roster);
void rn_roster_turn_end(rn_roster *roster);

#endif
