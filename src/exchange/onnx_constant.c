// onnx_constant.c — ONNX's ops whose results are known while a model is opened: constants, shapes,
// ranges; and If with a known condition.
#include "exchange/onnx_importer.h"

#include "memory/account.h"

#include <math.h>

enum { MOST_BYTES = 16 << 20 };

// ---- constants ----------------------------------------------------------------------------------

static void constant_tensor(rn_import_call *c, const rn_onnx_tensor *t) {
    uint64_t bytes = 0;
    void *data = NULL;
    rn_shape shape = {.rank = t->rank};
    if (t->rank > RN_MAX_RANK || !rn_onnx_tensor_bytes(t, &bytes) || t->external) {
        rn_import_refuse(c, "a tensor of type %s with %u axes", rn_onnx_type_name(t->data_type),
                         t->rank);
        return;
    }
    for (uint32_t i = 0; i < t->rank; i++)
        shape.dims[i] = t->dims[i];
    if (t->elements == 0) {
        rn_import_out_empty(c, 0, rn_onnx_dtype(t->data_type), shape);
        return;
    }
    rn_status s = rn_alloc(RN_HOST_OTHER, bytes, &data);
    if (s == RN_OK) s = rn_onnx_tensor_decode(t, data, bytes);
    if (s == RN_OK)
        rn_import_out(c, 0,
                      rn_import_constant(c->import, rn_onnx_dtype(t->data_type), shape, data));
    else
        rn_graph_spoil(c->graph, s);
    rn_free(RN_HOST_OTHER, data, bytes);
}

static void out_list(rn_import_call *c, rn_dtype dtype, const void *items, size_t count) {
    if (count == 0)
        rn_import_out_empty(c, 0, dtype, RN_SHAPE(0));
    else
        rn_import_out(c, 0, rn_import_constant(c->import, dtype, RN_SHAPE(count), items));
}

static void constant(rn_import_call *c) {
    const rn_onnx_attribute *a = NULL;
    if ((a = rn_import_attribute(c, "value")) && a->tensor)
        constant_tensor(c, a->tensor);
    else if ((a = rn_import_attribute(c, "value_int")))
        rn_import_out(c, 0, rn_import_constant(c->import, RN_DTYPE_I64, RN_SCALAR, &a->i));
    else if ((a = rn_import_attribute(c, "value_float")))
        rn_import_out(c, 0, rn_import_constant(c->import, RN_DTYPE_F32, RN_SCALAR, &a->f));
    else if ((a = rn_import_attribute(c, "value_ints")))
        out_list(c, RN_DTYPE_I64, a->ints, a->count);
    else if ((a = rn_import_attribute(c, "value_floats")))
        out_list(c, RN_DTYPE_F32, a->floats, a->count);
    else
        rn_import_refuse(c, "a constant of text or of a sparse tensor");
}

static void constant_of_shape(rn_import_call *c) {
    const rn_onnx_attribute *a = rn_import_attribute(c, "value");
    int64_t sizes[RN_MAX_RANK];
    size_t count = 0;
    uint8_t element[16] = {0};
    uint64_t bytes = 4;
    rn_shape shape;
    rn_dtype dtype = a && a->tensor ? rn_onnx_dtype(a->tensor->data_type) : RN_DTYPE_F32;
    if (!rn_import_ints(c, 0, sizes, RN_MAX_RANK, &count)) return;
    shape = (rn_shape){.rank = (uint32_t)count};
    for (size_t i = 0; i < count; i++)
        shape.dims[i] = i == 0 && sizes[i] == -1 ? RN_ROWS : (uint64_t)sizes[i];
    if (a && a->tensor) {
        if (a->tensor->elements != 1 || !rn_onnx_tensor_bytes(a->tensor, &bytes) || bytes > 16 ||
            rn_onnx_tensor_decode(a->tensor, element, bytes) != RN_OK) {
            rn_import_refuse(c, "its value is no single number");
            return;
        }
    }
    if (rn_shape_elements(shape, 1) == 0) {
        rn_import_out_empty(c, 0, dtype, shape);
        return;
    }
    rn_value one = rn_import_constant(c->import, dtype, RN_SCALAR, element);
    if (one) rn_import_out(c, 0, count ? rn_op_broadcast(c->graph, one, shape) : one);
}

