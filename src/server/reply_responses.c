// reply_responses.c — an answer as OpenAI's /v1/responses: an object whose output is a list of
// items (a message, calls of tools), or the events by which it comes to be.
//
//     events: CREATED ─▶ IN_PROGRESS ─▶ PIECES ⇄ ITEM_END ─▶ COMPLETED
//     object: the last one's object alone
//
// What an event says again at the end of an item, and the object at the end of all, is read from
// the outbox a second time: such a stream keeps its pieces.
#include "server/reply_form.h"

#include "base/checked.h"

#include <stdio.h>
#include <string.h>

// CREATED and IN_PROGRESS and COMPLETED have a response object each, written in steps.
enum part { CREATED, IN_PROGRESS, PIECES, ITEM_END, COMPLETED };
enum step { HEAD, OUTPUT, TOOLS, INSTRUCTIONS, TAIL };

// ---- names --------------------------------------------------------------------------------------

typedef struct name {
    char text[64];
} name;

// "msg_..._0": of the response's own id.
static name item_id(const rn_reply *reply, const char *kind, uint32_t index) {
    name out;
    const char *of = strchr(reply->job->id, '_');
    snprintf(out.text, sizeof out.text, "%s_%.24s_%u", kind, of ? of + 1 : "", index);
    return out;
}

static const char *status_of(const rn_reply *reply) {
    if (reply->part < COMPLETED) return "in_progress";
    return reply->finish == RN_FINISH_LENGTH ? "incomplete" : "completed";
}

// ---- an item ------------------------------------------------------------------------------------

// Its text follows, and end_item.
static void begin_item(rn_reply *reply, const char *key, bool done, rn_str called) {
    rn_json *json = &reply->json;
    const rn_reply_item *item = &reply->item;
    bool call = item->kind == RN_ITEM_CALL;
    rn_json_object(json, key);
    rn_json_string(json, "type", call ? "function_call" : "message");
    rn_json_string(json, "id", item_id(reply, call ? "fc" : "msg", item->index).text);
    rn_json_string(json, "status", done ? "completed" : "in_progress");
    if (call) {
        rn_json_string(json, "call_id", item_id(reply, "call", item->index).text);
        rn_json_text(json, "name", called);
    } else {
        rn_json_string(json, "role", "assistant");
        rn_json_array(json, "content");
    }
}

static void begin_part(rn_json *json, const char *key) {
    rn_json_object(json, key);
    rn_json_string(json, "type", "output_text");
    rn_json_array(json, "annotations");
    rn_json_end(json);
    rn_json_array(json, "logprobs");
    rn_json_end(json);
}

// Where the text of the item goes: open_text, slices, close_text.
static void open_text(rn_reply *reply) {
    bool call = reply->item.kind == RN_ITEM_CALL;
    if (!call) begin_part(&reply->json, NULL);
    rn_reply_open_string(&reply->buffer, &reply->json, call ? "arguments" : "text");
}

static rn_status close_text(rn_reply *reply) {
    RN_TRY(rn_reply_close_string(&reply->buffer));
    if (reply->item.kind == RN_ITEM_MESSAGE) {
        rn_json_end(&reply->json);
        rn_json_end(&reply->json);
    }
    rn_json_end(&reply->json);
    return RN_OK;
}

static bool belongs(const rn_piece *piece, int kind) {
    if (piece->text.bytes == 0 && piece->kind != RN_PIECE_CALL) return false;
    return (kind == RN_ITEM_CALL) == (piece->kind != RN_PIECE_TEXT);
}

// A piece begins another item than the one that is open.
static bool begins_item(const rn_reply *reply, const rn_piece *piece) {
    if (piece->kind == RN_PIECE_CALL) return true;
    return piece->kind == RN_PIECE_TEXT && piece->text.bytes && reply->item.kind != RN_ITEM_MESSAGE;
}

// ---- a response ---------------------------------------------------------------------------------

