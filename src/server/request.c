// request.c — a request as a whole: defaults, fields, and what must hold between them.
#include "server/request_reader.h"

#include "memory/account.h"

#include <float.h>

static void take_advice(const rn_sampling_advice *advice, rn_sampling *out) {
    if (advice->temperature >= 0) out->temperature = advice->temperature;
    if (advice->top_p >= 0) out->top_p = advice->top_p;
    if (advice->min_p >= 0) out->min_p = advice->min_p;
    if (advice->repetition_penalty >= 0) out->repetition_penalty = advice->repetition_penalty;
    if (advice->top_k >= 0) out->top_k = (uint32_t)advice->top_k;
}

static bool is_ollama(rn_request_kind kind) {
    return kind == RN_REQUEST_OLLAMA_CHAT || kind == RN_REQUEST_OLLAMA_GENERATE;
}

static void set_defaults(rn_request_kind kind, const rn_sampling_advice *advice,
                         rn_request *request) {
    request->kind = kind;
    request->n = 1;
    request->stream = is_ollama(kind);
    request->sampling = (rn_sampling){.temperature = 1, .top_p = 1};
    if (advice) take_advice(advice, &request->sampling);
    if (kind == RN_REQUEST_GENERATE)
        request->sampling = (rn_sampling){
            .temperature = 0.7f, .top_p = 0.9f, .top_k = 50, .repetition_penalty = 1.1f};
}

static bool read_all(rn_request_state *state, rn_str body) {
    rn_request_reader *reader = &state->reader;
    rn_request_kind kind = state->request->kind;
    bool more = true, ollama = is_ollama(kind), response = kind == RN_REQUEST_RESPONSE;
    bool image = kind == RN_REQUEST_IMAGE;
    uint64_t extra = response ? rn_request_extra_bytes(kind) - 4096 : 0; // alignment
    if (!rn_request_reader_begin_with(reader, body, extra, &state->request->memory,
                                      reader->problem))
        return false;
    size_t prompt_bytes = RN_REQUEST_PROMPTS * sizeof(rn_request_prompt); // zeros
    state->request->prompts = rn_request_take(reader, prompt_bytes, _Alignof(rn_request_prompt));
    if (!rn_request_open(reader)) return false;
    for (rn_str key; rn_request_next_key(reader, &key, &more);) {
        if (!more)
            return rn_request_close(reader) && (!ollama || rn_request_finish_ollama(state)) &&
                   (!response || rn_request_finish_response(state));
        bool good = ollama  ? rn_request_read_ollama_field(state, key)
                    : image ? rn_request_read_image_field(state, key)
                            : rn_request_read_field(state, key);
        if (!good) return false;
    }
    return false;
}

// ---- what must hold between fields --------------------------------------------------------------

static bool check_start(rn_request_state *state) {
    rn_request *request = state->request;
    if (request->kind == RN_REQUEST_EMBED) return true;
    if (request->kind == RN_REQUEST_CHAT) {
        request->prompt_count = 1;
        return request->message_count > 0 ||
               rn_request_missing(&state->reader,
                                  request->dialect == RN_DIALECT_RESPONSES ? "input" : "messages");
    }
    if (request->kind == RN_REQUEST_IMAGE)
        return request->image.prompt || rn_request_missing(&state->reader, "prompt");
    return request->prompt_count > 0 || rn_request_missing(&state->reader, "prompt");
}

static bool check_model(rn_request *request, const rn_request_limits *limits, rn_problem *problem) {
    const char *adapter = NULL;
    if (!request->model.data || rn_str_equal(request->model, limits->model)) return true;
    for (uint32_t i = 0; limits->adapters && (adapter = rn_model_adapter_name(limits->adapters, i));
         i++) {
        if (!rn_str_equal(request->model, rn_str_from(adapter))) continue;
        request->adapter = i + 1;
        return true;
    }
    if (!limits->strict_model || rn_model_name_answers(limits->model, request->model)) return true;
    return rn_problem_set(
        problem, 404, "model_not_found", "model", "there is no model '%s': this server has '%s'",
        rn_request_show(request->model).text, rn_request_show(limits->model).text);
}

