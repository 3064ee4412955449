// onnx_values.c — inputs, attributes and results of one ONNX node; constants; the two layouts of
// images.
#include "exchange/onnx_importer.h"

#include <stdarg.h>
#include <stdio.h>

// ---- failing ------------------------------------------------------------------------------------

void rn_import_refuse(rn_import_call *c, const char *format, ...) {
    char message[384];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    rn_graph_spoil(c->graph, rn_fail(RN_UNSUPPORTED, "node '%.*s' (%.*s): %s",
                                     RN_STR_ARG(c->node->name), RN_STR_ARG(c->node->op), message));
}

static bool is_spoilt(const rn_import_call *c) {
    return rn_graph_finish(c->graph) != RN_OK;
}

// ---- values -------------------------------------------------------------------------------------

rn_value rn_import_constant(rn_import *m, rn_dtype dtype, rn_shape shape, const void *data) {
    char name[32];
    snprintf(name, sizeof name, "constant.%llu", (unsigned long long)m->serial++);
    return rn_graph_constant(m->graph, name, dtype, shape, data);
}

rn_value rn_import_scalar(rn_import *m, rn_dtype dtype, double number) {
    uint64_t bytes[2] = {0};
    rn_status s = rn_dtype_convert(RN_DTYPE_F64, &number, dtype, bytes, 1);
    if (s != RN_OK) {
        rn_graph_spoil(m->graph, s);
        return RN_NO_VALUE;
    }
    return rn_import_constant(m, dtype, RN_SCALAR, bytes);
}

rn_value rn_import_int_vector(rn_import *m, const int64_t *items, size_t count) {
    return rn_import_constant(m, RN_DTYPE_I64, RN_SHAPE(count), items);
}

rn_shape rn_import_shape_of(const rn_import *m, rn_value value) {
    return value == RN_NO_VALUE ? RN_SCALAR : rn_graph_value(m->graph, value)->shape;
}

rn_dtype rn_import_dtype_of(const rn_import *m, rn_value value) {
    return value == RN_NO_VALUE ? RN_DTYPE_NONE : rn_graph_value(m->graph, value)->dtype;
}

rn_value rn_import_reshape(rn_import *m, rn_value value, rn_shape shape) {
    if (value == RN_NO_VALUE || rn_shape_equal(rn_import_shape_of(m, value), shape)) return value;
    return rn_op_reshape(m->graph, value, shape);
}

rn_value rn_import_cast(rn_import *m, rn_value value, rn_dtype dtype) {
    if (value == RN_NO_VALUE || rn_import_dtype_of(m, value) == dtype) return value;
    return rn_op_cast(m->graph, value, dtype);
}

const rn_node *rn_import_maker(const rn_import_call *c, rn_value value, rn_op op) {
    uint32_t producer = value ? rn_graph_value(c->graph, value)->producer : RN_NO_NODE;
    const rn_node *node = producer == RN_NO_NODE ? NULL : rn_graph_node(c->graph, producer);
    return node && node->op == op ? node : NULL;
}

bool rn_import_known_number(rn_import_call *c, rn_value value, float *out) {
    rn_status status = RN_OK;
    const rn_value_info *info = rn_graph_value(c->graph, value);
    if (info->dtype != RN_DTYPE_F32 || rn_shape_elements(info->shape, 2) != 1) return false;
    const float *held = rn_import_evaluate(c->import, value, false, &status);
    if (held) *out = *held;
    return held != NULL;
}

// Of a permuted value: what it was permuted from, with the axes of both together. The copy between
// is left out where nobody else reads it.
static rn_value compose(const rn_import *m, rn_value value, uint8_t *axes) {
    uint32_t producer = rn_graph_value(m->graph, value)->producer;
    const rn_node *node = producer == RN_NO_NODE ? NULL : rn_graph_node(m->graph, producer);
    if (!node || node->op != RN_OP_PERMUTE) return value;
    const rn_permute_attrs *inner = node->attrs;
    for (uint32_t i = 0; i < rn_import_shape_of(m, value).rank; i++)
        axes[i] = inner->axes[axes[i]];
    return node->inputs[0];
}

