// conversion.c — carries a conversion plan out: read a chunk, quantise it on all threads, hand it
// to the writer.
//
//     reader (requests in flight) ─▶ chunk ─▶ slices on threads ─▶ writer (buffers in flight)
//
// A chunk is a run of units (rows, groups, blocks) of one tensor that the reader delivers in one
// piece. int4 packs the first half of a tensor's groups with the second, so its chunks come in
// pairs, one from each half. Where rows change places (or the whole tensor is transposed), the
// chunks of a region are widened into memory first, and the output's chunks are gathered from
// there. A tensor that is made of rows of others has chunks within runs of them; rows that are no
// runs of bytes are put together in memory (assembled_rows.h), past the reader. Slices are cut by
// the tensor's shape alone, and their errors are added in order: the result does not depend on
// threads or budget.
#include "io/conversion.h"
#include "io/checkpoint.h"
#include "io/convert_plan.h"
#include "io/convert_slice.h"
#include "io/writer.h"

#include "base/buffer.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/reader.h"
#include "base/reserved.h"
#include "base/str.h"
#include "memory/account.h"
#include "memory/budget.h"
#include "tensor/quant.h"

#include <ration/log.h>

#include <math.h>

enum { SLACK_BYTES = 8192 }; // what rounding to blocks may add to a request

static const uint64_t default_budget_bytes = (uint64_t)256 << 20;

// What the buffers cost at one size of request.
typedef struct sizes {
    size_t request_bytes, slot_count;
    uint64_t chunk_elements;   // the most elements of a chunk
    uint64_t low_bytes;        // int4: the first half's chunk, one value a byte
    uint64_t unit_count;       // the most units of a chunk that have scales
    uint64_t scratch_elements; // of one thread
    uint64_t region_elements;  // the most that change places among each other
    uint64_t assembled_bytes;  // for rows that are put together: a chunk, and what that needs
    uint64_t absmax_count;     // nf4_dq: scales of a tensor and of their codes, the most
    uint64_t total_bytes;
} sizes;

typedef struct chunk {
    uint32_t item;
    bool is_high; // int4: from the second half of the groups
    uint64_t first_unit, unit_count;
} chunk;

typedef struct conversion {
    const rn_checkpoint *source;
    const rn_convert_options *options;
    const rn_translator *translator; // or NULL
    rn_translation translation;
    uint64_t budget, held_before; // before anything was opened
    rn_scope scope;               // what this thread has taken since
    rn_convert_plan plan;
    sizes size;
    rn_writer *writer;
    rn_reader *reader;
    rn_workers *workers;
    chunk *chunks;      // (chunk_count)
    rn_extent *extents; // (chunk_count)
    size_t chunk_count;
    void *memory; // low, scales and shifts of two chunks, a region, a tensor's absmax, scratch,
                  // rows put together
    uint8_t *assembled; // the last of these
    float *scale, *shift, *region;
    float *absmax; // nf4_dq: of the current tensor, then their codes; their scales behind them
    rn_convert_job work;
    rn_quant_error errors[2]; // of the current tensor, or of int4's two halves: each in its order
    uint64_t done_bytes, total_bytes;
    rn_convert_result *result;
} conversion;

static uint64_t chunk_units(const rn_convert_item *item, const sizes *size) {
    uint64_t room =
        size->request_bytes - SLACK_BYTES; // of a request, and of a buffer of the writer
    const rn_dtype_info *from = rn_dtype_get(item->source->dtype);
    uint64_t readable = room / from->block_bytes * from->block_elements;
    uint64_t units = size->chunk_elements / item->unit;
    // A unit may be a part of a block (q4_k). What changes places is not read in units.
    if (!item->region) units = rn_min_u64(units, readable / item->unit);
    units = rn_min_u64(units, room / rn_slice_data_bytes(item, item->unit));
    // Whole slices, so that where a tensor is cut does not depend on the size of a request, and
    // blocks of the source, which divide a slice, are whole.
    uint64_t step = rn_slice_units(item);
    return units >= step ? units - units % step : units;
}

static bool is_put_together(const rn_convert_item *item) {
    return item->assembled && !item->rows.is_runs;
}

