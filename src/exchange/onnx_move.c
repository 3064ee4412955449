// onnx_move.c — ONNX's ops that move elements: shapes, slices, gathers, padding.
#include "exchange/onnx_importer.h"

#include "base/checked.h"

#include <string.h>

// ---- shapes -------------------------------------------------------------------------------------

static bool has_rows(rn_shape shape) {
    return shape.rank > 0 && shape.dims[0] == RN_ROWS;
}

// The shape that Reshape's numbers mean: 0 keeps an axis, -1 takes what is left.
static bool resolve_shape(rn_import_call *c, rn_shape from, const int64_t *to, size_t count,
                          bool allow_zero, rn_shape *out) {
    uint64_t known = 1, all = rn_shape_elements(from, 1);
    int open = -1;
    *out = (rn_shape){.rank = (uint32_t)count};
    for (size_t i = 0; i < count; i++) {
        bool rows = i == 0 && has_rows(from);
        if (rows && (to[0] == -1 || (to[0] == 0 && !allow_zero)))
            out->dims[0] = RN_ROWS;
        else if (to[i] == -1 && open < 0)
            open = (int)i, out->dims[i] = 1;
        else if (to[i] == 0 && !allow_zero && i < from.rank)
            out->dims[i] = from.dims[i];
        else if (to[i] < 0)
            return false;
        else
            out->dims[i] = (uint64_t)to[i];
        if (out->dims[i] != RN_ROWS && !rn_mul_u64(known, out->dims[i], &known)) return false;
    }
    (void)c;
    if (open < 0) return true;
    if (known == 0 || all % known) return false;
    out->dims[open] = all / known;
    return true;
}

// The same elements in another shape; also of none.
static void out_shaped(rn_import_call *c, rn_shape to) {
    if (rn_import_is_empty(c, 0))
        rn_import_out_empty(c, 0, rn_import_dtype(c, 0), to);
    else
        rn_import_out(c, 0, rn_import_reshape(c->import, rn_import_in(c, 0), to));
}

static void reshape(rn_import_call *c) {
    rn_shape from = rn_import_shape(c, 0), to;
    int64_t sizes[RN_MAX_RANK];
    size_t count = 0;
    if (!rn_import_ints_either(c, "shape", 1, sizes, RN_MAX_RANK, &count)) return;
    if (!resolve_shape(c, from, sizes, count, rn_import_int(c, "allowzero", 0) != 0, &to)) {
        rn_import_refuse(c, "%s does not fit the shape that is asked for",
                         rn_shape_format(from).text);
        return;
    }
    out_shaped(c, to);
}

static void flatten(rn_import_call *c) {
    rn_value x = rn_import_in(c, 0);
    rn_shape from = rn_import_shape_of(c->import, x), to = RN_SHAPE(1, 1);
    int64_t axis = rn_import_int(c, "axis", 1);
    if (!x) return;
    if (axis < 0) axis += from.rank;
    if (has_rows(from) && axis != 1) {
        rn_import_refuse(c, "axis %lld of a shape with rows", (long long)axis);
        return;
    }
    for (uint32_t i = 0; i < from.rank; i++)
        if (from.dims[i] == RN_ROWS)
            to.dims[0] = RN_ROWS;
        else
            to.dims[(int64_t)i >= axis] *= from.dims[i];
    rn_import_out(c, 0, rn_import_reshape(c->import, x, to));
}

// Bits of axes that an attribute or an input names; `out_given`: there were any.
static uint32_t read_axes(rn_import_call *c, uint32_t input, uint32_t rank, bool *out_given) {
    int64_t axes[RN_MAX_RANK];
    size_t count = 0;
    uint32_t bits = 0;
    if (!rn_import_ints_either(c, "axes", input, axes, RN_MAX_RANK, &count)) return 0;
    *out_given = count > 0;
    for (size_t i = 0; i < count; i++)
        bits |= 1u << rn_import_axis(c, axes[i], rank);
    return bits;
}

