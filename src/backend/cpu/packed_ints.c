// packed_ints.c — products with rounded activations: which kernel works on what.
//
// All rows of x are rounded into strips first. A few strips are then multiplied by panels as they
// lie: that is a matter of reading weights, which one strip of up to eight rows takes from memory
// and the others from the cache. For more rows, a task unpacks the next TILE_BLOCKS blocks of a few
// panels into its tile, which stays in the first cache while all strips pass by; sums wait in y for
// the next part. Every output is one chain over the blocks in order, so nothing of this shows in
// its bits.
#include "backend/cpu/packed_product.h"

#include "backend/cpu/share.h"
#include "base/checked.h"
#include "base/cpu.h"

enum {
    TILE_BLOCKS = 16, // whole superblocks; 4 panels of it are 36 to 44 KiB
    TASK_PANELS = 8,  // of a direct product
    ALONE = 1 << 16,  // products up to which threads are not worth waking
};

typedef struct ints {
    const rn_packed_product *p;
    const rn_int_kernels *set;
    rn_int_form form;
    rn_int_kind kind;
    bool direct;
    uint64_t strip;       // rows of a whole one
    uint64_t blocks;      // of 32 columns
    uint64_t chunk;       // blocks that are multiplied at once
    uint64_t strip_bytes; // of all strips
    uint64_t tile_bytes;  // of a slot
    uint64_t room_bytes;  // of a slot: panels of a plain weight
    uint64_t panels_a_task;
    uint8_t *strips, *rooms, *tiles;
} ints;

// ---- choices ------------------------------------------------------------------------------------

const rn_int_kernels *rn_int_kernels_get(void) {
#if defined(__x86_64__)
    if (rn_cpu_has_vnni()) return &rn_int_vnni;
    if (rn_cpu_level_get() >= RN_CPU_AVX2) return &rn_int_avx2;
#endif
    return &rn_int_portable;
}

rn_int_form rn_int_form_of(rn_dtype dtype) {
#define FORM(DTYPE, ...) [RN_DTYPE_##DTYPE] = RN_INT_##DTYPE,
    static const uint8_t forms[RN_DTYPE_COUNT] = {RN_ROUNDED_KINDS(FORM)};
#undef FORM
    return (rn_int_form)forms[dtype];
}

// What weights have been shifted by, as the level's kernels see them.
static int offset_of(const ints *t) {
    int offset = rn_int_offset(t->form);
    return offset == 128 ? t->set->byte_offset : offset;
}

// As many panels as kernels take at once, or a few times that for direct products; fewer where that
// leaves threads without work.
static uint64_t choose_panels(const ints *t) {
    uint64_t most = t->direct ? TASK_PANELS : t->set->panels;
    uint64_t share = t->p->panels.count / (2 * (uint64_t)t->p->call->threads);
    if (share >= most) return most;
    return share >= t->set->panels ? t->set->panels : 1;
}

// Rows of as even strips as `most` allows.
static uint64_t even_strip(uint64_t rows, uint64_t most) {
    return rn_div_up(rows, rn_div_up(rows, most));
}

// Rows of a strip of direct products: as even as the form's kernels allow.
static uint64_t direct_strip(const ints *t) {
    rn_int_kernel *const *kernels = t->set->direct_many[t->form];
    uint64_t rows = t->p->m, most = t->set->strip_rows;
    for (;; most--) {
        uint64_t strip = even_strip(rows, most), last = rows - (rows - 1) / strip * strip;
        if (strip == 1 || (kernels[strip - 1] && kernels[last - 1])) return strip;
    }
}

