// executable.c — programs of a graph, one a bucket, with the buffers that they share.
//
//     arguments   inputs, scalars │ weights, constants, states
//                 made every run  │ made once; a state is donated and comes back as a result
//
// Programs are compiled before any weight is uploaded (a compiler that measures takes device memory
// for itself), and what the plugin says that they take is held against the budget then, so that no
// allocation is left to fail: a failing one costs ten seconds on CUDA, and every donated state.
#include "backend/pjrt/executable.h"

#include "base/checked.h"
#include "base/clock.h"
#include "memory/account.h"
#include "memory/stage.h"

#include <ration/log.h>

#include <stdatomic.h>
#include <stdio.h>

// ---- compiling ----------------------------------------------------------------------------------

static rn_status compile_bucket(rn_pjrt_executable *e, rn_pjrt_bucket *b) {
    rn_stablehlo_options options = rn_pjrt_options(&e->device->base.caps, e->graph, b->rows);
    rn_buffer text;
    RN_TRY(rn_stablehlo_signature_make(e->graph, &options, &e->memory, &b->signature));
    // As the compiler's own memory: what that may take is estimated as a whole.
    rn_buffer_init(&text, &rn_system_allocator, (size_t)256 << 20);
    rn_status s = rn_stablehlo_emit(e->graph, &options, rn_buffer_sink(&text));
    if (s == RN_OK) s = rn_pjrt_compile_text(e->device, (rn_str){text.data, text.bytes}, &b->code);
    rn_buffer_free(&text);
    return s;
}

static rn_status list_kept(rn_pjrt_executable *e) {
    const rn_stablehlo_signature *s = rn_pjrt_signature(e);
    RN_TRY(rn_arena_array(&e->memory, s->argument_count, sizeof *e->kept, (void **)&e->kept));
    for (uint32_t i = 0; i < s->argument_count; i++)
        if (s->arguments[i].kind == RN_STABLEHLO_STATE) e->kept[e->kept_count++] = i;
    return RN_OK;
}

static uint64_t count_inputs(const rn_pjrt_bucket *b) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < b->signature.argument_count; i++)
        if (b->signature.arguments[i].kind == RN_STABLEHLO_INPUT)
            bytes += rn_round_up(b->signature.arguments[i].bytes, 64);
    return bytes;
}

static rn_status compile_all(rn_pjrt_executable *e, const rn_compile_request *request) {
    void *block = NULL;
    RN_TRY(rn_arena_array(&e->memory, request->bucket_count, sizeof *e->buckets, &block));
    e->buckets = block;
    rn_stage_on(e->device->name, "xla_model_created");
    for (uint32_t i = 0; i < request->bucket_count; i++) {
        if (request->cancel && atomic_load(request->cancel))
            return rn_fail(RN_CANCELLED, "cancelled while compiling");
        e->buckets[i].rows = request->buckets[i];
        e->bucket_count = i + 1;
        RN_TRY(compile_bucket(e, &e->buckets[i]));
    }
    const rn_stablehlo_signature *s = rn_pjrt_signature(e);
    RN_TRY(rn_pjrt_table_make(e->device, &e->memory, s->result_count, &e->results));
    RN_TRY(rn_pjrt_table_make(e->device, &e->memory, s->result_count, &e->ahead_results));
    RN_TRY(rn_pjrt_table_make(e->device, &e->memory, 1, &e->later));
    RN_TRY(rn_pjrt_table_make(e->device, &e->memory, s->argument_count, &e->arguments));
    RN_TRY(rn_arena_array(&e->memory, s->result_count, sizeof(void *), (void **)&e->read));
    RN_TRY(rn_arena_array(&e->memory, e->bucket_count > 1 ? count_inputs(&e->buckets[0]) : 0, 1,
                          (void **)&e->foreseen));
    RN_TRY(rn_arena_array(&e->memory, s->argument_count, sizeof *e->joined, (void **)&e->joined));
    for (uint32_t i = 0; i < s->argument_count; i++) {
        if (s->arguments[i].part_count == 0) continue;
        e->stage_bytes = rn_max_u64(e->stage_bytes, s->arguments[i].bytes);
        e->joined_left++;
    }
    rn_stage_on(e->device->name, "compilation_complete");
    return e->device->target.keeps_states ? list_kept(e) : RN_OK;
}

