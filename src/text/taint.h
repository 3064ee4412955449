// taint.h — which bytes of a text a stranger wrote: one bit a byte, set for those of a message.
//
// A chat template cuts, joins and deletes; a normaliser rewrites. What comes out may spell a
// special token ("<|im_<image>end|>" without "<image>") that none of the texts that went in
// spelled. So the question who wrote it is asked of the text that is tokenised, byte by byte: the
// template engine carries these bits along (template_run.h), and a special token is found only
// where the template wrote all of its bytes (added_tokens.h).
#ifndef RN_TEXT_TAINT_H
#define RN_TEXT_TAINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Borrowed: byte i of a text is tainted where bit `first + i` is set. Without bits nothing is.
typedef struct rn_taint {
    const uint8_t *bits;
    size_t first;
} rn_taint;

static inline size_t rn_taint_bytes(size_t text_bytes) {
    return text_bytes / 8 + 1;
}

static inline bool rn_taint_at(rn_taint taint, size_t index) {
    size_t bit = taint.first + index;
    return taint.bits && taint.bits[bit / 8] >> bit % 8 & 1;
}

// The taint of the text that begins `offset` bytes into this one.
static inline rn_taint rn_taint_from(rn_taint taint, size_t offset) {
    return (rn_taint){taint.bits, taint.bits ? taint.first + offset : 0};
}

// Where the run that holds byte `at` ends: bytes that are alike, up to `end`.
static inline size_t rn_taint_run(rn_taint taint, size_t at, size_t end) {
    if (!taint.bits) return end;
    bool is = rn_taint_at(taint, at);
    while (at < end && rn_taint_at(taint, at) == is)
        at++;
    return at;
}

// Whether any byte of [begin, end) is tainted.
static inline bool rn_taint_any(rn_taint taint, size_t begin, size_t end) {
    return begin < end && (rn_taint_at(taint, begin) || rn_taint_run(taint, begin, end) < end);
}

static inline void rn_taint_put(uint8_t *bits, size_t at, bool tainted) {
    uint8_t bit = (uint8_t)(1u << at % 8);
    bits[at / 8] = (uint8_t)(tainted ? bits[at / 8] | bit : bits[at / 8] & ~bit);
}

// Bits [at, at + count) become those of `taint`.
static inline void rn_taint_copy(uint8_t *bits, size_t at, rn_taint taint, size_t count) {
    for (size_t i = 0; i < count; i++)
        rn_taint_put(bits, at + i, rn_taint_at(taint, i));
}

#endif
