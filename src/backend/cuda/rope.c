// rope.c — rotation of heads by position; the frequencies are the reference's, in double.
#include "backend/cuda/elements.h"
#include "backend/cuda/rows.h"

#include "base/checked.h"
#include "graph/rope_frequencies.h"

_Static_assert((int)RN_ROPE_PARTS == RN_ROPE_SECTIONS, "a section each");

rn_status rn_cuda_rope(const rn_call *call) {
    const rn_rope_attrs *attrs = call->attrs;
    rn_shape x = call->inputs[0].shape;
    uint64_t heads = x.dims[x.rank - 2], head_dim = x.dims[x.rank - 1];
    uint64_t dims = rn_rope_dims(attrs, head_dim);
    if (dims > RN_ROPE_MOST || head_dim > INT32_MAX || heads > INT32_MAX / (head_dim + 1))
        return rn_fail(RN_UNSUPPORTED, "CUDA: rope turns up to %d dims of a head, not %llu",
                       RN_ROPE_MOST, (unsigned long long)dims);
    rn_rope_args args = {.x = call->inputs[0].data,
                         .y = call->outputs[0].data,
                         .position = call->inputs[1].data,
                         .divisors = call->input_count > 2 ? call->inputs[2].data : NULL,
                         .tokens =
                             rn_tensor_elements(&call->inputs[0]) / rn_max_u64(heads * head_dim, 1),
                         .sections = rn_rope_section_count(attrs),
                         .heads = (uint32_t)heads,
                         .head_dim = (uint32_t)head_dim,
                         .dims = (uint32_t)dims,
                         .neighbours = attrs->pairing == RN_ROPE_NEIGHBOURS,
                         .inverse = attrs->inverse};
    for (uint32_t i = 0, pairs = 0; i < args.sections; i++)
        args.section_end[i] = pairs += attrs->sections[i] / 2;
    RN_TRY(rn_cuda_value_type(call, &call->inputs[0], &args.x_type));
    RN_TRY(rn_cuda_value_type(call, &call->outputs[0], &args.y_type));
    args.eights = dims % 16 == 0 && head_dim % 8 == 0 && rn_cuda_is_aligned(args.x, 16) &&
                  rn_cuda_is_aligned(args.y, 16);
    rn_rope_frequencies(attrs, head_dim, args.frequency, &args.factor);
    if (args.tokens == 0 || heads * head_dim == 0) return RN_OK;
    bool f32 = args.x_type == RN_PLAIN_F32 && args.y_type == RN_PLAIN_F32;
    if (f32)
        return rn_cuda_launch(call, RN_CUDA_ROPE, rn_cuda_row_grid(args.tokens, RN_ROWS_THREADS),
                              &args);
    return rn_cuda_launch(call, RN_CUDA_ROPE_ANY,
                          rn_cuda_row_grid(rn_div_up(args.tokens, 4), RN_ROWS_THREADS), &args);
}
