// reply_events.c — an answer as server-sent events, a piece each:
//
//     OPENING (a role or the echoed prompt, choice by choice) ─▶ PIECES ─▶ USAGE ─▶ DONE
//
// A job that fails on the way ends with its problem, and without the word that all is well.
#include "server/reply_form.h"

enum part { OPENING, PIECES, USAGE, DONE };

typedef struct event {
    uint32_t choice;
    rn_str text;
    const rn_sample *sample; // or NULL
    rn_finish finish;
    rn_piece_kind kind;
    uint32_t call; // CALL, ARGUMENTS: which of the choice
    bool opening;  // of a chat's choice: who speaks
} event;

// ---- one event ----------------------------------------------------------------------------------

static rn_status begin_event(rn_reply *reply, rn_json *json) {
    RN_TRY(rn_buffer_append(&reply->buffer, "data: ", 6));
    rn_json_begin(json, rn_buffer_sink(&reply->buffer), false);
    rn_json_object(json, NULL);
    return RN_OK;
}

// The empty line ends it.
static rn_status end_event(rn_reply *reply, rn_json *json) {
    rn_json_end(json);
    RN_TRY(rn_json_finish(json));
    return rn_buffer_append(&reply->buffer, "\n", 1);
}

// A call begins with its name; its arguments follow, a slice at a time.
static void put_call(const rn_reply *reply, rn_json *json, const event *e) {
    bool begins = e->kind == RN_PIECE_CALL;
    rn_json_object(json, "delta");
    rn_json_array(json, "tool_calls");
    rn_json_object(json, NULL);
    rn_json_u64(json, "index", e->call);
    if (begins) rn_reply_put_call_id(reply, json, e->choice, e->call);
    rn_json_object(json, "function");
    if (begins) rn_json_text(json, "name", e->text);
    rn_json_text(json, "arguments", begins ? RN_STR("") : e->text);
    rn_json_end(json);
    rn_json_end(json);
    rn_json_end(json);
    rn_json_end(json);
}

static void put_delta(const rn_reply *reply, rn_json *json, const event *e) {
    if (e->kind != RN_PIECE_TEXT) {
        put_call(reply, json, e);
        return;
    }
    rn_json_object(json, "delta");
    if (e->opening) rn_json_string(json, "role", "assistant");
    if (e->opening || e->text.bytes || e->sample) rn_json_text(json, "content", e->text);
    rn_json_end(json);
}

static void put_choice(rn_reply *reply, rn_json *json, const event *e) {
    rn_json_array(json, "choices");
    rn_json_object(json, NULL);
    rn_json_u64(json, "index", e->choice);
    if (reply->job->request.kind == RN_REQUEST_CHAT)
        put_delta(reply, json, e);
    else
        rn_json_text(json, "text", e->text);
    rn_reply_put_logprobs(reply, json, e->choice, e->sample);
    if (e->finish == RN_FINISH_NONE)
        rn_json_null(json, "finish_reason");
    else
        rn_json_string(json, "finish_reason", rn_finish_name(e->finish));
    rn_json_end(json);
    rn_json_end(json);
}

// The seed's answer has no choices; an index only where there are several.
static void put_text(rn_reply *reply, rn_json *json, const event *e) {
    if (rn_reply_choices(reply) > 1) rn_json_u64(json, "index", e->choice);
    rn_json_text(json, "text", e->text);
    if (e->sample) rn_reply_put_logprobs(reply, json, e->choice, e->sample);
    if (e->finish != RN_FINISH_NONE)
        rn_json_string(json, "finish_reason", rn_finish_name(e->finish));
}

static rn_status form_event(rn_reply *reply, const event *e) {
    rn_json json;
    RN_TRY(begin_event(reply, &json));
    if (reply->job->request.kind == RN_REQUEST_GENERATE) {
        put_text(reply, &json, e);
    } else {
        rn_reply_put_head(reply, &json);
        put_choice(reply, &json, e);
        if (reply->job->request.stream_usage) rn_json_null(&json, "usage");
    }
    return end_event(reply, &json);
}

