// api.h — ONNX Runtime's C interface as far as it is used here: numbers in its table of functions,
// which only grows at its end.
#ifndef RN_BACKEND_ORT_API_H
#define RN_BACKEND_ORT_API_H

#include <stddef.h>
#include <stdint.h>

enum { RN_ORT_VERSION = 17 }; // of the interface: what is used here is there since 1.17

typedef struct rn_ort_base {
    const void *(*get_api)(uint32_t version);
    const char *(*get_version)(void);
} rn_ort_base;
typedef const rn_ort_base *(*rn_ort_get_base)(void);

typedef void rn_ort_status; // NULL: it went well
typedef struct rn_ort_allocator rn_ort_allocator;
struct rn_ort_allocator {
    uint32_t version; // of the interface: what lies behind `info` is not read with 17
    void *(*alloc)(rn_ort_allocator *self, size_t bytes);
    void (*free)(rn_ort_allocator *self, void *block);
    const void *(*info)(const rn_ort_allocator *self);
    void *later[8];
};

// RN_ORT(number, name, arguments): functions that return a status.
// clang-format off
#define RN_ORT_FUNCTIONS                                                                           \
    RN_ORT(3, create_env, (int level, const char *id, void **out))                                 \
    RN_ORT(8, create_session, (void *env, const void *data, size_t bytes, void *options,           \
                               void **out))                                                        \
    RN_ORT(10, create_options, (void **out))                                                       \
    RN_ORT(17, disable_patterns, (void *options))                                                  \
    RN_ORT(19, disable_arena, (void *options))                                                     \
    RN_ORT(22, set_log_level, (void *options, int level))                                          \
    RN_ORT(23, set_optimisation, (void *options, int level))                                       \
    RN_ORT(24, set_threads, (void *options, int count))                                            \
    RN_ORT(25, set_outer_threads, (void *options, int count))                                      \
    RN_ORT(39, create_run_options, (void **out))                                                   \
    RN_ORT(46, set_terminate, (void *run_options))                                                 \
    RN_ORT(47, unset_terminate, (void *run_options))                                               \
    RN_ORT(49, create_tensor, (const void *memory, void *data, size_t bytes, const int64_t *dims,  \
                               size_t rank, int type, void **out))                                 \
    RN_ORT(69, create_cpu_memory, (int allocator, int memory, void **out))                         \
    RN_ORT(130, add_config, (void *options, const char *key, const char *value))                   \
    RN_ORT(133, run_bound, (void *session, const void *run_options, const void *binding))          \
    RN_ORT(134, create_binding, (void *session, void **out))                                       \
    RN_ORT(136, bind_input, (void *binding, const char *name, const void *value))                  \
    RN_ORT(137, bind_output, (void *binding, const char *name, const void *value))                 \
    RN_ORT(176, register_allocator, (void *env, rn_ort_allocator *allocator))                      \
    RN_ORT(210, add_initializers, (void *options, const char *const *names,                        \
                                   const void *const *values, size_t count))
// clang-format on

typedef struct rn_ort_api {
#define RN_ORT(number, name, arguments) rn_ort_status *(*name)arguments;
    RN_ORT_FUNCTIONS
#undef RN_ORT
    int (*error_code)(const rn_ort_status *status);            // 1
    const char *(*error_message)(const rn_ort_status *status); // 2
    void (*release_status)(rn_ort_status *status);             // 93
    void (*release_session)(void *session);                    // 95
    void (*release_value)(void *value);                        // 96
    void (*release_run_options)(void *options);                // 97
    void (*release_options)(void *options);                    // 100
    void (*release_binding)(void *binding);                    // 135
} rn_ort_api;

#endif
