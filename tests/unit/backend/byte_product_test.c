// Products of bytes: every level's tiles beside plain loops, panels in any pieces, and whole calls
// with weights as they are and in panels.
#include "support.h"

#include "backend/cpu/byte_tile.h"
#include "backend/cpu/cpu.h"
#include "base/cpu.h"
#include "guarded.h"
#include "tensor/column_panels.h"

#include <string.h>

static uint64_t seed = 1;

static uint64_t draw(void) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return seed >> 33;
}

static void fill(uint8_t *bytes, uint64_t count) {
    static const uint8_t ends[] = {0, 127, 128, 255}; // where sums are largest
    for (uint64_t i = 0; i < count; i++) {
        uint64_t bits = draw();
        bytes[i] = bits & 0x300 ? (uint8_t)bits : ends[bits % 4];
    }
}

// ---- panels -------------------------------------------------------------------------------------

// The byte of row k, column j, by the picture in the header.
static uint8_t panel_byte(const rn_column_panels *p, const uint8_t *data, uint64_t k, uint64_t j) {
    return data[j / 16 * p->panel_bytes + p->head_bytes + k / 4 * 64 + j % 16 * 4 + k % 4];
}

static void check_panels(rn_dtype dtype, const uint64_t dims[2], const uint8_t *plain,
                         const uint8_t *data) {
    rn_column_panels p;
    assert_true(rn_column_panels_of(dtype, dims[0], dims[1], &p));
    uint8_t flip = dtype == RN_DTYPE_U8 ? 0x80 : 0;
    for (uint64_t j = 0; j < p.count * 16; j++) {
        int32_t sum = 0, held;
        for (uint64_t k = 0; k < (dims[0] + 63) / 64 * 64; k++) {
            uint8_t byte = panel_byte(&p, data, k, j);
            bool inside = k < dims[0] && j < dims[1];
            assert_int_equal(byte, inside ? plain[k * dims[1] + j] ^ flip : 0);
            sum += (int8_t)byte;
        }
        memcpy(&held, data + j / 16 * p.panel_bytes + j % 16 * 4, sizeof held);
        assert_int_equal(held, sum);
    }
}

static test_guard pack(rn_dtype dtype, const uint64_t dims[2], const uint8_t *plain,
                       uint64_t piece) {
    uint64_t bytes = 0, total = dims[0] * dims[1] * (dtype == RN_DTYPE_F32 ? 4 : 1);
    rn_packer_room room;
    assert_true(rn_layout_bytes(RN_LAYOUT_COLUMN_PANELS, dtype, dims[0], dims[1], &bytes));
    test_guard guard = test_guard_make(bytes);
    memset(guard.data, 0xa5, bytes);
    assert_ok(RN_LAYOUT_COLUMN_PANELS->begin(&room, dtype, dims, 2, NULL, guard.data));
    for (uint64_t at = 0, take; at < total; at += take) {
        take = total - at < piece ? total - at : piece;
        assert_ok(RN_LAYOUT_COLUMN_PANELS->take(&room, RN_COMPONENT_DATA, at, plain + at, take));
    }
    assert_int_equal(RN_LAYOUT_COLUMN_PANELS->take(&room, RN_COMPONENT_DATA, total, plain, 1),
                     RN_INVALID);
    assert_true(test_guard_intact(&guard));
    return guard;
}

static void panels_are_the_same_from_any_pieces(void **unused) {
    static const uint64_t shapes[][2] = {{1, 1}, {70, 33}, {64, 16}, {7, 48}};
    static const rn_dtype dtypes[] = {RN_DTYPE_I8, RN_DTYPE_U8};
    (void)unused;
    for (uint64_t i = 0; i < 8; i++) {
        const uint64_t *dims = shapes[i / 2];
        uint8_t *plain = malloc(dims[0] * dims[1]);
        fill(plain, dims[0] * dims[1]);
        for (uint64_t piece = 1; piece < 5000; piece = piece * 3 + 1) {
            test_guard packed = pack(dtypes[i % 2], dims, plain, piece);
            check_panels(dtypes[i % 2], dims, plain, packed.data);
            test_guard_free(&packed);
        }
        free(plain);
    }
}