// ---- shapes -------------------------------------------------------------------------------------

static void shape(rn_import_call *c) {
    rn_shape s = rn_import_shape(c, 0);
    int64_t dims[RN_MAX_RANK], rank = s.rank;
    int64_t start = rn_import_int(c, "start", 0), end = rn_import_int(c, "end", rank);
    size_t count = 0;
    if (start < 0) start += rank;
    if (end < 0) end += rank;
    for (int64_t i = start < 0 ? 0 : start; i < end && i < rank; i++) {
        if (s.dims[i] == RN_ROWS) {
            rn_import_refuse(c, "the number of rows is not known: give the first axis a size "
                                "(--dim NAME=SIZE, or the input)");
            return;
        }
        dims[count++] = (int64_t)s.dims[i];
    }
    if (count == 0)
        rn_import_out_empty(c, 0, RN_DTYPE_I64, RN_SHAPE(0));
    else
        rn_import_out(c, 0, rn_import_int_vector(c->import, dims, count));
}

static void size(rn_import_call *c) {
    rn_shape s = rn_import_shape(c, 0);
    int64_t elements = (int64_t)rn_shape_elements(s, 1);
    if (s.rank && s.dims[0] == RN_ROWS) {
        rn_import_refuse(c, "the number of rows is not known: give the first axis a size (--dim "
                            "NAME=SIZE, or the input)");
        return;
    }
    rn_import_out(c, 0, rn_import_constant(c->import, RN_DTYPE_I64, RN_SCALAR, &elements));
}

// ---- numbers made of few ------------------------------------------------------------------------

// Elements of f64 become a constant of that dtype.
static void out_numbers(rn_import_call *c, rn_dtype dtype, rn_shape to, const double *numbers) {
    uint64_t bytes = 0, elements = rn_shape_elements(to, 1);
    void *data = NULL;
    if (elements == 0) {
        rn_import_out_empty(c, 0, dtype, to);
        return;
    }
    if (!rn_dtype_bytes(dtype, elements, &bytes)) return;
    rn_status s = rn_alloc(RN_HOST_OTHER, bytes, &data);
    if (s == RN_OK) s = rn_dtype_convert(RN_DTYPE_F64, numbers, dtype, data, elements);
    if (s == RN_OK)
        rn_import_out(c, 0, rn_import_constant(c->import, dtype, to, data));
    else
        rn_graph_spoil(c->graph, s);
    rn_free(RN_HOST_OTHER, data, bytes);
}

static double *take_numbers(rn_import_call *c, uint64_t count) {
    void *block = NULL;
    if (count > MOST_BYTES / sizeof(double)) {
        rn_import_refuse(c, "%llu elements", (unsigned long long)count);
        return NULL;
    }
    rn_status s = rn_arena_array(&c->import->memory, (size_t)count, sizeof(double), &block);
    if (s != RN_OK) rn_graph_spoil(c->graph, s);
    return s == RN_OK ? block : NULL;
}

static void range(rn_import_call *c) {
    double start = rn_import_number(c, 0, NAN), limit = rn_import_number(c, 1, NAN),
           delta = rn_import_number(c, 2, NAN);
    double count = ceil((limit - start) / delta);
    if (rn_graph_finish(c->graph) != RN_OK) return;
    if (!isfinite(count) || count > MOST_BYTES) {
        rn_import_refuse(c, "from %g to %g by %g", start, limit, delta);
        return;
    }
    uint64_t n = count > 0 ? (uint64_t)count : 0;
    double *numbers = take_numbers(c, n);
    if (!numbers) return;
    for (uint64_t i = 0; i < n; i++)
        numbers[i] = start + (double)i * delta;
    out_numbers(c, rn_import_dtype(c, 0), RN_SHAPE(n), numbers);
}