static void squeeze(rn_import_call *c) {
    rn_shape from = rn_import_shape(c, 0), to = {.rank = 0};
    bool given = false;
    uint32_t axes = read_axes(c, 1, from.rank, &given);
    for (uint32_t i = 0; i < from.rank; i++)
        if (given ? !(axes >> i & 1) : from.dims[i] != 1) to.dims[to.rank++] = from.dims[i];
    out_shaped(c, to);
}

static void unsqueeze(rn_import_call *c) {
    rn_shape from = rn_import_shape(c, 0), to = {.rank = 0};
    int64_t axes[RN_MAX_RANK];
    size_t count = 0;
    uint32_t bits = 0, at = 0;
    if (!rn_import_ints_either(c, "axes", 1, axes, RN_MAX_RANK, &count)) return;
    if (from.rank + count > RN_MAX_RANK) {
        rn_import_refuse(c, "the result has %zu axes", from.rank + count);
        return;
    }
    to.rank = from.rank + (uint32_t)count;
    for (size_t i = 0; i < count; i++)
        bits |= 1u << rn_import_axis(c, axes[i], to.rank);
    for (uint32_t i = 0; i < to.rank; i++)
        to.dims[i] = bits >> i & 1 || at >= from.rank ? 1 : from.dims[at++];
    out_shaped(c, to);
}

// The axis of a value whose channels are last.
static uint32_t image_axis(uint32_t axis, uint32_t rank) {
    return axis == 0 ? 0 : axis == 1 ? rank - 1 : axis - 1;
}

// Between images with channels first and last only the mark changes.
static void transpose(rn_import_call *c) {
    static const uint8_t channels_to_front[] = {0, 3, 1, 2};
    bool image;
    rn_value x = rn_import_any(c, 0, &image);
    uint32_t rank = rn_import_shape_of(c->import, x).rank;
    uint8_t axes[RN_MAX_RANK];
    const int64_t *perm = NULL;
    size_t count = rn_import_int_list(c, "perm", &perm);
    if (!x) return;
    if (perm && count != rank) {
        rn_import_refuse(c, "perm has %zu axes, the input %u", count, rank);
        return;
    }
    for (uint32_t i = 0; i < rank; i++)
        axes[i] = (uint8_t)(perm ? rn_import_axis(c, perm[i], rank) : rank - 1 - i);
    if (!image && rank == 4 && memcmp(axes, channels_to_front, rank) == 0) {
        rn_import_out_as(c, 0, x, true);
        return;
    }
    for (uint32_t i = 0; image && i < rank; i++)
        axes[i] = (uint8_t)image_axis(axes[i], rank);
    rn_import_out(c, 0, rn_import_permute(c->import, x, axes));
}

// ---- joining and cutting ------------------------------------------------------------------------

enum { MOST_PARTS = 256 };

static void concat(rn_import_call *c) {
    rn_value parts[MOST_PARTS];
    uint32_t count = (uint32_t)c->node->input_count, kept = 0;
    if (count == 0 || count > MOST_PARTS) {
        rn_import_refuse(c, "%u inputs", count);
        return;
    }
    uint32_t rank = rn_import_rank(c, 0), images = 0;
    uint32_t axis = rn_import_axis(c, rn_import_int(c, "axis", 1), rank);
    for (uint32_t i = 0; i < count; i++) {
        rn_import_slot *slot = rn_import_slot_of(c, i);
        images += slot && slot->channels_last;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (!rn_shape_elements(rn_import_shape(c, i), 1)) continue; // nothing of it
        parts[kept++] = images ? rn_import_image(c, i) : rn_import_in(c, i);
        if (!parts[kept - 1]) return;
    }
    if (kept == 0) {
        rn_shape none = rn_import_shape(c, 0);
        rn_import_out_empty(c, 0, rn_import_dtype(c, 0), none);
        return;
    }
    rn_value y = kept == 1 ? parts[0]
                           : rn_op_concat(c->graph, parts, kept,
                                          images && kept > 0 ? image_axis(axis, rank) : axis);
    rn_import_out_as(c, 0, y, images > 0);
}

