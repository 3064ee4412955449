// Attention of the CPU: near the reference loops, whatever the shape; and the same bits whatever
// the threads, the slices, the rows beside a row and the pages under a key.
#include "support.h"
#include "backend/cpu/cpu.h"
#include "base/cpu.h"
#include "guarded.h"

#include <math.h>

// ---- numbers ------------------------------------------------------------------------------------

static uint32_t seed = 1;

static uint32_t draw(uint32_t below) {
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % below;
}

static float *make(uint64_t n) {
    float *x = malloc(n * sizeof *x);
    for (uint64_t i = 0; i < n; i++)
        x[i] = (float)draw(4001) / 2000 - 1;
    return x;
}

// |is - must| <= 1e-5 (|must| + the mean of |must|), as in the table of conform_facts.c: sums in
// another order.
static void check_near(const float *must, const float *is, uint64_t n) {
    double mean = 0;
    for (uint64_t i = 0; i < n; i++)
        mean += isfinite(must[i]) ? fabs((double)must[i]) / (double)n : 0;
    for (uint64_t i = 0; i < n; i++) {
        if (isnan(must[i]) && isnan(is[i])) continue;
        if (must[i] == is[i]) continue;
        if (!(fabs((double)is[i] - must[i]) <= 1e-5 * (fabs((double)must[i]) + mean)))
            fail_msg("element %llu is %.9g, not %.9g", (unsigned long long)i, (double)is[i],
                     (double)must[i]);
    }
}

static rn_tensor tensor(void *data, rn_shape shape) {
    return (rn_tensor){data, RN_DTYPE_F32, RN_LAYOUT_PLAIN, shape};
}

static rn_tensor indices(const int32_t *data, rn_shape shape) {
    return (rn_tensor){(void *)data, RN_DTYPE_I32, RN_LAYOUT_PLAIN, shape};
}

static void each_level(void (*test)(void)) {
    for (int level = 0; level < RN_CPU_LEVEL_COUNT; level++) {
        rn_cpu_level_force((rn_cpu_level)level);
        if ((int)rn_cpu_level_get() == level) test();
    }
    rn_cpu_level_force(RN_CPU_LEVEL_COUNT - 1);
}

// ---- running ------------------------------------------------------------------------------------

static rn_workers *workers;

typedef struct way {
    uint32_t threads, slice_rows;
    bool reference;
} way;
static const way by_reference = {1, 0, true}, alone = {1, 0, false};

// Outputs and workspace between fences; the outputs are copied out.
static void run(rn_call call, way how, float **out_results) {
    rn_tensor out[RN_MAX_OUTPUTS];
    test_guard guards[RN_MAX_OUTPUTS];
    const rn_kernel *kernel = &rn_cpu_kernels[call.op];
    call.threads = how.threads;
    call.workers = how.threads > 1 ? workers : NULL;
    call.slice_rows = how.slice_rows;
    for (uint32_t i = 0; i < call.output_count; i++) {
        out[i] = call.outputs[i];
        guards[i] = test_guard_make(rn_tensor_bytes(&out[i]));
        out[i].data = guards[i].data;
    }
    call.outputs = out;
    call.workspace_bytes = kernel->workspace(&call);
    test_guard workspace = test_guard_make(call.workspace_bytes);
    call.workspace = workspace.data;
    assert_ok(how.reference ? rn_op_get(call.op)->reference(&call) : kernel->run(&call));
    assert_true(test_guard_intact(&workspace));
    test_guard_free(&workspace);
    for (uint32_t i = 0; i < call.output_count; i++) {
        assert_true(test_guard_intact(&guards[i]));
        out_results[i] = malloc(guards[i].bytes + 1);
        memcpy(out_results[i], guards[i].data, guards[i].bytes);
        test_guard_free(&guards[i]);
    }
}

static void drop(float **results, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        free(results[i]);
}

// ---- dense --------------------------------------------------------------------------------------

enum { Q, K, V, MASK, Y, LSE, DY, TENSORS };

typedef struct scene {
    uint64_t b, t, s, h, hk, d;
    rn_attention_attrs attrs;
    int mask; // 0: none, 2: (T, S), 3: (B, T, S)
    float *data[TENSORS];
} scene;

static rn_shape query_shape(const scene *a) {
    return RN_SHAPE(a->b, a->t, a->h, a->d);
}

static rn_shape key_shape(const scene *a) {
    return RN_SHAPE(a->b, a->s, a->hk, a->d);
}