static void put_head(rn_reply *reply, const char *key) {
    const rn_request *request = &reply->job->request;
    rn_json *json = &reply->json;
    rn_json_object(json, key);
    rn_json_string(json, "id", reply->job->id);
    rn_json_string(json, "object", "response");
    rn_json_i64(json, "created_at", reply->job->created);
    rn_json_string(json, "model", reply->model_name);
    rn_json_null(json, "error");
    rn_json_null(json, "previous_response_id");
    rn_json_bool(json, "store", false);
    rn_json_bool(json, "parallel_tool_calls", true);
    rn_json_f64(json, "temperature", (double)request->sampling.temperature);
    rn_json_f64(json, "top_p", (double)request->sampling.top_p);
    if (request->max_tokens)
        rn_json_u64(json, "max_output_tokens", request->max_tokens);
    else
        rn_json_null(json, "max_output_tokens");
    rn_json_string(json, "truncation", "disabled");
    rn_json_object(json, "metadata");
    rn_json_end(json);
    rn_json_object(json, "text");
    rn_json_object(json, "format");
    rn_json_string(json, "type",
                   !request->json          ? "text"
                   : request->schema.bytes ? "json_schema"
                                           : "json_object");
    rn_json_end(json);
    rn_json_end(json);
    static const char *const choices[] = {"auto", "none", "required"};
    rn_json_string(json, "tool_choice", choices[request->tool_choice]);
    rn_json_array(json, "output");
    reply->item = (rn_reply_item){.number = reply->item.number};
    reply->cursor = 0;
}

static rn_status end_output(rn_reply *reply) {
    if (reply->item.kind) {
        RN_TRY(close_text(reply));
    } else if (reply->part == COMPLETED) { // nothing was said: a message all the same
        reply->item.kind = RN_ITEM_MESSAGE;
        begin_item(reply, NULL, true, RN_STR(""));
        open_text(reply);
        RN_TRY(close_text(reply));
    }
    rn_json_end(&reply->json);
    return RN_OK;
}

// False: there are no more pieces.
static rn_status put_output(rn_reply *reply, bool *out_more) {
    rn_piece piece;
    rn_reply_item *item = &reply->item;
    *out_more = reply->part == COMPLETED && rn_job_read(reply->job, &reply->cursor, &piece);
    if (!*out_more) return end_output(reply);
    if (piece.finish != RN_FINISH_NONE) reply->finish = piece.finish;
    if (begins_item(reply, &piece)) {
        if (item->kind) {
            RN_TRY(close_text(reply));
            item->index++;
        }
        item->kind = piece.kind == RN_PIECE_CALL ? RN_ITEM_CALL : RN_ITEM_MESSAGE;
        begin_item(reply, NULL, true, piece.text);
        open_text(reply);
    }
    if (piece.kind == RN_PIECE_CALL || piece.text.bytes == 0) return RN_OK;
    return rn_reply_put_slice(&reply->buffer, piece.text);
}

static void put_usage(const rn_reply *reply, rn_json *json) {
    rn_usage usage = rn_job_get_usage(reply->job);
    rn_json_object(json, "usage");
    rn_json_u64(json, "input_tokens", usage.prompt_tokens);
    rn_json_object(json, "input_tokens_details");
    rn_json_u64(json, "cached_tokens", usage.shared_tokens);
    rn_json_end(json);
    rn_json_u64(json, "output_tokens", usage.completion_tokens);
    rn_json_object(json, "output_tokens_details");
    rn_json_u64(json, "reasoning_tokens", 0);
    rn_json_end(json);
    rn_json_u64(json, "total_tokens", (uint64_t)usage.prompt_tokens + usage.completion_tokens);
    rn_json_end(json);
}

static void put_tail(rn_reply *reply) {
    rn_json *json = &reply->json;
    bool cut = reply->part == COMPLETED && reply->finish == RN_FINISH_LENGTH;
    rn_json_string(json, "status", status_of(reply));
    if (cut) {
        rn_json_object(json, "incomplete_details");
        rn_json_string(json, "reason", "max_output_tokens");
        rn_json_end(json);
    } else {
        rn_json_null(json, "incomplete_details");
    }
    if (reply->part == COMPLETED)
        put_usage(reply, json);
    else
        rn_json_null(json, "usage");
    rn_json_end(json);
}

