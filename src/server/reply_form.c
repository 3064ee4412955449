// reply_form.c — heads, usage, and strings in slices.
#include "server/reply_form.h"

#include <stdio.h>
#include <string.h>

uint32_t rn_reply_choices(const rn_reply *reply) {
    return (uint32_t)reply->job->request.prompt_count * reply->job->request.n;
}

void rn_reply_put_head(const rn_reply *reply, rn_json *json) {
    const rn_job *job = reply->job;
    bool chat = job->request.kind == RN_REQUEST_CHAT;
    const char *chat_object = job->request.stream ? "chat.completion.chunk" : "chat.completion";
    rn_json_string(json, "id", job->id);
    rn_json_string(json, "object", chat ? chat_object : "text_completion");
    rn_json_i64(json, "created", job->created);
    rn_json_string(json, "model", reply->model_name);
    rn_json_null(json, "system_fingerprint");
}

void rn_reply_put_usage(const rn_reply *reply, rn_json *json) {
    rn_usage usage = rn_job_get_usage(reply->job);
    rn_json_object(json, "usage");
    rn_json_u64(json, "prompt_tokens", usage.prompt_tokens);
    rn_json_u64(json, "completion_tokens", usage.completion_tokens);
    rn_json_u64(json, "total_tokens", (uint64_t)usage.prompt_tokens + usage.completion_tokens);
    rn_json_object(json, "prompt_tokens_details");
    rn_json_u64(json, "cached_tokens", usage.shared_tokens);
    rn_json_end(json);
    rn_json_end(json);
}

void rn_reply_put_call_id(const rn_reply *reply, rn_json *json, uint32_t choice, uint32_t call) {
    char id[64];
    const char *of = strchr(reply->job->id, '-');
    snprintf(id, sizeof id, "call_%.24s_%u_%u", of ? of + 1 : "", choice, call);
    rn_json_string(json, "id", id);
    rn_json_string(json, "type", "function");
}

// ---- strings in slices --------------------------------------------------------------------------

// An empty string whose closing quote is taken back.
void rn_reply_open_string(rn_buffer *buffer, rn_json *json, const char *key) {
    rn_json_string(json, key, "");
    if (json->status == RN_OK) buffer->bytes--;
}

// Written as a string of its own, whose quotes are then taken away: escapes have one home.
rn_status rn_reply_put_slice(rn_buffer *buffer, rn_str text) {
    size_t begin = buffer->bytes;
    rn_json json;
    rn_json_begin(&json, rn_buffer_sink(buffer), false);
    rn_json_text(&json, NULL, text);
    RN_TRY(json.status);
    size_t inner = buffer->bytes - begin - 2;
    memmove(buffer->data + begin, buffer->data + begin + 1, inner);
    buffer->bytes = begin + inner;
    return RN_OK;
}

rn_status rn_reply_close_string(rn_buffer *buffer) {
    return rn_buffer_append(buffer, "\"", 1);
}

// ---- the prompt ---------------------------------------------------------------------------------

// Whole UTF-8 sequences: the text has been checked.
static rn_str slice_text(rn_reply *reply, rn_str text) {
    rn_str slice = {text.data + reply->prompt_at, text.bytes - reply->prompt_at};
    if (slice.bytes > RN_REPLY_PART_BYTES) {
        slice.bytes = RN_REPLY_PART_BYTES;
        while ((slice.data[slice.bytes] & 0xC0) == 0x80)
            slice.bytes--;
    }
    reply->prompt_at += slice.bytes;
    return slice;
}

static rn_status slice_tokens(rn_reply *reply, const rn_request_prompt *prompt) {
    rn_sink sink = rn_buffer_sink(&reply->slice);
    if (reply->prompt_at == 0) rn_decoder_begin(&reply->prompt, reply->tokenizer, false);
    while (reply->prompt_at < prompt->id_count && reply->slice.bytes < RN_REPLY_PART_BYTES)
        RN_TRY(rn_decoder_put(&reply->prompt, prompt->ids[reply->prompt_at++], sink));
    if (reply->prompt_at < prompt->id_count || reply->slice.bytes > 0) return RN_OK;
    return rn_decoder_end(&reply->prompt, sink);
}

rn_status rn_reply_next_slice(rn_reply *reply, rn_str *out) {
    const rn_request *request = &reply->job->request;
    const rn_request_prompt *prompt = &request->prompts[reply->choice / request->n];
    *out = (rn_str){0};
    if (!prompt->ids) {
        *out = slice_text(reply, prompt->text);
        return RN_OK;
    }
    reply->slice.bytes = 0;
    RN_TRY(slice_tokens(reply, prompt));
    *out = (rn_str){reply->slice.data, reply->slice.bytes};
    return RN_OK;
}
