// fake_lt.c — cuBLASLt over host memory: products by plain loops, at once, whatever the stream. The
// layouts, transposes, batches, bias and addend are those of the real library, columns first.
//
// Products of an odd k have no algorithm, so that tests see what then happens. fake_lt_get tells
// how often an algorithm was asked for, and how often a product was added in place.
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { R_32F = 0, R_16BF = 14, NOT_SUPPORTED = 15, EPILOGUE_BIAS = 4 };

typedef struct layout {
    int type;
    uint64_t rows, cols;
    int64_t stride, batch_stride;
    int32_t batch;
} layout;

typedef struct product {
    int32_t transpose_a, transpose_b, bias_type;
    uint32_t epilogue;
    const void *bias;
} product;

typedef struct found {
    uint64_t algorithm[8];
    size_t workspace_bytes;
    int status;
    float waves;
    int reserved[4];
} found;

typedef struct fake_lt {
    uint64_t asked, run, alive;
    uint64_t workspace_bytes; // that was offered last
    uint32_t alignment;
    void (*wait)(void *stream); // what a product does first; or NULL
    uint64_t added, added_in_place;
} fake_lt;
static fake_lt fake;

fake_lt *fake_lt_get(void);
fake_lt *fake_lt_get(void) {
    return &fake;
}

static int make(void **out, size_t bytes) {
    *out = calloc(1, bytes);
    fake.alive += *out != NULL;
    return *out ? 0 : 3;
}

static int drop(void *object) {
    free(object);
    fake.alive--;
    return 0;
}

int cublasLtCreate(void **out);
int cublasLtCreate(void **out) {
    return make(out, 1);
}
int cublasLtDestroy(void *handle);
int cublasLtDestroy(void *handle) {
    return drop(handle);
}

int cublasLtMatrixLayoutCreate(void **out, int type, uint64_t rows, uint64_t cols, int64_t stride);
int cublasLtMatrixLayoutCreate(void **out, int type, uint64_t rows, uint64_t cols, int64_t stride) {
    if (stride < (int64_t)rows || make(out, sizeof(layout))) return 7;
    *(layout *)*out =
        (layout){.type = type, .rows = rows, .cols = cols, .stride = stride, .batch = 1};
    return 0;
}
int cublasLtMatrixLayoutSetAttribute(layout *l, int attribute, const void *value, size_t bytes);
int cublasLtMatrixLayoutSetAttribute(layout *l, int attribute, const void *value, size_t bytes) {
    if (attribute == 5 && bytes == 4) memcpy(&l->batch, value, bytes);
    if (attribute == 6 && bytes == 8) memcpy(&l->batch_stride, value, bytes);
    return attribute == 5 || attribute == 6 ? 0 : 7;
}
int cublasLtMatrixLayoutDestroy(void *l);
int cublasLtMatrixLayoutDestroy(void *l) {
    return drop(l);
}

int cublasLtMatmulDescCreate(void **out, int compute_type, int scale_type);
int cublasLtMatmulDescCreate(void **out, int compute_type, int scale_type) {
    return compute_type == 68 && scale_type == R_32F ? make(out, sizeof(product)) : 7;
}
int cublasLtMatmulDescSetAttribute(product *p, int attribute, const void *value, size_t bytes);
int cublasLtMatmulDescSetAttribute(product *p, int attribute, const void *value, size_t bytes) {
    void *fields[27] = {[3] = &p->transpose_a,
                        [4] = &p->transpose_b,
                        [7] = &p->epilogue,
                        [8] = &p->bias,
                        [26] = &p->bias_type};
    if (attribute < 0 || attribute > 26 || !fields[attribute] ||
        bytes != (attribute == 8 ? sizeof(void *) : 4))
        return 7;
    memcpy(fields[attribute], value, bytes);
    return 0;
}
int cublasLtMatmulDescDestroy(void *p);
int cublasLtMatmulDescDestroy(void *p) {
    return drop(p);
}

