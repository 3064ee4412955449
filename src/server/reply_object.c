// reply_object.c — an answer as one JSON object. The job's pieces are walked once for each list
// that is written of them: the text of a choice, its tokens, their logprobs.
//
//     HEAD ─▶ CHOICE ─▶ ECHO ─▶ TEXT ─▶ (CALLS) ─▶ LISTS ─▶ CHOICE_END ─▶ (CHOICE ...) PROMPT ─▶
//     TAIL
#include "server/reply_form.h"

enum part { HEAD, CHOICE, ECHO, TEXT, CALLS, LISTS, CHOICE_END, PROMPT, TAIL };

// /generate with one choice has its text at the top, as the seed has it.
static bool is_flat(const rn_reply *reply) {
    return reply->job->request.kind == RN_REQUEST_GENERATE && rn_reply_choices(reply) == 1;
}

static bool next_piece(rn_reply *reply, rn_piece *out) {
    while (rn_job_read(reply->job, &reply->cursor, out))
        if (out->choice == reply->choice) return true;
    return false;
}

static void form_head(rn_reply *reply) {
    rn_json *json = &reply->json;
    rn_json_object(json, NULL);
    if (reply->job->request.kind != RN_REQUEST_GENERATE) rn_reply_put_head(reply, json);
    if (!is_flat(reply)) rn_json_array(json, "choices");
    reply->part = CHOICE;
}

// ---- calls of tools -----------------------------------------------------------------------------

static uint32_t count_pieces(rn_reply *reply, rn_piece_kind kind) {
    uint32_t count = 0;
    rn_piece piece;
    reply->cursor = 0;
    while (next_piece(reply, &piece))
        count += piece.kind == kind && piece.text.bytes > 0;
    reply->cursor = 0;
    return count;
}

// Nothing is said beside: there is no content then.
static bool only_calls(rn_reply *reply) {
    return reply->calls && count_pieces(reply, RN_PIECE_CALL) &&
           !count_pieces(reply, RN_PIECE_TEXT);
}

static void begin_calls(rn_reply *reply) {
    rn_json_array(&reply->json, "tool_calls");
    reply->cursor = 0;
    reply->calls[reply->choice] = 0;
    reply->part = CALLS;
}

static rn_status end_call(rn_reply *reply) {
    if (reply->calls[reply->choice] == 0) return RN_OK;
    RN_TRY(rn_reply_close_string(&reply->buffer));
    rn_json_end(&reply->json);
    rn_json_end(&reply->json);
    return RN_OK;
}

static rn_status end_message(rn_reply *reply);

static rn_status form_calls(rn_reply *reply) {
    rn_piece piece;
    rn_json *json = &reply->json;
    if (!next_piece(reply, &piece)) {
        RN_TRY(end_call(reply));
        rn_json_end(json);
        return end_message(reply);
    }
    if (piece.finish != RN_FINISH_NONE) reply->finish = piece.finish;
    if (piece.kind == RN_PIECE_ARGUMENTS) return rn_reply_put_slice(&reply->buffer, piece.text);
    if (piece.kind != RN_PIECE_CALL) return RN_OK;
    RN_TRY(end_call(reply));
    rn_json_object(json, NULL);
    rn_reply_put_call_id(reply, json, reply->choice, reply->calls[reply->choice]++);
    rn_json_object(json, "function");
    rn_json_text(json, "name", piece.text);
    rn_reply_open_string(&reply->buffer, json, "arguments");
    return RN_OK;
}

static void form_choice(rn_reply *reply) {
    rn_json *json = &reply->json;
    bool chat = reply->job->request.kind == RN_REQUEST_CHAT;
    if (!is_flat(reply)) {
        rn_json_object(json, NULL);
        rn_json_u64(json, "index", reply->choice);
    }
    if (chat) {
        rn_json_object(json, "message");
        rn_json_string(json, "role", "assistant");
    }
    reply->cursor = reply->prompt_at = 0;
    if (only_calls(reply)) {
        rn_json_null(json, "content");
        begin_calls(reply);
        return;
    }
    rn_reply_open_string(&reply->buffer, json, chat ? "content" : "text");
    reply->part = reply->job->request.echo ? ECHO : TEXT;
}

static rn_status form_echo(rn_reply *reply) {
    rn_str slice;
    RN_TRY(rn_reply_next_slice(reply, &slice));
    if (slice.bytes == 0) reply->part = TEXT;
    return rn_reply_put_slice(&reply->buffer, slice);
}