// Rows that are put together at once, whatever the budget.
static uint64_t assembled_rows(const rn_convert_item *item) {
    uint64_t out = rn_slice_data_bytes(item, item->rows.columns);
    return rn_max_u64(RN_ASSEMBLED_CHUNK_BYTES / 2 / rn_max_u64(item->rows.row_bytes, out), 1);
}

// Elements of a region that are read in one request: whole blocks.
static uint64_t region_step(const rn_convert_item *item, const sizes *size) {
    const rn_dtype_info *from = rn_dtype_get(item->source->dtype);
    uint64_t blocks = (size->request_bytes - SLACK_BYTES) / from->block_bytes;
    return rn_min_u64(blocks * from->block_elements, item->region);
}

// ---- chunks ------------------------------------------------------------------------------

// Converts one chunk, into the reserved spans or into `low`, and adds its errors to the tensor's.
static rn_status convert_chunk(conversion *c, const chunk *at, const uint8_t *source,
                               uint64_t scale_offset) {
    const rn_convert_item *item = &c->plan.items[at->item];
    rn_convert_job *work = &c->work;
    work->item = item;
    work->source = source;
    work->first_unit = at->first_unit;
    work->unit_count = at->unit_count;
    work->elements = rn_min_u64(at->unit_count * item->unit,
                                item->source->elements - at->first_unit * item->unit);
    work->scale = c->scale + scale_offset;
    work->shift = c->shift + scale_offset;
    return rn_convert_job_run(work, c->workers, &c->errors[at->is_high]);
}

static rn_status put_scales(conversion *c, const chunk *at, uint64_t scale_offset) {
    const rn_convert_item *item = &c->plan.items[at->item];
    uint64_t offset = at->first_unit * sizeof(float);
    size_t bytes = (size_t)at->unit_count * sizeof(float);
    if (item->state != RN_NO_TENSOR) { // until all are there
        memcpy(c->absmax + at->first_unit, c->scale + scale_offset, bytes);
        return RN_OK;
    }
    if (item->scale != RN_NO_TENSOR)
        RN_TRY(rn_writer_put(c->writer, item->scale, offset, c->scale + scale_offset, bytes));
    if (item->shift != RN_NO_TENSOR)
        RN_TRY(rn_writer_put(c->writer, item->shift, offset, c->shift + scale_offset, bytes));
    return RN_OK;
}

static rn_status read_chunk(conversion *c, rn_reader_piece *piece) {
    rn_scope scope;
    rn_scope_begin(&scope, "read", RN_DEVICE_HOST);
    rn_status s = rn_reader_next(c->reader, piece);
    (void)rn_scope_end(&scope);
    RN_TRY(s);
    if (piece->bytes == 0 || piece->bytes != c->extents[piece->extent].bytes)
        return rn_fail(RN_INTERNAL, "the reader did not deliver a chunk in one piece");
    return RN_OK;
}

static rn_status quantise_chunk(conversion *c, const chunk *at, const uint8_t *data,
                                uint64_t scale_offset) {
    rn_scope scope;
    rn_scope_begin(&scope, "quantise", RN_DEVICE_HOST);
    rn_status s = convert_chunk(c, at, data, scale_offset);
    (void)rn_scope_end(&scope);
    return s;
}

static rn_status advance(conversion *c, size_t bytes) {
    rn_scope scope;
    rn_scope_begin(&scope, "write", RN_DEVICE_HOST);
    rn_status s = rn_writer_advance(c->writer, bytes);
    (void)rn_scope_end(&scope);
    return s;
}

// Reads, converts and releases one chunk, and puts its scales.
static rn_status run_chunk(conversion *c, const chunk *at, uint64_t scale_offset) {
    rn_reader_piece piece;
    RN_TRY(read_chunk(c, &piece));
    RN_TRY(quantise_chunk(c, at, piece.data, scale_offset));
    c->done_bytes += piece.bytes;
    rn_reader_release(c->reader, &piece);
    if (c->options->progress) c->options->progress(c->options->self, c->done_bytes, c->total_bytes);
    return put_scales(c, at, scale_offset);
}

