// device.c — a plugin's device: found when it is opened, started when it is needed.
//
// The CPU plugin's memory is the host's own: it is charged to the host, and the plugin is loaded at
// once, so that what it takes of the process is measured before a plan is made. Any other is loaded
// with the first program, behind the plan: what does not fit is refused before that.
#include "backend/pjrt/pjrt.h"
#include "backend/pjrt/preload.h"

#include "base/checked.h"
#include "base/clock.h"
#include "memory/account.h"

#include <ration/log.h>
#include <ration/memory.h>

#include <stdio.h>
#include <stdlib.h>

#define MIB ((uint64_t)1 << 20)

rn_pjrt_device *rn_pjrt_device_of(rn_device *device) {
    return (rn_pjrt_device *)((char *)device - offsetof(rn_pjrt_device, base));
}

static void unpin(rn_pjrt_device *device, size_t index) {
    rn_pjrt_map_args args = {.client = device->client, .data = device->mapped[index]};
    if (!args.data) return;
    (void)!RN_PJRT_CALL(device->plugin, RN_PJRT_CLIENT_DMA_UNMAP, &args, "unpinning");
    device->mapped[index] = NULL;
}

// ---- starting -----------------------------------------------------------------------------------

static rn_pjrt_option option(const char *name, int type) {
    return (rn_pjrt_option){.bytes = sizeof(rn_pjrt_option),
                            .name = name,
                            .name_bytes = strlen(name),
                            .type = type,
                            .value_count = 1};
}

// The pool of a CUDA plugin: no more than the budget has beside the driver's context. Without a
// limit it would take three quarters of the GPU with the first buffer.
static float pool_share(const rn_pjrt_device *device, uint64_t budget_bytes) {
    double share = 0.9, total = (double)device->total_bytes;
    double context = device->base.caps.own[RN_PJRT_CONTEXT];
    if (total > 0 && budget_bytes && budget_bytes != RN_NO_LIMIT) {
        double wanted = ((double)budget_bytes / device->core_count - context) / total;
        if (wanted < share) share = wanted > 0 ? wanted : 0;
    }
    return (float)(share * 0.9999999); // rounded down
}

static rn_status create_client(rn_pjrt_device *device, uint64_t budget_bytes) {
    rn_pjrt_option options[3];
    rn_pjrt_client_create_args args = {.options = options};
    const char *file = strrchr(device->path, '/');
    if (rn_pjrt_is_cuda(device->path)) {
        options[0] = option("allocator", RN_PJRT_STRING);
        options[0].value.text = "bfc";
        options[0].value_count = 3;
        options[1] = option("preallocate", RN_PJRT_BOOL);
        options[2] = option("memory_fraction", RN_PJRT_FLOAT);
        options[2].value.number = pool_share(device, budget_bytes);
        args.option_count = 3;
    } else if (strstr(file ? file : device->path, "xla_cpu")) {
        options[0] = option("cpu_device_count", RN_PJRT_INT64);
        options[0].value.integer = (int64_t)device->target.device + device->core_count;
        args.option_count = 1;
    }
    RN_TRY(RN_PJRT_CALL(device->plugin, RN_PJRT_CLIENT_CREATE, &args, "making the client"));
    device->client = args.client;
    device->has_limit = budget_bytes && budget_bytes != RN_NO_LIMIT;
    return RN_OK;
}

static void copy_text(const rn_pjrt_device *device, rn_pjrt_function function, void *handle,
                      char *out, size_t bytes) {
    rn_pjrt_text_args args = {.handle = handle};
    out[0] = 0;
    if (RN_PJRT_CALL(device->plugin, function, &args, "asking for names") != RN_OK) return;
    snprintf(out, bytes, "%.*s", (int)args.text_bytes, args.text ? args.text : "");
    rn_str_clean(out);
}

// The device of this number in this machine: lists are not in their order on Neuron. NULL: none.
static void *find_device(const rn_pjrt_device *device, const rn_pjrt_list_args *list,
                         uint32_t wanted) {
    for (size_t i = 0; i < list->count; i++) {
        rn_pjrt_number_args number = {.handle = list->items[i], .number = (int)i};
        if (RN_PJRT_CALL(device->plugin, RN_PJRT_DEVICE_LOCAL_ID, &number, "asking for a number") !=
            RN_OK)
            number.number = (int)i;
        if (number.number == (int)wanted) return list->items[i];
    }
    return NULL;
}