static void floats_lie_as_16_columns_side_by_side(void **unused) {
    const uint64_t dims[2] = {5, 37};
    float plain[5 * 37];
    (void)unused;
    for (int i = 0; i < 5 * 37; i++)
        plain[i] = (float)(i + 1);
    for (uint64_t piece = 1; piece < 1000; piece = piece * 5 + 2) {
        test_guard packed = pack(RN_DTYPE_F32, dims, (const uint8_t *)plain, piece);
        const float *data = (const float *)(const void *)packed.data;
        for (uint64_t j = 0; j < 48; j++)
            for (uint64_t k = 0; k < 5; k++)
                assert_float_equal(data[(j / 16 * 5 + k) * 16 + j % 16],
                                   j < 37 ? plain[k * 37 + j] : 0, 0);
        test_guard_free(&packed);
    }
}

static void what_has_no_panels_is_refused(void **unused) {
    const uint64_t dims[3] = {4, 4, 4};
    rn_packer_room room;
    uint64_t bytes;
    uint8_t target[64];
    (void)unused;
    assert_false(rn_layout_bytes(RN_LAYOUT_COLUMN_PANELS, RN_DTYPE_F16, 4, 4, &bytes));
    assert_false(rn_layout_bytes(RN_LAYOUT_COLUMN_PANELS, RN_DTYPE_U8, UINT64_MAX / 2, 64, &bytes));
    assert_false(rn_layout_bytes(RN_LAYOUT_COLUMN_PANELS, RN_DTYPE_I8, UINT64_MAX, 1, &bytes));
    assert_int_equal(RN_LAYOUT_COLUMN_PANELS->begin(&room, RN_DTYPE_U8, dims, 3, NULL, target),
                     RN_INVALID);
}

// ---- tiles --------------------------------------------------------------------------------------

static void check_set(const rn_byte_set *set, uint32_t rows, uint32_t panels, uint64_t depth) {
    uint64_t held = (rows + set->row_unit - 1) / set->row_unit * set->row_unit;
    uint8_t *a = malloc(held * depth), *b = malloc(panels * depth * 16);
    uint32_t sums[RN_BYTE_ROWS * RN_BYTE_COLUMNS];
    fill(a, held * depth);
    fill(b, panels * depth * 16);
    rn_byte_tile tile = {a, depth, b, depth * 16, depth, rows, panels, sums};
    if (set->begin) set->begin();
    set->run(&tile);
    if (set->end) set->end();
    for (uint32_t i = 0; i < rows; i++)
        for (uint32_t j = 0; j < panels * 16; j++) {
            uint32_t sum = 0;
            for (uint64_t k = 0; k < depth; k++)
                sum += (uint32_t)(a[i * depth + k] *
                                  (int8_t)b[j / 16 * depth * 16 + k / 4 * 64 + j % 16 * 4 + k % 4]);
            assert_int_equal(sums[i * RN_BYTE_COLUMNS + j], sum);
        }
    free(a);
    free(b);
}

static void every_levels_tiles_give_exact_sums(void **unused) {
    const rn_byte_set *sets[5] = {&rn_byte_portable};
    uint32_t count = 1;
    (void)unused;
    rn_cpu_level_force(RN_CPU_AVX2);
    if (rn_cpu_level_get() == RN_CPU_AVX2) sets[count++] = &rn_byte_avx2;
    if (rn_cpu_has_avxvnni()) sets[count++] = &rn_byte_avxvnni;
    rn_cpu_level_force(RN_CPU_AVX512);
    if (rn_cpu_has_vnni()) sets[count++] = &rn_byte_vnni;
    if (rn_cpu_has_amx()) sets[count++] = &rn_byte_amx;
    for (uint32_t s = 0; s < count; s++)
        for (uint32_t rows = 1; rows <= sets[s]->rows; rows++)
            for (uint32_t panels = 1; panels <= sets[s]->panels; panels++)
                check_set(sets[s], rows, panels, rows % 2 ? 64 : 128);
}

