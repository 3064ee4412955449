// export.h — what the exports share: a buffered output, names that are safe to write, and a walk
// over every allocation and release in order.
//
//     rn_timeline ──▶ export_json*.c, export_chrome.c, export_torch.c, ... ──▶ rn_out ──▶ sink
//
// An export holds memory for what it has to look up (a few bytes an allocation or operation), never
// a picture of its output: that goes through one buffer of RN_OUT_BYTES.
#ifndef RN_PROFILE_EXPORT_H
#define RN_PROFILE_EXPORT_H

#include "base/arena.h"
#include "base/json.h"
#include "base/str.h"
#include "profile/timeline.h"

// Each writes the whole form. The status is the sink's, or RN_NO_MEMORY or RN_OVER_BUDGET.
RN_MUST_USE rn_status rn_export_json(const rn_timeline *t, rn_sink sink);
RN_MUST_USE rn_status rn_export_chrome(const rn_timeline *t, rn_sink sink);
RN_MUST_USE rn_status rn_export_torch(const rn_timeline *t, rn_sink sink);
RN_MUST_USE rn_status rn_export_csv(const rn_timeline *t, rn_sink sink);
RN_MUST_USE rn_status rn_export_prometheus(const rn_timeline *t, rn_sink sink);
RN_MUST_USE rn_status rn_export_pprof(const rn_timeline *t, rn_sink sink);

// ---- output (export_out.c) ----------------------------------------------------------------------

#define RN_OUT_BYTES ((size_t)64 << 10)

// Collects small pieces and hands them to the sink in large ones. The first failure is remembered,
// and what comes after it is dropped.
typedef struct rn_out {
    rn_sink sink;
    rn_status status;
    char *data; // (RN_OUT_BYTES)
    size_t bytes;
} rn_out;

RN_MUST_USE rn_status rn_out_open(rn_out *out, rn_sink sink);
// Writes what is left, frees the buffer, and returns the first failure.
RN_MUST_USE rn_status rn_out_close(rn_out *out);
// At least `bytes` (not more than RN_OUT_BYTES) of the buffer, to be filled in place; what was
// filled is added to out->bytes.
char *rn_out_room(rn_out *out, size_t bytes);
void rn_out_put_large(rn_out *out, const void *data, size_t bytes);
// Inline, because most pieces are a few bytes of a known length.
static inline void rn_out_put(rn_out *out, const void *data, size_t bytes) {
    if (bytes > RN_OUT_BYTES - out->bytes) {
        rn_out_put_large(out, data, bytes);
        return;
    }
    if (bytes) memcpy(out->data + out->bytes, data, bytes);
    out->bytes += bytes;
}
void rn_out_text(rn_out *out, const char *text);
void rn_out_u64(rn_out *out, uint64_t value);
void rn_out_i64(rn_out *out, int64_t value);
// A JSON string with its quotes; `text` is valid UTF-8.
void rn_out_quoted(rn_out *out, rn_str text);
// The same output as a sink, for an rn_json.
rn_sink rn_out_sink(rn_out *out);

// ---- names (export_names.c) ---------------------------------------------------------------------

// The timeline's texts with their lengths, as valid UTF-8: bytes that are not become U+FFFD.
typedef struct rn_export_label {
    rn_str name, group, detail;
} rn_export_label;

typedef struct rn_export_names {
    rn_arena arena;
    rn_export_label *names;        // (name_count)
    rn_str *lanes;                 // (lane_count)
    rn_str devices[RN_DEVICE_MAX]; // (device_count)
} rn_export_names;

RN_MUST_USE rn_status rn_export_names_make(const rn_timeline *t, rn_export_names *out);
void rn_export_names_free(rn_export_names *names);
// `text` where it is valid, else a copy in the arena that is.
RN_MUST_USE rn_status rn_export_clean(rn_arena *arena, const char *text, rn_str *out);