rn_value rn_import_permute(rn_import *m, rn_value value, const uint8_t *wanted) {
    uint8_t axes[RN_MAX_RANK] = {0};
    if (value == RN_NO_VALUE) return value;
    memcpy(axes, wanted, rn_import_shape_of(m, value).rank);
    value = compose(m, value, axes);
    rn_shape from = rn_import_shape_of(m, value), to = from;
    int32_t last = -1;
    bool in_order = true;
    for (uint32_t i = 0; i < from.rank; i++) {
        to.dims[i] = from.dims[axes[i]];
        if (to.dims[i] == 1) continue;
        in_order = in_order && axes[i] > last;
        last = axes[i];
    }
    return in_order ? rn_import_reshape(m, value, to) : rn_op_permute(m->graph, value, axes);
}

rn_value rn_import_to_image(rn_import *m, rn_value value) {
    uint8_t axes[RN_MAX_RANK] = {0};
    uint32_t rank = rn_import_shape_of(m, value).rank;
    for (uint32_t i = 1; i + 1 < rank; i++)
        axes[i] = (uint8_t)(i + 1);
    if (rank > 1) axes[rank - 1] = 1;
    return rn_import_permute(m, value, axes);
}

rn_value rn_import_from_image(rn_import *m, rn_value value) {
    uint8_t axes[RN_MAX_RANK] = {0};
    uint32_t rank = rn_import_shape_of(m, value).rank;
    if (rank > 1) axes[1] = (uint8_t)(rank - 1);
    for (uint32_t i = 2; i < rank; i++)
        axes[i] = (uint8_t)(i - 1);
    return rn_import_permute(m, value, axes);
}

// ---- inputs -------------------------------------------------------------------------------------

rn_import_slot *rn_import_lookup(const rn_import_scope *scope, rn_str name) {
    uint64_t slot = 0;
    for (; scope; scope = scope->parent)
        if (rn_map_find(&scope->names, name, &slot)) return (rn_import_slot *)(uintptr_t)slot;
    return NULL;
}

rn_import_slot *rn_import_slot_of(rn_import_call *c, uint32_t input) {
    if (input >= c->node->input_count || c->node->inputs[input].bytes == 0) return NULL;
    rn_import_slot *slot = rn_import_lookup(c->scope, c->node->inputs[input]);
    // A name that stands for an argument which the function's caller left out has no value either.
    if (!slot)
        rn_import_refuse(c, "its input '%.*s' is made by no node before it",
                         RN_STR_ARG(c->node->inputs[input]));
    return slot && (slot->value || slot->tensor || slot->is_empty) ? slot : NULL;
}

bool rn_import_has(rn_import_call *c, uint32_t input) {
    return rn_import_slot_of(c, input) != NULL;
}

static rn_status decode_constant(rn_import *m, const rn_onnx_tensor *t, rn_shape shape,
                                 rn_value *out) {
    uint64_t bytes = 0;
    void *data = NULL;
    if (!rn_onnx_tensor_bytes(t, &bytes)) return rn_fail(RN_CORRUPT, "a constant has no size");
    RN_TRY(rn_arena_alloc(&m->memory, bytes, &data));
    if (t->external) {
        char name[512];
        snprintf(name, sizeof name, "%.*s", RN_STR_ARG(t->name));
        const rn_tensor_info *info = m->checkpoint ? rn_checkpoint_find(m->checkpoint, name) : NULL;
        if (!info || info->bytes != bytes)
            return rn_fail(RN_UNSUPPORTED, "external data of '%s', which is no initializer", name);
        RN_TRY(rn_checkpoint_read(m->checkpoint, info, 0, data, bytes));
    } else {
        RN_TRY(rn_onnx_tensor_decode(t, data, bytes));
    }
    *out = rn_import_constant(m, rn_onnx_dtype(t->data_type), shape, data);
    return RN_OK;
}

static bool has_shape(const rn_tensor_info *t, rn_shape shape) {
    return t->rank == shape.rank && memcmp(t->dims, shape.dims, t->rank * sizeof *t->dims) == 0;
}

// "NAME._data" and "NAME._scale": whole numbers with a scale for each index of the first axis.
static rn_value scaled_weight(rn_import *m, const char *name, rn_shape shape) {
    char data_name[300], scale_name[300];
    snprintf(data_name, sizeof data_name, "%.280s._data", name);
    snprintf(scale_name, sizeof scale_name, "%.280s._scale", name);
    const rn_tensor_info *data = rn_checkpoint_find(m->weights, data_name),
                         *scale = rn_checkpoint_find(m->weights, scale_name);
    if (!data || !scale || data->dtype != RN_DTYPE_I8 || scale->dtype != RN_DTYPE_F32 ||
        !has_shape(data, shape) || shape.rank == 0 || scale->elements != shape.dims[0] ||
        scale->rank > RN_MAX_RANK)
        return RN_NO_VALUE;
    rn_shape scales = {.rank = scale->rank};
    memcpy(scales.dims, scale->dims, scale->rank * sizeof *scale->dims);
    rn_value x = rn_graph_weight(m->graph, data_name, RN_DTYPE_I8, shape),
             s = rn_graph_weight(m->graph, scale_name, RN_DTYPE_F32, scales);
    s = rn_op_reshape(m->graph, s, RN_SHAPE(shape.dims[0]));
    return rn_op_dequantize_linear(m->graph, x, s, RN_NO_VALUE,
                                   (rn_linear_attrs){.axis = 0, .dtype = RN_DTYPE_F32});
}

