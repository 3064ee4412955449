// buffers.c — values on a device: a buffer on each of its cores, with all of the value, or with the
// core's part of it (rn_stablehlo_entry.split).
//
//     entry (2, 6), split 1, on 2 cores      a b c│d e f     core 0: a b c g h i
//                                            g h i│j k l     core 1: d e f j k l
#include "backend/pjrt/pjrt.h"

#include "base/arena.h"
#include "base/checked.h"
#include "memory/account.h"

rn_status rn_pjrt_table_make(const rn_pjrt_device *device, rn_arena *memory, uint32_t count,
                             rn_pjrt_table *out) {
    for (uint32_t c = 0; c < device->core_count; c++)
        RN_TRY(rn_arena_array(memory, count, sizeof(void *), (void **)&out->core[c]));
    return RN_OK;
}

void rn_pjrt_drop_value(const rn_pjrt_device *device, rn_pjrt_table *table, uint32_t i) {
    for (uint32_t c = 0; c < device->core_count; c++) {
        if (table->core[c][i])
            rn_pjrt_drop(device->plugin, RN_PJRT_BUFFER_DESTROY, table->core[c][i]);
        table->core[c][i] = NULL;
    }
}

void rn_pjrt_move_value(const rn_pjrt_device *device, rn_pjrt_table *to, uint32_t i,
                        rn_pjrt_table *from, uint32_t j) {
    rn_pjrt_drop_value(device, to, i);
    for (uint32_t c = 0; c < device->core_count; c++) {
        to->core[c][i] = from->core[c][j];
        from->core[c][j] = NULL;
    }
}

// ---- parts --------------------------------------------------------------------------------------

uint64_t rn_pjrt_part_bytes(const rn_stablehlo_entry *port, uint32_t cores) {
    return port->split == RN_STABLEHLO_NONE ? port->bytes : port->bytes / cores;
}

// Runs of bytes that lie together in a core's part.
typedef struct runs {
    uint64_t count, bytes;
} runs;

static runs find_runs(const rn_stablehlo_entry *port, uint32_t cores) {
    runs r = {.count = 1};
    for (uint32_t i = 0; i < port->split; i++)
        r.count *= port->shape.dims[i];
    r.bytes = port->bytes / cores / rn_max_u64(r.count, 1);
    return r;
}

// Between the whole and the part of a core.
static void copy_part(const rn_stablehlo_entry *port, uint32_t cores, uint32_t core, uint8_t *whole,
                      uint8_t *part, bool to_part) {
    runs r = find_runs(port, cores);
    for (uint64_t i = 0; i < r.count; i++) {
        uint8_t *there = whole + (i * cores + core) * r.bytes, *here = part + i * r.bytes;
        memcpy(to_part ? here : there, to_part ? there : here, r.bytes);
    }
}

// ---- uploading ----------------------------------------------------------------------------------

// A value of one run is copied before the call returns, and what fails later fails the run. One
// that stays is waited for until it is there: an allocation that fails may be told by its event
// only.
static rn_status upload_part(const rn_pjrt_device *device, const rn_stablehlo_entry *port,
                             uint32_t core, bool stays, const void *data, void **out) {
    const rn_pjrt_plugin *plugin = device->plugin;
    int64_t dims[RN_MAX_RANK];
    for (uint32_t i = 0; i < port->shape.rank; i++)
        dims[i] = (int64_t)(port->shape.dims[i] / (i == port->split ? device->core_count : 1));
    rn_pjrt_from_host_args args = {.client = device->client,
                                   .data = data,
                                   .type = rn_pjrt_type(port->dtype),
                                   .dims = dims,
                                   .dim_count = port->shape.rank,
                                   .semantics = stays,
                                   .device = device->cores[core]};
    RN_TRY(RN_PJRT_CALL(plugin, RN_PJRT_CLIENT_BUFFER_FROM_HOST, &args, "uploading"));
    *out = args.buffer;
    if (!stays) {
        rn_pjrt_drop(plugin, RN_PJRT_EVENT_DESTROY, args.done);
        return RN_OK;
    }
    RN_TRY(rn_pjrt_await(plugin, args.done, "uploading"));
    rn_pjrt_get_args ready = {.handle = args.buffer};
    RN_TRY(RN_PJRT_CALL(plugin, RN_PJRT_BUFFER_READY_EVENT, &ready, "uploading"));
    return rn_pjrt_await(plugin, ready.out, "uploading");
}

