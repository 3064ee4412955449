// driver.h — CUDA's driver as one table of functions, found when it is first needed.
//
// No toolkit and no header of NVIDIA's is needed to build: the few types below are the driver's
// ABI, which does not change within a symbol's name. Fields are named like the functions, less
// "cu"; they return the driver's codes, which rn_cuda_check makes statuses of:
//
//     const rn_cuda_driver *cuda;
//     RN_TRY(rn_cuda_driver_get(&cuda));
//     RN_TRY(rn_cuda_check(cuda, cuda->mem_alloc(&address, bytes), "allocating a chunk"));
#ifndef RN_BACKEND_CUDA_DRIVER_H
#define RN_BACKEND_CUDA_DRIVER_H

#include <ration/memory.h>

#include <stdatomic.h>

// ---- the driver's types ---------------------------------------------------------------

typedef int rn_cu_result;                 // CUresult
typedef int rn_cu_device;                 // CUdevice
typedef unsigned long long rn_cu_address; // CUdeviceptr
typedef unsigned long long rn_cu_memory;  // CUmemGenericAllocationHandle
typedef void *rn_cu_context, *rn_cu_stream, *rn_cu_event;
typedef void *rn_cu_module, *rn_cu_function, *rn_cu_graph, *rn_cu_graph_exec;

enum {
    RN_CU_SUCCESS = 0,
    RN_CU_OUT_OF_MEMORY = 2,
    RN_CU_NOT_FOUND = 500, // a name that a module does not have
    RN_CU_NOT_READY = 600, // an event or a stream that has not come so far
};
enum {                          // of a device
    RN_CU_ATTRIBUTE_CLOCK = 13, // kHz
    RN_CU_ATTRIBUTE_MULTIPROCESSORS = 16,
    RN_CU_ATTRIBUTE_MEMORY_CLOCK = 36, // kHz
    RN_CU_ATTRIBUTE_MEMORY_WIDTH = 37, // bits
    RN_CU_ATTRIBUTE_CAPABILITY_MAJOR = 75,
    RN_CU_ATTRIBUTE_CAPABILITY_MINOR = 76,
    RN_CU_ATTRIBUTE_SHARED_MOST = 97, // of a block, where it was asked for
    RN_CU_ATTRIBUTE_VMM = 102,        // VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
    RN_CU_ATTRIBUTE_WORDS = 122,      // CAN_USE_64_BIT_STREAM_MEM_OPS
};
enum {                               // of a function
    RN_CU_FUNCTION_SHARED_FIXED = 1, // static shared memory of a block
    RN_CU_FUNCTION_REGISTERS = 4,
    RN_CU_FUNCTION_SHARED_MOST = 8, // dynamic shared memory of a block
};
enum {
    RN_CU_POINTER_DEVICE_ADDRESS = 3, // of pinned memory: where the device finds it
    RN_CU_EVENT_DISABLE_TIMING = 2,
    RN_CU_STREAM_NON_BLOCKING = 1, // does not wait for the default stream
    RN_CU_CAPTURE_THREAD_LOCAL = 1,
    RN_CU_HOST_PORTABLE = 1,  // pinned for all contexts
    RN_CU_WAIT_AT_LEAST = 0,  // CU_STREAM_WAIT_VALUE_GEQ
    RN_CU_LAUNCH_CLUSTER = 4, // CLUSTER_DIMENSION
    RN_CU_LAUNCH_EARLY = 6,   // PROGRAMMATIC_STREAM_SERIALIZATION
    RN_CU_MEMORY_PINNED = 1,  // memory that stays on its device: the only kind there is
    RN_CU_LOCATION_DEVICE = 1,
    RN_CU_ACCESS_READ_WRITE = 3,
    RN_CU_GRANULARITY_MINIMUM = 0,
};

typedef struct rn_cu_location { // CUmemLocation
    int type, id;
} rn_cu_location;

typedef struct rn_cu_memory_kind { // CUmemAllocationProp
    int type;
    int handle_types;
    rn_cu_location location;
    void *win32_metadata;
    struct {
        unsigned char compression, rdma;
        unsigned short usage;
        unsigned char reserved[4];
    } flags;
} rn_cu_memory_kind;
_Static_assert(sizeof(rn_cu_memory_kind) == 32, "CUmemAllocationProp of 64-bit systems");

