// bench.h — one model over many variants, each measured in a process of its own.
//
//     rn_bench_variant variants[] = {{.name = "cpu"}, {.name = "cpu+int8"}, {.name = "ort"}};
//     rn_bench_options options = {.model = "resnet18", .batch = 1};
//     rn_bench_results *results;
//     RN_TRY(rn_bench_run(variants, 3, &options, &results)); // also where variants fail
//     RN_TRY(rn_bench_results_write(results, rn_sink_file(stdout)));
//     rn_bench_results_destroy(results);
//
// A variant is a point on five axes: engine, device, dtype of the weights, dtype of the
// activations, mode. A worker process measures it and sends stages, samples, outputs and figures
// through a pipe; whatever becomes of the worker (an error, a signal, no memory, no answer in time)
// is a result, and the other variants run.
//
// A worker of another program (command) uses the second half of this header.
#ifndef RATION_BENCH_H
#define RATION_BENCH_H

#include <ration/memory.h>

RN_BEGIN_DECLS

// ---- results ------------------------------------------------------------------------------------

#define RN_BENCH_UNKNOWN UINT64_MAX // of a count of bytes; of other figures NAN. JSON has null

typedef enum rn_bench_outcome {
    RN_BENCH_SUCCESS,
    RN_BENCH_WRONG,     // it ran, and its outputs are far from the reference's
    RN_BENCH_REFUSED,   // it cannot be: over the budget, no such device or dtype
    RN_BENCH_FAILED,    // an error that the worker reports, or an exit code
    RN_BENCH_CRASHED,   // a signal
    RN_BENCH_KILLED,    // SIGKILL, and not by the memory limit
    RN_BENCH_NO_MEMORY, // its memory limit, or exit code 137
    RN_BENCH_TIMED_OUT,
    RN_BENCH_CANCELLED, // ended, or never begun, because the caller cancelled
    RN_BENCH_OUTCOME_COUNT
} rn_bench_outcome;
RN_API const char *rn_bench_outcome_name(rn_bench_outcome outcome); // "timed_out"

#define RN_BENCH_PROCESSES 64 // of a variant, at most

// Seconds of one run of the whole batch. Quantiles are exact up to 4096 samples, and within 1/1024
// of their value above; min, max, mean, total and the count are always exact.
typedef struct rn_bench_latency {
    uint64_t samples, warm_up; // runs that count, runs before them
    double min_s, p50_s, p90_s, p99_s, max_s, mean_s;
    double p50_low_s, p50_high_s; // 95 % confidence interval of the median, by order statistics
    double total_s;               // of the samples
    double loop_s;                // from the first one's begin to the last one's end
    bool steady;                  // warm-up ended because times no longer fell
    // Of several processes p50_s is the geometric mean of their medians, and its interval
    // Student's; the other times are those of the first process.
    uint64_t processes; // that measured it
    double between;     // standard deviation of the logarithms of their medians; NAN: one process
    // Of each process the time that one run in 20 does not exceed: what it takes undisturbed.
    // rn_bench_compare compares these. NAN behind the last.
    double floors_s[RN_BENCH_PROCESSES];
} rn_bench_latency;

// Of the ledger, on the host or on the device.
typedef struct rn_bench_memory {
    uint64_t planned_bytes, measured_bytes; // of what a plan decides; RN_BENCH_UNKNOWN
    uint64_t planned[RN_PURPOSE_COUNT], measured[RN_PURPOSE_COUNT]; // of these, by purpose
    uint64_t peak_bytes; // of the whole ledger of it, with what no plan decides
} rn_bench_memory;

// Against the reference's outputs.
typedef struct rn_bench_accuracy {
    char reference[64]; // the variant; "": not compared
    uint64_t values;
    double max_abs, max_rel; // max_rel: of |difference| / largest |reference|
    double cosine;
    double top1; // share of the batch whose largest value is at the same place
} rn_bench_accuracy;

// A line as llama-bench prints it.
typedef struct rn_bench_text {
    char test[32]; // "pp512", "tg128", "tg128 @ d4096"
    uint64_t tokens, depth;
    double tokens_per_s, tokens_per_s_low, tokens_per_s_high; // median and its interval
} rn_bench_text;
#define RN_BENCH_TEXTS 16

typedef struct rn_bench_failure {
    int32_t signal;    // 0: none
    int32_t exit_code; // -1: it did not exit by itself
    char status[24];   // "RN_OVER_BUDGET", where the worker reported one
    char stage[48];    // the last that it told
    char message[1024], hint[512];
    char log[4096]; // the last lines that it printed
} rn_bench_failure;

