// xla_program.c — see xla_program.h. The structs are PJRT's C API: a size, an extension, fields.
#include "xla_program.h"

#include "support.h"

#include <dlfcn.h>
#include <glob.h>
#include <stddef.h>

// ---- the C API ----------------------------------------------------------------------------------

typedef struct api {
    size_t size;
    void *extension;
    size_t version_size;
    void *version_extension;
    int major, minor;
    void *functions[128];
} api;

enum {
    ERROR_DESTROY = 0,
    ERROR_MESSAGE = 1,
    PLUGIN_INITIALIZE = 3,
    EVENT_DESTROY = 5,
    EVENT_AWAIT = 8,
    CLIENT_CREATE = 10,
    CLIENT_DEVICES = 16,
    CLIENT_COMPILE = 20,
    BUFFER_FROM_HOST = 22,
    EXECUTABLE_DESTROY = 50,
    EXECUTE = 55,
    BUFFER_DESTROY = 58,
    BUFFER_TO_HOST = 70
};

#define HEAD                                                                                       \
    size_t size;                                                                                   \
    void *extension
typedef struct of_handle {
    HEAD;
    void *handle;
} of_handle;
typedef struct of_message {
    HEAD;
    const void *error;
    const char *text;
    size_t bytes;
} of_message;
typedef struct of_client {
    HEAD;
    const void *options;
    size_t option_count;
    void *callbacks[4], *client, *more[2];
} of_client;
typedef struct of_list {
    HEAD;
    void *handle;
    void *const *items;
    size_t count;
} of_list;
typedef struct of_program {
    HEAD;
    char *code;
    size_t code_bytes;
    const char *format;
    size_t format_bytes;
} of_program;
typedef struct of_compile {
    HEAD;
    void *client;
    const of_program *program;
    const char *options;
    size_t option_bytes;
    void *executable;
} of_compile;
typedef struct of_upload {
    HEAD;
    void *client;
    const void *data;
    int type;
    const int64_t *dims;
    size_t rank;
    const int64_t *strides;
    size_t stride_count;
    int semantics;
    void *device, *memory, *layout, *done, *buffer;
} of_upload;
typedef struct of_options {
    HEAD;
    void *callbacks[2];
    size_t counts[2];
    int launch_id;
    const int64_t *kept;
    size_t kept_count;
    void *context;
    const char *where;
    size_t task_count;
    void *tasks, *incarnations, *more[4];
} of_options;
typedef struct of_execute {
    HEAD;
    void *executable;
    of_options *options;
    void *const *const *arguments;
    size_t device_count, argument_count;
    void **const *results;
    void **done;
    void *device;
} of_execute;
typedef struct of_download {
    HEAD;
    void *buffer, *layout, *data;
    size_t bytes;
    void *event;
} of_download;

static const api *plugin;
static void *client, *device;
static char complaint[4096];

// Whether the call failed; then the complaint is its message.
static bool fails(int function, void *arguments) {
    void *error = ((void *(*)(void *))plugin->functions[function])(arguments);
    if (!error) return false;
    of_message message = {.size = sizeof message, .error = error};
    ((void (*)(void *))plugin->functions[ERROR_MESSAGE])(&message);
    snprintf(complaint, sizeof complaint, "%.*s", (int)message.bytes, message.text);
    of_handle end = {.size = sizeof end, .handle = error};
    ((void (*)(void *))plugin->functions[ERROR_DESTROY])(&end);
    return true;
}

static bool fails_on(int function, void *handle) {
    return handle && fails(function, &(of_handle){.size = sizeof(of_handle), .handle = handle});
}

// ---- opening ------------------------------------------------------------------------------------

static void *load(void) {
    const char *named = getenv("RATION_XLA_PLUGIN");
    glob_t found = {0};
    void *library = NULL;
    if (named && named[0]) return dlopen(named, RTLD_LAZY | RTLD_LOCAL);
    if (glob("build/python/lib/python3*/site-packages/xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so", 0,
             NULL, &found) == 0)
        library = dlopen(found.gl_pathv[0], RTLD_LAZY | RTLD_LOCAL);
    globfree(&found);
    return library;
}

bool xla_open(void) {
    if (plugin) return true;
    void *library = load();
    if (!library) return false;
    const api *(*get)(void) = (const api *(*)(void))dlsym(library, "GetPjrtApi");
    assert_non_null(get);
    plugin = get();
    of_handle start = {.size = offsetof(of_handle, handle)};
    of_client create = {.size = sizeof create};
    of_list devices = {.size = sizeof devices};
    assert_false(fails(PLUGIN_INITIALIZE, &start));
    assert_false(fails(CLIENT_CREATE, &create));
    client = devices.handle = create.client;
    assert_false(fails(CLIENT_DEVICES, &devices));
    assert_true(devices.count > 0);
    device = devices.items[0];
    return true;
}