static rn_value cut(rn_import_call *c, rn_value x, uint32_t axis, uint64_t start, uint64_t count) {
    rn_shape shape = rn_import_shape_of(c->import, x);
    if (!x || (start == 0 && count == shape.dims[axis])) return x;
    return rn_op_slice(c->graph, x, axis, start, count);
}

static void split(rn_import_call *c) {
    bool channels_last;
    rn_value x = rn_import_any(c, 0, &channels_last);
    rn_shape shape = rn_import_shape(c, 0);
    int64_t sizes[MOST_PARTS];
    size_t count = 0, outputs = c->node->output_count;
    uint32_t axis = rn_import_axis(c, rn_import_int(c, "axis", 0), shape.rank);
    if (!x || !rn_import_ints_either(c, "split", 1, sizes, MOST_PARTS, &count)) return;
    if (outputs > MOST_PARTS || (count && count != outputs) || shape.dims[axis] == RN_ROWS) {
        rn_import_refuse(c, "%zu parts of axis %u", outputs, axis);
        return;
    }
    if (count == 0) {
        uint64_t each = rn_div_up(shape.dims[axis], outputs), left = shape.dims[axis];
        for (size_t i = 0; i < outputs; i++, left -= rn_min_u64(each, left))
            sizes[i] = (int64_t)rn_min_u64(each, left);
    }
    uint32_t at = channels_last ? image_axis(axis, shape.rank) : axis;
    for (uint64_t i = 0, start = 0; i < outputs; start += (uint64_t)sizes[i++]) {
        if (sizes[i] < 0 || start + (uint64_t)sizes[i] > shape.dims[axis]) {
            rn_import_refuse(c, "parts larger than axis %u", axis);
            return;
        }
        if (sizes[i] == 0) {
            rn_shape none = shape;
            none.dims[axis] = 0;
            rn_import_out_empty(c, (uint32_t)i, rn_import_dtype(c, 0), none);
            continue;
        }
        rn_value part = cut(c, x, at, start, (uint64_t)sizes[i]);
        rn_import_out_as(c, (uint32_t)i, part, channels_last);
    }
}

// One axis of Slice, by Python's rules.
static void slice_axis(int64_t length, int64_t start, int64_t end, int64_t step,
                       uint64_t *out_start, uint64_t *out_count) {
    int64_t low = step < 0 ? -1 : 0, high = step < 0 ? length - 1 : length;
    if (start < 0) start = start < -length ? low : start + length;
    if (end < 0) end = end < -length ? low : end + length;
    start = start < low ? low : start > high ? high : start;
    end = end < low ? low : end > high ? high : end;
    int64_t span = step > 0 ? end - start : start - end;
    uint64_t stride = step > 0 ? (uint64_t)step : (uint64_t)0 - (uint64_t)step;
    *out_count = span > 0 ? rn_div_up((uint64_t)span, stride) : 0;
    *out_start = *out_count ? (uint64_t)start : 0;
}

typedef struct slicing {
    int64_t starts[RN_MAX_RANK], ends[RN_MAX_RANK], axes[RN_MAX_RANK], steps[RN_MAX_RANK];
    size_t count;
} slicing;

static bool read_slicing(rn_import_call *c, slicing *s) {
    size_t ends = 0, axes = 0, steps = 0;
    if (!rn_import_ints_either(c, "starts", 1, s->starts, RN_MAX_RANK, &s->count) ||
        !rn_import_ints_either(c, "ends", 2, s->ends, RN_MAX_RANK, &ends) ||
        !rn_import_ints_either(c, "axes", 3, s->axes, RN_MAX_RANK, &axes) ||
        !rn_import_ints_either(c, "steps", 4, s->steps, RN_MAX_RANK, &steps))
        return false;
    for (size_t i = axes; axes == 0 && i < s->count; i++)
        s->axes[i] = (int64_t)i;
    for (size_t i = steps; steps == 0 && i < s->count; i++)
        s->steps[i] = 1;
    if (ends == s->count && (!axes || axes == s->count) && (!steps || steps == s->count))
        return true;
    rn_import_refuse(c, "its starts, ends, axes and steps differ in number");
    return false;
}