// Parts that lie together are taken where they are; others by a copy. NULL: zeros.
static rn_status upload_parts(const rn_pjrt_device *device, const rn_stablehlo_entry *port,
                              bool stays, uint8_t *data, rn_pjrt_table *table, uint32_t i) {
    uint32_t cores = device->core_count;
    bool divided = port->split != RN_STABLEHLO_NONE;
    bool together = !divided || find_runs(port, cores).count == 1;
    uint64_t bytes = rn_pjrt_part_bytes(port, cores);
    void *copy = NULL;
    rn_status s = RN_OK;
    if (!data)
        RN_TRY(rn_alloc_zeroed(RN_HOST_STAGING, bytes, 1, &copy));
    else if (!together)
        RN_TRY(rn_alloc(RN_HOST_STAGING, bytes, &copy));
    for (uint32_t c = 0; c < cores && s == RN_OK; c++) {
        const void *part = copy;
        if (data && together) part = data + (divided ? c * bytes : 0);
        if (data && !together) copy_part(port, cores, c, data, copy, true);
        s = upload_part(device, port, c, stays, part, &table->core[c][i]);
    }
    if (copy) rn_free(RN_HOST_STAGING, copy, bytes);
    return s;
}

rn_status rn_pjrt_upload(const rn_pjrt_device *device, const rn_stablehlo_entry *port, bool stays,
                         const void *data, rn_pjrt_table *table, uint32_t i) {
    rn_pjrt_drop_value(device, table, i);
    if (rn_pjrt_type(port->dtype) == 0)
        return rn_fail(RN_UNSUPPORTED, "%s: PJRT has no %s", device->name,
                       rn_dtype_get(port->dtype)->name);
    // Nothing is written through it.
    rn_status s = upload_parts(device, port, stays, (uint8_t *)(uintptr_t)data, table, i);
    if (s != RN_OK) {
        rn_error_info error = *rn_last_error();
        rn_pjrt_drop_value(device, table, i);
        (void)rn_error_restore(&error);
    }
    return s;
}

// ---- downloading --------------------------------------------------------------------------------

static rn_status download_part(const rn_pjrt_device *device, void *buffer, void *target,
                               uint64_t bytes) {
    rn_pjrt_to_host_args args = {.buffer = buffer, .target = target, .target_bytes = bytes};
    RN_TRY(RN_PJRT_CALL(device->plugin, RN_PJRT_BUFFER_TO_HOST, &args, "reading a result"));
    return rn_pjrt_await(device->plugin, args.event, "reading a result");
}

rn_status rn_pjrt_download(const rn_pjrt_device *device, const rn_stablehlo_entry *port,
                           const rn_pjrt_table *table, uint32_t i, void *target) {
    uint64_t bytes = rn_pjrt_part_bytes(port, device->core_count);
    void *part = NULL;
    if (port->split == RN_STABLEHLO_NONE)
        return download_part(device, table->core[0][i], target, bytes);
    RN_TRY(rn_alloc(RN_HOST_STAGING, bytes, &part));
    rn_status s = RN_OK;
    for (uint32_t c = 0; c < device->core_count && s == RN_OK; c++) {
        s = download_part(device, table->core[c][i], part, bytes);
        if (s == RN_OK) copy_part(port, device->core_count, c, target, part, false);
    }
    rn_free(RN_HOST_STAGING, part, bytes);
    return s;
}

int rn_pjrt_type(rn_dtype dtype) {
    switch (dtype) {
    case RN_DTYPE_F64:
        return RN_PJRT_F64;
    case RN_DTYPE_F32:
        return RN_PJRT_F32;
    case RN_DTYPE_F16:
        return RN_PJRT_F16;
    case RN_DTYPE_BF16:
        return RN_PJRT_BF16;
    case RN_DTYPE_I64:
        return RN_PJRT_S64;
    case RN_DTYPE_I32:
        return RN_PJRT_S32;
    case RN_DTYPE_I16:
        return RN_PJRT_S16;
    case RN_DTYPE_I8:
        return RN_PJRT_S8;
    case RN_DTYPE_U64:
        return RN_PJRT_U64;
    case RN_DTYPE_U32:
        return RN_PJRT_U32;
    case RN_DTYPE_U16:
        return RN_PJRT_U16;
    case RN_DTYPE_U8:
        return RN_PJRT_U8;
    case RN_DTYPE_BOOL:
        return RN_PJRT_PRED;
    default:
        return 0;
    }
}
