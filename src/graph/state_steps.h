// state_steps.h — the codes of graph/state_codes.h by one look into a table, the bits the same.
//
//     the bits of x, 0 .. 1:    sign exponent mmmmmmm | mmmmmmmmmmmmmmmm
//                                    └── bucket ────┘   └──── rest ────┘
//
// The code of x grows with x, and no two of the 255 places where it does lie in one bucket. So a
// bucket has the code of its first number and the rest beyond which the next code begins, both in
// one word such that (word + rest) >> 16 is the code. The signed map is its own mirror image: -x
// has code 254 - code(x), and never that of 0.
//
// Read by C and by CUDA C.
#ifndef RN_GRAPH_STATE_STEPS_H
#define RN_GRAPH_STATE_STEPS_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __CUDACC__
#define RN_STATE_STEPS_FN __host__ __device__ __forceinline__
#else
#define RN_STATE_STEPS_FN static inline
#endif

enum {
    RN_STATE_REST_BITS = 16,
    RN_STATE_FIRST_BUCKET = (127 - 24) << 7, // 2^-24: below, all numbers have the code of 0
    RN_STATE_BUCKETS = 24 * 128 + 1,         // to 1, which has the last
};

typedef union rn_float_bits {
    float value;
    uint32_t bits;
} rn_float_bits;

// The bits of the last number that has `code`, from 0 on. What is halfway between two entries
// belongs to the even one: so does bitsandbytes' search (rn_state_code).
RN_STATE_STEPS_FN uint32_t rn_state_middle(const float *map, uint32_t code) {
    rn_float_bits middle;
    middle.value = (map[code] + map[code + 1]) * 0.5f;
    return middle.bits - (code & 1);
}

// One bucket's word. `first`: the code of 0, half a signed map (127) or the first of an unsigned.
RN_STATE_STEPS_FN uint32_t rn_state_step(const float *map, uint32_t first, uint32_t bucket) {
    uint32_t front = (RN_STATE_FIRST_BUCKET + bucket) << RN_STATE_REST_BITS, low = first;
    uint32_t high = 255; // the code of `front` is within low .. high
    while (low < high) {
        uint32_t code = (low + high) / 2;
        if (front > rn_state_middle(map, code))
            low = code + 1;
        else
            high = code;
    }
    uint32_t end = low < 255 ? rn_state_middle(map, low) : 0xFFFFFFFFu;
    uint32_t rest =
        end >> RN_STATE_REST_BITS == front >> RN_STATE_REST_BITS ? end & 0xFFFF : 0xFFFF;
    return (low << RN_STATE_REST_BITS) + 0xFFFF - rest;
}

// (word + rest) of a number within 0 .. 1; the code is its bits 16 to 23. What is below the first
// bucket is as good as its front.
RN_STATE_STEPS_FN uint32_t rn_state_look(const uint32_t *steps, uint32_t bits) {
    const uint32_t front = (uint32_t)RN_STATE_FIRST_BUCKET << RN_STATE_REST_BITS;
    uint32_t within = bits > front ? bits : front;
    return steps[(within >> RN_STATE_REST_BITS) - RN_STATE_FIRST_BUCKET] + (within & 0xFFFF);
}

// The code of x within -1 .. 1 whose magnitude has `code`.
RN_STATE_STEPS_FN uint32_t rn_state_mirror(uint32_t code, bool negative) {
    uint32_t within = code < 128 ? 128 : code > 254 ? 254 : code;
    return negative ? 254 - within : code;
}

#endif