// A weight as the other file has it, widened where it is narrower there.
static rn_status make_other_weight(rn_import *m, const char *name, rn_dtype dtype, rn_shape shape,
                                   rn_value *out) {
    const rn_tensor_info *t = rn_checkpoint_find(m->weights, name);
    bool same = t && t->dtype == dtype,
         wider = t && dtype == RN_DTYPE_F32 && rn_dtype_get(t->dtype)->readable;
    if (t && (same || wider) && has_shape(t, shape)) {
        *out = rn_graph_weight(m->graph, name, t->dtype, shape);
        if (!same) *out = rn_op_dequantize(m->graph, *out);
        return RN_OK;
    }
    *out = !t && dtype == RN_DTYPE_F32 ? scaled_weight(m, name, shape) : RN_NO_VALUE;
    if (*out) return RN_OK;
    return rn_hint(rn_fail(RN_NOT_FOUND,
                           "'%s' %s is not in the file of weights, or of another type", name,
                           rn_shape_format(shape).text),
                   "ration convert MODEL.onnx FILE --to f16, bf16, int8 or q8_0 writes one");
}

// An initializer or a Constant becomes a value of the graph.
static rn_status make_value(rn_import *m, rn_import_slot *slot) {
    const rn_onnx_tensor *t = slot->tensor;
    rn_shape shape = {.rank = t->rank};
    uint64_t bytes = 0;
    void *name = NULL;
    if (!rn_onnx_tensor_bytes(t, &bytes))
        return rn_fail(RN_UNSUPPORTED, "'%.*s' has the element type %s", RN_STR_ARG(slot->name),
                       rn_onnx_type_name(t->data_type));
    if (t->rank > RN_MAX_RANK)
        return rn_fail(RN_UNSUPPORTED, "'%.*s' has %u axes", RN_STR_ARG(slot->name), t->rank);
    for (uint32_t i = 0; i < t->rank; i++)
        shape.dims[i] = t->dims[i];
    if (!slot->is_initializer || bytes <= RN_ONNX_CONSTANT_BYTES)
        return decode_constant(m, t, shape, &slot->value);
    RN_TRY(rn_arena_copy(&m->memory, t->name.data, t->name.bytes, &name));
    if (m->weights != m->checkpoint)
        return make_other_weight(m, name, rn_onnx_dtype(t->data_type), shape, &slot->value);
    slot->value = rn_graph_weight(m->graph, name, rn_onnx_dtype(t->data_type), shape);
    return RN_OK;
}

bool rn_import_is_empty(rn_import_call *c, uint32_t input) {
    rn_import_slot *slot = rn_import_slot_of(c, input);
    return slot && (slot->is_empty || (slot->tensor && slot->tensor->elements == 0));
}

static rn_value slot_value(rn_import_call *c, rn_import_slot *slot) {
    if (slot->is_empty && !is_spoilt(c))
        rn_import_refuse(c, "its input '%.*s' has no elements", RN_STR_ARG(slot->name));
    if (slot->value != RN_NO_VALUE || is_spoilt(c)) return slot->value;
    rn_status s = make_value(c->import, slot);
    if (s == RN_OK) return slot->value;
    rn_import_refuse(c, "%s", rn_last_error()->message);
    return RN_NO_VALUE;
}

static rn_value in_layout(rn_import_call *c, rn_import_slot *slot, bool channels_last) {
    rn_value value = slot_value(c, slot);
    if (slot->channels_last == channels_last || value == RN_NO_VALUE) return value;
    if (slot->other == RN_NO_VALUE)
        slot->other = channels_last ? rn_import_to_image(c->import, value)
                                    : rn_import_from_image(c->import, value);
    return slot->other;
}

rn_value rn_import_slot_value(rn_import_call *c, rn_import_slot *slot) {
    return in_layout(c, slot, false);
}

