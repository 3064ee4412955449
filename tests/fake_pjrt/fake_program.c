// fake_program.c — see fake_program.h. Written for a few small programs, not for speed.
#include "fake_program.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- tensors ------------------------------------------------------------------------------------

static const struct {
    const char *name;
    int bytes;
} types[] = {{"i1", 1},  {"i32", 4},  {"i64", 8}, {"ui8", 1},
             {"f16", 2}, {"bf16", 2}, {"f32", 4}, {"f64", 8}};
enum { TYPES = sizeof types / sizeof *types };

int64_t fake_elements(const fake_tensor *t) {
    int64_t count = 1;
    for (int i = 0; i < t->rank; i++)
        count *= t->dims[i];
    return count;
}

int64_t fake_bytes(const fake_tensor *t) {
    return fake_elements(t) * types[t->type].bytes;
}

void fake_free(fake_tensor *t) {
    free(t->data);
    t->data = NULL;
}

fake_tensor fake_part_shape(const fake_tensor *whole, int axis, int partitions) {
    fake_tensor part = *whole;
    part.data = NULL;
    if (axis >= 0) part.dims[axis] /= partitions;
    return part;
}

void fake_copy_part(fake_tensor *whole, fake_tensor *part, int axis, int partition, bool to_part) {
    int64_t outer = 1, run = fake_elements(part), whole_run = fake_elements(whole), from = 0;
    for (int i = 0; i < axis; i++)
        outer *= part->dims[i];
    run /= outer;
    whole_run /= outer;
    if (axis >= 0) from = partition * run;
    for (int64_t i = 0; i < outer; i++) {
        double *there = whole->data + i * whole_run + from, *here = part->data + i * run;
        memcpy(to_part ? here : there, to_part ? there : here, (size_t)run * sizeof *here);
    }
}

static double from_half(uint16_t h) {
    int exponent = h >> 10 & 31, mantissa = h & 1023;
    double value = exponent == 31 ? (mantissa ? NAN : INFINITY)
                   : exponent     ? ldexp(1024 + mantissa, exponent - 25)
                                  : ldexp(mantissa, -24);
    return h >> 15 ? -value : value;
}

static uint16_t to_half(double x) {
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    double a = fabs(x);
    int exponent;
    if (isnan(x)) return 0x7e00;
    if (a >= 65520) return sign | 0x7c00;
    if (a < ldexp(1, -14)) return sign | (uint16_t)nearbyint(ldexp(a, 24));
    frexp(a, &exponent);
    return sign +
           (uint16_t)(((exponent + 14) << 10) + (int)nearbyint(ldexp(a, 11 - exponent)) - 1024);
}

