// reply_lines.c — answers as Ollama's clients read them: a JSON object a line, or one object.
//
//     {"model": ..., "created_at": ..., "message": {"role": "assistant", "content": "Hel"}, "done":
//     false}
//     {"model": ..., "created_at": ..., "message": {...}, "done": true, "done_reason": "stop", ...}
//
// A call of a tool is a line of its own: it is open while its arguments come, which are JSON
// already.
#include "server/reply_form.h"

#include "base/clock.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum part { PIECES, HEAD, TEXT, CALLS, TAIL };

static bool is_chat(const rn_reply *reply) {
    return reply->job->request.dialect == RN_DIALECT_OLLAMA_CHAT;
}

static void put_head(rn_reply *reply, rn_json *json) {
    char when[40];
    struct tm utc;
    time_t seconds = (time_t)reply->job->created;
    gmtime_r(&seconds, &utc);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &utc);
    rn_json_string(json, "model", reply->model_name);
    rn_json_string(json, "created_at", when);
}

// What a whole answer ends with.
static void put_end(rn_reply *reply, rn_json *json) {
    const rn_job *job = reply->job;
    rn_usage usage = rn_job_get_usage(reply->job);
    uint64_t now = rn_clock_ns(), begun = job->started_ns, first = job->first_ns;
    rn_json_bool(json, "done", true);
    rn_json_string(json, "done_reason",
                   reply->finish == RN_FINISH_LENGTH ? "length" : "stop"); // calls, too
    rn_json_u64(json, "total_duration", now - job->entered_ns);
    rn_json_u64(json, "load_duration", 0);
    rn_json_u64(json, "prompt_eval_count", usage.prompt_tokens);
    rn_json_u64(json, "prompt_eval_duration", first > begun ? first - begun : 0);
    rn_json_u64(json, "eval_count", usage.completion_tokens);
    rn_json_u64(json, "eval_duration", first && now > first ? now - first : 0);
}

// ---- lines --------------------------------------------------------------------------------------

static void begin_line(rn_reply *reply) {
    rn_json_begin(&reply->json, rn_buffer_sink(&reply->buffer), false);
    rn_json_object(&reply->json, NULL);
    put_head(reply, &reply->json);
}

static rn_status end_line(rn_reply *reply) {
    rn_json_end(&reply->json);
    return rn_json_finish(&reply->json); // with its line break
}

static void put_text(rn_reply *reply, rn_json *json, rn_str text) {
    if (!is_chat(reply)) {
        rn_json_text(json, "response", text);
        return;
    }
    rn_json_object(json, "message");
    rn_json_string(json, "role", "assistant");
    rn_json_text(json, "content", text);
    rn_json_end(json);
}

// "arguments": what follows is written as it is.
static rn_status open_arguments(rn_reply *reply, rn_str name) {
    rn_json *json = &reply->json;
    rn_json_object(json, NULL);
    rn_json_object(json, "function");
    rn_json_text(json, "name", name);
    return rn_buffer_append(&reply->buffer, ",\"arguments\":", 13);
}

static void close_arguments(rn_reply *reply) {
    rn_json_end(&reply->json);
    rn_json_end(&reply->json);
}

static rn_status begin_call(rn_reply *reply, rn_str name) {
    rn_json *json = &reply->json;
    begin_line(reply);
    rn_json_object(json, "message");
    rn_json_string(json, "role", "assistant");
    rn_json_string(json, "content", "");
    rn_json_array(json, "tool_calls");
    reply->in_call = true;
    return open_arguments(reply, name);
}

static rn_status end_call(rn_reply *reply) {
    if (!reply->in_call) return RN_OK;
    reply->in_call = false;
    close_arguments(reply);
    rn_json_end(&reply->json);
    rn_json_end(&reply->json);
    rn_json_bool(&reply->json, "done", false);
    return end_line(reply);
}

static rn_status form_piece(rn_reply *reply, const rn_piece *piece) {
    if (piece->kind == RN_PIECE_ARGUMENTS)
        return rn_buffer_append(&reply->buffer, piece->text.data, piece->text.bytes);
    RN_TRY(end_call(reply));
    if (piece->finish != RN_FINISH_NONE) reply->finish = piece->finish;
    if (piece->kind == RN_PIECE_CALL) return begin_call(reply, piece->text);
    if (piece->text.bytes == 0) return RN_OK;
    begin_line(reply);
    put_text(reply, &reply->json, piece->text);
    rn_json_bool(&reply->json, "done", false);
    return end_line(reply);
}

