// tokenize.c — /tokenize and /detokenize: a model's own words for a text, and back.
#include "base/checked.h"
#include "base/json.h"
#include "server/request_reader.h"
#include "server/tokenizing.h"
#include "server/look.h"
#include "server/reply_form.h"
#include "server/server.h"

#include <ration/tokenizer.h>

// Done on the connection's thread, so not too long.
enum { TEXT_BYTES = 64 << 10, TOKENS = 64 << 10 };

typedef struct tokenize_request {
    rn_str text;
    bool has_text, add_special, parse_special, with_pieces;
    bool seen[3]; // the flags
} tokenize_request;

static const rn_tokenizer *find_tokenizer(rn_server *server, rn_problem *problem) {
    const rn_tokenizer *tokenizer = rn_engine_tokenizer(server->engine);
    rn_engine_facts facts;
    if (tokenizer) return tokenizer;
    rn_engine_get_facts(server->engine, &facts);
    if (facts.phase == RN_ENGINE_READY)
        (void)rn_look_refuse_kind(server->engine, problem);
    else
        (void)rn_phase_refuse(facts.phase, &facts.failure, problem);
    return NULL;
}

// ---- /tokenize ----------------------------------------------------------------------------------

static bool read_text(rn_request_reader *reader, const char *name, tokenize_request *out) {
    if (out->has_text)
        return rn_problem_set(reader->problem, 400, "invalid_value", name,
                              "there are two texts: give one of text, content, prompt");
    if (!rn_request_next(reader) || !rn_request_string(reader, name)) return false;
    if (reader->item.text.bytes > TEXT_BYTES)
        return rn_problem_set(reader->problem, 413, "too_long", name,
                              "%s has %zu bytes: at most %d are tokenized", name,
                              reader->item.text.bytes, TEXT_BYTES);
    out->text = rn_request_keep(reader);
    out->has_text = true;
    return true;
}

static bool read_tokenize_field(rn_request_reader *reader, rn_str key, tokenize_request *out) {
    static const char *const texts[] = {"text", "content", "prompt"};
    static const char *const names[] = {"add_special", "parse_special", "with_pieces"};
    bool *const flags[] = {&out->add_special, &out->parse_special, &out->with_pieces};
    for (size_t i = 0; i < 3; i++) {
        if (rn_str_equal(key, rn_str_from(texts[i]))) return read_text(reader, texts[i], out);
        if (!rn_str_equal(key, rn_str_from(names[i]))) continue;
        if (out->seen[i]) return rn_request_twice(reader, names[i]);
        out->seen[i] = true;
        return rn_request_next(reader) && rn_request_flag(reader, names[i], flags[i]);
    }
    return rn_request_unknown(reader, key);
}

static bool read_tokenize(rn_request_reader *reader, tokenize_request *out) {
    bool more, good = rn_request_open(reader);
    for (rn_str key; good && rn_request_next_key(reader, &key, &more);) {
        if (!more)
            return rn_request_close(reader) &&
                   (out->has_text || rn_request_missing(reader, "text"));
        good = read_tokenize_field(reader, key, out);
    }
    return false;
}

// Text where it is text, else its bytes.
static void put_piece(rn_json *json, rn_str piece) {
    if (rn_utf8_valid(piece)) {
        rn_json_text(json, "piece", piece);
        return;
    }
    rn_json_array(json, "piece");
    for (size_t i = 0; i < piece.bytes; i++)
        rn_json_u64(json, NULL, (unsigned char)piece.data[i]);
    rn_json_end(json);
}

static rn_status write_tokens(const rn_tokenizer *tokenizer, const rn_tokens *tokens, bool pieces,
                              rn_buffer *out) {
    rn_json json;
    rn_json_begin(&json, rn_buffer_sink(out), false);
    rn_json_object(&json, NULL);
    rn_json_array(&json, "tokens");
    for (size_t i = 0; i < tokens->count; i++) {
        if (!pieces) {
            rn_json_u64(&json, NULL, tokens->ids[i]);
            continue;
        }
        rn_json_object(&json, NULL);
        rn_json_u64(&json, "id", tokens->ids[i]);
        put_piece(&json, rn_tokenizer_bytes(tokenizer, tokens->ids[i], true));
        rn_json_end(&json);
    }
    rn_json_end(&json);
    rn_json_u64(&json, "count", tokens->count);
    rn_json_end(&json);
    return rn_json_finish(&json);
}

static rn_status encode(const rn_tokenizer *tokenizer, const tokenize_request *request,
                        rn_tokens *out) {
    uint32_t flags = (request->add_special ? RN_ENCODE_BEGIN : 0) |
                     (request->parse_special ? RN_ENCODE_SPECIAL : 0);
    return rn_tokenizer_encode(tokenizer, request->text, flags, out);
}

