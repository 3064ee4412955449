// rates.h — what measuring and keeping rates share.
//
//     rates.c         the CPU and the disk        rates_drill.c   calls, only to be timed
//     rates_device.c  a device of its own memory  rates_attend.c  attention, for the same
//     rates_link.c    the link between the two, and what each has while the other is at work
//     rates_compiled.c  a device that compiles
//     rates_file.c, rates_use.c   keeping and using
//     rates_quick.c   a tenth of a second, where nothing is kept
#ifndef RN_RUNTIME_RATES_H
#define RN_RUNTIME_RATES_H

#include <ration/calibrate.h>

#include "device/registry.h"

// Makes the folders on the way to a file.
RN_MUST_USE rn_status rn_rates_make_folders(const char *path);

// As a file keeps them: whole numbers. So plans made before and after are the same.
void rn_rates_round(rn_rates *rates);

// ---- what plans for the CPU count with (rates_use.c) --------------------------------------------

// From here on; `device`, the CPU's or NULL, was made before.
void rn_rates_use_cpu(const rn_rates *rates, rn_device *device);
// Whether a short measurement would add something: all, or with a disk at hand only that.
// *out_known is what it need not measure again, 0 where it must.
bool rn_rates_are_wanted(bool has_disk, rn_device_rates *out_known);

// ---- timing (rates.c) ---------------------------------------------------------------------------

// RN_CANCELLED where somebody asked for it.
RN_MUST_USE rn_status rn_rates_check(const rn_rates_options *options);
// Says what is measured next. RN_CANCELLED.
RN_MUST_USE rn_status rn_rates_tell(const rn_rates_options *options, const char *what);
// The least time that `work` takes: the others were disturbed. RN_CANCELLED.
RN_MUST_USE rn_status rn_rates_time(const rn_rates_options *options, rn_status (*work)(void *self),
                                    void *self, double *out_seconds);

// ---- calls on a device (rates_drill.c, rates_attend.c) ------------------------------------------

enum { RN_DRILL_CALLS = 16, RN_DRILL_TENSORS = 9, RN_DRILL_WEIGHTS = 2 };

typedef struct rn_drill_call {
    rn_tensor tensors[RN_DRILL_TENSORS]; // inputs, then outputs; what is no weight is everybody's
    uint32_t weights[RN_DRILL_WEIGHTS];  // (weight_count): inputs
    uint32_t weight_count;
    rn_call call;
} rn_drill_call;

// Calls with weights of random numbers (zeros would be multiplied faster). Points into itself: not
// to be copied.
typedef struct rn_drill {
    rn_device *device;
    rn_queue *queue;
    rn_device_memory memory;
    rn_drill_call calls[RN_DRILL_CALLS]; // (count), launched in turn
    uint32_t count;
    // Of a timing.
    rn_recording *recording; // NULL: the queue cannot
    uint32_t launches, passes;
} rn_drill;

// Products of one dtype and one number of rows: y (rows, n) = x (rows, k) wT, w (n, k) in the
// device's layout.
typedef struct rn_drill_kind {
    uint64_t rows, k;
    rn_dtype dtype;
    uint64_t n[2];  // of products with even and with odd numbers
    uint32_t count; // at most RN_DRILL_CALLS
    bool fused;     // as a model has them: even ones with a residual, odd ones with norm and gate
} rn_drill_kind;

// RN_INVALID: no such weights. rn_drill_end in any case.
RN_MUST_USE rn_status rn_drill_begin(rn_drill *drill, rn_device *device, rn_queue *queue,
                                     const rn_drill_kind *kind);

// One ATTEND: the last rows of a sequence of so many keys, whose pages are full.
typedef struct rn_drill_attention {
    uint64_t rows, keys; // rows <= keys; keys in whole pages
    uint64_t heads, kv_heads, head_dim;
} rn_drill_attention;
enum { RN_DRILL_PAGE = 64 }; // tokens
RN_MUST_USE rn_status rn_drill_begin_attention(rn_drill *drill, rn_device *device, rn_queue *queue,
                                               const rn_drill_attention *kind);

