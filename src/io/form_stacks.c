// form_stacks.c — the experts of a layer that are forms of their own, one behind the other, as one
// weight: "layers.0.mlp.experts.*.gate_proj.weight" is all of "...experts.0.gate_proj.weight", ...
//
// They must be alike, since a stack's records are: kind, rows and columns.
#include "io/weight_forms_internal.h"

#include "base/checked.h"

#include <stdio.h>

enum { NAME_BYTES = 512, MOST_EXPERTS = 4096 };

// A name around an expert's number.
typedef struct stack_name {
    rn_str before, after; // "layers.0.mlp.experts.", ".gate_proj.weight"
} stack_name;

// Of the first expert's name; false: it is another's.
static bool split_name(rn_str name, stack_name *out) {
    static const char mark[] = ".experts.0.";
    const char *found = memmem(name.data, name.bytes, mark, sizeof mark - 1);
    if (!found) return false;
    size_t at = (size_t)(found - name.data) + strlen(".experts.");
    out->before = (rn_str){name.data, at};
    out->after = (rn_str){name.data + at + 1, name.bytes - at - 1};
    return true;
}

static const rn_weight_form *find_expert(const rn_checkpoint *checkpoint, const stack_name *name,
                                         uint32_t expert) {
    char text[NAME_BYTES];
    int length = snprintf(text, sizeof text, "%.*s%u%.*s", RN_STR_ARG(name->before), expert,
                          RN_STR_ARG(name->after));
    return length < NAME_BYTES ? rn_checkpoint_form(checkpoint, text) : NULL;
}

static rn_status check_alike(const rn_checkpoint *checkpoint, const rn_weight_form *first,
                             const rn_weight_form *form) {
    if (form->dtype == first->dtype && form->rows == first->rows && form->cols == first->cols)
        return RN_OK;
    rn_status s = rn_fail(RN_UNSUPPORTED,
                          "the weight '%.*s' is %s (%llu, %llu), the experts before it are %s "
                          "(%llu, %llu)",
                          RN_STR_ARG(form->name), rn_dtype_get(form->dtype)->name,
                          (unsigned long long)form->rows, (unsigned long long)form->cols,
                          rn_dtype_get(first->dtype)->name, (unsigned long long)first->rows,
                          (unsigned long long)first->cols);
    return rn_hint(rn_form_blame(checkpoint, form->data, s),
                   "experts of several kinds are not built: take a checkpoint that treats all "
                   "alike, or a GGUF file");
}

static rn_status name_stack(rn_checkpoint *checkpoint, const stack_name *name, rn_str *out) {
    char text[NAME_BYTES];
    void *copy;
    size_t length = (size_t)snprintf(text, sizeof text, "%.*s*%.*s", RN_STR_ARG(name->before),
                                     RN_STR_ARG(name->after)); // as long as the first expert's
    RN_TRY(rn_arena_copy(&checkpoint->arena, text, length, &copy));
    *out = (rn_str){copy, length};
    return RN_OK;
}

static rn_status add_stack(rn_checkpoint *checkpoint, const rn_weight_form *first,
                           const stack_name *name) {
    rn_weight_forms *forms = checkpoint->forms;
    const rn_weight_form *form = first;
    rn_weight_form *stack = &forms->items[forms->count];
    uint32_t count = 0;
    void *block;
    for (; form && count < MOST_EXPERTS; form = find_expert(checkpoint, name, ++count))
        RN_TRY(check_alike(checkpoint, first, form));
    *stack = *first;
    if (!rn_mul_u64(first->rows, count, &stack->rows))
        return rn_fail(RN_CORRUPT, "'%.*s': %u experts are too many", RN_STR_ARG(first->name),
                       count);
    RN_TRY(rn_arena_array(&checkpoint->arena, count, sizeof *stack->experts, &block));
    const rn_weight_form **experts = block;
    for (uint32_t e = 0; e < count; e++)
        experts[e] = find_expert(checkpoint, name, e);
    stack->experts = experts;
    stack->expert_count = count;
    RN_TRY(name_stack(checkpoint, name, &stack->name));
    return rn_map_add(&forms->by_name, stack->name, forms->count++, NULL);
}

rn_status rn_checkpoint_stack_forms(rn_checkpoint *checkpoint) {
    size_t count = checkpoint->forms->count;
    for (size_t i = 0; i < count; i++) {
        const rn_weight_form *form = &checkpoint->forms->items[i];
        stack_name name;
        if (split_name(form->name, &name)) RN_TRY(add_stack(checkpoint, form, &name));
    }
    return RN_OK;
}

// ---- reading ------------------------------------------------------------------------------------

typedef struct stack_reading {
    rn_form_piece piece;
    void *self;
    uint64_t before; // bytes of the experts before
} stack_reading;

static rn_status take_piece(void *self, rn_component component, uint64_t offset, const void *data,
                            uint64_t bytes) {
    const stack_reading *r = self;
    return r->piece(r->self, component, r->before + offset, data, bytes);
}

rn_status rn_form_stack_read(const rn_checkpoint *checkpoint, const rn_weight_form *stack,
                             uint64_t first, uint64_t rows, rn_form_piece piece, void *self) {
    stack_reading r = {.piece = piece, .self = self};
    uint64_t each = stack->rows / stack->expert_count, row_bytes = 0;
    if (!rn_dtype_bytes(stack->dtype, stack->cols, &row_bytes) || first > stack->rows ||
        rows > stack->rows - first)
        return rn_fail(RN_INTERNAL, "rows of '%.*s' that are not there", RN_STR_ARG(stack->name));
    for (uint64_t at = first; at < first + rows;) {
        uint64_t end = rn_min_u64((at / each + 1) * each, first + rows);
        RN_TRY(rn_weight_form_read(checkpoint, stack->experts[at / each], at % each, end - at,
                                   take_piece, &r));
        r.before += (end - at) * row_bytes;
        at = end;
    }
    return RN_OK;
}