static double from_brain(uint16_t b) {
    uint32_t bits = (uint32_t)b << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

static uint16_t to_brain(double x) {
    float f = (float)x;
    uint32_t bits;
    memcpy(&bits, &f, 4);
    if (isnan(x)) return 0x7fc0;
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static double round_to(fake_type type, double x) {
    switch (type) {
    case FAKE_BF16:
        return from_brain(to_brain(x));
    case FAKE_F16:
        return from_half(to_half(x));
    case FAKE_F32:
        return (float)x;
    case FAKE_F64:
        return x;
    case FAKE_I1:
        return x != 0;
    default:
        return trunc(x);
    }
}

void fake_read(fake_tensor *t, const void *from) {
    int64_t count = fake_elements(t);
    t->data = malloc((size_t)(count ? count : 1) * sizeof *t->data);
    for (int64_t i = 0; i < count; i++) {
        const char *at = (const char *)from + i * types[t->type].bytes;
        float f;
        double d;
        int32_t i32;
        int64_t i64;
        uint16_t h;
        switch (t->type) {
        case FAKE_F32:
            memcpy(&f, at, 4), d = f;
            break;
        case FAKE_F64:
            memcpy(&d, at, 8);
            break;
        case FAKE_F16:
        case FAKE_BF16:
            memcpy(&h, at, 2), d = t->type == FAKE_F16 ? from_half(h) : from_brain(h);
            break;
        case FAKE_I32:
            memcpy(&i32, at, 4), d = i32;
            break;
        case FAKE_I64:
            memcpy(&i64, at, 8), d = (double)i64;
            break;
        default:
            d = *(const uint8_t *)at;
        }
        t->data[i] = d;
    }
}

void fake_write(const fake_tensor *t, void *to) {
    int64_t count = fake_elements(t);
    for (int64_t i = 0; i < count; i++) {
        char *at = (char *)to + i * types[t->type].bytes;
        double d = t->data[i];
        float f = (float)d;
        int32_t i32 = t->type == FAKE_I32 ? (int32_t)d : 0;
        int64_t i64 = t->type == FAKE_I64 ? (int64_t)d : 0;
        uint16_t h = t->type == FAKE_F16 ? to_half(d) : to_brain(d);
        switch (t->type) {
        case FAKE_F32:
            memcpy(at, &f, 4);
            break;
        case FAKE_F64:
            memcpy(at, &d, 8);
            break;
        case FAKE_F16:
        case FAKE_BF16:
            memcpy(at, &h, 2);
            break;
        case FAKE_I32:
            memcpy(at, &i32, 4);
            break;
        case FAKE_I64:
            memcpy(at, &i64, 8);
            break;
        default:
            *(uint8_t *)at = (uint8_t)d;
        }
    }
}

// ---- reading text -------------------------------------------------------------------------------

// tensor<2x3xf32>; what stands behind it, or NULL.
static const char *read_type(const char *at, fake_tensor *out) {
    *out = (fake_tensor){0};
    at = strstr(at, "tensor<");
    if (!at) return NULL;
    at += 7;
    while (*at >= '0' && *at <= '9' && out->rank < FAKE_RANK) {
        char *end;
        out->dims[out->rank++] = strtoll(at, &end, 10);
        if (*end != 'x') return NULL;
        at = end + 1;
    }
    for (int i = 0; i < TYPES; i++) {
        size_t bytes = strlen(types[i].name);
        if (strncmp(at, types[i].name, bytes) == 0 && at[bytes] == '>') {
            out->type = (fake_type)i;
            return at + bytes + 1;
        }
    }
    return NULL;
}

// Numbers of "NAME = array<i64: 1, 2>" or "NAME = [1, 2]" or "NAME = 1"; how many.
static int read_numbers(const char *line, const char *name, int64_t *out) {
    char key[64];
    int count = 0;
    snprintf(key, sizeof key, "%s = ", name);
    const char *at = strstr(line, key);
    if (!at) return -1;
    at += strlen(key);
    bool list = *at == '[' || *at == 'a';
    if (*at == 'a') at += strncmp(at, "array<i64: ", 11) == 0 ? 11 : 9;
    if (*at == '[') at++;
    while (count < FAKE_RANK && (*at == '-' || (*at >= '0' && *at <= '9'))) {
        char *end;
        out[count++] = strtoll(at, &end, 10);
        at = end;
        if (!list) break;
        while (*at == ',' || *at == ' ')
            at++;
    }
    return count;
}

static void split_lines(fake_program *p) {
    int count = 1;
    for (char *c = p->text; *c; c++)
        count += *c == '\n';
    p->lines = calloc((size_t)count, sizeof *p->lines);
    for (char *at = p->text; *at;) {
        size_t bytes = strcspn(at, "\n");
        p->lines[p->line_count++] = at;
        at += bytes;
        if (*at) *at++ = 0;
    }
}

static const char *operation_of(const char *line) {
    static char name[64];
    const char *at = strstr(line, "\"stablehlo.");
    if (!at || sscanf(at, "\"stablehlo.%63[a-z_]\"", name) != 1) return NULL;
    return name;
}

static const char known[] =
    " constant add subtract multiply divide maximum minimum remainder and or negate exponential "
    "rsqrt sqrt logistic tanh sine cosine log abs convert reshape broadcast_in_dim transpose iota "
    "compare select slice concatenate dot_general reduce gather scatter custom_call ";

static bool is_known(const char *operation) {
    char word[80];
    snprintf(word, sizeof word, " %s ", operation);
    return strstr(known, word) != NULL;
}

// The axis of "{mhlo.sharding = \"{devices=[1,2]0,1}\"}" right behind a type; -1: none.
static int read_split(const char *at) {
    const char *list = "{devices=[", *found = strstr(at, list), *end = strstr(at, "tensor<");
    if (!found || (end && end < found)) return -1;
    at = found + strlen(list);
    for (int axis = 0;; axis++) {
        char *next;
        if (strtol(at, &next, 10) > 1) return axis;
        if (*next != ',') return -1;
        at = next + 1;
    }
}

// "%v1: tensor<...> {tf.aliasing_output = 1 : i32}", one a line, from @main( to ->.
static bool read_head(fake_program *p, int *line) {
    int64_t partitions[FAKE_RANK] = {1};
    for (; *line < p->line_count && !strstr(p->lines[*line], "@main"); ++*line)
        read_numbers(p->lines[*line], "mhlo.num_partitions", partitions);
    p->partitions = (int)partitions[0];
    if (*line == p->line_count) return false;
    const char *at = strstr(p->lines[*line], "@main(") + 6;
    for (;;) {
        const char *arrow = strstr(at, "-> ("), *name = strchr(at, '%');
        if (name && (!arrow || name < arrow)) {
            if (p->argument_count == FAKE_ARGUMENTS) return false;
            const char *rest = read_type(name, &p->arguments[p->argument_count]);
            const char *alias = rest ? strstr(rest, "tf.aliasing_output = ") : NULL;
            if (!rest) return false;
            p->argument_split[p->argument_count] = read_split(rest);
            p->alias[p->argument_count++] = alias ? atoi(alias + 21) : -1;
            at = rest;
            if (alias) at = strchr(alias, '}');
            continue;
        }
        if (arrow) {
            while ((arrow = read_type(arrow, &p->results[p->result_count])))
                p->result_split[p->result_count++] = read_split(arrow);
            ++*line;
            return p->result_count > 0;
        }
        if (++*line == p->line_count) return false;
        at = p->lines[*line];
    }
}

bool fake_parse(const char *text, size_t bytes, fake_program *p, char *error, size_t error_bytes) {
    *p = (fake_program){.text = malloc(bytes + 1)};
    memcpy(p->text, text, bytes);
    p->text[bytes] = 0;
    split_lines(p);
    int line = 0;
    if (!read_head(p, &line)) {
        snprintf(error, error_bytes,
                 "-:%d:1: error: conversion requires module with `main` function", line + 1);
        return false;
    }
    for (; line < p->line_count; line++) {
        const char *operation = operation_of(p->lines[line]);
        if (!operation || is_known(operation)) continue;
        snprintf(error, error_bytes,
                 "-:%d:%d: error: unregistered operation 'stablehlo.%s' found in dialect "
                 "('stablehlo') that does not allow unknown operations",
                 line + 1, (int)strspn(p->lines[line], " ") + 1, operation);
        return false;
    }
    return true;
}

void fake_program_free(fake_program *p) {
    free(p->text);
    free(p->lines);
    *p = (fake_program){0};
}

// ---- values -------------------------------------------------------------------------------------

typedef struct named {
    char name[24];
    fake_tensor tensor;
} named;

typedef struct machine {
    named *values; // (count)
    int count, room;
    const char *line;
    fake_tensor *in[FAKE_OPERANDS];
    int in_count;
    fake_tensor out;
    char *error;
    size_t error_bytes;
} machine;

static fake_tensor *find(machine *m, const char *name, size_t bytes) {
    for (int i = m->count; i-- > 0;)
        if (strlen(m->values[i].name) == bytes && strncmp(m->values[i].name, name, bytes) == 0)
            return &m->values[i].tensor;
    return NULL;
}

static void keep(machine *m, const char *name, size_t bytes, fake_tensor tensor) {
    if (m->count == m->room) {
        m->room = m->room ? 2 * m->room : 256;
        m->values = realloc(m->values, (size_t)m->room * sizeof *m->values);
    }
    named *v = &m->values[m->count++];
    snprintf(v->name, sizeof v->name, "%.*s", (int)bytes, name);
    v->tensor = tensor;
}

static fake_tensor copy_of(const fake_tensor *t) {
    fake_tensor copy = *t;
    size_t bytes = (size_t)fake_elements(t) * sizeof *t->data;
    copy.data = malloc(bytes ? bytes : 1);
    memcpy(copy.data, t->data, bytes);
    return copy;
}

// Operands between the first parentheses behind the operation's name.
static bool read_operands(machine *m) {
    const char *at = strchr(strchr(m->line, '"'), '(') + 1;
    m->in_count = 0;
    while (*at && *at != ')' && m->in_count < FAKE_OPERANDS) {
        size_t bytes = strcspn(at, ",)");
        fake_tensor *value = find(m, at, bytes);
        if (!value) return false;
        m->in[m->in_count++] = value;
        at += bytes;
        while (*at == ',' || *at == ' ')
            at++;
    }
    return true;
}

// The coordinates of element `i`.
static void place_of(const fake_tensor *t, int64_t i, int64_t *out) {
    for (int a = t->rank; a-- > 0;) {
        out[a] = i % t->dims[a];
        i /= t->dims[a];
    }
}

static int64_t index_at(const fake_tensor *t, const int64_t *at) {
    int64_t index = 0;
    for (int a = 0; a < t->rank; a++)
        index = index * t->dims[a] + at[a];
    return index;
}

// ---- operations ---------------------------------------------------------------------------------

static double binary(const char *op, double a, double b, bool whole) {
    if (!strcmp(op, "add")) return a + b;
    if (!strcmp(op, "subtract")) return a - b;
    if (!strcmp(op, "multiply")) return a * b;
    if (!strcmp(op, "divide")) return whole ? (b ? trunc(a / b) : 0) : a / b;
    if (!strcmp(op, "remainder")) return fmod(a, b);
    if (!strcmp(op, "maximum")) return a > b || isnan(a) ? a : b;
    if (!strcmp(op, "minimum")) return a < b || isnan(a) ? a : b;
    if (!strcmp(op, "and")) return a != 0 && b != 0;
    return a != 0 || b != 0;
}

static double unary(const char *op, double x) {
    if (!strcmp(op, "negate")) return -x;
    if (!strcmp(op, "exponential")) return exp(x);
    if (!strcmp(op, "rsqrt")) return 1 / sqrt(x);
    if (!strcmp(op, "sqrt")) return sqrt(x);
    if (!strcmp(op, "logistic")) return 1 / (1 + exp(-x));
    if (!strcmp(op, "tanh")) return tanh(x);
    if (!strcmp(op, "sine")) return sin(x);
    if (!strcmp(op, "cosine")) return cos(x);
    if (!strcmp(op, "log")) return log(x);
    if (!strcmp(op, "abs")) return fabs(x);
    return x; // convert
}

static bool compare(const char *line, double a, double b) {
    char how[3] = "";
    const char *at = strstr(line, "<comparison_direction ");
    if (at) sscanf(at + 22, "%2[A-Z]", how);
    if (!strcmp(how, "EQ")) return a == b;
    if (!strcmp(how, "NE")) return a != b;
    if (!strcmp(how, "LT")) return a < b;
    if (!strcmp(how, "LE")) return a <= b;
    if (!strcmp(how, "GT")) return a > b;
    return a >= b;
}

// dense<0x3F800000>, dense<7>, dense<true>, dense<"0x...">: bits where the type is a float's.
static void constant(machine *m) {
    const char *at = strstr(m->line, "dense<") + 6;
    int64_t count = fake_elements(&m->out);
    int width = types[m->out.type].bytes;
    uint8_t bytes[8];
    bool many = *at == '"', hex = strncmp(at + many, "0x", 2) == 0;
    if (!hex) {
        double value = *at == 't' ? 1 : *at == 'f' ? 0 : strtod(at, NULL);
        for (int64_t i = 0; i < count; i++)
            m->out.data[i] = value;
        return;
    }
    at += many + 2;
    for (int64_t i = 0; i < count; i++) {
        for (int b = 0; b < width; b++) {
            char digits[3] = {at[2 * b], at[2 * b + 1], 0};
            bytes[many ? b : width - 1 - b] = (uint8_t)strtoul(digits, NULL, 16);
        }
        fake_tensor one = {.type = m->out.type};
        fake_read(&one, bytes);
        m->out.data[i] = one.data[0];
        fake_free(&one);
        if (many) at += 2 * width;
    }
}

static bool has(const int64_t *list, int count, int64_t number) {
    for (int i = 0; i < count; i++)
        if (list[i] == number) return true;
    return false;
}

static void dot(machine *m) {
    int64_t batch_a[8], batch_b[8], sum_a[8], sum_b[8], at[8], pa[8], pb[8];
    int batches = read_numbers(m->line, "lhs_batching_dimensions", batch_a);
    read_numbers(m->line, "rhs_batching_dimensions", batch_b);
    int sums = read_numbers(m->line, "lhs_contracting_dimensions", sum_a);
    read_numbers(m->line, "rhs_contracting_dimensions", sum_b);
    const fake_tensor *a = m->in[0], *b = m->in[1];
    fake_tensor inner = {.rank = sums};
    for (int i = 0; i < sums; i++)
        inner.dims[i] = a->dims[sum_a[i]];
    for (int64_t i = 0; i < fake_elements(&m->out); i++) {
        int next = batches;
        double sum = 0;
        place_of(&m->out, i, at);
        for (int d = 0; d < batches; d++)
            pa[batch_a[d]] = pb[batch_b[d]] = at[d];
        for (int d = 0; d < a->rank; d++)
            if (!has(batch_a, batches, d) && !has(sum_a, sums, d)) pa[d] = at[next++];
        for (int d = 0; d < b->rank; d++)
            if (!has(batch_b, batches, d) && !has(sum_b, sums, d)) pb[d] = at[next++];
        for (int64_t k = 0; k < fake_elements(&inner); k++) {
            int64_t ks[8];
            place_of(&inner, k, ks);
            for (int d = 0; d < sums; d++)
                pa[sum_a[d]] = pb[sum_b[d]] = ks[d];
            sum = (float)(sum + a->data[index_at(a, pa)] * b->data[index_at(b, pb)]);
        }
        m->out.data[i] = sum;
    }
}

static void reduce(machine *m) {
    int64_t axes[8], at[8], to[8];
    char op[32] = "add";
    int count = read_numbers(m->line, "dimensions", axes);
    const fake_tensor *x = m->in[0];
    const char *inner = strstr(m->line, "%c = \"stablehlo.");
    if (inner) sscanf(inner, "%%c = \"stablehlo.%31[a-z]", op);
    for (int64_t i = 0; i < fake_elements(&m->out); i++)
        m->out.data[i] = m->in[1]->data[0];
    for (int64_t i = 0; i < fake_elements(x); i++) {
        int rank = 0;
        place_of(x, i, at);
        for (int d = 0; d < x->rank; d++)
            if (!has(axes, count, d)) to[rank++] = at[d];
        double *sum = &m->out.data[index_at(&m->out, to)];
        *sum = round_to(m->out.type, binary(op, *sum, x->data[i], false));
    }
}

// Rows of axis 0 by their numbers, which are clamped: the only gather that src/exchange writes.
static void gather(machine *m) {
    const fake_tensor *x = m->in[0], *ids = m->in[1];
    int64_t row = fake_elements(x) / x->dims[0];
    for (int64_t i = 0; i < fake_elements(ids); i++) {
        double id = fmin(fmax(ids->data[i], 0), (double)x->dims[0] - 1);
        memcpy(m->out.data + i * row, x->data + (int64_t)id * row, (size_t)row * sizeof *x->data);
    }
}

// Updates at indices (R, n) of the axes in scatter_dims_to_operand_dims; those outside are left
// out.
static void scatter(machine *m) {
    int64_t axes[8], window[8], place[8], at[8];
    int count = read_numbers(m->line, "scatter_dims_to_operand_dims", axes);
    int windows = read_numbers(m->line, "update_window_dims", window);
    const fake_tensor *ids = m->in[1], *updates = m->in[2];
    memcpy(m->out.data, m->in[0]->data, (size_t)fake_elements(m->in[0]) * sizeof *m->out.data);
    for (int64_t i = 0; i < fake_elements(updates); i++) {
        int next = 0;
        bool inside = true;
        place_of(updates, i, place);
        for (int d = 0; d < m->out.rank; d++) {
            at[d] = 0;
            for (int k = 0; k < count; k++)
                if (axes[k] == d) at[d] = (int64_t)ids->data[place[0] * count + k];
            if (!has(axes, count, d) && next < windows) at[d] = place[window[next++]];
            inside &= at[d] >= 0 && at[d] < m->out.dims[d];
        }
        if (inside) m->out.data[index_at(&m->out, at)] = updates->data[i];
    }
}

static void concatenate(machine *m) {
    int64_t axis[8], at[8], from = 0;
    read_numbers(m->line, "dimension", axis);
    for (int k = 0; k < m->in_count; k++) {
        for (int64_t i = 0; i < fake_elements(m->in[k]); i++) {
            place_of(m->in[k], i, at);
            at[axis[0]] += from;
            m->out.data[index_at(&m->out, at)] = m->in[k]->data[i];
        }
        from += m->in[k]->dims[axis[0]];
    }
}

// Element i of the result comes from one element of the operand.
static int64_t source_of(machine *m, const char *op, const int64_t *numbers, int64_t i) {
    const fake_tensor *x = m->in[0];
    int64_t at[8], from[8];
    place_of(&m->out, i, at);
    for (int d = 0; d < x->rank; d++) {
        if (!strcmp(op, "slice"))
            from[d] = at[d] + numbers[d];
        else if (!strcmp(op, "broadcast_in_dim"))
            from[d] = x->dims[d] == 1 ? 0 : at[numbers[d]];
        else
            from[numbers[d]] = at[d]; // transpose
    }
    return index_at(x, from);
}

static void move(machine *m, const char *op) {
    int64_t numbers[8] = {0};
    read_numbers(m->line,
                 !strcmp(op, "slice")       ? "start_indices"
                 : !strcmp(op, "transpose") ? "permutation"
                                            : "broadcast_dimensions",
                 numbers);
    for (int64_t i = 0; i < fake_elements(&m->out); i++)
        m->out.data[i] = m->in[0]->data[source_of(m, op, numbers, i)];
}

static void by_element(machine *m, const char *op) {
    int64_t axis[8] = {0}, at[8];
    bool whole = m->out.type <= FAKE_UI8;
    if (!strcmp(op, "iota")) read_numbers(m->line, "iota_dimension", axis);
    for (int64_t i = 0; i < fake_elements(&m->out); i++) {
        double *out = &m->out.data[i];
        if (!strcmp(op, "iota"))
            place_of(&m->out, i, at), *out = (double)at[axis[0]];
        else if (!strcmp(op, "select"))
            *out = m->in[0]->data[i] != 0 ? m->in[1]->data[i] : m->in[2]->data[i];
        else if (!strcmp(op, "compare"))
            *out = compare(m->line, m->in[0]->data[i], m->in[1]->data[i]);
        else if (m->in_count == 2)
            *out = round_to(m->out.type, binary(op, m->in[0]->data[i], m->in[1]->data[i], whole));
        else
            *out = round_to(m->out.type, unary(op, m->in[0]->data[i]));
    }
}

static void evaluate(machine *m, const char *op) {
    if (!strcmp(op, "constant"))
        constant(m);
    else if (!strcmp(op, "dot_general"))
        dot(m);
    else if (!strcmp(op, "reduce"))
        reduce(m);
    else if (!strcmp(op, "gather"))
        gather(m);
    else if (!strcmp(op, "scatter"))
        scatter(m);
    else if (!strcmp(op, "concatenate"))
        concatenate(m);
    else if (!strcmp(op, "slice") || !strcmp(op, "transpose") || !strcmp(op, "broadcast_in_dim"))
        move(m, op);
    else if (!strcmp(op, "reshape") || !strcmp(op, "custom_call")) // that of shardings
        memcpy(m->out.data, m->in[0]->data, (size_t)fake_elements(&m->out) * sizeof *m->out.data);
    else
        by_element(m, op);
}

// The type behind the line's last arrow.
static bool read_result(const char *line, fake_tensor *out) {
    const char *arrow = NULL;
    for (const char *at = line; (at = strstr(at, ") -> ")); at++)
        arrow = at;
    return arrow && read_type(arrow, out);
}

static bool run_line(machine *m, fake_tensor *results) {
    const char *op = operation_of(m->line), *name = strchr(m->line, '%');
    if (strstr(m->line, "\"func.return\"")) {
        if (!read_operands(m)) return false;
        for (int i = 0; i < m->in_count; i++)
            results[i] = copy_of(m->in[i]);
        return true;
    }
    if (!op) return true;
    if (!read_operands(m) || !read_result(m->line, &m->out)) {
        snprintf(m->error, m->error_bytes, "fake: cannot read: %.200s", m->line);
        return false;
    }
    m->out.data = calloc((size_t)fake_elements(&m->out) + 1, sizeof *m->out.data);
    evaluate(m, op);
    keep(m, name, strcspn(name, " ="), m->out);
    return true;
}

// The names of arguments, in the order of the head.
static void bind_arguments(machine *m, const fake_program *p, const fake_tensor *const *arguments) {
    int bound = 0;
    bool inside = false;
    for (int i = 0; i < p->line_count && bound < p->argument_count; i++) {
        const char *at = p->lines[i];
        if (strstr(at, "@main(")) inside = true;
        for (; inside && (at = strchr(at, '%')) && bound < p->argument_count; at++)
            keep(m, at, strcspn(at, ":"), copy_of(arguments[bound++]));
    }
}

bool fake_run(const fake_program *p, const fake_tensor *const *arguments, fake_tensor *results,
              char *error, size_t error_bytes) {
    machine m = {.error = error, .error_bytes = error_bytes};
    bool good = true;
    bind_arguments(&m, p, arguments);
    for (int i = 0; i < p->line_count && good; i++) {
        m.line = p->lines[i];
        const char *quote = strchr(m.line, '"');
        if (quote) good = run_line(&m, results);
    }
    for (int i = 0; i < m.count; i++)
        fake_free(&m.values[i].tensor);
    free(m.values);
    return good;
}

int64_t fake_temporary_bytes(const fake_program *p) {
    int64_t most = 0;
    for (int i = 0; i < p->line_count; i++) {
        fake_tensor t;
        const char *op = operation_of(p->lines[i]);
        if (op && strcmp(op, "constant") != 0 && read_result(p->lines[i], &t) &&
            fake_bytes(&t) > most)
            most = fake_bytes(&t);
    }
    return most;
}
