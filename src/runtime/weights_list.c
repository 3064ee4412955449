// weights_list.c — where each weight is, and what is to be read for each entry.
//
//     list      | entry 0      | entry 1   | ...          an entry is a weight group
//     extents   | w.data w.scale | v.data  | ...          one for each component of each weight
//     file_weights       | q              | up      | ...          weights that are read straight
//     to a slot
#include "runtime/weights_internal.h"

#include "io/double_quant.h"

#include "base/checked.h"
#include "graph/weight_rows.h"
#include "tensor/quant.h"

#include <stdio.h>
#include <string.h>

// ---- a weight's components ----------------------------------------------------------------------

// What the component's tensor is in the file; NONE: it need not be anything in particular.
static rn_dtype component_dtype(rn_dtype dtype, rn_component component) {
    if (dtype == RN_DTYPE_NF4_DQ)
        return component == RN_COMPONENT_SHIFT ? RN_DTYPE_F32 : RN_DTYPE_U8;
    if (component != RN_COMPONENT_DATA) return RN_DTYPE_F32;
    if (dtype == RN_DTYPE_INT8) return RN_DTYPE_I8;
    return dtype == RN_DTYPE_INT4 || dtype == RN_DTYPE_NF4 ? RN_DTYPE_U8 : dtype;
}

// ---- slices of rows -----------------------------------------------------------------------------

// Rows of the tensor, and of the weight; 1 and 1 where it is all of it.
static uint64_t tensor_rows(const rn_value_info *info) {
    return info->tensor ? info->tensor_rows : 1;
}

static uint64_t weight_rows(const rn_value_info *info) {
    return info->tensor ? info->shape.dims[0] : 1;
}

// Bytes of the whole tensor, from the weight's own.
static uint64_t whole_bytes(const rn_value_info *info, uint64_t bytes) {
    return bytes / weight_rows(info) * tensor_rows(info);
}

// ---- tensors ------------------------------------------------------------------------------------

// Whether a weight is f32 in plain bytes, so that 16-bit numbers can be widened on their way to it:
// vectors, and matrices that are trained.
static bool can_widen(const rn_weights *w, rn_value value) {
    const rn_plan_place *place = &w->plan->places[value];
    return rn_graph_value(w->plan->graph, value)->dtype == RN_DTYPE_F32 && !place->layout &&
           !place->file_layout;
}

// What such a weight is in the file, where that is narrower; else NONE. `bytes`: the weight's own.
static rn_dtype find_narrow(const rn_weights *w, rn_value value, uint64_t bytes,
                            const rn_tensor_info *tensor) {
    const rn_value_info *info = rn_graph_value(w->plan->graph, value);
    bool narrow = tensor->dtype == RN_DTYPE_F16 || tensor->dtype == RN_DTYPE_BF16;
    bool fits = tensor->bytes == whole_bytes(info, bytes) / 2;
    return narrow && fits && can_widen(w, value) ? tensor->dtype : RN_DTYPE_NONE;
}

static rn_status check_tensor(const rn_value_info *info, const char *name, rn_dtype want,
                              uint64_t bytes, const rn_tensor_info *tensor) {
    rn_value_info whole = *info;
    if (info->tensor) whole.shape.dims[0] = info->tensor_rows;
    if (tensor->dtype != want)
        return rn_fail(RN_INVALID, "'%s' is %s in the file, %s in the graph", name,
                       rn_dtype_get(tensor->dtype)->name, rn_dtype_get(want)->name);
    if (tensor->bytes != whole_bytes(info, bytes))
        return rn_fail(RN_INVALID, "'%s' has %llu bytes in the file, %llu in the graph %s", name,
                       (unsigned long long)tensor->bytes,
                       (unsigned long long)whole_bytes(info, bytes),
                       rn_shape_format(whole.shape).text);
    return RN_OK;
}

// The weight as several tensors of a quantised checkpoint; NULL: it is none.
static rn_status find_form(const rn_weights *w, const rn_value_info *info,
                           const rn_weight_form **out) {
    *out = rn_checkpoint_form(w->source.checkpoint, rn_weight_tensor(info));
    if (!*out) return RN_OK;
    uint64_t rows = 0, cols = 0;
    rn_matrix_of(info, &rows, &cols);
    if (info->tensor) rows = info->tensor_rows;
    if ((*out)->dtype == info->dtype && (*out)->rows == rows && (*out)->cols == cols) return RN_OK;
    return rn_fail(RN_INVALID, "'%s' is %s (%llu, %llu) in the file, %s %s in the graph",
                   info->name, rn_dtype_get((*out)->dtype)->name, (unsigned long long)(*out)->rows,
                   (unsigned long long)(*out)->cols, rn_dtype_get(info->dtype)->name,
                   rn_shape_format(info->shape).text);
}