// A text of any length, a slice at a time; `raw`: it is JSON already. True: there is more of it.
static rn_status put_long(rn_reply *reply, rn_str text, bool raw, bool *out_more) {
    size_t left = text.bytes - reply->prompt_at, bytes = rn_min_u64(left, RN_REPLY_PART_BYTES);
    rn_str slice = {text.data + reply->prompt_at, bytes};
    while (bytes < left && ((uint8_t)text.data[reply->prompt_at + bytes] & 0xc0) == 0x80)
        bytes--;
    slice.bytes = bytes;
    reply->prompt_at += bytes;
    *out_more = reply->prompt_at < text.bytes;
    return raw ? rn_buffer_append(&reply->buffer, slice.data, slice.bytes)
               : rn_reply_put_slice(&reply->buffer, slice);
}

// As they were written: a value of the object that the writer is in.
static rn_status put_tools(rn_reply *reply, bool *out_more) {
    rn_str tools = reply->job->request.asked_tools;
    if (reply->prompt_at == 0) {
        rn_json_array(&reply->json, "tools");
        rn_json_end(&reply->json);
        RN_TRY(reply->json.status);
        if (tools.bytes) reply->buffer.bytes -= 2; // "[]"
    }
    if (tools.bytes) return put_long(reply, tools, true, out_more);
    *out_more = false;
    return RN_OK;
}

static rn_status put_instructions(rn_reply *reply, bool *out_more) {
    rn_str text = reply->job->request.instructions;
    *out_more = false;
    if (text.bytes == 0) {
        rn_json_null(&reply->json, "instructions");
        return RN_OK;
    }
    if (reply->prompt_at == 0) rn_reply_open_string(&reply->buffer, &reply->json, "instructions");
    RN_TRY(reply->json.status);
    RN_TRY(put_long(reply, text, false, out_more));
    return *out_more ? RN_OK : rn_reply_close_string(&reply->buffer);
}

// One step of a response object. *out_more: it is not complete.
static rn_status put_response(rn_reply *reply, const char *key, bool *out_more) {
    bool more = false;
    *out_more = true;
    switch (reply->list) {
    case HEAD:
        put_head(reply, key);
        break;
    case OUTPUT:
        RN_TRY(put_output(reply, &more));
        break;
    case TOOLS:
        RN_TRY(put_tools(reply, &more));
        break;
    case INSTRUCTIONS:
        RN_TRY(put_instructions(reply, &more));
        break;
    default:
        put_tail(reply);
        *out_more = false;
    }
    if (more) return RN_OK;
    reply->prompt_at = 0;
    reply->list = *out_more ? reply->list + 1 : HEAD;
    return RN_OK;
}

// ---- events -------------------------------------------------------------------------------------

static rn_status begin_event(rn_reply *reply, const char *type) {
    RN_TRY(rn_buffer_append(&reply->buffer, "event: ", 7));
    RN_TRY(rn_buffer_append(&reply->buffer, type, strlen(type)));
    RN_TRY(rn_buffer_append(&reply->buffer, "\ndata: ", 7));
    rn_json_begin(&reply->json, rn_buffer_sink(&reply->buffer), false);
    rn_json_object(&reply->json, NULL);
    rn_json_string(&reply->json, "type", type);
    rn_json_u64(&reply->json, "sequence_number", reply->item.number++);
    return RN_OK;
}

static rn_status end_event(rn_reply *reply) {
    rn_json_end(&reply->json);
    RN_TRY(rn_json_finish(&reply->json));
    return rn_buffer_append(&reply->buffer, "\n", 1);
}

