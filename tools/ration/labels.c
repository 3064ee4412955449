// labels.c — a classifier's classes by name: the best of an output's values.
#include "run.h"

#include <math.h>
#include <string.h>

rn_status read_labels(const invocation *in, class_labels *out) {
    const char *path = rn_settings_text(in->settings, "labels");
    if (!path[0]) return RN_OK;
    RN_TRY(read_text(path, &out->file));
    for (size_t i = 0; i < out->file.bytes; i++)
        out->count += out->file.data[i] == '\n';
    out->count += out->file.bytes && out->file.data[out->file.bytes - 1] != '\n';
    return out->count ? RN_OK : rn_fail(RN_INVALID, "--labels %s: it has no lines", path);
}

rn_str label_at(const class_labels *labels, size_t index) {
    const char *at = labels->file.data, *end = at + labels->file.bytes;
    for (; index > 0; index--) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        at = line_end ? line_end + 1 : end;
    }
    const char *stop = memchr(at, '\n', (size_t)(end - at));
    size_t bytes = (size_t)((stop ? stop : end) - at);
    while (bytes && at[bytes - 1] == '\r')
        bytes--;
    return (rn_str){at, bytes};
}

// Between 0 and 1, and together 1: chances already.
static bool are_chances(const double *values, uint64_t count) {
    double sum = 0;
    for (uint64_t i = 0; i < count; i++) {
        if (!(values[i] >= 0 && values[i] <= 1)) return false;
        sum += values[i];
    }
    return fabs(sum - 1) < 1e-3;
}

size_t find_top(const double *values, uint64_t count, size_t most, class_score *out) {
    size_t found = 0;
    double sum = 0;
    for (uint64_t i = 0; i < count; i++) {
        size_t at = found;
        for (; at > 0 && values[i] > out[at - 1].chance; at--)
            if (at < most) out[at] = out[at - 1];
        if (at < most) out[at] = (class_score){i, values[i]};
        if (at < most && found < most) found++;
    }
    if (found == 0 || are_chances(values, count)) return found;
    double highest = out[0].chance;
    for (uint64_t i = 0; i < count; i++)
        sum += exp(values[i] - highest);
    for (size_t i = 0; i < found; i++)
        out[i].chance = exp(out[i].chance - highest) / sum;
    return found;
}
