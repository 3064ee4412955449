// kv_pages.c — checks and addresses of KV pages.
#include "graph/kv_pages.h"

rn_status rn_kv_pages_shape(const rn_shaping *s, uint32_t kv, uint32_t rows_of, uint32_t first) {
    rn_shape pages = s->in[kv].shape, rows = RN_SHAPE(s->in[rows_of].shape.dims[0]);
    rn_dtype dtype = s->in[kv].dtype;
    if (dtype != RN_DTYPE_F16 && dtype != RN_DTYPE_F32 && dtype != RN_DTYPE_Q8_0)
        return rn_shape_fail(s, "kv must be f16, f32 or q8_0, it is %s", rn_dtype_get(dtype)->name);
    if (pages.rank != 5 || (pages.dims[1] != 2 && pages.dims[1] != 1))
        return rn_shape_fail(s, "kv must be (pages, 2, HK, page_tokens, D), or 1 for keys only");
    if (pages.dims[4] % rn_dtype_get(dtype)->block_elements)
        return rn_shape_fail(s, "kv of %s needs a D in whole blocks of %u",
                             rn_dtype_get(dtype)->name, rn_dtype_get(dtype)->block_elements);
    for (uint32_t i = first; i < first + 3; i++)
        RN_TRY(rn_shape_want(s, i, RN_DTYPE_I32));
    if (!rn_shape_equal(s->in[first].shape, rows) || !rn_shape_equal(s->in[first + 1].shape, rows))
        return rn_shape_fail(s, "sequence and position must be %s", rn_shape_format(rows).text);
    if (s->in[first + 2].shape.rank != 2)
        return rn_shape_fail(s, "page_table must be (sequences, max_pages)");
    return RN_OK;
}

rn_kv_pages rn_kv_pages_of(const rn_tensor *kv, const rn_tensor *sequence,
                           const rn_tensor *position, const rn_tensor *page_table) {
    return (rn_kv_pages){.data = kv->data,
                         .dtype = kv->dtype,
                         .pages = kv->shape.dims[0],
                         .planes = kv->shape.dims[1],
                         .heads = kv->shape.dims[2],
                         .page_tokens = kv->shape.dims[3],
                         .dims = kv->shape.dims[4],
                         .table = page_table->data,
                         .sequences = page_table->shape.dims[0],
                         .max_pages = page_table->shape.dims[1],
                         .sequence = sequence->data,
                         .position = position->data,
                         .rows = sequence->shape.dims[0]};
}

rn_status rn_kv_pages_check(const rn_kv_pages *kv, const char *op, uint64_t row, uint64_t first) {
    int32_t sequence = kv->sequence[row], position = kv->position[row];
    unsigned long long at = row;
    if (sequence < 0 || (uint64_t)sequence >= kv->sequences)
        return rn_fail(RN_INVALID, "%s: row %llu: sequence %d is not in 0 .. %llu", op, at,
                       sequence, (unsigned long long)kv->sequences - 1);
    uint64_t tokens = kv->max_pages * kv->page_tokens;
    if (position < 0 || (uint64_t)position >= tokens)
        return rn_fail(RN_INVALID, "%s: row %llu: position %d is not in 0 .. %llu", op, at,
                       position, (unsigned long long)tokens - 1);
    const int32_t *table = kv->table + (uint64_t)sequence * kv->max_pages;
    for (uint64_t i = first / kv->page_tokens; i <= (uint64_t)position / kv->page_tokens; i++)
        if (table[i] < 0 || (uint64_t)table[i] >= kv->pages)
            return rn_fail(
                RN_INVALID, "%s: row %llu: page %llu of sequence %d is %d, not in 0 .. %llu", op,
                at, (unsigned long long)i, sequence, table[i], (unsigned long long)kv->pages - 1);
    return RN_OK;
}

// which: 0 keys, 1 values.
static void *find(const rn_kv_pages *kv, uint64_t sequence, uint64_t position, uint64_t which,
                  uint64_t head) {
    uint64_t page = (uint64_t)kv->table[sequence * kv->max_pages + position / kv->page_tokens];
    uint64_t slot = position % kv->page_tokens;
    uint64_t plane = page * kv->planes + which;
    uint64_t at = ((plane * kv->heads + head) * kv->page_tokens + slot) * kv->dims;
    const rn_dtype_info *info = rn_dtype_get(kv->dtype);
    return kv->data + at / info->block_elements * info->block_bytes;
}

void *rn_kv_key(const rn_kv_pages *kv, uint64_t sequence, uint64_t position, uint64_t head) {
    return find(kv, sequence, position, 0, head);
}

void *rn_kv_value(const rn_kv_pages *kv, uint64_t sequence, uint64_t position, uint64_t head) {
    return find(kv, sequence, position, kv->planes - 1, head);
}
