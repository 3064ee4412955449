// engine_take.c — tokens become text, and text becomes pieces.
//
//     token ─▶ decoder (whole characters) ─▶ stopper (nothing of a stop string) ─▶ piece
//
// A token is taken only where its piece, and the last one of its choice, have room in the outbox.
// A stream whose reader is slow is left alone: its sequence makes no more until it is taken from.
#include "server/engine_parts.h"

#include "base/checked.h"
#include "base/clock.h"

// ---- text ---------------------------------------------------------------------------------------

typedef struct writing {
    rn_engine *engine;
    rn_choice *choice;
} writing;

static rn_status put_text(void *self, const char *text, size_t bytes) {
    writing *w = self;
    rn_choice *choice = w->choice;
    if (choice->stopped) return RN_OK;
    if (!choice->stopper) return rn_buffer_append(&w->engine->text, text, bytes);
    return rn_stopper_put(choice->stopper, (rn_str){text, bytes}, rn_buffer_sink(&w->engine->text),
                          &choice->stopped);
}

// The text that becomes certain with a token lies in engine->text.
static rn_status decode(rn_engine *e, rn_choice *choice, uint32_t token) {
    writing w = {e, choice};
    e->text.bytes = 0;
    return rn_decoder_put(&choice->decoder, token, (rn_sink){&w, put_text});
}

// What was held back.
static rn_status flush(rn_engine *e, rn_choice *choice) {
    writing w = {e, choice};
    e->text.bytes = 0;
    RN_TRY(rn_decoder_end(&choice->decoder, (rn_sink){&w, put_text}));
    if (choice->stopped || !choice->stopper) return RN_OK;
    return rn_stopper_flush(choice->stopper, rn_buffer_sink(&e->text));
}

// ---- pieces -------------------------------------------------------------------------------------

static rn_status put(rn_job *job, const rn_piece *piece) {
    if (rn_job_put(job, piece)) return RN_OK;
    return rn_fail(RN_INTERNAL, "a piece of %zu bytes has no room", piece->text.bytes);
}

// Text of a choice that may call tools: in slices of whole characters.
static rn_status put_slices(rn_job *job, uint32_t index, rn_piece_kind kind, rn_str text) {
    while (text.bytes) {
        size_t bytes = rn_min_u64(text.bytes, RN_TOOL_SLICE_BYTES);
        while (bytes < text.bytes && ((uint8_t)text.data[bytes] & 0xc0) == 0x80)
            bytes--;
        RN_TRY(put(job, &(rn_piece){.choice = index, .kind = kind, .text = {text.data, bytes}}));
        text = (rn_str){text.data + bytes, text.bytes - bytes};
    }
    return RN_OK;
}

// Where what a tool reader finds goes.
typedef struct speaking {
    rn_job *job;
    uint32_t index;
} speaking;

static rn_status put_said(void *self, rn_str text) {
    speaking *s = self;
    return put_slices(s->job, s->index, RN_PIECE_TEXT, text);
}

static rn_status put_call(void *self, rn_str name, rn_str arguments) {
    speaking *s = self;
    RN_TRY(put(s->job, &(rn_piece){.choice = s->index, .kind = RN_PIECE_CALL, .text = name}));
    return put_slices(s->job, s->index, RN_PIECE_ARGUMENTS, arguments);
}

// The text that lies in engine->text; `last`: nothing will follow.
static rn_status put_through_tools(rn_engine *e, rn_job *job, uint32_t index, bool last) {
    rn_tool_reader *tools = job->choices[index].tools;
    speaking spoken = {job, index};
    rn_tool_sink sink = {&spoken, put_said, put_call};
    RN_TRY(rn_tool_reader_put(tools, (rn_str){e->text.data, e->text.bytes}, sink));
    e->text.bytes = 0;
    return last ? rn_tool_reader_end(tools, sink) : RN_OK;
}

