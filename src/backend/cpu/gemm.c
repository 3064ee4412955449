// gemm.c — blocks that fit the caches, packed by all threads, then multiplied by all threads.
//
//     for each block of columns (NC) and of k (KC): pack it, [k][16] panels, into the workspace
//         for each block of rows (MC): pack it, [k][lanes] panels; or leave it where it stands
//             tiles of C: a few rows by a few panels of columns at a time
//
// A tile's rows of A stay in the first cache while a task's panels of B pass by, which stay in the
// second. So rows of A that are contiguous along k need no packing. Packing and multiplying are two
// loops over threads with a barrier between them.
//
// Few rows are another matter: every element of B is used a few times only, so B goes through the
// first cache once, packed by the thread that needs it, and A is read where it stands. Nor is there
// a barrier where nothing is packed: a task then goes through all of k by itself.
#include "backend/cpu/gemm.h"

#include "backend/cpu/share.h"
#include "base/checked.h"

enum {
    KC = 384,                // k's of a block
    DEPTH_UNIT = 32,         // that blocks begin at: a block of every quantised form
    MC = 672,                // rows of a block, a multiple of every level's tile
    NC = 1024,               // columns of a block
    DEEP_FLOATS = 1 << 17,   // of small blocks, which are deeper
    FEW = 8,                 // rows up to which A is read where it stands
    FEW_DEPTH = 1024,        // of B at once then, where a row of memory is a column of it
    FEW_COLUMNS = 128,       // ... where it is a k
    FEW_PACKED = 128,        // ... where the caller packs it
    TASK_FLOATS = 16384,     // that a packing task packs at least
    TASK_PRODUCTS = 1 << 17, // of a multiplying task at least
    TASK_ROWS = 24,          // tiles of rows of a multiplying task
    TASK_COLS = 4,           // tiles of columns: their panels stay in the second cache
    COLUMN_DEPTH = 32,       // k's that are packed at once where each is a row of memory
};

typedef struct block {
    const rn_gemm *g;
    const rn_tile_set *set;
    const rn_tile_set *packer; // of B
    float *a, *b;              // packed
    size_t m, n, k;            // where it begins
    size_t mc, nc, kc;         // how large it is
    size_t a_panels, b_panels;
    size_t panels_a_task;        // packing
    size_t tile_rows, tile_cols; // panels of a multiplying task
} block;

static size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

// ---- sizes --------------------------------------------------------------------------------------

static bool is_few(const rn_gemm *g) {
    return g->m <= FEW;
}

// Rows of A are read where they stand: a tile's few rows stay in the first cache.
static bool is_direct(const rn_gemm *g) {
    return g->a.k_step == 1;
}

// Nothing is packed.
static bool is_in_place(const rn_gemm *g) {
    return g->b_is_panels && is_direct(g);
}

// Blocks of equal size rather than full ones and a rest.
static size_t even(size_t whole, size_t most, size_t unit) {
    if (whole <= most) return whole;
    return (size_t)rn_div_up(rn_div_up(whole, rn_div_up(whole, most)), unit) * unit;
}

// Floats of a k of the packed blocks.
static size_t lanes_of(const rn_gemm *g, const rn_tile_set *set, bool of_b) {
    if (of_b) return g->b_is_panels ? 0 : (size_t)rn_round_up(least(g->n, NC), RN_PANEL);
    if (is_direct(g)) return 0;
    return (size_t)rn_div_up(least(g->m, MC), set->rows) * set->lanes;
}

// Small blocks may be deeper: the loops over threads are fewer.
static size_t block_depth(const rn_gemm *g, const rn_tile_set *set) {
    size_t lanes = lanes_of(g, set, false) + lanes_of(g, set, true);
    size_t depth = lanes ? DEEP_FLOATS / lanes : KC;
    return even(g->k, depth > KC ? rn_round_down(depth, DEPTH_UNIT) : KC, DEPTH_UNIT);
}

// A single row has a sum for each panel of a tile: the more of them, the less they wait.
static const rn_tile_set *few_set(const rn_gemm *g) {
    return g->pack && is_direct(g) ? rn_tile_set_gemm() : rn_tile_set_get();
}

// Pieces of B that a thread packs for itself: long runs of memory.
static size_t few_depth(const rn_gemm *g) {
    return g->pack ? FEW_PACKED : g->b.k_step == 1 ? FEW_DEPTH : KC;
}