// The file's tensor; of a weight that is some of its rows, just these.
static rn_status find_tensor(const rn_weights *w, rn_value value, rn_component component,
                             uint64_t bytes, rn_dtype *out_narrow, rn_tensor_info *out) {
    const rn_value_info *info = rn_graph_value(w->plan->graph, value);
    char name[512];
    const char *suffix = rn_component_suffix(info->dtype, component);
    int length = snprintf(name, sizeof name, "%s%s", rn_weight_tensor(info), suffix ? suffix : "");
    const rn_tensor_info *tensor =
        length < (int)sizeof name ? rn_checkpoint_find(w->source.checkpoint, name) : NULL;
    if (!tensor) return rn_fail(RN_NOT_FOUND, "the model's files have no tensor '%s'", name);
    *out_narrow = find_narrow(w, value, bytes, tensor);
    if (*out_narrow == RN_DTYPE_NONE)
        RN_TRY(check_tensor(info, name, component_dtype(info->dtype, component), bytes, tensor));
    *out = *tensor;
    out->bytes = tensor->bytes / tensor_rows(info) * weight_rows(info);
    out->offset += tensor->bytes / tensor_rows(info) * info->first_row;
    return RN_OK;
}

// nf4_dq: scales of codes. Those of some rows of a tensor begin with a float of it where the rows
// begin with a whole 256 blocks; `bytes` are theirs.
static rn_status find_nested(const rn_weights *w, const rn_value_info *info, uint64_t bytes,
                             rn_tensor_info *out) {
    char name[512];
    uint64_t rows = 0, cols = 0, before = 0, whole = bytes;
    rn_plain_components all;
    rn_matrix_of(info, &rows, &cols);
    int length = snprintf(name, sizeof name, "%s%s", rn_weight_tensor(info),
                          rn_component_suffix(info->dtype, RN_COMPONENT_SHIFT));
    const rn_tensor_info *tensor =
        length < (int)sizeof name ? rn_checkpoint_find(w->source.checkpoint, name) : NULL;
    if (!tensor) return rn_fail(RN_NOT_FOUND, "the model's files have no tensor '%s'", name);
    if (info->tensor) {
        before = info->first_row * (cols / RN_NF4_BLOCK);
        if (cols % RN_NF4_BLOCK || before % RN_NF4_NESTED)
            return rn_hint(rn_fail(RN_UNSUPPORTED,
                                   "'%s' is rows of '%s' that begin within 256 blocks, whose "
                                   "scales are quantised together",
                                   info->name, info->tensor),
                           "quantise without double quantisation: --no-double-quant, --to nf4");
        if (!rn_plain_components_of(info->dtype, info->tensor_rows, cols, &all))
            return rn_fail(RN_INVALID, "'%s' is too large", info->tensor);
        whole = all.bytes[RN_COMPONENT_SHIFT] - sizeof(float);
    }
    if (tensor->dtype != RN_DTYPE_F32 || tensor->bytes != whole)
        return rn_fail(RN_INVALID, "'%s' is %s of %llu bytes in the file, f32 of %llu in the graph",
                       name, rn_dtype_get(tensor->dtype)->name, (unsigned long long)tensor->bytes,
                       (unsigned long long)whole);
    *out = *tensor;
    out->offset += before / RN_NF4_NESTED * sizeof(float);
    out->bytes = bytes;
    return RN_OK;
}

// ---- lists --------------------------------------------------------------------------------------

// A stack with a tensor for each of its matrices.
static bool is_in_pieces(const rn_value_info *info) {
    return info->experts && strchr(info->name, '*');
}

// The file's bytes of the rows that a layout packs together: pieces of whole ones are packed
// fastest.
static uint64_t grain_bytes(const rn_weights *w, rn_value value, const rn_tensor_info *tensor) {
    const rn_value_info *info = rn_graph_value(w->plan->graph, value);
    rn_layout layout = w->plan->places[value].layout;
    uint64_t rows = 0, cols = 0;
    if (!layout || !layout->rows_together) return 0;
    rn_matrix_of(info, &rows, &cols);
    if (is_in_pieces(info)) rows /= info->experts; // the tensor is one matrix of them
    return tensor->bytes / rows * layout->rows_together(info->dtype);
}

