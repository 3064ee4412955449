// clock.h — time, monotonic for durations and wall time for people.
#ifndef RN_BASE_CLOCK_H
#define RN_BASE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

// Nanoseconds since some fixed point; never goes back.
uint64_t rn_clock_ns(void);
// "12:03:04.123", or with `full` the UTC form "2026-01-31T12:03:04.123Z".
void rn_clock_text(char out[40], bool full);

#endif