typedef struct rn_bench_result {
    char name[64];  // canonical: "cpu+int8"
    char asked[64]; // as it was asked for: "OPTIMUM_QUANTO_WI8"
    char engine[32], device[64], weights[32], activations[16], mode[64]; // what was really used
    char data_dtype[16];                                                 // of the first input
    uint64_t batch;                                                      // items of a run
    uint64_t budget_bytes;                                               // RN_BENCH_UNKNOWN: none
    uint64_t threads;
    rn_bench_outcome outcome;
    rn_bench_latency latency;
    double throughput;                 // items a second
    double load_s, compile_s, first_s; // opening with weights; of it compiling; the first run
    double elapsed_s;                  // of the worker, from its start to its end
    rn_bench_memory host, device_memory;
    uint64_t resident_peak_bytes; // of the worker's process, as the system counts
    uint64_t limit_bytes;         // of its memory; RN_BENCH_UNKNOWN: none
    uint64_t left_bytes;          // on the ledger behind the clean-up, above what was there before
    uint64_t read_bytes;          // from disk
    rn_bench_accuracy accuracy;
    double joules; // of a run
    char joules_source[32];
    double speedup, speedup_low, speedup_high; // baseline's median / this one's
    rn_bench_text texts[RN_BENCH_TEXTS];
    size_t text_count;
    rn_bench_failure failure;
    char command[2048]; // that measures this variant again, alone
} rn_bench_result;

typedef struct rn_bench_results {
    char model[512];
    uint64_t parameters;
    char baseline[64]; // that speed-ups are against; "": none
    char sweep[16];    // "budget", "batch"; "": none
    char tier[8];      // "1"; "": variants were named
    char version[32], date[40], machine[64], cpu[128], system[128];
    uint64_t threads; // as asked for, else the machine's
    uint64_t machine_bytes;
    double empty_s;         // median of a run of nothing: the harness's own part of each sample
    double elapsed_s;       // of all
    bool cancelled;         // not all variants were measured
    bool in_turns;          // by rn_bench_run_in_turns: process k beside the other side's process k
    rn_bench_result *items; // (count), in the order asked for
    size_t count;
} rn_bench_results;

// JSON, as docs/bench.md describes it: alma's keys (of both generations) and ours.
RN_API RN_MUST_USE rn_status rn_bench_results_write(const rn_bench_results *results, rn_sink sink);
// Reads such a file. Keys that are not known are passed over, figures that are missing are unknown.
// RN_NOT_FOUND, RN_CORRUPT with the offset.
RN_API RN_MUST_USE rn_status rn_bench_results_read(const char *path, rn_bench_results **out);
// NULL-safe.
RN_API void rn_bench_results_destroy(rn_bench_results *results);

// ---- variants -----------------------------------------------------------------------------------

// One that was understood. Canonical names are ENGINE[:DEVICE][+WEIGHTS][+aDTYPE][+MODE...]:
// "cpu", "cpu+int8", "cuda+bf16+graph", "xla:cpu+f32", "ort+O3", "eager".
typedef struct rn_bench_name {
    char name[64];
    char engine[32];  // "ration", "eager", "ort", "xla", "empty", "torch"
    char target[64];  // for rn_device_open: "cpu", "cuda:0", "xla:cpu"
    char weights[16]; // a dtype or quantised kind; "": as the model has them
    char activations[16];
    char mode[32]; // "graph", "O3", "compile"; "": the engine's own
} rn_bench_name;
// RN_NOT_FOUND names the nearest ones; RN_UNSUPPORTED: a name of alma's that has no meaning here,
// with the reason.
RN_API RN_MUST_USE rn_status rn_bench_name_parse(rn_str text, rn_bench_name *out);
// alma's names, one after the other; NULL behind the last. *out_meaning: a canonical name, or NULL
// with the reason in *out_reason. Its first 50 have alma's numbers, which rn_bench_name_parse
// takes, too.
RN_API const char *rn_bench_alias(size_t number, const char **out_meaning, const char **out_reason);

// The variants of a tier (1, 2, 3) that can run here: engines that are found, for one device
// ("": all). Writes up to `capacity` names, returns how many.
RN_API size_t rn_bench_tier(uint32_t tier, const char *device, bool is_text,
                            rn_bench_name *out_names, size_t capacity);

// ---- running ------------------------------------------------------------------------------------

typedef struct rn_bench_variant {
    const char *name;
    // A worker of its own: the words of a command, ended by NULL. NULL: ration's, and then the name
    // must be one that rn_bench_name_parse takes.
    const char *const *command;
    uint64_t batch;        // 0: options.batch
    uint64_t budget_bytes; // 0: options.budget_bytes
    uint64_t reserved[4];  // zero
} rn_bench_variant;

typedef struct rn_bench_progress {
    size_t index, count; // of the variants
    const char *name, *stage;
    uint64_t samples;
    double p50_s;                  // so far; NAN before the first sample
    double left_s;                 // about, for all that is to come
    bool ended;                    // this variant has its result:
    const rn_bench_result *result; // NULL while it runs
    bool is_before;                // rn_bench_run_in_turns: of the other side
} rn_bench_progress;

