// state_codes.h — optimiser states in 8 bits, as bitsandbytes has them.
//
// A block of 256 numbers is its largest magnitude and a code each: the place, in a map of 256
// numbers, of the number divided by that magnitude. The maps are "dynamic": seven decades, each
// with twice as many steps as the one below. The search for a code is bitsandbytes' own: where a
// number lies halfway between two entries, the way of the search decides, so that codes are equal
// bit for bit.
#ifndef RN_GRAPH_STATE_CODES_H
#define RN_GRAPH_STATE_CODES_H

#include "graph/state_steps.h"
#include "tensor/quant.h"

enum { RN_STATE_CODES = 256 };

#define rn_state_signed rn_dynamic_map                // -0.993 .. 1; [127] is 0
extern const float rn_state_unsigned[RN_STATE_CODES]; // 0 .. 1

// The code of x within -1 .. 1 (0 .. 1 of the unsigned map); a NaN has code 0 of the signed one's
// lower end, which nobody sees: its block's magnitude is 0. lowest: -1 or 0.
static inline uint8_t rn_state_code(const float map[RN_STATE_CODES], float lowest, float x) {
    uint32_t pivot = 127, above = 255, below = 0;
    float lower = lowest, upper = 1, value = map[127];
    for (uint32_t i = 64; i > 0; i >>= 1) {
        if (x > value) {
            below = pivot;
            lower = value;
            pivot += i;
        } else {
            above = pivot;
            upper = value;
            pivot -= i;
        }
        value = map[pivot];
    }
    if (x > value) return (uint8_t)(x > (upper + value) * 0.5f ? above : pivot);
    return (uint8_t)(x < (lower + value) * 0.5f ? below : pivot);
}

// The code of a signed number: where the map's entry has another sign than the number, the
// neighbour.
static inline uint8_t rn_state_code_signed(float value, float magnitude) {
    uint8_t code = rn_state_code(rn_state_signed, -1, value / magnitude);
    if (__builtin_signbit(rn_state_signed[code]) == __builtin_signbit(value)) return code;
    return (uint8_t)(value > 0 ? code + 1 : code - 1);
}

static inline uint8_t rn_state_code_unsigned(float value, float magnitude) {
    return rn_state_code(rn_state_unsigned, 0, value / magnitude);
}

// The same by tables, of which there is one a process.
typedef struct rn_state_steps {
    uint32_t with_sign[RN_STATE_BUCKETS], without[RN_STATE_BUCKETS];
} rn_state_steps;
const rn_state_steps *rn_state_steps_get(void);

#endif