int cublasLtMatmulPreferenceCreate(void **out);
int cublasLtMatmulPreferenceCreate(void **out) {
    return make(out, 1);
}
int cublasLtMatmulPreferenceSetAttribute(void *p, int attribute, const void *value, size_t bytes);
int cublasLtMatmulPreferenceSetAttribute(void *p, int attribute, const void *value, size_t bytes) {
    (void)p;
    if (attribute == 1 && bytes == 8) memcpy(&fake.workspace_bytes, value, bytes);
    if (attribute == 5 && bytes == 4) memcpy(&fake.alignment, value, bytes);
    return 0;
}
int cublasLtMatmulPreferenceDestroy(void *p);
int cublasLtMatmulPreferenceDestroy(void *p) {
    return drop(p);
}

int cublasLtMatmulAlgoGetHeuristic(void *handle, product *p, layout *a, layout *b, layout *c,
                                   layout *d, void *preference, int most, found *out, int *count);
int cublasLtMatmulAlgoGetHeuristic(void *handle, product *p, layout *a, layout *b, layout *c,
                                   layout *d, void *preference, int most, found *out, int *count) {
    (void)handle, (void)b, (void)c, (void)d, (void)preference, (void)most;
    uint64_t k = p->transpose_a ? a->rows : a->cols;
    fake.asked++;
    *count = k % 2 == 0;
    out[0] = (found){.algorithm = {k}};
    return *count ? 0 : NOT_SUPPORTED;
}

// ---- products -----------------------------------------------------------------------------------

static float load(int type, const void *data, int64_t i) {
    uint32_t bits;
    float value;
    if (type == R_32F) return ((const float *)data)[i];
    bits = (uint32_t)((const uint16_t *)data)[i] << 16;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void store(int type, void *data, int64_t i, float value) {
    uint32_t bits;
    if (type == R_32F) {
        ((float *)data)[i] = value;
        return;
    }
    memcpy(&bits, &value, sizeof bits);
    ((uint16_t *)data)[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

int cublasLtMatmul(void *handle, product *p, const float *alpha, const void *a, layout *of_a,
                   const void *b, layout *of_b, const float *beta, const void *c, layout *of_c,
                   void *d, layout *of_d, const uint64_t *algorithm, void *workspace,
                   size_t workspace_bytes, void *stream);
int cublasLtMatmul(void *handle, product *p, const float *alpha, const void *a, layout *of_a,
                   const void *b, layout *of_b, const float *beta, const void *c, layout *of_c,
                   void *d, layout *of_d, const uint64_t *algorithm, void *workspace,
                   size_t workspace_bytes, void *stream) {
    (void)handle, (void)workspace, (void)workspace_bytes;
    uint64_t k_count = p->transpose_a ? of_a->rows : of_a->cols;
    if (algorithm[0] != k_count || (p->transpose_b ? of_b->cols : of_b->rows) != k_count) return 7;
    if (fake.wait) fake.wait(stream);
    fake.run++;
    fake.added += *beta != 0;
    fake.added_in_place += *beta != 0 && c == d;
    for (int32_t batch = 0; batch < of_d->batch; batch++)
        for (uint64_t col = 0; col < of_d->cols; col++)
            for (uint64_t row = 0; row < of_d->rows; row++) {
                int64_t at_a = batch * of_a->batch_stride, at_b = batch * of_b->batch_stride;
                int64_t at =
                    batch * of_d->batch_stride + (int64_t)(row + col * (uint64_t)of_d->stride);
                double sum = 0;
                for (uint64_t k = 0; k < k_count; k++) {
                    uint64_t i = p->transpose_a ? k + row * (uint64_t)of_a->stride
                                                : row + k * (uint64_t)of_a->stride;
                    uint64_t j = p->transpose_b ? col + k * (uint64_t)of_b->stride
                                                : k + col * (uint64_t)of_b->stride;
                    sum += (double)load(of_a->type, a, at_a + (int64_t)i) *
                           load(of_b->type, b, at_b + (int64_t)j);
                }
                sum *= *alpha;
                if (*beta != 0) sum += *beta * load(of_c->type, c, at);
                if (p->epilogue == EPILOGUE_BIAS) sum += load(p->bias_type, p->bias, (int64_t)row);
                store(of_d->type, d, at, (float)sum);
            }
    return 0;
}
