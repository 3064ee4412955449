// api.h — the C interface of PJRT plugins: our own declarations of the functions that are used.
//
// A plugin is a shared library with one symbol, GetPjrtApi, which returns a table of functions that
// has only ever grown at its end (0.56 apart, which is refused). Every function takes one struct of
// arguments that begins with its size in bytes, counted to the end of its last field, and returns
// NULL or an error object. Plugins compare that size with their own: those of XLA want at least
// theirs, Neuron's wants exactly that of the version that was agreed on. So the sizes are a table
// by version (rn_pjrt_args_bytes), asked for the older one of the plugin's version and ours.
//
// Layouts are those of 64-bit little-endian Linux. This file includes nothing of ration: the
// program that tries a plugin (probe/probe.c) is built from it alone.
#ifndef RN_BACKEND_PJRT_API_H
#define RN_BACKEND_PJRT_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum {
    RN_PJRT_MOST_BYTES = 512, // of a struct of arguments that a plugin may ask for
    RN_PJRT_MINOR = 114,      // the version that these declarations are of: 0.114
    RN_PJRT_LEAST_MINOR = 54, // before it, structs differ
    RN_PJRT_BROKEN_MINOR = 56 // a function was inserted, and moved in the next version
};

typedef struct rn_pjrt_api {
    size_t bytes;
    void *extensions;
    struct {
        size_t bytes;
        void *extensions;
        int major, minor;
    } version;
    void *functions[]; // those with bytes behind their pointer <= `bytes`
} rn_pjrt_api;

typedef const rn_pjrt_api *(*rn_pjrt_get_api)(void);
typedef void *(*rn_pjrt_function_pointer)(void *args); // NULL or an error

// Numbers in the table.
typedef enum rn_pjrt_function {
    RN_PJRT_ERROR_DESTROY = 0,
    RN_PJRT_ERROR_MESSAGE = 1,
    RN_PJRT_ERROR_CODE = 2,
    RN_PJRT_PLUGIN_INITIALIZE = 3,
    RN_PJRT_EVENT_DESTROY = 5,
    RN_PJRT_EVENT_AWAIT = 8,
    RN_PJRT_CLIENT_CREATE = 10,
    RN_PJRT_CLIENT_DESTROY = 11,
    RN_PJRT_CLIENT_PLATFORM_NAME = 12,
    RN_PJRT_CLIENT_PLATFORM_VERSION = 14,
    RN_PJRT_CLIENT_ADDRESSABLE_DEVICES = 16,
    RN_PJRT_CLIENT_COMPILE = 20,
    RN_PJRT_CLIENT_BUFFER_FROM_HOST = 22,
    RN_PJRT_DESCRIPTION_KIND = 26,
    RN_PJRT_DEVICE_DESCRIPTION = 29,
    RN_PJRT_DEVICE_LOCAL_ID = 31,
    RN_PJRT_DEVICE_MEMORY_STATS = 34,
    RN_PJRT_EXECUTABLE_DESTROY = 40,
    RN_PJRT_EXECUTABLE_NUM_OUTPUTS = 44,
    RN_PJRT_EXECUTABLE_SERIALIZE = 49,
    RN_PJRT_LOADED_DESTROY = 50,
    RN_PJRT_LOADED_EXECUTABLE = 51,
    RN_PJRT_LOADED_EXECUTE = 55,
    RN_PJRT_DESERIALIZE_AND_LOAD = 56,
    RN_PJRT_BUFFER_DESTROY = 58,
    RN_PJRT_BUFFER_TO_HOST = 70,
    RN_PJRT_BUFFER_READY_EVENT = 72,
    RN_PJRT_EXECUTABLE_MEMORY_STATS = 96,
    RN_PJRT_CLIENT_DMA_MAP = 110, // since 0.67
    RN_PJRT_CLIENT_DMA_UNMAP = 111,
    RN_PJRT_EXECUTE_OPTIONS = 1000 // no function: a struct that an argument points to
} rn_pjrt_function;

// ---- arguments ----------------------------------------------------------------------------------

#define RN_PJRT_HEAD                                                                               \
    size_t bytes;                                                                                  \
    void *extensions;

