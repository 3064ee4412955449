// reply.h — from a job's pieces to the bytes that a client gets: one JSON object, or a stream of
// server-sent events. Nothing is ever held as a whole: a part (a piece, a head, a tail) is formed
// in a small buffer and copied out, so a reply of any length takes RN_REPLY_BYTES at most.
#ifndef RN_SERVER_REPLY_H
#define RN_SERVER_REPLY_H

#include "base/buffer.h"
#include "server/job.h"

#include "base/json.h"
#include <ration/tokenizer.h>

#define RN_REPLY_BYTES (64u << 10)

// How far the text of a choice's tokens goes: for text_offset.
typedef struct rn_reply_mark {
    rn_decoder decoder;
    uint64_t characters;
} rn_reply_mark;

// Of a response, the item that is being written: a message, or a call of a tool.
typedef struct rn_reply_item {
    enum { RN_ITEM_NONE, RN_ITEM_MESSAGE, RN_ITEM_CALL } kind;
    uint32_t index;     // in the output
    size_t first, last; // its pieces, in the outbox
    uint32_t event;     // of those that end it, the next
    uint64_t number;    // of the next event of all
} rn_reply_item;

typedef struct rn_reply {
    rn_job *job;
    const rn_tokenizer *tokenizer;
    const char *model_name;
    size_t cursor;        // in the job's outbox
    uint32_t part;        // of the form, what comes next
    uint32_t choice;      // that the part is of
    uint32_t list;        // of the choice's logprobs
    uint32_t *calls;      // (choices): of tools so far, where there are any; else NULL
    rn_finish finish;     // of the choice, once its text was written
    size_t prompt_at;     // of the prompt that is echoed: bytes or tokens done; of an embedding:
                          // bytes done
    rn_decoder prompt;    // of a prompt that is tokens
    rn_buffer slice;      // of its text
    rn_json json;         // one object, written part by part
    rn_reply_mark *marks; // (choices) where text_offset is wanted, else NULL
    rn_buffer buffer;     // the part being copied out
    size_t copied;
    bool ended;
    bool in_call; // Ollama's lines: a call's arguments are being written
    rn_reply_item item;
    rn_status status; // a part that could not be formed
} rn_reply;

void rn_reply_begin(rn_reply *reply, rn_job *job, const rn_tokenizer *tokenizer,
                    const char *model_name);
void rn_reply_free(rn_reply *reply);
// "application/json", "text/event-stream".
const char *rn_reply_type(const rn_reply *reply);

// A job that is done and not a stream: the bytes of the whole answer. Begins anew afterwards.
RN_MUST_USE rn_status rn_reply_measure(rn_reply *reply, uint64_t *out_bytes);

typedef enum rn_reply_news {
    RN_REPLY_BYTES_MADE, // *out_count > 0
    RN_REPLY_NOTHING,    // yet: rn_job_sleep
    RN_REPLY_END,
    RN_REPLY_BROKEN // cut the connection
} rn_reply_news;
// Up to `capacity` bytes of what comes next. A stream whose job fails on the way ends with an event
// {"error": ...} and no [DONE].
rn_reply_news rn_reply_read(rn_reply *reply, char *out, size_t capacity, size_t *out_count);

#endif
