// job_choice.c — a job's choices: memory that is there before any of them begins.
#include "server/job_choice.h"

#include "memory/account.h"

size_t rn_choices_bytes(const rn_request *request) {
    // A stopper: its own structure with what it holds back, a table, the strings.
    enum { STOPPER_BYTES = 512 };
    size_t each = sizeof(rn_choice) + (request->tools.bytes ? sizeof(rn_tool_reader) : 0);
    if (request->stop_count) each += STOPPER_BYTES;
    for (size_t i = 0; i < request->stop_count; i++)
        each += sizeof(rn_str) + request->stops[i].bytes;
    return request->prompt_count * request->n * each;
}

rn_status rn_choices_create(rn_job *job, const rn_tokenizer *tokenizer) {
    const rn_request *request = &job->request;
    void *block = NULL;
    uint32_t count = (uint32_t)request->prompt_count * request->n;
    RN_TRY(rn_alloc_zeroed(RN_HOST_IO, count, sizeof(rn_choice), &block));
    job->choices = block;
    job->choice_count = count;
    for (uint32_t i = 0; i < count; i++) {
        rn_choice *choice = &job->choices[i];
        rn_decoder_begin(&choice->decoder, tokenizer, false);
        choice->decoder.started = true; // the prompt stands before
        if (request->stop_count)
            RN_TRY(rn_stopper_create(request->stops, request->stop_count, &choice->stopper));
    }
    return RN_OK;
}

size_t rn_choices_constraint_bytes(const rn_request *request, const rn_vocabulary *vocabulary,
                                   size_t schema_bytes) {
    size_t count = request->prompt_count * request->n;
    return rn_constraint_bytes(vocabulary, schema_bytes) +
           (count - 1) * rn_constraint_bytes(vocabulary, 0);
}

rn_status rn_choices_constrain(rn_job *job, rn_vocabulary *vocabulary, rn_str schema) {
    RN_TRY(rn_constraint_create(vocabulary, schema, &job->choices[0].constraint));
    for (uint32_t i = 1; i < job->choice_count; i++)
        RN_TRY(rn_constraint_clone(job->choices[0].constraint, &job->choices[i].constraint));
    return RN_OK;
}

rn_status rn_choices_read_tools(rn_job *job, rn_tool_form form, bool inside) {
    for (uint32_t i = 0; i < job->choice_count; i++) {
        void *block = NULL;
        RN_TRY(rn_alloc_zeroed(RN_HOST_IO, 1, sizeof(rn_tool_reader), &block));
        job->choices[i].tools = block;
        RN_TRY(rn_tool_reader_init(job->choices[i].tools, form, inside));
    }
    return RN_OK;
}

void rn_choices_free(rn_job *job) {
    for (uint32_t i = 0; i < job->choice_count; i++) {
        rn_stopper_destroy(job->choices[i].stopper);
        rn_constraint_destroy(job->choices[i].constraint);
        if (job->choices[i].tools) rn_tool_reader_free(job->choices[i].tools);
        rn_free(RN_HOST_IO, job->choices[i].tools, sizeof(rn_tool_reader));
    }
    rn_free(RN_HOST_IO, job->choices, job->choice_count * sizeof(rn_choice));
    job->choices = NULL;
    job->choice_count = 0;
}