static void open_scene(scene *a) {
    uint64_t queries = rn_shape_elements(query_shape(a), 0);
    uint64_t keys = rn_shape_elements(key_shape(a), 0), n = a->b * a->t * a->s;
    a->data[Q] = make(queries), a->data[DY] = make(queries);
    a->data[K] = make(keys), a->data[V] = make(keys);
    for (uint64_t i = 0; i < queries; i++)
        a->data[Q][i] *= 3; // scores that differ
    if (!a->mask) return;
    a->data[MASK] = make(n);
    for (uint64_t i = 0; i < n; i++)
        if (draw(3) == 0 || i / a->s % 5 == 1) a->data[MASK][i] = -INFINITY;
}

static void close_scene(scene *a) {
    for (int i = 0; i < TENSORS; i++)
        free(a->data[i]);
}

static void bind(const scene *a, rn_tensor *t) {
    rn_shape q = query_shape(a), k = key_shape(a);
    t[Q] = tensor(a->data[Q], q), t[K] = tensor(a->data[K], k), t[V] = tensor(a->data[V], k);
    t[MASK] = (rn_tensor){.dtype = RN_DTYPE_NONE};
    if (a->mask == 2) t[MASK] = tensor(a->data[MASK], RN_SHAPE(a->t, a->s));
    if (a->mask == 3) t[MASK] = tensor(a->data[MASK], RN_SHAPE(a->b, a->t, a->s));
    t[Y] = tensor(a->data[Y], q), t[LSE] = tensor(a->data[LSE], RN_SHAPE(a->b, a->h, a->t));
    t[DY] = tensor(a->data[DY], q);
}

static void forward(const scene *a, way how, float **out /* y, logsumexp */) {
    rn_tensor t[TENSORS];
    bind(a, t);
    rn_call call = {.op = RN_OP_ATTENTION,
                    .attrs = &a->attrs,
                    .inputs = t,
                    .outputs = t + Y,
                    .input_count = 4,
                    .output_count = 2};
    run(call, how, out);
}

// From the y and logsumexp of the scene.
static void backward(const scene *a, way how, float **out /* dq, dk, dv */) {
    rn_tensor t[TENSORS];
    bind(a, t);
    rn_call call = {.op = RN_OP_ATTENTION_GRAD,
                    .attrs = &a->attrs,
                    .inputs = t,
                    .outputs = t, // q, k, v: their shapes
                    .input_count = TENSORS,
                    .output_count = 3};
    run(call, how, out);
}

static void check_same(float **a, float **b, const uint64_t *elements, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        assert_memory_equal(a[i], b[i], elements[i] * sizeof(float));
}

static const way other_ways[] = {{1, 1, false}, {1, 8, false}, {2, 0, false}, {2, 5, false}};

static void check_scene(scene *a) {
    float *must[3], *is[3], *again[3];
    open_scene(a);
    uint64_t queries = rn_shape_elements(query_shape(a), 0);
    uint64_t keys = rn_shape_elements(key_shape(a), 0);
    const uint64_t forth[] = {queries, a->b * a->h * a->t}, back[] = {queries, keys, keys};
    forward(a, by_reference, must);
    forward(a, alone, is);
    for (int i = 0; i < 2; i++)
        check_near(must[i], is[i], forth[i]);
    for (size_t i = 0; i < sizeof other_ways / sizeof *other_ways; i++) {
        forward(a, other_ways[i], again);
        check_same(is, again, forth, 2);
        drop(again, 2);
    }
    drop(is, 2);
    a->data[Y] = must[0], a->data[LSE] = must[1];
    backward(a, by_reference, must);
    backward(a, alone, is);
    for (int i = 0; i < 3; i++)
        check_near(must[i], is[i], back[i]);
    for (size_t i = 0; i < sizeof other_ways / sizeof *other_ways; i++) {
        backward(a, other_ways[i], again);
        check_same(is, again, back, 3);
        drop(again, 3);
    }
    drop(is, 3);
    drop(must, 3);
    close_scene(a);
}