static void slice(rn_import_call *c) {
    rn_value x = rn_import_in(c, 0);
    rn_shape shape = rn_import_shape_of(c->import, x);
    slicing s = {.count = 0};
    rn_strided_slice_attrs attrs = {0};
    bool plain = true;
    if (!x || !read_slicing(c, &s)) return;
    for (uint32_t i = 0; i < shape.rank; i++) {
        attrs.step[i] = 1;
        attrs.count[i] = shape.dims[i];
    }
    for (size_t i = 0; i < s.count; i++) {
        uint32_t axis = rn_import_axis(c, s.axes[i], shape.rank);
        if (shape.rank == 0 || s.steps[i] == 0 || shape.dims[axis] == RN_ROWS) {
            rn_import_refuse(c, "axis %u cannot be cut", axis);
            return;
        }
        slice_axis((int64_t)shape.dims[axis], s.starts[i], s.ends[i], s.steps[i],
                   &attrs.start[axis], &attrs.count[axis]);
        attrs.step[axis] = s.steps[i];
        plain = plain && s.steps[i] == 1;
    }
    for (uint32_t i = 0; i < shape.rank; i++)
        if (attrs.count[i] == 0) {
            rn_shape none = {.rank = shape.rank};
            memcpy(none.dims, attrs.count, sizeof none.dims);
            rn_import_out_empty(c, 0, rn_import_dtype(c, 0), none);
            return;
        }
    if (!plain) {
        rn_import_out(c, 0, rn_op_strided_slice(c->graph, x, attrs));
        return;
    }
    for (uint32_t i = 0; x && i < shape.rank; i++)
        x = cut(c, x, i, attrs.start[i], attrs.count[i]);
    rn_import_out(c, 0, x);
}

// ---- gathers and scatters -----------------------------------------------------------------------

static void gather(rn_import_call *c) {
    rn_value x = rn_import_in(c, 0), indices = rn_import_in(c, 1);
    uint32_t rank = rn_import_shape_of(c->import, x).rank;
    if (!x || !indices) return;
    uint32_t axis = rn_import_axis(c, rn_import_int(c, "axis", c->op->argument ? -1 : 0), rank);
    rn_import_out(c, 0, rn_op_gather(c->graph, x, indices, axis));
}

static void gather_as(rn_import_call *c) {
    rn_value x = rn_import_in(c, 0), indices = rn_import_in(c, 1);
    rn_gather_attrs attrs = {.kind = (rn_gather_kind)c->op->argument};
    if (!x || !indices) return;
    if (attrs.kind == RN_GATHER_ELEMENTS)
        attrs.axis =
            rn_import_axis(c, rn_import_int(c, "axis", 0), rn_import_shape_of(c->import, x).rank);
    attrs.batch = (uint32_t)rn_import_int(c, "batch_dims", 0);
    rn_import_out(c, 0, rn_op_gather_as(c->graph, x, indices, attrs));
}

static void scatter(rn_import_call *c) {
    static const char *const names[] = {"none", "add", "mul", "max", "min"};
    rn_value x = rn_import_in(c, 0), indices = rn_import_in(c, 1), updates = rn_import_in(c, 2);
    rn_scatter_attrs attrs = {.nd = c->op->argument != 0};
    if (!x || !indices || !updates) return;
    if (!attrs.nd)
        attrs.axis =
            rn_import_axis(c, rn_import_int(c, "axis", 0), rn_import_shape_of(c->import, x).rank);
    for (uint32_t i = 0; i < RN_SCATTER_COUNT; i++)
        if (rn_import_text_is(c, "reduction", "none", names[i]))
            attrs.function = (rn_scatter_function)i;
    rn_import_out(c, 0, rn_op_scatter(c->graph, x, indices, updates, attrs));
}

