// npy.c — arrays of .npy files, whole.
#include "run.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

// Values are held once, whatever their number is: the budget is the limit.
static rn_status read_values(FILE *file, const char *path, npy_array *out) {
    RN_TRY(reserve_text(&out->file, out->bytes));
    if (out->bytes == 0 || fread(out->file.data, 1, out->bytes, file) == out->bytes) return RN_OK;
    if (ferror(file)) return rn_fail(RN_IO, "cannot read %s: %s", path, strerror(errno));
    return rn_error_locate(rn_fail(RN_CORRUPT, "%s: it ends early", path), path, 0);
}

rn_status read_npy(const char *path, npy_array *out) {
    bool standard = strcmp(path, "-") == 0;
    FILE *file = standard ? stdin : fopen(path, "rb");
    rn_npy array;
    if (!file) return rn_fail(RN_NOT_FOUND, "cannot read %s: %s", path, strerror(errno));
    rn_status s = rn_npy_read_header(file, path, &array);
    out->dtype = array.dtype;
    out->shape = array.shape;
    out->bytes = array.bytes;
    if (s == RN_OK) s = read_values(file, path, out);
    if (!standard) fclose(file);
    return s;
}

rn_status write_npy(const char *path, rn_dtype dtype, rn_shape shape, const void *data,
                    uint64_t bytes) {
    FILE *file = fopen(path, "wb");
    if (!file) return rn_fail(RN_IO, "cannot write %s: %s", path, strerror(errno));
    rn_status s = rn_npy_write_header(file, path, dtype, shape);
    if (s == RN_OK && bytes && fwrite(data, 1, bytes, file) != bytes)
        s = rn_fail(RN_IO, "cannot write %s: %s", path, strerror(errno));
    if (fclose(file) != 0 && s == RN_OK)
        s = rn_fail(RN_IO, "cannot write %s: %s", path, strerror(errno));
    struct stat info; // half of a file is none; a pipe or a device stays
    if (s != RN_OK && stat(path, &info) == 0 && S_ISREG(info.st_mode)) remove(path);
    return s;
}
