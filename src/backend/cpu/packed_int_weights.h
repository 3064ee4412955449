// packed_int_weights.h — how the vector kernels of packed_int_vector.h cut weights and scales out
// of a unit of the panels (tensor/panels.h): a case a kind, in the words that the kernels are
// written in. Included by it alone.
//
// Numbers come out as unsigned bytes, the weight + its kind's offset (tensor/kinds.h), four
// neighbouring columns a lane.

// ---- weights ------------------------------------------------------------------------------------

// Word `d` of the lanes of half h.
INLINE vint word(const uint8_t *unit, int d, int h) {
    return iload(unit + 64 * d + h * HALF_BYTES);
}

INLINE vint low_nibbles(vint v) {
    return iand(v, iset(0x0f0f0f0f));
}

INLINE vint high_nibbles(vint v) {
    return iand(ishr(v, 4), iset(0x0f0f0f0f));
}

// Columns 4g .. of the 32 nibbles in four words: low ones first.
INLINE vint nibble(const uint8_t *words, int g, int h) {
    return g < 4 ? low_nibbles(word(words, g, h)) : high_nibbles(word(words, g - 4, h));
}

// + `value` where bit i of the lane's 32 is set, i the column.
INLINE vint add_bits(vint w, vint bits, int g, int value) {
    vint mask = iset((int)(0x08040201u << g % 2 * 4));
    return iadd_where(w, ibyte(bits, g / 2), mask, iset(value * 0x01010101));
}

// 2-bit numbers of a superblock, 32 columns apart in a byte.
INLINE vint pairs(const uint8_t *words, int part, int g, int h) {
    return iand(ishr(word(words, part / 4 * 8 + g, h), part % 4 * 2), iset(0x03030303));
}

INLINE vint weight_q6_k(const uint8_t *unit, int part, int g, int h) {
    int half = part / 4, quarter = part % 4;
    vint low = word(unit, half * 16 + quarter % 2 * 8 + g, h);
    vint high = word(unit, 32 + half * 8 + g, h);
    low = quarter < 2 ? low_nibbles(low) : high_nibbles(low);
    if (quarter < 2)
        high = ishl(high, 4 - 2 * quarter);
    else if (quarter == 3)
        high = ishr(high, 2);
    return ior_and(low, high, iset(0x30303030));
}

// Fifth bits lie in front of the nibbles, those of part p in bit p.
INLINE vint weight_q5_k(const uint8_t *unit, int part, int g, int h) {
    vint low = word(unit, 12 + part / 2 * 8 + g, h), high = word(unit, 4 + g, h);
    low = part % 2 ? high_nibbles(low) : low_nibbles(low);
    if (!__builtin_constant_p(part)) // no branch
        high = ishl(ishr(high, part), 4);
    else
        high = part < 4 ? ishl(high, 4 - part) : ishr(high, part - 4);
    return ior_and(low, high, iset(0x10101010));
}

// Third bits in front, in the same way.
INLINE vint weight_q3_k(const uint8_t *unit, int part, int g, int h) {
    vint high = word(unit, g, h);
    if (!__builtin_constant_p(part))
        high = ishl(ishr(high, part), 2);
    else
        high = part < 2 ? ishl(high, 2 - part) : ishr(high, part - 2);
    return ior_and(pairs(unit + 8 * 64, part, g, h), high, iset(0x04040404));
}

// Parts of 16 columns in two words: low nibbles are the first eight columns.
INLINE vint weight_nvfp4(const uint8_t *unit, int part, int g, int h) {
    vint both = word(unit, 1 + part * 4 + g / 4 * 2 + g % 2, h);
    return g % 4 < 2 ? low_nibbles(both) : high_nibbles(both);
}

// Four neighbouring columns lie in one byte b; b, b << 6, b << 12 and b << 18 have them in bytes.
INLINE vint weight_q2_0(const uint8_t *unit, int part, int g, int h) {
    vint byte = iand(ishr(word(unit + 32, part * 2 + g / 4, h), g % 4 * 8), iset(0xff));
    vint low = ior(byte, ishl(byte, 6)), high = ior(ishl(byte, 12), ishl(byte, 18));
    return iand(ior(low, high), iset(0x03030303));
}