// Asked once, by the thread that opens the session.
static const void *find_plain(const rn_weights *w, const rn_value_info *info, rn_dtype dtype,
                              uint64_t bytes) {
    const rn_weight_source *source = &w->source;
    uint64_t whole = whole_bytes(info, bytes);
    const uint8_t *found =
        source->find ? source->find(source->self, rn_weight_tensor(info), dtype, whole) : NULL;
    return found ? found + bytes / weight_rows(info) * info->first_row : NULL;
}

static void find_in_memory(rn_weights *w, rn_value value, uint64_t bytes) {
    static const rn_dtype narrow[] = {RN_DTYPE_F16, RN_DTYPE_BF16};
    const rn_value_info *info = rn_graph_value(w->plan->graph, value);
    w->plain[value] = find_plain(w, info, info->dtype, bytes);
    for (uint32_t i = 0; !w->plain[value] && can_widen(w, value) && i < 2; i++) {
        w->plain[value] = find_plain(w, info, narrow[i], bytes / 2);
        if (w->plain[value]) w->narrow[value] = narrow[i];
    }
}

uint64_t rn_file_weight_lead(uint64_t file_offset) {
    return rn_round_down(file_offset % RN_PAGE_BYTES, sizeof(float));
}

static void list_file_weight(rn_group_list *list, rn_value value, const rn_tensor_info *tensor) {
    list->file_weights[list->file_weight_count++] = (rn_file_weight){
        .value = value, .file = tensor->file, .offset = tensor->offset, .bytes = tensor->bytes};
}

static void list_extent(const rn_weights *w, rn_group_list *list, rn_component_of component,
                        const rn_tensor_info *tensor) {
    list->extents[list->extent_count] =
        (rn_extent){.file = tensor->file,
                    .offset = tensor->offset,
                    .bytes = tensor->bytes,
                    .grain_bytes = grain_bytes(w, component.value, tensor)};
    list->components[list->extent_count++] = component;
}

static rn_status list_weight(rn_weights *w, rn_group_list *list, rn_value value) {
    const rn_value_info *info = rn_graph_value(w->plan->graph, value);
    rn_plain_components components = {0};
    RN_TRY(rn_weight_components(info, &components));
    find_in_memory(w, value, components.total_bytes);
    if (w->plain[value]) return RN_OK;
    if (!w->source.checkpoint) return rn_fail(RN_NOT_FOUND, "there is no weight '%s'", info->name);
    RN_TRY(find_form(w, info, &w->forms[value]));
    if (w->forms[value]) return RN_OK;
    if (info->dtype == RN_DTYPE_NF4_DQ) { // the offset is in no tensor of its own
        components.bytes[RN_COMPONENT_SHIFT] -= sizeof(float);
        RN_TRY(rn_double_quant_offset(w->source.checkpoint, rn_weight_tensor(info),
                                      &w->offsets[value]));
    }
    for (rn_component component = 0; component < RN_COMPONENT_COUNT; component++) {
        rn_tensor_info tensor;
        rn_dtype narrow = RN_DTYPE_NONE;
        if (component != RN_COMPONENT_DATA && components.bytes[component] == 0) continue;
        if (component == RN_COMPONENT_SHIFT && info->dtype == RN_DTYPE_NF4_DQ)
            RN_TRY(find_nested(w, info, components.bytes[component], &tensor));
        else
            RN_TRY(find_tensor(w, value, component, components.bytes[component], &narrow, &tensor));
        if (w->plan->places[value].file_layout)
            list_file_weight(list, value, &tensor);
        else
            list_extent(w, list, (rn_component_of){value, component, narrow, 0}, &tensor);
    }
    return RN_OK;
}

static rn_status find_expert(const rn_weights *w, const rn_value_info *info, uint32_t expert,
                             const rn_tensor_info **out) {
    char name[512];
    *out = rn_expert_tensor(info->name, expert, name, sizeof name)
               ? rn_checkpoint_find(w->source.checkpoint, name)
               : NULL;
    if (*out) return RN_OK;
    return rn_fail(RN_NOT_FOUND, "the model's files have no tensor '%s'", name);
}

