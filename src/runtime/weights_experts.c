// weights_experts.c — where single matrices of experts are, and those that no direct read can
// bring.
#include "runtime/weights_internal.h"

#include "memory/account.h"

#include <stdatomic.h>
#include <string.h>

bool rn_weights_find_matrix(const rn_weights *w, const rn_matrix_range *range, uint32_t *out_file,
                            uint64_t *out_offset) {
    const rn_stack_source *s = &w->stacks[range->stack];
    uint64_t before = range->expert * w->plan->stacks[range->stack].matrix_bytes;
    if (s->plain || s->form) return false;
    const rn_tensor_info *tensor = s->tensors ? s->tensors[range->expert] : NULL;
    *out_file = tensor ? tensor->file : s->file;
    *out_offset = (tensor ? tensor->offset : s->offset + before) + range->first_byte;
    return true;
}

typedef struct form_copy {
    rn_weights *weights;
    uint8_t *target;
} form_copy;

static rn_status take_form(void *self, rn_component component, uint64_t offset, const void *data,
                           uint64_t bytes) {
    form_copy *c = self;
    (void)component; // stacks are of kinds in one piece
    memcpy(c->target + offset, data, bytes);
    rn_weights_count_read(c->weights, bytes);
    return RN_OK;
}

// Of each row of the stack's matrices, in the file.
static uint64_t row_bytes(const rn_weights *w, uint32_t stack) {
    const rn_plan_stack *s = &w->plan->stacks[stack];
    const rn_value_info *info = rn_graph_value(w->plan->graph, s->weight);
    return s->matrix_bytes / (info->shape.dims[0] / w->plan->expert_layers[s->layer].experts);
}

rn_status rn_weights_copy_matrix(rn_weights *w, const rn_matrix_range *range, uint8_t *target,
                                 uint64_t *out_read) {
    const rn_stack_source *s = &w->stacks[range->stack];
    uint64_t each = row_bytes(w, range->stack);
    uint64_t before =
        range->expert * w->plan->stacks[range->stack].matrix_bytes + range->first_byte;
    *out_read = s->plain ? 0 : range->bytes;
    if (s->plain) {
        memcpy(target, s->plain + before, range->bytes);
        return RN_OK;
    }
    form_copy copy = {w, target};
    return rn_weight_form_read(w->source.checkpoint, s->form, s->first_row + before / each,
                               range->bytes / each, take_form, &copy);
}

rn_status rn_weights_pack_matrix(rn_weights *w, const rn_matrix_range *range, const uint8_t *data,
                                 uint8_t *target) {
    rn_value weight = w->plan->stacks[range->stack].weight;
    const rn_value_info *info = rn_graph_value(w->plan->graph, weight);
    rn_layout layout = w->plan->places[weight].layout;
    uint64_t dims[2] = {range->bytes / row_bytes(w, range->stack), info->shape.dims[1]};
    rn_packer_room packer;
    if (!layout) {
        memcpy(target, data, range->bytes);
        return RN_OK;
    }
    RN_TRY(layout->begin(&packer, info->dtype, dims, 2, w->workers, target));
    return layout->take(&packer, RN_COMPONENT_DATA, 0, data, range->bytes);
}

rn_status rn_weights_open_fetcher(const rn_weights *w, rn_fetcher **out) {
    const rn_reader_options options = {.allocator = RN_HOST_IO, .ignore_page_cache = true};
    *out = NULL;
    if (!w->source.checkpoint) return RN_OK;
    return rn_checkpoint_open_fetcher(w->source.checkpoint, &options, out);
}

void rn_weights_count_read(rn_weights *w, uint64_t bytes) {
    atomic_fetch_add(&w->read_bytes, bytes);
}
