// kv_append.c — writes new keys and values where the page table says; f32 is rounded to the pages'
// dtype. All rows are checked before the first is written. Rows of sequence -1 write nothing.
#include "graph/kv_pages.h"

enum { KV, K, V, SEQUENCE, POSITION, PAGE_TABLE, INPUTS };

static rn_status shape(rn_shaping *s) {
    rn_shape kv = s->in[KV].shape, k = s->in[K].shape;
    bool has_v = s->in[V].dtype != RN_DTYPE_NONE;
    RN_TRY(rn_shape_want(s, K, RN_DTYPE_F32));
    if (has_v) RN_TRY(rn_shape_want(s, V, RN_DTYPE_F32));
    if (k.rank != 3 || (has_v && !rn_shape_equal(k, s->in[V].shape)))
        return rn_shape_fail(s, "k and v must both be (rows, HK, D)");
    RN_TRY(rn_kv_pages_shape(s, KV, K, SEQUENCE));
    if (k.dims[1] != kv.dims[2] || k.dims[2] != kv.dims[4])
        return rn_shape_fail(s, "k and v must have the HK and D of kv");
    if (has_v != (kv.dims[1] == 2))
        return rn_shape_fail(s, has_v ? "kv has no place for v" : "kv has a place for v");
    s->out[0].dtype = s->in[0].dtype;
    s->out[0].shape = kv;
    return RN_OK;
}

// Only the rows that are written move, not the cache.
static void cost(const rn_call *call, rn_cost *out) {
    double planes = (double)call->inputs[KV].shape.dims[1];
    double elements = planes * (double)rn_tensor_elements(&call->inputs[K]);
    for (uint32_t i = 1; i < call->input_count; i++)
        out->read_bytes += (double)rn_tensor_bytes(&call->inputs[i]);
    const rn_dtype_info *info = rn_dtype_get(call->inputs[0].dtype);
    out->write_bytes += elements / info->block_elements * info->block_bytes;
}

static rn_status write_row(const rn_kv_pages *kv, uint64_t row, const float *k, const float *v) {
    uint64_t sequence = (uint64_t)kv->sequence[row], position = (uint64_t)kv->position[row];
    for (uint64_t head = 0; head < kv->heads; head++) {
        uint64_t at = head * kv->dims;
        RN_TRY(rn_dtype_from_f32(kv->dtype, k + at, rn_kv_key(kv, sequence, position, head),
                                 kv->dims));
        if (v)
            RN_TRY(rn_dtype_from_f32(kv->dtype, v + at, rn_kv_value(kv, sequence, position, head),
                                     kv->dims));
    }
    return RN_OK;
}

static rn_status reference(const rn_call *call) {
    const rn_tensor *in = call->inputs;
    rn_kv_pages kv =
        rn_kv_pages_of(&call->outputs[0], &in[SEQUENCE], &in[POSITION], &in[PAGE_TABLE]);
    const float *k = in[K].data, *v = in[V].data; // (rows, HK, D); v may be NULL
    uint64_t row_elements = kv.heads * kv.dims;
    for (uint64_t row = 0; row < kv.rows; row++)
        if (kv.sequence[row] != -1) {
            uint64_t first = kv.position[row] > 0 ? (uint64_t)kv.position[row] : 0;
            RN_TRY(rn_kv_pages_check(&kv, "kv_append", row, first));
        }
    for (uint64_t row = 0; row < kv.rows; row++)
        if (kv.sequence[row] != -1)
            RN_TRY(write_row(&kv, row, k + row * row_elements, v ? v + row * row_elements : NULL));
    return RN_OK;
}

extern const rn_op_info rn_kv_append_op;
const rn_op_info rn_kv_append_op = {
    .name = "kv_append",
    .min_inputs = INPUTS,
    .max_inputs = INPUTS,
    .optional_inputs = 1u << V,
    .output_count = 1,
    .traits = RN_TRAIT_APPEND,
    .pages = {.state = KV, .sequence = SEQUENCE, .position = POSITION, .page_table = PAGE_TABLE},
    .alias = {RN_ALIAS_MUST(KV)},
    .shape = shape,
    .cost = cost,
    .reference = reference,
};

rn_value rn_op_kv_append(rn_graph *g, rn_value kv, rn_value k, rn_value v, rn_value sequence,
                         rn_value position, rn_value page_table) {
    return rn_graph_add(g, RN_OP_KV_APPEND, (rn_value[]){kv, k, v, sequence, position, page_table},
                        INPUTS, NULL);
}
