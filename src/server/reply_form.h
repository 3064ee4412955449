// reply_form.h — what whole answers and events have in common. All append to reply->buffer.
#ifndef RN_SERVER_REPLY_FORM_H
#define RN_SERVER_REPLY_FORM_H

#include "base/json.h"
#include "base/str.h"
#include "server/reply.h"

enum { RN_REPLY_PART_BYTES = 4096 }; // parts are gathered until there is about so much to copy

// The next part: of one JSON object, or of a stream. *out_news: RN_REPLY_BYTES_MADE unless there is
// nothing yet; at the end it sets reply->ended.
RN_MUST_USE rn_status rn_reply_form_object(rn_reply *reply, rn_reply_news *out_news);
RN_MUST_USE rn_status rn_reply_form_events(rn_reply *reply, rn_reply_news *out_news);
// Either, of pictures.
RN_MUST_USE rn_status rn_reply_form_pictures(rn_reply *reply, rn_reply_news *out_news);
// {"error": ...} as the last event.
RN_MUST_USE rn_status rn_reply_put_failure(rn_reply *reply);

uint32_t rn_reply_choices(const rn_reply *reply);

// ---- JSON ---------------------------------------------------------------------------------------

// id, object, created, model, system_fingerprint.
void rn_reply_put_head(const rn_reply *reply, rn_json *json);
void rn_reply_put_usage(const rn_reply *reply, rn_json *json);
// A string that is written in slices, each of whole UTF-8 sequences, to the buffer that `json`
// writes to.
void rn_reply_open_string(rn_buffer *buffer, rn_json *json, const char *key);
RN_MUST_USE rn_status rn_reply_put_slice(rn_buffer *buffer, rn_str text);
RN_MUST_USE rn_status rn_reply_close_string(rn_buffer *buffer);

RN_MUST_USE rn_status rn_reply_form_lines(rn_reply *reply, rn_reply_news *out_news);
RN_MUST_USE rn_status rn_reply_form_embeddings(rn_reply *reply, rn_reply_news *out_news);
RN_MUST_USE rn_status rn_reply_form_ranking(rn_reply *reply, rn_reply_news *out_news);
RN_MUST_USE rn_status rn_reply_form_response(rn_reply *reply, rn_reply_news *out_news);
// "id" and "type" of a choice's call.
void rn_reply_put_call_id(const rn_reply *reply, rn_json *json, uint32_t choice, uint32_t call);

// The next slice of the prompt of reply->choice; empty at its end. Holds until the next call.
RN_MUST_USE rn_status rn_reply_next_slice(rn_reply *reply, rn_str *out);

// ---- logprobs -----------------------------------------------------------------------------------

// The lists that a choice's logprobs consist of: completions have four, a chat has one.
typedef struct rn_reply_list {
    const char *name;
    void (*put)(rn_reply *reply, rn_json *json, uint32_t choice, const rn_sample *sample);
} rn_reply_list;
// NULL behind the last.
const rn_reply_list *rn_reply_list_at(const rn_reply *reply, uint32_t index);
// {"tokens": [...], ...} of one token; without one, null.
void rn_reply_put_logprobs(rn_reply *reply, rn_json *json, uint32_t choice,
                           const rn_sample *sample);
// Behind the lists of a choice.
void rn_reply_end_logprobs(const rn_reply *reply, rn_json *json);

#endif
