// npy.c — the header of a .npy file, in and out.
//
//     [ \x93NUMPY | major 1 | minor 1 | length 2 (major 1) or 4 | {'descr': '<f4', ...} \n ]
//
// The header is a Python dictionary; what numpy writes of it is understood, by keys.
#include <ration/npy.h>

#include "memory/account.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { ALIGN = 64, PREFIX = 10, MOST_HEADER_BYTES = 64 << 10 };

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

// What stands behind "'key':".
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
        if (end == text || errno || size >= UINT64_MAX || out->rank == RN_MAX_RANK) return false;
        out->dims[out->rank++] = size;
        text = end;
    }
    return true;
}

static rn_status parse_header(const char *path, const char *header, rn_npy *out) {
    const char *descr = find_key(header, "descr"), *order = find_key(header, "fortran_order"),
               *shape = find_key(header, "shape");
    if (!descr || !descr[0] || !order || !shape || !parse_shape(shape, &out->shape))
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
    if (fread(target, 1, bytes, file) == bytes) return RN_OK;
    return ferror(file) ? rn_fail(RN_IO, "cannot read %s: %s", path, strerror(errno))
                        : fail_npy(path, "it ends early");
}

static rn_status read_text(FILE *file, const char *path, size_t length, rn_npy *out) {
    char *header = NULL;
    RN_TRY(rn_alloc(RN_HOST_IO, length, (void **)&header));
    rn_status s = read_exactly(file, path, header, length);
    header[length - 1] = 0; // a line break
    if (s == RN_OK) s = parse_header(path, header, out);
    rn_free(RN_HOST_IO, header, length);
    return s;
}

// A file that is too short for its values is refused before memory is taken for them.
static rn_status count_bytes(FILE *file, const char *path, rn_npy *out) {
    struct stat state;
    uint64_t elements = 1;
    for (uint32_t i = 0; i < out->shape.rank; i++)
        if (__builtin_mul_overflow(elements, out->shape.dims[i], &elements))
            return fail_npy(path, "its shape is too large");
    if (elements >= UINT64_MAX / 16 || !rn_dtype_bytes(out->dtype, elements, &out->bytes))
        return fail_npy(path, "its shape is too large");
    off_t at = ftello(file);
    if (at >= 0 && fstat(fileno(file), &state) == 0 && S_ISREG(state.st_mode) &&
        (state.st_size < at || out->bytes > (uint64_t)(state.st_size - at)))
        return fail_npy(path, "it ends in its data");
    return RN_OK;
}

rn_status rn_npy_read_header(FILE *file, const char *path, rn_npy *out) {
    unsigned char head[12];
    *out = (rn_npy){.dtype = RN_DTYPE_NONE};
    RN_TRY(read_exactly(file, path, head, PREFIX));
    if (memcmp(head, "\x93NUMPY", 6) != 0) return fail_npy(path, "it is no .npy file");
    size_t length = head[8] | (size_t)head[9] << 8;
    if (head[6] > 1) {
        RN_TRY(read_exactly(file, path, head + PREFIX, 2));
        length |= (size_t)head[10] << 16 | (size_t)head[11] << 24;
    }
    if (length == 0 || length > MOST_HEADER_BYTES)
        return fail_npy(path, "its header is not understood");
    RN_TRY(read_text(file, path, length, out));
    return count_bytes(file, path, out);
}

rn_status rn_npy_write_header(FILE *file, const char *path, rn_dtype dtype, rn_shape shape) {
    char header[512];
    const char *name = NULL;
    for (int i = 0; i < TYPES; i++)
        if (types[i].dtype == dtype) name = types[i].name;
    if (!name) return rn_fail(RN_UNSUPPORTED, "%s has no place in .npy", rn_dtype_get(dtype)->name);
    size_t at = PREFIX;
    at += (size_t)snprintf(header + at, sizeof header - at,
                           "{'descr': '%s', 'fortran_order': False, 'shape': (", name);
    for (uint32_t i = 0; i < shape.rank; i++)
        at += (size_t)snprintf(header + at, sizeof header - at, "%llu%s",
                               (unsigned long long)shape.dims[i],
                               i + 1 < shape.rank ? ", "
                               : shape.rank == 1  ? ","
                                                  : "");
    at += (size_t)snprintf(header + at, sizeof header - at, "), }");
    size_t whole = (at + 1 + ALIGN - 1) / ALIGN * ALIGN;
    memset(header + at, ' ', whole - at);
    header[whole - 1] = '\n';
    memcpy(header, "\x93NUMPY\x01\x00", 8);
    header[8] = (char)((whole - PREFIX) & 0xff);
    header[9] = (char)((whole - PREFIX) >> 8);
    if (fwrite(header, 1, whole, file) == whole) return RN_OK;
    return rn_fail(RN_IO, "cannot write %s: %s", path, strerror(errno));
}