rn_value rn_import_optional(rn_import_call *c, uint32_t input) {
    rn_import_slot *slot = rn_import_slot_of(c, input);
    return slot ? in_layout(c, slot, false) : RN_NO_VALUE;
}

static rn_import_slot *required(rn_import_call *c, uint32_t input) {
    rn_import_slot *slot = rn_import_slot_of(c, input);
    if (!slot && !is_spoilt(c)) rn_import_refuse(c, "input %u is missing", input);
    return slot;
}

rn_value rn_import_in(rn_import_call *c, uint32_t input) {
    rn_import_slot *slot = required(c, input);
    return slot ? in_layout(c, slot, false) : RN_NO_VALUE;
}

rn_value rn_import_image(rn_import_call *c, uint32_t input) {
    rn_import_slot *slot = required(c, input);
    if (!slot) return RN_NO_VALUE;
    rn_value value = slot_value(c, slot);
    if (value != RN_NO_VALUE && rn_import_shape_of(c->import, value).rank < 2) {
        rn_import_refuse(c, "input %u has no channels", input);
        return RN_NO_VALUE;
    }
    return in_layout(c, slot, true);
}

rn_value rn_import_any(rn_import_call *c, uint32_t input, bool *out_channels_last) {
    rn_import_slot *slot = required(c, input);
    rn_value value = slot ? slot_value(c, slot) : RN_NO_VALUE;
    *out_channels_last = slot && slot->channels_last;
    return value;
}

// As an image of that rank: leading axes of 1 are added first.
static rn_value stretched_image(rn_import_call *c, uint32_t input, uint32_t rank) {
    rn_import_slot *slot = required(c, input);
    rn_value value = slot ? slot_value(c, slot) : RN_NO_VALUE;
    rn_shape shape = rn_import_shape_of(c->import, value), to = {.rank = rank};
    if (value == RN_NO_VALUE) return value;
    if (shape.rank == rank) return in_layout(c, slot, true);
    if (shape.rank == 0) return value;
    for (uint32_t i = 0; i < rank; i++)
        to.dims[i] = i < rank - shape.rank ? 1 : shape.dims[i - (rank - shape.rank)];
    return rn_import_to_image(c->import,
                              rn_import_reshape(c->import, in_layout(c, slot, false), to));
}

void rn_import_joined(rn_import_call *c, uint32_t first, uint32_t count, rn_value *out,
                      bool *out_channels_last) {
    uint32_t most = 0, image_rank = 0;
    for (uint32_t i = 0; i < count; i++) {
        rn_value value = rn_import_any(c, first + i, out_channels_last);
        uint32_t rank = rn_import_shape_of(c->import, value).rank;
        most = rank > most ? rank : most;
        if (*out_channels_last) image_rank = rank;
    }
    *out_channels_last = image_rank > 0 && image_rank == most;
    for (uint32_t i = 0; i < count; i++)
        out[i] = *out_channels_last ? stretched_image(c, first + i, image_rank)
                                    : rn_import_in(c, first + i);
}

rn_shape rn_import_shape(rn_import_call *c, uint32_t input) {
    rn_import_slot *slot = required(c, input);
    if (!slot) return RN_SCALAR;
    if (slot->is_empty) return slot->empty_shape;
    if (slot->value == RN_NO_VALUE && slot->tensor && slot->tensor->rank <= RN_MAX_RANK) {
        rn_shape shape = {.rank = slot->tensor->rank};
        for (uint32_t i = 0; i < shape.rank; i++)
            shape.dims[i] = slot->tensor->dims[i];
        return shape;
    }
    rn_shape from = rn_import_shape_of(c->import, slot_value(c, slot)), shape = from;
    if (!slot->channels_last) return from;
    shape.dims[1] = from.dims[from.rank - 1];
    for (uint32_t i = 2; i < from.rank; i++)
        shape.dims[i] = from.dims[i - 1];
    return shape;
}

rn_dtype rn_import_dtype(rn_import_call *c, uint32_t input) {
    rn_import_slot *slot = required(c, input);
    if (!slot) return RN_DTYPE_NONE;
    if (slot->is_empty) return slot->empty_dtype;
    if (slot->value == RN_NO_VALUE && slot->tensor) return rn_onnx_dtype(slot->tensor->data_type);
    return rn_import_dtype_of(c->import, slot_value(c, slot));
}

uint32_t rn_import_rank(rn_import_call *c, uint32_t input) {
    return rn_import_shape(c, input).rank;
}

// ---- values that are looked at ------------------------------------------------------------------