// {0} but for the model: adaptive samples, no limits but a minute and the machine's memory.
typedef struct rn_bench_options {
    const char *model;            // as `ration run` takes it; for results and ration's own worker
    const char *program;          // ration's own; NULL: this process's
    const char *const *arguments; // for ration's worker, ended by NULL: "--input", "x=x.npy"; NULL
    const char *baseline;         // a variant's name or number; NULL: the first
    const char *tier, *sweep;     // for the results; NULL
    uint64_t parameters;   // of the model, for document_samples and the results; 0: not known
    uint64_t batch;        // 0: 1
    uint64_t budget_bytes; // of each worker's process; 0: none
    uint64_t samples;      // 0: until the interval of the median is narrow, or time is over
    double interval;       // how narrow, as a share of the median; 0: 0.01
    double sample_s;       // for the samples of a variant; 0: 1
    double timeout_s;      // of a worker, all in; 0: 60
    uint64_t limit_bytes;  // of a worker's memory, by the system; 0: none
    uint32_t threads;      // 0: all
    bool without_binding;  // workers may run on any core
    bool document_samples; // by parameters: > 100 M 50, > 10 M 100, else 500
    const rn_flag *cancel; // may be NULL
    void *self;
    void (*progress)(void *self, const rn_bench_progress *progress); // may be NULL
    uint64_t
        processes; // of each variant, in turns with the others'; 0: 1, at most RN_BENCH_PROCESSES
    uint64_t reserved[3]; // zero
} rn_bench_options;

// RN_OK also where variants fail or it was cancelled: results say so. RN_NOT_FOUND, RN_UNSUPPORTED:
// a name that is not known, before anything runs. RN_INVALID; RN_NO_MEMORY; RN_IO.
RN_API RN_MUST_USE rn_status rn_bench_run(const rn_bench_variant *variants, size_t count,
                                          const rn_bench_options *options, rn_bench_results **out);

// The same variants of two models or of two programs: `before` and `options` differ in the model,
// the program or the arguments, all else is that of `options`. Processes of both sides take turns
// (before, now, now, before, ...), so a machine that grows slower while they run meets both alike;
// rn_bench_compare compares the two of each turn. At least RN_BENCH_TURNS processes a variant.
// RN_INVALID also where a variant has a command of its own.
#define RN_BENCH_TURNS 12 // fewer pairs have no interval of 99.95 %
RN_API RN_MUST_USE rn_status rn_bench_run_in_turns(const rn_bench_variant *variants, size_t count,
                                                   const rn_bench_options *before,
                                                   const rn_bench_options *options,
                                                   rn_bench_results **out_before,
                                                   rn_bench_results **out);

// ---- being a worker -----------------------------------------------------------------------------

// RATION_BENCH in the environment names the pipe and says how many samples are wanted. Without it
// (a worker started by hand) nothing is sent: rn_bench_worker_result has the figures.
typedef struct rn_bench_worker rn_bench_worker;
RN_API RN_MUST_USE rn_status rn_bench_worker_open(rn_bench_worker **out);
// "loading", "compiling", "warm_up", "measuring" ...: where it is, should it die.
RN_API void rn_bench_worker_stage(rn_bench_worker *worker, const char *stage);
// The nanoseconds of a run. True: another one is wanted. Warm-up is decided here, too: until times
// no longer fall, runs do not count.
RN_API bool rn_bench_worker_sample(rn_bench_worker *worker, double ns);
// Outputs of the last run, in order, in pieces of any length.
RN_API RN_MUST_USE rn_status rn_bench_worker_output(rn_bench_worker *worker, const float *values,
                                                    size_t count);
// Further figures: a JSON object with keys of a result ("load_s", "memory", "device" ...).
RN_API RN_MUST_USE rn_status rn_bench_worker_figures(rn_bench_worker *worker, const char *json);
// An error: of RN_OVER_BUDGET, RN_UNSUPPORTED, RN_NOT_FOUND and RN_DEVICE "refused" becomes of it.
RN_API void rn_bench_worker_fail(rn_bench_worker *worker, const rn_error_info *error);
// What it has found so far.
RN_API const rn_bench_result *rn_bench_worker_result(rn_bench_worker *worker);
// Sends the rest, and that this is the end; destroys it. NULL-safe.
RN_API RN_MUST_USE rn_status rn_bench_worker_close(rn_bench_worker *worker);

// ration's own worker: measures the model as the variant.
typedef struct rn_bench_work {
    const char *model, *variant;
    const char *weights;       // a builtin model's; NULL: made up
    const char *const *inputs; // (input_count): "NAME=FILE.npy"; others are made up
    size_t input_count;
    uint64_t batch, budget_bytes; // 0: 1; 0: none
    uint32_t threads;             // 0: all
    const rn_flag *cancel;        // may be NULL
    uint64_t reserved[4];         // zero
} rn_bench_work;
// What becomes of it goes to the worker: RN_OK unless that fails.
RN_API RN_MUST_USE rn_status rn_bench_worker_run(rn_bench_worker *worker,
                                                 const rn_bench_work *work);

RN_END_DECLS

#endif