// ---- running ------------------------------------------------------------------------------------

// Its number among PJRT's buffer types.
static int type_of(rn_dtype dtype) {
    switch (dtype) {
    case RN_DTYPE_BOOL:
        return 1;
    case RN_DTYPE_I8:
        return 2;
    case RN_DTYPE_I16:
        return 3;
    case RN_DTYPE_I32:
        return 4;
    case RN_DTYPE_I64:
        return 5;
    case RN_DTYPE_U8:
        return 6;
    case RN_DTYPE_U16:
        return 7;
    case RN_DTYPE_U32:
        return 8;
    case RN_DTYPE_U64:
        return 9;
    case RN_DTYPE_F16:
        return 10;
    case RN_DTYPE_F32:
        return 11;
    case RN_DTYPE_F64:
        return 12;
    case RN_DTYPE_BF16:
        return 13;
    default:
        fail_msg("%s has no buffer", rn_dtype_get(dtype)->name);
        return 0;
    }
}

static void *upload(const rn_stablehlo_entry *entry, const void *data) {
    int64_t dims[RN_MAX_RANK];
    for (uint32_t i = 0; i < entry->shape.rank; i++)
        dims[i] = (int64_t)entry->shape.dims[i];
    of_upload up = {.size = sizeof up,
                    .client = client,
                    .data = data,
                    .type = type_of(entry->dtype),
                    .dims = dims,
                    .rank = entry->shape.rank,
                    .device = device};
    assert_false(fails(BUFFER_FROM_HOST, &up));
    assert_false(fails_on(EVENT_AWAIT, up.done));
    fails_on(EVENT_DESTROY, up.done);
    return up.buffer;
}

static bool download(void *buffer, void *data, uint64_t bytes) {
    of_download down = {.size = sizeof down, .buffer = buffer, .data = data, .bytes = bytes};
    if (fails(BUFFER_TO_HOST, &down)) return false;
    bool good = !fails_on(EVENT_AWAIT, down.event);
    fails_on(EVENT_DESTROY, down.event);
    return good;
}

static void *compile(rn_str text) {
    // One replica, one partition; xla_backend_optimization_level is 0, since a program runs once.
    static const char options[] = "\x1A\x04\x20\x01\x28\x01"
                                  "\x3A\x24\x0A\x1Exla_backend_optimization_level\x12\x02\x18\x00";
    of_program program = {.size = sizeof program,
                          .code = (char *)text.data,
                          .code_bytes = text.bytes,
                          .format = "mlir",
                          .format_bytes = 4};
    of_compile request = {.size = sizeof request,
                          .client = client,
                          .program = &program,
                          .options = options,
                          .option_bytes = sizeof options - 1};
    return fails(CLIENT_COMPILE, &request) ? NULL : request.executable;
}

const char *xla_run(rn_str text, const rn_stablehlo_signature *signature, void *const *arguments,
                    void *const *results) {
    enum { MOST = 256 };
    void *in[MOST], *out[MOST] = {0}, *done[1] = {0};
    assert_true(signature->argument_count <= MOST && signature->result_count <= MOST);
    void *executable = compile(text);
    if (!executable) return complaint;
    for (uint32_t i = 0; i < signature->argument_count; i++)
        in[i] = upload(&signature->arguments[i], arguments[i]);
    of_options options = {.size = sizeof options};
    void *const *in_lists[1] = {in};
    void **out_lists[1] = {out};
    of_execute run = {.size = sizeof run,
                      .executable = executable,
                      .options = &options,
                      .arguments = in_lists,
                      .device_count = 1,
                      .argument_count = signature->argument_count,
                      .results = out_lists,
                      .done = done};
    bool good = !fails(EXECUTE, &run) && !fails_on(EVENT_AWAIT, done[0]);
    fails_on(EVENT_DESTROY, done[0]);
    for (uint32_t i = 0; i < signature->result_count; i++) {
        good = good && download(out[i], results[i], signature->results[i].bytes);
        fails_on(BUFFER_DESTROY, out[i]);
    }
    for (uint32_t i = 0; i < signature->argument_count; i++)
        fails_on(BUFFER_DESTROY, in[i]);
    fails_on(EXECUTABLE_DESTROY, executable);
    return good ? NULL : complaint;
}