const void *rn_import_bytes(rn_import_call *c, uint32_t input) {
    rn_value value = rn_import_in(c, input);
    rn_status s = RN_OK;
    if (value == RN_NO_VALUE) return NULL;
    const void *data = rn_import_evaluate(c->import, value, true, &s);
    if (s != RN_OK)
        rn_graph_spoil(c->graph, s);
    else if (!data)
        rn_import_refuse(
            c,
            "its input %u ('%.*s') decides about shapes and is not known: it depends on the "
            "model's inputs (bind their values), or takes too much to compute",
            input, RN_STR_ARG(c->node->inputs[input]));
    return data;
}

bool rn_import_is_constant(rn_import_call *c, uint32_t input) {
    rn_import_slot *slot = rn_import_slot_of(c, input);
    rn_status s = RN_OK;
    if (!slot) return false;
    rn_value value = slot_value(c, slot);
    bool known = value != RN_NO_VALUE && rn_import_evaluate(c->import, value, false, &s);
    if (s != RN_OK) rn_graph_spoil(c->graph, s);
    return known;
}

// Elements of any number type as another, `room` at most.
static bool convert_elements(rn_import_call *c, uint32_t input, rn_dtype to, void *out, size_t room,
                             size_t *out_count) {
    *out_count = 0;
    if (!rn_import_has(c, input)) return !is_spoilt(c);
    uint64_t elements = rn_shape_elements(rn_import_shape(c, input), 1);
    if (elements == 0) return true;
    const void *data = rn_import_bytes(c, input);
    if (!data) return false;
    if (elements > room) {
        rn_import_refuse(c, "its input %u has %llu elements, at most %zu are expected", input,
                         (unsigned long long)elements, room);
        return false;
    }
    rn_status s = rn_dtype_convert(rn_import_dtype(c, input), data, to, out, elements);
    if (s != RN_OK) rn_graph_spoil(c->graph, s);
    *out_count = (size_t)elements;
    return s == RN_OK;
}

bool rn_import_ints(rn_import_call *c, uint32_t input, int64_t *out, size_t room,
                    size_t *out_count) {
    return convert_elements(c, input, RN_DTYPE_I64, out, room, out_count);
}

bool rn_import_floats(rn_import_call *c, uint32_t input, double *out, size_t room,
                      size_t *out_count) {
    return convert_elements(c, input, RN_DTYPE_F64, out, room, out_count);
}

double rn_import_number(rn_import_call *c, uint32_t input, double otherwise) {
    double number = otherwise;
    size_t count = 0;
    bool good = rn_import_floats(c, input, &number, 1, &count);
    return good && count == 1 ? number : otherwise;
}

// ---- attributes ---------------------------------------------------------------------------------

static const rn_onnx_attribute *find_in(const rn_onnx_attribute *items, size_t count, rn_str name) {
    for (size_t i = 0; i < count; i++)
        if (rn_str_equal(items[i].name, name)) return &items[i];
    return NULL;
}

// Through the callers, where it is a reference to their attributes.
static const rn_onnx_attribute *find_attribute(const rn_import_scope *scope,
                                               const rn_onnx_node *node, rn_str name) {
    const rn_onnx_attribute *found = find_in(node->attributes, node->attribute_count, name);
    while (found && found->reference.bytes) {
        while (scope && !scope->function)
            scope = scope->parent;
        if (!scope) return NULL;
        rn_str wanted = found->reference;
        found = find_in(scope->caller->attributes, scope->caller->attribute_count, wanted);
        if (!found)
            return find_in(scope->function->defaults, scope->function->default_count, wanted);
        scope = scope->caller_scope;
    }
    return found;
}

const rn_onnx_attribute *rn_import_attribute(const rn_import_call *c, const char *name) {
    return find_attribute(c->scope, c->node, rn_str_from(name));
}

int64_t rn_import_int(const rn_import_call *c, const char *name, int64_t otherwise) {
    const rn_onnx_attribute *a = rn_import_attribute(c, name);
    return a && a->type == RN_ONNX_INT ? a->i : otherwise;
}

float rn_import_float(const rn_import_call *c, const char *name, float otherwise) {
    const rn_onnx_attribute *a = rn_import_attribute(c, name);
    return a && a->type == RN_ONNX_FLOAT ? a->f : otherwise;
}

rn_str rn_import_text(const rn_import_call *c, const char *name, const char *otherwise) {
    const rn_onnx_attribute *a = rn_import_attribute(c, name);
    if (!a || a->type != RN_ONNX_TEXT) return rn_str_from(otherwise);
    return a->s.data ? a->s : RN_STR("");
}

