// convert_slice.c — widen, quantise, restore, measure: one slice at a time, each on any thread.
#include "io/convert_slice.h"

#include "base/checked.h"
#include "base/str.h"
#include "tensor/ggml_encode.h"

#include <math.h>

uint64_t rn_slice_units(const rn_convert_item *item) {
    return item->unit >= RN_SLICE_ELEMENTS ? 1 : RN_SLICE_ELEMENTS / item->unit;
}

uint64_t rn_slice_source_bytes(const rn_convert_item *item, uint64_t elements) {
    const rn_dtype_info *info = rn_dtype_get(item->source->dtype);
    return elements / info->block_elements * info->block_bytes;
}

uint64_t rn_slice_data_bytes(const rn_convert_item *item, uint64_t elements) {
    const rn_dtype_info *info = rn_dtype_get(item->to);
    if (item->to == RN_DTYPE_INT8 || item->to == RN_DTYPE_INT4) return elements;
    if (item->to == RN_DTYPE_NF4 || item->to == RN_DTYPE_NF4_DQ) return rn_div_up(elements, 2);
    return elements / info->block_elements * info->block_bytes;
}

// Which of the source's rows is row `row` of the output.
static uint64_t source_row(const rn_convert_item *item, uint64_t row) {
    uint64_t within = row % item->head_rows, half = item->head_rows / 2;
    switch (item->arrangement) {
    case RN_ARRANGE_ROWS:
        return item->order[row / item->head_rows] * item->head_rows + within;
    case RN_ARRANGE_AS_NEIGHBOURS:
        return row - within + within / 2 + within % 2 * half;
    case RN_ARRANGE_AS_HALVES:
        return row - within + within % half * 2 + within / half;
    default:
        return row;
    }
}

// Values [start, start + elements) of the output, where they come from: `region` is the source's
// region that holds them.
static void gather(const rn_convert_item *item, const float *region, uint64_t start,
                   uint64_t elements, float *out) {
    uint64_t columns = item->source->elements / item->dims[0], block = item->head_rows;
    uint64_t first = start - start % item->region;
    for (uint64_t e = start; e < start + elements;) {
        uint64_t row = e / columns, column = e % columns;
        uint64_t count = rn_min_u64(columns - column, start + elements - e);
        float *to = out + (e - start); // (count)
        if (item->arrangement == RN_ARRANGE_TRANSPOSED) {
            for (uint64_t i = 0; i < count; i++)
                to[i] = region[(column + i) * item->dims[0] + row];
        } else if (item->arrangement == RN_ARRANGE_COLUMNS) {
            const float *from = region + (row * columns - first);
            for (uint64_t i = column; i < column + count; i++)
                to[i - column] = from[item->order[i / block] * block + i % block];
        } else {
            uint64_t at = source_row(item, row) * columns + column - first;
            memcpy(to, region + at, count * sizeof *out);
        }
        e += count;
    }
}

static bool loses_nothing(rn_dtype from, rn_dtype to) {
    if (from == to || to == RN_DTYPE_F64) return true;
    return to == RN_DTYPE_F32 && from != RN_DTYPE_F64;
}

// Where bytes [offset, offset + bytes) of the chunk go, if that is one piece of memory; else NULL.
static uint8_t *place_of(const rn_convert_job *work, uint64_t offset, uint64_t bytes) {
    const rn_output_span *spans = work->spans;
    if (offset + bytes <= spans[0].bytes) return spans[0].data + offset;
    return offset >= spans[0].bytes ? spans[1].data + (offset - spans[0].bytes) : NULL;
}

void rn_convert_job_copy(const rn_convert_job *work, uint64_t offset, const uint8_t *from,
                         uint64_t bytes) {
    const rn_output_span *spans = work->spans;
    uint64_t first = offset < spans[0].bytes ? rn_min_u64(bytes, spans[0].bytes - offset) : 0;
    if (first) memcpy(spans[0].data + offset, from, first);
    if (bytes > first)
        memcpy(spans[1].data + (offset + first - spans[0].bytes), from + first, bytes - first);
}

// A thread's own memory: f32 values, f32 values restored, bytes.
typedef struct scratch {
    float *values, *restored; // (scratch_elements)
    uint8_t *bytes;           // (8 * scratch_elements)
} scratch;

// A plain type, or ggml's blocks. With importances units are rows, and the experts of a weight have
// importances of their own.
static rn_status encode(const rn_convert_job *work, const float *values, uint64_t unit,
                        uint64_t elements, uint8_t *data) {
    const rn_convert_item *item = work->item;
    if (!item->importance) return rn_dtype_from_f32(item->to, values, data, elements);
    uint64_t columns = item->unit, rows = item->source->elements / columns;
    uint64_t row_bytes = rn_slice_data_bytes(item, columns);
    for (uint64_t r = 0; r < elements / columns; r++) {
        uint64_t set = (work->first_unit + unit + r) / (rows / item->importance_sets);
        RN_TRY(rn_ggml_encode_rows(item->to, values + r * columns, 1, columns,
                                   item->importance + set * columns, data + r * row_bytes));
    }
    return RN_OK;
}