static void try_scenes(void) {
    scene scenes[] = {
        {1, 1, 1, 1, 1, 1, {.scale = 0}, 0, {0}},
        {2, 70, 70, 4, 2, 64, {.causal = true}, 0, {0}},
        {1, 65, 130, 2, 1, 20, {.causal = true}, 0, {0}},
        {1, 130, 67, 2, 2, 16, {.causal = true}, 0, {0}}, // the first queries see no key
        {1, 33, 129, 3, 1, 80, {.scale = 0}, 0, {0}},
        {1, 100, 100, 2, 1, 24, {.causal = true, .window = 7}, 0, {0}},
        {1, 90, 150, 2, 2, 8, {.window = 70}, 0, {0}},
        {2, 20, 90, 2, 1, 128, {.scale = 0.3f}, 2, {0}},
        {2, 40, 70, 6, 2, 12, {.causal = true}, 3, {0}},
        {1, 7, 64, 8, 8, 33, {.scale = 0}, 3, {0}},
    };
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++)
        check_scene(&scenes[i]);
}

static void dense_attention_is_near_the_reference_in_every_shape(void **state) {
    (void)state;
    each_level(try_scenes);
}

// Queries [from, from + count) of T alone: the same keys, shifted by what is before and after.
static void try_chunks(void) {
    scene all = {1, 150, 150, 4, 2, 20, {.causal = true}, 0, {0}};
    float *whole[2];
    open_scene(&all);
    forward(&all, alone, whole);
    for (uint64_t from = 0, count = 1; from < all.t; from += count, count = 1 + draw(40)) {
        if (from + count > all.t) count = all.t - from;
        scene chunk = all;
        float *part[2];
        uint64_t row = all.h * all.d;
        chunk.t = count, chunk.s = from + count; // what comes later is not there yet
        chunk.data[Q] = all.data[Q] + from * row;
        forward(&chunk, alone, part);
        assert_memory_equal(whole[0] + from * row, part[0], count * row * sizeof(float));
        for (uint64_t h = 0; h < all.h; h++)
            assert_memory_equal(whole[1] + h * all.t + from, part[1] + h * count,
                                count * sizeof(float));
        drop(part, 2);
    }
    drop(whole, 2);
    close_scene(&all);
}

static void chunks_have_the_bits_of_the_whole(void **state) {
    (void)state;
    each_level(try_chunks);
}

// What is not a number shows in the rows that see it, and nowhere else.
static void try_not_a_number(void) {
    scene a = {1, 80, 80, 1, 1, 20, {.causal = true}, 0, {0}};
    float *clean[2], *spoilt[2];
    open_scene(&a);
    forward(&a, alone, clean);
    for (int which = Q; which <= V; which++) {
        const uint64_t row = 70;
        float kept = a.data[which][row * a.d + 3];
        a.data[which][row * a.d + 3] = which == V ? INFINITY : NAN;
        forward(&a, alone, spoilt);
        assert_memory_equal(clean[0], spoilt[0], row * a.d * sizeof(float));
        assert_false(isfinite(spoilt[0][row * a.d + 3]));
        if (which == Q) { // one query only
            uint64_t from = (row + 1) * a.d;
            assert_memory_equal(clean[0] + from, spoilt[0] + from,
                                (a.t - row - 1) * a.d * sizeof(float));
            for (uint64_t d = 0; d < a.d; d++)
                assert_true(isnan(spoilt[0][row * a.d + d]));
        }
        a.data[which][row * a.d + 3] = kept;
        drop(spoilt, 2);
    }
    drop(clean, 2);
    close_scene(&a);
}

static void a_nan_spoils_only_who_sees_it(void **state) {
    (void)state;
    each_level(try_not_a_number);
}

// AVX2 and AVX-512 have the same multiply-adds.
static void fused_levels_have_the_same_bits(void **state) {
    (void)state;
    scene a = {1, 70, 90, 4, 2, 36, {.causal = true}, 2, {0}};
    float *y[2][2], *g[2][3];
    rn_cpu_level_force(RN_CPU_AVX512);
    if (rn_cpu_level_get() != RN_CPU_AVX512) skip_because("a CPU without AVX-512");
    open_scene(&a);
    for (int i = 0; i < 2; i++) {
        rn_cpu_level_force(i ? RN_CPU_AVX512 : RN_CPU_AVX2);
        forward(&a, alone, y[i]);
        a.data[Y] = y[0][0], a.data[LSE] = y[0][1];
        backward(&a, alone, g[i]);
    }
    uint64_t queries = a.t * a.h * a.d, keys = a.s * a.hk * a.d;
    check_same(y[0], y[1], (uint64_t[]){queries, a.h * a.t}, 2);
    check_same(g[0], g[1], (uint64_t[]){queries, keys, keys}, 3);
    drop(y[1], 2), drop(g[0], 3), drop(g[1], 3);
    close_scene(&a);
}

// ---- pages --------------------------------------------------------------------------------------