static rn_status run_single(conversion *c, const chunk *at) {
    const rn_convert_item *item = &c->plan.items[at->item];
    uint64_t elements = rn_min_u64(at->unit_count * item->unit,
                                   item->source->elements - at->first_unit * item->unit);
    size_t bytes = (size_t)rn_slice_data_bytes(item, elements);
    c->work.is_low = false;
    RN_TRY(rn_writer_reserve(c->writer, bytes, c->work.spans));
    RN_TRY(run_chunk(c, at, 0));
    return advance(c, bytes);
}

// A pair of int4 chunks; the second is shorter by a group, or missing, where the number of groups
// is odd.
static rn_status run_pair(conversion *c, const chunk *low, const chunk *high) {
    const rn_convert_item *item = &c->plan.items[low->item];
    uint64_t elements = low->unit_count * item->unit;
    uint64_t paired = high ? high->unit_count * item->unit : 0;
    rn_convert_job *work = &c->work;
    work->is_low = true;
    RN_TRY(run_chunk(c, low, 0));
    RN_TRY(rn_writer_reserve(c->writer, (size_t)elements, work->spans));
    work->is_low = false;
    if (high) RN_TRY(run_chunk(c, high, low->unit_count));
    rn_quant_int4_pack(work->low + paired, NULL, elements - paired, work->low + paired);
    rn_convert_job_copy(work, paired, work->low + paired, elements - paired);
    return advance(c, (size_t)elements);
}

// ---- tensors --------------------------------------------------------------------------

static void report(conversion *c, const rn_convert_item *item) {
    rn_quant_error error = c->errors[0];
    rn_quant_error_merge(&error, &c->errors[1]);
    rn_convert_row row = {
        .name = item->name,
        .from = item->source->dtype,
        .to = item->to,
        .left_alone = item->left_alone,
        .bytes_in = item->source->bytes,
        .bytes_out = item->bytes_out,
        .measured = error.count > 0,
    };
    if (row.measured) {
        row.mean_error = error.sum_abs / (double)error.count;
        row.max_error = error.max_abs;
        row.relative_error =
            error.sum_square == 0 ? 0 : sqrt(error.sum_square / error.sum_square_ref);
    }
    bool changed = item->to != item->source->dtype;
    bool was_blocks = rn_dtype_get(item->source->dtype)->block_elements > 1;
    bool is_plain = rn_dtype_get(item->to)->is_float;
    c->result->requantised_count += changed && was_blocks && !is_plain;
    c->result->weighed_count += changed && item->importance;
    c->result->converted_count += changed;
    c->result->left_count += !changed;
    c->result->bytes_in += item->source->bytes;
    if (c->options->row) c->options->row(c->options->self, &row);
}

static bool is_cancelled(const conversion *c) {
    return c->options->cancel && *c->options->cancel;
}

// Reads a region's chunks, and widens them to where they are gathered from.
static rn_status read_region(conversion *c, size_t *next, uint32_t item, uint64_t start) {
    const rn_tensor_info *t = c->plan.items[item].source;
    uint64_t end = start + c->plan.items[item].region;
    while (*next < c->chunk_count && c->chunks[*next].item == item &&
           c->chunks[*next].first_unit < end) {
        const chunk *at = &c->chunks[(*next)++];
        rn_reader_piece piece;
        RN_TRY(read_chunk(c, &piece));
        RN_TRY(rn_dtype_to_f32(t->dtype, piece.data, c->region + (at->first_unit - start),
                               at->unit_count));
        c->done_bytes += piece.bytes;
        rn_reader_release(c->reader, &piece);
        if (c->options->progress)
            c->options->progress(c->options->self, c->done_bytes, c->total_bytes);
    }
    return RN_OK;
}

// A region at a time: in, and out in chunks of the output. Here a chunk that is read counts
// elements.
static rn_status run_rearranged(conversion *c, size_t *next, uint32_t index) {
    const rn_convert_item *item = &c->plan.items[index];
    uint64_t step = chunk_units(item, &c->size), units = item->region / item->unit;
    c->work.region = c->region;
    c->work.is_low = false;
    for (uint64_t start = 0; start < item->source->elements; start += item->region) {
        if (is_cancelled(c)) return rn_fail(RN_CANCELLED, "stopped; nothing was written");
        RN_TRY(read_region(c, next, index, start));
        for (uint64_t unit = 0; unit < units; unit += step) {
            chunk at = {.item = index,
                        .first_unit = start / item->unit + unit,
                        .unit_count = rn_min_u64(step, units - unit)};
            uint64_t bytes = rn_slice_data_bytes(item, at.unit_count * item->unit);
            RN_TRY(rn_writer_reserve(c->writer, (size_t)bytes, c->work.spans));
            RN_TRY(quantise_chunk(c, &at, NULL, 0));
            RN_TRY(put_scales(c, &at, 0));
            RN_TRY(advance(c, (size_t)bytes));
        }
    }
    return RN_OK;
}

