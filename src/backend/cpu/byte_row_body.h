// byte_row_body.h — what becomes of a tile's sums, and rows of A on their way to it: loops for the
// compiler to make vectors of, once a level. BYTE(name) is the level's name for a function.
#include "backend/cpu/byte_tile.h"

#include <string.h>

static void BYTE(finish)(const rn_byte_finish *f, const uint32_t *restrict sums) {
    const uint32_t a_zero = f->a_zero, rest = f->row_sum - f->k * a_zero;
    const uint32_t *restrict columns = f->columns, *restrict zero = f->b_zero;
    const float *restrict scale = f->scale, *restrict bias = f->bias;
    int32_t *restrict whole = f->y;
    float *restrict y = f->y;
    if (!scale)
        for (uint32_t j = 0; j < f->count; j++)
            whole[j] = (int32_t)(sums[j] - a_zero * columns[j] - zero[j] * rest);
    else if (!bias)
        for (uint32_t j = 0; j < f->count; j++)
            y[j] = (float)(int32_t)(sums[j] - a_zero * columns[j] - zero[j] * rest) * scale[j];
    else
        for (uint32_t j = 0; j < f->count; j++)
            y[j] = (float)(int32_t)(sums[j] - a_zero * columns[j] - zero[j] * rest) * scale[j] +
                   bias[j];
}

static uint32_t BYTE(pack_row)(const uint8_t *restrict from, size_t k, uint8_t flip,
                               uint8_t *restrict to, size_t depth) {
    uint32_t sum = 0;
    for (size_t i = 0; i < k; i++) {
        to[i] = from[i] ^ flip;
        sum += to[i];
    }
    memset(to + k, 0, depth - k);
    return sum;
}
