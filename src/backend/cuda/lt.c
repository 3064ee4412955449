// lt.c — the table of functions, and products by them.
//
// cuBLASLt counts columns first: a row-major (m, n) is its (n, m). So Yᵀ = Wᵀ Xᵀ is asked for, and
// its A is w, its B is x.
#include "backend/cuda/lt.h"
#include "backend/cuda/queue.h"
#include "backend/cuda/unaccounted.h"

#include <ration/log.h>

#include "base/checked.h"
#include "memory/account.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { // cublasStatus_t, cudaDataType, cublasComputeType_t, attributes
    SUCCESS = 0,
    ALLOC_FAILED = 3,
    R_32F = 0,
    R_16F = 2,
    R_16BF = 14,
    COMPUTE_32F = 68,
    OP_TRANSPOSE = 1,
    LAYOUT_BATCH_COUNT = 5,
    LAYOUT_BATCH_STRIDE = 6,
    PRODUCT_TRANSPOSE_A = 3,
    PRODUCT_TRANSPOSE_B = 4,
    PRODUCT_EPILOGUE = 7,
    PRODUCT_BIAS = 8,
    PRODUCT_BIAS_TYPE = 26,
    EPILOGUE_BIAS = 4,
    PREFER_WORKSPACE = 1,
    PREFER_REDUCTIONS = 3,
    PREFER_ALIGNMENT_A = 5, // B, C and D follow
    REDUCE_IN_COMPUTE_TYPE = 2,
};
enum { ALIGNMENT = 16, CANDIDATES = 1 };

#define WORKSPACE_MOST  ((uint64_t)32 << 20)
#define WORKSPACE_UNIT  ((uint64_t)1 << 20)
#define WORKSPACE_ALIGN ((uint64_t)256) // an arena's blocks are aligned to less
#define SPLITS          8 // partial sums that a workspace has room for, where it is below the most

// ---- the library --------------------------------------------------------------------------------

typedef struct row {
    const char *symbol;
    size_t offset; // of its field
} row;

static const row rows[] = {
#define RN_LT(field, symbol, arguments) {"cublasLt" #symbol, offsetof(rn_lt_library, field)},
#include "backend/cuda/lt.def"
#undef RN_LT
};

static bool load(const char *path, rn_lt_library *out) {
    *out = (rn_lt_library){.library = dlopen(path, RTLD_NOW | RTLD_LOCAL)};
    for (size_t i = 0; out->library && i < sizeof rows / sizeof *rows; i++) {
        void *function = dlsym(out->library, rows[i].symbol);
        memcpy((char *)out + rows[i].offset, &function, sizeof function);
        if (function) continue;
        dlclose(out->library);
        *out = (rn_lt_library){0};
    }
    return out->library != NULL;
}

// $RATION_CUBLASLT alone where it is set.
static const char *find_library(rn_lt_library *out) {
    static const char *const usual[] = {"libcublasLt.so.13", "libcublasLt.so.12"};
    const char *told = getenv("RATION_CUBLASLT");
    *out = (rn_lt_library){0};
    if (told && *told) return strcmp(told, "none") != 0 && load(told, out) ? told : NULL;
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (load(usual[i], out)) return usual[i];
    return NULL;
}

static rn_status check(int status, const char *what) {
    if (status == SUCCESS) return RN_OK;
    return rn_hint(rn_fail(status == ALLOC_FAILED ? RN_NO_MEMORY : RN_DEVICE,
                           "cuBLASLt: %s: status %d", what, status),
                   "RATION_CUBLASLT=none computes without it");
}

// ---- life ---------------------------------------------------------------------------------------

void rn_lt_init(rn_lt *lt) {
    *lt = (rn_lt){0};
    pthread_mutex_init(&lt->lock, NULL);
}

static void release_entry(const rn_lt *lt, rn_lt_entry *entry) {
    void *layouts[] = {entry->of_w, entry->of_x, entry->of_y};
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        if (layouts[i]) (void)lt->functions.layout_destroy(layouts[i]);
    if (entry->product) (void)lt->functions.product_destroy(entry->product);
}