static void eye_like(rn_import_call *c) {
    rn_shape s = rn_import_shape(c, 0);
    int64_t k = rn_import_int(c, "k", 0), type = rn_import_int(c, "dtype", 0);
    rn_dtype dtype = type ? rn_onnx_dtype((uint32_t)type) : rn_import_dtype(c, 0);
    if (s.rank != 2 || s.dims[0] == RN_ROWS) {
        rn_import_refuse(c, "of %s", rn_shape_format(s).text);
        return;
    }
    double *numbers = take_numbers(c, rn_shape_elements(s, 1));
    for (uint64_t i = 0; numbers && i < s.dims[0]; i++)
        for (uint64_t j = 0; j < s.dims[1]; j++)
            numbers[i * s.dims[1] + j] = (int64_t)j - (int64_t)i == k;
    if (numbers) out_numbers(c, dtype, s, numbers);
}

// Hann, Hamming and Blackman: sums of cosines.
static void window(rn_import_call *c) {
    static const double terms[][3] = {{0.5, 0.5, 0}, {25.0 / 46, 21.0 / 46, 0}, {0.42, 0.5, 0.08}};
    double size_f = rn_import_number(c, 0, -1);
    bool periodic = rn_import_int(c, "periodic", 1) != 0;
    rn_dtype dtype = rn_onnx_dtype((uint32_t)rn_import_int(c, "output_datatype", 1));
    if (rn_graph_finish(c->graph) != RN_OK) return;
    if (size_f < 1 || size_f > MOST_BYTES) {
        rn_import_refuse(c, "a window of %g", size_f);
        return;
    }
    uint64_t n = (uint64_t)size_f;
    double *numbers = take_numbers(c, n), by = periodic ? size_f : size_f - 1;
    const double *t = terms[c->op->argument];
    for (uint64_t i = 0; numbers && i < n; i++) {
        double angle = 2 * acos(-1.0) * (double)i / (by > 0 ? by : 1);
        numbers[i] = t[0] - t[1] * cos(angle) + t[2] * cos(2 * angle);
    }
    if (numbers) out_numbers(c, dtype, RN_SHAPE(n), numbers);
}

static double to_mel(double hertz) {
    return 2595 * log10(1 + hertz / 700);
}

// Triangles between points that are evenly spaced by mel, over the bins of a spectrum.
static void mel_weight_matrix(rn_import_call *c) {
    int64_t bins = (int64_t)rn_import_number(c, 0, 0), dft = (int64_t)rn_import_number(c, 1, 0);
    double rate = rn_import_number(c, 2, 0), low = rn_import_number(c, 3, 0),
           high = rn_import_number(c, 4, 0);
    rn_dtype dtype = rn_onnx_dtype((uint32_t)rn_import_int(c, "output_datatype", 1));
    if (rn_graph_finish(c->graph) != RN_OK) return;
    if (bins < 1 || bins > 4096 || dft < 1 || dft > 1 << 20 || !(rate > 0)) {
        rn_import_refuse(c, "%lld bins of a spectrum of %lld", (long long)bins, (long long)dft);
        return;
    }
    uint64_t rows = (uint64_t)dft / 2 + 1;
    double *numbers = take_numbers(c, rows * (uint64_t)bins);
    double low_mel = to_mel(low), step = (to_mel(high) - low_mel) / (double)(bins + 2);
    int64_t points[4096 + 2];
    for (int64_t i = 0; i < bins + 2; i++) {
        double mel = (double)i * step + low_mel, hertz = 700 * (pow(10, mel / 2595) - 1);
        points[i] = (int64_t)floor((double)(dft + 1) * hertz / rate);
    }
    for (int64_t i = 0; numbers && i < bins; i++) {
        int64_t lower = points[i], centre = points[i + 1], upper = points[i + 2];
        if (lower < 0 || upper > (int64_t)rows) {
            rn_import_refuse(c, "frequencies outside of the spectrum");
            return;
        }
        if (centre == lower)
            numbers[(uint64_t)centre * (uint64_t)bins + (uint64_t)i] = 1;
        else
            for (int64_t j = lower; j <= centre && j < (int64_t)rows; j++)
                numbers[j * bins + i] = (double)(j - lower) / (double)(centre - lower);
        for (int64_t j = centre; upper > centre && j < upper; j++)
            numbers[j * bins + i] = (double)(upper - j) / (double)(upper - centre);
    }
    if (numbers) out_numbers(c, dtype, RN_SHAPE(rows, (uint64_t)bins), numbers);
}