enum { PAGE = 16, MAX_PAGES = 12, SEQUENCES = 4, PAGES = 50 };

typedef struct cache {
    uint64_t h, hk, d;
    rn_dtype dtype;
    rn_attention_attrs attrs;
    void *kv; // (pages, 2, hk, PAGE, d)
    int32_t table[SEQUENCES * MAX_PAGES];
    float *q; // (rows, h, d)
    int32_t sequence[160], position[160];
    uint64_t rows;
} cache;

// Pages in no order; what no token has been written to is not a number.
static void open_cache(cache *c) {
    uint64_t n = PAGES * 2 * c->hk * PAGE * c->d;
    float *wide = make(n);
    c->kv = malloc(n * sizeof(float));
    assert_ok(rn_dtype_from_f32(c->dtype, wide, c->kv, n));
    free(wide);
    for (int32_t i = 0; i < SEQUENCES * MAX_PAGES; i++)
        c->table[i] = (i * 7 + 3) % (SEQUENCES * MAX_PAGES);
    c->q = make(160 * c->h * c->d);
}

static void close_cache(cache *c) {
    free(c->kv);
    free(c->q);
}

static void add_rows(cache *c, int32_t sequence, int32_t position, uint64_t count) {
    for (uint64_t i = 0; i < count; i++, c->rows++) {
        c->sequence[c->rows] = sequence;
        c->position[c->rows] = position + (int32_t)i;
    }
}

static float *attend(const cache *c, uint64_t first, uint64_t rows, way how) {
    rn_shape q = RN_SHAPE(rows, c->h, c->d);
    rn_tensor t[] = {
        tensor(c->q + first * c->h * c->d, q),
        {c->kv, c->dtype, RN_LAYOUT_PLAIN, RN_SHAPE(PAGES, 2, c->hk, PAGE, c->d)},
        indices(c->sequence + first, RN_SHAPE(rows)),
        indices(c->position + first, RN_SHAPE(rows)),
        indices(c->table, RN_SHAPE(SEQUENCES, MAX_PAGES)),
        tensor(NULL, q),
    };
    rn_call call = {.op = RN_OP_PAGED_ATTENTION,
                    .attrs = &c->attrs,
                    .inputs = t,
                    .outputs = t + 5,
                    .input_count = 5,
                    .output_count = 1};
    float *y = NULL;
    run(call, how, &y);
    return y;
}

static void check_cache(cache *c) {
    uint64_t row = c->h * c->d, n = c->rows * row;
    float *must = attend(c, 0, c->rows, by_reference), *is = attend(c, 0, c->rows, alone);
    check_near(must, is, n);
    for (size_t i = 0; i < sizeof other_ways / sizeof *other_ways; i++) {
        float *again = attend(c, 0, c->rows, other_ways[i]);
        assert_memory_equal(is, again, n * sizeof(float));
        free(again);
    }
    for (uint64_t first = 0, count = 1; first < c->rows; first += count, count = 1 + draw(20)) {
        if (first + count > c->rows) count = c->rows - first;
        float *some = attend(c, first, count, alone);
        assert_memory_equal(is + first * row, some, count * row * sizeof(float));
        free(some);
    }
    free(must), free(is);
}

// Prefill chunks, single tokens and idle rows of several sequences in one call; tiles of 64 keys
// span four pages.
static void fill_rows(cache *c) {
    c->rows = 0;
    add_rows(c, 2, 100, 45);
    add_rows(c, -1, 0, 2);
    add_rows(c, 0, 0, 40);
    add_rows(c, 1, 190, 1);
    add_rows(c, 3, 63, 2);
    add_rows(c, -1, 0, 1);
    add_rows(c, 0, 40, 1);
    add_rows(c, 0, 150, 1); // the same sequence, further on
    add_rows(c, 0, 7, 1);
}

static void try_pages(void) {
    cache caches[] = {
        {.h = 4, .hk = 2, .d = 64, .dtype = RN_DTYPE_F16},
        {.h = 2, .hk = 2, .d = 20, .dtype = RN_DTYPE_F32},
        {.h = 6, .hk = 2, .d = 16, .dtype = RN_DTYPE_F16, .attrs = {.window = 30}},
        {.h = 1, .hk = 1, .d = 80, .dtype = RN_DTYPE_F16, .attrs = {.scale = 0.5f}},
        {.h = 2, .hk = 1, .d = 128, .dtype = RN_DTYPE_F32, .attrs = {.window = 100}},
        {.h = 7, .hk = 1, .d = 64, .dtype = RN_DTYPE_Q8_0},
        {.h = 4, .hk = 2, .d = 96, .dtype = RN_DTYPE_Q8_0, .attrs = {.window = 70}},
    };
    for (size_t i = 0; i < sizeof caches / sizeof *caches; i++) {
        open_cache(&caches[i]);
        fill_rows(&caches[i]);
        check_cache(&caches[i]);
        close_cache(&caches[i]);
    }
}