// ---- parts --------------------------------------------------------------------------------------

static rn_status next_opening(rn_reply *reply) {
    reply->prompt_at = 0;
    if (++reply->choice == rn_reply_choices(reply)) reply->part = PIECES;
    return RN_OK;
}

static rn_status form_opening(rn_reply *reply) {
    const rn_request *request = &reply->job->request;
    event e = {.choice = reply->choice, .opening = true};
    if (request->kind == RN_REQUEST_CHAT) {
        RN_TRY(form_event(reply, &e));
        return next_opening(reply);
    }
    if (request->echo) RN_TRY(rn_reply_next_slice(reply, &e.text));
    return e.text.bytes ? form_event(reply, &e) : next_opening(reply);
}

static rn_status form_piece(rn_reply *reply, const rn_piece *piece) {
    bool logprobs = piece->has_token && reply->job->request.logprobs;
    event said = {
        .choice = piece->choice, .text = piece->text, .sample = logprobs ? &piece->sample : NULL};
    event end = {.choice = piece->choice, .finish = piece->finish};
    said.kind = piece->kind;
    if (piece->kind == RN_PIECE_CALL) reply->calls[piece->choice]++;
    if (piece->kind != RN_PIECE_TEXT) said.call = reply->calls[piece->choice] - 1;
    if (said.text.bytes || said.sample) RN_TRY(form_event(reply, &said));
    return piece->finish == RN_FINISH_NONE ? RN_OK : form_event(reply, &end);
}

rn_status rn_reply_put_failure(rn_reply *reply) {
    rn_problem problem = rn_job_get_problem(reply->job);
    reply->ended = true;
    RN_TRY(rn_buffer_append(&reply->buffer, "data: ", 6));
    RN_TRY(rn_problem_write(&problem, rn_buffer_sink(&reply->buffer)));
    return rn_buffer_append(&reply->buffer, "\n", 1);
}

static rn_status form_pieces(rn_reply *reply, rn_reply_news *out_news) {
    rn_piece piece;
    // Asked before looking for a piece: after the end nothing more is put.
    rn_job_state state = rn_job_get_state(reply->job);
    if (rn_job_read(reply->job, &reply->cursor, &piece)) return form_piece(reply, &piece);
    switch (state) {
    case RN_JOB_DONE:
        reply->part = USAGE;
        return RN_OK;
    case RN_JOB_FAILED:
        return rn_reply_put_failure(reply);
    case RN_JOB_CANCELLED:
        return rn_fail(RN_CANCELLED, "the client is gone");
    default:
        *out_news = RN_REPLY_NOTHING;
        return RN_OK;
    }
}

static rn_status form_usage(rn_reply *reply) {
    const rn_request *request = &reply->job->request;
    rn_json json;
    reply->part = DONE;
    if (request->kind != RN_REQUEST_GENERATE && !request->stream_usage) return RN_OK;
    RN_TRY(begin_event(reply, &json));
    if (request->kind == RN_REQUEST_GENERATE) {
        rn_json_string(&json, "model", reply->model_name);
    } else {
        rn_reply_put_head(reply, &json);
        rn_json_array(&json, "choices");
        rn_json_end(&json);
    }
    rn_reply_put_usage(reply, &json);
    return end_event(reply, &json);
}

static rn_status form_done(rn_reply *reply) {
    reply->ended = true;
    if (reply->job->request.kind == RN_REQUEST_GENERATE) return RN_OK; // usage was the last
    return rn_buffer_append(&reply->buffer, "data: [DONE]\n\n", 14);
}

rn_status rn_reply_form_events(rn_reply *reply, rn_reply_news *out_news) {
    *out_news = RN_REPLY_BYTES_MADE;
    switch (reply->part) {
    case OPENING:
        return form_opening(reply);
    case PIECES:
        return form_pieces(reply, out_news);
    case USAGE:
        return form_usage(reply);
    default:
        return form_done(reply);
    }
}
