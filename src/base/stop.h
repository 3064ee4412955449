// stop.h — the one way in which long computations are ended: they say how much they have done, and
// after every so much of it whoever wants to end them is asked.
//
//     rn_stop stop = {.check = is_late, .self = &deadline};
//     rn_stop_enter(&stop);
//     for (size_t i = 0; i < count; i++) {
//         ... // about `work` steps
//         if (rn_stop_spend(work) != RN_STOP_GO_ON) break;
//     }
//     rn_stop_leave(&stop);
//
// A unit of work is an iteration of an inner loop, some nanoseconds; a hundred at worst. So the
// time between two looks is bounded by a count, whatever the machine, and a test can hold it:
// most_units. Stops nest, on the thread: an inner look asks the outer ones too. Not inherited by
// workers.
#ifndef RN_BASE_STOP_H
#define RN_BASE_STOP_H

#include <ration/status.h>
#include <ration/stop.h>

enum { RN_STOP_UNITS = 1 << 16 }; // after so many units there is a look

enum {
    RN_STOP_NODE_UNITS = 64
}; // what a node or value of a graph is worth wherever one is handled

// In rising order of weight.
typedef enum rn_stop_answer {
    RN_STOP_GO_ON,
    RN_STOP_END,    // with what there is
    RN_STOP_CANCEL, // with RN_CANCELLED
} rn_stop_answer;

typedef struct rn_stop {
    rn_stop_answer (*check)(void *self); // NULL: always goes on
    void *self;
    rn_stop_answer answer; // the last one; other than RN_STOP_GO_ON it sticks
    uint64_t most_units;   // between two looks
    uint64_t look_count;
    struct rn_stop *outer;
} rn_stop;

void rn_stop_enter(rn_stop *stop);
void rn_stop_leave(rn_stop *stop); // the innermost
// Counts work; the weightiest answer of all stops of the thread so far.
rn_stop_answer rn_stop_spend(uint64_t units);
// The same with a look now.
rn_stop_answer rn_stop_look(void);
// In long loops of cheap rounds: counts them, and says every thousand whether to end.
static inline bool rn_stop_round(size_t round) {
    enum { ROUNDS = 1024 };
    return round % ROUNDS == ROUNDS - 1 && rn_stop_spend(ROUNDS) != RN_STOP_GO_ON;
}
// Counts work; RN_CANCELLED, with its error, where that is the answer.
RN_MUST_USE rn_status rn_stop_try(uint64_t units);

#endif