// Places of `count` rows in an axis of `length`, from where each of a batch begins: (B, 1, ..)
// stretched to the update's shape.
static rn_value write_places(rn_import_call *c, rn_shape update, uint32_t axis, uint64_t length) {
    enum { MOST_ROWS = 1 << 16 };
    rn_value first = rn_import_optional(c, 2);
    rn_shape begins = {.rank = update.rank}, along = {.rank = update.rank};
    void *numbers = NULL;
    uint64_t count = update.dims[axis];
    if (count > MOST_ROWS || rn_arena_array(&c->import->memory, count, 8, &numbers) != RN_OK) {
        rn_import_refuse(c, "%llu rows are too many", (unsigned long long)count);
        return RN_NO_VALUE;
    }
    for (uint32_t i = 0; i < update.rank; i++) {
        begins.dims[i] = i == 0 ? update.dims[0] : 1;
        along.dims[i] = i == axis ? count : 1;
    }
    for (uint64_t i = 0; i < count; i++)
        ((int64_t *)numbers)[i] = (int64_t)i;
    rn_value places = rn_import_constant(c->import, RN_DTYPE_I64, along, numbers);
    if (first)
        places = rn_op_binary(c->graph, RN_BINARY_ADD, places,
                              rn_import_reshape(c->import, first, begins));
    if (rn_import_text_is(c, "mode", "linear", "circular"))
        places = rn_op_binary(c->graph, RN_BINARY_MOD, places,
                              rn_import_scalar(c->import, RN_DTYPE_I64, (double)length));
    return places ? rn_op_broadcast(c->graph, places, update) : RN_NO_VALUE;
}

static void tensor_scatter(rn_import_call *c) {
    rn_value cache = rn_import_in(c, 0), update = rn_import_in(c, 1);
    rn_shape whole = rn_import_shape_of(c->import, cache),
             part = rn_import_shape_of(c->import, update);
    if (!cache || !update) return;
    uint32_t axis = rn_import_axis(c, rn_import_int(c, "axis", -2), whole.rank);
    if (whole.rank != part.rank || axis == 0 || axis >= whole.rank) {
        rn_import_refuse(c, "its update has other axes than its cache");
        return;
    }
    rn_value places = write_places(c, part, axis, whole.dims[axis]);
    if (places)
        rn_import_out(
            c, 0, rn_op_scatter(c->graph, cache, places, update, (rn_scatter_attrs){.axis = axis}));
}

// ---- stretching ---------------------------------------------------------------------------------

static void expand(rn_import_call *c) {
    rn_value x = rn_import_in(c, 0);
    rn_shape from = rn_import_shape_of(c->import, x), to = {.rank = 0}, joined;
    int64_t sizes[RN_MAX_RANK];
    size_t count = 0;
    if (!x || !rn_import_ints(c, 1, sizes, RN_MAX_RANK, &count)) return;
    to.rank = (uint32_t)count;
    for (size_t i = 0; i < count; i++)
        to.dims[i] = i == 0 && sizes[i] == -1 ? RN_ROWS : (uint64_t)sizes[i];
    if (!rn_shape_join(from, to, &joined)) {
        rn_import_refuse(c, "%s cannot be stretched to %s", rn_shape_format(from).text,
                         rn_shape_format(to).text);
        return;
    }
    rn_import_out(c, 0, rn_shape_equal(from, joined) ? x : rn_op_broadcast(c->graph, x, joined));
}