static size_t few_columns(const rn_gemm *g) {
    if (g->pack) return RN_PANEL * few_set(g)->panels;
    return g->b.k_step == 1 ? RN_TILE_WIDTH : FEW_COLUMNS;
}

// Never less for larger m, n or k: a product of fewer rows must do with the workspace of the most.
uint64_t rn_gemm_workspace(const rn_gemm *g, uint32_t threads) {
    const rn_tile_set *set = rn_tile_set_gemm();
    uint64_t lanes = lanes_of(g, set, false) + lanes_of(g, set, true), floats = 0;
    if (!g->b_is_panels) floats = (uint64_t)threads * few_columns(g) * least(g->k, few_depth(g));
    if (!is_few(g)) {
        floats = rn_max_u64(floats, lanes * least(g->k, KC));
        floats = rn_max_u64(floats, rn_min_u64(lanes * g->k, DEEP_FLOATS));
    }
    return rn_round_up(floats * sizeof(float), 64);
}

// ---- packing ------------------------------------------------------------------------------------

// Lanes [first, first + count) of a side, at most 16, into [k][width].
static void pack_lanes(const rn_tile_set *set, const rn_gemm_side *side, size_t first, size_t count,
                       size_t k, size_t depth, float *to, size_t width) {
    const float *from = side->data + first * side->lane_step + k * side->k_step;
    rn_tile_pack(set, from, side->lane_step, side->k_step, (uint32_t)count, depth, to, width);
}

static void pack_a(const block *s, size_t panel, size_t k, size_t depth) {
    size_t row = panel * s->set->rows, width = s->set->lanes;
    pack_lanes(s->set, &s->g->a, s->m + row, least(s->mc - row, s->set->rows), s->k + k, depth,
               s->a + (panel * s->kc + k) * width, width);
}

static void pack_b(const block *s, size_t panel, size_t k, size_t depth) {
    size_t col = panel * RN_PANEL;
    float *to = s->b + (panel * s->kc + k) * RN_PANEL;
    if (s->g->pack)
        s->g->pack(s->g->source, s->n / RN_PANEL + panel, s->k + k, depth, to);
    else
        pack_lanes(s->packer, &s->g->b, s->n + col, least(s->nc - col, RN_PANEL), s->k + k, depth,
                   to, RN_PANEL);
}

// Neighbouring panels read the same rows of memory where a row is a k: so a few k's of all of them
// at a time.
static void pack_panels(const block *s, bool of_b, size_t first, size_t end) {
    const rn_gemm_side *side = of_b ? &s->g->b : &s->g->a;
    size_t step = side->k_step == 1 || (of_b && s->g->pack) ? s->kc : COLUMN_DEPTH, depth;
    for (size_t k = 0; k < s->kc; k += depth) {
        depth = least(s->kc - k, step);
        for (size_t panel = first; panel < end; panel++)
            (of_b ? pack_b : pack_a)(s, panel, k, depth);
    }
}

// Panels of A, then those of B.
static void pack_some(void *arg, size_t index) {
    const block *s = arg;
    size_t first = index * s->panels_a_task, middle = is_direct(s->g) ? 0 : s->a_panels;
    size_t end = least(first + s->panels_a_task, middle + s->b_panels);
    if (first < middle) pack_panels(s, false, first, least(end, middle));
    if (end > middle) pack_panels(s, true, first > middle ? first - middle : 0, end - middle);
}

// ---- multiplying --------------------------------------------------------------------------------

// What all tiles of a block have in common.
static rn_tile tile_of(const block *s) {
    const rn_gemm *g = s->g;
    bool direct = is_direct(g);
    return (rn_tile){.a_row = direct ? g->a.lane_step : 1,
                     .a_k = direct ? 1 : s->set->lanes,
                     .b_panel = RN_PANEL * (g->b_is_panels ? g->k : s->kc),
                     .c_row = g->c_row,
                     .outer = 1,
                     .inner = 1,
                     .depth = s->kc,
                     .resume = s->k > 0 || g->resume};
}

static const float *a_of(const block *s, size_t row) {
    if (!is_direct(s->g)) return s->a + row / s->set->rows * s->set->lanes * s->kc;
    return s->g->a.data + (s->m + row) * s->g->a.lane_step + s->k;
}

static const float *b_of(const block *s, size_t col) {
    if (!s->g->b_is_panels) return s->b + col * s->kc;
    return s->g->b_panels + (s->n + col) * s->g->k + s->k * RN_PANEL;
}