static bool check_choices(const rn_request_state *state) {
    const rn_request *request = state->request;
    rn_problem *problem = state->reader.problem;
    uint64_t choices = (uint64_t)request->n * request->prompt_count;
    if (state->best_of && state->best_of != request->n)
        return rn_problem_set(problem, 400, "unsupported_value", "best_of",
                              "best_of is %lld and n is %u: only n of n are made",
                              (long long)state->best_of, request->n);
    if (request->kind != RN_REQUEST_EMBED && choices > state->limits->choices)
        return rn_problem_set(problem, 400, "out_of_range", "n",
                              "%zu prompts with n %u are %llu choices: at most %u at once",
                              request->prompt_count, request->n, (unsigned long long)choices,
                              state->limits->choices);
    return true;
}

static bool check_logprobs(const rn_request_state *state) {
    rn_request *request = state->request;
    rn_problem *problem = state->reader.problem;
    if (state->top_logprobs >= 0 && !request->logprobs)
        return rn_problem_set(problem, 400, "invalid_value", "top_logprobs",
                              "top_logprobs is given, but logprobs is not true");
    if (state->top_logprobs > 0) request->sampling.logprobs = (uint32_t)state->top_logprobs;
    if (request->echo && request->logprobs)
        return rn_problem_set(problem, 400, "unsupported_value", "echo",
                              "echo with logprobs is not supported: there are none of the prompt");
    return true;
}

// To rn_sampling a top_p of 0 means "all", to clients it means the best token alone; a temperature
// whose inverse is infinite is meant to be greedy.
static bool check_sampling(const rn_request_state *state) {
    rn_sampling *sampling = &state->request->sampling;
    if (sampling->top_p < FLT_MIN) sampling->top_p = FLT_MIN;
    if (sampling->temperature < FLT_MIN) sampling->temperature = 0;
    if (rn_sampling_check(sampling, state->limits->vocab_size) == RN_OK) return true;
    return rn_problem_set(state->reader.problem, 400, "out_of_range", "", "%.400s",
                          rn_last_error()->message);
}

bool rn_request_read(rn_request_kind kind, rn_str body, const rn_request_limits *limits,
                     rn_request *out, rn_problem *out_problem) {
    *out = (rn_request){0};
    *out_problem = (rn_problem){0};
    rn_request_state state = {
        .reader.problem = out_problem, .request = out, .limits = limits, .top_logprobs = -1};
    set_defaults(kind, limits->advice, out);
    bool read =
        rn_request_embeds(kind) ? rn_request_read_embedding(&state, body) : read_all(&state, body);
    bool good = read && check_start(&state) && check_model(out, limits, out_problem);
    if (kind != RN_REQUEST_IMAGE)
        good = good && check_choices(&state) && check_logprobs(&state) && check_sampling(&state);
    memcpy(out->unknown, state.reader.unknown.text, sizeof out->unknown);
    if (!good) rn_request_free(out);
    return good;
}

static rn_status find_model(rn_json_reader *reader, rn_json_item *out) {
    RN_TRY(rn_json_expect(reader, RN_JSON_OBJECT, NULL));
    for (;;) {
        RN_TRY(rn_json_next(reader, out));
        if (out->kind != RN_JSON_KEY) return RN_OK;
        bool model = rn_str_equal(out->text, RN_STR("model"));
        if (model) return rn_json_next(reader, out);
        RN_TRY(rn_json_skip(reader));
    }
}

bool rn_request_find_model(rn_str body, char *out, size_t bytes) {
    rn_json_reader reader;
    rn_json_item item;
    rn_json_reader_init(&reader, body, RN_HOST_IO);
    bool found = find_model(&reader, &item) == RN_OK && item.kind == RN_JSON_STRING;
    if (found) rn_request_drop_tag(&item.text);
    found = found && item.text.bytes < bytes;
    if (found) {
        memcpy(out, item.text.data, item.text.bytes);
        out[item.text.bytes] = 0;
    }
    rn_json_reader_free(&reader);
    return found;
}

void rn_request_free(rn_request *request) {
    if (request->memory.from) rn_arena_free_all(&request->memory);
    *request = (rn_request){0};
}