// One axis after the other: (outer, 1, axis * inner) stretched to (outer, times, axis * inner).
static rn_value repeat_axis(rn_import_call *c, rn_value x, uint32_t axis, uint64_t times) {
    rn_shape shape = rn_import_shape_of(c->import, x), flat = {.rank = 0}, to = shape;
    uint32_t first = has_rows(shape) ? 1 : 0;
    if (!x || times == 1) return x;
    if (axis < first || !rn_mul_u64(shape.dims[axis], times, &to.dims[axis])) {
        rn_import_refuse(c, "axis %u cannot be repeated", axis);
        return RN_NO_VALUE;
    }
    if (first) flat.dims[flat.rank++] = RN_ROWS;
    uint64_t outer = 1, inner = 1;
    for (uint32_t i = first; i < shape.rank; i++)
        *(i < axis ? &outer : &inner) *= shape.dims[i];
    flat.dims[flat.rank++] = outer;
    flat.dims[flat.rank++] = 1;
    flat.dims[flat.rank++] = inner;
    x = rn_import_reshape(c->import, x, flat);
    flat.dims[flat.rank - 2] = times;
    return rn_import_reshape(c->import, rn_op_broadcast(c->graph, x, flat), to);
}

static void tile(rn_import_call *c) {
    rn_value x = rn_import_in(c, 0);
    int64_t times[RN_MAX_RANK];
    size_t count = 0;
    uint32_t rank = rn_import_shape_of(c->import, x).rank;
    if (!x || !rn_import_ints(c, 1, times, RN_MAX_RANK, &count)) return;
    if (count != rank) {
        rn_import_refuse(c, "%zu repeats for %u axes", count, rank);
        return;
    }
    for (uint32_t i = 0; i < rank; i++)
        x = times[i] < 0 ? RN_NO_VALUE : repeat_axis(c, x, i, (uint64_t)times[i]);
    rn_import_out(c, 0, x);
}

// ---- padding ------------------------------------------------------------------------------------

enum { MOST_PADDED = 1 << 20 };

// Which element of an axis stands at `place`, places before 0 and behind the end included.
static int64_t mirrored(int64_t place, int64_t length) {
    if (length == 1) return 0;
    int64_t period = 2 * (length - 1);
    place = ((place % period) + period) % period;
    return place < length ? place : period - place;
}

static rn_value pad_by_index(rn_import_call *c, rn_value x, uint32_t axis, int64_t before,
                             int64_t after, rn_str mode) {
    rn_shape shape = rn_import_shape_of(c->import, x);
    int64_t length = (int64_t)shape.dims[axis], all = length + before + after;
    void *block = NULL;
    if (all <= 0 || all > MOST_PADDED || length == 0) {
        rn_import_refuse(c, "axis %u becomes %lld long", axis, (long long)all);
        return RN_NO_VALUE;
    }
    rn_status s = rn_arena_array(&c->import->memory, (size_t)all, sizeof(int64_t), &block);
    if (s != RN_OK) {
        rn_graph_spoil(c->graph, s);
        return RN_NO_VALUE;
    }
    int64_t *indices = block;
    for (int64_t i = 0; i < all; i++) {
        int64_t place = i - before;
        indices[i] = rn_str_equal(mode, RN_STR("reflect")) ? mirrored(place, length)
                     : rn_str_equal(mode, RN_STR("wrap"))  ? ((place % length) + length) % length
                                                           : (place < 0         ? 0
                                                              : place >= length ? length - 1
                                                                                : place);
    }
    return rn_op_gather(c->graph, x, rn_import_int_vector(c->import, indices, (size_t)all), axis);
}

static rn_value fill_block(rn_import_call *c, rn_value fill, rn_shape shape, uint32_t axis,
                           int64_t count) {
    shape.dims[axis] = (uint64_t)count;
    return rn_op_broadcast(c->graph, fill, shape);
}