// Quantises `elements` values that begin at `unit` of the chunk into `data`, and restores them.
static rn_status quantise(rn_convert_job *work, const scratch *own, uint64_t unit,
                          uint64_t elements, uint8_t *data) {
    const rn_convert_item *item = work->item;
    const float *values = own->values;
    uint64_t units = rn_div_up(elements, item->unit);
    float *scale = work->scale + unit, *shift = work->shift + unit;
    switch (item->to) {
    case RN_DTYPE_INT8:
        rn_quant_int8_rows(values, units, item->unit, (int8_t *)data, scale);
        rn_dequant_int8_rows((const int8_t *)data, scale, units, item->unit, own->restored);
        return RN_OK;
    case RN_DTYPE_INT4:
        rn_quant_int4_groups(values, units, item->unit, data, scale, shift);
        rn_dequant_int4_groups(data, scale, shift, units, item->unit, own->restored);
        return RN_OK;
    case RN_DTYPE_NF4:
    case RN_DTYPE_NF4_DQ: // whose scales are quantised once all are there
        rn_quant_nf4_blocks(values, elements, data, scale);
        rn_dequant_nf4_blocks(data, scale, elements, own->restored);
        return RN_OK;
    default:
        RN_TRY(encode(work, values, unit, elements, data));
        return rn_dtype_to_f32(item->to, data, own->restored, elements);
    }
}

// Into `values`, in the output's order.
static rn_status widen(const rn_convert_job *work, uint64_t start, uint64_t elements,
                       float *values) {
    const rn_convert_item *item = work->item;
    if (work->source) {
        const uint8_t *source = work->source + rn_slice_source_bytes(item, start);
        RN_TRY(rn_dtype_to_f32(item->source->dtype, source, values, elements));
    } else
        gather(item, work->region, work->first_unit * item->unit + start, elements, values);
    for (uint64_t i = 0; item->add != 0 && i < elements; i++)
        values[i] += item->add;
    for (uint64_t i = 0; item->change == RN_VALUES_NEG_EXP && i < elements; i++)
        values[i] = (float)-exp((double)values[i]);
    for (uint64_t i = 0; item->change == RN_VALUES_LOG_NEG && i < elements; i++)
        values[i] = (float)log(-(double)values[i]);
    return RN_OK;
}

// Converts elements [start, start + elements) of the chunk into `data`.
static rn_status convert_values(rn_convert_job *work, const scratch *own, size_t slice,
                                uint64_t start, uint64_t elements, uint8_t *data) {
    const rn_convert_item *item = work->item;
    rn_dtype from = item->source->dtype;
    bool exact = loses_nothing(from, item->to),
         moved = item->region || item->add != 0 || item->change != RN_VALUES_KEPT;
    if (exact && !moved)
        return rn_dtype_convert(from, work->source + rn_slice_source_bytes(item, start), item->to,
                                data, elements);
    RN_TRY(widen(work, start, elements, own->values));
    if (exact) return rn_dtype_from_f32(item->to, own->values, data, elements);
    RN_TRY(quantise(work, own, start / item->unit, elements, data));
    rn_quant_error_add(&work->errors[slice], own->values, own->restored, elements);
    return RN_OK;
}

static rn_status convert_slice(rn_convert_job *work, size_t slice, const scratch *own) {
    const rn_convert_item *item = work->item;
    uint64_t start = slice * work->slice_units * item->unit;
    uint64_t elements = rn_min_u64(work->slice_units * item->unit, work->elements - start);
    uint64_t offset = rn_slice_data_bytes(item, start), bytes = rn_slice_data_bytes(item, elements);
    if (work->is_low) return convert_values(work, own, slice, start, elements, work->low + start);
    uint8_t *place = place_of(work, offset, bytes);
    uint8_t *data = place && item->to != RN_DTYPE_INT4 ? place : own->bytes;
    RN_TRY(convert_values(work, own, slice, start, elements, data));
    if (data == place) return RN_OK;
    if (item->to == RN_DTYPE_INT4) // in place where the result cannot go straight to the writer
        rn_quant_int4_pack(work->low + start, data, elements, place ? place : work->low + start);
    if (!place)
        rn_convert_job_copy(work, offset, item->to == RN_DTYPE_INT4 ? work->low + start : data,
                            bytes);
    return RN_OK;
}

static void convert_slices(void *arg, size_t thread) {
    rn_convert_job *work = arg;
    uint8_t *memory = work->scratch + thread * work->scratch_elements * RN_SLICE_SCRATCH_BYTES;
    scratch own = {.values = (float *)memory};
    own.restored = own.values + work->scratch_elements;
    own.bytes = (uint8_t *)(own.restored + work->scratch_elements);
    while (true) {
        size_t slice = atomic_fetch_add(&work->next_slice, 1);
        if (slice >= work->slice_count) return;
        rn_status s = convert_slice(work, slice, &own);
        if (s != RN_OK) atomic_store(&work->failed, (int)s);
    }
}

rn_status rn_convert_job_run(rn_convert_job *work, rn_workers *workers, rn_quant_error *error) {
    work->slice_units = rn_slice_units(work->item);
    work->slice_count = (size_t)rn_div_up(work->unit_count, work->slice_units);
    atomic_store(&work->next_slice, 0);
    atomic_store(&work->failed, RN_OK);
    memset(work->errors, 0, work->slice_count * sizeof *work->errors);
    rn_workers_run(workers, rn_workers_count(workers), convert_slices, work);
    rn_status s = (rn_status)atomic_load(&work->failed);
    if (s != RN_OK)
        return rn_fail(s, "cannot convert '%.*s'", RN_STR_ARG(work->item->source->name));
    for (size_t i = 0; i < work->slice_count; i++)
        rn_quant_error_merge(error, &work->errors[i]);
    return RN_OK;
}