typedef struct rn_cu_access { // CUmemAccessDesc
    rn_cu_location location;
    int flags;
} rn_cu_access;
_Static_assert(sizeof(rn_cu_access) == 12, "CUmemAccessDesc");

typedef struct rn_cu_launch_attribute { // CUlaunchAttribute
    int id;
    char pad[4];
    union {
        int number;
        unsigned dims[3];
        char pad[64];
    } value;
} rn_cu_launch_attribute;
_Static_assert(sizeof(rn_cu_launch_attribute) == 72, "CUlaunchAttribute");

typedef struct rn_cu_launch { // CUlaunchConfig
    unsigned grid[3], block[3];
    unsigned shared_bytes;
    rn_cu_stream stream;
    rn_cu_launch_attribute *attributes; // (attribute_count)
    unsigned attribute_count;
} rn_cu_launch;
_Static_assert(sizeof(rn_cu_launch) == 56, "CUlaunchConfig of 64-bit systems");

// ---- the table ------------------------------------------------------------------------

// What functions are needed for.
typedef enum rn_cuda_need {
    RN_CUDA_NEED_MEMORY, // any use
    RN_CUDA_NEED_VMM,    // memory that is mapped
    RN_CUDA_NEED_MODELS, // kernels, streams, pinned memory, graphs
    RN_CUDA_NEED_MAYBE,
    RN_CUDA_NEED_COUNT
} rn_cuda_need;

typedef struct rn_cuda_driver {
    void *library;
    int version;                           // 12040 is 12.4
    const char *lacks[RN_CUDA_NEED_COUNT]; // the first symbol that is missing, or NULL
    bool has_vmm;                          // all of the virtual memory functions are there
#define RN_CUDA(need, field, symbol, arguments) rn_cu_result(*field) arguments;
#include "backend/cuda/driver.def"
#undef RN_CUDA
} rn_cuda_driver;

// The process's driver: $RATION_CUDA_DRIVER, or libcuda.so.1; loaded and initialised once.
// RN_UNSUPPORTED without a driver or a device; it may be asked again.
RN_MUST_USE rn_status rn_cuda_driver_get(const rn_cuda_driver **out);
// Loads a table from a file without initialising it. RN_UNSUPPORTED: no such library, or it lacks a
// needed function, which is named. To be unloaded.
RN_MUST_USE rn_status rn_cuda_driver_load(const char *path, rn_cuda_driver *out);
void rn_cuda_driver_unload(rn_cuda_driver *driver);

// RN_UNSUPPORTED: it lacks a function that models need.
RN_MUST_USE rn_status rn_cuda_driver_need_models(const rn_cuda_driver *driver);

// RN_OK, or the error of a code: what was done, the driver's name and text for it, what to do.
// RN_NO_MEMORY for 2; RN_UNSUPPORTED for what this machine cannot do; RN_INVALID for a device that
// does not exist; otherwise RN_DEVICE.
RN_MUST_USE rn_status rn_cuda_check(const rn_cuda_driver *driver, rn_cu_result code,
                                    const char *what);

// ---- a device -------------------------------------------------------------------------

typedef struct rn_cuda_device {
    const rn_cuda_driver *driver;
    rn_cu_device device;
    rn_cu_context context; // the primary one: PyTorch's, too
    rn_device_id id;       // "cuda:N" of the ledger
    uint64_t total_bytes;
    size_t part_bytes; // what is mapped at a time, a power of two; 0: no virtual memory functions
    _Atomic uint64_t reserved_bytes, peak_reserved_bytes; // by its sources (source.h)
} rn_cuda_device;

// Its number on the ledger, whether or not it exists.
RN_MUST_USE rn_status rn_cuda_device_id(int ordinal, rn_device_id *out);
// Retains the primary context. RN_UNSUPPORTED, RN_INVALID, RN_DEVICE. To be closed.
RN_MUST_USE rn_status rn_cuda_device_open(int ordinal, rn_cuda_device *out);
void rn_cuda_device_close(rn_cuda_device *device);

// Between the two, driver calls of this thread are about `device`. Whatever context was current is
// so again afterwards. They nest.
RN_MUST_USE rn_status rn_cuda_enter(const rn_cuda_device *device);
void rn_cuda_leave(const rn_cuda_device *device);

#endif