// Half of the request memory, at most, is the answers' of the engine; the body has its share
// already.
static bool take_memory(rn_request_memory *memory, uint64_t bytes, size_t body_bytes,
                        rn_problem *problem) {
    uint64_t share = rn_min_u64(memory->total_bytes / 2, rn_request_memory_bytes(body_bytes));
    uint64_t most = memory->total_bytes / 2 - share;
    if (rn_request_memory_take(memory, bytes)) return true;
    if (bytes > most)
        return rn_problem_set(problem, 413, "too_long", "text",
                              "tokenizing this text may take %s, and there are %s for it; shorter "
                              "texts and words take less",
                              rn_size_format(bytes).text, rn_size_format(most).text);
    return rn_problem_set_full(problem);
}

// Of what encoding may take, only the list stays while the answer is written.
static rn_status tokenize(rn_request_memory *memory, const rn_tokenizer *tokenizer,
                          const tokenize_request *request, size_t body_bytes,
                          rn_http_answer *answer) {
    uint64_t bytes = rn_tokenizing_work_bytes(request->text.bytes,
                                              rn_tokenizing_longest_word(tokenizer, request->text));
    rn_tokens tokens = {0};
    if (!take_memory(memory, bytes, body_bytes, &answer->problem)) return RN_OK;
    rn_status s = encode(tokenizer, request, &tokens);
    uint64_t list = tokens.capacity * sizeof *tokens.ids;
    rn_request_memory_release(memory, bytes - list);
    if (s == RN_OK) s = write_tokens(tokenizer, &tokens, request->with_pieces, &answer->body);
    rn_tokens_free(&tokens);
    rn_request_memory_release(memory, list);
    return s;
}

rn_status rn_handle_tokenize(rn_server *server, const rn_http_request *http,
                             rn_http_answer *answer) {
    const rn_tokenizer *tokenizer = find_tokenizer(server, &answer->problem);
    tokenize_request request = {.has_text = false};
    rn_arena memory;
    rn_request_reader reader;
    rn_status s = RN_OK;
    if (!tokenizer) return RN_OK;
    if (rn_request_reader_begin(&reader, http->body, &memory, &answer->problem) &&
        read_tokenize(&reader, &request))
        s = tokenize(&server->memory, tokenizer, &request, http->body.bytes, answer);
    rn_arena_free_all(&memory);
    return s;
}

// ---- /detokenize --------------------------------------------------------------------------------

static bool read_detokenize(rn_request_reader *reader, uint32_t vocab_size,
                            rn_request_prompt *out) {
    bool more;
    if (!rn_request_open(reader)) return false;
    for (rn_str key; rn_request_next_key(reader, &key, &more);) {
        if (!more)
            return rn_request_close(reader) && (out->ids || rn_request_missing(reader, "tokens"));
        if (!rn_str_equal(key, RN_STR("tokens"))) return rn_request_unknown(reader, key);
        if (out->ids) return rn_request_twice(reader, "tokens");
        if (!rn_request_next(reader)) return false;
        if (reader->item.kind != RN_JSON_ARRAY)
            return rn_request_wrong_type(reader, "tokens", "a list of tokens");
        if (!rn_request_tokens(reader, "tokens", false, vocab_size, &out->ids, &out->id_count))
            return false;
        if (out->id_count > TOKENS)
            return rn_problem_set(reader->problem, 413, "too_long", "tokens",
                                  "there are %zu tokens: at most %d are taken", out->id_count,
                                  TOKENS);
    }
    return false;
}

static rn_status put_text(void *buffer, const char *text, size_t bytes) {
    return rn_reply_put_slice(buffer, (rn_str){text, bytes});
}

static rn_status detokenize(const rn_tokenizer *tokenizer, const rn_request_prompt *tokens,
                            rn_buffer *out) {
    rn_sink sink = {out, put_text};
    rn_decoder decoder;
    rn_json json;
    rn_json_begin(&json, rn_buffer_sink(out), false);
    rn_json_object(&json, NULL);
    rn_reply_open_string(out, &json, "text");
    RN_TRY(json.status);
    rn_decoder_begin(&decoder, tokenizer, true);
    for (size_t i = 0; i < tokens->id_count; i++)
        RN_TRY(rn_decoder_put(&decoder, tokens->ids[i], sink));
    RN_TRY(rn_decoder_end(&decoder, sink));
    RN_TRY(rn_reply_close_string(out));
    rn_json_end(&json);
    return rn_json_finish(&json);
}

rn_status rn_handle_detokenize(rn_server *server, const rn_http_request *request,
                               rn_http_answer *answer) {
    const rn_tokenizer *tokenizer = find_tokenizer(server, &answer->problem);
    rn_request_prompt tokens = {0};
    rn_arena memory;
    rn_request_reader reader;
    rn_status s = RN_OK;
    if (!tokenizer) return RN_OK;
    uint32_t vocab_size = rn_tokenizer_get_info(tokenizer)->vocab_size;
    if (rn_request_reader_begin(&reader, request->body, &memory, &answer->problem) &&
        read_detokenize(&reader, vocab_size, &tokens))
        s = detokenize(tokenizer, &tokens, &answer->body);
    rn_arena_free_all(&memory);
    return s;
}