// By their numbers, else by their places in the list.
static rn_status choose_devices(rn_pjrt_device *device) {
    rn_pjrt_list_args list = {.handle = device->client};
    uint32_t first = device->target.device, cores = device->core_count, found = 0;
    RN_TRY(RN_PJRT_CALL(device->plugin, RN_PJRT_CLIENT_ADDRESSABLE_DEVICES, &list,
                        "asking for devices"));
    if (first + cores > list.count)
        return rn_hint(rn_fail(RN_DEVICE, "%s has %zu devices; there is no number %u",
                               device->base.caps.name, list.count, first + cores - 1),
                       "device=N counts from 0, and cores=N are those from that one on");
    while (found < cores && (device->cores[found] = find_device(device, &list, first + found)))
        found++;
    for (uint32_t c = 0; found < cores && c < cores; c++)
        device->cores[c] = list.items[first + c];
    return RN_OK;
}

static void read_names(rn_pjrt_device *device) {
    rn_pjrt_get_args description = {.handle = device->cores[0]};
    copy_text(device, RN_PJRT_CLIENT_PLATFORM_NAME, device->client, device->platform,
              sizeof device->platform);
    copy_text(device, RN_PJRT_CLIENT_PLATFORM_VERSION, device->client, device->platform_version,
              sizeof device->platform_version);
    if (RN_PJRT_CALL(device->plugin, RN_PJRT_DEVICE_DESCRIPTION, &description,
                     "asking for a description") == RN_OK)
        copy_text(device, RN_PJRT_DESCRIPTION_KIND, description.out, device->kind,
                  sizeof device->kind);
}

// What Neuron's driver says of the cores that are visible; else what neuron-monitor says.
static bool read_usage(void *self, rn_device_usage *out) {
    const rn_pjrt_device *device = self;
    const char *cores = getenv("NEURON_RT_VISIBLE_CORES");
    if (!cores) cores = device->target.cores;
    if (rn_neuron_read_sysfs(cores, out)) return true;
    return device->monitor && rn_neuron_monitor_read(device->monitor, out);
}

static void watch_memory(rn_pjrt_device *device) {
    rn_device_usage usage;
    if (strcmp(device->target.plugin, "neuron") != 0) return;
    if (!rn_neuron_read_sysfs("", &usage))
        device->monitor = rn_neuron_monitor_start(device->target.cores);
    rn_device_usage_from(device->base.caps.device, read_usage, device);
}

// XLA's CPU client takes as many threads as this says when it is made, and all cores without it.
// What the user has set stays.
static void limit_threads(const rn_pjrt_device *device) {
    static _Atomic bool ours;
    char count[16];
    if (device->base.caps.own_memory || (getenv("PJRT_NPROC") && !ours)) return;
    snprintf(count, sizeof count, "%u", device->base.caps.threads);
    ours = true;
    setenv("PJRT_NPROC", count, 1);
}

// A client that was made to ask what is free has a pool without a limit. Before the first program
// it is made anew, for what was planned; nothing of it is in use then but pinned memory.
static rn_status limit_pool(rn_pjrt_device *device, uint64_t budget_bytes) {
    if (device->has_limit || device->base.caps.own[RN_PJRT_CONTEXT] == 0 || budget_bytes == 0 ||
        budget_bytes == RN_NO_LIMIT)
        return RN_OK;
    for (size_t i = 0; i < sizeof device->mapped / sizeof *device->mapped; i++)
        unpin(device, i);
    rn_pjrt_drop(device->plugin, RN_PJRT_CLIENT_DESTROY, device->client);
    device->client = device->cores[0] = NULL;
    RN_TRY(create_client(device, budget_bytes));
    RN_TRY(choose_devices(device));
    rn_log(RN_LOG_DEBUG, "xla", "%s: the client again, with a pool of what was planned",
           device->name);
    return RN_OK;
}

static rn_status start(rn_pjrt_device *device, uint64_t budget_bytes) {
    rn_pjrt_facts facts;
    uint64_t begin = rn_clock_ns();
    rn_pjrt_set_environment(&device->target);
    limit_threads(device);
    RN_TRY(rn_pjrt_try(device->path, &facts));
    device->total_bytes = facts.limit_bytes;
    RN_TRY(rn_pjrt_load(device->path, &device->plugin));
    RN_TRY(create_client(device, budget_bytes));
    RN_TRY(choose_devices(device));
    read_names(device);
    rn_log(RN_LOG_INFO, "xla", "%s: %s, %s, PJRT 0.%d, ready in %.0f ms", device->name,
           device->platform, device->kind, device->plugin->api->version.minor,
           (double)(rn_clock_ns() - begin) * 1e-6);
    watch_memory(device);
    // Where the process's own memory is measured, the plugin's is a part of it from now on.
    if (device->base.caps.own_memory &&
        rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_UNACCOUNTED).now_bytes)
        RN_TRY(rn_process_charge_unaccounted());
    return RN_OK;
}

