// device.c — the sim device: blocks on a list, so that every address of a command can be checked
// against them.
#include "backend/sim/sim.h"
#include "memory/account.h"
#include "memory/budget.h"

#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

enum { BLOCK_MAX = 8 };

typedef struct sim_block {
    uint8_t *base;
    uint64_t bytes;
} sim_block;

typedef struct sim_device {
    rn_device base;
    rn_sim_options options;
    _Atomic uint32_t alloc_left, launch_left, copy_left; // until the fault; 0: none
    sim_block blocks[BLOCK_MAX];                         // changed while the queues are idle only
    uint64_t held_bytes, taken_away;
    uint32_t fails_left; // allocations that fail once one does
} sim_device;

static sim_device *cast(rn_device *device) {
    return (sim_device *)((char *)device - offsetof(sim_device, base));
}

// Counts down; true for the one that fails.
static bool fault(_Atomic uint32_t *left) {
    uint32_t now = atomic_load(left);
    while (now != 0)
        if (atomic_compare_exchange_weak(left, &now, now - 1)) return now == 1;
    return false;
}

static void sleep_seconds(double seconds) {
    if (seconds <= 0) return;
    struct timespec time = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    while (nanosleep(&time, &time) != 0)
        continue;
}

// ---- memory -------------------------------------------------------------------------------------

static rn_status refuse(sim_device *sim, rn_account account, uint64_t bytes) {
    sim->base.refused_bytes = bytes;
    return rn_budget_refuse(account, bytes, sim->options.memory_bytes,
                            sim->held_bytes + sim->taken_away + bytes);
}

static rn_status fail_alloc(sim_device *sim, uint64_t bytes) {
    sim->base.refused_bytes = bytes;
    if (sim->fails_left > 1) {
        sim->fails_left--;
        atomic_store(&sim->alloc_left, 1);
    }
    return rn_fail(RN_NO_MEMORY, "sim: this allocation is to fail");
}

// No limit: it does not know.
static uint64_t count_free(rn_device *device) {
    const sim_device *sim = cast(device);
    uint64_t used = sim->held_bytes + sim->taken_away;
    return sim->options.memory_bytes > used ? sim->options.memory_bytes - used : 0;
}

static rn_status take(rn_device *device, rn_account account, uint64_t bytes, void **out) {
    sim_device *sim = cast(device);
    uint32_t at = 0;
    *out = NULL;
    while (at < BLOCK_MAX && sim->blocks[at].base)
        at++;
    if (at == BLOCK_MAX) return rn_fail(RN_DEVICE, "sim has %d blocks at most", BLOCK_MAX);
    if (fault(&sim->alloc_left)) return fail_alloc(sim, bytes);
    if (sim->options.memory_bytes && bytes > count_free(device)) return refuse(sim, account, bytes);
    RN_TRY(rn_alloc_aligned(&rn_system_allocator, bytes, RN_PAGE_BYTES, out));
    memset(*out, 0xA5, bytes); // a device's memory is not zero
    sim->blocks[at] = (sim_block){*out, bytes};
    sim->held_bytes += bytes;
    return RN_OK;
}

static void release(rn_device *device, void *block, uint64_t bytes) {
    sim_device *sim = cast(device);
    for (uint32_t i = 0; i < BLOCK_MAX; i++)
        if (sim->blocks[i].base == block) sim->blocks[i] = (sim_block){0};
    sim->held_bytes -= bytes;
    rn_free(&rn_system_allocator, block, bytes);
}

static bool inside(const sim_device *sim, const void *address, uint64_t bytes) {
    const uint8_t *at = address;
    for (uint32_t i = 0; i < BLOCK_MAX; i++) {
        const sim_block *block = &sim->blocks[i];
        if (block->base && at >= block->base && bytes <= block->bytes &&
            (uint64_t)(at - block->base) <= block->bytes - bytes)
            return true;
    }
    return bytes == 0;
}

// ---- commands -----------------------------------------------------------------------------------

static rn_status check_tensor(const sim_device *sim, const rn_tensor *tensor, rn_op op,
                              uint32_t argument) {
    if (!rn_tensor_given(tensor) || !tensor->data) return RN_OK;
    if (inside(sim, tensor->data, rn_tensor_bytes(tensor))) return RN_OK;
    return rn_fail(RN_DEVICE, "sim: argument %u of %s does not lie in the device's memory",
                   argument, rn_op_name(op));
}