// The library stays loaded: it has threads and caches of its own that do not like to go.
void rn_lt_close(rn_lt *lt) {
    for (uint32_t i = 0; i < lt->count; i++)
        release_entry(lt, &lt->shapes[i]);
    if (lt->shapes) rn_free(RN_HOST_OTHER, lt->shapes, RN_LT_SHAPES * sizeof *lt->shapes);
    if (lt->handle) (void)lt->functions.destroy(lt->handle);
    pthread_mutex_destroy(&lt->lock);
    *lt = (rn_lt){0};
}

// Under the lock. A library that is there but does not start is an error: it would be slow in
// silence.
static rn_status open_library(rn_lt *lt) {
    void *block = NULL;
    if (lt->is_known) return RN_OK;
    const char *found = find_library(&lt->functions);
    rn_log(RN_LOG_INFO, "cuda", "products in 16 bits: %s", found ? found : "own kernels");
    if (found) {
        RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, RN_LT_SHAPES, sizeof *lt->shapes, &block));
        rn_status status = check(lt->functions.create(&lt->handle), "starting");
        if (status != RN_OK) {
            rn_free(RN_HOST_OTHER, block, RN_LT_SHAPES * sizeof *lt->shapes);
            lt->handle = NULL;
            return status;
        }
        lt->shapes = block;
    }
    lt->is_known = true;
    return RN_OK;
}

// ---- descriptions -------------------------------------------------------------------------------

static int type_of(rn_dtype dtype) {
    return dtype == RN_DTYPE_F32 ? R_32F : dtype == RN_DTYPE_F16 ? R_16F : R_16BF;
}

static uint64_t stride_or(uint64_t given, uint64_t dense) {
    return given ? given : dense;
}

static uint32_t alignment_of(const rn_lt_product *p) {
    const void *all[] = {p->x, p->w, p->bias, p->addend, p->y};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if ((uintptr_t)all[i] % ALIGNMENT) return 2;
    return ALIGNMENT;
}

static rn_lt_shape shape_of(const rn_lt_product *p, uint64_t workspace_bytes) {
    return (rn_lt_shape){.m = p->m,
                         .n = p->n,
                         .k = p->k,
                         .batch = p->batch,
                         .x_stride = stride_or(p->x_stride, p->transpose_x ? p->m : p->k),
                         .w_stride = stride_or(p->w_stride, p->transpose_w ? p->n : p->k),
                         .y_stride = stride_or(p->y_stride, p->n),
                         .w_batch = p->w_batch,
                         .workspace_bytes = workspace_bytes,
                         .type = (uint32_t)p->type,
                         .out_type = (uint32_t)p->out_type,
                         .transposes = p->transpose_x + 2u * p->transpose_w,
                         .alignment = alignment_of(p),
                         .has_bias = p->bias != NULL,
                         .adds = p->addend != NULL};
}

// rows and cols as the library counts.
static rn_status make_layout(const rn_lt *lt, uint32_t type, uint64_t matrix_rows, uint64_t cols,
                             uint64_t stride, uint64_t batch, uint64_t from_batch, void **out) {
    const rn_lt_library *f = &lt->functions;
    int32_t count = (int32_t)batch;
    int64_t offset = (int64_t)from_batch;
    *out = NULL;
    RN_TRY(check(f->layout_create(out, type_of((rn_dtype)type), matrix_rows, cols, (int64_t)stride),
                 "describing a matrix"));
    if (batch <= 1) return RN_OK;
    RN_TRY(
        check(f->layout_set(*out, LAYOUT_BATCH_COUNT, &count, sizeof count), "describing batches"));
    return check(f->layout_set(*out, LAYOUT_BATCH_STRIDE, &offset, sizeof offset),
                 "describing batches");
}

static rn_status make_layouts(const rn_lt *lt, rn_lt_entry *entry) {
    const rn_lt_shape *s = &entry->shape;
    bool x_turned = s->transposes & 1, w_turned = s->transposes & 2;
    RN_TRY(make_layout(lt, s->type, w_turned ? s->n : s->k, w_turned ? s->k : s->n, s->w_stride,
                       s->batch, s->w_batch, &entry->of_w));
    RN_TRY(make_layout(lt, s->type, x_turned ? s->m : s->k, x_turned ? s->k : s->m, s->x_stride,
                       s->batch, s->m * s->k, &entry->of_x));
    return make_layout(lt, s->out_type, s->n, s->m, s->y_stride, s->batch, s->m * s->n,
                       &entry->of_y);
}

