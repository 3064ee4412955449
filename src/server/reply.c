// reply.c — parts are formed as they are asked for and copied out.
#include "server/reply_form.h"

#include "base/checked.h"
#include "memory/account.h"

static bool counts_characters(const rn_request *request) {
    return request->logprobs && request->kind != RN_REQUEST_CHAT;
}

static void begin_anew(rn_reply *reply) {
    reply->cursor = reply->prompt_at = reply->copied = reply->buffer.bytes = 0;
    reply->part = reply->choice = reply->list = 0;
    reply->finish = RN_FINISH_STOP;
    reply->ended = reply->in_call = false;
    reply->item = (rn_reply_item){0};
    rn_json_begin(&reply->json, rn_buffer_sink(&reply->buffer), false);
    for (uint32_t i = 0; reply->marks && i < rn_reply_choices(reply); i++) {
        reply->marks[i].characters = 0;
        rn_decoder_begin(&reply->marks[i].decoder, reply->tokenizer, false);
        reply->marks[i].decoder.started = true; // the prompt stands before
    }
}

void rn_reply_begin(rn_reply *reply, rn_job *job, const rn_tokenizer *tokenizer,
                    const char *model_name) {
    void *marks = NULL;
    *reply = (rn_reply){.job = job, .tokenizer = tokenizer, .model_name = model_name};
    // While one grows, its old block is there, too: half as much again.
    rn_buffer_init(&reply->buffer, RN_HOST_IO, RN_REPLY_BYTES / 2);
    rn_buffer_init(&reply->slice, RN_HOST_IO, RN_REPLY_BYTES / 8);
    if (counts_characters(&job->request))
        reply->status =
            rn_alloc_zeroed(RN_HOST_IO, rn_reply_choices(reply), sizeof *reply->marks, &marks);
    reply->marks = marks;
    void *calls = NULL;
    if (reply->status == RN_OK && job->request.tools.bytes)
        reply->status =
            rn_alloc_zeroed(RN_HOST_IO, rn_reply_choices(reply), sizeof *reply->calls, &calls);
    reply->calls = calls;
    begin_anew(reply);
}

void rn_reply_free(rn_reply *reply) {
    if (!reply->job) return;
    if (reply->marks)
        rn_free(RN_HOST_IO, reply->marks, rn_reply_choices(reply) * sizeof *reply->marks);
    if (reply->calls)
        rn_free(RN_HOST_IO, reply->calls, rn_reply_choices(reply) * sizeof *reply->calls);
    rn_buffer_free(&reply->buffer);
    rn_buffer_free(&reply->slice);
    *reply = (rn_reply){0};
}

const char *rn_reply_type(const rn_reply *reply) {
    if (!reply->job->request.stream) return "application/json";
    rn_request_dialect dialect = reply->job->request.dialect;
    return dialect && dialect != RN_DIALECT_RESPONSES ? "application/x-ndjson"
                                                      : "text/event-stream";
}

static rn_status form(rn_reply *reply, rn_reply_news *out_news) {
    const rn_request *request = &reply->job->request;
    if (request->dialect == RN_DIALECT_RERANK) return rn_reply_form_ranking(reply, out_news);
    if (request->kind == RN_REQUEST_EMBED) return rn_reply_form_embeddings(reply, out_news);
    if (request->kind == RN_REQUEST_IMAGE) return rn_reply_form_pictures(reply, out_news);
    if (request->dialect == RN_DIALECT_RESPONSES) return rn_reply_form_response(reply, out_news);
    if (request->dialect) return rn_reply_form_lines(reply, out_news);
    return request->stream ? rn_reply_form_events(reply, out_news)
                           : rn_reply_form_object(reply, out_news);
}

// Parts until there is something worth copying, or nothing more for now.
static rn_reply_news fill(rn_reply *reply) {
    rn_reply_news news = RN_REPLY_BYTES_MADE;
    reply->buffer.bytes = reply->copied = 0;
    while (reply->status == RN_OK && !reply->ended && news == RN_REPLY_BYTES_MADE &&
           reply->buffer.bytes < RN_REPLY_PART_BYTES)
        reply->status = form(reply, &news);
    if (reply->status != RN_OK) return RN_REPLY_BROKEN;
    if (reply->buffer.bytes > 0) return RN_REPLY_BYTES_MADE;
    return reply->ended ? RN_REPLY_END : RN_REPLY_NOTHING;
}

rn_status rn_reply_measure(rn_reply *reply, uint64_t *out_bytes) {
    *out_bytes = 0;
    begin_anew(reply);
    while (fill(reply) == RN_REPLY_BYTES_MADE)
        *out_bytes += reply->buffer.bytes;
    bool ended = reply->ended;
    begin_anew(reply);
    if (reply->status == RN_OK && !ended)
        return rn_fail(RN_INTERNAL, "an answer is measured before it is there");
    return reply->status;
}

rn_reply_news rn_reply_read(rn_reply *reply, char *out, size_t capacity, size_t *out_count) {
    *out_count = 0;
    while (*out_count < capacity) {
        if (reply->copied == reply->buffer.bytes) {
            rn_reply_news news = fill(reply);
            if (news == RN_REPLY_BROKEN || (news != RN_REPLY_BYTES_MADE && *out_count == 0))
                return news;
            if (news != RN_REPLY_BYTES_MADE) break;
        }
        size_t count = rn_min_u64(reply->buffer.bytes - reply->copied, capacity - *out_count);
        memcpy(out + *out_count, reply->buffer.data + reply->copied, count);
        reply->copied += count;
        *out_count += count;
    }
    return RN_REPLY_BYTES_MADE;
}
