// checked.h — size arithmetic that says when it overflows. Untrusted sizes pass through here first.
#ifndef RN_BASE_CHECKED_H
#define RN_BASE_CHECKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Each returns true and sets *out, or returns false on overflow and leaves *out unspecified.
static inline bool rn_add_u64(uint64_t a, uint64_t b, uint64_t *out) {
    return !__builtin_add_overflow(a, b, out);
}
static inline bool rn_mul_u64(uint64_t a, uint64_t b, uint64_t *out) {
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool rn_add_size(size_t a, size_t b, size_t *out) {
    return !__builtin_add_overflow(a, b, out);
}
static inline bool rn_mul_size(size_t a, size_t b, size_t *out) {
    return !__builtin_mul_overflow(a, b, out);
}
// Rounds up to a multiple of `align` (a power of two).
static inline bool rn_align_u64(uint64_t value, uint64_t align, uint64_t *out) {
    if (!rn_add_u64(value, align - 1, out)) return false;
    *out &= ~(align - 1);
    return true;
}
// For values already known to be small.
static inline uint64_t rn_round_up(uint64_t value, uint64_t align) {
    return (value + align - 1) & ~(align - 1);
}
static inline uint64_t rn_round_down(uint64_t value, uint64_t align) {
    return value & ~(align - 1);
}
static inline uint64_t rn_div_up(uint64_t value, uint64_t by) {
    return value / by + (value % by != 0);
}
static inline uint64_t rn_min_u64(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}
static inline uint64_t rn_max_u64(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

#endif
