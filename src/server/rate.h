// rate.h — how much of something there was in the last seconds, counted by any thread.
#ifndef RN_SERVER_RATE_H
#define RN_SERVER_RATE_H

#include <stdatomic.h>
#include <stdint.h>

#define RN_RATE_SLOTS      16
#define RN_RATE_SLOT_NS    250000000u
#define RN_RATE_SLOTS_SEEN 12 // complete ones: three seconds; the rest is under way, or too old

// A slot is a quarter of a second: its number above, what was counted in it below. All zero is a
// beginning.
typedef struct rn_rate {
    _Atomic uint64_t slots[RN_RATE_SLOTS];
} rn_rate;

// `now_ns` is rn_clock_ns(); `amount` is below 2^31.
void rn_rate_add(rn_rate *rate, uint64_t now_ns, uint32_t amount);
// A second, in the mean of the last three.
double rn_rate_get(const rn_rate *rate, uint64_t now_ns);

#endif