static rn_status set_product(const rn_lt *lt, const rn_lt_shape *s, const void *bias,
                             void *product) {
    const rn_lt_library *f = &lt->functions;
    int32_t transpose = OP_TRANSPOSE, bias_type = type_of((rn_dtype)s->out_type);
    uint32_t epilogue = EPILOGUE_BIAS;
    int status = SUCCESS;
    if (!(s->transposes & 2))
        status |= f->product_set(product, PRODUCT_TRANSPOSE_A, &transpose, sizeof transpose);
    if (s->transposes & 1)
        status |= f->product_set(product, PRODUCT_TRANSPOSE_B, &transpose, sizeof transpose);
    if (bias) {
        status |= f->product_set(product, PRODUCT_EPILOGUE, &epilogue, sizeof epilogue);
        status |= f->product_set(product, PRODUCT_BIAS_TYPE, &bias_type, sizeof bias_type);
        status |= f->product_set(product, PRODUCT_BIAS, &bias, sizeof bias);
    }
    return check(status, "describing a product");
}

// To be destroyed, also where it failed.
static rn_status make_product(const rn_lt *lt, const rn_lt_shape *s, const void *bias, void **out) {
    *out = NULL;
    RN_TRY(check(lt->functions.product_create(out, COMPUTE_32F, R_32F), "describing a product"));
    return set_product(lt, s, bias, *out);
}

// ---- algorithms ---------------------------------------------------------------------------------

static rn_status set_preference(const rn_lt *lt, const rn_lt_shape *s, void *preference) {
    const rn_lt_library *f = &lt->functions;
    uint32_t reductions = REDUCE_IN_COMPUTE_TYPE, alignment = s->alignment;
    uint64_t bytes = s->workspace_bytes;
    int status = f->preference_set(preference, PREFER_WORKSPACE, &bytes, sizeof bytes);
    status |= f->preference_set(preference, PREFER_REDUCTIONS, &reductions, sizeof reductions);
    for (int i = 0; i < 4; i++)
        status |=
            f->preference_set(preference, PREFER_ALIGNMENT_A + i, &alignment, sizeof alignment);
    return check(status, "asking for an algorithm");
}

// None is no error: entry->is_served stays false.
static rn_status choose(const rn_lt *lt, void *product, rn_lt_entry *entry) {
    const rn_lt_library *f = &lt->functions;
    rn_lt_found found[CANDIDATES] = {{.status = -1}};
    void *preference = NULL;
    int count = 0;
    RN_TRY(check(f->preference_create(&preference), "asking for an algorithm"));
    rn_status status = set_preference(lt, &entry->shape, preference);
    if (status == RN_OK && f->find(lt->handle, product, entry->of_w, entry->of_x, entry->of_y,
                                   entry->of_y, preference, CANDIDATES, found, &count) == SUCCESS)
        entry->is_served = count > 0 && found[0].status == SUCCESS &&
                           found[0].workspace_bytes <= entry->shape.workspace_bytes;
    entry->algorithm = found[0].algorithm;
    (void)f->preference_destroy(preference);
    return status;
}

static rn_status make_entry(const rn_lt *lt, void *product, rn_lt_entry *entry) {
    RN_TRY(make_layouts(lt, entry));
    return choose(lt, product, entry);
}

// Where the shape is in the table, or would be; RN_LT_PLACES: it is full.
static uint32_t find_place(const rn_lt *lt, const rn_lt_shape *shape) {
    const uint8_t *bytes = (const uint8_t *)shape;
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < sizeof *shape; i += 8) {
        uint64_t word;
        memcpy(&word, bytes + i, sizeof word);
        hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
    }
    for (uint32_t i = 0; i < RN_LT_PLACES; i++) {
        uint32_t place = (uint32_t)((hash + i) % RN_LT_PLACES), number = lt->places[place];
        if (number == 0 || memcmp(&lt->shapes[number - 1].shape, shape, sizeof *shape) == 0)
            return place;
    }
    return RN_LT_PLACES;
}