// So many launches, the calls in turn.
void rn_drill_launch(const rn_drill *drill, uint32_t launches);
// Seconds of so many launches behind each other, repeated until `least_seconds` have passed.
RN_MUST_USE rn_status rn_drill_time(rn_drill *drill, const rn_rates_options *options,
                                    uint32_t launches, double least_seconds, double *out_seconds);
void rn_drill_end(rn_drill *drill);

// Random numbers within -1 and 1, the same ones every time.
void rn_drill_fill(float *target, uint64_t count);
// For those who write drills: what is to lie at w->data, at `target`, of random numbers. `numbers`
// has RN_DRILL_NUMBERS bytes.
RN_MUST_USE rn_status rn_drill_pack(const rn_tensor *w, rn_workers *workers, void *numbers,
                                    uint8_t *target);
// Copies it to w->data from host memory that the device took.
RN_MUST_USE rn_status rn_drill_bring(const rn_drill *drill, const rn_tensor *w, const void *host);
enum { RN_DRILL_PATTERN = 32 * 2039, RN_DRILL_NUMBERS = 2 * RN_DRILL_PATTERN * sizeof(float) };

// ---- a device (rates_device.c) ------------------------------------------------------------------

// What plans count that all calls take, each once.
double rn_drill_predict(const rn_drill *drill, const rn_device_caps *caps);
// Finds the rate, one of *caps, with which it says `seconds`; at most 1e18.
void rn_drill_fit(const rn_drill *drill, double seconds, rn_device_caps *caps, double *rate);

// What is measured, by how much: none but `seconds` may be 0.
typedef struct rn_rates_sizes {
    uint64_t prompt_rows;
    uint64_t narrow, wide, k; // weights are (narrow, k) and (wide, k)
    uint32_t weights;         // wide ones, together more than any cache; at most RN_DRILL_CALLS
    uint32_t steps;           // tiny ones
    uint32_t runs;            // of a tiny step, each waited for
    uint64_t heads, kv_heads, head_dim, keys; // of attention; keys: more than prompt_rows
    uint64_t link_bytes, piece_bytes;         // copied, in pieces
    double seconds;                           // of one timing, at least
} rn_rates_sizes;

extern const rn_rates_sizes rn_rates_usual;

// The CPU's drill for its memory: products of one row with weights of f16, in its layout and in
// huge pages where there are any, of a model's sizes; 1 GiB of them, or what half of the free
// memory holds, so that no cache has them when their turn comes again. As rn_drill_begin.
RN_MUST_USE rn_status rn_drill_begin_memory(rn_drill *drill, rn_device *host, rn_queue *queue,
                                            const rn_rates_sizes *sizes);
uint64_t rn_drill_weight_bytes(const rn_drill *drill);

RN_MUST_USE rn_status rn_rates_measure_sized(rn_device *device, const rn_rates_sizes *sizes,
                                             const rn_rates_options *options, rn_rates *rates);

// A device that compiles (rates_compiled.c): the rates of *caps.
RN_MUST_USE rn_status rn_rates_measure_compiled(rn_device *device, const rn_rates_sizes *sizes,
                                                const rn_rates_options *options,
                                                rn_device_caps *caps);

// ---- the link from the host (rates_link.c) ------------------------------------------------------

typedef struct rn_link_rates {
    double bytes_second; // alone
    // While the CPU computes and the link copies: what each has of its speed alone. 0.1 to 1.
    double host_share, link_share;
} rn_link_rates;

RN_MUST_USE rn_status rn_rates_measure_link(rn_device *device, rn_device *host,
                                            const rn_rates_sizes *sizes,
                                            const rn_rates_options *options, rn_link_rates *out);

// A drill of the CPU's, with and without copies beside it that never end before it does.
typedef struct rn_beside {
    const rn_drill *drill;
    rn_queue *copies; // the device's
    uint8_t *device;  // (bytes)
    const uint8_t *host;
    uint64_t bytes, piece_bytes; // copied in pieces, from end to end again and again
    double seconds;              // of one timing, at least
    uint64_t (*now)(void);       // nanoseconds
} rn_beside;

// `rates` have bytes_second; finds the shares. RN_CANCELLED, and what the queues say.
RN_MUST_USE rn_status rn_beside_measure(const rn_beside *beside, const rn_rates_options *options,
                                        rn_link_rates *rates);

#endif