// Rows that are put together, past the reader.
static rn_status run_assembled(conversion *c, uint32_t index) {
    const rn_convert_item *item = &c->plan.items[index];
    uint64_t step = assembled_rows(item), rows = item->rows.rows;
    uint8_t *room = c->assembled + RN_ASSEMBLED_CHUNK_BYTES;
    c->work.is_low = false;
    for (uint64_t row = 0; row < rows; row += step) {
        uint64_t count = rn_min_u64(step, rows - row), elements = count * item->rows.columns;
        chunk at = {.item = index,
                    .first_unit = row * item->rows.columns / item->unit,
                    .unit_count = elements / item->unit};
        uint64_t bytes = rn_slice_data_bytes(item, elements);
        if (is_cancelled(c)) return rn_fail(RN_CANCELLED, "stopped; nothing was written");
        RN_TRY(rn_assembled_read(c->source, item->assembled, &item->rows, row, count, room,
                                 c->assembled));
        RN_TRY(rn_writer_reserve(c->writer, (size_t)bytes, c->work.spans));
        RN_TRY(quantise_chunk(c, &at, c->assembled, 0));
        RN_TRY(advance(c, (size_t)bytes));
        c->done_bytes += count * item->rows.row_bytes;
        if (c->options->progress)
            c->options->progress(c->options->self, rn_min_u64(c->done_bytes, c->total_bytes),
                                 c->total_bytes);
    }
    return RN_OK;
}

// Double quantisation: codes in the place of a tensor's absmax, their scales, and the description
// that has their offset.
static rn_status put_codes(conversion *c, const rn_convert_item *item) {
    uint64_t count = rn_div_up(item->source->elements, RN_NF4_BLOCK);
    uint64_t nested_count = rn_div_up(count, RN_NF4_NESTED);
    float *nested = c->absmax + count, offset = rn_quant_nf4_offset(c->absmax, count);
    char text[RN_CONVERT_STATE_BYTES];
    rn_buffer state;
    rn_quant_nf4_absmax(c->absmax, count, offset, (uint8_t *)c->absmax, nested);
    RN_TRY(rn_writer_put(c->writer, item->scale, 0, c->absmax, (size_t)count));
    RN_TRY(rn_writer_put(c->writer, item->shift, 0, nested, (size_t)nested_count * sizeof(float)));
    memset(text, ' ', sizeof text);
    rn_buffer_init(&state, RN_HOST_IO, sizeof text);
    rn_status s = rn_convert_describe_nf4(item, &offset, rn_buffer_sink(&state));
    if (s == RN_OK) memcpy(text, state.data, state.bytes);
    rn_buffer_free(&state);
    return s == RN_OK ? rn_writer_put(c->writer, item->state, 0, text, sizeof text) : s;
}

static rn_status run_item(conversion *c, size_t *next, uint32_t item) {
    c->errors[0] = c->errors[1] = (rn_quant_error){.count = 0};
    if (is_put_together(&c->plan.items[item])) RN_TRY(run_assembled(c, item));
    if (c->plan.items[item].region) RN_TRY(run_rearranged(c, next, item));
    while (*next < c->chunk_count && c->chunks[*next].item == item) {
        const chunk *low = &c->chunks[(*next)++], *high = NULL;
        if (is_cancelled(c)) return rn_fail(RN_CANCELLED, "stopped; nothing was written");
        if (c->plan.items[item].to != RN_DTYPE_INT4) {
            RN_TRY(run_single(c, low));
            continue;
        }
        if (*next < c->chunk_count && c->chunks[*next].item == item && c->chunks[*next].is_high)
            high = &c->chunks[(*next)++];
        RN_TRY(run_pair(c, low, high));
    }
    if (c->plan.items[item].state != RN_NO_TENSOR) RN_TRY(put_codes(c, &c->plan.items[item]));
    report(c, &c->plan.items[item]);
    return RN_OK;
}