// Negative padding cuts.
static rn_value pad_by_value(rn_import_call *c, rn_value x, uint32_t axis, int64_t before,
                             int64_t after, rn_value fill) {
    rn_shape shape = rn_import_shape_of(c->import, x);
    int64_t length = (int64_t)shape.dims[axis];
    int64_t start = before < 0 ? -before : 0, end = after < 0 ? length + after : length;
    if (end <= start || before > MOST_PADDED || after > MOST_PADDED) {
        rn_import_refuse(c, "axis %u cannot be padded by %lld and %lld", axis, (long long)before,
                         (long long)after);
        return RN_NO_VALUE;
    }
    x = cut(c, x, axis, (uint64_t)start, (uint64_t)(end - start));
    rn_value parts[3];
    uint32_t count = 0;
    if (before > 0) parts[count++] = fill_block(c, fill, shape, axis, before);
    parts[count++] = x;
    if (after > 0) parts[count++] = fill_block(c, fill, shape, axis, after);
    return count == 1 ? x : rn_op_concat(c->graph, parts, count, axis);
}

static void pad(rn_import_call *c) {
    rn_value x = rn_import_in(c, 0), fill = RN_NO_VALUE;
    uint32_t rank = rn_import_shape_of(c->import, x).rank;
    int64_t pads[2 * RN_MAX_RANK], axes[RN_MAX_RANK];
    size_t count = 0, axis_count = 0;
    rn_str mode = rn_import_text(c, "mode", "constant");
    if (!x || !rn_import_ints_either(c, "pads", 1, pads, 2 * RN_MAX_RANK, &count)) return;
    if (c->version >= 18 && !rn_import_ints(c, 3, axes, RN_MAX_RANK, &axis_count)) return;
    for (uint32_t i = 0; axis_count == i && i < rank; i++)
        axes[axis_count++] = i;
    for (size_t i = 0; i < count; i++)
        if (pads[i] > MOST_PADDED || pads[i] < -MOST_PADDED) count = 0;
    if (count == 0 || count != 2 * axis_count) {
        rn_import_refuse(c, "%zu pads", count);
        return;
    }
    bool constant = rn_str_equal(mode, RN_STR("constant"));
    rn_dtype dtype = rn_import_dtype_of(c->import, x);
    if (constant && c->version >= 11 && rn_import_has(c, 2)) {
        fill = rn_import_reshape(c->import, rn_import_in(c, 2), RN_SCALAR);
    } else if (constant) {
        fill = rn_import_scalar(c->import, dtype, rn_import_float(c, "value", 0));
    }
    for (size_t i = 0; x && i < axis_count; i++) {
        int64_t before = pads[i], after = pads[axis_count + i];
        uint32_t axis = rn_import_axis(c, axes[i], rank);
        if (before == 0 && after == 0) continue;
        if (rn_import_shape_of(c->import, x).dims[axis] == RN_ROWS) {
            rn_import_refuse(c, "the rows cannot be padded");
            return;
        }
        x = constant ? pad_by_value(c, x, axis, before, after, fill)
                     : pad_by_index(c, x, axis, before, after, mode);
    }
    rn_import_out(c, 0, x);
}

// ---- blocks of depth ----------------------------------------------------------------------------

static void depth_to_space(rn_import_call *c) {
    rn_value x = rn_import_in(c, 0);
    rn_shape s = rn_import_shape_of(c->import, x);
    uint64_t b = (uint64_t)rn_import_int(c, "blocksize", 1);
    bool columns_first = rn_import_text_is(c, "mode", "DCR", "CRD");
    static const uint8_t depth_first[] = {0, 3, 4, 1, 5, 2}, column_first[] = {0, 1, 4, 2, 5, 3};
    if (!x) return;
    if (s.rank != 4 || b == 0 || b > 1024 || s.dims[1] % (b * b)) {
        rn_import_refuse(c, "blocks of %llu in %s", (unsigned long long)b, rn_shape_format(s).text);
        return;
    }
    uint64_t n = s.dims[0], d = s.dims[1] / (b * b), h = s.dims[2], w = s.dims[3];
    x = rn_import_reshape(c->import, x,
                          columns_first ? RN_SHAPE(n, d, b, b, h, w) : RN_SHAPE(n, b, b, d, h, w));
    x = rn_import_permute(c->import, x, columns_first ? column_first : depth_first);
    rn_import_out(c, 0, rn_import_reshape(c->import, x, RN_SHAPE(n, d, h * b, w * b)));
}

