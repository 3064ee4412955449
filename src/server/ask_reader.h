// ask_reader.h — reading a request's JSON: one pass, one block of memory.
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
#ifndef RN_SERVER_ASK_READER_H
#define RN_SERVER_ASK_READER_H

#include "base/str.h"
#include "io/json_read.h"
#include "server/ask.h"

typedef struct rn_ask_reader {
    rn_json_reader json;
    rn_json_item item; // the last that was read
    char *at, *top;    // of the block, what is free
    rn_problem *problem;
} rn_ask_reader;

// Takes the block from `memory`, which is initialised here and stays the caller's to free.
bool rn_ask_reader_begin(rn_ask_reader *reader, rn_str body, rn_arena *memory, rn_problem *problem);

// The next item into reader->item: 400 "invalid_json" where there is none.
bool rn_ask_next(rn_ask_reader *reader);
// `item` has been read; if it opens an array or object, reads on until that is closed.
bool rn_ask_skip_rest(rn_ask_reader *reader);
// The body is an object, from whose first key rn_ask_next_key goes on.
bool rn_ask_open(rn_ask_reader *reader);
// The next key of an object; *out_more is false at its end. The key holds until the next call.
bool rn_ask_next_key(rn_ask_reader *reader, rn_str *out_key, bool *out_more);
// Nothing may follow the outermost object.
bool rn_ask_close(rn_ask_reader *reader);

// The text of the item stays. Called again, the next text stands right behind it.
rn_str rn_ask_keep(rn_ask_reader *reader);
// Room at the free end that stays, aligned to `align` (a power of two).
void *rn_ask_take(rn_ask_reader *reader, size_t bytes, size_t align);

// Values of the item. `field` is for messages; limits are told in them.
bool rn_ask_string(rn_ask_reader *reader, const char *field);
bool rn_ask_flag(rn_ask_reader *reader, const char *field, bool *out);
bool rn_ask_number(rn_ask_reader *reader, const char *field, double least, double most,
                   double *out);
// Whole numbers; 2.0 and 1e3 are whole.
bool rn_ask_integer(rn_ask_reader *reader, const char *field, int64_t least, int64_t most,
                    int64_t *out);
// 400 "invalid_value": "FIELD is a string: it must be WANTED".
bool rn_ask_wrong_type(rn_ask_reader *reader, const char *field, const char *wanted);
bool rn_ask_unknown(rn_ask_reader *reader, rn_str key);
bool rn_ask_missing(rn_ask_reader *reader, const char *field);
bool rn_ask_twice(rn_ask_reader *reader, const char *field);
// 400 "unsupported_value": "FIELD is not supported: leave it out, or give WANTED".
bool rn_ask_unsupported(rn_ask_reader *reader, const char *field, const char *wanted);
// The beginning of a client's text, for messages.
typedef struct rn_ask_excerpt {
    char text[61];
} rn_ask_excerpt;
rn_ask_excerpt rn_ask_show(rn_str text);

// ---- tokens -------------------------------------------------------------------------------------

// The numbers of an array whose '[' is the item, or whose first number is (`begun`).
bool rn_ask_tokens(rn_ask_reader *reader, const char *field, bool begun, uint32_t vocab_size,
                   const uint32_t **out_ids, size_t *out_count);

// ---- parts of an ask ----------------------------------------------------------------------------

typedef struct rn_ask_state {
    rn_ask_reader reader;
    rn_ask *ask;
    const rn_ask_limits *limits;
    uint64_t seen;        // bit i: field i of the table
    int64_t best_of;      // 0: not given
    int64_t top_logprobs; // -1: not given
} rn_ask_state;

// The value that is reader.item.
bool rn_ask_read_prompt(rn_ask_state *state, const char *field);
bool rn_ask_read_messages(rn_ask_state *state, const char *field);
// A key of the outermost object and its value.
bool rn_ask_read_field(rn_ask_state *state, rn_str key);

#endif
