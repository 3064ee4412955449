// request_reader.h — reading a request's JSON: one pass, one block of memory.
//
// All that is kept of a body stands in a block that is taken before the first byte is read:
//
//     [ text, tokens, biases, in order ──▶   free   ◀── messages, last first ]
//      ^ block                        ^ at         ^ top
//
// A byte of the body leaves at most two behind (a token "1," takes four bytes, a message is 32
// bytes and at least 28 characters), so 2 * body.bytes and a little is always enough. Text with
// escapes is unescaped where it is going to stay.
//
// Functions that return bool: false means that *problem has been set.
#ifndef RN_SERVER_REQUEST_READER_H
#define RN_SERVER_REQUEST_READER_H

#include "base/str.h"
#include "io/json_read.h"
#include "server/request.h"

// The beginning of a client's text, for messages.
typedef struct rn_request_excerpt {
    char text[61];
} rn_request_excerpt;

typedef struct rn_request_reader {
    rn_json_reader json;
    rn_json_item item; // the last that was read
    char *at, *top;    // of the block, what is free
    rn_problem *problem;
    rn_request_excerpt unknown; // "": none, see rn_request_pass_over
} rn_request_reader;

// Takes the block from `memory`, which is initialised here and stays the caller's to free.
bool rn_request_reader_begin(rn_request_reader *reader, rn_str body, rn_arena *memory,
                             rn_problem *problem);
// The same with room for more than the body leaves behind.
bool rn_request_reader_begin_with(rn_request_reader *reader, rn_str body, uint64_t extra_bytes,
                                  rn_arena *memory, rn_problem *problem);

// The next item into reader->item: 400 "invalid_json" where there is none.
bool rn_request_next(rn_request_reader *reader);
// `item` has been read; if it opens an array or object, reads on until that is closed.
bool rn_request_skip_rest(rn_request_reader *reader);
// The body is an object, from whose first key rn_request_next_key goes on.
bool rn_request_open(rn_request_reader *reader);
// The next key of an object; *out_more is false at its end. The key holds until the next call.
bool rn_request_next_key(rn_request_reader *reader, rn_str *out_key, bool *out_more);
// Nothing may follow the outermost object.
bool rn_request_close(rn_request_reader *reader);

// The text of the item stays. Called again, the next text stands right behind it.
rn_str rn_request_keep(rn_request_reader *reader);
// The item and all that it opens stay as they are written.
bool rn_request_keep_value(rn_request_reader *reader, rn_str *out);
// All of the body from `begin` up to here.
void rn_request_keep_from(rn_request_reader *reader, size_t begin, rn_str *out);
// Room at the free end that stays, aligned to `align` (a power of two).
void *rn_request_take(rn_request_reader *reader, size_t bytes, size_t align);

// Values of the item. `field` is for messages; limits are told in them.
bool rn_request_string(rn_request_reader *reader, const char *field);
bool rn_request_flag(rn_request_reader *reader, const char *field, bool *out);
bool rn_request_number(rn_request_reader *reader, const char *field, double least, double most,
                       double *out);
// Whole numbers; 2.0 and 1e3 are whole.
bool rn_request_integer(rn_request_reader *reader, const char *field, int64_t least, int64_t most,
                        int64_t *out);
// 400 "invalid_value": "FIELD is a string: it must be WANTED".
bool rn_request_wrong_type(rn_request_reader *reader, const char *field, const char *wanted);
bool rn_request_unknown(rn_request_reader *reader, rn_str key);
// The same of a request that clients of other servers send, too: the value is passed over, and the
// first such name stays in reader->unknown, for a warning.
bool rn_request_pass_over(rn_request_reader *reader, rn_str key);
bool rn_request_missing(rn_request_reader *reader, const char *field);
bool rn_request_twice(rn_request_reader *reader, const char *field);
// 400 "unsupported_value": "FIELD is not supported: leave it out, or give WANTED".
bool rn_request_unsupported(rn_request_reader *reader, const char *field, const char *wanted);
rn_request_excerpt rn_request_show(rn_str text);

// ---- tokens -------------------------------------------------------------------------------------

// The numbers of an array whose '[' is the item, or whose first number is (`begun`).
bool rn_request_tokens(rn_request_reader *reader, const char *field, bool begun,
                       uint32_t vocab_size, const uint32_t **out_ids, size_t *out_count);

// ---- parts of a request
// --------------------------------------------------------------------------

// Of /api/generate.
typedef struct rn_ollama_request {
    rn_str prompt, system;
    bool raw;
} rn_ollama_request;

typedef struct rn_request_state {
    rn_request_reader reader;
    rn_request *request;
    const rn_request_limits *limits;
    uint64_t seen;        // bit i: field i of the table
    int64_t best_of;      // 0: not given
    int64_t top_logprobs; // -1: not given
    rn_ollama_request ollama;
} rn_request_state;

// The value that is reader.item.
bool rn_request_read_prompt(rn_request_state *state, const char *field);
bool rn_request_read_messages(rn_request_state *state, const char *field);
bool rn_request_read_tools(rn_request_state *state, const char *field);
bool rn_request_read_tool_choice(rn_request_state *state, const char *field);
bool rn_request_read_calls(rn_request_reader *reader, const char *field, rn_str *out);
bool rn_request_read_format(rn_request_state *state, const char *field);
// Puts a message in front of those that are there; and turns all of them round.
void rn_request_push_message(rn_request_state *state, rn_str role, rn_str content);
void rn_request_reverse_messages(rn_request *request);
// Whether a tool may be called so.
bool rn_request_is_tool_name(rn_str name);
// Fields of /v1/responses (request_responses.c).
bool rn_request_read_items(rn_request_state *state, const char *field);
bool rn_request_read_text_settings(rn_request_state *state, const char *field);
bool rn_request_read_flat_tools(rn_request_state *state, const char *field);
bool rn_request_read_flat_choice(rn_request_state *state, const char *field);
// After all fields: a chat.
bool rn_request_finish_response(rn_request_state *state);
// All of a request for embeddings, from its first byte.
bool rn_request_read_embedding(rn_request_state *state, rn_str body);
// Of one for scores: a key and its value; after all fields: as if it were for embeddings.
bool rn_request_read_rerank_field(rn_request_state *state, rn_str key);
bool rn_request_finish_rerank(rn_request_state *state);
// The value that is reader.item, as a field of that kind of request.
bool rn_request_read_as(rn_request_state *state, rn_request_kind kind, const char *name);
bool rn_request_read_ollama_field(rn_request_state *state, rn_str key);
// After all fields: a request of another kind.
bool rn_request_finish_ollama(rn_request_state *state);
// A tag that everybody's models have says nothing: "llama:latest".
void rn_request_drop_tag(rn_str *model);
bool rn_request_read_image_field(rn_request_state *state, rn_str key);
// A key of the outermost object and its value.
bool rn_request_read_field(rn_request_state *state, rn_str key);

#endif