// A tensor an expert, one behind the other in the stack.
static rn_status list_experts(rn_weights *w, rn_group_list *list, rn_value value) {
    const rn_value_info *info = rn_graph_value(w->plan->graph, value);
    rn_plain_components components = {0};
    RN_TRY(rn_weight_components(info, &components));
    find_in_memory(w, value, components.total_bytes);
    if (w->plain[value]) return RN_OK;
    if (!w->source.checkpoint) return rn_fail(RN_NOT_FOUND, "there is no weight '%s'", info->name);
    uint64_t bytes = components.total_bytes / info->experts;
    for (uint32_t e = 0; e < info->experts; e++) {
        const rn_tensor_info *tensor = NULL;
        RN_TRY(find_expert(w, info, e, &tensor));
        RN_TRY(check_tensor(info, info->name, info->dtype, bytes, tensor));
        list_extent(w, list, (rn_component_of){value, RN_COMPONENT_DATA, RN_DTYPE_NONE, e * bytes},
                    tensor);
    }
    return RN_OK;
}

static rn_status list_group(rn_weights *w, rn_group_list *list, uint32_t entry) {
    const rn_plan_group *group = &w->plan->groups[list->groups[entry]];
    list->first[entry] = list->extent_count;
    list->first_file_weight[entry] = list->file_weight_count;
    for (uint32_t i = 0; i < group->value_count; i++) {
        rn_value value = w->plan->group_values[group->first_value + i];
        const rn_value_info *info = rn_graph_value(w->plan->graph, value);
        bool form = w->source.checkpoint && rn_checkpoint_form(w->source.checkpoint, info->name);
        bool pieces = is_in_pieces(info) && !form;
        RN_TRY(pieces ? list_experts(w, list, value) : list_weight(w, list, value));
    }
    list->first[entry + 1] = list->extent_count;
    list->first_file_weight[entry + 1] = list->file_weight_count;
    return RN_OK;
}

// Extents of a weight group at most.
static size_t count_extents(const rn_weights *w, const rn_plan_group *group) {
    size_t count = 0;
    for (uint32_t i = 0; i < group->value_count; i++) {
        rn_value value = w->plan->group_values[group->first_value + i];
        const rn_value_info *info = rn_graph_value(w->plan->graph, value);
        count += is_in_pieces(info) ? info->experts : RN_COMPONENT_COUNT;
    }
    return count;
}

static rn_status make_list(rn_weights *w, rn_group_list *list) {
    size_t values = 0, extents = 0, entries = (size_t)list->count + 1;
    void *first = NULL, *first_file_weight = NULL, *items = NULL, *components = NULL,
         *file_weights = NULL;
    for (uint32_t i = 0; i < list->count; i++) {
        values += w->plan->groups[list->groups[i]].value_count;
        extents += count_extents(w, &w->plan->groups[list->groups[i]]);
    }
    RN_TRY(rn_arena_array(&w->memory, entries, sizeof(uint32_t), &first));
    RN_TRY(rn_arena_array(&w->memory, entries, sizeof(uint32_t), &first_file_weight));
    RN_TRY(rn_arena_array(&w->memory, extents, sizeof(rn_extent), &items));
    RN_TRY(rn_arena_array(&w->memory, extents, sizeof(rn_component_of), &components));
    RN_TRY(rn_arena_array(&w->memory, values, sizeof(rn_file_weight), &file_weights));
    list->first = first;
    list->first_file_weight = first_file_weight;
    list->extents = items;
    list->components = components;
    list->file_weights = file_weights;
    for (uint32_t i = 0; i < list->count; i++)
        RN_TRY(list_group(w, list, i));
    return RN_OK;
}

static rn_status find_table(const rn_weights *w, const rn_plan_rows *rows, rn_row_source *out) {
    const rn_value_info *info = rn_graph_value(w->plan->graph, rows->table);
    rn_tensor_info tensor;
    rn_dtype narrow;
    rn_plain_components components = {0};
    RN_TRY(rn_weight_components(info, &components));
    *out = (rn_row_source){.plain = find_plain(w, info, info->dtype, components.total_bytes),
                           .row_bytes = rows->row_bytes};
    if (out->plain) return RN_OK;
    if (!w->source.checkpoint) return rn_fail(RN_NOT_FOUND, "there is no weight '%s'", info->name);
    RN_TRY(find_form(w, info, &out->form));
    if (out->form) return RN_OK;
    RN_TRY(
        find_tensor(w, rows->table, RN_COMPONENT_DATA, components.total_bytes, &narrow, &tensor));
    if (narrow != RN_DTYPE_NONE)
        return rn_fail(RN_INTERNAL, "rows of '%s' cannot be widened", info->name);
    out->file = tensor.file;
    out->offset = tensor.offset;
    return RN_OK;
}

static rn_status find_tables(rn_weights *w) {
    const rn_plan *plan = w->plan;
    void *tables = NULL;
    RN_TRY(rn_arena_array(&w->memory, plan->row_table_count, sizeof(rn_row_source), &tables));
    w->tables = tables;
    for (uint32_t i = 0; i < plan->row_table_count; i++)
        RN_TRY(find_table(w, &plan->row_tables[i], &w->tables[i]));
    return RN_OK;
}

