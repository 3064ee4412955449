// npy.c — NumPy's .npy files: one array, dense, little endian.
#include "run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { NPY_ALIGN = 64, NPY_PREFIX = 10 };

static const struct {
    const char *name;
    rn_dtype dtype;
} types[] = {
    {"<f4", RN_DTYPE_F32}, {"<f8", RN_DTYPE_F64}, {"<f2", RN_DTYPE_F16}, {"|i1", RN_DTYPE_I8},
    {"<i2", RN_DTYPE_I16}, {"<i4", RN_DTYPE_I32}, {"<i8", RN_DTYPE_I64}, {"|u1", RN_DTYPE_U8},
    {"<u2", RN_DTYPE_U16}, {"<u4", RN_DTYPE_U32}, {"<u8", RN_DTYPE_U64}, {"|b1", RN_DTYPE_BOOL},
};
enum { TYPES = sizeof types / sizeof *types };

static rn_status fail_npy(const char *path, const char *what) {
    return rn_error_locate(rn_fail(RN_CORRUPT, "%s: %s", path, what), path, 0);
}

// What stands behind "'key':" in the header, which is a Python dictionary.
static const char *find_key(const char *header, const char *key) {
    char quoted[32];
    snprintf(quoted, sizeof quoted, "'%s':", key);
    const char *at = strstr(header, quoted);
    if (!at) return NULL;
    at += strlen(quoted);
    return at + strspn(at, " ");
}

static bool parse_shape(const char *text, rn_shape *out) {
    *out = (rn_shape){.rank = 0};
    if (*text++ != '(') return false;
    for (text += strspn(text, " "); *text != ')'; text += strspn(text, ", ")) {
        char *end;
        errno = 0;
        unsigned long long size = strtoull(text, &end, 10);
        if (end == text || errno || size >= RN_ROWS || out->rank == RN_MAX_RANK) return false;
        out->dims[out->rank++] = size;
        text = end;
    }
    return true;
}

static rn_status parse_header(const char *path, const char *header, npy_array *out) {
    const char *descr = find_key(header, "descr"), *order = find_key(header, "fortran_order"),
               *shape = find_key(header, "shape");
    if (!descr || !order || !shape || !parse_shape(shape, &out->shape))
        return fail_npy(path, "its header is not understood");
    if (strncmp(order, "False", 5) != 0)
        return rn_hint(rn_fail(RN_UNSUPPORTED, "%s is in Fortran's order", path),
                       "save numpy.ascontiguousarray(x)");
    for (int i = 0; i < TYPES; i++)
        if (strncmp(descr + 1, types[i].name, 3) == 0) out->dtype = types[i].dtype;
    if (out->dtype != RN_DTYPE_NONE) return RN_OK;
    return rn_fail(RN_UNSUPPORTED, "%s has elements of type %.5s", path, descr);
}

static rn_status read_exactly(FILE *file, const char *path, void *target, size_t bytes) {
    if (bytes == 0 || fread(target, 1, bytes, file) == bytes) return RN_OK;
    return ferror(file) ? rn_fail(RN_IO, "cannot read %s: %s", path, strerror(errno))
                        : fail_npy(path, "it ends early");
}

// The header; what stands behind it are the values.
static rn_status read_header(FILE *file, const char *path, npy_array *out) {
    enum { MOST_HEADER_BYTES = 64 << 10 };
    unsigned char head[12];
    RN_TRY(read_exactly(file, path, head, NPY_PREFIX));
    if (memcmp(head, "\x93NUMPY", 6) != 0) return fail_npy(path, "it is no .npy file");
    size_t length = head[8] | (size_t)head[9] << 8;
    if (head[6] > 1) {
        RN_TRY(read_exactly(file, path, head + NPY_PREFIX, 2));
        length |= (size_t)head[10] << 16 | (size_t)head[11] << 24;
    }
    if (length == 0 || length > MOST_HEADER_BYTES)
        return fail_npy(path, "its header is not understood");
    text_buffer header = {0};
    RN_TRY(reserve_text(&header, length));
    rn_status s = read_exactly(file, path, header.data, length);
    header.data[length - 1] = 0; // a line break
    if (s == RN_OK) s = parse_header(path, header.data, out);
    free_text(&header);
    return s;
}

