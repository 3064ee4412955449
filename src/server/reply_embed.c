// reply_embed.c — embeddings as JSON: lists of numbers, or little-endian f32 in base64.
//
//     HEAD ─▶ ITEMS, one a text ─▶ TAIL
//
// /v1/embeddings has an object a text, /api/embed a list of lists, /api/embeddings the one list.
#include "server/reply_form.h"

#include "base/checked.h"
#include "base/clock.h"
#include "text/base64.h"

enum part { HEAD, ITEMS, TAIL };
enum { SLICE_BYTES = 768 }; // whole numbers, and whole groups of base64

static void form_head(rn_reply *reply) {
    rn_json *json = &reply->json;
    rn_request_dialect dialect = reply->job->request.dialect;
    rn_json_object(json, NULL);
    if (dialect == RN_DIALECT_OPENAI) rn_json_string(json, "object", "list");
    if (dialect == RN_DIALECT_OLLAMA_EMBED) rn_json_string(json, "model", reply->model_name);
    if (dialect != RN_DIALECT_OLLAMA_EMBEDDINGS)
        rn_json_array(json, dialect == RN_DIALECT_OPENAI ? "data" : "embeddings");
    reply->part = ITEMS;
}

static void put_numbers(rn_json *json, rn_str bytes) {
    for (size_t at = 0; at < bytes.bytes; at += sizeof(float)) {
        float value;
        memcpy(&value, bytes.data + at, sizeof value);
        rn_json_f64(json, NULL, (double)value); // as many digits as tell it from its neighbours
    }
}

static rn_status put_base64(rn_buffer *buffer, rn_str bytes) {
    char text[SLICE_BYTES / 3 * 4];
    rn_base64_encode(bytes, text);
    return rn_buffer_append(buffer, text, (bytes.bytes + 2) / 3 * 4);
}

static void begin_item(rn_reply *reply, uint32_t index) {
    const rn_request *request = &reply->job->request;
    rn_json *json = &reply->json;
    if (request->dialect == RN_DIALECT_OPENAI) {
        rn_json_object(json, NULL);
        rn_json_string(json, "object", "embedding");
        rn_json_u64(json, "index", index);
    }
    if (request->base64)
        rn_reply_open_string(&reply->buffer, json, "embedding");
    else
        rn_json_array(json, request->dialect == RN_DIALECT_OLLAMA_EMBED ? NULL : "embedding");
}

static rn_status end_item(rn_reply *reply) {
    const rn_request *request = &reply->job->request;
    reply->prompt_at = 0;
    if (request->base64)
        RN_TRY(rn_reply_close_string(&reply->buffer));
    else
        rn_json_end(&reply->json);
    if (request->dialect == RN_DIALECT_OPENAI) rn_json_end(&reply->json);
    return RN_OK;
}

// A slice of an embedding; reply->prompt_at says how far it is written.
static rn_status form_item(rn_reply *reply, const rn_piece *piece) {
    size_t done = reply->prompt_at;
    rn_str slice = {piece->text.data + done, rn_min_u64(SLICE_BYTES, piece->text.bytes - done)};
    if (done == 0) begin_item(reply, piece->choice);
    RN_TRY(reply->json.status);
    if (reply->job->request.base64)
        RN_TRY(put_base64(&reply->buffer, slice));
    else
        put_numbers(&reply->json, slice);
    reply->prompt_at = done + slice.bytes;
    return reply->prompt_at == piece->text.bytes ? end_item(reply) : RN_OK;
}

static rn_status form_tail(rn_reply *reply) {
    rn_json *json = &reply->json;
    rn_usage usage = rn_job_get_usage(reply->job);
    switch (reply->job->request.dialect) {
    case RN_DIALECT_OPENAI:
        rn_json_string(json, "model", reply->model_name);
        rn_json_object(json, "usage");
        rn_json_u64(json, "prompt_tokens", usage.prompt_tokens);
        rn_json_u64(json, "total_tokens", usage.prompt_tokens);
        rn_json_end(json);
        break;
    case RN_DIALECT_OLLAMA_EMBED:
        rn_json_u64(json, "total_duration", rn_clock_ns() - reply->job->entered_ns);
        rn_json_u64(json, "load_duration", 0);
        rn_json_u64(json, "prompt_eval_count", usage.prompt_tokens);
        break;
    default:
        break;
    }
    rn_json_end(json);
    reply->ended = true;
    return rn_json_finish(json);
}

static rn_status form_part(rn_reply *reply) {
    rn_piece piece;
    if (reply->part == HEAD) {
        form_head(reply);
        return RN_OK;
    }
    if (reply->part == TAIL) return form_tail(reply);
    size_t begin = reply->cursor;
    if (rn_job_read(reply->job, &reply->cursor, &piece)) {
        RN_TRY(form_item(reply, &piece));
        if (reply->prompt_at) reply->cursor = begin; // the rest of it is to come
        return RN_OK;
    }
    if (reply->job->request.dialect != RN_DIALECT_OLLAMA_EMBEDDINGS) rn_json_end(&reply->json);
    reply->part = TAIL;
    return RN_OK;
}

rn_status rn_reply_form_embeddings(rn_reply *reply, rn_reply_news *out_news) {
    *out_news = RN_REPLY_NOTHING;
    if (rn_job_get_state(reply->job) != RN_JOB_DONE) return RN_OK;
    *out_news = RN_REPLY_BYTES_MADE;
    reply->json.sink = rn_buffer_sink(&reply->buffer);
    RN_TRY(form_part(reply));
    return reply->json.status;
}