// Results whose shape depends on values: only of what is known.
static void non_zero(rn_import_call *c) {
    rn_shape s = rn_import_shape(c, 0);
    uint64_t elements = rn_shape_elements(s, 1), found = 0, rank = s.rank ? s.rank : 1;
    double *numbers = take_numbers(c, elements);
    size_t count = 0;
    if (!numbers || !rn_import_floats(c, 0, numbers, (size_t)elements, &count)) return;
    for (uint64_t i = 0; i < elements; i++)
        found += numbers[i] != 0;
    double *places = take_numbers(c, found * rank);
    for (uint64_t i = 0, at = 0; places && i < elements; i++) {
        if (numbers[i] == 0) continue;
        uint64_t rest = i;
        for (uint32_t k = s.rank; k-- > 0; rest /= s.dims[k])
            places[k * found + at] = (double)(rest % s.dims[k]);
        at++;
    }
    if (places) out_numbers(c, RN_DTYPE_I64, RN_SHAPE(rank, found), places);
}

static void compress(rn_import_call *c) {
    rn_value x = rn_import_in(c, 0);
    rn_shape s = rn_import_shape_of(c->import, x);
    bool flat = rn_import_attribute(c, "axis") == NULL;
    if (!x) return;
    uint32_t axis = flat ? 0 : rn_import_axis(c, rn_import_int(c, "axis", 0), s.rank);
    uint64_t elements = rn_shape_elements(rn_import_shape(c, 1), 1), found = 0;
    double *chosen = take_numbers(c, elements);
    size_t count = 0;
    if (!chosen || !rn_import_floats(c, 1, chosen, (size_t)elements, &count)) return;
    int64_t *places = (int64_t *)take_numbers(c, elements);
    for (uint64_t i = 0; places && i < elements; i++)
        if (chosen[i] != 0) places[found++] = (int64_t)i;
    if (!places) return;
    if (flat) x = rn_import_reshape(c->import, x, RN_SHAPE(rn_shape_elements(s, 1)));
    if (found == 0) {
        rn_import_refuse(c, "nothing is chosen");
        return;
    }
    rn_import_out(c, 0,
                  rn_op_gather(c->graph, x, rn_import_int_vector(c->import, places, found), axis));
}

// ---- control flow -------------------------------------------------------------------------------

static void if_known(rn_import_call *c) {
    const rn_onnx_attribute *yes = rn_import_attribute(c, "then_branch"),
                            *no = rn_import_attribute(c, "else_branch");
    double condition = rn_import_number(c, 0, 0);
    if (rn_graph_finish(c->graph) != RN_OK) return;
    const rn_onnx_attribute *branch = condition != 0 ? yes : no;
    if (!branch || !branch->graph) {
        rn_import_refuse(c, "a branch is missing");
        return;
    }
    rn_import_inline_graph(c, branch->graph);
}

// An optional that is a tensor of the file has an element; one that is left out has none.
static void optional_has_element(rn_import_call *c) {
    uint8_t there = rn_import_has(c, 0);
    rn_import_out(c, 0, rn_import_constant(c->import, RN_DTYPE_BOOL, RN_SCALAR, &there));
}

static void optional_get_element(rn_import_call *c) {
    rn_import_slot *slot = rn_import_slot_of(c, 0);
    if (slot)
        rn_import_out_slot(c, 0, slot);
    else
        rn_import_refuse(c, "an optional without an element");
}

const rn_import_op rn_onnx_constant_ops[] = {
    {"Constant", constant, 0},
    {"ConstantOfShape", constant_of_shape, 0},
    {"Shape", shape, 0},
    {"Size", size, 0},
    {"Range", range, 0},
    {"EyeLike", eye_like, 0},
    {"HannWindow", window, 0},
    {"HammingWindow", window, 1},
    {"BlackmanWindow", window, 2},
    {"MelWeightMatrix", mel_weight_matrix, 0},
    {"NonZero", non_zero, 0},
    {"Compress", compress, 0},
    {"If", if_known, 0},
    {"OptionalHasElement", optional_has_element, 0},
    {"OptionalGetElement", optional_get_element, 0},
    {NULL, NULL, 0},
};
