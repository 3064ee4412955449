// assembled_rows.c — see assembled_rows.h. Rows come in batches that fit the room:
//
//     rows of a tensor or a form -> room -> [every step-th, in turn, a part, as f32] -> out
//
// What is transposed (a head's keys) fits the room as a whole, beside itself as f32.
#include "io/assembled_rows.h"

#include "base/checked.h"
#include "base/str.h"

#include <string.h>

enum { BLOCK = 32, BLOCK_BYTES = 17 }; // of mxfp4

// One of the tensors that rows come from.
typedef struct origin {
    rn_str name;
    rn_dtype dtype;
    uint64_t rows, columns, row_bytes;
} origin;

static rn_status look_at(const rn_checkpoint *source, const rn_converted_rows *r, origin *out) {
    const rn_tensor_info *t = r->form ? NULL : rn_checkpoint_tensor(source, r->tensor);
    if (r->form)
        *out = (origin){.name = r->form->name,
                        .dtype = r->form->dtype,
                        .rows = r->form->rows,
                        .columns = r->form->cols};
    else
        *out = (origin){.name = t->name,
                        .dtype = t->dtype,
                        .columns = t->rank && !r->of_one ? t->dims[t->rank - 1] : 1};
    if (t && out->columns) out->rows = t->elements / out->columns;
    bool fits = out->columns && rn_dtype_bytes(out->dtype, out->columns, &out->row_bytes) &&
                out->columns % rn_dtype_get(out->dtype)->block_elements == 0;
    uint64_t last = 0;
    fits = fits && r->count && r->step && rn_mul_u64(r->count - 1, r->step, &last) &&
           r->first < out->rows && last < out->rows - r->first;
    if (fits) return RN_OK;
    return rn_fail(RN_CORRUPT, "'%.*s' has not the rows that the model's settings say",
                   RN_STR_ARG(out->name));
}

static bool is_blocks(rn_dtype dtype) {
    return rn_dtype_get(dtype)->block_elements > 1;
}

// Rows of a group: those of all its members.
static uint64_t group_rows(const rn_assembled_tensor *t, const rn_converted_rows *r,
                           const origin *o) {
    return (r->transposed ? o->columns : r->count) * t->in_turn;
}

static rn_status refuse(const origin *o, const char *why) {
    return rn_fail(RN_UNSUPPORTED, "'%.*s' %s", RN_STR_ARG(o->name), why);
}

static rn_status look_at_part(const rn_assembled_tensor *t, const origin *o,
                              rn_assembled_info *out) {
    if (t->part == RN_ROWS_WHOLE) return RN_OK;
    if (out->dtype != RN_DTYPE_MXFP4) return refuse(o, "is not of mxfp4");
    out->dtype = RN_DTYPE_U8;
    out->columns = t->part == RN_ROWS_CODES ? out->columns / 2 : out->columns / BLOCK;
    out->row_bytes = out->columns;
    return RN_OK;
}

rn_status rn_assembled_look(const rn_checkpoint *source, const rn_assembled_tensor *t,
                            rn_assembled_info *out) {
    origin first = {0}, o;
    bool transposed = false, alike = true;
    *out = (rn_assembled_info){.is_runs = t->in_turn == 1 && t->part == RN_ROWS_WHOLE};
    for (size_t i = 0; i < t->count; i++) {
        const rn_converted_rows *r = &t->rows[i];
        RN_TRY(look_at(source, r, &o));
        uint64_t columns = r->transposed ? r->count : o.columns;
        if (i == 0) {
            first = o;
            out->columns = columns;
        }
        if (columns != out->columns) return refuse(&o, "has rows of another width");
        if (t->in_turn > 1 && r->count != t->rows[i / t->in_turn * t->in_turn].count)
            return refuse(&o, "has another number of rows");
        if (!rn_add_u64(out->rows, group_rows(t, r, &o) / t->in_turn, &out->rows))
            return refuse(&o, "has too many rows");
        alike &= o.dtype == first.dtype;
        transposed |= r->transposed && is_blocks(o.dtype);
        out->is_runs &= !r->form && r->step == 1 && !r->transposed;
    }
    if (!alike && t->part != RN_ROWS_WHOLE) return refuse(&first, "is of several kinds");
    out->dtype = alike && !transposed ? first.dtype : RN_DTYPE_F32;
    out->is_runs &= alike;
    if (!rn_dtype_bytes(out->dtype, out->columns, &out->row_bytes))
        return refuse(&first, "has rows that are too long");
    RN_TRY(look_at_part(t, &first, out));
    if (out->row_bytes > RN_ASSEMBLED_CHUNK_BYTES / 4 ||
        first.row_bytes * 2 > RN_ASSEMBLED_ROOM_BYTES / 2)
        return refuse(&first, "has rows that are too long");
    return RN_OK;
}