// ---- calls --------------------------------------------------------------------------------------

typedef struct product {
    rn_tensor in[4], out;
} product;

static rn_tensor bytes_of(rn_dtype dtype, rn_shape shape) {
    rn_tensor t = {.dtype = dtype, .shape = shape};
    t.data = malloc(rn_tensor_elements(&t) * 4 + 1);
    fill(t.data, rn_tensor_elements(&t));
    return t;
}

static void run(const product *p, rn_workers *workers, rn_tensor y) {
    rn_call call = {.op = RN_OP_PRODUCT,
                    .inputs = p->in,
                    .outputs = &y,
                    .input_count = 4,
                    .output_count = 1,
                    .workers = workers,
                    .threads = workers ? 3 : 1};
    test_guard workspace = test_guard_make(rn_cpu_product_workspace(&call));
    call.workspace = workspace.data;
    assert_ok(rn_cpu_product(&call));
    assert_true(test_guard_intact(&workspace));
    test_guard_free(&workspace);
}

static void check_call(const product *p, rn_workers *workers) {
    uint64_t bytes = rn_tensor_elements(&p->out) * 4;
    rn_tensor expected = p->out, y = p->out;
    expected.data = malloc(bytes);
    rn_call call = {.op = RN_OP_PRODUCT,
                    .inputs = p->in,
                    .outputs = &expected,
                    .input_count = 4,
                    .output_count = 1,
                    .threads = 1};
    assert_ok(rn_op_get(RN_OP_PRODUCT)->reference(&call));
    test_guard packed = pack(p->in[1].dtype, p->in[1].shape.dims, p->in[1].data, UINT64_MAX);
    for (int level = 0; level < RN_CPU_LEVEL_COUNT; level++) {
        rn_cpu_level_force((rn_cpu_level)level);
        for (int how = 0; how < 4; how++) {
            product q = *p;
            if (how & 1) q.in[1].layout = RN_LAYOUT_COLUMN_PANELS, q.in[1].data = packed.data;
            memset(y.data, 0xa5, bytes);
            run(&q, how & 2 ? workers : NULL, y);
            assert_memory_equal(y.data, expected.data, bytes);
        }
    }
    free(expected.data);
    test_guard_free(&packed);
}

static void calls_give_the_references_numbers(void **unused) {
    static const uint64_t sizes[][3] = {{1, 300, 70}, {7, 64, 16}, {33, 130, 97}, {70, 65, 40}};
    static const rn_dtype dtypes[] = {RN_DTYPE_U8, RN_DTYPE_I8};
    rn_workers *workers;
    (void)unused;
    assert_ok(rn_workers_create(3, &rn_system_allocator, &workers));
    for (uint32_t i = 0; i < 16; i++) {
        const uint64_t *size = sizes[i / 4];
        rn_dtype a = dtypes[i & 1], b = dtypes[i >> 1 & 1];
        product p = {.in = {bytes_of(a, RN_SHAPE(size[0], size[1])),
                            bytes_of(b, RN_SHAPE(size[1], size[2])),
                            bytes_of(a, i & 1 ? RN_SHAPE(size[0]) : RN_SCALAR),
                            bytes_of(b, i & 2 ? RN_SHAPE(size[2]) : RN_SCALAR)},
                     .out = bytes_of(RN_DTYPE_I32, RN_SHAPE(size[0], size[2]))};
        check_call(&p, workers);
        for (int t = 0; t < 4; t++)
            free(p.in[t].data);
        free(p.out.data);
    }
    rn_workers_destroy(workers);
    rn_cpu_level_force(RN_CPU_LEVEL_COUNT - 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(panels_are_the_same_from_any_pieces),
        cmocka_unit_test(floats_lie_as_16_columns_side_by_side),
        cmocka_unit_test(what_has_no_panels_is_refused),
        cmocka_unit_test(every_levels_tiles_give_exact_sums),
        cmocka_unit_test(calls_give_the_references_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
