// easy.h — text from a model in one call, within a memory budget.
//
//     static bool print(void *user, const char *text, size_t bytes) {
//         return fwrite(text, 1, bytes, user) == bytes;
//     }
//     ...
//     RN_TRY(rn_generate_text("models/llama-1b", NULL, "Once upon a time", print, stdout));
//
// Each call opens the model, divides the budget, plans, loads, generates and gives everything back.
// A program that asks often, or in parallel, keeps a model and a generator instead (model.h,
// generate.h), or runs a server (serve.h). One call at a time. Where this machine's rates are not
// known, they are measured for a tenth of a second and kept (calibrate.h).
#ifndef RATION_EASY_H
#define RATION_EASY_H

#include <ration/chat.h>
#include <ration/generate.h>

RN_BEGIN_DECLS

// {0}: on the CPU, greedy, until the model ends its text, within nine tenths of what is free.
typedef struct rn_easy_options {
    uint64_t budget_bytes;      // on the CPU: of the whole process; on a device with memory of its
                                // own: of that memory. 0: nine tenths of what is free
    uint64_t host_budget_bytes; // of the process, where the device has memory of its own; 0: as
                                // above
    const char *device;         // targets, the first choice first, as ladder.h says: "cuda,cpu";
                                // NULL: "cpu"
    uint32_t threads;           // of the CPU; 0: all
    uint32_t context;     // tokens of prompt and answer; 0: the smaller of the model's own and 4096
    uint32_t new_tokens;  // of the answer, at most; 0: as many as the context has room for
    rn_sampling sampling; // {0}: greedy
    const rn_str *stops;  // (stop_count): the answer ends before the first of these
    size_t stop_count;
    bool exact;            // no CPU share of a device's work, whose rounding differs
    const rn_flag *cancel; // ends the call with RN_CANCELLED; may be NULL
    rn_plan_summary *plan; // NULL, or what was planned goes here, before anything is loaded
    rn_answer *answer;     // NULL, or why the answer ended and its tokens go here
    uint64_t reserved[4];  // zero
} rn_easy_options;

// A piece of the answer, whole UTF-8 but not terminated. False: enough; the call then ends with
// RN_OK.
typedef bool (*rn_on_text)(void *user, const char *text, size_t bytes);

// Continues the prompt. `path` as in rn_model_open (NULL: the model that is part of the library);
// options may be NULL. RN_OVER_BUDGET: rn_last_refusal() names the smallest budget that works.
// RN_INVALID: the prompt is not UTF-8 or longer than the context. RN_NOT_FOUND: no such model, or
// one without a tokenizer.
RN_API RN_MUST_USE rn_status rn_generate_text(const char *path, const rn_easy_options *options,
                                              const char *prompt, rn_on_text on_text, void *user);
// Answers a conversation, written with the model's own chat template. RN_NOT_FOUND: it has none.
RN_API RN_MUST_USE rn_status rn_generate_chat(const char *path, const rn_easy_options *options,
                                              const rn_chat_message *messages, size_t count,
                                              rn_on_text on_text, void *user);
// What rn_generate_text would hold and how long it would take; nothing is loaded. The same
// failures.
RN_API RN_MUST_USE rn_status rn_plan_text(const char *path, const rn_easy_options *options,
                                          rn_plan_summary *out);

RN_END_DECLS

#endif
