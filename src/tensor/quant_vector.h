// quant_vector.h — the vector versions of quant_kernels.h, in the words of vector_avx2.h or
// vector_avx512.h. The including file has included one of those, and defines QUANT_TABLE, the
// table's name.
//
// A row, group or block whose scale is not an ordinary positive number (all zero, or with NaN or
// infinity in it) is rare and goes to the portable kernel; so the loops here never meet NaN and
// need no picks for it.
#include "tensor/quant_kernels.h"

// The elements that fill whole vectors.
static uint64_t whole(uint64_t count) {
    return count & ~(uint64_t)(LANES - 1);
}

static bool is_finite_bits(uint32_t absmax_bits) {
    return absmax_bits < RN_F32_INF_BITS;
}

static uint32_t absmax_bits(const float *values, uint64_t count) {
    uint64_t end = whole(count);
    vint top = iset(0);
    for (uint64_t i = 0; i < end; i += LANES)
        top = imax(top, iand(ifrom(vload(values + i)), iset(0x7fffffff)));
    uint32_t vectors = (uint32_t)itop(top), rest = rn_absmax_bits(values + end, count - end);
    return vectors > rest ? vectors : rest;
}

// ---- int8 ---------------------------------------------------------------------------------------

static void int8_row(const float *row, uint64_t cols, float scale, int8_t *out_q) {
    uint64_t end = whole(cols);
    vfloat by = vset(scale), low = vset(-128), high = vset(127);
    for (uint64_t i = 0; i < end; i += LANES)
        istore_8(out_q + i, iround(vmin(vmax(vdiv(vload(row + i), by), low), high)));
    for (uint64_t i = end; i < cols; i++)
        out_q[i] = (int8_t)rn_round_within(row[i] / scale, -128, 127);
}

static void int8_rows(const float *rows, uint64_t row_count, uint64_t cols, int8_t *out_q,
                      float *out_scale) {
    for (uint64_t r = 0; r < row_count; r++, rows += cols, out_q += cols) {
        uint32_t bits = absmax_bits(rows, cols);
        out_scale[r] = rn_float_from_bits(bits) / 127.0f;
        if (is_finite_bits(bits) && out_scale[r] > 0)
            int8_row(rows, cols, out_scale[r], out_q);
        else
            rn_quant_portable.int8_rows(rows, 1, cols, out_q, &out_scale[r]);
    }
}

static void int8_restore(const int8_t *q, const float *scale, uint64_t row_count, uint64_t cols,
                         float *out_rows) {
    uint64_t end = whole(cols);
    for (uint64_t r = 0; r < row_count; r++, q += cols, out_rows += cols) {
        for (uint64_t i = 0; i < end; i += LANES)
            vstore(out_rows + i, vmul(vset(scale[r]), vconvert(iload_i8(q + i))));
        for (uint64_t i = end; i < cols; i++)
            out_rows[i] = scale[r] * (float)q[i];
    }
}

// ---- int4 ---------------------------------------------------------------------------------------

static vint order_key(vint bits) {
    return ixor(bits, iand(isar(bits, 31), iset(0x7fffffff)));
}

// The ends of a group, NaN included: -NaN is the lowest value, NaN the highest.
static void find_range(const float *values, uint64_t count, float *out_low, float *out_high) {
    uint64_t end = whole(count);
    vint bottoms = iset(INT32_MAX), tops = iset(INT32_MIN);
    for (uint64_t i = 0; i < end; i += LANES) {
        vint key = order_key(ifrom(vload(values + i)));
        bottoms = imin(bottoms, key);
        tops = imax(tops, key);
    }
    int32_t low = ibottom(bottoms), high = itop(tops);
    for (uint64_t i = end; i < count; i++) {
        int32_t key = rn_order_key((int32_t)rn_float_bits(values[i]));
        low = key < low ? key : low;
        high = key > high ? key : high;
    }
    *out_low = rn_float_from_bits((uint32_t)rn_order_key(low));
    *out_high = rn_float_from_bits((uint32_t)rn_order_key(high));
}

static void int4_group(const float *values, uint64_t group, float scale, float shift,
                       uint8_t *out_q) {
    uint64_t end = whole(group);
    vfloat by = vset(scale), plus = vset(shift), low = vset(0), high = vset(15);
    for (uint64_t i = 0; i < end; i += LANES) {
        vfloat steps = vdiv(vadd(vload(values + i), plus), by);
        istore_8(out_q + i, iround(vmin(vmax(steps, low), high)));
    }
    for (uint64_t i = end; i < group; i++)
        out_q[i] = (uint8_t)rn_round_within((values[i] + shift) / scale, 0, 15);
}

