// train_log.h — the records of a training: a log of lines, an event file for TensorBoard, a page.
//
//     rn_train_log *log;
//     RN_TRY(rn_train_log_open("out", 0, &log));
//     RN_TRY(rn_train_log_add(log, &(rn_train_point){.step = 1, .loss = loss, ...}));
//     RN_TRY(rn_train_log_page(log, "a title", facts, fact_count));
//     rn_train_log_close(log);
//
// The folder gets log.jsonl (an object a line), events.out.tfevents.* (scalars by their names) and
// run.html, which needs no network. Memory does not grow with the steps: the page has up to 1,024
// points, evenly spread. One thread at a time.
#ifndef RATION_TRAIN_LOG_H
#define RATION_TRAIN_LOG_H

#include <ration/memory.h>

RN_BEGIN_DECLS

typedef struct rn_train_log rn_train_log;

typedef struct rn_train_point {
    uint64_t step;                        // from 1
    float loss;                           // NAN: the step was skipped
    float gradient_norm, validation_loss; // NAN: not known
    double rate, tokens_per_second;
    uint64_t memory_bytes; // on the ledger
} rn_train_point;

// from_step: the steps that are done already; what log.jsonl has of later ones is removed (they are
// done again). RN_IO, RN_CORRUPT: an earlier log that cannot be read.
RN_API RN_MUST_USE rn_status rn_train_log_open(const char *folder, uint64_t from_step,
                                               rn_train_log **out);
RN_API void rn_train_log_close(rn_train_log *log);
// A line and an event, on the disk before the call returns but for the system's cache.
RN_API RN_MUST_USE rn_status rn_train_log_add(rn_train_log *log, const rn_train_point *point);

// What a phase was planned to hold, and held, by purpose.
typedef struct rn_train_phase_fact {
    const char *name;
    uint64_t plan_bytes[RN_PURPOSE_COUNT], fact_bytes[RN_PURPOSE_COUNT];
} rn_train_phase_fact;

// Writes run.html: loss, rate, norm and speed as they went, and memory by phase and purpose.
RN_API RN_MUST_USE rn_status rn_train_log_page(const rn_train_log *log, const char *title,
                                               const rn_train_phase_fact *facts, size_t fact_count);

RN_END_DECLS

#endif