// One handle: all destroys, Event_Await, and Error's.
typedef struct rn_pjrt_handle_args {
    RN_PJRT_HEAD void *handle;
} rn_pjrt_handle_args;

typedef struct rn_pjrt_initialize_args {
    RN_PJRT_HEAD
} rn_pjrt_initialize_args;

// A text of a handle, not terminated: Error_Message, PlatformName, PlatformVersion, Kind.
typedef struct rn_pjrt_text_args {
    RN_PJRT_HEAD void *handle;
    const char *text;
    size_t text_bytes;
} rn_pjrt_text_args;

// A number of a handle: Error_GetCode, Device_LocalHardwareId.
typedef struct rn_pjrt_number_args {
    RN_PJRT_HEAD void *handle;
    int number;
} rn_pjrt_number_args;

// A handle of a handle: GetDescription, GetExecutable, ReadyEvent.
typedef struct rn_pjrt_get_args {
    RN_PJRT_HEAD void *handle;
    void *out;
} rn_pjrt_get_args;

typedef struct rn_pjrt_list_args {
    RN_PJRT_HEAD void *handle;
    void *const *items;
    size_t count;
} rn_pjrt_list_args;

typedef struct rn_pjrt_count_args {
    RN_PJRT_HEAD void *handle;
    size_t count;
} rn_pjrt_count_args;

enum { RN_PJRT_STRING = 0, RN_PJRT_INT64 = 1, RN_PJRT_FLOAT = 3, RN_PJRT_BOOL = 4 }; // of an option

typedef struct rn_pjrt_option {
    RN_PJRT_HEAD const char *name;
    size_t name_bytes;
    int type;
    union {
        const char *text;
        int64_t integer;
        float number;
        bool truth;
    } value;
    size_t value_count; // of a text its bytes, else 1
} rn_pjrt_option;

typedef struct rn_pjrt_client_create_args {
    RN_PJRT_HEAD const rn_pjrt_option *options;
    size_t option_count;
    void *unused[4]; // callbacks of clients that span processes
    void *client;
    void *unused_try[2];
} rn_pjrt_client_create_args;

typedef struct rn_pjrt_program {
    RN_PJRT_HEAD const char *code;
    size_t code_bytes;
    const char *format; // "mlir"
    size_t format_bytes;
} rn_pjrt_program;

typedef struct rn_pjrt_compile_args {
    RN_PJRT_HEAD void *client;
    const rn_pjrt_program *program;
    const char *options; // a CompileOptionsProto; none at all makes XLA abort
    size_t option_bytes;
    void *executable;
} rn_pjrt_compile_args;

// Types of elements. 0, or one that a plugin does not know, makes XLA abort.
enum {
    RN_PJRT_PRED = 1,
    RN_PJRT_S8 = 2,
    RN_PJRT_S16 = 3,
    RN_PJRT_S32 = 4,
    RN_PJRT_S64 = 5,
    RN_PJRT_U8 = 6,
    RN_PJRT_U16 = 7,
    RN_PJRT_U32 = 8,
    RN_PJRT_U64 = 9,
    RN_PJRT_F16 = 10,
    RN_PJRT_F32 = 11,
    RN_PJRT_F64 = 12,
    RN_PJRT_BF16 = 13
};

typedef struct rn_pjrt_from_host_args {
    RN_PJRT_HEAD void *client;
    const void *data;
    int type;
    const int64_t *dims; // (dim_count)
    size_t dim_count;
    const int64_t *strides; // NULL: dense
    size_t stride_count;
    int semantics; // 0: `data` is copied before the call returns; 1: it stays until `done`
    void *device;
    void *memory;
    void *layout;
    void *done; // an event; always to be destroyed
    void *buffer;
} rn_pjrt_from_host_args;

typedef struct rn_pjrt_map_args {
    RN_PJRT_HEAD void *client;
    void *data;
    size_t data_bytes; // of DMA_MAP alone
} rn_pjrt_map_args;

typedef struct rn_pjrt_to_host_args {
    RN_PJRT_HEAD void *buffer;
    void *layout;
    void *target;
    size_t target_bytes;
    void *event;
} rn_pjrt_to_host_args;