static void int4_groups(const float *groups, uint64_t group_count, uint64_t group, uint8_t *out_q,
                        float *out_scale, float *out_shift) {
    for (uint64_t g = 0; g < group_count; g++, groups += group, out_q += group) {
        float low, high;
        find_range(groups, group, &low, &high);
        float scale = (high - low) / 15.0f;
        out_scale[g] = scale;
        out_shift[g] = -low;
        if (scale > 0 && scale < INFINITY)
            int4_group(groups, group, scale, -low, out_q);
        else
            rn_quant_portable.int4_groups(groups, 1, group, out_q, &out_scale[g], &out_shift[g]);
    }
}

static void int4_restore(const uint8_t *q, const float *scale, const float *shift,
                         uint64_t group_count, uint64_t group, float *out_groups) {
    uint64_t end = whole(group);
    for (uint64_t g = 0; g < group_count; g++, q += group, out_groups += group) {
        vfloat by = vset(scale[g]), minus = vset(shift[g]);
        for (uint64_t i = 0; i < end; i += LANES)
            vstore(out_groups + i, vsub(vmul(by, vconvert(iload_u8(q + i))), minus));
        for (uint64_t i = end; i < group; i++)
            out_groups[i] = scale[g] * (float)q[i] - shift[g];
    }
}

// ---- nf4 ----------------------------------------------------------------------------------------

// A binary search among the 15 boundaries, all lanes at once. NaN is beyond every boundary.
static vint nf4_index(vfloat scaled, vtable bounds) {
    vint index = iadd_where(mnot_less_equal(scaled, vset(rn_nf4_bounds[7])), iset(0), iset(8));
    vfloat bound = table_get(bounds, iadd(index, iset(3)));
    index = iadd_where(mnot_less_equal(scaled, bound), index, iset(4));
    bound = table_get(bounds, iadd(index, iset(1)));
    index = iadd_where(mnot_less_equal(scaled, bound), index, iset(2));
    bound = table_get(bounds, index);
    return iadd_where(mnot_less_equal(scaled, bound), index, iset(1));
}

static void nf4_blocks(const float *values, uint64_t blocks, uint8_t *out_packed,
                       float *out_absmax) {
    vtable bounds = table_load(rn_nf4_bounds);
    for (uint64_t b = 0; b < blocks; b++, values += RN_NF4_BLOCK, out_packed += RN_NF4_BLOCK / 2) {
        float absmax = rn_float_from_bits(absmax_bits(values, RN_NF4_BLOCK));
        vfloat inverse = vset(1.0f / (absmax < 1e-38f ? 1e-38f : absmax));
        for (int i = 0; i < RN_NF4_BLOCK; i += LANES)
            istore_nibbles(out_packed + i / 2, nf4_index(vmul(vload(values + i), inverse), bounds));
        out_absmax[b] = absmax;
    }
}

static void nf4_restore(const uint8_t *packed, const float *absmax, uint64_t blocks,
                        float *out_values) {
    vtable table = table_load(rn_nf4_table);
    for (uint64_t b = 0; b < blocks; b++, packed += RN_NF4_BLOCK / 2, out_values += RN_NF4_BLOCK)
        for (int i = 0; i < RN_NF4_BLOCK; i += LANES) {
            vint index = iload_nibbles(packed + i / 2);
            vstore(out_values + i, vmul(table_get(table, index), vset(absmax[b])));
        }
}

// ---- ggml's q8_0 and q4_0 -----------------------------------------------------------------------

// As roundf: see round_away in quant_portable.c.
static vint round_away(vfloat a) {
    vint sign = iand(ifrom(a), iset(INT32_MIN));
    return itrunc(vadd(a, vfrom(ior(sign, ifrom(vset(0x1.fffffep-2f))))));
}

static void narrow_q8_0(const float *source, void *target, uint64_t blocks) {
    uint8_t *block = target;
    for (; blocks > 0; blocks--, source += 32, block += 34) {
        uint32_t bits = absmax_bits(source, 32);
        float scale = rn_float_from_bits(bits) / 127.0f, inverse = 1.0f / scale;
        if (!is_finite_bits(bits) || !(inverse < INFINITY)) {
            rn_quant_portable.narrow_q8_0(source, block, 1);
            continue;
        }
        rn_store_u16(block, half_bits(scale));
        for (int i = 0; i < 32; i += LANES)
            istore_8(block + 2 + i, round_away(vmul(vload(source + i), vset(inverse))));
    }
}