static rn_status form_problem(rn_reply *reply) {
    rn_problem problem = rn_job_get_problem(reply->job);
    reply->ended = true;
    rn_json_begin(&reply->json, rn_buffer_sink(&reply->buffer), false);
    rn_json_object(&reply->json, NULL);
    rn_json_string(&reply->json, "error", problem.message);
    return end_line(reply);
}

static rn_status form_last(rn_reply *reply) {
    reply->ended = true;
    RN_TRY(end_call(reply));
    begin_line(reply);
    put_text(reply, &reply->json, RN_STR(""));
    put_end(reply, &reply->json);
    return end_line(reply);
}

static rn_status form_stream(rn_reply *reply, rn_reply_news *out_news) {
    rn_piece piece;
    rn_job_state state = rn_job_get_state(reply->job); // before looking, as for events
    reply->json.sink = rn_buffer_sink(&reply->buffer);
    if (rn_job_read(reply->job, &reply->cursor, &piece)) return form_piece(reply, &piece);
    if (state == RN_JOB_DONE) return form_last(reply);
    if (state == RN_JOB_FAILED) return form_problem(reply);
    if (state == RN_JOB_CANCELLED) return rn_fail(RN_CANCELLED, "the client is gone");
    *out_news = RN_REPLY_NOTHING;
    return RN_OK;
}

// ---- one object ---------------------------------------------------------------------------------

static rn_status form_head(rn_reply *reply) {
    rn_json_object(&reply->json, NULL);
    put_head(reply, &reply->json);
    if (is_chat(reply)) {
        rn_json_object(&reply->json, "message");
        rn_json_string(&reply->json, "role", "assistant");
    }
    rn_reply_open_string(&reply->buffer, &reply->json, is_chat(reply) ? "content" : "response");
    reply->part = TEXT;
    return RN_OK;
}

static rn_status end_message(rn_reply *reply) {
    if (is_chat(reply)) rn_json_end(&reply->json);
    reply->part = TAIL;
    return RN_OK;
}

static bool has_calls(rn_reply *reply) {
    rn_piece piece;
    size_t cursor = 0;
    while (is_chat(reply) && rn_job_read(reply->job, &cursor, &piece))
        if (piece.kind == RN_PIECE_CALL) return true;
    return false;
}

static rn_status form_text(rn_reply *reply) {
    rn_piece piece;
    if (rn_job_read(reply->job, &reply->cursor, &piece)) {
        if (piece.finish != RN_FINISH_NONE) reply->finish = piece.finish;
        return piece.kind == RN_PIECE_TEXT ? rn_reply_put_slice(&reply->buffer, piece.text) : RN_OK;
    }
    RN_TRY(rn_reply_close_string(&reply->buffer));
    if (!has_calls(reply)) return end_message(reply);
    rn_json_array(&reply->json, "tool_calls");
    reply->cursor = 0;
    reply->part = CALLS;
    return RN_OK;
}

static rn_status form_calls(rn_reply *reply) {
    rn_piece piece;
    bool more = rn_job_read(reply->job, &reply->cursor, &piece);
    if (more && piece.kind == RN_PIECE_TEXT) return RN_OK;
    if (more && piece.kind == RN_PIECE_ARGUMENTS)
        return rn_buffer_append(&reply->buffer, piece.text.data, piece.text.bytes);
    if (reply->in_call) close_arguments(reply);
    reply->in_call = more;
    if (more) return open_arguments(reply, piece.text);
    rn_json_end(&reply->json);
    return end_message(reply);
}

static rn_status form_tail(rn_reply *reply) {
    put_end(reply, &reply->json);
    reply->ended = true;
    return end_line(reply);
}

// The tail's times differ from walk to walk, so the answer is not measured: it has no length, and
// ends with the connection's last chunk.
rn_status rn_reply_form_lines(rn_reply *reply, rn_reply_news *out_news) {
    *out_news = RN_REPLY_BYTES_MADE;
    if (reply->job->request.stream) return form_stream(reply, out_news);
    reply->json.sink = rn_buffer_sink(&reply->buffer);
    switch (reply->part) {
    case PIECES:
    case HEAD:
        return form_head(reply);
    case TEXT:
        return form_text(reply);
    case CALLS:
        return form_calls(reply);
    default:
        return form_tail(reply);
    }
}
