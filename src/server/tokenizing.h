// tokenizing.h — from what a client asks to what the generator is fed: the chat template, tokens,
// and whether all of it can ever fit. Any number of threads; a job is one thread's at a time.
#ifndef RN_SERVER_TOKENIZING_H
#define RN_SERVER_TOKENIZING_H

#include "server/job.h"
#include "text/tool_calls.h"

// Texts up to this are done by whoever brings them, longer ones by a thread of their own.
#define RN_TOKENIZING_SHORT_BYTES ((size_t)16 << 10)

typedef struct rn_tokenizing {
    const rn_tokenizer *tokenizer;
    const rn_chat_template *form; // NULL: the model has none
    rn_tool_form tool_form;       // how the model calls tools
    rn_vocabulary *vocabulary;    // for answers that must be JSON
    rn_request_memory *memory;    // for what is held meanwhile, and for tokens
    uint64_t answers_bytes;       // of all outboxes together
    uint32_t vocab_size;
    uint32_t context, page_tokens, pages, sequences; // of the plan
    uint32_t answer_tokens;                          // of a choice, at most
    uint32_t dimensions;  // of an embedding; `context` is then of a text, at most
    size_t spelled_bytes; // of the longest token, as it stands in a text
    size_t shown_bytes;   // that a token can add to an answer, at most
} rn_tokenizing;

// Finds spelled_bytes and shown_bytes; both at least 1.
void rn_tokenizing_measure(rn_tokenizing *tokenizing);

// The bytes of text that rn_tokenizing_read will have to look at.
size_t rn_tokenizing_text_bytes(const rn_request *request);
// Gives the job its tokens, choices and limits. False: 400 names the field and the numbers, 429:
// there is no room now.
bool rn_tokenizing_read(const rn_tokenizing *tokenizing, rn_job *job, rn_problem *out_problem);
// Whether a job that was read can run with this plan: sequences, pages, outbox; 400 otherwise.
bool rn_tokenizing_check(const rn_tokenizing *tokenizing, const rn_job *job,
                         rn_problem *out_problem);

// A seed by chance, where none was asked for.
void rn_request_draw_seed(rn_request *request);

// The room that a piece of one choice needs, with the end of the choice behind it.
size_t rn_tokenizing_piece_bytes(const rn_tokenizing *tokenizing, const rn_request *request);

// ---- texts (tokenizing_text.c)
// ----------------------------------------------------------------------

// What a template writes on its own, and around each message.
static inline uint64_t rn_tokenizing_form_bytes(size_t message_count) {
    return 4096 + 64 * (uint64_t)message_count;
}
// Appends. A prompt: what the tokenizer puts around a text; special tokens are spelled out. Never
// empty. RN_INVALID: empty, and there is no token for the beginning of a text.
RN_MUST_USE rn_status rn_tokenizing_encode(const rn_tokenizer *tokenizer, rn_str text,
                                           rn_tokens *out);
// Appends. A conversation by its template, up to the beginning of an answer. Special tokens of the
// template are themselves; those that stand in a message are spelled out, whoever wrote it.
// RN_INVALID: what the template raises, or the rendered text is longer than longest_bytes; then
// *out_too_long.
RN_MUST_USE rn_status rn_tokenizing_encode_chat(const rn_tokenizer *tokenizer,
                                                const rn_chat_template *form,
                                                const rn_request *request, size_t longest_bytes,
                                                rn_tokens *out, bool *out_too_long);
// What encoding so many bytes may hold for a while, where no word of theirs is longer than that.
uint64_t rn_tokenizing_work_bytes(uint64_t text_bytes, uint64_t word_bytes);
// The longest stretch that a tokenizer may have to look at as one: without a blank, or of blanks.
size_t rn_tokenizing_longest_word(const rn_tokenizer *tokenizer, rn_str text);

#endif
