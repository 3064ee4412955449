// probe.c — the program that tries a plugin, so that one that aborts, exits or hangs takes nobody
// with it. It lies inside the library and is run from memory (try.c).
//
//     probe PLUGIN     load, version, client, devices, compile x + x, run it, compare
//
// One line on descriptor 3 says how it went:
//
//     ok MINOR DEVICES LIMIT HOST PLATFORM|KIND      HOST: bytes of this process at its peak
//     fail STATUS MESSAGE        STATUS: missing, no_plugin, version, or device with PJRT's code
#include "backend/pjrt/api.h"
#include "backend/pjrt/preload.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const rn_pjrt_api *api;
static int minor_version;

static void fail(const char *status, const char *format, ...)
    __attribute__((format(printf, 2, 3), noreturn));
static void fail(const char *status, const char *format, ...) {
    va_list args;
    va_start(args, format);
    dprintf(3, "fail %s ", status);
    vdprintf(3, format, args);
    va_end(args);
    _exit(3); // no destructors of a library that has failed
}

static void *call_raw(rn_pjrt_function function, void *args) {
    rn_pjrt_function_pointer pointer = rn_pjrt_function_of(api, function);
    if (!pointer) fail("version", "the plugin has no function %d", (int)function);
    *(size_t *)args = rn_pjrt_args_bytes(function, minor_version);
    return pointer(args);
}

// Once more where the plugin wants another size: of the arguments, or of the options of a run.
static void call(rn_pjrt_function function, void *args, size_t args_bytes, size_t *option_bytes,
                 const char *doing) {
    char room[RN_PJRT_MOST_BYTES] __attribute__((aligned(16))) = {0}, text[600];
    void *error = call_raw(function, args);
    for (int again = 0; error; again++) {
        rn_pjrt_text_args message = {.handle = error};
        rn_pjrt_number_args code = {.handle = error};
        call_raw(RN_PJRT_ERROR_MESSAGE, &message);
        call_raw(RN_PJRT_ERROR_CODE, &code);
        snprintf(text, sizeof text, "%.*s", (int)message.text_bytes, message.text);
        size_t wanted = rn_pjrt_wanted_bytes(text, *(size_t *)args);
        size_t options = option_bytes ? rn_pjrt_wanted_bytes(text, *option_bytes) : 0;
        if (again || (!wanted && !options)) fail("device", "%d %s: %s", code.number, doing, text);
        if (options) *option_bytes = options;
        memcpy(room, args, args_bytes);
        if (wanted) memcpy(room, &wanted, sizeof wanted);
        error = rn_pjrt_function_of(api, function)(room);
        memcpy(args, room, args_bytes);
    }
}
#define CALL(function, args, doing) call(function, args, sizeof *(args), NULL, doing)

static void await(void *event, const char *doing) {
    rn_pjrt_handle_args args = {.handle = event};
    if (!event) return;
    CALL(RN_PJRT_EVENT_AWAIT, &args, doing);
    args = (rn_pjrt_handle_args){.handle = event};
    CALL(RN_PJRT_EVENT_DESTROY, &args, doing);
}

static void load(const char *path) {
    rn_pjrt_preload(path);
    void *library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    if (!library) {
        const char *why = dlerror();
        fail(strstr(why, "cannot open shared object file") ? "missing" : "no_plugin",
             "no PJRT plugin: %s", why);
    }
    void *symbol = dlsym(library, "GetPjrtApi");
    rn_pjrt_get_api get;
    memcpy(&get, &symbol, sizeof get);
    if (!get) fail("no_plugin", "no PJRT plugin: the library has no GetPjrtApi");
    api = get();
    if (!api) fail("device", "13 loading: GetPjrtApi returns nothing");
    int major = api->version.major, minor = api->version.minor;
    if (major != 0 || minor < RN_PJRT_LEAST_MINOR || minor == RN_PJRT_BROKEN_MINOR)
        fail("version",
             "the plugin has version %d.%d of PJRT's interface; 0.%d and later are known, but for "
             "0.%d",
             major, minor, RN_PJRT_LEAST_MINOR, RN_PJRT_BROKEN_MINOR);
    minor_version = minor < RN_PJRT_MINOR ? minor : RN_PJRT_MINOR;
    rn_pjrt_initialize_args args = {0};
    CALL(RN_PJRT_PLUGIN_INITIALIZE, &args, "starting the plugin");
}

// The pool of a CUDA plugin is not to take three quarters of the GPU for this.
static void *make_client(const char *path) {
    rn_pjrt_option options[2] = {
        {.bytes = sizeof *options, .name = "preallocate", .name_bytes = 11, .type = RN_PJRT_BOOL},
        {.bytes = sizeof *options,
         .name = "memory_fraction",
         .name_bytes = 15,
         .type = RN_PJRT_FLOAT,
         .value.number = 1.0f},
    };
    rn_pjrt_client_create_args args = {.options = options};
    options[0].value_count = options[1].value_count = 1;
    if (rn_pjrt_is_cuda(path)) args.option_count = 2;
    CALL(RN_PJRT_CLIENT_CREATE, &args, "making the client");
    return args.client;
}