typedef struct rn_pjrt_execute_options {
    RN_PJRT_HEAD void *send, *receive;
    size_t send_count, receive_count;
    int launch;
    const int64_t
        *not_donated; // (not_donated_count): arguments that stay, whatever the program says
    size_t not_donated_count;
    void *context;
    const char *location;
    size_t task_count;
    void *tasks, *incarnations, *slices;
    bool major_to_minor;
    void *output_callbacks;
    size_t output_callback_count;
} rn_pjrt_execute_options;

// With zeros behind it, for plugins that want more.
typedef union rn_pjrt_padded_options {
    rn_pjrt_execute_options head;
    char room[RN_PJRT_MOST_BYTES];
} rn_pjrt_padded_options;

typedef struct rn_pjrt_execute_args {
    RN_PJRT_HEAD void *executable;
    rn_pjrt_execute_options *options;
    void *const *const *arguments; // (device_count, argument_count)
    size_t device_count, argument_count;
    void **const *outputs; // (device_count, outputs), written
    void **done;           // (device_count) events, written
    void *device;
} rn_pjrt_execute_args;

typedef struct rn_pjrt_serialize_args {
    RN_PJRT_HEAD const void *executable;
    const char *data;
    size_t data_bytes;
    void *owner;
    void (*release)(void *owner);
} rn_pjrt_serialize_args;

typedef struct rn_pjrt_deserialize_args {
    RN_PJRT_HEAD void *client;
    const char *data;
    size_t data_bytes;
    void *executable;
    const char *options;
    size_t option_bytes;
    void *load_options;
} rn_pjrt_deserialize_args;

typedef struct rn_pjrt_program_memory {
    RN_PJRT_HEAD void *executable;
    int64_t code_bytes, argument_bytes, output_bytes, alias_bytes, temporary_bytes;
    int64_t host[5];
    int64_t peak_bytes, total_bytes, allocation_bytes, indefinite, peak_unpadded_bytes;
} rn_pjrt_program_memory;

typedef struct rn_pjrt_stat {
    int64_t bytes;
    bool is_set;
} rn_pjrt_stat;

typedef struct rn_pjrt_device_memory {
    RN_PJRT_HEAD void *device;
    int64_t used_bytes;
    rn_pjrt_stat peak, allocations, largest, limit, reserved, peak_reserved, reservable,
        largest_free, pool, peak_pool, peak_allocated;
} rn_pjrt_device_memory;

// ---- sizes --------------------------------------------------------------------------------------

#define RN_PJRT_END(type, last) (offsetof(type, last) + sizeof(((type *)0)->last))

