// reply_pictures.c — pictures as OpenAI's images API answers: one object with all of them, or
// events:
//
//     image_generation.progress (after each step) ─▶ image_generation.completed ─▶ (the next
//     picture's ...)
//
// A picture's file lies in the outbox in slices whose base64 can be written one behind the other.
#include "server/reply_form.h"

#include "text/base64.h"

#include <stdio.h>

enum part { HEAD, PICTURES, WITHIN /* a picture's string is open */, TAIL };

// ---- a picture ----------------------------------------------------------------------------------

static rn_status put_base64(rn_reply *reply, rn_str bytes) {
    char text[RN_PICTURE_PIECE_BYTES / 3 * 4];
    rn_base64_encode(bytes, text);
    return rn_buffer_append(&reply->buffer, text, (bytes.bytes + 2) / 3 * 4);
}

static rn_status open_picture(rn_reply *reply) {
    bool url = reply->job->request.image.url;
    rn_reply_open_string(&reply->buffer, &reply->json, url ? "url" : "b64_json");
    reply->part = WITHIN;
    if (!url) return reply->json.status;
    RN_TRY(reply->json.status);
    return rn_buffer_append(&reply->buffer, "data:image/png;base64,", 22);
}

static void put_size(rn_reply *reply) {
    const rn_request_image *image = &reply->job->request.image;
    char size[32];
    snprintf(size, sizeof size, "%ux%u", image->width, image->height);
    rn_json_string(&reply->json, "size", size);
    rn_json_string(&reply->json, "output_format", "png");
}

// ---- one object ---------------------------------------------------------------------------------

static rn_status form_object(rn_reply *reply) {
    rn_json *json = &reply->json;
    rn_piece piece;
    json->sink = rn_buffer_sink(&reply->buffer);
    if (reply->part == HEAD) {
        rn_json_object(json, NULL);
        rn_json_i64(json, "created", reply->job->created);
        rn_json_array(json, "data");
        reply->part = PICTURES;
        return json->status;
    }
    if (!rn_job_read(reply->job, &reply->cursor, &piece)) {
        rn_json_end(json);
        put_size(reply);
        rn_json_end(json);
        reply->ended = true;
        return rn_json_finish(json);
    }
    if (piece.kind != RN_PIECE_PICTURE) return RN_OK;
    if (reply->part == PICTURES) {
        rn_json_object(json, NULL);
        RN_TRY(open_picture(reply));
    }
    if (piece.finish == RN_FINISH_NONE) return put_base64(reply, piece.text);
    RN_TRY(rn_reply_close_string(&reply->buffer));
    rn_json_u64(json, "seed", reply->job->request.sampling.seed + piece.choice);
    rn_json_end(json);
    reply->part = PICTURES;
    return json->status;
}

// ---- events -------------------------------------------------------------------------------------

static rn_status begin_event(rn_reply *reply, const char *type) {
    char line[64];
    int bytes = snprintf(line, sizeof line, "event: %s\ndata: ", type);
    RN_TRY(rn_buffer_append(&reply->buffer, line, (size_t)bytes));
    rn_json_begin(&reply->json, rn_buffer_sink(&reply->buffer), false);
    rn_json_object(&reply->json, NULL);
    rn_json_string(&reply->json, "type", type);
    rn_json_i64(&reply->json, "created_at", reply->job->created);
    return RN_OK;
}

static rn_status end_event(rn_reply *reply) {
    rn_json_end(&reply->json);
    RN_TRY(rn_json_finish(&reply->json));
    return rn_buffer_append(&reply->buffer, "\n", 1);
}

static rn_status form_step(rn_reply *reply, const rn_piece *piece) {
    rn_drawing_step step;
    memcpy(&step, piece->text.data, sizeof step);
    RN_TRY(begin_event(reply, "image_generation.progress"));
    rn_json_u64(&reply->json, "index", piece->choice);
    rn_json_u64(&reply->json, "step", step.step);
    rn_json_u64(&reply->json, "steps", step.steps);
    return end_event(reply);
}

static rn_status form_slice(rn_reply *reply, const rn_piece *piece) {
    reply->json.sink = rn_buffer_sink(&reply->buffer);
    if (reply->part != WITHIN) {
        RN_TRY(begin_event(reply, "image_generation.completed"));
        RN_TRY(open_picture(reply));
    }
    if (piece->finish == RN_FINISH_NONE) return put_base64(reply, piece->text);
    RN_TRY(rn_reply_close_string(&reply->buffer));
    rn_json_u64(&reply->json, "index", piece->choice);
    rn_json_u64(&reply->json, "seed", reply->job->request.sampling.seed + piece->choice);
    put_size(reply);
    reply->part = PICTURES;
    return end_event(reply);
}

static rn_status form_events(rn_reply *reply, rn_reply_news *out_news) {
    rn_piece piece;
    // Asked before looking for a piece: after the end nothing more is put.
    rn_job_state state = rn_job_get_state(reply->job);
    if (rn_job_read(reply->job, &reply->cursor, &piece))
        return piece.kind == RN_PIECE_STEP ? form_step(reply, &piece) : form_slice(reply, &piece);
    switch (state) {
    case RN_JOB_DONE:
        reply->ended = true;
        return rn_buffer_append(&reply->buffer, "data: [DONE]\n\n", 14);
    case RN_JOB_FAILED:
        // Within a picture there is no saying it: the line breaks off.
        return reply->part == WITHIN ? rn_fail(RN_CANCELLED, "a picture broke off")
                                     : rn_reply_put_failure(reply);
    case RN_JOB_CANCELLED:
        return rn_fail(RN_CANCELLED, "the client is gone");
    default:
        *out_news = RN_REPLY_NOTHING;
        return RN_OK;
    }
}

rn_status rn_reply_form_pictures(rn_reply *reply, rn_reply_news *out_news) {
    *out_news = RN_REPLY_BYTES_MADE;
    if (reply->job->request.stream) return form_events(reply, out_news);
    *out_news = RN_REPLY_NOTHING;
    if (rn_job_get_state(reply->job) != RN_JOB_DONE) return RN_OK;
    *out_news = RN_REPLY_BYTES_MADE;
    return form_object(reply);
}