static void widen_q8_0(const void *source, float *target, uint64_t blocks) {
    const uint8_t *block = source;
    for (; blocks > 0; blocks--, block += 34, target += 32) {
        vfloat scale = vset(half_float(rn_load_u16(block)));
        for (int i = 0; i < 32; i += LANES)
            vstore(target + i, vmul(vconvert(iload_i8(block + 2 + i)), scale));
    }
}

// Where the first value of that size stands; there is one.
static int find_first(const float *values, uint32_t size_bits) {
    vfloat size = vfrom(iset((int)size_bits));
    unsigned found = 0;
    for (int i = 0; i < 32; i += LANES) {
        vint value = iand(ifrom(vload(values + i)), iset(0x7fffffff));
        found |= mbits(mequal(vfrom(value), size)) << i;
    }
    return __builtin_ctz(found);
}

static vint q4_0_index(vfloat scaled) {
    return imin(itrunc(vadd(scaled, vset(8.5f))), iset(15));
}

static void narrow_q4_0(const float *source, void *target, uint64_t blocks) {
    uint8_t *block = target;
    for (; blocks > 0; blocks--, source += 32, block += 18) {
        uint32_t bits = absmax_bits(source, 32);
        float peak = is_finite_bits(bits) ? source[find_first(source, bits)] : 0;
        float scale = peak / -8.0f, inverse = 1.0f / scale;
        if (!(fabsf(inverse) < INFINITY)) {
            rn_quant_portable.narrow_q4_0(source, block, 1);
            continue;
        }
        rn_store_u16(block, half_bits(scale));
        for (int i = 0; i < 16; i += LANES) {
            vint low = q4_0_index(vmul(vload(source + i), vset(inverse)));
            vint high = q4_0_index(vmul(vload(source + i + 16), vset(inverse)));
            istore_8(block + 2 + i, ior(low, ishl(high, 4)));
        }
    }
}

static void widen_q4_0(const void *source, float *target, uint64_t blocks) {
    const uint8_t *block = source;
    for (; blocks > 0; blocks--, block += 18, target += 32) {
        vfloat scale = vset(half_float(rn_load_u16(block)));
        for (int i = 0; i < 16; i += LANES) {
            vint pairs = iload_u8(block + 2 + i);
            vint low = isub(iand(pairs, iset(15)), iset(8)), high = isub(ishr(pairs, 4), iset(8));
            vstore(target + i, vmul(vconvert(low), scale));
            vstore(target + i + 16, vmul(vconvert(high), scale));
        }
    }
}

// ---- error --------------------------------------------------------------------------------------

static void error_add(const float *reference, const float *restored, uint64_t count,
                      rn_error_lanes *lanes) {
    uint64_t end = whole(count);
    vsum abs = sum_zero(), square = sum_zero(), square_ref = sum_zero();
    vfloat top = vset(lanes->max);
    for (uint64_t i = 0; i < end; i += LANES) {
        vfloat from = vload(reference + i), gap = vsub(from, vload(restored + i));
        vfloat size = vfrom(iand(ifrom(gap), iset(0x7fffffff)));
        abs = sum_add(abs, size);
        square = sum_add_square(square, size);
        square_ref = sum_add_square(square_ref, from);
        top = vmax(size, top);
    }
    sum_store(lanes->abs, abs);
    sum_store(lanes->square, square);
    sum_store(lanes->square_ref, square_ref);
    lanes->max = vtop(top);
    rn_quant_portable.error_add(reference + end, restored + end, count - end, lanes);
}

const rn_quant_kernels QUANT_TABLE = {
    .int8_rows = int8_rows,
    .int8_restore = int8_restore,
    .int4_groups = int4_groups,
    .int4_restore = int4_restore,
    .nf4_blocks = nf4_blocks,
    .nf4_restore = nf4_restore,
    .error_add = error_add,
    .widen_q8_0 = widen_q8_0,
    .widen_q4_0 = widen_q4_0,
    .narrow_q8_0 = narrow_q8_0,
    .narrow_q4_0 = narrow_q4_0,
};