static rn_status commit(conversion *c) {
    rn_scope scope;
    rn_scope_begin(&scope, "commit", RN_DEVICE_HOST);
    rn_status s = rn_writer_commit(c->writer);
    (void)rn_scope_end(&scope);
    return s;
}

static rn_status run_all(conversion *c) {
    size_t next = 0;
    for (size_t i = 0; i < c->plan.tensor_count; i++)
        if (c->plan.constants[i])
            RN_TRY(rn_writer_put(c->writer, i, 0, c->plan.constants[i],
                                 (size_t)c->plan.tensor_bytes[i]));
    RN_TRY(rn_reader_start(c->reader, c->extents, (uint32_t)c->chunk_count));
    for (uint32_t i = 0; i < c->plan.item_count; i++)
        RN_TRY(run_item(c, &next, i));
    RN_TRY(rn_reader_check(c->reader));
    if (is_cancelled(c)) return rn_fail(RN_CANCELLED, "stopped; nothing was written");
    if (c->translator && c->translator->finish) RN_TRY(c->translator->finish(c->translator->self));
    return commit(c);
}

// ---- sizes ----------------------------------------------------------------------------

// Everything that is neither the reader's nor the writer's.
static uint64_t work_bytes(const sizes *s, size_t threads) {
    return s->low_bytes + 4 * s->unit_count * sizeof(float) +
           threads * s->scratch_elements * RN_SLICE_SCRATCH_BYTES +
           (s->region_elements + s->absmax_count) * sizeof(float) + s->assembled_bytes;
}

static sizes measure(const rn_convert_plan *plan, size_t request_bytes, size_t slot_count,
                     size_t threads) {
    sizes s = {.request_bytes = request_bytes,
               .slot_count = slot_count,
               .chunk_elements = request_bytes,
               .scratch_elements = RN_SLICE_ELEMENTS};
    for (size_t i = 0; i < plan->item_count; i++) {
        const rn_convert_item *item = &plan->items[i];
        uint64_t units = chunk_units(item, &s);
        if (item->to == RN_DTYPE_INT4)
            s.low_bytes = rn_max_u64(s.low_bytes, rn_round_up(units * item->unit, 64));
        if (item->scale != RN_NO_TENSOR) s.unit_count = rn_max_u64(s.unit_count, units);
        if (is_put_together(item))
            s.assembled_bytes = RN_ASSEMBLED_CHUNK_BYTES + RN_ASSEMBLED_ROOM_BYTES;
        s.scratch_elements = rn_max_u64(s.scratch_elements, rn_round_up(item->unit, 64));
        s.region_elements = rn_max_u64(s.region_elements, rn_round_up(item->region, 16));
        uint64_t blocks = rn_div_up(item->source->elements, RN_NF4_BLOCK);
        if (item->state != RN_NO_TENSOR)
            s.absmax_count = rn_max_u64(s.absmax_count,
                                        rn_round_up(blocks + rn_div_up(blocks, RN_NF4_NESTED), 16));
    }
    s.unit_count = rn_round_up(s.unit_count, 16);
    rn_writer_options writing = {.buffer_bytes = request_bytes};
    s.total_bytes =
        request_bytes * slot_count + rn_writer_held_bytes(&writing) + work_bytes(&s, threads);
    return s;
}

// At least as many as there will be.
static uint64_t count_chunks(const rn_convert_plan *plan, const sizes *size) {
    uint64_t count = 0;
    for (size_t i = 0; i < plan->item_count; i++) {
        const rn_convert_item *item = &plan->items[i];
        uint64_t units = rn_div_up(item->source->elements, item->unit);
        if (is_put_together(item)) continue;
        if (item->assembled)
            count += units / chunk_units(item, size) + item->assembled->count + 1;
        else if (item->region)
            count += item->source->elements / item->region *
                     rn_div_up(item->region, region_step(item, size));
        else
            count += rn_div_up(units, chunk_units(item, size)) + 2;
    }
    return count;
}

