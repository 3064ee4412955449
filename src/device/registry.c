// registry.c — finding back ends, and what their target syntaxes share.
#include "device/registry.h"

#include <stdio.h>
#include <string.h>

const rn_backend *rn_backend_find(rn_str name) {
    for (const rn_backend *const *b = rn_backends; *b; b++)
        if (rn_str_equal(name, rn_str_from((*b)->name))) return *b;
    return NULL;
}

const rn_backend *rn_backend_of(const char *target) {
    return rn_backend_find((rn_str){target, strcspn(target, ":?")});
}

const rn_rate_info *rn_device_rate_info(const char *target, uint32_t index) {
    const rn_backend *backend = rn_backend_of(target);
    return backend && index < backend->rate_count ? &backend->rates[index].info : NULL;
}

const rn_backend *rn_backend_auto(uint32_t rank) {
    for (const rn_backend *const *b = rn_backends; *b; b++)
        if (rank > 0 && (*b)->auto_rank == rank) return *b;
    return NULL;
}

void rn_backend_list_targets(char *out, size_t bytes) {
    const rn_backend *last = NULL;
    size_t used = 0;
    out[0] = 0;
    for (const rn_backend *const *b = rn_backends; *b; b++)
        if ((*b)->syntax) last = *b;
    for (const rn_backend *const *b = rn_backends; *b && used < bytes; b++) {
        if (!(*b)->syntax) continue;
        const char *before = used == 0 ? "" : *b == last ? " and " : ", ";
        int count = snprintf(out + used, bytes - used, "%s%s", before, (*b)->syntax);
        used += count > 0 ? (size_t)count : 0;
    }
}

// ---- errors -------------------------------------------------------------------------------------

// The last back end first: an engine behind a plugin quotes the driver that it runs on.
const rn_error_table *rn_error_table_at(size_t index) {
    const rn_backend *const *b = rn_backends;
    while (*b)
        b++;
    while (b > rn_backends) {
        const rn_error_table *errors = (*--b)->errors;
        if (errors && index-- == 0) return errors;
    }
    return NULL;
}

// ---- syntax -------------------------------------------------------------------------------------

rn_str rn_target_take(rn_str *rest, char mark) {
    const char *end = rest->bytes ? memchr(rest->data, mark, rest->bytes) : NULL;
    size_t bytes = end ? (size_t)(end - rest->data) : rest->bytes;
    size_t used = end ? bytes + 1 : bytes;
    rn_str part = {rest->data, bytes};
    *rest = (rn_str){rest->data + used, rest->bytes - used};
    while (part.bytes && part.data[0] == ' ')
        part = (rn_str){part.data + 1, part.bytes - 1};
    while (part.bytes && part.data[part.bytes - 1] == ' ')
        part.bytes--;
    return part;
}

rn_status rn_target_number(rn_str text, uint32_t *out) {
    uint32_t number = 0;
    if (text.bytes == 0 || text.bytes > 9)
        return rn_fail(RN_INVALID, "\"%.*s\" is no number", RN_STR_ARG(text));
    for (size_t i = 0; i < text.bytes; i++) {
        if (text.data[i] < '0' || text.data[i] > '9')
            return rn_fail(RN_INVALID, "\"%.*s\" is no number", RN_STR_ARG(text));
        number = number * 10 + (uint32_t)(text.data[i] - '0');
    }
    *out = number;
    return RN_OK;
}

rn_status rn_target_parse_plain(rn_str text, rn_target *out) {
    if (text.data) return rn_fail(RN_INVALID, "%s takes no options", out->backend->name);
    snprintf(out->name, sizeof out->name, "%s", out->backend->name);
    return RN_OK;
}