// What the largest of the programs takes by the plugin's own count, all code beside it: weights and
// states are the same in all of them.
static uint64_t count_compiled(const rn_pjrt_executable *e) {
    uint64_t most = 0, code = 0;
    for (uint32_t i = 0; i < e->bucket_count; i++) {
        const rn_pjrt_code *c = &e->buckets[i].code;
        if (!c->known) return 0;
        uint64_t bytes = c->argument_bytes + c->output_bytes + c->temporary_bytes;
        uint64_t in_place = e->kept_count ? 0 : c->alias_bytes;
        most = rn_max_u64(most, bytes - rn_min_u64(bytes, in_place));
        code += c->code_bytes;
    }
    return (most + code) * e->device->core_count;
}

// Ours, by purpose; what the plugin counts more is its temporary memory. Its compiler's memory is
// in no count of its own.
static rn_status count_purposes(rn_pjrt_executable *e) {
    const rn_device_caps *caps = &e->device->base.caps;
    uint64_t rows = e->buckets[e->bucket_count - 1].rows, ours = 0, theirs = count_compiled(e);
    uint64_t *purposes = e->base.purpose_bytes;
    RN_TRY(rn_pjrt_count_program(caps, e->graph, rows, purposes));
    if (theirs == 0) return rn_pjrt_count_beside(caps, e->graph, purposes);
    uint64_t estimated = purposes[RN_PURPOSE_WORKSPACE];
    purposes[RN_PURPOSE_WORKSPACE] = 0;
    for (int p = 0; p < RN_PURPOSE_COUNT; p++)
        ours += purposes[p];
    purposes[RN_PURPOSE_WORKSPACE] = theirs - rn_min_u64(theirs, ours);
    rn_log(RN_LOG_DEBUG, "xla", "%s: %llu bytes of temporary memory were estimated, %llu are taken",
           e->device->name, (unsigned long long)estimated,
           (unsigned long long)purposes[RN_PURPOSE_WORKSPACE]);
    return rn_pjrt_count_beside(caps, e->graph, purposes);
}

// Against the plan, and against what the device has free now.
static rn_status check_budget(const rn_pjrt_executable *e, const rn_compile_request *request) {
    rn_device *device = &e->device->base;
    uint64_t held = 0, room = device->free_bytes ? device->free_bytes(device) : 0;
    for (int p = 0; p < RN_PURPOSE_COUNT; p++)
        held += e->base.purpose_bytes[p];
    const rn_pjrt_code *code = &e->buckets[e->bucket_count - 1].code;
    if (held > request->budget_bytes)
        return rn_hint(
            rn_fail(RN_OVER_BUDGET,
                    "%s: %s were planned, and the compiled program takes %s (%s of temporary "
                    "memory)",
                    e->device->name, rn_size_format(request->budget_bytes).text,
                    rn_size_format(held).text, rn_size_format(code->temporary_bytes).text),
            "fewer rows a run (seq=N of the target), or another device");
    uint64_t context = (uint64_t)device->caps.own[RN_PJRT_CONTEXT]; // which is not the pool's
    context *= e->device->core_count;
    if (room == 0 || held - rn_min_u64(held, context) <= room) return RN_OK;
    device->refused_bytes = held;
    return rn_fail(RN_NO_MEMORY,
                   "%s: RESOURCE_EXHAUSTED: the program takes %s, and %s of the device's memory "
                   "are free",
                   e->device->name, rn_size_format(held).text, rn_size_format(room).text);
}

// What a run of it holds beside its arguments.
static uint64_t own_bytes(const rn_pjrt_bucket *b) {
    const rn_pjrt_code *c = &b->code;
    uint64_t bytes = c->output_bytes + c->temporary_bytes;
    return bytes - rn_min_u64(bytes, c->alias_bytes);
}

// Two runs of the smallest program at a time take what one of the largest takes, or what the plan
// has left.
static void plan_ahead(rn_pjrt_executable *e, const rn_compile_request *request) {
    const rn_pjrt_bucket *first = e->buckets, *last = &e->buckets[e->bucket_count - 1];
    uint64_t held = 0, twice = 2 * own_bytes(first);
    uint64_t more = (twice - rn_min_u64(twice, own_bytes(last))) * e->device->core_count;
    for (int p = 0; p < RN_PURPOSE_COUNT; p++)
        held += e->base.purpose_bytes[p];
    e->goes_ahead = first != last && first->code.known && last->code.known &&
                    more <= request->budget_bytes - rn_min_u64(request->budget_bytes, held);
    if (e->goes_ahead) e->base.purpose_bytes[RN_PURPOSE_WORKSPACE] += more;
}

