// text_run.h — a text model by a plan and a session, one sequence, for tests.
//
//     text_run *run = text_run_open("model", NULL, &(rn_text_options){.rows = 8});
//     text_run_logits(run, tokens, count, logits);
//     text_run_close(run);
#ifndef RN_TEST_TEXT_RUN_H
#define RN_TEST_TEXT_RUN_H

#include <ration/model.h>

#include "generate/generate.h"
#include "support.h"

typedef struct text_run {
    rn_model *model; // NULL: it was made
    rn_plan *plan;
    rn_session *session;
    uint32_t vocab, rows; // rows: of a run, each with its logits
    int32_t *pages;
    size_t page_count;
    uint32_t position; // tokens so far
    float *logits;     // (rows, vocab)
} text_run;

// Without the tokenizer. `text`: rows is taken as logit_rows, too; the KV cache is f32 unless it
// says otherwise. Fails the test where something does not work.
text_run *text_run_open(const char *path, const rn_model_options *options,
                        const rn_text_options *text);
// The same within a budget for what the plan holds; 0: none.
text_run *text_run_open_within(const char *path, const rn_model_options *options,
                               const rn_text_options *text, uint64_t budget_bytes);
// The same on a device; NULL: the CPU.
text_run *text_run_open_on(rn_device *device, const char *path, const rn_model_options *options,
                           const rn_text_options *text, uint64_t budget_bytes);
// The same of a model that somebody else makes and outlives it.
text_run *text_run_open_made(rn_device *device, const rn_text_maker *maker,
                             const rn_text_options *text, uint64_t budget_bytes);
// The same with all that a plan and a session may be asked for; the session's device is the CPU.
text_run *text_run_open_planned(const char *path, const rn_text_options *text,
                                const rn_plan_options *plan, const rn_session_options *session);
void text_run_close(text_run *run);
// The logits behind each of the tokens, which follow those so far. out (count, vocab).
void text_run_logits(text_run *run, const int32_t *tokens, size_t count, float *out);

// The largest difference of two tables of logits.
double text_run_difference(const float *a, const float *b, size_t count);
// The largest difference of a model's logits from the tensor `which` of the golden.safetensors in
// `folder`, which scripts/reference/text_models.py made.
double text_run_measure(const char *path, const char *folder, const char *which,
                        const rn_model_options *options);
// The same of the logits of the folder's own model on a device; NULL: the CPU.
double text_run_measure_on(rn_device *device, const char *folder);
// 200 likeliest tokens of the model at `path`, one at a time, on a device and on the CPU, which
// must be the same: the largest difference of their logits.
double text_run_story(rn_device *device, const char *path);
int32_t text_run_best(const float *logits, size_t vocab);

#endif
