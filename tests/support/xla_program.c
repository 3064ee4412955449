// xla_program.c — see xla_program.h. The client, the compiler and the buffers are the back end's
// (backend/pjrt); nothing is kept of what is compiled.
#include "xla_program.h"

#include "backend/pjrt/pjrt.h"
#include "device/registry.h"
#include "memory/account.h"
#include "support.h"

static rn_device *device; // stays until the process ends: so does the plugin
static char complaint[sizeof((rn_error_info *)NULL)->message];

static const char *complain(void) {
    snprintf(complaint, sizeof complaint, "%s", rn_last_error()->message);
    return complaint;
}

bool xla_open(void) {
    char path[512];
    if (device) return true;
    if (rn_pjrt_find("cpu", path, sizeof path) != RN_OK) return false;
    setenv("RATION_PROGRAMS", "/dev/null/programs", 1);
    // The least of optimising, since a program runs once.
    assert_ok(rn_device_open("xla:cpu?opt=0", 1, &device));
    return true;
}

// As executable.c does it, without donating.
static rn_status execute(const rn_pjrt_device *d, const rn_pjrt_code *code,
                         const rn_stablehlo_signature *signature, const rn_pjrt_table *arguments,
                         const rn_pjrt_table *results) {
    void *done[1] = {NULL};
    rn_pjrt_padded_options options = {
        .head.bytes = rn_pjrt_args_bytes(RN_PJRT_EXECUTE_OPTIONS, d->plugin->minor)};
    rn_pjrt_execute_args args = {.executable = code->loaded,
                                 .options = &options.head,
                                 .arguments = (void *const *const *)arguments->core,
                                 .device_count = 1,
                                 .argument_count = signature->argument_count,
                                 .outputs = (void **const *)results->core,
                                 .done = done};
    RN_TRY(RN_PJRT_CALL(d->plugin, RN_PJRT_LOADED_EXECUTE, &args, "running"));
    return rn_pjrt_await(d->plugin, done[0], "running");
}

static rn_status run(rn_pjrt_device *d, const rn_pjrt_code *code,
                     const rn_stablehlo_signature *signature, void *const *in, void *const *out,
                     rn_pjrt_table *arguments, rn_pjrt_table *results) {
    for (uint32_t i = 0; i < signature->argument_count; i++)
        RN_TRY(rn_pjrt_upload(d, &signature->arguments[i], true, in[i], arguments, i));
    RN_TRY(execute(d, code, signature, arguments, results));
    for (uint32_t i = 0; i < signature->result_count; i++)
        RN_TRY(rn_pjrt_download(d, &signature->results[i], results, i, out[i]));
    return RN_OK;
}

const char *xla_run(rn_str text, const rn_stablehlo_signature *signature, void *const *arguments,
                    void *const *results) {
    rn_pjrt_device *d = rn_pjrt_device_of(device);
    rn_pjrt_table in = {0}, out = {0};
    rn_pjrt_code code;
    rn_arena memory;
    if (rn_pjrt_compile_text(d, text, &code) != RN_OK) return complain();
    rn_arena_init(&memory, RN_HOST_OTHER, 0);
    assert_ok(rn_pjrt_table_make(d, &memory, signature->argument_count, &in));
    assert_ok(rn_pjrt_table_make(d, &memory, signature->result_count, &out));
    bool good = run(d, &code, signature, arguments, results, &in, &out) == RN_OK;
    if (!good) complain();
    for (uint32_t i = 0; i < signature->argument_count; i++)
        rn_pjrt_drop_value(d, &in, i);
    for (uint32_t i = 0; i < signature->result_count; i++)
        rn_pjrt_drop_value(d, &out, i);
    rn_pjrt_code_free(d, &code);
    rn_arena_free_all(&memory);
    return good ? NULL : complaint;
}