// "4 programs for 1, 8, 64, 512 rows on cpu by PJRT 0.81: 3 compiled, 1 loaded in 2.1 s"; "... on 2
// cores of NC_v2 ...".
static void describe(rn_pjrt_executable *e, uint64_t begin_ns) {
    char cores[32] = "";
    if (e->device->core_count > 1)
        snprintf(cores, sizeof cores, "%u cores of ", e->device->core_count);
    char *text = e->base.about;
    size_t used = 0, room = sizeof e->base.about;
    uint32_t loaded = 0;
    used += (size_t)snprintf(text, room, "%u program%s for ", e->bucket_count,
                             e->bucket_count == 1 ? "" : "s");
    for (uint32_t i = 0; i < e->bucket_count && used < room; i++) {
        loaded += e->buckets[i].code.from_file;
        used += (size_t)snprintf(text + used, room - used, "%s%llu", i ? ", " : "",
                                 (unsigned long long)e->buckets[i].rows);
    }
    if (used < room)
        snprintf(text + used, room - used,
                 " rows on %s%s by PJRT 0.%d: %u compiled, %u loaded in %.1f s", cores,
                 e->device->kind, e->device->plugin->api->version.minor, e->bucket_count - loaded,
                 loaded, (double)(rn_clock_ns() - begin_ns) * 1e-9);
}

static void describe_cores(rn_pjrt_executable *e) {
    uint64_t held = 0, used = strlen(e->base.about);
    uint32_t cores = e->device->core_count;
    for (int p = 0; p < RN_PURPOSE_COUNT; p++)
        held += e->base.purpose_bytes[p];
    if (cores > 1)
        snprintf(e->base.about + used, sizeof e->base.about - used, "; each core holds %s",
                 rn_size_format(held / cores).text);
}

// ---- life ---------------------------------------------------------------------------------------

static void destroy(rn_executable *executable) {
    rn_pjrt_executable *e = rn_pjrt_executable_of(executable);
    bool made = e->arguments.core[e->device->core_count - 1] != NULL;
    uint32_t count = made ? rn_pjrt_signature(e)->argument_count : 0;
    rn_pjrt_drop_ahead(e);
    if (e->ran) {
        rn_pjrt_tell_memory(e->device);
        rn_log(
            RN_LOG_DEBUG, "xla",
            "%s: %llu runs, %llu of them begun ahead; of each, %.0f us for inputs, %.0f to submit "
            "it, %.0f for results",
            e->device->name, (unsigned long long)e->runs, (unsigned long long)e->runs_ahead,
            (double)e->phase_ns[0] * 1e-3 / (double)e->runs,
            (double)e->phase_ns[1] * 1e-3 / (double)e->runs,
            (double)e->phase_ns[2] * 1e-3 / (double)e->runs);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (e->joined) rn_pjrt_release_joined(e, i);
        rn_pjrt_drop_argument(e, i);
    }
    rn_pjrt_release_stage(e);
    for (uint32_t i = 0; i < e->bucket_count; i++)
        rn_pjrt_code_free(e->device, &e->buckets[i].code);
    rn_arena_free_all(&e->memory);
    rn_free(RN_HOST_OTHER, e, sizeof *e);
}

static rn_status build(rn_pjrt_executable *e, const rn_compile_request *request) {
    RN_TRY(rn_pjrt_start(e->device, request->budget_bytes));
    e->option_bytes = rn_pjrt_args_bytes(RN_PJRT_EXECUTE_OPTIONS, e->device->plugin->minor);
    uint64_t begin = rn_clock_ns();
    RN_TRY(compile_all(e, request));
    describe(e, begin);
    RN_TRY(count_purposes(e));
    RN_TRY(check_budget(e, request));
    plan_ahead(e, request);
    describe_cores(e);
    return rn_pjrt_fill(e);
}

rn_status rn_pjrt_compile(rn_device *device, const rn_compile_request *request,
                          rn_executable **out) {
    void *block = NULL;
    *out = NULL;
    RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, 1, sizeof(rn_pjrt_executable), &block));
    rn_pjrt_executable *e = block;
    e->base = (rn_executable){
        .put = rn_pjrt_put, .get = rn_pjrt_get, .run = rn_pjrt_run, .destroy = destroy};
    e->device = rn_pjrt_device_of(device);
    e->graph = request->graph;
    rn_arena_init(&e->memory, RN_HOST_OTHER, 0);
    rn_status s = build(e, request);
    if (s == RN_OK)
        *out = &e->base;
    else
        destroy(&e->base);
    return s;
}