static rn_status check_call(const sim_device *sim, const rn_call *call) {
    for (uint32_t i = 0; i < call->input_count; i++)
        RN_TRY(check_tensor(sim, &call->inputs[i], call->op, i));
    for (uint32_t i = 0; i < call->output_count; i++)
        RN_TRY(check_tensor(sim, &call->outputs[i], call->op, call->input_count + i));
    if (inside(sim, call->workspace, call->workspace_bytes)) return RN_OK;
    return rn_fail(RN_DEVICE, "sim: the workspace of %s does not lie in the device's memory",
                   rn_op_name(call->op));
}

static rn_status launch(sim_device *sim, const rn_command *command) {
    RN_TRY(check_call(sim, &command->as.launch.call));
    if (fault(&sim->launch_left)) return rn_fail(RN_DEVICE, "sim: this launch is to fail");
    sleep_seconds(sim->options.launch_seconds);
    return rn_host_executor.execute(NULL, command);
}

static rn_status copy(sim_device *sim, const rn_command *command) {
    uint64_t bytes = command->as.copy.bytes;
    const void *device_side =
        command->kind == RN_COMMAND_COPY_OUT ? command->as.copy.source : command->as.copy.target;
    if (!inside(sim, device_side, bytes))
        return rn_fail(RN_DEVICE, "sim: a copy of %llu bytes leaves the device's memory",
                       (unsigned long long)bytes);
    if (fault(&sim->copy_left)) return rn_fail(RN_DEVICE, "sim: this copy is to fail");
    if (sim->options.link_bytes_second > 0 && command->kind != RN_COMMAND_ZERO)
        sleep_seconds((double)bytes / sim->options.link_bytes_second);
    return rn_host_executor.execute(NULL, command);
}

static rn_status execute(void *self, const rn_command *command) {
    return command->kind == RN_COMMAND_LAUNCH ? launch(self, command) : copy(self, command);
}

static rn_status open_queue(rn_device *device, rn_queue_kind kind, const _Atomic bool *cancel,
                            rn_queue **out) {
    (void)kind;
    return rn_queue_thread_create((rn_executor){cast(device), execute}, cancel, out);
}

// ---- life ---------------------------------------------------------------------------------------

static rn_status fill_caps(sim_device *sim) {
    rn_device_caps *caps = &sim->base.caps;
    *caps = *rn_cpu_caps();
    memcpy(caps->name, "sim", sizeof "sim");
    caps->backend = &rn_sim_backend;
    caps->threads = sim->options.threads ? sim->options.threads : 1;
    caps->memory_bytes = sim->options.memory_bytes;
    caps->own_memory = true;
    caps->compiles = sim->options.compiles;
    if (caps->compiles) caps->kernels = NULL;
    if (sim->options.link_bytes_second > 0)
        caps->link_bytes_second = sim->options.link_bytes_second;
    return rn_device_add("sim", &caps->device);
}

static void destroy(rn_device *device) {
    rn_workers_destroy(device->workers);
    rn_free(RN_HOST_OTHER, cast(device), sizeof(sim_device));
}

rn_status rn_sim_device_create(const rn_sim_options *options, rn_device **out) {
    void *block = NULL;
    *out = NULL;
    RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, 1, sizeof(sim_device), &block));
    sim_device *sim = block;
    if (options) sim->options = *options;
    sim->base.alloc = take;
    sim->base.free = release;
    sim->base.open_queue = open_queue;
    sim->base.destroy = destroy;
    if (sim->options.compiles) sim->base.compile = rn_sim_compile;
    rn_sim_device_arm(&sim->base, sim->options.fail_alloc, sim->options.fail_launch,
                      sim->options.fail_copy);
    rn_status s = fill_caps(sim);
    if (s == RN_OK)
        s = rn_workers_create(sim->base.caps.threads, RN_HOST_OTHER, &sim->base.workers);
    if (s == RN_OK)
        *out = &sim->base;
    else
        rn_device_destroy(&sim->base);
    return s;
}

void rn_sim_device_arm(rn_device *device, uint32_t fail_alloc, uint32_t fail_launch,
                       uint32_t fail_copy) {
    sim_device *sim = cast(device);
    atomic_store(&sim->alloc_left, fail_alloc);
    atomic_store(&sim->launch_left, fail_launch);
    atomic_store(&sim->copy_left, fail_copy);
    sim->fails_left = sim->options.fail_allocs;
}

bool rn_sim_device_fails_launch(rn_device *device) {
    return fault(&cast(device)->launch_left);
}

uint64_t rn_sim_device_compiled_more(rn_device *device) {
    return cast(device)->options.compiled_more_bytes;
}

void rn_sim_device_take_away(rn_device *device, uint64_t bytes) {
    sim_device *sim = cast(device);
    sim->taken_away = bytes;
    device->free_bytes = count_free; // nobody asks before: a budget is what a test says
}