static void paged_attention_is_near_the_reference_for_any_rows(void **state) {
    (void)state;
    each_level(try_pages);
}

// A window leaves pages behind that may be gone, also between the rows of one call.
static void try_missing_pages(void) {
    cache c = {.h = 2, .hk = 1, .d = 16, .dtype = RN_DTYPE_F16, .attrs = {.window = 8}};
    open_cache(&c);
    add_rows(&c, 1, 5, 3);
    add_rows(&c, 1, 150, 3);
    for (int32_t page = 0; page < MAX_PAGES; page++)
        if (page != 0 && page != 8 && page != 9) c.table[MAX_PAGES + page] = -1;
    check_cache(&c);
    close_cache(&c);
}

static void pages_outside_the_window_may_be_gone(void **state) {
    (void)state;
    each_level(try_missing_pages);
}

// Dense and paged attention are the same sums.
static void try_both(void) {
    scene a = {1, 90, 90, 4, 2, 20, {.causal = true}, 0, {0}};
    cache c = {.h = 4, .hk = 2, .d = 20, .dtype = RN_DTYPE_F32};
    float *dense[2];
    open_scene(&a);
    open_cache(&c);
    add_rows(&c, 1, 0, a.t);
    memcpy(c.q, a.data[Q], a.t * a.h * a.d * sizeof(float));
    for (uint64_t t = 0; t < a.t; t++)
        for (uint64_t h = 0; h < a.hk; h++)
            for (uint64_t which = 0; which < 2; which++) {
                uint64_t page = (uint64_t)c.table[MAX_PAGES + t / PAGE] * 2 + which;
                memcpy((float *)c.kv + ((page * a.hk + h) * PAGE + t % PAGE) * a.d,
                       a.data[K + which] + (t * a.hk + h) * a.d, a.d * sizeof(float));
            }
    forward(&a, alone, dense);
    float *paged = attend(&c, 0, c.rows, alone);
    assert_memory_equal(dense[0], paged, a.t * a.h * a.d * sizeof(float));
    free(paged);
    drop(dense, 2);
    close_cache(&c);
    close_scene(&a);
}

static void pages_do_not_change_a_bit(void **state) {
    (void)state;
    each_level(try_both);
}

// ---- workspace ----------------------------------------------------------------------------------

// A plan is made for the most rows; a run may bring fewer. Thinner slices never need more.
static void fewer_rows_never_need_more_workspace(void **state) {
    (void)state;
    uint64_t before = UINT64_MAX;
    for (uint32_t rows = 130; rows > 0; rows--) {
        cache c = {.h = 6, .hk = 2, .d = 24};
        rn_tensor t[] = {tensor(NULL, RN_SHAPE(rows, c.h, c.d)),
                         tensor(NULL, RN_SHAPE(PAGES, 2, c.hk, PAGE, c.d))};
        rn_call call = {.op = RN_OP_PAGED_ATTENTION, .inputs = t, .threads = 3};
        uint64_t bytes = rn_cpu_paged_attention_workspace(&call);
        assert_true(bytes <= before);
        before = bytes;
        call.slice_rows = 4;
        assert_true(rn_cpu_paged_attention_workspace(&call) <= bytes);
    }
}

static int make_workers(void **state) {
    (void)state;
    return rn_workers_create(2, &rn_system_allocator, &workers) != RN_OK;
}

static int end_workers(void **state) {
    (void)state;
    rn_workers_destroy(workers);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dense_attention_is_near_the_reference_in_every_shape),
        cmocka_unit_test(chunks_have_the_bits_of_the_whole),
        cmocka_unit_test(a_nan_spoils_only_who_sees_it),
        cmocka_unit_test(fused_levels_have_the_same_bits),
        cmocka_unit_test(paged_attention_is_near_the_reference_for_any_rows),
        cmocka_unit_test(pages_outside_the_window_may_be_gone),
        cmocka_unit_test(pages_do_not_change_a_bit),
        cmocka_unit_test(fewer_rows_never_need_more_workspace),
    };
    return cmocka_run_group_tests(tests, make_workers, end_workers);
}
