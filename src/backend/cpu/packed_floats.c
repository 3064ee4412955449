// packed_floats.c — products with weights that are f32, or become it: few rows of x by the kernels
// of packed_floats.h, many by gemm.h, which asks for panels of f32. (Many rows by a plain weight
// are packed_generic.c's.)
#include "backend/cpu/packed_floats.h"

#include "backend/cpu/gemm.h"
#include "backend/cpu/packed_product.h"
#include "backend/cpu/share.h"
#include "base/checked.h"
#include "base/cpu.h"

enum { TASK_PANELS = 8 };

typedef struct floats {
    const rn_packed_product *p;
    const rn_float_kernels *set;
    rn_float_form form;
    uint64_t panels_a_task;
} floats;

static const rn_float_kernels *kernels(void) {
#if defined(__x86_64__)
    if (rn_cpu_level_get() == RN_CPU_AVX512) return &rn_float_avx512;
    if (rn_cpu_level_get() == RN_CPU_AVX2) return &rn_float_avx2;
#endif
    return &rn_float_portable;
}

static rn_float_form form_of(rn_dtype dtype) {
    switch (dtype) {
    case RN_DTYPE_F32:
        return RN_FLOAT_F32;
    case RN_DTYPE_F16:
        return RN_FLOAT_F16;
    case RN_DTYPE_BF16:
        return RN_FLOAT_BF16;
    case RN_DTYPE_F8_E4M3:
        return RN_FLOAT_E4M3;
    case RN_DTYPE_INT4:
        return RN_FLOAT_INT4;
    case RN_DTYPE_NF4_DQ:
        return RN_FLOAT_NF4_DQ;
    default:
        return RN_FLOAT_NF4;
    }
}

static floats read_product(const rn_packed_product *p) {
    uint64_t share = p->panels.count / (4 * (uint64_t)p->call->threads);
    return (floats){.p = p,
                    .set = kernels(),
                    .form = form_of(p->panels.dtype),
                    .panels_a_task = rn_max_u64(1, rn_min_u64(TASK_PANELS, share))};
}

// ---- few rows -----------------------------------------------------------------------------------

// `weights` are the panels [panel, panel + panels).
static void multiply(const floats *t, const uint8_t *weights, uint64_t panel, uint64_t panels,
                     uint64_t row, rn_float_kernel *kernel) {
    const rn_packed_product *p = t->p;
    uint64_t col = panel * RN_PANEL_ROWS;
    rn_float_job job = {
        .weights = weights,
        .panel_bytes = p->panels.panel_bytes,
        .unit_cols = p->panels.unit_cols,
        .unit_bytes = p->panels.unit_bytes,
        .x = p->x + row * p->k,
        .x_row = p->k,
        .depth = p->k,
        .y = p->y + row * p->n + col,
        .y_row = p->n,
        .cols = (uint32_t)rn_min_u64(panels * RN_PANEL_ROWS, p->n - col),
        .bias = p->bias ? p->bias + col : NULL,
    };
    kernel(&job);
}

// All rows of x by as many panels as a kernel for that many rows takes.
static void multiply_some(void *arg, uint32_t slot, size_t index) {
    const floats *t = arg;
    uint64_t panel = index * t->panels_a_task, m = t->p->m, step = t->p->panels.panel_bytes;
    uint64_t end = rn_min_u64(panel + t->panels_a_task, t->p->panels.count);
    uint8_t *room = t->p->call->workspace;
    if (room) room += slot * rn_packed_room(t->p, t->set->panels);
    while (panel < end) {
        uint64_t some = end - panel >= t->set->panels ? t->set->panels : 1;
        const uint8_t *weights = rn_packed_panels(t->p, panel, some, room);
        for (uint64_t row = 0, size = 0; row < m; row += t->set->sizes[size]) {
            while (t->set->sizes[size] > m - row)
                size++;
            rn_float_kernel *many = t->set->many[t->form][size];
            if (some > 1 && many)
                multiply(t, weights, panel, some, row, many);
            else
                for (uint64_t i = 0; i < some; i++)
                    multiply(t, weights + i * step, panel + i, 1, row,
                             t->set->direct[t->form][size]);
        }
        panel += some;
    }
}

// ---- many rows ----------------------------------------------------------------------------------

static void unpack(const void *source, size_t panel, size_t k, size_t depth, float *to) {
    const floats *t = source;
    const rn_panels *panels = &t->p->panels;
    t->set->unpack(t->form, t->p->weights + panel * panels->panel_bytes, panels->unit_cols,
                   panels->unit_bytes, k, depth, to);
}

static rn_gemm gemm_of(const floats *t) {
    const rn_packed_product *p = t->p;
    return (rn_gemm){.m = p->m,
                     .n = p->n,
                     .k = p->k,
                     .a = {p->x, p->k, 1},
                     .b_is_panels = t->form == RN_FLOAT_F32,
                     .b_panels = (const float *)(const void *)p->weights,
                     .pack = t->form == RN_FLOAT_F32 ? NULL : unpack,
                     .source = t,
                     .c = p->y,
                     .c_row = p->n,
                     .bias = p->bias};
}

uint64_t rn_packed_floats_few(void) {
    return kernels()->direct_rows;
}

uint64_t rn_packed_floats_workspace(const rn_packed_product *p) {
    floats t = read_product(p);
    if (p->m <= t.set->direct_rows || p->plain)
        return p->call->threads * rn_packed_room(p, t.set->panels);
    rn_gemm gemm = gemm_of(&t);
    return rn_gemm_workspace(&gemm, p->call->threads);
}

void rn_packed_floats_run(const rn_packed_product *p) {
    floats t = read_product(p);
    if (p->m <= t.set->direct_rows) {
        rn_share(p->call, (size_t)rn_div_up(p->panels.count, t.panels_a_task), multiply_some, &t);
        return;
    }
    rn_gemm gemm = gemm_of(&t);
    rn_gemm_run(&gemm, p->call, p->call->workspace);
}
