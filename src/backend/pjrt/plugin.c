// plugin.c — loading a plugin, and calling it: sizes, errors, one more try where it wants another
// size.
#include "backend/pjrt/pjrt.h"

#include "backend/pjrt/preload.h"
#include "memory/account.h"

#include <dlfcn.h>
#include <stdio.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static rn_pjrt_plugin *plugins; // under lock; they are never unloaded

// ---- calling ------------------------------------------------------------------------------------

// Of a call that failed. The message is a copy: the error is the plugin's.
typedef struct failure {
    int code;
    char message[4096];
} failure;

static void *call_raw(const rn_pjrt_plugin *plugin, rn_pjrt_function function, void *args) {
    *(size_t *)args = rn_pjrt_args_bytes(function, plugin->minor);
    return rn_pjrt_function_of(plugin->api, function)(args);
}

static void read_error(const rn_pjrt_plugin *plugin, void *error, failure *out) {
    rn_pjrt_text_args message = {.handle = error};
    rn_pjrt_number_args code = {.handle = error, .number = 2};
    rn_pjrt_handle_args drop = {.handle = error};
    call_raw(plugin, RN_PJRT_ERROR_MESSAGE, &message);
    if (call_raw(plugin, RN_PJRT_ERROR_CODE, &code)) code.number = 2;
    out->code = code.number;
    snprintf(out->message, sizeof out->message, "%.*s", (int)message.text_bytes,
             message.text ? message.text : "");
    rn_str_clean(out->message);
    call_raw(plugin, RN_PJRT_ERROR_DESTROY, &drop);
}

static rn_status fail(const failure *f, const char *doing) {
    char *end = strchr(f->message, '\n'); // what follows is for those who wrote the compiler
    size_t bytes = end && f->code != 2 ? (size_t)(end - f->message) : strlen(f->message);
    return rn_fail(rn_pjrt_status(f->code), "%s: %s: %.*s", doing, rn_pjrt_code_name(f->code),
                   (int)(bytes < 800 ? bytes : 800), f->message);
}

rn_status rn_pjrt_call(const rn_pjrt_plugin *plugin, rn_pjrt_function function, void *args,
                       size_t args_bytes, const char *doing) {
    failure f;
    if (!rn_pjrt_function_of(plugin->api, function))
        return rn_fail(RN_UNSUPPORTED, "%s: the plugin has no function %d", doing, (int)function);
    void *error = call_raw(plugin, function, args);
    if (!error) return RN_OK;
    read_error(plugin, error, &f);
    size_t wanted = rn_pjrt_wanted_bytes(f.message, *(size_t *)args);
    if (wanted == 0) return fail(&f, doing);
    _Alignas(16) char room[RN_PJRT_MOST_BYTES] = {0};
    memcpy(room, args, args_bytes);
    memcpy(room, &wanted, sizeof wanted);
    error = rn_pjrt_function_of(plugin->api, function)(room);
    memcpy(args, room, args_bytes);
    if (!error) return RN_OK;
    read_error(plugin, error, &f);
    return fail(&f, doing);
}

void rn_pjrt_drop(const rn_pjrt_plugin *plugin, rn_pjrt_function function, void *handle) {
    rn_pjrt_handle_args args = {.handle = handle};
    if (!handle) return;
    rn_error_info before = *rn_last_error();
    (void)!RN_PJRT_CALL(plugin, function, &args, "releasing");
    (void)rn_error_restore(&before);
}

rn_status rn_pjrt_await(const rn_pjrt_plugin *plugin, void *event, const char *doing) {
    rn_pjrt_handle_args args = {.handle = event};
    if (!event) return RN_OK;
    rn_status s = RN_PJRT_CALL(plugin, RN_PJRT_EVENT_AWAIT, &args, doing);
    rn_pjrt_drop(plugin, RN_PJRT_EVENT_DESTROY, event);
    return s;
}

// ---- loading ------------------------------------------------------------------------------------

static rn_status refuse_library(const char *path) {
    const char *why = dlerror();
    if (!why) why = "it cannot be loaded";
    bool missing = strstr(why, "cannot open shared object file");
    rn_status s = rn_fail(missing ? RN_NOT_FOUND : RN_UNSUPPORTED, "no PJRT plugin: %s", why);
    s = rn_error_locate(s, path, RN_NO_OFFSET);
    return rn_hint(s, "xla: takes the file of a PJRT plugin, with its folder where the system does "
                      "not find it");
}

static rn_status check_version(const rn_pjrt_api *api) {
    int major = api->version.major, minor = api->version.minor;
    if (major != 0 || minor < RN_PJRT_LEAST_MINOR || minor == RN_PJRT_BROKEN_MINOR)
        return rn_hint(rn_fail(RN_UNSUPPORTED,
                               "the plugin has version %d.%d of PJRT's interface; 0.%d and later "
                               "are known, but for 0.%d",
                               major, minor, RN_PJRT_LEAST_MINOR, RN_PJRT_BROKEN_MINOR),
                       "a newer release of the plugin");
    return RN_OK;
}

static rn_status open_plugin(rn_pjrt_plugin *plugin) {
    rn_pjrt_preload(plugin->path);
    void *library = dlopen(plugin->path, RTLD_LAZY | RTLD_LOCAL);
    if (!library) return refuse_library(plugin->path);
    void *symbol = dlsym(library, "GetPjrtApi");
    rn_pjrt_get_api get;
    memcpy(&get, &symbol, sizeof get);
    if (!get)
        return rn_hint(rn_fail(RN_UNSUPPORTED, "no PJRT plugin: the library has no GetPjrtApi"),
                       "xla: takes the file of a PJRT plugin");
    plugin->api = get();
    if (!plugin->api) return rn_fail(RN_DEVICE, "the plugin's GetPjrtApi returns nothing");
    RN_TRY(check_version(plugin->api));
    plugin->minor =
        plugin->api->version.minor < RN_PJRT_MINOR ? plugin->api->version.minor : RN_PJRT_MINOR;
    rn_pjrt_initialize_args args = {0};
    return RN_PJRT_CALL(plugin, RN_PJRT_PLUGIN_INITIALIZE, &args, "starting the plugin");
}

static rn_status load(const char *path, const rn_pjrt_plugin **out) {
    for (const rn_pjrt_plugin *p = plugins; p; p = p->next)
        if (strcmp(p->path, path) == 0) {
            *out = p;
            return RN_OK;
        }
    rn_pjrt_plugin *plugin = NULL;
    // Of the process, not of an attempt: it is on no account.
    RN_TRY(rn_alloc_zeroed(&rn_system_allocator, 1, sizeof *plugin, (void **)&plugin));
    snprintf(plugin->path, sizeof plugin->path, "%s", path);
    rn_status s = open_plugin(plugin);
    if (s != RN_OK) {
        rn_free(&rn_system_allocator, plugin, sizeof *plugin);
        return s;
    }
    plugin->next = plugins;
    *out = plugins = plugin;
    return RN_OK;
}

rn_status rn_pjrt_load(const char *path, const rn_pjrt_plugin **out) {
    *out = NULL;
    pthread_mutex_lock(&lock);
    rn_status s = load(path, out);
    pthread_mutex_unlock(&lock);
    return s;
}