static ints read_product(const rn_packed_product *p) {
    ints t = {.p = p, .set = rn_int_kernels_get(), .form = rn_int_form_of(p->panels.dtype)};
    t.kind = rn_int_kind_of(t.form);
    t.direct = p->m <= t.set->direct_rows[t.form];
    if (!t.direct) t.kind = (rn_int_kind)t.set->tile_kind[t.kind];
    t.strip = t.direct ? direct_strip(&t) : t.set->rows;
    t.blocks = rn_div_up(p->k, RN_INT_BLOCK);
    t.chunk = t.direct ? t.blocks : rn_min_u64(t.blocks, TILE_BLOCKS);
    t.strip_bytes = rn_round_up(p->m * t.blocks * rn_strip_block_bytes(t.kind), 64);
    t.panels_a_task = choose_panels(&t);
    if (!t.direct) t.tile_bytes = t.panels_a_task * t.chunk * rn_tile_block_bytes(t.kind);
    t.room_bytes = rn_packed_room(p, t.set->panels);
    t.strips = p->call->workspace;
    t.rooms = t.strips ? t.strips + t.strip_bytes : NULL;
    t.tiles = t.rooms ? t.rooms + p->call->threads * t.room_bytes : NULL;
    return t;
}

uint64_t rn_packed_ints_workspace(const rn_packed_product *p) {
    ints t = read_product(p);
    return t.strip_bytes + p->call->threads * (t.room_bytes + t.tile_bytes);
}

// ---- strips -------------------------------------------------------------------------------------
//
// Strips of the first chunk of blocks stand one after the other, then those of the next: while a
// tile waits in the cache, what passes by is one stream.

static uint64_t blocks_from(const ints *t, uint64_t block) {
    return rn_min_u64(t->chunk, t->blocks - block);
}

static uint32_t strip_rows(const ints *t, uint64_t row) {
    return (uint32_t)rn_min_u64(t->strip, t->p->m - row);
}

// The strip at `row`, from `block`, the first of a chunk, on.
static uint8_t *strip_at(const ints *t, uint64_t row, uint64_t block) {
    uint64_t before = t->p->m * block + row * blocks_from(t, block);
    return t->strips + before * rn_strip_block_bytes(t->kind);
}

// TILE_BLOCKS blocks of a strip: a chunk, or a part of the only one.
static void round_part(void *arg, size_t index) {
    const ints *t = arg;
    uint64_t parts = rn_div_up(t->blocks, TILE_BLOCKS), k = t->p->k;
    uint64_t row = index / parts * t->strip, block = index % parts * TILE_BLOCKS;
    uint64_t first = block * RN_INT_BLOCK, chunk = block / t->chunk * t->chunk;
    uint32_t rows = strip_rows(t, row);
    uint64_t cols = rn_min_u64(k - first, TILE_BLOCKS * RN_INT_BLOCK);
    t->set->quantize(t->p->x + row * k + first, k, rows, cols, t->kind, offset_of(t),
                     strip_at(t, row, chunk) +
                         (block - chunk) * rows * rn_strip_block_bytes(t->kind));
}

// ---- products -----------------------------------------------------------------------------------

// The job of some panels, which begin at `from`, by the strip at `row`, from the first block to the
// last.
static rn_int_job job_at(const ints *t, const uint8_t *from, uint64_t panel, uint64_t panels,
                         uint64_t row) {
    uint64_t col = panel * RN_PANEL_ROWS;
    return (rn_int_job){
        .weights = from + t->p->panels.head_bytes,
        .panel_bytes = panels > 1 ? t->p->panels.panel_bytes : 0,
        .x = strip_at(t, row, 0),
        .blocks = t->blocks,
        .y = t->p->y + row * t->p->n + col,
        .y_row = t->p->n,
        .cols = (uint32_t)rn_min_u64(panels * RN_PANEL_ROWS, t->p->n - col),
        .row_scale = t->form == RN_INT_INT8 ? (const float *)(const void *)from : NULL,
        .bias = t->p->bias ? t->p->bias + col : NULL,
    };
}

static const uint8_t *panels_at(const ints *t, uint32_t slot, uint64_t panel, uint64_t panels) {
    return rn_packed_panels(t->p, panel, panels, t->rooms + slot * t->room_bytes);
}