// Tiles of rows [first, end) by columns [col, right), over the k's of the block. One description
// serves them all: a new one for each would be read before it has left the store buffer.
static void multiply_tiles(const block *s, size_t first, size_t end, size_t col, size_t right) {
    const rn_gemm *g = s->g;
    const size_t width = RN_PANEL * s->set->panels;
    const float *bias = s->k + s->kc == g->k ? g->bias : NULL;
    rn_tile t = tile_of(s);
    for (size_t panel = first; panel < end; panel++) {
        size_t row = panel * s->set->rows;
        t.rows = (uint32_t)least(s->mc - row, s->set->rows);
        t.a[0] = a_of(s, row);
        t.a[1] = t.a[0] + s->set->group * t.a_row;
        for (size_t at = col; at < right; at += width) {
            t.b = b_of(s, at);
            t.bias = bias ? bias + s->n + at : NULL;
            t.cols = (uint32_t)least(s->nc - at, width);
            t.c[0] = g->c + (s->m + row) * g->c_row + s->n + at;
            t.c[1] = t.c[0] + s->set->group * g->c_row;
            t.next_c = t.c[0] + width;
            s->set->run(&t);
        }
    }
}

static void multiply_some(void *arg, size_t index) {
    const block *s = arg;
    size_t width = RN_PANEL * s->set->panels;
    size_t across = (size_t)rn_div_up(s->nc, s->tile_cols * width);
    size_t down = (size_t)rn_div_up(s->a_panels, s->tile_rows);
    // The larger side goes by once: neighbouring tasks share what they read of it.
    bool by_columns = is_in_place(s->g) && s->nc > s->mc;
    size_t first = (by_columns ? index % down : index / across) * s->tile_rows;
    size_t col = (by_columns ? index / down : index % across) * s->tile_cols * width;
    size_t end = least(first + s->tile_rows, s->a_panels);
    size_t right = least(col + s->tile_cols * width, s->nc);
    if (!is_in_place(s->g)) {
        multiply_tiles(s, first, end, col, right);
        return;
    }
    block part = *s;
    do {
        part.kc = least(s->g->k - part.k, s->kc);
        multiply_tiles(&part, first, end, col, right);
        part.k += s->kc;
    } while (part.k < s->g->k);
}

// ---- blocks -------------------------------------------------------------------------------------

// Smaller tasks where large ones leave threads without work, never tiny ones.
static void choose_tasks(block *s, uint32_t threads) {
    size_t across = (size_t)rn_div_up(s->nc, RN_PANEL * s->set->panels);
    size_t depth = is_in_place(s->g) ? s->g->k : s->kc;
    size_t tile = s->set->rows * RN_PANEL * s->set->panels * depth;
    s->tile_rows = even(s->a_panels, TASK_ROWS, 1);
    s->tile_cols = least(across, TASK_COLS);
    while (rn_div_up(s->a_panels, s->tile_rows) * rn_div_up(across, s->tile_cols) < 4 * threads &&
           s->tile_rows * s->tile_cols > 1 && s->tile_rows * s->tile_cols * tile > TASK_PRODUCTS) {
        if (s->tile_cols > 1)
            s->tile_cols = (s->tile_cols + 1) / 2;
        else
            s->tile_rows = (s->tile_rows + 1) / 2;
    }
}

static void run_block(block *s, const rn_call *call, bool new_b) {
    const rn_gemm *g = s->g;
    s->a_panels = (size_t)rn_div_up(s->mc, s->set->rows);
    s->b_panels = new_b && !g->b_is_panels ? (size_t)rn_div_up(s->nc, RN_PANEL) : 0;
    s->panels_a_task = (size_t)rn_div_up(TASK_FLOATS, RN_PANEL * (s->kc ? s->kc : 1));
    size_t pack_panels = s->b_panels + (is_direct(g) ? 0 : s->a_panels);
    rn_call_each(call, (size_t)rn_div_up(pack_panels, s->panels_a_task), pack_some, s);
    choose_tasks(s, call->threads);
    size_t across = (size_t)rn_div_up(s->nc, s->tile_cols * RN_PANEL * s->set->panels);
    rn_call_each(call, (size_t)rn_div_up(s->a_panels, s->tile_rows) * across, multiply_some, s);
}