// What an allocation is called: its name, else its purpose's.
rn_str rn_export_alloc_name(const rn_export_names *names, const rn_timeline_alloc *alloc);
// What an operation is called: its name, else "(unnamed)".
rn_str rn_export_op_name(const rn_export_names *names, const rn_timeline_op *op);

// A dtype and a shape out of a name's detail: "f32 [4096, 1024]". The axis "rows" of a graph, which
// has another length in every run, is -1.
#define RN_SHAPE_DIMS 16
typedef struct rn_export_shape {
    rn_str dtype;
    int64_t dims[RN_SHAPE_DIMS]; // (count)
    size_t count;
} rn_export_shape;
// The next one of "f16 [64, 64] x f32 [rows, 64]" or "[[64, 64], [1, 64]]", taken off *rest; false
// where there is none (left). What is not a list of whole numbers is passed over.
bool rn_export_shape_next(rn_str *rest, rn_export_shape *out);
// The same with the rows of one invocation, where they are known (not 0).
void rn_export_shape_bind(rn_export_shape *shape, uint32_t rows);
// What an operation makes, "f32 [rows, 64]" of "f16 [64, 64] x f32 [rows, 64] -> f32 [rows, 64]",
// taken off the end of *detail; empty where it is not said.
rn_str rn_export_take_outputs(rn_str *detail);

// Whether its bytes are in use: a part, or a block that has none.
static inline bool rn_is_in_use(const rn_timeline_alloc *alloc) {
    return alloc->inner || !alloc->is_arena;
}

// ---- changes (export_walk.c) --------------------------------------------------------------------

// Every allocation and every release that was seen, in the order of time. At equal times releases
// come first, parts before their blocks; what has begun and ended at the same moment ends directly
// after it has begun.
typedef struct rn_change {
    uint64_t time_ns;
    uint32_t alloc; // index
    bool is_end;
} rn_change;

typedef struct rn_change_walk {
    const rn_timeline *timeline;
    const uint32_t *by_end;
    uint32_t next_begin;
    uint32_t run_begin, run_end; // of by_end: the releases of one moment
    uint32_t at;                 // in the run
    int pass;                    // 0: all but arenas, 1: arenas, 2: the run is done
    bool instant;                // the last one is over already
} rn_change_walk;

void rn_change_walk_begin(rn_change_walk *walk, const rn_timeline *t);
bool rn_change_walk_next(rn_change_walk *walk, rn_change *out);

// ---- tensors of operations (export_operands.c) --------------------------------------------------

// One tensor that an operation reads or makes; see session_profile.c for the text.
typedef struct rn_export_operand {
    rn_str name;
    rn_export_shape shape;
    uint64_t address; // where the block or part begins in which it lies; 0: nowhere
    uint64_t bytes;   // 0: its dtype or shape is not one of ours
    bool is_made;     // else it is read
} rn_export_operand;
// The next one of an operation's operands, taken off *rest; false where there is none (left). Lines
// that are no tensor's are passed over.
bool rn_export_operand_next(rn_str *rest, uint32_t rows, rn_export_operand *out);

// Which block or part lies at an address, operation by operation.
typedef struct rn_live_places {
    const rn_timeline *timeline;
    rn_change_walk walk;
    rn_change change; // the next one
    bool has_change;
    uint32_t op, next_alloc; // the first that begins not before it
    uint32_t *rank;          // (alloc_count): of its address among `addresses`
    uint64_t *places;        // (place_count), rising
    uint32_t *live;          // (place_count): what begins there now, or RN_NO_INDEX
    uint32_t place_count;
} rn_live_places;
RN_MUST_USE rn_status rn_live_places_begin(rn_live_places *places, rn_arena *arena,
                                           const rn_timeline *t);
// Goes on to an operation; none may begin before the last one did.
void rn_live_places_go(rn_live_places *places, uint32_t op);
// The allocation at this address: one that the operation made itself, else one that was there when
// it began; RN_NO_INDEX where there is none.
uint32_t rn_live_places_at(const rn_live_places *places, uint64_t address);

#endif
