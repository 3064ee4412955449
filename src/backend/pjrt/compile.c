// compile.c — a text becomes code: loaded where it was saved, else compiled and saved.
#include "backend/pjrt/pjrt.h"

#include "base/clock.h"
#include "memory/account.h"
#include "memory/stage.h"

#include <ration/log.h>

#include <stdio.h>

enum { MOST_PROGRAM_BYTES = 1 << 30 };

// ---- a refusal ----------------------------------------------------------------------------------

// XLA's parser says "-:12:8: error: ..." of a text that it does not take: what node that was, and
// where in the program's text.
static rn_status name_node(rn_status s, rn_str text) {
    rn_error_info error = *rn_last_error();
    unsigned long long line = 0, column = 0;
    const char *at = strstr(error.message, "-:"), *why = at ? strstr(at, "error: ") : NULL;
    if (s == RN_NO_MEMORY || !why || sscanf(at, "-:%llu:%llu:", &line, &column) != 2)
        return rn_error_restore(&error);
    rn_str node = rn_stablehlo_node_at(text, line);
    return rn_hint(rn_fail(RN_UNSUPPORTED,
                           "the plugin refuses the program of node '%.*s' (line %llu, column "
                           "%llu): %.500s",
                           RN_STR_ARG(node), line, column, why + strlen("error: ")),
                   "another device, or a newer release of the plugin");
}

// ---- facts of a program -------------------------------------------------------------------------

static uint64_t at_least_zero(int64_t bytes) {
    return bytes > 0 ? (uint64_t)bytes : 0;
}

// A plugin that has no statistics is believed our own estimate.
static void read_memory(const rn_pjrt_device *device, void *executable, rn_pjrt_code *code) {
    rn_pjrt_program_memory memory = {.executable = executable};
    if (RN_PJRT_CALL(device->plugin, RN_PJRT_EXECUTABLE_MEMORY_STATS, &memory,
                     "asking for a program's memory") != RN_OK)
        return;
    code->known = true;
    code->argument_bytes = at_least_zero(memory.argument_bytes);
    code->output_bytes = at_least_zero(memory.output_bytes);
    code->alias_bytes = at_least_zero(memory.alias_bytes);
    code->temporary_bytes = at_least_zero(memory.temporary_bytes);
    code->code_bytes = at_least_zero(memory.code_bytes);
}

static void save(const rn_pjrt_device *device, void *executable, const rn_pjrt_key *key) {
    rn_pjrt_serialize_args args = {.executable = executable};
    if (RN_PJRT_CALL(device->plugin, RN_PJRT_EXECUTABLE_SERIALIZE, &args, "saving a program") !=
        RN_OK) {
        rn_log(RN_LOG_INFO, "xla", "the program is not kept: %s", rn_last_error()->message);
        return;
    }
    if (rn_pjrt_program_write(key, args.data, args.data_bytes))
        rn_stage_on(device->name, "model_saved");
    if (args.release) args.release(args.owner);
}

// ---- compiling ----------------------------------------------------------------------------------

static bool load(const rn_pjrt_device *device, const rn_pjrt_key *key, rn_pjrt_code *code) {
    rn_pjrt_deserialize_args args = {.client = device->client};
    rn_buffer bytes;
    rn_buffer_init(&bytes, &rn_system_allocator, MOST_PROGRAM_BYTES);
    bool found = rn_pjrt_program_read(key, &bytes);
    args.data = bytes.data;
    args.data_bytes = bytes.bytes;
    if (found && RN_PJRT_CALL(device->plugin, RN_PJRT_DESERIALIZE_AND_LOAD, &args,
                              "loading a saved program") != RN_OK) {
        rn_log(RN_LOG_WARNING, "xla", "%s; it is compiled again", rn_last_error()->message);
        rn_pjrt_program_remove(key);
        found = false;
    }
    rn_buffer_free(&bytes);
    code->loaded = found ? args.executable : NULL;
    code->from_file = found;
    return found;
}