static void put_place(rn_reply *reply) {
    bool call = reply->item.kind == RN_ITEM_CALL;
    rn_json_string(&reply->json, "item_id",
                   item_id(reply, call ? "fc" : "msg", reply->item.index).text);
    rn_json_u64(&reply->json, "output_index", reply->item.index);
    if (!call) rn_json_u64(&reply->json, "content_index", 0);
}

static rn_status event_of_response(rn_reply *reply) {
    bool more = false;
    const char *type = reply->part == CREATED              ? "response.created"
                       : reply->part == IN_PROGRESS        ? "response.in_progress"
                       : reply->finish == RN_FINISH_LENGTH ? "response.incomplete"
                                                           : "response.completed";
    if (reply->list == HEAD) RN_TRY(begin_event(reply, type));
    RN_TRY(put_response(reply, "response", &more));
    if (more) return RN_OK;
    RN_TRY(end_event(reply));
    reply->ended = reply->part == COMPLETED;
    reply->part++;
    reply->cursor = 0;
    return RN_OK;
}

static rn_status event_of_item(rn_reply *reply, rn_str called) {
    rn_json *json = &reply->json;
    bool call = reply->item.kind == RN_ITEM_CALL;
    RN_TRY(begin_event(reply, "response.output_item.added"));
    rn_json_u64(json, "output_index", reply->item.index);
    begin_item(reply, "item", false, called);
    if (call)
        rn_json_string(json, "arguments", "");
    else
        rn_json_end(json);
    rn_json_end(json);
    RN_TRY(end_event(reply));
    if (call) return RN_OK;
    RN_TRY(begin_event(reply, "response.content_part.added"));
    put_place(reply);
    begin_part(json, "part");
    rn_json_string(json, "text", "");
    rn_json_end(json);
    return end_event(reply);
}

static rn_status event_of_text(rn_reply *reply, rn_str text) {
    bool call = reply->item.kind == RN_ITEM_CALL;
    RN_TRY(begin_event(reply, call ? "response.function_call_arguments.delta"
                                   : "response.output_text.delta"));
    put_place(reply);
    rn_json_text(&reply->json, "delta", text);
    if (!call) {
        rn_json_array(&reply->json, "logprobs");
        rn_json_end(&reply->json);
    }
    return end_event(reply);
}

// ---- the end of an item -------------------------------------------------------------------------

// Its events, and the name of a call's tool at its first piece.
static rn_status begin_end_event(rn_reply *reply, rn_str called) {
    static const char *const types[2][3] = {
        {"response.output_text.done", "response.content_part.done", "response.output_item.done"},
        {"response.function_call_arguments.done", "response.output_item.done", NULL}};
    bool call = reply->item.kind == RN_ITEM_CALL;
    rn_json *json = &reply->json;
    RN_TRY(begin_event(reply, types[call][reply->item.event]));
    if (strcmp(types[call][reply->item.event], "response.output_item.done") == 0) {
        rn_json_u64(json, "output_index", reply->item.index);
        begin_item(reply, "item", true, called);
        open_text(reply);
        return RN_OK;
    }
    put_place(reply);
    if (call) rn_json_text(json, "name", called);
    if (!call && reply->item.event == 0) {
        rn_json_array(json, "logprobs");
        rn_json_end(json);
    }
    if (!call && reply->item.event == 1) begin_part(json, "part");
    rn_reply_open_string(&reply->buffer, json, call ? "arguments" : "text");
    return RN_OK;
}

static rn_status finish_end_event(rn_reply *reply) {
    bool call = reply->item.kind == RN_ITEM_CALL;
    uint32_t last = call ? 1 : 2;
    if (reply->item.event == last) {
        RN_TRY(close_text(reply));
    } else {
        RN_TRY(rn_reply_close_string(&reply->buffer));
        if (!call && reply->item.event == 1) rn_json_end(&reply->json);
    }
    RN_TRY(end_event(reply));
    reply->cursor = reply->item.first;
    if (reply->item.event++ < last) return RN_OK;
    reply->cursor = reply->item.last;
    reply->item.kind = RN_ITEM_NONE;
    reply->item.index++;
    reply->item.event = 0;
    reply->part = PIECES;
    return RN_OK;
}

