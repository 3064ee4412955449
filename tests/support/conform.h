// conform.h — what an op means, as a table of small graphs, and what can be asked of each.
//
// A row builds a graph around one op. From the table come four questions:
//   - is there a row for every op;
//   - does a back end's kernel give what the reference loop gives (conform_kernels);
//   - does a row of a batch come out the same alone (conform_alone);
//   - is the gradient the slope (conform_slopes).
// The questions return false and say why, so that a test can ask whether they notice a fault.
#ifndef RN_TEST_CONFORM_H
#define RN_TEST_CONFORM_H

#include "device/kernel.h"
#include "evaluate.h"

// ---- the table ----------------------------------------------------------------------------------

typedef struct conform_case conform_case;

typedef struct conform_row {
    rn_op op;         // the graph has a node of it
    const char *what; // "batches broadcast"
    void (*build)(conform_case *c);
    rn_shape shapes[4]; // of the inputs, as `build` reads them
    uint64_t rows;      // RN_ROWS stands for this
    float low, high;    // the inputs' range
    rn_dtype dtype;     // of a weight or result, where `build` asks for one
    const void *attrs;  // the op's
    int variant;        // whatever else `build` asks for
    union {
        rn_value (*unary)(rn_graph *, rn_value);
        rn_value (*binary)(rn_graph *, rn_value, rn_value);
    };
    bool bits;    // kernels equal the reference to the bit, whatever the op's tolerance
    bool mixed;   // rows depend on each other, whatever the op's fact
    bool stairs;  // the op rounds its input: its slope can only be seen from afar
    bool partial; // a back end's kernel may refuse it
} conform_row;

typedef struct conform_table {
    const conform_row *rows;
    size_t count;
} conform_table;

extern const conform_table conform_elementwise, conform_rows, conform_products, conform_attention,
    conform_fused, conform_reductions, conform_moves, conform_training, conform_any, conform_images;
// The tables above; ends with NULL.
extern const conform_table *const conform_tables[];

// What is true of an op in all its rows.
typedef struct conform_fact {
    float tolerance; // of kernels against the reference; 0: the same bits
    float absolute;  // what is allowed beside it, where terms of size 1 cancel
    bool row_wise;   // used in inference: a row's result depends on that row alone
} conform_fact;
extern const conform_fact conform_same; // the same bits
extern const conform_fact conform_facts[RN_OP_COUNT];

// ---- building a row -----------------------------------------------------------------------------

typedef enum conform_fill {
    CONFORM_UNIFORM, // in [low, high)
    CONFORM_APART,   // any two differ by 0.08 or more and none is within 0.04 of 0 or +-1: no kink
    CONFORM_WHOLE,   // i32 in [low, high)
    CONFORM_LIST     // i32, given
} conform_fill;

typedef struct conform_input {
    rn_value value;
    conform_fill fill;
    float low, high;
    const int32_t *list;
    bool wanted; // a gradient is asked for
    rn_value gradient;
} conform_input;

enum { CONFORM_INPUTS = 12, CONFORM_OUTPUTS = 4 };

struct conform_case {
    const conform_row *row;
    rn_graph *graph;
    conform_input inputs[CONFORM_INPUTS];
    rn_value outputs[CONFORM_OUTPUTS], factors[CONFORM_OUTPUTS];
    uint32_t input_count, output_count;
    rn_scalar scalars[RN_MAX_SCALARS];
};

// For `build`: inputs with a gradient, inputs without, weights, states, indices; and the results.
rn_value conform_x(conform_case *c, rn_shape shape); // in the row's range
rn_value conform_in(conform_case *c, rn_shape shape, float low, float high);
rn_value conform_apart(conform_case *c, rn_shape shape);
rn_value conform_fixed(conform_case *c, rn_dtype dtype, rn_shape shape, float low, float high);
// An f32 weight has a gradient, others have none. dtype NONE: f32.
rn_value conform_weight(conform_case *c, rn_dtype dtype, rn_shape shape, float low, float high);
rn_value conform_state(conform_case *c, rn_dtype dtype, rn_shape shape, float low, float high);
rn_value conform_whole(conform_case *c, rn_shape shape, int32_t low, int32_t high);
rn_value conform_list(conform_case *c, rn_shape shape, const int32_t *list);
uint32_t conform_scalar(conform_case *c, const char *name, rn_scalar value);
void conform_result(conform_case *c, rn_value value);

// Builds the row's graph; with `backward` also loss = sum of factor * result over all results and
// the gradients of all wanted inputs.
void conform_open(conform_case *c, const conform_row *row, bool backward);
void conform_close(conform_case *c);
// Opens a run of it with `rows`, every input filled; the same numbers every time.
void conform_run_open(const conform_case *c, uint64_t rows, test_run *run);
// Whether gradients can be asked of it: the op has a rule and an input is wanted.
bool conform_differentiable(const conform_row *row);

// ---- the questions ------------------------------------------------------------------------------

typedef struct conform_why {
    char text[512];
} conform_why;

// A back end's kernels and the ways to run them.
typedef struct conform_target {
    const rn_kernel *kernels; // (RN_OP_COUNT)
    // As in rn_device_caps; NULL: weights stay plain.
    rn_layout (*weight_layout)(const rn_call *call, uint32_t input);
    rn_workers *workers;
    uint32_t threads;
    uint64_t missing[RN_OP_COUNT]; // counts nodes that had no kernel
} conform_target;

// Every node of the row's graph, forward and backward, by the target's kernel and by the reference,
// from the same inputs: results within the op's tolerance; nothing else written, neither inputs nor
// around any tensor or the workspace of exactly the bytes asked for; the same again in place, where
// the op may work in place, and without the results that nobody reads.
bool conform_kernels(const conform_row *row, conform_target *target, conform_why *why);
// Nodes of row-wise ops: the first and the last row alone have the bits they have with the others.
bool conform_alone(const conform_row *row, conform_target *target, conform_why *why);
// The gradients of the wanted inputs against central differences, by the reference loops.
// `spoil` is called with the gradients before they are looked at; NULL: as they are.
bool conform_slopes(const conform_row *row, void (*spoil)(test_run *run, const conform_case *c),
                    conform_why *why);

#endif
