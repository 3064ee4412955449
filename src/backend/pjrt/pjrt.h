// pjrt.h — XLA and Neuron through PJRT plugins: devices that compile graphs as a whole.
//
//     xla:cpu, xla:cuda            a plugin that is found by its name (find.c)
//     xla:/path/to/plugin.so       any plugin
//     neuron:0-1                   AWS Neuron's, with these cores visible
//     xla:cuda?seq=64&opt=0        options of the compiler: a target of its own
//
// From a target to a run:
//
//     find a file ─▶ try it in a child ─▶ load it ─▶ client ─▶ compile ─▶ upload weights ─▶ run
//     find.c         try.c                plugin.c   device.c  compile.c  executable.c
//
// A plugin may abort, exit or hang, so a program of its own tries it first (probe/), and what it
// found is remembered by the file's identity. A plugin whose memory is not the host's is loaded
// when it is first needed: a plan that does not fit is refused before that.
#ifndef RN_BACKEND_PJRT_PJRT_H
#define RN_BACKEND_PJRT_PJRT_H

#include "backend/pjrt/api.h"
#include "backend/pjrt/neuron.h"
#include "base/buffer.h"
#include "device/executable.h"
#include "device/registry.h"
#include "exchange/stablehlo.h"

#include <pthread.h>

extern const rn_backend rn_xla_backend, rn_neuron_backend;
extern const rn_error_table rn_pjrt_errors;

enum { RN_PJRT_MOST_CORES = 64 };

// ---- targets (target.c) -------------------------------------------------------------------------

// What the text behind the colon says.
typedef struct rn_pjrt_target {
    char plugin[512]; // a path, or the name of a kind: "cpu", "cuda", "neuron"
    char flags[256];  // "xla_a=1&xla_b=true": options of XLA's compiler, as they were given
    char cores[16];   // Neuron's: "0-1"; "": all
    char model_type[24], auto_cast[16], auto_cast_type[16]; // of Neuron's compiler; "": its own
    uint32_t device;                                        // the plugin's device number
    uint32_t core_count;       // devices from that one on that run a program together; 0: not said
    uint32_t most_rows;        // of a program; 0: as many as the plan has
    int32_t level;             // of optimisation; -1: the compiler's own
    uint8_t products, widened; // rn_dtype: rn_stablehlo_options; 0: the target's own choice
    bool keeps_states;         // states are not donated: for plugins that cannot
    bool by_name;              // `plugin` is the name of a kind
} rn_pjrt_target;

// ---- files (find.c) -----------------------------------------------------------------------------

// The file of a plugin of this kind. RN_NOT_FOUND lists where it was looked for.
RN_MUST_USE rn_status rn_pjrt_find(const char *kind, char *out, size_t bytes);
// A file in the user's cache folder, whose folders are made. RN_NOT_FOUND: there is none.
RN_MUST_USE rn_status rn_pjrt_cache_path(const char *name, char *out, size_t bytes);

// ---- trying (try.c) -----------------------------------------------------------------------------

// What is known of a plugin that was tried.
typedef struct rn_pjrt_facts {
    int minor; // of its version
    char platform[32], kind[64];
    uint32_t device_count;
    uint64_t limit_bytes; // of a device's memory as its statistics have it; 0: not known
    uint64_t host_bytes;  // of the process that tried it, at its peak
} rn_pjrt_facts;

// Loads the plugin in a child process, compiles and runs a program of one node there; a plugin that
// was tried before, and is the same file, is not tried again. RN_NOT_FOUND, RN_UNSUPPORTED: it is
// no plugin, or too old; RN_DEVICE: it failed, aborted, exited or hung.
RN_MUST_USE rn_status rn_pjrt_try(const char *path, rn_pjrt_facts *out);
// Whether that was done before.
bool rn_pjrt_was_tried(const char *path, rn_pjrt_facts *out);

// ---- plugins (plugin.c) -------------------------------------------------------------------------

// A loaded plugin. It stays until the process ends.
typedef struct rn_pjrt_plugin rn_pjrt_plugin;
struct rn_pjrt_plugin {
    char path[512];
    const rn_pjrt_api *api;
    int minor; // the older one of its version and ours
    rn_pjrt_plugin *next;
};

