// golden.h — a model against what PyTorch made of it: outputs, loss, gradients, three AdamW steps.
//
//     golden *g = golden_open("mlp");
//     golden_check_training(g, &recipe, &golden_eager);
//     golden_close(g);
//
// The files and their format are made by scripts/reference/*_golden.py. *How* a recipe is run is a
// golden_runner, so that one comparison serves the eager executor and every plan.
#ifndef RN_TEST_GOLDEN_H
#define RN_TEST_GOLDEN_H

#include <ration/session.h>

#include "support.h"

typedef struct golden golden;

// tests/golden/<name>_golden.safetensors. Fails the test where it is missing.
golden *golden_open(const char *name);
void golden_close(golden *g);
// A tensor that both sides make from the same random numbers (random/NAME) or that the file holds
// (input/NAME); NULL where it has neither. Valid until golden_close.
const void *golden_tensor(golden *g, const char *name, uint64_t bytes);
// Every weight by its name, for sessions. `self` is the golden.
rn_weight_source golden_weights(golden *g);
typedef struct golden_adamw {
    double rate, eps, weight_decay;
} golden_adamw;
golden_adamw golden_get_adamw(golden *g);

// ---- ways to run --------------------------------------------------------------------------------

typedef struct golden_runner {
    const char *name;
    double tightness; // of a plan's budget: 0 the roomiest, 1 the smallest that works
    bool exact;       // no micro-batches
    // Builds the recipe and sets its weights. `rows` is what each run brings; 0 without RN_ROWS.
    rn_status (*begin)(const struct golden_runner *self, const rn_recipe *recipe,
                       const rn_weight_source *weights, uint64_t rows, void **out);
    // `data` is needed until the run.
    rn_status (*set)(void *run, const char *input, const void *data, uint64_t bytes);
    rn_status (*set_scalar)(void *run, const char *name, double value);
    rn_status (*put)(void *run, const char *state, const void *data, uint64_t bytes);
    rn_status (*run)(void *run);
    // An output, a weight or a state.
    rn_status (*get)(void *run, const char *name, void *data, uint64_t bytes);
    uint32_t (*cut)(const void *run); // into how many micro-batches
    void (*end)(void *run);
} golden_runner;

// Node by node, with the CPU's kernels.
extern const golden_runner golden_eager;
// By a plan: with all the memory it likes; with the least; with the least and micro-batches.
extern const golden_runner golden_roomy, golden_tight, golden_cut;

// ---- comparing ----------------------------------------------------------------------------------

typedef struct golden_input {
    const char *name;
    const void *data;
    uint64_t bytes;
} golden_input;

// One run of an inference graph: inputs from the file, or from `more`, which comes first.
// Each output must be within 1e-5 by norm of PyTorch's.
void golden_check_inference(golden *g, const rn_recipe *recipe, const golden_runner *runner,
                            uint64_t rows, const golden_input *more, size_t more_count);

// Three steps of a training graph that is watched (rn_train_options.watch). By norm, in the first
// within 1e-5: logits (without micro-batches), loss, every gradient, every running statistic; after
// the third within 1e-3: every weight's update, because AdamW divides gradients by their size, and
// with them their rounding; so the later losses, too. A gradient that is 0 but for rounding is held
// against 1e-5 of what cancels in it.
void golden_check_training(golden *g, const rn_recipe *recipe, const golden_runner *runner);

#endif