static void note_token(rn_engine *e, rn_job *job, rn_choice *choice) {
    uint64_t now = rn_clock_ns();
    rn_metrics_add(e->metrics, RN_COUNT_NEW_TOKENS, 1);
    if (job->first_ns == 0) {
        job->first_ns = now;
        rn_metrics_time(e->metrics, RN_SPAN_FIRST, now - job->entered_ns);
    }
    if (choice->last_ns) rn_metrics_time(e->metrics, RN_SPAN_BETWEEN, now - choice->last_ns);
    choice->last_ns = now;
}

// Tokens are counted before the last piece can be seen: who sees it may ask for them at once.
static void note_usage(rn_engine *e, rn_job *job, uint32_t index) {
    const rn_choice *choice = &job->choices[index];
    bool first = index % job->request.n == 0; // the others share the prompt with this one
    uint32_t shared = first ? (uint32_t)rn_sequence_shared(choice->sequence) : 0;
    rn_metrics_add(e->metrics, RN_COUNT_SHARED_TOKENS, shared);
    pthread_mutex_lock(&job->lock);
    job->usage.completion_tokens += choice->tokens;
    job->usage.shared_tokens += shared;
    pthread_mutex_unlock(&job->lock);
}

static rn_status end_choice(rn_engine *e, rn_job *job, uint32_t index, rn_finish finish) {
    rn_choice *choice = &job->choices[index];
    RN_TRY(flush(e, choice));
    if (choice->tools) {
        RN_TRY(put_through_tools(e, job, index, true));
        if (choice->tools->calls && finish == RN_FINISH_STOP) finish = RN_FINISH_TOOL_CALLS;
    }
    note_usage(e, job, index);
    rn_sequence_destroy(choice->sequence);
    choice->sequence = NULL;
    choice->ended = true;
    e->sequences--;
    return put(
        job, &(rn_piece){.choice = index, .finish = finish, .text = {e->text.data, e->text.bytes}});
}

static rn_status put_token(rn_engine *e, rn_job *job, uint32_t index, const rn_sample *sample) {
    rn_choice *choice = &job->choices[index];
    note_token(e, job, choice);
    if (rn_tokenizer_is_end(e->tokenizing.tokenizer, sample->token))
        return end_choice(e, job, index, RN_FINISH_STOP);
    choice->tokens++;
    RN_TRY(decode(e, choice, sample->token));
    if (choice->tools) RN_TRY(put_through_tools(e, job, index, false));
    if (!choice->tools || job->request.logprobs)
        RN_TRY(put(job, &(rn_piece){.choice = index,
                                    .has_token = true,
                                    .text = {e->text.data, e->text.bytes},
                                    .sample = *sample}));
    if (choice->stopped) return end_choice(e, job, index, RN_FINISH_STOP);
    if (choice->tokens == job->max_tokens) return end_choice(e, job, index, RN_FINISH_LENGTH);
    return RN_OK;
}

static rn_status take_choice(rn_engine *e, rn_job *job, uint32_t index) {
    rn_choice *choice = &job->choices[index];
    size_t bytes = rn_tokenizing_piece_bytes(&e->tokenizing, &job->request);
    rn_sample sample;
    while (!choice->ended && (rn_job_keeps_pieces(job) || rn_job_has_room(job, bytes)) &&
           rn_sequence_take(choice->sequence, &sample))
        RN_TRY(put_token(e, job, index, &sample));
    const rn_error_info *failure = choice->ended ? NULL : rn_sequence_failure(choice->sequence);
    return failure ? rn_error_restore(failure) : RN_OK;
}

// ---- jobs ---------------------------------------------------------------------------------------

static void take_job(rn_engine *e, rn_job *job) {
    rn_problem problem;
    bool done = true;
    rn_status s = RN_OK;
    for (uint32_t i = 0; s == RN_OK && i < job->choice_count; i++) {
        s = take_choice(e, job, i);
        done = done && job->choices[i].ended;
    }
    if (s != RN_OK) {
        rn_problem_from_error(&problem, rn_last_error());
        rn_engine_end(e, job, RN_JOB_FAILED, &problem);
    } else if (done) {
        rn_engine_end(e, job, RN_JOB_DONE, NULL);
    }
}

void rn_engine_take(rn_engine *e) {
    for (rn_job *job = e->running, *next; job; job = next) {
        next = job->next;
        take_job(e, job);
    }
}
