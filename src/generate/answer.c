// answer.c — one sequence speaks: step by step, from tokens to text, until there is a reason to
// end.
//
//     step ─▶ take ─▶ decoder (whole UTF-8) ─▶ stopper (holds back what may be a stop) ─▶ sink
#include "generate/generate.h"

#include "base/reserved.h"

typedef struct speech {
    rn_sequence *sequence;
    const rn_tokenizer *tokenizer;
    const rn_answer_options *options;
    rn_sink sink;
    rn_answer *out;
    rn_decoder decoder;
    rn_stopper *stopper;
    bool stopped;
} speech;

const char *rn_end_reason_name(rn_end_reason reason) {
    static const char *const names[] = {"end token", "stop string", "token limit", "context full",
                                        "interrupted"};
    return names[reason];
}

static rn_status put_text(void *self, const char *text, size_t bytes) {
    speech *s = self;
    if (s->stopped) return RN_OK;
    return rn_stopper_put(s->stopper, (rn_str){text, bytes}, s->sink, &s->stopped);
}

// One token into the text. *out_done: it was the last.
static rn_status take_token(speech *s, const rn_sample *sample, bool *out_done) {
    rn_answer *a = s->out;
    *out_done = true;
    if (rn_tokenizer_is_end(s->tokenizer, sample->token)) {
        a->reason = RN_END_TOKEN;
        return RN_OK;
    }
    a->tokens++;
    if (s->options->on_token) s->options->on_token(s->options->self, sample);
    RN_TRY(rn_decoder_put(&s->decoder, sample->token, (rn_sink){s, put_text}));
    a->reason = s->stopped ? RN_END_STOP : RN_END_LIMIT;
    *out_done = s->stopped || a->tokens == s->options->new_tokens;
    return RN_OK;
}

static rn_status take_tokens(speech *s, bool *out_done) {
    rn_sample sample;
    *out_done = false;
    while (!*out_done && rn_sequence_take(s->sequence, &sample))
        RN_TRY(take_token(s, &sample, out_done));
    const rn_error_info *failure = rn_sequence_failure(s->sequence);
    if (!*out_done && failure) return rn_error_restore(failure);
    if (*out_done || !rn_sequence_is_full(s->sequence)) return RN_OK;
    s->out->reason = RN_END_CONTEXT;
    *out_done = true;
    return RN_OK;
}

// What is still held back is written in any case but a stop.
static rn_status speak(speech *s) {
    const rn_flag *cancel = s->options->cancel;
    bool done = s->options->new_tokens == 0;
    while (!done) {
        rn_status status =
            cancel && *cancel ? RN_CANCELLED : rn_generator_step(s->sequence->generator);
        if (status == RN_OK) status = take_tokens(s, &done);
        if (status == RN_CANCELLED) s->out->reason = RN_END_CANCELLED;
        if (status == RN_CANCELLED) break;
        RN_TRY(status);
    }
    RN_TRY(rn_decoder_end(&s->decoder, (rn_sink){s, put_text}));
    return s->stopped ? RN_OK : rn_stopper_flush(s->stopper, s->sink);
}

rn_status rn_sequence_answer(rn_sequence *sequence, const rn_tokenizer *tokenizer,
                             const uint32_t *ids, size_t count, const rn_answer_options *options,
                             rn_sink sink, rn_answer *out) {
    speech s = {
        .sequence = sequence, .tokenizer = tokenizer, .options = options, .sink = sink, .out = out};
    *out = (rn_answer){.reason = RN_END_LIMIT};
    RN_TRY(rn_check_reserved(options->reserved, "rn_answer_options"));
    RN_TRY(rn_sequence_feed(sequence, ids, count));
    RN_TRY(rn_stopper_create(options->stops, options->stop_count, &s.stopper));
    rn_decoder_begin(&s.decoder, tokenizer, false);
    s.decoder.started = true; // the prompt stands before
    rn_status status = speak(&s);
    rn_sequence_pause(sequence);
    rn_stopper_destroy(s.stopper);
    return status;
}
