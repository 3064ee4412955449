// conform_compare.c — see conform_compare.h.
#include "conform_compare.h"

#include "support.h"

#include <math.h>

static double mean_size(const float *x, uint64_t n) {
    double sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += fabs((double)x[i]);
    return sum / (double)n;
}

static bool floats_near(const float *must, const float *is, uint64_t n, conform_fact near,
                        conform_why *why) {
    double mean = mean_size(must, n);
    for (uint64_t i = 0; i < n; i++) {
        double error = fabs((double)is[i] - (double)must[i]);
        double size = fabs((double)must[i]) + mean;
        if (error <= (double)near.tolerance * size + (double)near.absolute) continue;
        snprintf(why->text, sizeof why->text, "element %llu of %llu is %.9g, not %.9g",
                 (unsigned long long)i, (unsigned long long)n, (double)is[i], (double)must[i]);
        return false;
    }
    return true;
}

static bool bytes_equal(const uint8_t *must, const uint8_t *is, uint64_t bytes, conform_why *why) {
    for (uint64_t i = 0; i < bytes; i++)
        if (must[i] != is[i]) {
            snprintf(why->text, sizeof why->text, "byte %llu of %llu is %02x, not %02x",
                     (unsigned long long)i, (unsigned long long)bytes, is[i], must[i]);
            return false;
        }
    return true;
}

// Widens both, which is exact for every float type.
static bool narrow_near(const rn_tensor *must, const void *is, conform_fact near,
                        conform_why *why) {
    uint64_t n = rn_tensor_elements(must);
    float *wide = malloc(2 * n * sizeof *wide);
    assert_ok(rn_dtype_to_f32(must->dtype, must->data, wide, n));
    assert_ok(rn_dtype_to_f32(must->dtype, is, wide + n, n));
    bool good = floats_near(wide, wide + n, n, near, why);
    free(wide);
    return good;
}

bool conform_near(const rn_tensor *must, const void *is, conform_fact near, conform_why *why) {
    uint64_t n = rn_tensor_elements(must);
    if (must->dtype == RN_DTYPE_F32 && near.tolerance > 0)
        return floats_near(must->data, is, n, near, why);
    if (near.tolerance > 0 && rn_dtype_get(must->dtype)->is_float)
        return narrow_near(must, is, near, why);
    return bytes_equal(must->data, is, rn_tensor_bytes(must), why);
}
