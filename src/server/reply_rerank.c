// reply_rerank.c — what a reranker says, best first, as Jina's and Cohere's APIs have it.
//
//     HEAD ─▶ ITEMS, one a document (─▶ TEXT, its slices) ─▶ TAIL
#include "server/reply_form.h"

#include <math.h>

enum part { HEAD, ITEMS, TEXT };

static void form_head(rn_reply *reply) {
    rn_json *json = &reply->json;
    rn_json_object(json, NULL);
    rn_json_string(json, "id", reply->job->id);
    rn_json_string(json, "object", "list");
    rn_json_string(json, "model", reply->model_name);
    rn_json_array(json, "results");
    reply->part = ITEMS;
}

static void form_item(rn_reply *reply, const rn_piece *piece) {
    const rn_request *request = &reply->job->request;
    rn_json *json = &reply->json;
    float score = 0;
    memcpy(&score, piece->text.data, sizeof score);
    rn_json_object(json, NULL);
    rn_json_u64(json, "index", piece->choice);
    rn_json_f64(json, "relevance_score",
                request->raw_scores ? (double)score : 1 / (1 + exp(-(double)score)));
    if (!request->returns_documents) {
        rn_json_end(json);
        return;
    }
    rn_json_object(json, "document");
    rn_reply_open_string(&reply->buffer, json, "text");
    reply->choice = piece->choice;
    reply->prompt_at = 0;
    reply->part = TEXT;
}

static rn_status form_text(rn_reply *reply) {
    rn_str slice;
    RN_TRY(rn_reply_next_slice(reply, &slice));
    if (slice.bytes) return rn_reply_put_slice(&reply->buffer, slice);
    RN_TRY(rn_reply_close_string(&reply->buffer));
    rn_json_end(&reply->json);
    rn_json_end(&reply->json);
    reply->part = ITEMS;
    return RN_OK;
}

static rn_status form_tail(rn_reply *reply) {
    rn_json *json = &reply->json;
    rn_usage usage = rn_job_get_usage(reply->job);
    rn_json_end(json);
    rn_json_object(json, "usage");
    rn_json_u64(json, "prompt_tokens", usage.prompt_tokens);
    rn_json_u64(json, "total_tokens", usage.prompt_tokens);
    rn_json_end(json);
    rn_json_end(json);
    reply->ended = true;
    return rn_json_finish(json);
}

static rn_status form_part(rn_reply *reply) {
    rn_piece piece;
    if (reply->part == TEXT) return form_text(reply);
    if (reply->part == HEAD) {
        form_head(reply);
        return RN_OK;
    }
    if (!rn_job_read(reply->job, &reply->cursor, &piece)) return form_tail(reply);
    form_item(reply, &piece);
    return RN_OK;
}

rn_status rn_reply_form_ranking(rn_reply *reply, rn_reply_news *out_news) {
    *out_news = RN_REPLY_NOTHING;
    if (rn_job_get_state(reply->job) != RN_JOB_DONE) return RN_OK;
    *out_news = RN_REPLY_BYTES_MADE;
    reply->json.sink = rn_buffer_sink(&reply->buffer);
    RN_TRY(form_part(reply));
    return reply->json.status;
}
