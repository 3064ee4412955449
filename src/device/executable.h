// executable.h — a graph compiled as a whole, for back ends that have a compiler instead of kernels
// (XLA, ONNX Runtime).
//
//     rn_compile_request request = {.graph = graph, .rows = buckets, .bucket_count = 3};
//     RN_TRY(device->compile(device, &request, &executable));
//     RN_TRY(executable->put(executable, weight, data, bytes)); // weights, once
//     RN_TRY(executable->run(executable, &execution));
//
// The memory is the back end's own: the planner gives it a budget, not offsets. What an executable
// will hold is estimated before anything is compiled (rn_backend.estimate, a pure function), and
// known when it is compiled (`purpose_bytes`). A back end whose estimate is too low makes a session
// fail when it is opened, with both numbers; it never exceeds the budget.
#ifndef RN_DEVICE_EXECUTABLE_H
#define RN_DEVICE_EXECUTABLE_H

#include "device/device.h"

typedef struct rn_compile_request {
    const rn_graph *graph; // outlives the executable
    // Shape buckets: numbers of rows, rising, for which there are programs; a run has one of them.
    const uint64_t *buckets; // (bucket_count); a graph without RN_ROWS has the bucket 0
    uint32_t bucket_count;
    uint64_t budget_bytes;      // of the device, for all that it holds
    bool frugal;                // as its estimate was (rn_device_caps.frugal)
    const _Atomic bool *cancel; // may be NULL
} rn_compile_request;

// An input or output of a run in host memory, dense, with the bucket's rows.
typedef struct rn_argument {
    rn_value value;
    void *data;
    uint64_t bytes;
} rn_argument;

// What the next run will most likely be given: the inputs of this one, but for two. An executable
// may begin it before anybody asks, so that its device does not wait for the host. A run that is
// given something else drops it: what it has written into states by then must do no harm.
typedef struct rn_next_run {
    rn_value fed, from; // an input, and the output of this run that it becomes; RN_NO_VALUE: none
    rn_value counted;   // an input of i32 whose elements are all one more
} rn_next_run;

typedef struct rn_execution {
    uint64_t rows;              // a bucket
    const rn_argument *inputs;  // (input_count): all of the graph's that some node reads
    const rn_argument *outputs; // (output_count): those of the graph's that are wanted
    uint32_t input_count, output_count;
    const rn_scalar *scalars;
    rn_next_run next;
    const _Atomic bool *cancel; // may be NULL
} rn_execution;

// The one for a value; NULL: it is not among them.
const rn_argument *rn_argument_find(const rn_argument *given /* (count) */, uint32_t count,
                                    rn_value value);

typedef struct rn_executable rn_executable;
struct rn_executable {
    uint64_t purpose_bytes[RN_PURPOSE_COUNT]; // what it holds on the device at most
    char about[200]; // for people: what was compiled, and by whom; "": nothing to tell
    // A weight's or state's plain bytes. States begin as zeros, and live from run to run.
    rn_status (*put)(rn_executable *executable, rn_value value, const void *data, uint64_t bytes);
    rn_status (*get)(rn_executable *executable, rn_value value, void *data, uint64_t bytes);
    // Returns when the outputs are there. A run that failed leaves states undefined.
    rn_status (*run)(rn_executable *executable, const rn_execution *execution);
    void (*destroy)(rn_executable *executable);
};

// ---- for those who write `estimate` -------------------------------------------------------------

// Adds what any executable of the graph holds for its weights, states, constants, inputs and
// outputs, each rounded up to 64 bytes, by purpose. RN_INVALID: more than an address has.
RN_MUST_USE rn_status rn_executable_count(const rn_graph *graph, uint64_t rows,
                                          uint64_t purpose_bytes[RN_PURPOSE_COUNT]);
// Plain bytes of a value with RN_ROWS bound, as rn_executable_count counts them before rounding.
uint64_t rn_executable_value_bytes(const rn_graph *graph, rn_value value, uint64_t rows);
// Whether some node reads the value (weights and inputs that nobody reads are not held).
bool rn_executable_reads(const rn_graph *graph, rn_value value);

// Walks the nodes in order. `bytes` says what a value takes; `visit` hears what the node makes, and
// what is alive while it runs: values between nodes from the one that makes them to the last that
// reads them, each with a place of its own. RN_NO_MEMORY.
typedef struct rn_live_walk {
    uint64_t (*bytes)(void *self, rn_value value);
    void (*visit)(void *self, const rn_node *node, uint64_t made_bytes, uint64_t live_bytes);
    void *self;
} rn_live_walk;
RN_MUST_USE rn_status rn_executable_walk_live(const rn_graph *graph, const rn_live_walk *walk);

// The graph's weights of 16-bit floats, and those of quantised kinds, in bytes as they are.
void rn_executable_count_narrow(const rn_graph *graph, uint64_t *out_half_bytes,
                                uint64_t *out_quantised_bytes);

// Bytes of a * b * c floats; at most 2^58: more than any budget, and a factor does not overflow it.
uint64_t rn_executable_floats(uint64_t a, uint64_t b, uint64_t c);

// ---- for those who write a device that compiles -------------------------------------------------

// It has no blocks and no queues for others: both are refused by the device's name.
void rn_executable_device_init(rn_device *device);

#endif
