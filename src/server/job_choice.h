// job_choice.h — one of a job's answers while it is being made. One thread's at a time.
#ifndef RN_SERVER_JOB_CHOICE_H
#define RN_SERVER_JOB_CHOICE_H

#include "server/job.h"
#include "text/tool_calls.h"

// Where a job is.
typedef enum rn_job_place {
    RN_PLACE_NONE, // not entered, or ended
    RN_PLACE_INTAKE,
    RN_PLACE_QUEUE,
    RN_PLACE_RUNNING
} rn_job_place;

typedef struct rn_choice {
    rn_sequence *sequence; // NULL before it is admitted, and once it has ended
    rn_decoder decoder;
    rn_stopper *stopper;       // NULL: the request has no stop strings
    rn_constraint *constraint; // NULL: any text will do
    rn_tool_reader *tools;     // NULL: there are none
    bool stopped, ended;
    uint32_t tokens;  // made so far, without the end token
    uint64_t last_ns; // when the last one came; 0: none yet
} rn_choice;

// Memory for all choices of the job, their stop strings included. RN_INVALID names a stop string.
RN_MUST_USE rn_status rn_choices_create(rn_job *job, const rn_tokenizer *tokenizer);
// The answers must be JSON by this schema; {0}: any object. RN_INVALID, RN_UNSUPPORTED: the schema.
RN_MUST_USE rn_status rn_choices_constrain(rn_job *job, rn_vocabulary *vocabulary, rn_str schema);
// What that takes.
size_t rn_choices_constraint_bytes(const rn_request *request, const rn_vocabulary *vocabulary,
                                   size_t schema_bytes);
// Calls of tools are read from the answers. Beside rn_choices_bytes it takes RN_TOOL_HELD_BYTES
// each.
RN_MUST_USE rn_status rn_choices_read_tools(rn_job *job, rn_tool_form form, bool inside);
// No sequence may be left. Safe where there are none.
void rn_choices_free(rn_job *job);
// What they take.
size_t rn_choices_bytes(const rn_request *request);

#endif