// ---- rows as they are ---------------------------------------------------------------------------

typedef struct target {
    uint8_t *bytes; // (bytes_wanted)
    uint64_t bytes_wanted;
} target;

static rn_status take(void *self, rn_component component, uint64_t offset, const void *data,
                      uint64_t bytes) {
    target *to = self;
    if (component != RN_COMPONENT_DATA || offset > to->bytes_wanted ||
        bytes > to->bytes_wanted - offset)
        return rn_fail(RN_INTERNAL, "rows of a quantised weight that nobody asked for");
    memcpy(to->bytes + offset, data, bytes);
    return RN_OK;
}

static rn_status read_rows(const rn_checkpoint *source, const rn_converted_rows *r, const origin *o,
                           uint64_t first, uint64_t count, uint8_t *out) {
    uint64_t bytes = count * o->row_bytes;
    target to = {out, bytes};
    if (r->form) return rn_weight_form_read(r->checkpoint, r->form, first, count, take, &to);
    return rn_checkpoint_read(source, rn_checkpoint_tensor(source, r->tensor), first * o->row_bytes,
                              out, (size_t)bytes);
}

// ---- rows as they are wanted --------------------------------------------------------------------

// Of a row of mxfp4: element j of 0 to 15 lies in the low halves of a block's bytes, j + 16 in the
// high ones; wanted are neighbours in a byte.
static void take_codes(const uint8_t *row, uint64_t blocks, uint8_t *out) {
    for (uint64_t b = 0; b < blocks; b++) {
        const uint8_t *from = row + b * BLOCK_BYTES + 1;
        for (int i = 0; i < BLOCK / 2; i++) {
            int j = 2 * i % 16, shift = 2 * i < 16 ? 0 : 4;
            out[b * 16 + (uint64_t)i] =
                (uint8_t)((from[j] >> shift & 15) | (from[j + 1] >> shift & 15) << 4);
        }
    }
}

static rn_status put_row(const rn_assembled_tensor *t, const rn_assembled_info *info,
                         const origin *o, const uint8_t *row, uint8_t *out) {
    if (t->part == RN_ROWS_CODES) {
        take_codes(row, o->columns / BLOCK, out);
    } else if (t->part == RN_ROWS_EXPONENTS) {
        for (uint64_t b = 0; b < o->columns / BLOCK; b++)
            out[b] = row[b * BLOCK_BYTES];
    } else if (info->dtype != o->dtype) {
        return rn_dtype_to_f32(o->dtype, row, (float *)(void *)out, o->columns);
    } else
        memcpy(out, row, o->row_bytes);
    return RN_OK;
}

// Rows [first, first + count) of a member: to every `apart`-th row of `out`.
static rn_status read_member(const rn_checkpoint *source, const rn_assembled_tensor *t,
                             const rn_assembled_info *info, const rn_converted_rows *r,
                             const origin *o, uint64_t first, uint64_t count, uint8_t *room,
                             uint8_t *out) {
    uint64_t batch = RN_ASSEMBLED_ROOM_BYTES / (o->row_bytes * r->step);
    if (batch == 0) return refuse(o, "has rows that are too long");
    for (uint64_t at = 0; at < count;) {
        uint64_t n = rn_min_u64(batch, count - at), span = (n - 1) * r->step + 1;
        RN_TRY(read_rows(source, r, o, r->first + (first + at) * r->step, span, room));
        for (uint64_t i = 0; i < n; i++)
            RN_TRY(put_row(t, info, o, room + i * r->step * o->row_bytes,
                           out + (at + i) * t->in_turn * info->row_bytes));
        at += n;
    }
    return RN_OK;
}

