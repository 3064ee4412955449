// checkpoint_load.c — one tensor: its bytes, its values as another type, or the file's own pages.
#include "io/checkpoint.h"

#include "base/checked.h"
#include "base/file.h"
#include "memory/account.h"

#include <sys/mman.h>

enum { STAGING_BYTES = 1 << 20 };

static const rn_account mapping_account = {RN_DEVICE_HOST, RN_PURPOSE_WEIGHTS, NULL};

rn_status rn_checkpoint_read(const rn_checkpoint *checkpoint, const rn_tensor_info *tensor,
                             uint64_t offset, void *target, size_t bytes) {
    if (offset > tensor->bytes || bytes > tensor->bytes - offset)
        return rn_fail(RN_INVALID, "tensor '%.*s' has %llu bytes; %zu from %llu were asked for",
                       RN_STR_ARG(tensor->name), (unsigned long long)tensor->bytes, bytes,
                       (unsigned long long)offset);
    const rn_opened_file *file = &checkpoint->files[tensor->file];
    return rn_opened_file_read(file, tensor->offset + offset, target, bytes);
}

// The most elements whose source fits the staging buffer, in whole blocks of both types.
static uint64_t step_elements(rn_dtype from, rn_dtype to) {
    const rn_dtype_info *source = rn_dtype_get(from), *target = rn_dtype_get(to);
    uint64_t unit = (uint64_t)source->block_elements * target->block_elements;
    uint64_t unit_bytes = (uint64_t)source->block_bytes * target->block_elements;
    return STAGING_BYTES / unit_bytes * unit;
}

static rn_status load_converted(const rn_checkpoint *checkpoint, const rn_tensor_info *tensor,
                                rn_dtype dtype, char *target, void *staging) {
    uint64_t step = step_elements(tensor->dtype, dtype), offset = 0, in_bytes, out_bytes;
    for (uint64_t done = 0; done < tensor->elements; done += step) {
        uint64_t now = rn_min_u64(step, tensor->elements - done);
        if (!rn_dtype_bytes(tensor->dtype, now, &in_bytes) ||
            !rn_dtype_bytes(dtype, now, &out_bytes))
            return rn_fail(RN_INVALID, "tensor '%.*s' is not whole blocks of %s",
                           RN_STR_ARG(tensor->name), rn_dtype_get(dtype)->name);
        RN_TRY(rn_checkpoint_read(checkpoint, tensor, offset, staging, (size_t)in_bytes));
        RN_TRY(rn_dtype_convert(tensor->dtype, staging, dtype, target, now));
        offset += in_bytes;
        target += out_bytes;
    }
    return RN_OK;
}

rn_status rn_checkpoint_load(const rn_checkpoint *checkpoint, const rn_tensor_info *tensor,
                             rn_dtype dtype, void *target, size_t target_bytes) {
    uint64_t need;
    void *staging;
    if (!rn_dtype_bytes(dtype, tensor->elements, &need) || need != target_bytes)
        return rn_fail(RN_INVALID, "tensor '%.*s' as %s does not have %zu bytes",
                       RN_STR_ARG(tensor->name), rn_dtype_get(dtype)->name, target_bytes);
    if (dtype == tensor->dtype)
        return rn_checkpoint_read(checkpoint, tensor, 0, target, target_bytes);
    RN_TRY(rn_alloc(RN_HOST_STAGING, STAGING_BYTES, &staging));
    rn_status s = load_converted(checkpoint, tensor, dtype, target, staging);
    rn_free(RN_HOST_STAGING, staging, STAGING_BYTES);
    return s;
}

rn_status rn_checkpoint_map(const rn_checkpoint *checkpoint, const rn_tensor_info *tensor,
                            rn_mapping *out) {
    const rn_opened_file *file = &checkpoint->files[tensor->file];
    uint64_t start = rn_round_down(tensor->offset, RN_PAGE_BYTES);
    *out = (rn_mapping){.bytes = (size_t)tensor->bytes};
    if (tensor->bytes == 0) return RN_OK;
    size_t map_bytes = (size_t)(tensor->offset - start + tensor->bytes);
    RN_TRY(rn_budget_charge(mapping_account, NULL, map_bytes));
    void *map = mmap(NULL, map_bytes, PROT_READ, MAP_SHARED, file->fd, (off_t)start);
    if (map == MAP_FAILED) {
        rn_ledger_release(mapping_account, NULL, map_bytes);
        return rn_file_fail("map", file->info.path);
    }
    out->map = map;
    out->map_bytes = map_bytes;
    out->data = (const char *)map + (tensor->offset - start);
    return RN_OK;
}

void rn_mapping_release(rn_mapping *mapping) {
    if (mapping->map) {
        munmap(mapping->map, mapping->map_bytes);
        rn_ledger_release(mapping_account, NULL, mapping->map_bytes);
    }
    *mapping = (rn_mapping){.data = NULL};
}