RN_MUST_USE rn_status rn_pjrt_load(const char *path, const rn_pjrt_plugin **out);
// Calls a function with its struct of arguments, whose size is set here; `doing` is for errors:
// "compiling". A plugin that wants another size is asked once more, with that.
RN_MUST_USE rn_status rn_pjrt_call(const rn_pjrt_plugin *plugin, rn_pjrt_function function,
                                   void *args, size_t args_bytes, const char *doing);
#define RN_PJRT_CALL(plugin, function, args, doing)                                                \
    rn_pjrt_call(plugin, function, args, sizeof *(args), doing)
// For destroying: NULL-safe, and what fails is of no use to anybody.
void rn_pjrt_drop(const rn_pjrt_plugin *plugin, rn_pjrt_function function, void *handle);
// Waits for an event and destroys it; NULL is no event.
RN_MUST_USE rn_status rn_pjrt_await(const rn_pjrt_plugin *plugin, void *event, const char *doing);
// The meaning of an error code (errors.c).
rn_status rn_pjrt_status(int code);
const char *rn_pjrt_code_name(int code);

// ---- devices (device.c) -------------------------------------------------------------------------

typedef struct rn_pjrt_device {
    rn_device base;
    rn_pjrt_target target;
    char path[512];
    char name[64]; // the target's, with its options
    pthread_mutex_t lock;
    const rn_pjrt_plugin *plugin; // NULL until it is needed
    void *client;
    bool has_limit;                  // the client's pool, where it has one: what was planned
    void *cores[RN_PJRT_MOST_CORES]; // (core_count): the plugin's devices; NULL until it is started
    uint32_t core_count;             // that run each program together, each with a part of it
    char platform[32], platform_version[256], kind[64];
    uint64_t total_bytes;       // of its memory, where an earlier try told; else 0
    rn_neuron_monitor *monitor; // Neuron's, where its driver has no files of its memory
    void *mapped[4];            // host memory that the plugin copies from at its full rate
    rn_error_info failure;      // of starting it, which is not tried twice; RN_OK: none
} rn_pjrt_device;

rn_pjrt_device *rn_pjrt_device_of(rn_device *device);
// Sets the variables that Neuron reads when it is loaded, unless the user has; other plugins have
// none (environment.c).
void rn_pjrt_set_environment(const rn_pjrt_target *target);
RN_MUST_USE rn_status rn_pjrt_open(const rn_target *target, uint32_t threads, rn_device **out);
// Tries and loads the plugin and makes its client, once. `budget_bytes` limits its pool where it
// has one; 0: no limit.
RN_MUST_USE rn_status rn_pjrt_start(rn_pjrt_device *device, uint64_t budget_bytes);
// What the plugin's own statistics say, where it has some; for the log.
void rn_pjrt_tell_memory(const rn_pjrt_device *device);
// How a graph is written for a device: products and widened weights as the target says; otherwise
// f32 on the host, and elsewhere the 16 bits that most weights have.
rn_stablehlo_options rn_pjrt_options(const rn_device_caps *caps, const rn_graph *graph,
                                     uint64_t rows);

// ---- programs -----------------------------------------------------------------------------------

// A compiled program for one bucket.
typedef struct rn_pjrt_code {
    void *loaded;
    // What the plugin says that a run takes; `known` is false where it says nothing.
    bool known;
    uint64_t argument_bytes, output_bytes, alias_bytes, temporary_bytes, code_bytes;
    bool from_file;
} rn_pjrt_code;

// Compiles a text, or loads what was saved of it (compile.c). RN_UNSUPPORTED: the compiler refuses
// it; the node's name is in the message.
RN_MUST_USE rn_status rn_pjrt_compile_text(rn_pjrt_device *device, rn_str text, rn_pjrt_code *out);
void rn_pjrt_code_free(rn_pjrt_device *device, rn_pjrt_code *code);
// A serialized CompileOptionsProto of the target (options.c).
RN_MUST_USE rn_status rn_pjrt_write_options(const rn_pjrt_target *target, rn_buffer *out);