// With these buffers, beside what is held by now. The writer lays its header out before there is a
// reader, so the two share their room.
static uint64_t need_bytes(const rn_convert_plan *plan, const sizes *size) {
    uint64_t lists = count_chunks(plan, size) * (sizeof(chunk) + sizeof(rn_extent));
    uint64_t reading = size->request_bytes * size->slot_count;
    uint64_t opening = rn_writer_opening_bytes(plan->tensors, plan->tensor_count, plan->metadata,
                                               plan->metadata_count);
    return lists + size->total_bytes + (opening > reading ? opening - reading : 0);
}

static uint64_t budget_of(const rn_convert_options *options) {
    return options->budget_bytes ? options->budget_bytes : default_budget_bytes;
}

// The smallest budget that works: enough for the smallest buffers, and for what opening the model
// took.
static rn_status refuse(const conversion *c, uint64_t held) {
    uint64_t least = rn_max_u64(held + need_bytes(&c->plan, &c->size),
                                c->held_before + c->scope.stats.peak_allocated);
    least = rn_budget_needed(least);
    // In whole MiB: what the process image costs differs a little from run to run.
    least = rn_round_up(least + ((uint64_t)128 << 10), (uint64_t)1 << 20);
    return rn_budget_refuse((rn_account){RN_DEVICE_HOST, RN_PURPOSE_STAGING, NULL},
                            c->size.total_bytes, c->budget, least);
}

// The largest buffers that fit what is left of the budget. The system's own share grows a little
// while we work (stacks, page tables); that is set aside.
static rn_status choose_sizes(conversion *c, size_t threads) {
    static const struct {
        size_t request_bytes, slot_count;
    } levels[] = {{2 << 20, 4}, {(1 << 20) + (64 << 10), 4}};
    size_t count = sizeof levels / sizeof *levels;
    uint64_t held = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    for (size_t i = 0; i < count; i++) {
        c->size = measure(&c->plan, levels[i].request_bytes, levels[i].slot_count, threads);
        uint64_t need = held + need_bytes(&c->plan, &c->size);
        if (need <= rn_budget_usable(c->budget)) return rn_budget_set(RN_DEVICE_HOST, 0, c->budget);
    }
    return refuse(c, held);
}

// ---- cutting --------------------------------------------------------------------------

static void add_chunk(conversion *c, uint32_t item_index, uint64_t first, uint64_t count,
                      bool high) {
    const rn_convert_item *item = &c->plan.items[item_index];
    const rn_tensor_info *t = item->source;
    uint64_t start = first * item->unit;
    uint64_t elements = rn_min_u64(count * item->unit, t->elements - start);
    c->chunks[c->chunk_count] = (chunk){item_index, high, first, count};
    c->extents[c->chunk_count] =
        (rn_extent){.file = t->file,
                    .offset = t->offset + rn_slice_source_bytes(item, start),
                    .bytes = rn_slice_source_bytes(item, elements)};
    c->chunk_count++;
}

static void cut_regions(conversion *c, uint32_t item_index) {
    const rn_convert_item *item = &c->plan.items[item_index];
    const rn_tensor_info *t = item->source;
    uint64_t step = region_step(item, &c->size);
    for (uint64_t start = 0; start < t->elements; start += item->region)
        for (uint64_t at = 0; at < item->region; at += step) {
            uint64_t elements = rn_min_u64(step, item->region - at);
            c->chunks[c->chunk_count] = (chunk){item_index, false, start + at, elements};
            c->extents[c->chunk_count++] =
                (rn_extent){.file = t->file,
                            .offset = t->offset + rn_slice_source_bytes(item, start + at),
                            .bytes = rn_slice_source_bytes(item, elements)};
        }
}