static void *first_device(void *client, size_t *out_count) {
    rn_pjrt_list_args list = {.handle = client};
    CALL(RN_PJRT_CLIENT_ADDRESSABLE_DEVICES, &list, "asking for devices");
    *out_count = list.count;
    if (list.count == 0) fail("device", "9 asking for devices: the plugin has no devices");
    return list.items[0];
}

static void *compile(void *client) {
    static const char text[] =
        "module @probe {\n"
        "  func.func public @main(%arg0: tensor<4xf32>) -> (tensor<4xf32>) {\n"
        "    %0 = \"stablehlo.add\"(%arg0, %arg0) : (tensor<4xf32>, tensor<4xf32>) -> "
        "tensor<4xf32>\n"
        "    \"func.return\"(%0) : (tensor<4xf32>) -> ()\n"
        "  }\n"
        "}\n";
    static const char options[] = {0x1a, 4, 0x20, 1, 0x28, 1};
    rn_pjrt_program program = {.bytes = sizeof program,
                               .code = text,
                               .code_bytes = sizeof text - 1,
                               .format = "mlir",
                               .format_bytes = 4};
    rn_pjrt_compile_args args = {
        .client = client, .program = &program, .options = options, .option_bytes = sizeof options};
    CALL(RN_PJRT_CLIENT_COMPILE, &args, "compiling");
    return args.executable;
}

static void run(void *client, void *device) {
    void *executable = compile(client);
    const float x[4] = {1, 2, 3, 4};
    float y[4] = {0};
    const int64_t dims[1] = {4};
    rn_pjrt_from_host_args in = {.client = client,
                                 .data = x,
                                 .type = RN_PJRT_F32,
                                 .dims = dims,
                                 .dim_count = 1,
                                 .device = device};
    CALL(RN_PJRT_CLIENT_BUFFER_FROM_HOST, &in, "uploading");
    await(in.done, "uploading");
    void *argument = in.buffer, *result = NULL, *done = NULL;
    void *const *arguments[1] = {&argument};
    void **results[1] = {&result};
    rn_pjrt_padded_options options = {
        .head.bytes = rn_pjrt_args_bytes(RN_PJRT_EXECUTE_OPTIONS, minor_version)};
    rn_pjrt_execute_args execute = {.executable = executable,
                                    .options = &options.head,
                                    .arguments = arguments,
                                    .device_count = 1,
                                    .argument_count = 1,
                                    .outputs = results,
                                    .done = &done};
    call(RN_PJRT_LOADED_EXECUTE, &execute, sizeof execute, &options.head.bytes, "running");
    await(done, "running");
    rn_pjrt_to_host_args out = {.buffer = result, .target = y, .target_bytes = sizeof y};
    CALL(RN_PJRT_BUFFER_TO_HOST, &out, "reading a result");
    await(out.event, "reading a result");
    for (int i = 0; i < 4; i++)
        if (y[i] != x[i] + x[i])
            fail("device", "13 running: %g + %g gave %g", (double)x[i], (double)x[i], (double)y[i]);
}

static long long memory_limit(void *device) {
    rn_pjrt_device_memory stats = {.device = device};
    void *error = call_raw(RN_PJRT_DEVICE_MEMORY_STATS, &stats);
    return !error && stats.limit.is_set ? (long long)stats.limit.bytes : 0;
}

static long long peak_resident(void) {
    char line[200];
    long long kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "VmHWM: %lld", &kib) == 1) break;
    if (file) fclose(file);
    return kib * 1024;
}

int main(int count, char **words) {
    size_t devices = 0;
    if (count != 2) return 2;
    load(words[1]);
    void *client = make_client(words[1]);
    void *device = first_device(client, &devices);
    run(client, device);
    rn_pjrt_text_args platform = {.handle = client}, kind = {0};
    rn_pjrt_get_args description = {.handle = device};
    CALL(RN_PJRT_CLIENT_PLATFORM_NAME, &platform, "asking for a name");
    CALL(RN_PJRT_DEVICE_DESCRIPTION, &description, "asking for a name");
    kind.handle = description.out;
    CALL(RN_PJRT_DESCRIPTION_KIND, &kind, "asking for a name");
    dprintf(3, "ok %d %zu %lld %lld %.*s|%.*s", api->version.minor, devices, memory_limit(device),
            peak_resident(), (int)platform.text_bytes, platform.text, (int)kind.text_bytes,
            kind.text);
    _exit(0);
}
