// codebooks.cuh — one number of ggml's codebook kinds (iq1, iq2, iq3): tensor/ggml_codebooks.c once
// more, an element at a time.
#ifndef RN_CUDA_KERNELS_CODEBOOKS_CUH
#define RN_CUDA_KERNELS_CODEBOOKS_CUH

#include "rows_args.h"

#define RN_CODEBOOK(type, name, size) static __device__ const type rn_codebook_##name[size]
#include "tensor/ggml_codebook_tables.c"
#undef RN_CODEBOOK

// number = unit * scale * q, exact in f32.
struct rn_code {
    int q, scale;
};

__device__ __forceinline__ uint32_t rn_two_at(const uint8_t *from) {
    return from[0] | (uint32_t)from[1] << 8;
}
__device__ __forceinline__ uint32_t rn_four_at(const uint8_t *from) {
    return rn_two_at(from) | rn_two_at(from + 2) << 16;
}

// Number j of an entry, negative where its bit is set.
__device__ __forceinline__ int rn_code_signed(uint64_t entry, uint32_t signs, uint32_t j) {
    int number = (int)(entry >> 8 * j & 0xff);
    return signs >> j & 1 ? -number : number;
}
__device__ __forceinline__ uint32_t rn_code_signs(uint32_t seven) {
    return seven | (__popc(seven) & 1) << 7;
}
__device__ __forceinline__ uint64_t rn_code_join(uint32_t first, uint32_t second) {
    return first | (uint64_t)second << 32;
}

// Element e of a superblock of 256: number j of eight i of part `part`.
__device__ __forceinline__ rn_code rn_code_iq2(uint32_t type, const uint8_t *block, uint32_t e) {
    uint32_t part = e / 32, i = e % 32 / 8, j = e % 8;
    if (type == RN_PLAIN_IQ2_XXS) {
        const uint8_t *indices = block + 2 + part * 8;
        uint32_t rest = rn_four_at(indices + 4), signs = rn_code_signs(rest >> 7 * i & 127);
        return {rn_code_signed(rn_codebook_iq2_xxs[indices[i]], signs, j), (int)(rest >> 28)};
    }
    if (type == RN_PLAIN_IQ2_XS) {
        uint32_t code = rn_two_at(block + 2 + part * 8 + 2 * i), scales = block[66 + part];
        return {rn_code_signed(rn_codebook_iq2_xs[code & 511], rn_code_signs(code >> 9), j),
                (int)(scales >> i / 2 * 4 & 15)};
    }
    uint32_t upper = block[66 + part] >> 2 * i & 3, scales = block[74 + part];
    const uint8_t *lower = block + 2 + part * 4;
    return {rn_code_signed(rn_codebook_iq2_s[lower[i] | upper << 8], lower[32 + i], j),
            (int)(scales >> i / 2 * 4 & 15)};
}

__device__ __forceinline__ rn_code rn_code_iq3(uint32_t type, const uint8_t *block, uint32_t e) {
    uint32_t part = e / 32, i = e % 32 / 8, j = e % 8;
    const uint8_t *lower = block + 2 + part * 8 + 2 * i;
    if (type == RN_PLAIN_IQ3_XXS) {
        uint32_t rest = rn_four_at(block + 66 + part * 4);
        uint64_t entry =
            rn_code_join(rn_codebook_iq3_xxs[lower[0]], rn_codebook_iq3_xxs[lower[1]]);
        return {rn_code_signed(entry, rn_code_signs(rest >> 7 * i & 127), j), (int)(rest >> 28)};
    }
    uint32_t upper = block[66 + part] >> 2 * i;
    uint64_t entry = rn_code_join(rn_codebook_iq3_s[lower[0] | (upper & 1) << 8],
                                  rn_codebook_iq3_s[lower[1] | (upper >> 1 & 1) << 8]);
    return {rn_code_signed(entry, block[74 + part * 4 + i], j),
            block[106 + part / 2] >> part % 2 * 4 & 15};
}

// Eight times a number of -1, 0 or 1, and an eighth more or less.
__device__ __forceinline__ rn_code rn_code_iq1(uint32_t type, const uint8_t *block, uint32_t e) {
    uint32_t part = e / 32, i = e % 32 / 8, j = e % 8, upper, scale;
    const uint8_t *lower = block + (type == RN_PLAIN_IQ1_S ? 2 : 0) + part * 4;
    bool less;
    if (type == RN_PLAIN_IQ1_S) {
        uint32_t rest = rn_two_at(block + 34 + part * 2);
        upper = rest >> 3 * i & 7, scale = rest >> 12 & 7, less = rest >> 15;
    } else {
        uint32_t nibble = block[32 + part * 2 + i / 2] >> i % 2 * 4;
        upper = nibble & 7, less = nibble & 8;
        scale = rn_two_at(block + 48 + part / 2 * 2) >> part % 2 * 6 >> i / 2 * 3 & 7;
    }
    uint64_t entry = rn_codebook_iq1[lower[i] | upper << 8];
    return {(int)(entry >> 8 * j & 0xff) - 8 + (less ? -1 : 1), (int)scale};
}

// The f16 of a superblock; iq1_m has four bits of it in each of four places.
__device__ __forceinline__ uint32_t rn_code_scale(uint32_t type, const uint8_t *block) {
    uint32_t scale = 0;
    if (type != RN_PLAIN_IQ1_M) return rn_two_at(block);
    for (uint32_t i = 0; i < 4; i++)
        scale |= (uint32_t)(block[49 + 2 * i] >> 4) << 4 * i;
    return scale;
}

// Once a kernel, and not once a load.
__device__ __noinline__ float rn_codebook_at(uint32_t type, const uint8_t *data, uint64_t i) {
    uint32_t bytes = type == RN_PLAIN_IQ1_S     ? 50
                     : type == RN_PLAIN_IQ1_M   ? 56
                     : type == RN_PLAIN_IQ2_XXS ? 66
                     : type == RN_PLAIN_IQ2_XS  ? 74
                     : type == RN_PLAIN_IQ2_S   ? 82
                     : type == RN_PLAIN_IQ3_XXS ? 98
                                                : 110;
    const uint8_t *block = data + i / 256 * bytes;
    uint32_t e = i % 256;
    bool is_one = type == RN_PLAIN_IQ1_S || type == RN_PLAIN_IQ1_M;
    bool is_three = type == RN_PLAIN_IQ3_XXS || type == RN_PLAIN_IQ3_S;
    rn_code code = is_one     ? rn_code_iq1(type, block, e)
                   : is_three ? rn_code_iq3(type, block, e)
                              : rn_code_iq2(type, block, e);
    float unit = type == RN_PLAIN_IQ3_S ? 1.0f : type == RN_PLAIN_IQ3_XXS ? 0.25f : 0.125f;
    unit = __fmul_rn(__half2float(__ushort_as_half((uint16_t)rn_code_scale(type, block))), unit);
    return __fmul_rn(__fmul_rn(unit, (float)(2 * code.scale + 1)), (float)code.q);
}

#endif