// A byte is a fraction of 256; its next ternary digit is the whole part of three times that.
INLINE vint weight_tq1_0(const uint8_t *unit, int part, int g, int h) {
    int e = part * 32 + g * 4, at = g, digit = part;
    if (part >= 5) {
        at = e < 240 ? 8 + e % 16 / 4 : 12;
        digit = e < 240 ? (e - 160) / 16 : (e - 240) / 4;
    }
    vint rest = word(unit, at, h);
    UNROLL
    for (int i = 0; i < digit; i++)
        rest = iadd_bytes(rest, iadd_bytes(rest, rest));
    return iadd_above(iadd_above(izero(), rest, 86), rest, 171);
}

// iq4's values + 128, fp4's + 12.
static const uint8_t iq4_table[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                      129, 141, 153, 166, 181, 197, 217, 241};
static const uint8_t fp4_table[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

// Columns 4g .. 4g + 3 of block `part` of a unit.
INLINE vint weight(rn_int_form form, const uint8_t *unit, int part, int g, int h) {
    switch (form) {
    case RN_INT_Q8_0:
        return word(unit + 32, g, h);
    case RN_INT_Q4_0:
        return nibble(unit + 32, g, h);
    case RN_INT_Q4_1:
        return nibble(unit + 64, g, h);
    case RN_INT_Q5_0:
        return add_bits(nibble(unit + 96, g, h), word(unit + 32, 0, h), g, 16);
    case RN_INT_Q5_1:
        return add_bits(nibble(unit + 128, g, h), word(unit, 1, h), g, 16);
    case RN_INT_IQ4_NL:
        return ilook_up(iq4_table, nibble(unit + 32, g, h));
    case RN_INT_IQ4_XS:
        return ilook_up(iq4_table, nibble(unit + 64 * (2 + 4 * part), g, h));
    case RN_INT_MXFP4:
        return ilook_up(fp4_table, nibble(unit + 16, g, h));
    case RN_INT_NVFP4:
        return ilook_up(fp4_table, weight_nvfp4(unit, part, g, h));
    case RN_INT_Q1_0:
        return add_bits(izero(), word(unit + 32, part, h), g, 2);
    case RN_INT_Q2_0:
        return weight_q2_0(unit, part, g, h);
    case RN_INT_Q2_K:
        return pairs(unit + 4 * 64, part, g, h);
    case RN_INT_Q3_K:
        return weight_q3_k(unit, part, g, h);
    case RN_INT_Q4_K:
        return part % 2 ? high_nibbles(word(unit, 4 + part / 2 * 8 + g, h))
                        : low_nibbles(word(unit, 4 + part / 2 * 8 + g, h));
    case RN_INT_Q5_K:
        return weight_q5_k(unit, part, g, h);
    case RN_INT_Q6_K:
        return weight_q6_k(unit, part, g, h);
    case RN_INT_TQ1_0:
        return weight_tq1_0(unit, part, g, h);
    case RN_INT_TQ2_0:
        return pairs(unit, part, g, h);
    default:
        return word(unit, g, h);
    }
}

// ---- scales -------------------------------------------------------------------------------------

// Byte `at` of each lane, unsigned and signed.
INLINE vint byte_of(vint v, int at) {
    return iand(ishr(v, 8 * at), iset(0xff));
}

INLINE vfloat byte_float(vint v, int at) {
    return vconvert(byte_of(v, at));
}

INLINE vfloat signed_byte_float(vint v, int at) {
    return vconvert(isar(ishl(v, 24 - 8 * at), 24));
}

// Two f16 in a word.
INLINE vfloat scale_of_two(vint both, int which) {
    return which ? vload_high_half(both) : vload_low_half(both);
}

// q4_k, q5_k: the 6-bit scales, or with mins the mins, of the four parts around `part`, a byte
// each.
INLINE vint six_bits(const uint8_t *unit, int part, bool mins, int h) {
    vint first = word(unit, mins ? 2 : 1, h), third = word(unit, 3, h);
    if (part < 4) return iand(first, iset(0x3f3f3f3f));
    vint low = mins ? high_nibbles(third) : low_nibbles(third);
    return ior_and(low, ishr(first, 2), iset(0x30303030));
}

INLINE vfloat scale_q4_k(const uint8_t *unit, int part, int which, int h) {
    vfloat super = scale_of_two(word(unit, 0, h), which);
    return vmul(super, byte_float(six_bits(unit, part, which == 1, h), part % 4));
}

INLINE vfloat scale_q6_k(const uint8_t *unit, int part, int which, int h) {
    if (which == 0) return vload_half(unit + 3328 + h * HALF_BYTES / 2);
    return signed_byte_float(word(unit, 48 + part / 2, h), part % 2 * 2 + which - 1);
}

// Sixteen scales of 6 bits, + 32: nibbles in two words, upper bits in the third.
INLINE vfloat scale_q3_k(const uint8_t *unit, int part, int which, int h) {
    if (which == 0) return vload_half(unit + 1728 + h * HALF_BYTES / 2);
    int k = part * 2 + which - 1;
    vint low = ishr(word(unit, 24 + k % 8 / 4, h), k % 4 * 8 + k / 8 * 4);
    vint high = ishr(word(unit, 26, h), k % 4 * 8 + k / 4 * 2);
    vint six = ior_and(iand(low, iset(15)), ishl(high, 4), iset(0x30));
    return vconvert(iadd(six, iset(-32)));
}

// A byte a part of 16: its scale and, in the high nibble, its min. 0 and 3 are the superblock's.
INLINE vint scale_int_q2_k(const uint8_t *unit, int k, int h) {
    return iand(ishr(word(unit, k / 4, h), k % 4 * 8), iset(15));
}

INLINE vfloat scale_q2_k(const uint8_t *unit, int part, int which, int h) {
    if (which % 3 == 0) return scale_of_two(word(unit, 20, h), which / 3);
    return vconvert(scale_int_q2_k(unit, part * 2 + which - 1, h));
}

INLINE vfloat scale_iq4_xs(const uint8_t *unit, int part, int h) {
    vint first = word(unit, 0, h), low = iand(ishr(word(unit, 1, h), part * 4), iset(15));
    vint six = ior_and(low, ishl(ishr(first, 16 + part * 2), 4), iset(0x30));
    return vmul(vload_low_half(first), vconvert(iadd(six, iset(-32))));
}

// 2^(e - 128), also where that is below the least normal number (e < 2).
INLINE vfloat scale_mxfp4(const uint8_t *unit, int h) {
    vint e = iload_bytes(unit + h * LANES);
    return vfrom(imax(ishl(iadd(e, iset(-1)), 23), ishl(iadd(e, iset(1)), 21)));
}

// e4m3 is a float with four bits of exponent: moved into place, then made 2^119 times as large.
INLINE vfloat scale_nvfp4(const uint8_t *unit, int part, int which, int h) {
    if (which == 0) return vset(1);
    vint byte = byte_of(word(unit, 0, h), part * 2 + which - 1);
    vint bits = ishl(iand(byte, iset(0x7f)), 20);
    return vmul(vfrom(izero_where(bits, byte, 0x7f)), vset(0x1p119f));
}

// Scale `which` of block `part`.
INLINE vfloat scale(rn_int_form form, const uint8_t *unit, int part, int which, int h) {
    switch (form) {
    case RN_INT_Q4_1:
    case RN_INT_Q5_1: { // what is added is subtracted as a negative number
        vfloat number = scale_of_two(word(unit, 0, h), which);
        return which ? vmul(number, vset(-1)) : number;
    }
    case RN_INT_Q2_K:
        return scale_q2_k(unit, part, which, h);
    case RN_INT_Q3_K:
        return scale_q3_k(unit, part, which, h);
    case RN_INT_Q4_K:
    case RN_INT_Q5_K:
        return scale_q4_k(unit, part, which, h);
    case RN_INT_Q6_K:
        return scale_q6_k(unit, part, which, h);
    case RN_INT_IQ4_XS:
        return scale_iq4_xs(unit, part, h);
    case RN_INT_MXFP4:
        return scale_mxfp4(unit, h);
    case RN_INT_NVFP4:
        return scale_nvfp4(unit, part, which, h);
    case RN_INT_TQ1_0:
        return vload_half(unit + 832 + h * HALF_BYTES / 2);
    case RN_INT_TQ2_0:
        return vload_half(unit + 1024 + h * HALF_BYTES / 2);
    default:
        return vload_half(unit + h * HALF_BYTES / 2);
    }
}

// q2_k: the mins of both parts of 16, as two numbers of 16 bits.
INLINE vint mins(const uint8_t *unit, int part, int h) {
    vint both = ishr(word(unit, part / 2, h), part % 2 * 16);
    return ior_and(iand(ishr(both, 4), iset(15)), ishl(both, 4), iset(15 << 16));
}