rn_status rn_pjrt_start(rn_pjrt_device *device, uint64_t budget_bytes) {
    pthread_mutex_lock(&device->lock);
    bool failed = device->failure.status != RN_OK;
    rn_status s = failed ? rn_error_restore(&device->failure) : RN_OK;
    if (!failed)
        s = device->cores[0] ? limit_pool(device, budget_bytes) : start(device, budget_bytes);
    if (s != RN_OK && !failed) {
        device->failure = *rn_last_error();
        if (device->client) rn_pjrt_drop(device->plugin, RN_PJRT_CLIENT_DESTROY, device->client);
        device->client = device->cores[0] = NULL;
    }
    pthread_mutex_unlock(&device->lock);
    return s;
}

// ---- memory -------------------------------------------------------------------------------------

void rn_pjrt_tell_memory(const rn_pjrt_device *device) {
    rn_pjrt_device_memory stats = {.device = device->cores[0]};
    if (!rn_log_wants(RN_LOG_DEBUG) || RN_PJRT_CALL(device->plugin, RN_PJRT_DEVICE_MEMORY_STATS,
                                                    &stats, "asking for memory") != RN_OK)
        return;
    rn_log(RN_LOG_DEBUG, "xla", "%s: %lld bytes in use, %lld at the peak, %lld in its pool",
           device->name, (long long)stats.used_bytes, (long long)stats.peak.bytes,
           (long long)stats.pool.bytes);
}

// Of all cores, each of which takes as much as the one with the least.
static uint64_t free_bytes(rn_device *base) {
    rn_pjrt_device *device = rn_pjrt_device_of(base);
    if (rn_pjrt_start(device, 0) != RN_OK) return 0;
    uint64_t least = UINT64_MAX;
    for (uint32_t c = 0; c < device->core_count; c++) {
        rn_pjrt_device_memory stats = {.device = device->cores[c]};
        if (RN_PJRT_CALL(device->plugin, RN_PJRT_DEVICE_MEMORY_STATS, &stats,
                         "asking for memory") != RN_OK ||
            !stats.limit.is_set || stats.limit.bytes < stats.used_bytes)
            return 0;
        least = rn_min_u64(least, (uint64_t)(stats.limit.bytes - stats.used_bytes));
    }
    return least * device->core_count;
}

// Pinned where the plugin can: a copy of a weight is ten times as fast then. Before it is started,
// and where that fails, it is memory like any other.
static rn_status alloc_host(rn_device *base, rn_account account, uint64_t bytes, void **out) {
    rn_pjrt_device *device = rn_pjrt_device_of(base);
    uint32_t at = 0;
    RN_TRY(rn_alloc_aligned(&rn_host_allocators[account.purpose], bytes, RN_PAGE_BYTES, out));
    rn_pjrt_map_args args = {.client = device->client, .data = *out, .data_bytes = bytes};
    while (at < sizeof device->mapped / sizeof *device->mapped && device->mapped[at])
        at++;
    if (device->client && at < sizeof device->mapped / sizeof *device->mapped &&
        RN_PJRT_CALL(device->plugin, RN_PJRT_CLIENT_DMA_MAP, &args, "pinning") == RN_OK)
        device->mapped[at] = *out;
    return RN_OK;
}

static void free_host(rn_device *base, rn_account account, void *block, uint64_t bytes) {
    rn_pjrt_device *device = rn_pjrt_device_of(base);
    for (size_t i = 0; i < sizeof device->mapped / sizeof *device->mapped; i++)
        if (device->mapped[i] == block) unpin(device, i);
    rn_free(&rn_host_allocators[account.purpose], block, bytes);
}

// ---- life ---------------------------------------------------------------------------------------

static void destroy(rn_device *base) {
    rn_pjrt_device *device = rn_pjrt_device_of(base);
    if (device->client) rn_pjrt_drop(device->plugin, RN_PJRT_CLIENT_DESTROY, device->client);
    if (base->caps.own_memory) rn_device_usage_from(base->caps.device, NULL, NULL);
    rn_neuron_monitor_stop(device->monitor);
    rn_workers_destroy(base->workers);
    pthread_mutex_destroy(&device->lock);
    rn_free(RN_HOST_OTHER, device, sizeof *device);
}

static rn_layout weight_layout(const rn_call *call, uint32_t input) {
    (void)call;
    (void)input;
    return RN_LAYOUT_PLAIN;
}

// What the plugin took of the process that tried it; CUDA's was seen to take 220 to 440 MB.
static double guess_host(const rn_pjrt_device *device) {
    rn_pjrt_facts facts;
    if (rn_pjrt_was_tried(device->path, &facts)) return (double)facts.host_bytes;
    return (rn_pjrt_is_cuda(device->path) ? 448 : 64) * (double)MIB;
}