// Chunks of runs of rows: none has bytes of two runs.
static void cut_runs(conversion *c, uint32_t item_index) {
    const rn_convert_item *item = &c->plan.items[item_index];
    uint64_t step = chunk_units(item, &c->size), first = 0;
    for (size_t i = 0; i < item->assembled->count; i++) {
        const rn_converted_rows *r = &item->assembled->rows[i];
        const rn_tensor_info *t = rn_checkpoint_tensor(c->source, r->tensor);
        uint64_t units = r->count * item->rows.columns / item->unit;
        uint64_t start = t->offset + r->first * item->rows.row_bytes;
        for (uint64_t at = 0; at < units; at += step) {
            uint64_t count = rn_min_u64(step, units - at);
            c->chunks[c->chunk_count] = (chunk){item_index, false, first + at, count};
            c->extents[c->chunk_count++] =
                (rn_extent){.file = t->file,
                            .offset = start + rn_slice_source_bytes(item, at * item->unit),
                            .bytes = rn_slice_source_bytes(item, count * item->unit)};
        }
        first += units;
    }
}

static void cut_item(conversion *c, uint32_t item_index) {
    const rn_convert_item *item = &c->plan.items[item_index];
    uint64_t step = chunk_units(item, &c->size);
    uint64_t units = rn_div_up(item->source->elements, item->unit);
    bool paired = item->to == RN_DTYPE_INT4;
    uint64_t half = paired ? rn_div_up(units, 2) : units;
    for (uint64_t first = 0; first < half; first += step) {
        add_chunk(c, item_index, first, rn_min_u64(step, half - first), false);
        if (paired && half + first < units)
            add_chunk(c, item_index, half + first, rn_min_u64(step, units - half - first), true);
    }
}

static rn_status cut_all(conversion *c) {
    void *block;
    uint64_t count = count_chunks(&c->plan, &c->size);
    c->total_bytes = rn_checkpoint_total_bytes(c->source);
    if (count > UINT32_MAX) return rn_fail(RN_UNSUPPORTED, "the model is too large");
    RN_TRY(rn_arena_array(&c->plan.arena, (size_t)count, sizeof *c->chunks, &block));
    c->chunks = block;
    RN_TRY(rn_arena_array(&c->plan.arena, (size_t)count, sizeof *c->extents, &block));
    c->extents = block;
    for (uint32_t i = 0; i < c->plan.item_count; i++) {
        const rn_convert_item *item = &c->plan.items[i];
        if (is_put_together(item)) continue;
        if (item->assembled)
            cut_runs(c, i);
        else
            item->region ? cut_regions(c, i) : cut_item(c, i);
    }
    return RN_OK;
}

// ---- the whole ------------------------------------------------------------------------

static rn_status make_memory(conversion *c, size_t *out_bytes) {
    const sizes *s = &c->size;
    *out_bytes = (size_t)work_bytes(s, rn_workers_count(c->workers));
    RN_TRY(rn_alloc(&rn_host_allocators[RN_PURPOSE_WORKSPACE], *out_bytes, &c->memory));
    uint8_t *at = c->memory;
    c->work.low = at;
    c->scale = (float *)(at + s->low_bytes);
    c->shift = c->scale + 2 * s->unit_count;
    c->region = c->shift + 2 * s->unit_count;
    c->absmax = c->region + s->region_elements;
    c->work.scratch = (uint8_t *)(c->absmax + s->absmax_count);
    c->work.scratch_elements = s->scratch_elements;
    c->assembled = c->work.scratch +
                   rn_workers_count(c->workers) * s->scratch_elements * RN_SLICE_SCRATCH_BYTES;
    return RN_OK;
}

static const char *engine_name(const conversion *c) {
    return rn_reader_get_stats(c->reader).engine == RN_READER_THREADS ? "threads" : "io_uring";
}

static rn_status open_ends(conversion *c, const char *out_path) {
    static const rn_reader_engine engines[] = {RN_READER_AUTO, RN_READER_URING, RN_READER_THREADS};
    rn_writer_options writing = {.metadata = c->plan.metadata,
                                 .metadata_count = c->plan.metadata_count,
                                 .buffer_bytes = c->size.request_bytes};
    rn_reader_options reading = {.buffer_bytes = c->size.request_bytes * c->size.slot_count,
                                 .request_bytes = c->size.request_bytes,
                                 .engine = engines[c->options->io_engine],
                                 .allocator = RN_HOST_STAGING,
                                 .cancel = (const _Atomic bool *)c->options->cancel};
    RN_TRY(rn_writer_create(out_path, c->plan.tensors, c->plan.tensor_count, &writing, &c->writer));
    RN_TRY(rn_checkpoint_open_reader(c->source, &reading, &c->reader));
    rn_log(RN_LOG_INFO, "convert", "reads with %s: %s", engine_name(c),
           rn_reader_get_stats(c->reader).engine_reason);
    return RN_OK;
}