// What a function's struct of arguments has for its size in version 0.`minor`; 0: not known here.
static inline size_t rn_pjrt_args_bytes(rn_pjrt_function function, int minor) {
    switch (function) {
    case RN_PJRT_PLUGIN_INITIALIZE:
        return 16;
    case RN_PJRT_ERROR_CODE:
    case RN_PJRT_DEVICE_LOCAL_ID:
        return RN_PJRT_END(rn_pjrt_number_args, number);
    case RN_PJRT_ERROR_MESSAGE:
    case RN_PJRT_CLIENT_PLATFORM_NAME:
    case RN_PJRT_CLIENT_PLATFORM_VERSION:
    case RN_PJRT_DESCRIPTION_KIND:
        return RN_PJRT_END(rn_pjrt_text_args, text_bytes);
    case RN_PJRT_ERROR_DESTROY:
    case RN_PJRT_EVENT_DESTROY:
    case RN_PJRT_EVENT_AWAIT:
    case RN_PJRT_CLIENT_DESTROY:
    case RN_PJRT_EXECUTABLE_DESTROY:
    case RN_PJRT_LOADED_DESTROY:
    case RN_PJRT_BUFFER_DESTROY:
        return RN_PJRT_END(rn_pjrt_handle_args, handle);
    case RN_PJRT_DEVICE_DESCRIPTION:
    case RN_PJRT_LOADED_EXECUTABLE:
    case RN_PJRT_BUFFER_READY_EVENT:
        return RN_PJRT_END(rn_pjrt_get_args, out);
    case RN_PJRT_CLIENT_ADDRESSABLE_DEVICES:
        return RN_PJRT_END(rn_pjrt_list_args, count);
    case RN_PJRT_EXECUTABLE_NUM_OUTPUTS:
        return RN_PJRT_END(rn_pjrt_count_args, count);
    case RN_PJRT_CLIENT_CREATE:
        return minor < 61 ? RN_PJRT_END(rn_pjrt_client_create_args, client)
                          : RN_PJRT_END(rn_pjrt_client_create_args, unused_try);
    case RN_PJRT_CLIENT_COMPILE:
        return RN_PJRT_END(rn_pjrt_compile_args, executable);
    case RN_PJRT_CLIENT_BUFFER_FROM_HOST:
        return RN_PJRT_END(rn_pjrt_from_host_args, buffer);
    case RN_PJRT_DEVICE_MEMORY_STATS:
        return minor < 113 ? RN_PJRT_END(rn_pjrt_device_memory, peak_pool.is_set)
                           : RN_PJRT_END(rn_pjrt_device_memory, peak_allocated.is_set);
    case RN_PJRT_EXECUTABLE_SERIALIZE:
        return RN_PJRT_END(rn_pjrt_serialize_args, release);
    case RN_PJRT_LOADED_EXECUTE:
        return RN_PJRT_END(rn_pjrt_execute_args, device);
    case RN_PJRT_DESERIALIZE_AND_LOAD:
        return minor < 71    ? RN_PJRT_END(rn_pjrt_deserialize_args, executable)
               : minor < 111 ? RN_PJRT_END(rn_pjrt_deserialize_args, option_bytes)
                             : RN_PJRT_END(rn_pjrt_deserialize_args, load_options);
    case RN_PJRT_CLIENT_DMA_MAP:
        return RN_PJRT_END(rn_pjrt_map_args, data_bytes);
    case RN_PJRT_CLIENT_DMA_UNMAP:
        return RN_PJRT_END(rn_pjrt_map_args, data);
    case RN_PJRT_BUFFER_TO_HOST:
        return RN_PJRT_END(rn_pjrt_to_host_args, event);
    case RN_PJRT_EXECUTABLE_MEMORY_STATS:
        return minor < 72    ? RN_PJRT_END(rn_pjrt_program_memory, host)
               : minor < 90  ? RN_PJRT_END(rn_pjrt_program_memory, peak_bytes)
               : minor < 104 ? RN_PJRT_END(rn_pjrt_program_memory, total_bytes)
                             : RN_PJRT_END(rn_pjrt_program_memory, peak_unpadded_bytes);
    case RN_PJRT_EXECUTE_OPTIONS:
        return minor < 64    ? RN_PJRT_END(rn_pjrt_execute_options, not_donated_count)
               : minor < 76  ? RN_PJRT_END(rn_pjrt_execute_options, context)
               : minor < 78  ? RN_PJRT_END(rn_pjrt_execute_options, location)
               : minor < 97  ? RN_PJRT_END(rn_pjrt_execute_options, incarnations)
               : minor < 108 ? RN_PJRT_END(rn_pjrt_execute_options, slices)
               : minor < 112 ? RN_PJRT_END(rn_pjrt_execute_options, major_to_minor)
                             : RN_PJRT_END(rn_pjrt_execute_options, output_callback_count);
    }
    return 0;
}

// "Unexpected PJRT_Client_Create_Args size: expected 88, got 72.": 88, where 72 is what was given;
// else 0. A plugin that is newer than these declarations may want more, which is zeros.
static inline size_t rn_pjrt_wanted_bytes(const char *message, size_t given) {
    unsigned long long wanted = 0, got = 0;
    const char *at = strstr(message, "size: expected ");
    if (!at || sscanf(at, "size: expected %llu, got %llu", &wanted, &got) != 2 || got != given ||
        wanted > RN_PJRT_MOST_BYTES)
        return 0;
    return (size_t)wanted;
}

// NULL: the plugin does not have it.
static inline rn_pjrt_function_pointer rn_pjrt_function_of(const rn_pjrt_api *api,
                                                           rn_pjrt_function function) {
    size_t end = offsetof(rn_pjrt_api, functions) + ((size_t)function + 1) * sizeof(void *);
    rn_pjrt_function_pointer pointer = NULL;
    if (end <= api->bytes) __builtin_memcpy(&pointer, &api->functions[function], sizeof pointer);
    return pointer;
}

#endif
