// compile.c — ration compile: what a device compiles of a model, kept for later starts.
#include "run.h"

#include <stdlib.h>
#include <string.h>

static void print_compiled(const runner *r, const char *program) {
    const char *folder = getenv("RATION_PROGRAMS");
    const rn_plan_summary *plan = rn_plan_get_summary(rn_generator_plan(r->generator));
    printf("%s: %s\n", rn_device_target(r->device), program);
    printf("  %s planned for %s; kept in %s\n", rn_size_format(plan->planned_bytes).text,
           rn_model_get_info(r->model)->architecture,
           folder ? folder : "ration/programs of the cache folder");
}

static rn_status write_compiled(const runner *r, const char *program) {
    rn_json json;
    rn_json_begin(&json, rn_sink_file(stdout), true);
    rn_json_object(&json, NULL);
    rn_json_string(&json, "target", rn_device_target(r->device));
    rn_json_string(&json, "program", program);
    rn_json_u64(&json, "planned_bytes",
                rn_plan_get_summary(rn_generator_plan(r->generator))->planned_bytes);
    rn_json_end(&json);
    return rn_json_finish(&json);
}

static rn_status tell_compiled(const runner *r) {
    const char *program = rn_generator_program(r->generator);
    if (!program[0])
        return rn_hint(rn_fail(RN_UNSUPPORTED, "%s has kernels: there is nothing to compile",
                               rn_device_target(r->device)),
                       "devices that compile are xla:cpu, xla:cuda, xla:PLUGIN and neuron");
    if (r->in->json) return write_compiled(r, program);
    print_compiled(r, program);
    return RN_OK;
}

// A server's programs, where its --parallel is given.
static rn_status read_parallel(runner *r) {
    uint64_t count = rn_settings_count(r->in->settings, "parallel");
    if (strcmp(rn_settings_origin(r->in->settings, "parallel"), "default") == 0) return RN_OK;
    if (count == 0 || count > 1024) return rn_fail(RN_INVALID, "--parallel is 1 to 1024");
    r->parallel = (uint32_t)count;
    return RN_OK;
}

static rn_status compile(const invocation *in) {
    runner *r = calloc(1, sizeof *r);
    if (!r) return rn_fail(RN_NO_MEMORY, "no memory");
    r->in = in;
    rn_status s = open_runner_model(r);
    if (s == RN_OK) s = read_parallel(r);
    if (s == RN_OK) s = open_runner_generator(r);
    if (s == RN_OK) s = tell_compiled(r);
    rn_error_info error = *rn_last_error();
    rn_status closed = close_runner(r);
    free(r);
    return s == RN_OK ? closed : rn_error_restore(&error);
}

const command compile_command = {
    .takes_model = true,
    .name = "compile",
    .usage = "compile [MODEL] --device TARGET [--save FOLDER] [options]",
    .summary = "compile a model for a device that compiles, for later starts",
    .about =
        "Devices that compile graphs as a whole (xla:cpu, xla:cuda, neuron) take seconds to "
        "minutes\n"
        "for it. What they make is kept in a folder, under everything that it depends on: the\n"
        "program, the compiler's options, the plugin's file, the kind of device. ration run with\n"
        "the same options finds it there (--programs FOLDER, or the cache folder) and does not\n"
        "compile. ration serve has programs of its own, for several texts at once: --parallel N\n"
        "makes those of a server with the same --parallel, --ctx and --chunk.",
    .example = "ration compile models/llama-1b --device xla:cpu --save programs",
    .min_words = 0,
    .max_words = 1,
    .limits_memory = true,
    .run = compile,
};