static void turn(const uint8_t *block, uint64_t rows, uint64_t columns, size_t width,
                 uint64_t first, uint64_t count, uint8_t *out) {
    for (uint64_t c = 0; c < count; c++)
        for (uint64_t r = 0; r < rows; r++)
            memcpy(out + (c * rows + r) * width, block + (r * columns + first + c) * width, width);
}

// Columns [first, first + count) of a member as rows.
static rn_status read_turned(const rn_checkpoint *source, const rn_assembled_info *info,
                             const rn_converted_rows *r, const origin *o, uint64_t first,
                             uint64_t count, uint8_t *room, uint8_t *out) {
    uint64_t elements = 0, bytes = 0, wide = 0;
    bool widened = info->dtype != o->dtype;
    bool fits = r->step == 1 && rn_mul_u64(r->count, o->columns, &elements) &&
                rn_mul_u64(r->count, o->row_bytes, &bytes) &&
                rn_mul_u64(elements, sizeof(float), &wide) && bytes <= RN_ASSEMBLED_ROOM_BYTES &&
                (!widened || wide <= RN_ASSEMBLED_ROOM_BYTES - rn_round_up(bytes, 64));
    if (!fits) return refuse(o, "has heads that are too wide");
    RN_TRY(read_rows(source, r, o, r->first, r->count, room));
    uint8_t *block = room;
    if (widened) {
        block = room + rn_round_up(bytes, 64);
        RN_TRY(rn_dtype_to_f32(o->dtype, room, (float *)(void *)block, elements));
    }
    turn(block, r->count, o->columns, rn_dtype_get(info->dtype)->block_bytes, first, count, out);
    return RN_OK;
}

// Rows [first, end) of the group, which lie from `out` on.
static rn_status read_group(const rn_checkpoint *source, const rn_assembled_tensor *t,
                            const rn_assembled_info *info, const rn_converted_rows *group,
                            uint64_t first, uint64_t end, uint8_t *room, uint8_t *out) {
    for (uint32_t k = 0; k < t->in_turn; k++) {
        const rn_converted_rows *r = &group[k];
        origin o;
        RN_TRY(look_at(source, r, &o));
        // Of the group's rows k, k + in_turn, ... are this member's.
        uint64_t from = (first + t->in_turn - 1 - k) / t->in_turn;
        uint64_t to = (end + t->in_turn - 1 - k) / t->in_turn;
        uint8_t *at = out + (from * t->in_turn + k - first) * info->row_bytes;
        if (from >= to) continue;
        if (r->transposed)
            RN_TRY(read_turned(source, info, r, &o, from, to - from, room, at));
        else
            RN_TRY(read_member(source, t, info, r, &o, from, to - from, room, at));
    }
    return RN_OK;
}

rn_status rn_assembled_read(const rn_checkpoint *source, const rn_assembled_tensor *t,
                            const rn_assembled_info *info, uint64_t first, uint64_t count,
                            uint8_t *room, uint8_t *out) {
    uint64_t before = 0, end = first + count;
    for (size_t i = 0; i < t->count && before < end; i += t->in_turn) {
        origin o;
        RN_TRY(look_at(source, &t->rows[i], &o));
        uint64_t rows = group_rows(t, &t->rows[i], &o);
        uint64_t from = rn_max_u64(first, before), to = rn_min_u64(end, before + rows);
        if (from < to)
            RN_TRY(read_group(source, t, info, &t->rows[i], from - before, to - before, room,
                              out + (from - first) * info->row_bytes));
        before += rows;
    }
    return before >= end
               ? RN_OK
               : rn_fail(RN_INTERNAL, "rows of '%.*s' that are not there", RN_STR_ARG(t->name));
}
