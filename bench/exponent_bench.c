// exponent_bench.c — whether weights of 16 bits would stream faster with coded exponents: how few
// bits the exponents of a model's matrices carry, what a simple lossless code makes of them, and
// how fast one core undoes it.
//
//     exponent_bench MODEL...      files or folders; f32 is taken as the bf16 that is nearest
//
// The code: of bf16 the sign and mantissa of 32 numbers as bytes, then 4 bits for each exponent,
// which say one of the 15 most frequent; 15 says that it follows apart. Times are the thread's own,
// the best of twelve.
#include <ration/checkpoint.h>

#include <stdio.h>

#if defined(__x86_64__)
#include <immintrin.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { GROUP = 32, GROUP_BYTES = 48, ESCAPE = 15, ROUNDS = 12, MOST_VALUES = 64 << 20 };

typedef struct coded {
    uint8_t table[16], *groups, *apart; // (values / GROUP, GROUP_BYTES)
    size_t apart_count;
} coded;

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void must(rn_status status) {
    if (status == RN_OK) return;
    fprintf(stderr, "%s\n", rn_last_error()->message);
    exit(1);
}

static void *allocate(size_t bytes) {
    void *block = malloc(bytes);
    if (!block) exit(1);
    return block;
}

// bf16 of all matrices, up to MOST_VALUES.
static size_t read_values(const char *path, uint16_t *out) {
    rn_checkpoint *c;
    size_t count = 0;
    must(rn_checkpoint_open(path, &c));
    for (size_t i = 0; i < rn_checkpoint_count(c); i++) {
        const rn_tensor_info *t = rn_checkpoint_tensor(c, i);
        const rn_dtype_info *info = rn_dtype_get(t->dtype);
        bool floats = info->is_float && info->block_elements == 1 && info->block_bytes >= 2;
        if (t->rank < 2 || !floats || t->elements > MOST_VALUES - count) continue;
        must(rn_checkpoint_load(c, t, RN_DTYPE_BF16, out + count, t->elements * 2));
        count += t->elements;
    }
    rn_checkpoint_close(c);
    return count - count % GROUP;
}

// Bits that an exponent carries.
static double entropy(const uint64_t counts[256], size_t total) {
    double bits = 0;
    for (int e = 0; e < 256; e++) {
        double share = (double)counts[e] / (double)total;
        if (counts[e]) bits -= share * log2(share);
    }
    return bits;
}

static void encode(const uint16_t *x, size_t count, const uint64_t counts[256], coded *out) {
    uint8_t code[256];
    memset(code, ESCAPE, sizeof code);
    for (uint8_t k = 0; k < ESCAPE; k++) {
        int best = -1;
        for (int e = 0; e < 256; e++)
            if (code[e] == ESCAPE && (best < 0 || counts[e] > counts[best])) best = e;
        out->table[k] = (uint8_t)best;
        code[best] = k;
    }
    out->apart_count = 0;
    for (size_t i = 0; i < count; i += GROUP) {
        uint8_t *group = out->groups + i / GROUP * GROUP_BYTES;
        memset(group + GROUP, 0, GROUP / 2);
        for (size_t k = 0; k < GROUP; k++) {
            uint16_t v = x[i + k];
            uint8_t e = v >> 7 & 255;
            group[k] = (uint8_t)((v >> 8 & 0x80) | (v & 0x7f));
            group[GROUP + k % 16] |= (uint8_t)(code[e] << (k < 16 ? 0 : 4));
            if (code[e] == ESCAPE) out->apart[out->apart_count++] = e;
        }
    }
}

__attribute__((target("avx2"))) static __m256i join(__m128i low, __m128i exponents) {
    __m256i s = _mm256_cvtepu8_epi16(low), e = _mm256_cvtepu8_epi16(exponents);
    __m256i sign = _mm256_slli_epi16(_mm256_and_si256(s, _mm256_set1_epi16(0x80)), 8);
    __m256i mantissa = _mm256_and_si256(s, _mm256_set1_epi16(0x7f));
    return _mm256_or_si256(_mm256_or_si256(sign, mantissa), _mm256_slli_epi16(e, 7));
}

__attribute__((target("avx2"))) static void decode(const coded *in, size_t count, uint16_t *out) {
    __m128i table = _mm_loadu_si128((const void *)in->table), low = _mm_set1_epi8(15);
    const uint8_t *apart = in->apart, *group = in->groups;
    for (size_t i = 0; i < count; i += GROUP, group += GROUP_BYTES) {
        __m128i codes = _mm_loadu_si128((const void *)(group + GROUP));
        __m128i first = _mm_and_si128(codes, low);
        __m128i second = _mm_and_si128(_mm_srli_epi16(codes, 4), low);
        uint32_t missing = (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(first, low)) |
                           (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(second, low)) << 16;
        __m128i s0 = _mm_loadu_si128((const void *)group);
        __m128i s1 = _mm_loadu_si128((const void *)(group + 16));
        _mm256_storeu_si256((void *)(out + i), join(s0, _mm_shuffle_epi8(table, first)));
        _mm256_storeu_si256((void *)(out + i + 16), join(s1, _mm_shuffle_epi8(table, second)));
        for (; missing; missing &= missing - 1) {
            uint16_t *v = out + i + __builtin_ctz(missing);
            *v = (uint16_t)((*v & 0x807f) | *apart++ << 7);
        }
    }
}

static void measure(const char *path, uint16_t *x, uint16_t *y, coded *c) {
    uint64_t counts[256] = {0};
    double decoding = 1e9, copying = 1e9;
    size_t count = read_values(path, x), bytes = count * 2;
    if (count == 0) {
        printf("%s: no matrices of floats\n", path);
        return;
    }
    for (size_t i = 0; i < count; i++)
        counts[x[i] >> 7 & 255]++;
    encode(x, count, counts, c);
    for (int i = 0; i < ROUNDS; i++) {
        double start = seconds();
        decode(c, count, y);
        double end = seconds();
        decoding = fmin(decoding, end - start);
        if (memcmp(x, y, bytes) != 0) exit(1);
        start = seconds();
        memcpy(y, x, bytes);
        copying = fmin(copying, seconds() - start);
    }
    double bits = entropy(counts, count);
    double coded_bytes = (double)(count / GROUP * GROUP_BYTES + c->apart_count);
    printf("%s: %.1f M numbers, exponents carry %.2f bits (at best %.3f of bf16); coded %.4f, "
           "%.1f GB/s come out of a thread (memcpy %.1f)\n",
           path, (double)count / 1e6, bits, (8 + bits) / 16, coded_bytes / (double)bytes,
           (double)bytes / decoding / 1e9, (double)bytes / copying / 1e9);
}

int main(int argc, char **argv) {
    size_t bytes = (size_t)MOST_VALUES * 2;
    uint16_t *x = allocate(bytes), *y = allocate(bytes);
    coded c = {.groups = allocate(MOST_VALUES / GROUP * (size_t)GROUP_BYTES),
               .apart = allocate(MOST_VALUES)};
    if (!__builtin_cpu_supports("avx2")) {
        printf("this CPU has no AVX2\n");
        return 1;
    }
    for (int i = 1; i < argc; i++)
        measure(argv[i], x, y, &c);
    free(c.apart);
    free(c.groups);
    free(y);
    free(x);
    return argc > 1 ? 0 : 2;
}

#else
int main(void) {
    printf("exponent_bench is for CPUs with AVX2\n");
    return 0;
}
#endif