// Without its options: those do not change whose memory it is.
static rn_status fill_caps(rn_pjrt_device *device, const rn_backend *backend, bool on_host,
                           uint32_t threads) {
    rn_device_caps *caps = &device->base.caps;
    const rn_device_caps *cpu = rn_cpu_caps();
    *caps = (rn_device_caps){.threads = threads ? threads : cpu->threads,
                             .backend = backend,
                             .compiles = true,
                             .weight_layout = weight_layout,
                             .own_memory = !on_host,
                             .most_rows = device->target.most_rows,
                             .cores = device->core_count,
                             .flops = on_host ? cpu->flops : 2e13,
                             .quantized_flops = on_host ? cpu->quantized_flops : 2e13,
                             .memory_bytes_second = on_host ? cpu->memory_bytes_second : 5e11,
                             .disk_bytes_second = cpu->disk_bytes_second,
                             .link_bytes_second = on_host ? cpu->link_bytes_second : 5e9,
                             .step_seconds = 5e-6};
    snprintf(caps->name, sizeof caps->name, "%.*s", (int)strcspn(device->name, "?"), device->name);
    caps->own[RN_PJRT_PRODUCTS] = device->target.products;
    caps->own[RN_PJRT_WIDENED] = device->target.widened;
    caps->own[RN_PJRT_TWICE] = device->target.keeps_states;
    caps->own[RN_PJRT_CONTEXT] = rn_pjrt_is_cuda(device->path) ? 640 * (double)MIB : 0;
    // A program that calls cuBLAS has 32 MiB of workspace for it.
    caps->own[RN_PJRT_LEAST] = rn_pjrt_is_cuda(device->path) ? 48 * (double)MIB : 2 * (double)MIB;
    caps->own[RN_PJRT_HOST] = on_host ? 0 : guess_host(device);
    if (!on_host) return rn_device_add(caps->name, &caps->device);
    caps->device = RN_DEVICE_HOST;
    return RN_OK;
}

// Whether the plugin's memory is the host's: by its name, else by trying it.
static rn_status ask_platform(const rn_pjrt_device *device, bool *out_on_host) {
    rn_pjrt_facts facts = {0};
    *out_on_host = strcmp(device->target.plugin, "cpu") == 0;
    if (device->target.by_name) return RN_OK;
    RN_TRY(rn_pjrt_try(device->path, &facts));
    *out_on_host = strcmp(facts.platform, "cpu") == 0;
    return RN_OK;
}

static rn_status prepare(rn_pjrt_device *device, const rn_backend *backend, uint32_t threads) {
    bool on_host = false;
    if (device->target.by_name)
        RN_TRY(rn_pjrt_find(device->target.plugin, device->path, sizeof device->path));
    else
        snprintf(device->path, sizeof device->path, "%s", device->target.plugin);
    RN_TRY(ask_platform(device, &on_host));
    RN_TRY(fill_caps(device, backend, on_host, threads));
    RN_TRY(rn_workers_create(device->base.caps.threads, RN_HOST_OTHER, &device->base.workers));
    return on_host ? rn_pjrt_start(device, 0) : RN_OK;
}

// As the target says; else Neuron's cores as NEURON_CORES says.
static uint32_t count_cores(const rn_pjrt_target *target) {
    const char *told = strcmp(target->plugin, "neuron") == 0 ? getenv("NEURON_CORES") : NULL;
    long count = told ? strtol(told, NULL, 10) : 1;
    if (target->core_count) return target->core_count;
    return count > 1 && count <= RN_PJRT_MOST_CORES ? (uint32_t)count : 1;
}

rn_status rn_pjrt_open(const rn_target *target, uint32_t threads, rn_device **out) {
    void *block = NULL;
    *out = NULL;
    RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, 1, sizeof(rn_pjrt_device), &block));
    rn_pjrt_device *device = block;
    memcpy(&device->target, target->own, sizeof device->target);
    memcpy(device->name, target->name, sizeof device->name);
    device->core_count = device->target.core_count = count_cores(&device->target);
    pthread_mutex_init(&device->lock, NULL);
    rn_executable_device_init(&device->base);
    device->base.compile = rn_pjrt_compile;
    device->base.destroy = destroy;
    rn_status s = prepare(device, target->backend, threads);
    if (device->base.caps.own_memory) device->base.free_bytes = free_bytes;
    if (device->base.caps.own[RN_PJRT_CONTEXT] > 0) {
        device->base.alloc_host = alloc_host;
        device->base.free_host = free_host;
    }
    if (s == RN_OK)
        *out = &device->base;
    else
        destroy(&device->base);
    return s;
}