static rn_status compile(rn_pjrt_device *device, rn_str text, rn_str options, rn_pjrt_code *code) {
    rn_pjrt_program program = {.bytes = sizeof program,
                               .code = text.data,
                               .code_bytes = text.bytes,
                               .format = "mlir",
                               .format_bytes = 4};
    rn_pjrt_compile_args args = {.client = device->client,
                                 .program = &program,
                                 .options = options.data,
                                 .option_bytes = options.bytes};
    rn_status s = RN_PJRT_CALL(device->plugin, RN_PJRT_CLIENT_COMPILE, &args, "compiling");
    if (s != RN_OK) return name_node(s, text);
    code->loaded = args.executable;
    rn_alloc_trim(); // the compiler took more than its code
    return RN_OK;
}

static rn_status make_code(rn_pjrt_device *device, rn_str text, rn_str options,
                           rn_pjrt_code *code) {
    rn_pjrt_key key = rn_pjrt_program_key(device, text, options);
    uint64_t begin = rn_clock_ns();
    rn_pjrt_get_args executable = {0};
    if (!load(device, &key, code)) RN_TRY(compile(device, text, options, code));
    rn_log(RN_LOG_INFO, "xla", "%s: program %.8s %s in %.0f ms%s%s", device->name, key.text,
           code->from_file ? "loaded" : "compiled", (double)(rn_clock_ns() - begin) * 1e-6,
           device->target.flags[0] ? ", options " : "", device->target.flags);
    executable.handle = code->loaded;
    RN_TRY(RN_PJRT_CALL(device->plugin, RN_PJRT_LOADED_EXECUTABLE, &executable,
                        "asking for an executable"));
    read_memory(device, executable.out, code);
    rn_log(RN_LOG_DEBUG, "xla",
           "program %.8s: %llu bytes of arguments, %llu of results, %llu of them in place, %llu "
           "temporary, %llu of code",
           key.text, (unsigned long long)code->argument_bytes,
           (unsigned long long)code->output_bytes, (unsigned long long)code->alias_bytes,
           (unsigned long long)code->temporary_bytes, (unsigned long long)code->code_bytes);
    if (!code->from_file) save(device, executable.out, &key);
    rn_pjrt_drop(device->plugin, RN_PJRT_EXECUTABLE_DESTROY, executable.out);
    return RN_OK;
}

static rn_status make_with(rn_pjrt_device *device, const rn_pjrt_target *target, rn_str text,
                           rn_pjrt_code *out) {
    rn_buffer options;
    *out = (rn_pjrt_code){0};
    rn_buffer_init(&options, RN_HOST_OTHER, 4096);
    rn_status s = rn_pjrt_write_options(target, &options);
    if (s == RN_OK) s = make_code(device, text, (rn_str){options.data, options.bytes}, out);
    if (s != RN_OK) rn_pjrt_code_free(device, out);
    rn_buffer_free(&options);
    return s;
}

// XLA measures kernels while it compiles for CUDA, with operands in the pool that the budget
// limits. Where they do not fit there, it takes the first kernel that will do.
static bool adds_no_measuring(const rn_pjrt_device *device, rn_pjrt_target *target) {
    static const char flag[] = "xla_gpu_autotune_level=0";
    size_t used = strlen(target->flags);
    if (device->base.caps.own[RN_PJRT_CONTEXT] == 0 || strstr(target->flags, "autotune") ||
        used + sizeof flag + 1 > sizeof target->flags)
        return false;
    snprintf(target->flags + used, sizeof target->flags - used, "%s%s", used ? "&" : "", flag);
    return true;
}

rn_status rn_pjrt_compile_text(rn_pjrt_device *device, rn_str text, rn_pjrt_code *out) {
    rn_pjrt_target target = device->target;
    rn_status s = make_with(device, &target, text, out);
    if (s != RN_NO_MEMORY || !adds_no_measuring(device, &target)) return s;
    rn_log(RN_LOG_WARNING, "xla",
           "%s: there is no room to measure kernels while compiling (%s): slower ones are taken",
           device->name, rn_last_error()->message);
    return make_with(device, &target, text, out);
}

void rn_pjrt_code_free(rn_pjrt_device *device, rn_pjrt_code *code) {
    if (code->loaded) rn_pjrt_drop(device->plugin, RN_PJRT_LOADED_DESTROY, code->loaded);
    code->loaded = NULL;
}