// Saved programs (programs.c): what a compiler made, under everything that it depends on. Neither
// fails: a program that cannot be read is compiled, one that cannot be written is not kept.
typedef struct rn_pjrt_key {
    char text[65]; // 64 hexadecimal digits
} rn_pjrt_key;
rn_pjrt_key rn_pjrt_program_key(const rn_pjrt_device *device, rn_str text, rn_str options);
// Appends the saved bytes. False: there are none that can be used.
bool rn_pjrt_program_read(const rn_pjrt_key *key, rn_buffer *out);
bool rn_pjrt_program_write(const rn_pjrt_key *key, const void *data, size_t bytes);
void rn_pjrt_program_remove(const rn_pjrt_key *key);

// Of caps.own: the target's rn_dtype of two, 0 where it says nothing; the bytes of temporary memory
// that any program of the plugin takes; whether states are held twice; the driver's context, in
// bytes, of a plugin that has a pool; what a plugin that is loaded behind the plan takes of the
// process's memory.
enum {
    RN_PJRT_PRODUCTS,
    RN_PJRT_WIDENED,
    RN_PJRT_LEAST,
    RN_PJRT_TWICE,
    RN_PJRT_CONTEXT,
    RN_PJRT_HOST
};

// ---- buffers (buffers.c) ------------------------------------------------------------------------

// Values on a device: a list of buffers for each core, as a run takes them.
typedef struct rn_pjrt_table {
    void **core[RN_PJRT_MOST_CORES]; // (cores) of (count)
} rn_pjrt_table;

RN_MUST_USE rn_status rn_pjrt_table_make(const rn_pjrt_device *device, rn_arena *memory,
                                         uint32_t count, rn_pjrt_table *out);
void rn_pjrt_drop_value(const rn_pjrt_device *device, rn_pjrt_table *table, uint32_t i);
// Value j of `from` becomes value i of `to`.
void rn_pjrt_move_value(const rn_pjrt_device *device, rn_pjrt_table *to, uint32_t i,
                        rn_pjrt_table *from, uint32_t j);
// What a core has of a value.
uint64_t rn_pjrt_part_bytes(const rn_stablehlo_entry *port, uint32_t cores);
// Value i becomes `data` (port->bytes; NULL: zeros), divided over the cores as the port says.
// `stays`: for more than one run.
RN_MUST_USE rn_status rn_pjrt_upload(const rn_pjrt_device *device, const rn_stablehlo_entry *port,
                                     bool stays, const void *data, rn_pjrt_table *table,
                                     uint32_t i);
// The whole of value i to `target` (port->bytes).
RN_MUST_USE rn_status rn_pjrt_download(const rn_pjrt_device *device, const rn_stablehlo_entry *port,
                                       const rn_pjrt_table *table, uint32_t i, void *target);

// ---- executables --------------------------------------------------------------------------------

RN_MUST_USE rn_status rn_pjrt_estimate(const rn_device_caps *caps, const rn_graph *graph,
                                       uint64_t rows, uint64_t purpose_bytes[RN_PURPOSE_COUNT]);
void rn_pjrt_describe_numbers(const rn_device_caps *caps, const rn_graph *graph, char *out,
                              size_t bytes);
uint64_t rn_pjrt_count_host(const rn_device_caps *caps, const rn_graph *graph);
RN_MUST_USE rn_status rn_pjrt_compile(rn_device *device, const rn_compile_request *request,
                                      rn_executable **out);
// Its two parts: what the plugin counts as well; and what it takes beside its programs, which
// depends on those: its compiler, its driver, what its pool cannot use.
RN_MUST_USE rn_status rn_pjrt_count_program(const rn_device_caps *caps, const rn_graph *graph,
                                            uint64_t rows,
                                            uint64_t purpose_bytes[RN_PURPOSE_COUNT]);
RN_MUST_USE rn_status rn_pjrt_count_beside(const rn_device_caps *caps, const rn_graph *graph,
                                           uint64_t purpose_bytes[RN_PURPOSE_COUNT]);
// PJRT's number of a dtype; 0: it has none.
int rn_pjrt_type(rn_dtype dtype);

#endif