bool rn_import_text_is(const rn_import_call *c, const char *name, const char *otherwise,
                       const char *text) {
    return rn_str_equal(rn_import_text(c, name, otherwise), rn_str_from(text));
}

size_t rn_import_int_list(const rn_import_call *c, const char *name, const int64_t **out) {
    const rn_onnx_attribute *a = rn_import_attribute(c, name);
    *out = NULL;
    if (!a || a->type != RN_ONNX_INTS) return 0;
    *out = a->ints;
    return a->count;
}

bool rn_import_ints_either(rn_import_call *c, const char *name, uint32_t input, int64_t *out,
                           size_t room, size_t *out_count) {
    const int64_t *items = NULL;
    *out_count = rn_import_int_list(c, name, &items);
    if (!items) return rn_import_ints(c, input, out, room, out_count);
    if (*out_count > room) {
        rn_import_refuse(c, "its attribute %s has %zu numbers", name, *out_count);
        return false;
    }
    if (*out_count) memcpy(out, items, *out_count * sizeof *out);
    return true;
}

uint32_t rn_import_axis(rn_import_call *c, int64_t axis, uint32_t rank) {
    if (axis < 0) axis += rank;
    if (axis >= 0 && axis < (int64_t)rank) return (uint32_t)axis;
    rn_import_refuse(c, "there is no axis %lld, the rank is %u", (long long)axis, rank);
    return 0;
}

// ---- results ------------------------------------------------------------------------------------

bool rn_import_wants(const rn_import_call *c, uint32_t output) {
    return output < c->node->output_count && c->node->outputs[output].bytes > 0;
}

static rn_status add_slot(rn_import_call *c, rn_str name, rn_import_slot **out) {
    void *block = NULL;
    bool existing = false;
    RN_TRY(rn_arena_alloc(&c->import->memory, sizeof **out, &block));
    *out = block;
    (*out)->name = name;
    RN_TRY(rn_map_add(&c->scope->names, name, (uint64_t)(uintptr_t)block, &existing));
    if (existing) return rn_fail(RN_CORRUPT, "two nodes make '%.*s'", RN_STR_ARG(name));
    return RN_OK;
}

// What depends on constants alone goes on as a constant.
static rn_value fold(rn_import_call *c, rn_value value) {
    rn_status s = RN_OK;
    const rn_value_info *info = rn_graph_value(c->graph, value);
    if (info->producer == RN_NO_NODE) return value;
    const void *data = rn_import_evaluate(c->import, value, false, &s);
    if (s != RN_OK) rn_graph_spoil(c->graph, s);
    return data ? rn_import_constant(c->import, info->dtype, info->shape, data) : value;
}

void rn_import_out_as(rn_import_call *c, uint32_t output, rn_value value, bool channels_last) {
    rn_import_slot *slot = NULL;
    if (!rn_import_wants(c, output) || is_spoilt(c)) return;
    if (value == RN_NO_VALUE) {
        rn_import_refuse(c, "output %u is not made", output);
        return;
    }
    value = fold(c, value);
    rn_status s = add_slot(c, c->node->outputs[output], &slot);
    if (s != RN_OK) {
        rn_graph_spoil(c->graph, s);
        return;
    }
    slot->value = value;
    slot->channels_last = channels_last;
}

void rn_import_out_slot(rn_import_call *c, uint32_t output, const rn_import_slot *slot) {
    rn_import_slot *to = NULL;
    if (!rn_import_wants(c, output) || is_spoilt(c)) return;
    rn_status s = add_slot(c, c->node->outputs[output], &to);
    if (s != RN_OK) {
        rn_graph_spoil(c->graph, s);
        return;
    }
    rn_str name = to->name;
    *to = *slot;
    to->name = name;
}

void rn_import_out_empty(rn_import_call *c, uint32_t output, rn_dtype dtype, rn_shape shape) {
    rn_import_slot *slot = NULL;
    if (!rn_import_wants(c, output) || is_spoilt(c)) return;
    rn_status s = add_slot(c, c->node->outputs[output], &slot);
    if (s != RN_OK) {
        rn_graph_spoil(c->graph, s);
        return;
    }
    slot->is_empty = true;
    slot->empty_dtype = dtype;
    slot->empty_shape = shape;
}

void rn_import_out(rn_import_call *c, uint32_t output, rn_value value) {
    rn_import_out_as(c, output, value, false);
}