// reply->cursor walks the item's pieces once for each event.
static rn_status form_item_end(rn_reply *reply) {
    rn_piece piece = {0};
    bool first = reply->cursor == reply->item.first;
    bool more = reply->cursor < reply->item.last && rn_job_read(reply->job, &reply->cursor, &piece);
    if (first) RN_TRY(begin_end_event(reply, more ? piece.text : RN_STR("")));
    if (!more) return finish_end_event(reply);
    if (piece.kind == RN_PIECE_CALL || !belongs(&piece, (int)reply->item.kind)) return RN_OK;
    return rn_reply_put_slice(&reply->buffer, piece.text);
}

static void end_item(rn_reply *reply, size_t last) {
    reply->item.last = last;
    reply->cursor = reply->item.first;
    reply->part = ITEM_END;
}

// ---- pieces as they come ------------------------------------------------------------------------

static rn_status form_piece(rn_reply *reply, const rn_piece *piece, size_t begin) {
    if (begins_item(reply, piece)) {
        if (reply->item.kind) { // it is read again when the other has ended
            end_item(reply, begin);
            return RN_OK;
        }
        reply->item.kind = piece->kind == RN_PIECE_CALL ? RN_ITEM_CALL : RN_ITEM_MESSAGE;
        reply->item.first = begin;
        RN_TRY(event_of_item(reply, piece->text));
    }
    if (piece->finish != RN_FINISH_NONE) reply->finish = piece->finish;
    if (piece->kind == RN_PIECE_CALL || piece->text.bytes == 0) return RN_OK;
    return event_of_text(reply, piece->text);
}

static rn_status form_problem(rn_reply *reply) {
    rn_problem problem = rn_job_get_problem(reply->job);
    rn_json *json = &reply->json;
    reply->ended = true;
    RN_TRY(begin_event(reply, "error"));
    rn_json_string(json, "code", problem.code ? problem.code : "");
    rn_json_string(json, "message", problem.message);
    rn_json_null(json, "param");
    return end_event(reply);
}

static rn_status form_pieces(rn_reply *reply, rn_reply_news *out_news) {
    rn_piece piece;
    size_t begin = reply->cursor;
    rn_job_state state = rn_job_get_state(reply->job); // before looking, as for events
    if (rn_job_read(reply->job, &reply->cursor, &piece)) return form_piece(reply, &piece, begin);
    if (state == RN_JOB_FAILED) return form_problem(reply);
    if (state == RN_JOB_CANCELLED) return rn_fail(RN_CANCELLED, "the client is gone");
    if (state != RN_JOB_DONE) {
        *out_news = RN_REPLY_NOTHING;
        return RN_OK;
    }
    if (reply->item.kind)
        end_item(reply, reply->cursor);
    else
        reply->part = COMPLETED;
    return RN_OK;
}

// ---- all of it ----------------------------------------------------------------------------------

static rn_status form_object(rn_reply *reply, rn_reply_news *out_news) {
    bool more = true;
    reply->part = COMPLETED;
    if (rn_job_get_state(reply->job) != RN_JOB_DONE) {
        *out_news = RN_REPLY_NOTHING;
        return RN_OK;
    }
    RN_TRY(put_response(reply, NULL, &more));
    if (more) return RN_OK;
    reply->ended = true;
    return rn_json_finish(&reply->json);
}

rn_status rn_reply_form_response(rn_reply *reply, rn_reply_news *out_news) {
    *out_news = RN_REPLY_BYTES_MADE;
    reply->json.sink = rn_buffer_sink(&reply->buffer);
    rn_status s = !reply->job->request.stream ? form_object(reply, out_news)
                  : reply->part == PIECES     ? form_pieces(reply, out_news)
                  : reply->part == ITEM_END   ? form_item_end(reply)
                                              : event_of_response(reply);
    return s == RN_OK ? reply->json.status : s;
}
