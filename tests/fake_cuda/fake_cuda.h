// fake_cuda.h — what a test sees of the driver that it plays with.
//
// The library beside it has the driver's symbols over host memory: a device of a set capacity, with
// streams that run when the test says so. A kernel is a promise to touch a range; memory that goes
// away under an unfinished kernel is counted.
//
// Streams that were created (cuStreamCreate) have a thread each and run by themselves, in order:
// copies, zeros, functions of the host, waits, and launches, which call a hook. Any address else is
// a stream, too: the test's, which runs when told. A module has whatever function is asked for.
#ifndef RN_TEST_FAKE_CUDA_H
#define RN_TEST_FAKE_CUDA_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define FAKE_STREAMS 16

typedef struct fake_launch {
    char name[64];
    unsigned grid[3], threads, shared_bytes;
    bool early;              // programmatic stream serialization
    unsigned char args[512]; // the first fake_cuda.args_bytes of the kernel's struct
} fake_launch;

typedef struct fake_cuda {
    // set by the test
    uint64_t capacity_bytes; // of each device
    int device_count;
    bool has_vmm;
    size_t granularity;
    uint64_t fail_at; // the n-th call from now that can fail does, once; 0: none
    int fail_code;
    int capability;      // 90
    int shared_most;     // bytes of shared memory of a block; 0: 227 KiB
    int shared_fixed;    // of them, that every function takes by itself
    int image_code;      // what loading a module gives; 0: it works
    size_t module_bytes; // that a module takes on the device
    const char *lacks;   // a function that modules do not have
    bool has_words;      // streams wait for and write words
    bool maps_host;      // the device can address pinned memory (any of the host's, here)
    size_t args_bytes;   // of a kernel's struct that are kept for the hook
    void (*on_launch)(void *self, const fake_launch *launch); // on the stream's thread; may be NULL
    void *on_launch_self;
    // seen by the test
    uint64_t used_bytes; // of all devices together
    uint64_t reserved_address_bytes;
    uint64_t calls;                                    // that can fail
    uint64_t event_count, context_count, pushed_count; // alive
    uint64_t synchronize_count;
    uint64_t stream_count, module_count, graph_count; // alive
    uint64_t pinned_bytes;
    uint64_t take_count; // blocks of the device and of pinned memory, and events, so far
    uint64_t launch_count, early_count, graph_launch_count, word_count; // submitted
    uint64_t violations; // memory unmapped or freed under a kernel, or driver calls without context
    // verbs
    void (*launch)(void *stream, uint64_t address, size_t bytes);
    void (*finish)(void *stream);                    // what was launched so far is done
    bool (*is_busy)(uint64_t address, size_t bytes); // an unfinished kernel touches it
    bool (*is_backed)(uint64_t address, size_t bytes);
    void (*hold)(bool on); // created streams begin nothing new meanwhile
    // From now on every call gives this code, streams stand still, and nothing of theirs is run. 0:
    // a new device, without memory.
    void (*die)(int code);
} fake_cuda;

// The library's one symbol that is not the driver's.
typedef fake_cuda *(*fake_cuda_get_fn)(void);

// For tests: loads it, and has the library load it in the place of NVIDIA's. NULL: it cannot be.
static inline fake_cuda *fake_cuda_open(const char *path) {
    fake_cuda_get_fn get;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *symbol = library ? dlsym(library, "fake_cuda_get") : NULL;
    if (!symbol || setenv("RATION_CUDA_DRIVER", path, 1) != 0) return NULL;
    memcpy(&get, &symbol, sizeof get);
    return get();
}

#endif