// Values are held once, whatever their number is: the budget is the limit. A file that is too short
// for them is refused before memory is taken.
static rn_status read_values(FILE *file, const char *path, npy_array *out) {
    struct stat state;
    uint64_t elements = rn_shape_elements(out->shape, 1);
    if (elements >= UINT64_MAX / 16 || !rn_dtype_bytes(out->dtype, elements, &out->bytes))
        return fail_npy(path, "its shape is too large");
    if (fstat(fileno(file), &state) == 0 && S_ISREG(state.st_mode) &&
        out->bytes > (uint64_t)state.st_size)
        return fail_npy(path, "it ends in its data");
    RN_TRY(reserve_text(&out->file, out->bytes));
    return read_exactly(file, path, out->file.data, out->bytes);
}

rn_status read_npy(const char *path, npy_array *out) {
    bool standard = strcmp(path, "-") == 0;
    FILE *file = standard ? stdin : fopen(path, "rb");
    if (!file) return rn_fail(RN_NOT_FOUND, "cannot read %s: %s", path, strerror(errno));
    out->dtype = RN_DTYPE_NONE;
    rn_status s = read_header(file, path, out);
    if (s == RN_OK) s = read_values(file, path, out);
    if (!standard) fclose(file);
    return s;
}

rn_status write_npy_header(FILE *file, const char *path, rn_dtype dtype, rn_shape shape) {
    char header[512];
    const char *name = NULL;
    for (int i = 0; i < TYPES; i++)
        if (types[i].dtype == dtype) name = types[i].name;
    if (!name) return rn_fail(RN_UNSUPPORTED, "%s has no place in .npy", rn_dtype_get(dtype)->name);
    size_t at = NPY_PREFIX;
    at += (size_t)snprintf(header + at, sizeof header - at,
                           "{'descr': '%s', 'fortran_order': False, 'shape': (", name);
    for (uint32_t i = 0; i < shape.rank; i++)
        at += (size_t)snprintf(header + at, sizeof header - at, "%llu%s",
                               (unsigned long long)shape.dims[i],
                               i + 1 < shape.rank ? ", "
                               : shape.rank == 1  ? ","
                                                  : "");
    at += (size_t)snprintf(header + at, sizeof header - at, "), }");
    size_t whole = (at + 1 + NPY_ALIGN - 1) / NPY_ALIGN * NPY_ALIGN;
    memset(header + at, ' ', whole - at);
    header[whole - 1] = '\n';
    memcpy(header, "\x93NUMPY\x01\x00", 8);
    header[8] = (char)((whole - NPY_PREFIX) & 0xff);
    header[9] = (char)((whole - NPY_PREFIX) >> 8);
    if (fwrite(header, 1, whole, file) == whole) return RN_OK;
    return rn_fail(RN_IO, "cannot write %s: %s", path, strerror(errno));
}

rn_status write_npy(const char *path, rn_dtype dtype, rn_shape shape, const void *data,
                    uint64_t bytes) {
    FILE *file = fopen(path, "wb");
    if (!file) return rn_fail(RN_IO, "cannot write %s: %s", path, strerror(errno));
    rn_status s = write_npy_header(file, path, dtype, shape);
    if (s == RN_OK && bytes && fwrite(data, 1, bytes, file) != bytes)
        s = rn_fail(RN_IO, "cannot write %s: %s", path, strerror(errno));
    if (fclose(file) != 0 && s == RN_OK)
        s = rn_fail(RN_IO, "cannot write %s: %s", path, strerror(errno));
    return s;
}