static void space_to_depth(rn_import_call *c) {
    rn_value x = rn_import_in(c, 0);
    rn_shape s = rn_import_shape_of(c->import, x);
    uint64_t b = (uint64_t)rn_import_int(c, "blocksize", 1);
    static const uint8_t axes[] = {0, 3, 5, 1, 2, 4};
    if (!x) return;
    if (s.rank != 4 || b == 0 || b > 1024 || s.dims[2] % b || s.dims[3] % b) {
        rn_import_refuse(c, "blocks of %llu in %s", (unsigned long long)b, rn_shape_format(s).text);
        return;
    }
    uint64_t n = s.dims[0], d = s.dims[1], h = s.dims[2] / b, w = s.dims[3] / b;
    x = rn_import_reshape(c->import, x, RN_SHAPE(n, d, h, b, w, b));
    x = rn_import_permute(c->import, x, axes);
    rn_import_out(c, 0, rn_import_reshape(c->import, x, RN_SHAPE(n, d * b * b, h, w)));
}

// Cut and padded to the middle, axis by axis.
static void center_crop_pad(rn_import_call *c) {
    rn_value x = rn_import_in(c, 0);
    rn_shape shape = rn_import_shape_of(c->import, x);
    int64_t sizes[RN_MAX_RANK];
    const int64_t *axes = NULL;
    size_t count = 0, axis_count = rn_import_int_list(c, "axes", &axes);
    if (!x || !rn_import_ints(c, 1, sizes, RN_MAX_RANK, &count)) return;
    for (size_t i = 0; i < count; i++)
        if (sizes[i] < 1 || sizes[i] > MOST_PADDED) count = 0;
    if (count == 0 || count != (axes ? axis_count : shape.rank)) {
        rn_import_refuse(c, "%zu sizes", count);
        return;
    }
    rn_value zero = rn_import_scalar(c->import, rn_import_dtype_of(c->import, x), 0);
    for (size_t i = 0; x && i < count; i++) {
        uint32_t axis = rn_import_axis(c, axes ? axes[i] : (int64_t)i, shape.rank);
        int64_t length = (int64_t)shape.dims[axis], more = sizes[i] - length;
        if (more > 0) x = pad_by_value(c, x, axis, more / 2, more - more / 2, zero);
        if (more < 0) x = cut(c, x, axis, (uint64_t)(-more / 2), (uint64_t)sizes[i]);
    }
    rn_import_out(c, 0, x);
}

const rn_import_op rn_onnx_move_ops[] = {
    {"Reshape", reshape, 0},
    {"Flatten", flatten, 0},
    {"Squeeze", squeeze, 0},
    {"Unsqueeze", unsqueeze, 0},
    {"Transpose", transpose, 0},
    {"Concat", concat, 0},
    {"Split", split, 0},
    {"Slice", slice, 0},
    {"Gather", gather, 0},
    {"TensorScatter", tensor_scatter, 0},
    {"ai.onnx.ml.ArrayFeatureExtractor", gather, 1}, // of the last axis
    {"GatherElements", gather_as, RN_GATHER_ELEMENTS},
    {"GatherND", gather_as, RN_GATHER_ND},
    {"ScatterElements", scatter, 0},
    {"Scatter", scatter, 0},
    {"ScatterND", scatter, 1},
    {"Expand", expand, 0},
    {"Tile", tile, 0},
    {"Pad", pad, 0},
    {"DepthToSpace", depth_to_space, 0},
    {"SpaceToDepth", space_to_depth, 0},
    {"CenterCropPad", center_crop_pad, 0},
    {NULL, NULL, 0},
};