// The table's entry, or a new one. *out_kept: the table has it, and what it holds stays. Otherwise
// it is the caller's.
static rn_status find_entry(rn_lt *lt, const rn_lt_shape *shape, const void *bias, rn_lt_entry *out,
                            bool *out_kept) {
    uint32_t place = find_place(lt, shape);
    bool full = place == RN_LT_PLACES || lt->count == RN_LT_SHAPES;
    uint32_t number = place == RN_LT_PLACES ? 0 : lt->places[place];
    *out_kept = true;
    if (number) {
        *out = lt->shapes[number - 1];
        return RN_OK;
    }
    *out = (rn_lt_entry){.shape = *shape};
    rn_status status = make_product(lt, shape, bias, &out->product);
    if (status == RN_OK) status = make_entry(lt, out->product, out);
    if (status != RN_OK || full) {
        *out_kept = false;
        return status;
    }
    lt->shapes[lt->count] = *out;
    if (bias) lt->shapes[lt->count].product = NULL; // this one is of one address
    lt->places[place] = (uint16_t)++lt->count;
    return RN_OK;
}

// ---- running ------------------------------------------------------------------------------------

uint64_t rn_lt_workspace(uint64_t m, uint64_t n, uint64_t batch) {
    uint64_t sums = 0;
    if (!rn_mul_u64(m, n, &sums) || !rn_mul_u64(sums, batch, &sums) ||
        !rn_mul_u64(sums, sizeof(float) * SPLITS, &sums) || sums > WORKSPACE_MOST)
        return WORKSPACE_MOST + WORKSPACE_ALIGN;
    return rn_min_u64(rn_round_up(sums, WORKSPACE_UNIT), WORKSPACE_MOST) + WORKSPACE_ALIGN;
}

static rn_status submit(const rn_lt *lt, const rn_lt_entry *entry, void *product,
                        const rn_lt_product *p, void *workspace, rn_cuda_stream *stream) {
    const float one = 1, beta = p->addend ? 1 : 0;
    stream->after_launch = false; // whether its kernels let others begin early is not known
    return check(lt->functions.matmul(lt->handle, product, &one, p->w, entry->of_w, p->x,
                                      entry->of_x, &beta, p->addend ? p->addend : p->y, entry->of_y,
                                      p->y, entry->of_y, &entry->algorithm, workspace,
                                      entry->shape.workspace_bytes, stream->handle),
                 "a product");
}

rn_status rn_lt_run(const rn_call *call, const rn_lt_product *p, void *workspace,
                    uint64_t workspace_bytes, bool *out_done) {
    rn_cuda_stream *stream = call->stream;
    rn_lt *lt = &stream->gpu->lt;
    void *aligned = (void *)(uintptr_t)rn_round_up((uintptr_t)workspace, WORKSPACE_ALIGN);
    rn_lt_shape shape = shape_of(p, workspace_bytes - WORKSPACE_ALIGN);
    rn_lt_entry entry = {0};
    bool kept = true;
    *out_done = false;
    pthread_mutex_lock(&lt->lock);
    uint32_t known = lt->count;
    rn_status status = open_library(lt);
    bool there = status == RN_OK && lt->handle;
    if (there) status = find_entry(lt, &shape, p->bias, &entry, &kept);
    known = lt->count - known;
    pthread_mutex_unlock(&lt->lock);
    bool own = p->bias && kept; // the product's description is this call's
    if (there && status == RN_OK && !entry.product)
        status = make_product(lt, &shape, p->bias, &entry.product);
    if (status == RN_OK && entry.is_served) {
        status = submit(lt, &entry, entry.product, p, aligned, stream);
        *out_done = status == RN_OK;
    }
    if (own && entry.product) (void)lt->functions.product_destroy(entry.product);
    if (!kept) release_entry(lt, &entry);
    uint64_t bytes;
    if (known > 0 && !stream->is_recording && status == RN_OK)
        status = rn_cuda_unaccounted_measure(&stream->gpu->cuda, stream->gpu->ordinal, &bytes);
    return status;
}
