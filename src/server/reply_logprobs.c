// reply_logprobs.c — how likely the model found its tokens, as OpenAI's clients read it.
#include "server/reply_form.h"

#include <math.h>
#include <stdio.h>

// JSON has no infinities; OpenAI's clients know this number for "never".
static double as_number(float logprob) {
    return isfinite(logprob) ? (double)logprob : -9999.0;
}

static rn_str bytes_of(const rn_reply *reply, uint32_t token) {
    return rn_tokenizer_bytes(reply->tokenizer, token, true);
}

// ---- completions --------------------------------------------------------------------------------

// A token that is no text by itself, a part of a character, is spelled "bytes:\xe2\x82".
typedef struct token_name {
    char room[64];
    rn_str text;
} token_name;

static void name_token(const rn_reply *reply, uint32_t token, token_name *out) {
    int filled = 6;
    out->text = bytes_of(reply, token);
    if (rn_utf8_valid(out->text)) return;
    memcpy(out->room, "bytes:", 6);
    for (size_t i = 0; i < out->text.bytes && filled + 5 < (int)sizeof out->room; i++)
        filled += snprintf(out->room + filled, sizeof out->room - (size_t)filled, "\\x%02x",
                           (unsigned char)out->text.data[i]);
    out->text = (rn_str){out->room, (size_t)filled};
}

static void put_token(rn_reply *reply, rn_json *json, uint32_t choice, const rn_sample *sample) {
    token_name name;
    (void)choice;
    name_token(reply, sample->token, &name);
    rn_json_text(json, NULL, name.text);
}

static void put_logprob(rn_reply *reply, rn_json *json, uint32_t choice, const rn_sample *sample) {
    (void)reply, (void)choice;
    rn_json_f64(json, NULL, as_number(sample->logprob));
}

// Whether a better one has the same text: the object's keys are texts.
static bool is_repeated(const rn_reply *reply, const rn_sample *sample, uint32_t index) {
    rn_str text = bytes_of(reply, sample->top[index].token);
    for (uint32_t i = 0; i < index; i++)
        if (rn_str_equal(text, bytes_of(reply, sample->top[i].token))) return true;
    return false;
}

// The best tokens and, where it is none of them, the chosen one.
static void put_tops(rn_reply *reply, rn_json *json, uint32_t choice, const rn_sample *sample) {
    token_name name;
    (void)choice;
    rn_str chosen = bytes_of(reply, sample->token);
    bool has_chosen = false;
    rn_json_object(json, NULL);
    for (uint32_t i = 0; i < sample->top_count; i++) {
        if (is_repeated(reply, sample, i)) continue;
        has_chosen |= rn_str_equal(chosen, bytes_of(reply, sample->top[i].token));
        name_token(reply, sample->top[i].token, &name);
        rn_json_key(json, name.text);
        rn_json_f64(json, NULL, as_number(sample->top[i].logprob));
    }
    if (!has_chosen) {
        name_token(reply, sample->token, &name);
        rn_json_key(json, name.text);
        rn_json_f64(json, NULL, as_number(sample->logprob));
    }
    rn_json_end(json);
}

static rn_status count_characters(void *self, const char *text, size_t bytes) {
    uint64_t *characters = self;
    for (size_t i = 0; i < bytes; i++)
        *characters += (text[i] & 0xC0) != 0x80;
    return RN_OK;
}

static void put_offset(rn_reply *reply, rn_json *json, uint32_t choice, const rn_sample *sample) {
    rn_reply_mark *mark = &reply->marks[choice];
    rn_json_u64(json, NULL, mark->characters);
    rn_sink count = {&mark->characters, count_characters};
    rn_status s = rn_decoder_put(&mark->decoder, sample->token, count);
    if (json->status == RN_OK) json->status = s;
}

// ---- chats --------------------------------------------------------------------------------------

static void put_one(const rn_reply *reply, rn_json *json, uint32_t token, float logprob) {
    rn_str bytes = bytes_of(reply, token);
    rn_json_text(json, "token", bytes);
    rn_json_f64(json, "logprob", as_number(logprob));
    rn_json_array(json, "bytes");
    for (size_t i = 0; i < bytes.bytes; i++)
        rn_json_u64(json, NULL, (unsigned char)bytes.data[i]);
    rn_json_end(json);
}

static void put_content(rn_reply *reply, rn_json *json, uint32_t choice, const rn_sample *sample) {
    (void)choice;
    rn_json_object(json, NULL);
    put_one(reply, json, sample->token, sample->logprob);
    rn_json_array(json, "top_logprobs");
    for (uint32_t i = 0; i < sample->top_count; i++) {
        rn_json_object(json, NULL);
        put_one(reply, json, sample->top[i].token, sample->top[i].logprob);
        rn_json_end(json);
    }
    rn_json_end(json);
    rn_json_end(json);
}

// ---- both ---------------------------------------------------------------------------------------

const rn_reply_list *rn_reply_list_at(const rn_reply *reply, uint32_t index) {
    static const rn_reply_list of_text[] = {{"tokens", put_token},
                                            {"token_logprobs", put_logprob},
                                            {"top_logprobs", put_tops},
                                            {"text_offset", put_offset}};
    static const rn_reply_list of_chat[] = {{"content", put_content}};
    if (reply->job->request.kind == RN_REQUEST_CHAT) return index < 1 ? &of_chat[index] : NULL;
    return index < 4 ? &of_text[index] : NULL;
}

void rn_reply_end_logprobs(const rn_reply *reply, rn_json *json) {
    if (reply->job->request.kind == RN_REQUEST_CHAT) rn_json_null(json, "refusal");
    rn_json_end(json);
}

void rn_reply_put_logprobs(rn_reply *reply, rn_json *json, uint32_t choice,
                           const rn_sample *sample) {
    if (!sample) {
        rn_json_null(json, "logprobs");
        return;
    }
    rn_json_object(json, "logprobs");
    const rn_reply_list *list;
    for (uint32_t i = 0; (list = rn_reply_list_at(reply, i)); i++) {
        rn_json_array(json, list->name);
        list->put(reply, json, choice, sample);
        rn_json_end(json);
    }
    rn_reply_end_logprobs(reply, json);
}