static void fill_result(conversion *c, uint64_t start_ns) {
    c->result->seconds = (double)(rn_clock_ns() - start_ns) / 1e9;
    c->result->bytes_out = rn_writer_file_bytes(c->writer);
    c->result->buffer_bytes = c->size.total_bytes;
    c->result->engine = engine_name(c);
    c->result->tensors_only = c->plan.tensors_only;
}

static rn_status run(conversion *c, const char *out_path) {
    uint64_t start_ns = rn_clock_ns();
    size_t memory_bytes = 0;
    rn_status s = cut_all(c);
    if (s == RN_OK) s = make_memory(c, &memory_bytes);
    if (s == RN_OK) s = open_ends(c, out_path);
    if (s == RN_OK) s = run_all(c);
    if (s == RN_OK) fill_result(c, start_ns);
    rn_reader_destroy(c->reader);
    rn_writer_destroy(c->writer);
    rn_free(&rn_host_allocators[RN_PURPOSE_WORKSPACE], c->memory, memory_bytes);
    return s;
}

static rn_status convert_open(conversion *c, const char *out_path) {
    bool translated = false;
    if (c->translator) {
        RN_TRY(c->translator->translate(c->translator->self, c->source, &c->translation));
        translated = c->translation.tensors != NULL;
    }
    RN_TRY(rn_convert_plan_make(c->source, out_path, c->options,
                                translated ? &c->translation : NULL, &c->plan));
    rn_status s = rn_workers_create(c->options->thread_count, RN_HOST_OTHER, &c->workers);
    if (s == RN_OK) s = choose_sizes(c, rn_workers_count(c->workers));
    if (s == RN_OK) s = run(c, out_path);
    rn_workers_destroy(c->workers);
    rn_convert_plan_free(&c->plan);
    return s;
}

static rn_status convert_path(const char *in_path, const char *out_path, const conversion *wanted) {
    void *block;
    rn_checkpoint *source;
    uint64_t held_before = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    RN_TRY(rn_alloc_zeroed(RN_HOST_IO, 1, sizeof(conversion), &block));
    conversion *c = block;
    *c = *wanted;
    c->held_before = held_before + sizeof(conversion);
    rn_scope_begin(&c->scope, "convert", RN_DEVICE_HOST);
    rn_status s = rn_checkpoint_open(in_path, &source);
    c->source = source;
    if (s == RN_OK) s = convert_open(c, out_path);
    if (c->translator) c->translator->end(c->translator->self);
    rn_checkpoint_close(source);
    (void)rn_scope_end(&c->scope);
    rn_free(RN_HOST_IO, block, sizeof(conversion));
    return s;
}

// While the model is opened, the host's hard limit is what is usable of the conversion's budget
// (and enough for the headers of an ordinary model, so that a refusal can name the smallest budget
// that works); once the sizes are known, it is the budget. Headers that do not fit are refused as
// any other memory.
rn_status rn_convert_with(const char *in_path, const char *out_path,
                          const rn_convert_options *options, const rn_translator *translator,
                          rn_convert_result *out_result) {
    uint64_t soft, hard;
    *out_result = (rn_convert_result){.engine = ""};
    RN_TRY(rn_check_reserved(options->reserved, "rn_convert_options"));
    if (!rn_str_ends(rn_str_from(out_path), RN_STR(".gguf")) &&
        !rn_str_ends(rn_str_from(out_path), RN_STR(".safetensors")))
        return rn_hint(rn_fail(RN_INVALID, "%s: the ending says no container", out_path),
                       "end the output's name in .safetensors or .gguf");
    rn_budget_get(RN_DEVICE_HOST, &soft, &hard);
    conversion c = {.options = options, .translator = translator, .result = out_result};
    c.budget = rn_min_u64(hard, budget_of(options));
    RN_TRY(rn_budget_limit_process(c.budget, hard));
    rn_status s = convert_path(in_path, out_path, &c);
    rn_status restored = rn_budget_set(RN_DEVICE_HOST, soft, hard);
    return s == RN_OK ? restored : s;
}