static void run_blocks(const rn_gemm *g, const rn_call *call, float *workspace) {
    const rn_tile_set *set = rn_tile_set_gemm();
    block s = {.g = g, .set = set, .packer = rn_tile_set_get(), .a = workspace};
    const size_t mc = is_direct(g) ? g->m : even(g->m, MC, set->rows),
                 nc = is_in_place(g) ? g->n : even(g->n, NC, RN_PANEL * set->panels);
    const size_t kc = block_depth(g, set);
    s.b = workspace + lanes_of(g, set, false) * kc;
    if (is_in_place(g)) {
        s.mc = mc, s.nc = nc, s.kc = kc;
        run_block(&s, call, false);
        return;
    }
    for (s.n = 0; s.n < g->n; s.n += nc) {
        s.nc = least(g->n - s.n, nc);
        s.k = 0;
        do {
            s.kc = least(g->k - s.k, kc);
            for (s.m = 0; s.m < g->m; s.m += mc) {
                s.mc = least(g->m - s.m, mc);
                run_block(&s, call, s.m == 0);
            }
            s.k += kc;
        } while (s.k < g->k);
    }
}

// ---- few rows -----------------------------------------------------------------------------------

typedef struct few {
    const rn_gemm *g;
    const rn_tile_set *set;
    float *workspace; // (threads, columns * depth)
    size_t columns;   // of a task
} few;

static void few_tiles(const few *s, size_t row, size_t col, rn_tile *t) {
    const rn_gemm *g = s->g;
    t->rows = (uint32_t)least(g->m - row, s->set->rows);
    t->c[0] = g->c + row * g->c_row + col;
    t->c[1] = t->c[0] + s->set->group * g->c_row;
    t->a[1] = t->a[0] + s->set->group * g->a.lane_step;
    s->set->run(t);
}

// Columns [col, right) by k's [k, k + depth), whose panels begin at b.
static void few_multiply(const few *s, size_t col, size_t right, size_t k, size_t depth,
                         const float *b, size_t b_panel) {
    const rn_gemm *g = s->g;
    size_t width = RN_PANEL * s->set->panels;
    for (; col < right; col += width, b += s->set->panels * b_panel)
        for (size_t row = 0; row < g->m; row += s->set->rows) {
            rn_tile t = {.a = {g->a.data + row * g->a.lane_step + k * g->a.k_step},
                         .a_row = g->a.lane_step,
                         .a_k = g->a.k_step,
                         .b = b,
                         .b_panel = b_panel,
                         .c_row = g->c_row,
                         .bias = g->bias && k + depth == g->k ? g->bias + col : NULL,
                         .cols = (uint32_t)least(right - col, width),
                         .outer = 1,
                         .inner = 1,
                         .depth = depth,
                         .resume = k > 0 || g->resume};
            few_tiles(s, row, col, &t);
        }
}

static void few_pack(const few *s, size_t col, size_t right, size_t k, size_t depth, float *to) {
    const rn_gemm *g = s->g;
    if (g->pack)
        g->pack(g->source, col / RN_PANEL, k, depth, to);
    else
        pack_lanes(s->set, &g->b, col, least(right - col, RN_PANEL), k, depth, to, RN_PANEL);
}

static void few_columns_run(void *arg, uint32_t slot, size_t index) {
    const few *s = arg;
    const rn_gemm *g = s->g;
    size_t col = index * s->columns, right = least(col + s->columns, g->n), k = 0;
    if (g->b_is_panels) {
        few_multiply(s, col, right, 0, g->k, g->b_panels + col * g->k, RN_PANEL * g->k);
        return;
    }
    const size_t most = few_depth(g);
    float *b = s->workspace + slot * s->columns * least(g->k, most);
    do {
        size_t depth = least(g->k - k, most);
        for (size_t c = col; c < right; c += RN_PANEL)
            few_pack(s, c, right, k, depth, b + (c - col) * depth);
        few_multiply(s, col, right, k, depth, b, RN_PANEL * depth);
        k += most;
    } while (k < g->k);
}

static void run_few(const rn_gemm *g, const rn_call *call, float *workspace) {
    few s = {g, few_set(g), workspace, g->b_is_panels ? RN_TILE_WIDTH : few_columns(g)};
    size_t tasks = (size_t)rn_div_up(g->n, s.columns);
    if (g->n * g->k > TASK_PRODUCTS / 4)
        rn_share(call, tasks, few_columns_run, &s);
    else
        for (size_t i = 0; i < tasks; i++)
            few_columns_run(&s, 0, i);
}

void rn_gemm_run(const rn_gemm *g, const rn_call *call, void *workspace) {
    if (g->m == 0 || g->n == 0) return;
    if (is_few(g))
        run_few(g, call, workspace);
    else
        run_blocks(g, call, workspace);
}