// One strip by `some` panels. A last row that is left alone goes panel by panel: kernels of one row
// take more panels at once than those of strips.
static void multiply_strip(const ints *t, const uint8_t *from, uint64_t panel, uint64_t some,
                           uint64_t row) {
    uint32_t rows = strip_rows(t, row);
    if (rows > 1 || some == t->set->panels) {
        rn_int_job job = job_at(t, from, panel, some, row);
        t->set->direct_many[t->form][rows - 1](&job);
        return;
    }
    for (uint64_t i = 0; i < some; i++) {
        rn_int_job job = job_at(t, from + i * t->p->panels.panel_bytes, panel + i, 1, row);
        t->set->direct[t->form](&job);
    }
}

static void multiply_directly(void *arg, uint32_t slot, size_t index) {
    const ints *t = arg;
    uint64_t panel = index * t->panels_a_task, some;
    uint64_t group = t->strip > 1 ? t->set->strip_panels : t->set->panels;
    uint64_t end = rn_min_u64(panel + t->panels_a_task, t->p->panels.count);
    for (; panel < end; panel += some) {
        some = end - panel >= group ? group : 1;
        const uint8_t *from = panels_at(t, slot, panel, some);
        for (uint64_t row = 0; row < t->p->m; row += t->strip)
            multiply_strip(t, from, panel, some, row);
    }
}

// All strips by the tile, which holds blocks [block, block + count) of some panels, those `from`.
static void multiply_tile(const ints *t, const uint8_t *tile, const uint8_t *from, uint64_t panel,
                          uint64_t panels, uint64_t block, uint64_t count) {
    rn_int_kernel *const *kernel = panels > 1 ? t->set->tile_many[t->kind] : t->set->tile[t->kind];
    bool last = block + count == t->blocks;
    for (uint64_t row = 0; row < t->p->m; row += t->strip) {
        uint32_t rows = strip_rows(t, row);
        rn_int_job job = job_at(t, from, panel, panels, row);
        job.weights = tile;
        job.x = strip_at(t, row, block);
        job.blocks = count;
        job.resume = block > 0;
        if (!last) job.row_scale = job.bias = NULL;
        kernel[rows - 1](&job);
    }
}

// A task's panels together, or one by one where they are fewer than kernels take.
static void multiply_unpacked(void *arg, uint32_t slot, size_t index) {
    const ints *t = arg;
    uint64_t panel = index * t->panels_a_task, some;
    uint64_t end = rn_min_u64(panel + t->panels_a_task, t->p->panels.count);
    uint64_t block_bytes = rn_tile_block_bytes(t->kind);
    uint8_t *tile = t->tiles + slot * t->tile_bytes;
    for (; panel < end; panel += some) {
        some = end - panel >= t->set->panels ? t->set->panels : 1;
        const uint8_t *from = panels_at(t, slot, panel, some);
        const uint8_t *units = from + t->p->panels.head_bytes;
        for (uint64_t block = 0, count; block < t->blocks; block += count) {
            count = blocks_from(t, block);
            for (uint64_t i = 0; i < some; i++)
                t->set->unpack(t->form, units + i * t->p->panels.panel_bytes, block, count,
                               tile + i * block_bytes, some * block_bytes);
            multiply_tile(t, tile, from, panel, some, block, count);
        }
    }
}

void rn_packed_ints_run(const rn_packed_product *p) {
    ints t = read_product(p);
    rn_call alone = *p->call;
    const rn_call *call = p->call;
    if (p->m * p->n * p->k <= ALONE) alone.workers = NULL, call = &alone;
    size_t tasks = (size_t)rn_div_up(p->panels.count, t.panels_a_task);
    size_t parts = (size_t)(rn_div_up(p->m, t.strip) * rn_div_up(t.blocks, TILE_BLOCKS));
    rn_call_each(call, parts, round_part, &t);
    rn_share(call, tasks, t.direct ? multiply_directly : multiply_unpacked, &t);
}
