// interleave.h — blocks whose weights lie on the host, interleaved between the CPU and the device.
//
//     CPU    | 0  1 |   | 3  4  5 |   | 7  8  9 |   |
//     link   | 2    |   | 6       |   | 10      |   | 2 of the next run
//     device        | 2 |         | 6 |         | 10 ── what stays there ──▶
//
// In a run of few rows the CPU computes most of them where they are. Meanwhile the link brings the
// weights of every third or so to the device, which computes that block when its turn comes. What
// is handed on between blocks crosses with every change; that is small. The link needs a *slot* on
// the device for each block that it is ahead by.
//
// Pure functions of times: which blocks, how many of them, and how long that takes.
#ifndef RN_PLAN_INTERLEAVE_H
#define RN_PLAN_INTERLEAVE_H

#include <stdbool.h>
#include <stdint.h>

enum { RN_INTERLEAVE_SLOTS = 4 }; // at most

// What is handed on, to the device and back, with the waits of both sides: 10 to 15 us each way.
#define RN_INTERLEAVE_CROSSING_SECONDS 30e-6

// One block of a run of one row, on either side.
typedef struct rn_interleave_block {
    double host_seconds; // on the CPU
    double link_seconds; // to bring what does not stay on the device
    double device_seconds;
} rn_interleave_block;

typedef struct rn_interleave {
    const rn_interleave_block *blocks; // (count)
    uint32_t count;
    uint32_t slots;      // 1 to RN_INTERLEAVE_SLOTS, or 0: the CPU computes all of them
    double tail_seconds; // of what follows, on the device
    // Of its speed, what the CPU has while the link reads the same memory: above 0, at most 1.
    double host_share;
} rn_interleave;

// Whether block `block` of `count` is brought, where `streamed` of them are: evenly spread; the
// last one is, the first one is not. streamed < count.
bool rn_interleave_streams(uint32_t block, uint32_t count, uint32_t streamed);
// Of one run among many, where so many blocks are brought.
double rn_interleave_seconds(const rn_interleave *interleave, uint32_t streamed);
// How many blocks to bring, for the shortest runs; the fewest where it is the same.
uint32_t rn_interleave_deal(const rn_interleave *interleave);

#endif