static void open_list(rn_reply *reply) {
    const rn_reply_list *list = rn_reply_list_at(reply, reply->list);
    reply->cursor = 0;
    reply->part = list ? LISTS : CHOICE_END;
    if (list)
        rn_json_array(&reply->json, list->name);
    else
        rn_reply_end_logprobs(reply, &reply->json);
}

static rn_status end_text(rn_reply *reply) {
    RN_TRY(rn_reply_close_string(&reply->buffer));
    if (!reply->calls || !count_pieces(reply, RN_PIECE_CALL)) return end_message(reply);
    begin_calls(reply);
    return RN_OK;
}

static rn_status end_message(rn_reply *reply) {
    rn_json *json = &reply->json;
    if (reply->job->request.kind == RN_REQUEST_CHAT) {
        rn_json_null(json, "refusal");
        rn_json_end(json);
    }
    reply->part = CHOICE_END;
    reply->list = 0;
    if (reply->job->request.logprobs) {
        rn_json_object(json, "logprobs");
        open_list(reply);
    } else if (reply->job->request.kind != RN_REQUEST_GENERATE) {
        rn_json_null(json, "logprobs");
    }
    return RN_OK;
}

static rn_status form_text(rn_reply *reply) {
    rn_piece piece;
    if (!next_piece(reply, &piece)) return end_text(reply);
    if (piece.finish != RN_FINISH_NONE) reply->finish = piece.finish;
    return piece.kind == RN_PIECE_TEXT ? rn_reply_put_slice(&reply->buffer, piece.text) : RN_OK;
}

static void form_list(rn_reply *reply) {
    rn_piece piece;
    if (next_piece(reply, &piece)) {
        if (piece.has_token)
            rn_reply_list_at(reply, reply->list)
                ->put(reply, &reply->json, reply->choice, &piece.sample);
        return;
    }
    rn_json_end(&reply->json);
    reply->list++;
    open_list(reply);
}

static void end_choice(rn_reply *reply) {
    rn_json_string(&reply->json, "finish_reason", rn_finish_name(reply->finish));
    if (!is_flat(reply)) rn_json_end(&reply->json);
    bool last = reply->choice + 1 == rn_reply_choices(reply);
    reply->part = last ? TAIL : CHOICE;
    if (!last) {
        reply->choice++;
        return;
    }
    if (!is_flat(reply)) rn_json_end(&reply->json);
    if (reply->job->request.kind != RN_REQUEST_GENERATE) return;
    reply->part = PROMPT;
    reply->prompt_at = 0;
    rn_reply_open_string(&reply->buffer, &reply->json, "prompt");
}

static rn_status form_prompt(rn_reply *reply) {
    rn_str slice;
    RN_TRY(rn_reply_next_slice(reply, &slice));
    if (slice.bytes > 0) return rn_reply_put_slice(&reply->buffer, slice);
    RN_TRY(rn_reply_close_string(&reply->buffer));
    rn_json_string(&reply->json, "model", reply->model_name);
    reply->part = TAIL;
    return RN_OK;
}

static rn_status form_tail(rn_reply *reply) {
    rn_reply_put_usage(reply, &reply->json);
    rn_json_end(&reply->json);
    reply->ended = true;
    return rn_json_finish(&reply->json);
}

static rn_status form_part(rn_reply *reply) {
    switch (reply->part) {
    case HEAD:
        form_head(reply);
        break;
    case CHOICE:
        form_choice(reply);
        break;
    case ECHO:
        return form_echo(reply);
    case TEXT:
        return form_text(reply);
    case CALLS:
        return form_calls(reply);
    case LISTS:
        form_list(reply);
        break;
    case CHOICE_END:
        end_choice(reply);
        break;
    case PROMPT:
        return form_prompt(reply);
    default:
        return form_tail(reply);
    }
    return RN_OK;
}

rn_status rn_reply_form_object(rn_reply *reply, rn_reply_news *out_news) {
    *out_news = RN_REPLY_NOTHING;
    if (rn_job_get_state(reply->job) != RN_JOB_DONE) return RN_OK;
    *out_news = RN_REPLY_BYTES_MADE;
    reply->json.sink = rn_buffer_sink(&reply->buffer);
    RN_TRY(form_part(reply));
    return reply->json.status;
}