// ---- experts on demand --------------------------------------------------------------------------

static rn_status find_matrices(rn_weights *w, const rn_value_info *info, uint64_t matrix_bytes,
                               rn_stack_source *out) {
    void *tensors = NULL;
    RN_TRY(rn_arena_array(&w->memory, info->experts, sizeof(rn_tensor_info *), &tensors));
    out->tensors = tensors;
    for (uint32_t e = 0; e < info->experts; e++) {
        RN_TRY(find_expert(w, info, e, &out->tensors[e]));
        RN_TRY(check_tensor(info, info->name, info->dtype, matrix_bytes, out->tensors[e]));
    }
    return RN_OK;
}

static rn_status find_stack(rn_weights *w, const rn_plan_stack *stack, rn_stack_source *out) {
    const rn_value_info *info = rn_graph_value(w->plan->graph, stack->weight);
    rn_plain_components components = {0};
    rn_tensor_info tensor;
    rn_dtype narrow;
    *out = (rn_stack_source){.first_row = info->tensor ? info->first_row : 0};
    RN_TRY(rn_weight_components(info, &components));
    out->plain = find_plain(w, info, info->dtype, components.total_bytes);
    if (out->plain) return RN_OK;
    if (!w->source.checkpoint) return rn_fail(RN_NOT_FOUND, "there is no weight '%s'", info->name);
    RN_TRY(find_form(w, info, &out->form));
    if (out->form) return RN_OK;
    if (is_in_pieces(info)) return find_matrices(w, info, stack->matrix_bytes, out);
    RN_TRY(
        find_tensor(w, stack->weight, RN_COMPONENT_DATA, components.total_bytes, &narrow, &tensor));
    if (narrow != RN_DTYPE_NONE)
        return rn_hint(rn_fail(RN_UNSUPPORTED,
                               "experts of '%s' are %s in the file, f32 in the "
                               "graph: they cannot be brought one by one",
                               info->name, rn_dtype_get(narrow)->name),
                       "plan with experts = never");
    out->file = tensor.file;
    out->offset = tensor.offset;
    return RN_OK;
}

static rn_status find_stacks(rn_weights *w) {
    void *stacks = NULL;
    RN_TRY(rn_arena_array(&w->memory, w->plan->stack_count, sizeof(rn_stack_source), &stacks));
    w->stacks = stacks;
    for (uint32_t i = 0; i < w->plan->stack_count; i++)
        RN_TRY(find_stack(w, &w->plan->stacks[i], &w->stacks[i]));
    return RN_OK;
}

rn_status rn_weights_make_lists(rn_weights *w) {
    const rn_plan *plan = w->plan;
    rn_group_list *resident = &w->lists[RN_WEIGHTS_RESIDENT],
                  *streamed = &w->lists[RN_WEIGHTS_STREAMED];
    void *groups = NULL, *loads = NULL, *plain = NULL, *forms = NULL, *narrow = NULL,
         *offsets = NULL;
    RN_TRY(rn_arena_array(&w->memory, plan->value_count + 1u, sizeof(void *), &plain));
    RN_TRY(rn_arena_array(&w->memory, plan->value_count + 1u, sizeof(rn_dtype), &narrow));
    w->narrow = narrow;
    RN_TRY(rn_arena_array(&w->memory, plan->value_count + 1u, sizeof(void *), &forms));
    RN_TRY(rn_arena_array(&w->memory, plan->value_count + 1u, sizeof(float), &offsets));
    w->offsets = offsets;
    w->plain = plain;
    w->forms = forms;
    RN_TRY(rn_arena_array(&w->memory, plan->group_count, sizeof(uint32_t), &groups));
    RN_TRY(rn_arena_array(&w->memory, plan->load_count, sizeof(uint32_t), &loads));
    resident->groups = groups;
    streamed->groups = loads;
    for (uint32_t i = 0; i < plan->group_count; i++)
        if (plan->groups[i].resident && (!plan->groups[i].shared || plan->groups[i].brings))
            resident->groups[resident->count++] = i;
    for (uint32_t i = 0; i < plan->load_count; i++)
        streamed->groups[streamed->count++] = plan->loads[i].group;
    RN_TRY(make_list(w, resident));
    RN_TRY(make_list(w, streamed));
    RN_TRY(find_tables(w));
    return find_stacks(w);
}
