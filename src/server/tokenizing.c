// tokenizing.c — a job's tokens, its limits, and everything it will ever need.
#include "server/tokenizing.h"

#include "base/checked.h"
#include "base/str.h"
#include "memory/account.h"
#include "server/job_choice.h"
#include "text/constraint/json_rules.h"

#include <stdio.h>
#include <sys/random.h>
#include <time.h>

enum {
    COMPLETION_TOKENS = 16, // where a request does not say: OpenAI's
    GENERATE_TOKENS = 512,  // ... and the seed's
    STREAM_BYTES = 32 << 10,
    HELD_STOP_BYTES = 255,   // of a stop string that may yet be one
    HELD_DECODER_BYTES = 10, // three broken bytes as U+FFFD, and a blank
    FORM_WORD_BYTES = 256,   // of a template's own
    TOOL_VALUES = 4          // what a byte of a tool's JSON takes as a template's value counts so
};

// ---- the vocabulary -----------------------------------------------------------------------------

// The bytes of text that a token's bytes become, at most: U+FFFD for those that are not UTF-8.
static size_t count_shown(rn_str bytes) {
    size_t sum = 0;
    for (size_t at = 0, step; at < bytes.bytes; at += step ? step : 1) {
        step = rn_utf8_sequence(bytes.data + at, bytes.bytes - at);
        sum += step ? step : 3;
    }
    return sum;
}

void rn_tokenizing_measure(rn_tokenizing *tokenizing) {
    uint32_t count = rn_tokenizer_get_info(tokenizing->tokenizer)->vocab_size;
    tokenizing->spelled_bytes = tokenizing->shown_bytes = 1;
    for (uint32_t id = 0; id < count; id++) {
        rn_str spelled = rn_tokenizer_bytes(tokenizing->tokenizer, id, true);
        rn_str shown = rn_tokenizer_bytes(tokenizing->tokenizer, id, false);
        tokenizing->spelled_bytes = rn_max_u64(tokenizing->spelled_bytes, spelled.bytes);
        tokenizing->shown_bytes = rn_max_u64(tokenizing->shown_bytes, count_shown(shown));
    }
}

// ---- texts --------------------------------------------------------------------------------------

size_t rn_tokenizing_text_bytes(const rn_request *request) {
    size_t sum = TOOL_VALUES * request->tools.bytes;
    for (size_t i = 0; i < request->message_count; i++) {
        const rn_chat_message *message = &request->messages[i];
        sum += message->content.bytes;
        if (message->tools)
            sum += TOOL_VALUES * (message->tools->calls.bytes + message->tools->call_id.bytes);
    }
    for (size_t i = 0; request->kind != RN_REQUEST_CHAT && i < request->prompt_count; i++)
        sum += request->prompts[i].text.bytes;
    return sum;
}

static const char *field_of(const rn_request *request) {
    if (request->dialect == RN_DIALECT_RERANK) return "documents";
    if (request->kind == RN_REQUEST_EMBED)
        return request->dialect == RN_DIALECT_OLLAMA_EMBEDDINGS ? "prompt" : "input";
    return request->kind == RN_REQUEST_CHAT ? "messages" : "prompt";
}

static bool refuse_length(const rn_request *request, size_t prompt, const rn_tokenizing *tokenizing,
                          rn_problem *out) {
    if (request->kind == RN_REQUEST_EMBED)
        return rn_problem_set(out, 400, "context_length_exceeded", field_of(request),
                              "a text has %zu tokens; at most %u are embedded (\"truncate\": true "
                              "leaves out its end)",
                              prompt, tokenizing->context);
    return rn_problem_set(out, 400, "context_length_exceeded", field_of(request),
                          "the %s %zu tokens; the context has %u, and an answer needs at least one",
                          request->kind == RN_REQUEST_CHAT ? "messages make" : "prompt has", prompt,
                          tokenizing->context);
}

// Of a text that cannot fit, whatever its tokens are, not even the tokens are looked for.
static bool check_text(const rn_tokenizing *tokenizing, const rn_request *request, size_t bytes,
                       rn_problem *out) {
    size_t most = 0;
    if (request->truncates || !rn_mul_size(tokenizing->context, tokenizing->spelled_bytes, &most) ||
        bytes <= most)
        return true;
    static const char *const what[] = {"the prompt is", "the prompt is", "the messages are",
                                       "a text is"};
    return rn_problem_set(out, 400, "context_length_exceeded", field_of(request),
                          "%s %zu bytes long; the context has %u tokens, which can be %zu bytes "
                          "at most",
                          what[request->kind], bytes, tokenizing->context, most);
}

static bool check_ids(const rn_tokenizing *tokenizing, const rn_request *request,
                      const rn_request_prompt *prompt, rn_problem *out) {
    for (size_t i = 0; i < prompt->id_count; i++)
        if (prompt->ids[i] >= tokenizing->vocab_size)
            return rn_problem_set(out, 400, "out_of_range", field_of(request),
                                  "token %u: the vocabulary has %u", prompt->ids[i],
                                  tokenizing->vocab_size);
    return true;
}

// ---- memory
// ---------------------------------------------------------------------------------------

static bool take_memory(const rn_tokenizing *tokenizing, uint64_t bytes, const char *field,
                        rn_problem *out) {
    if (rn_request_memory_take(tokenizing->memory, bytes)) return true;
    uint64_t total = tokenizing->memory->total_bytes - tokenizing->answers_bytes;
    if (bytes > total)
        return rn_problem_set(out, 400, "too_large", field,
                              "the request needs %s while it is read, all requests together have "
                              "%s",
                              rn_size_format(bytes).text, rn_size_format(total).text);
    return rn_problem_set_full(out);
}

// What the job keeps.
static bool keep_room(const rn_tokenizing *tokenizing, rn_job *job, uint64_t bytes,
                      rn_problem *out) {
    if (!take_memory(tokenizing, bytes, "", out)) return false;
    job->memory_bytes += bytes;
    return true;
}

// ---- tokens -------------------------------------------------------------------------------------

// A failure of ours: the error's words, but which field it is about is known here.
static bool fail_with_error(rn_problem *out, const char *field) {
    rn_problem_from_error(out, rn_last_error());
    if (out->http == 400) snprintf(out->field, sizeof out->field, "%s", field);
    return false;
}

// The list as it is kept: exactly as long as it is. Of a text to embed that is too long the
// beginning counts, and the token that the tokenizer puts behind every text.
static bool keep_tokens(const rn_tokenizing *tokenizing, rn_job *job, size_t index,
                        const uint32_t *ids, size_t count, rn_problem *out) {
    const rn_request *request = &job->request;
    bool embeds = request->kind == RN_REQUEST_EMBED;
    size_t most = embeds ? tokenizing->context : tokenizing->context - 1, kept = count;
    void *block = NULL;
    if (count == 0)
        return rn_problem_set(out, 400, "invalid_value", field_of(request),
                              "the list of tokens is empty");
    if (count > most && !request->truncates) return refuse_length(request, count, tokenizing, out);
    if (kept > most) kept = most;
    if (!keep_room(tokenizing, job, kept * sizeof *ids, out)) return false;
    if (rn_alloc(RN_HOST_IO, kept * sizeof *ids, &block) != RN_OK) return fail_with_error(out, "");
    memcpy(block, ids, kept * sizeof *ids);
    job->prompts[index] = (rn_tokens){block, kept, kept};
    if (kept < count && rn_tokenizer_get_info(tokenizing->tokenizer)->adds_end)
        job->prompts[index].ids[kept - 1] = ids[count - 1];
    return true;
}

static bool has_tools(const rn_request *request) {
    return request->tools.bytes && request->tool_choice != RN_TOOL_CHOICE_NONE;
}

static bool must_call(const rn_request *request) {
    return request->tools.bytes && request->tool_choice == RN_TOOL_CHOICE_REQUIRED;
}

static rn_status encode(const rn_tokenizing *tokenizing, const rn_request *request, size_t index,
                        rn_tokens *out, bool *out_too_long) {
    *out_too_long = false;
    if (request->kind != RN_REQUEST_CHAT)
        return rn_tokenizing_encode(tokenizing->tokenizer, request->prompts[index].text, out);
    size_t longest = tokenizing->context * tokenizing->spelled_bytes;
    RN_TRY(rn_tokenizing_encode_chat(tokenizing->tokenizer, tokenizing->form, request, longest, out,
                                     out_too_long));
    if (!must_call(request)) return RN_OK;
    // The answer begins inside of a call.
    rn_str begin = tokenizing->tool_form == RN_TOOLS_HERMES    ? RN_STR("<tool_call>\n")
                   : tokenizing->tool_form == RN_TOOLS_MISTRAL ? RN_STR("[TOOL_CALLS]")
                                                               : RN_STR("");
    if (begin.bytes == 0) return RN_OK;
    return rn_tokenizer_encode(tokenizing->tokenizer, begin, RN_ENCODE_SPECIAL, out);
}

static bool refuse_encoding(const rn_tokenizing *tokenizing, const rn_request *request,
                            bool too_long, rn_problem *out) {
    if (!too_long) return fail_with_error(out, field_of(request));
    return rn_problem_set(out, 400, "context_length_exceeded", field_of(request),
                          "the messages, as the chat template writes them, are longer than the "
                          "context, which has %u tokens",
                          tokenizing->context);
}

// What is held while text `index` is encoded.
static uint64_t count_work(const rn_tokenizing *tokenizing, const rn_request *request,
                           size_t index) {
    rn_str text = request->prompts[index].text;
    if (request->kind != RN_REQUEST_CHAT)
        return rn_tokenizing_work_bytes(text.bytes,
                                        rn_tokenizing_longest_word(tokenizing->tokenizer, text));
    uint64_t around = rn_tokenizing_form_bytes(request->message_count), word = FORM_WORD_BYTES;
    for (size_t i = 0; i < request->message_count; i++)
        word += rn_tokenizing_longest_word(tokenizing->tokenizer, request->messages[i].content);
    return rn_tokenizing_work_bytes(around + rn_tokenizing_text_bytes(request), word);
}

static bool read_text(const rn_tokenizing *tokenizing, rn_job *job, size_t index, rn_problem *out) {
    const rn_request *request = &job->request;
    bool chat = request->kind == RN_REQUEST_CHAT, too_long;
    size_t bytes = chat ? rn_tokenizing_text_bytes(request) : request->prompts[index].text.bytes;
    rn_tokens tokens = {0};
    if (!check_text(tokenizing, request, bytes, out)) return false;
    uint64_t work = count_work(tokenizing, request, index);
    if (!take_memory(tokenizing, work, field_of(request), out)) return false;
    bool good = encode(tokenizing, request, index, &tokens, &too_long) == RN_OK ||
                refuse_encoding(tokenizing, request, too_long, out);
    good = good && keep_tokens(tokenizing, job, index, tokens.ids, tokens.count, out);
    rn_tokens_free(&tokens);
    rn_request_memory_release(tokenizing->memory, work);
    return good;
}

static bool refuse_query(const rn_tokenizing *tokenizing, size_t count, rn_problem *out) {
    return rn_problem_set(out, 400, "context_length_exceeded", "query",
                          "the query has %zu tokens; with a document they may be %u", count,
                          tokenizing->context);
}

// The query's tokens, and what is to be told of each document.
static bool begin_ranking(const rn_tokenizing *tokenizing, rn_job *job, rn_tokens *out_query,
                          rn_problem *out) {
    const rn_request *request = &job->request;
    size_t bytes = request->prompt_count * sizeof *job->scores;
    void *block = NULL;
    if (!rn_tokenizer_get_info(tokenizing->tokenizer)->joins_pairs)
        return rn_problem_set(out, 400, "no_reranker", "",
                              "the model's tokenizer does not say what stands between two texts");
    if (!keep_room(tokenizing, job, bytes, out)) return false;
    if (rn_alloc_zeroed(RN_HOST_IO, bytes, 1, &block) != RN_OK) return fail_with_error(out, "");
    job->scores = block;
    if (rn_tokenizer_encode(tokenizing->tokenizer, request->query, RN_ENCODE_FIRST, out_query) !=
        RN_OK)
        return fail_with_error(out, "query");
    job->second_at = out_query->count;
    return job->second_at < tokenizing->context || refuse_query(tokenizing, job->second_at, out);
}

// One behind the query's tokens.
static bool read_document(const rn_tokenizing *tokenizing, rn_job *job, size_t index,
                          rn_tokens *pair, rn_problem *out) {
    rn_str text = job->request.prompts[index].text;
    if (!check_text(tokenizing, &job->request, text.bytes, out)) return false;
    pair->count = job->second_at;
    if (rn_tokenizer_encode(tokenizing->tokenizer, text, RN_ENCODE_SECOND, pair) != RN_OK)
        return fail_with_error(out, "documents");
    if (pair->count == job->second_at)
        return rn_problem_set(out, 400, "invalid_value", "documents", "document %zu is empty",
                              index);
    return keep_tokens(tokenizing, job, index, pair->ids, pair->count, out);
}

// All that is held meanwhile is taken at once: it is as much as for the longest text.
static bool read_documents(const rn_tokenizing *tokenizing, rn_job *job, rn_problem *out) {
    const rn_request *request = &job->request;
    const rn_tokenizer *tokenizer = tokenizing->tokenizer;
    uint64_t word = rn_tokenizing_longest_word(tokenizer, request->query), longest = 0;
    size_t most = 0;
    rn_tokens pair = {0};
    if (rn_mul_size(tokenizing->context, tokenizing->spelled_bytes, &most) &&
        request->query.bytes > most)
        return refuse_query(tokenizing, request->query.bytes / tokenizing->spelled_bytes, out);
    for (size_t i = 0; i < request->prompt_count; i++) {
        rn_str text = request->prompts[i].text;
        word = rn_max_u64(word, rn_tokenizing_longest_word(tokenizer, text));
        longest = rn_max_u64(longest, text.bytes);
    }
    uint64_t work = rn_tokenizing_work_bytes(request->query.bytes + longest, word);
    if (!take_memory(tokenizing, work, "documents", out)) return false;
    bool good = begin_ranking(tokenizing, job, &pair, out);
    for (size_t i = 0; good && i < request->prompt_count; i++)
        good = read_document(tokenizing, job, i, &pair, out);
    rn_tokens_free(&pair);
    rn_request_memory_release(tokenizing->memory, work);
    return good;
}

static bool read_prompt(const rn_tokenizing *tokenizing, rn_job *job, size_t index,
                        rn_problem *out) {
    const rn_request_prompt *prompt = &job->request.prompts[index];
    if (job->request.kind == RN_REQUEST_CHAT || !prompt->ids)
        return read_text(tokenizing, job, index, out);
    return check_ids(tokenizing, &job->request, prompt, out) &&
           keep_tokens(tokenizing, job, index, prompt->ids, prompt->id_count, out);
}

static bool read_prompts(const rn_tokenizing *tokenizing, rn_job *job, rn_problem *out) {
    const rn_request *request = &job->request;
    void *block = NULL;
    if (request->kind == RN_REQUEST_CHAT && !tokenizing->form)
        return rn_problem_set(out, 400, "no_chat_template", "messages",
                              "the model has no chat template; use /v1/completions, or start the "
                              "server with --template FILE");
    if (has_tools(request) && tokenizing->tool_form == RN_TOOLS_NONE)
        return rn_problem_set(out, 400, "no_tools", "tools",
                              "the model's chat template knows no tools; leave them out, or start "
                              "the server with --template FILE");
    if (request->tool_choice == RN_TOOL_CHOICE_REQUIRED && !request->tools.bytes)
        return rn_problem_set(out, 400, "invalid_value", "tool_choice",
                              "tool_choice asks for a call, but there are no tools");
    if (must_call(request) && request->json)
        return rn_problem_set(out, 400, "invalid_value", "response_format",
                              "an answer that must be a tool call has no other format");
    if (rn_alloc_zeroed(RN_HOST_IO, request->prompt_count, sizeof *job->prompts, &block) != RN_OK)
        return fail_with_error(out, "");
    job->prompts = block;
    if (request->dialect == RN_DIALECT_RERANK) return read_documents(tokenizing, job, out);
    for (size_t i = 0; i < request->prompt_count; i++)
        if (!read_prompt(tokenizing, job, i, out)) return false;
    return true;
}

// ---- limits -------------------------------------------------------------------------------------

static size_t longest_prompt(const rn_job *job) {
    size_t longest = 0;
    for (size_t i = 0; i < job->request.prompt_count; i++)
        longest = rn_max_u64(longest, job->prompts[i].count);
    return longest;
}

// What is left of the context and what the server makes bound an answer, whatever was asked for:
// its end says "length".
static void limit_tokens(const rn_tokenizing *tokenizing, rn_job *job) {
    static const uint32_t otherwise[] = {GENERATE_TOKENS, COMPLETION_TOKENS, UINT32_MAX, 0};
    const rn_request *request = &job->request;
    size_t prompt = longest_prompt(job), left = tokenizing->context - prompt;
    uint64_t constraint = request->max_tokens ? request->max_tokens : otherwise[request->kind];
    job->max_tokens = (uint32_t)rn_min_u64(rn_min_u64(constraint, left), tokenizing->answer_tokens);
}

// What was held as a call may come out at once: in slices, and each call has a name before it.
static size_t count_call_bytes(void) {
    size_t slices = RN_TOOL_HELD_BYTES / RN_TOOL_SLICE_BYTES + 2 * RN_TOOL_CALLS + 4;
    return 2 * RN_TOOL_HELD_BYTES + slices * rn_piece_bytes(0, 0);
}

size_t rn_tokenizing_piece_bytes(const rn_tokenizing *tokenizing, const rn_request *request) {
    size_t held = HELD_DECODER_BYTES + (request->stop_count ? HELD_STOP_BYTES : 0);
    size_t bytes = rn_piece_bytes(held + tokenizing->shown_bytes, request->sampling.logprobs) +
                   rn_piece_bytes(held, 0);
    return bytes + (has_tools(request) ? count_call_bytes() : 0);
}

// A stream needs a piece of each choice. Another keeps all of its pieces, and has room for them:
// a choice of T tokens makes T pieces with a token and one without. Each token adds at most
// shown_bytes of text, in its own piece or, where it is held back, in a later one; broken bytes
// count as the U+FFFD they may become. So with h bytes of head and tops the pieces are at most
// T * h + T * shown_bytes + the last one's head, in whatever way the text is distributed.
static uint64_t count_answer_bytes(const rn_tokenizing *tokenizing, const rn_job *job) {
    const rn_request *request = &job->request;
    if (request->kind == RN_REQUEST_EMBED)
        return request->prompt_count * rn_piece_bytes(tokenizing->dimensions * sizeof(float), 0);
    if (!rn_job_keeps_pieces(job))
        return rn_max_u64(STREAM_BYTES,
                          job->choice_count * rn_tokenizing_piece_bytes(tokenizing, request));
    uint64_t each = rn_piece_bytes(tokenizing->shown_bytes, request->sampling.logprobs);
    uint64_t calls = has_tools(request) ? count_call_bytes() : 0;
    return job->choice_count * (job->max_tokens * each + calls + rn_piece_bytes(0, 0));
}

// The last token is not read, so it needs no place.
static uint64_t count_pages(const rn_tokenizing *tokenizing, const rn_job *job) {
    uint64_t pages = 0;
    for (size_t i = 0; i < job->request.prompt_count; i++)
        pages += job->request.n *
                 rn_div_up(job->prompts[i].count + job->max_tokens - 1, tokenizing->page_tokens);
    return pages;
}

static bool check_embeddings(const rn_tokenizing *tokenizing, const rn_job *job, rn_problem *out) {
    uint64_t bytes = count_answer_bytes(tokenizing, job);
    if (bytes <= tokenizing->answers_bytes) return true;
    return rn_problem_set(out, 400, "too_large", field_of(&job->request),
                          "%zu embeddings of %u dimensions take %s, all answers together have %s; "
                          "ask for fewer at once, or start the server with more (--request-memory)",
                          job->request.prompt_count, tokenizing->dimensions,
                          rn_size_format(bytes).text,
                          rn_size_format(tokenizing->answers_bytes).text);
}

bool rn_tokenizing_check(const rn_tokenizing *tokenizing, const rn_job *job, rn_problem *out) {
    if (job->request.kind == RN_REQUEST_EMBED) return check_embeddings(tokenizing, job, out);
    if (job->choice_count > tokenizing->sequences)
        return rn_problem_set(out, 400, "out_of_range", "n",
                              "%u answers at once; this server makes at most %u", job->choice_count,
                              tokenizing->sequences);
    uint64_t pages = count_pages(tokenizing, job), bytes = count_answer_bytes(tokenizing, job);
    if (pages > tokenizing->pages)
        return rn_problem_set(out, 400, "too_large", "max_tokens",
                              "%u answers of up to %u tokens behind prompts of up to %zu need %llu "
                              "pages of the KV cache, which has %u of %u tokens each",
                              job->choice_count, job->max_tokens, longest_prompt(job),
                              (unsigned long long)pages, tokenizing->pages,
                              tokenizing->page_tokens);
    if (bytes > tokenizing->answers_bytes)
        return rn_problem_set(out, 400, "too_large", "max_tokens",
                              "%u answers of up to %u tokens can be %s, all answers together have "
                              "%s; ask for fewer, or for a stream",
                              job->choice_count, job->max_tokens, rn_size_format(bytes).text,
                              rn_size_format(tokenizing->answers_bytes).text);
    return true;
}

// ---- all of it ----------------------------------------------------------------------------------

void rn_request_draw_seed(rn_request *request) {
    struct timespec now;
    if (request->has_seed) return;
    if (getrandom(&request->sampling.seed, sizeof request->sampling.seed, GRND_NONBLOCK) > 0)
        return;
    clock_gettime(CLOCK_REALTIME, &now);
    request->sampling.seed = (uint64_t)now.tv_nsec * 0x9E3779B97F4A7C15u;
}

static bool make_choices(const rn_tokenizing *tokenizing, rn_job *job, rn_problem *out) {
    uint64_t bytes = rn_choices_bytes(&job->request);
    if (!keep_room(tokenizing, job, bytes, out)) return false;
    return rn_choices_create(job, tokenizing->tokenizer) == RN_OK || fail_with_error(out, "stop");
}

static bool refuse_schema(rn_status s, const char *field, rn_problem *out) {
    const rn_error_info *error = rn_last_error();
    if (s != RN_INVALID && s != RN_UNSUPPORTED) return fail_with_error(out, "");
    return rn_problem_set(out, 400, s == RN_INVALID ? "invalid_schema" : "unsupported_schema",
                          field, "%.300s%s%.150s", error->message, error->hint[0] ? "; " : "",
                          error->hint);
}

static bool constrain_by(const rn_tokenizing *tokenizing, rn_job *job, rn_str schema,
                         const char *field, rn_problem *out) {
    uint64_t bytes =
        rn_choices_constraint_bytes(&job->request, tokenizing->vocabulary, schema.bytes);
    if (!keep_room(tokenizing, job, bytes, out)) return false;
    rn_status s = rn_choices_constrain(job, tokenizing->vocabulary, schema);
    return s == RN_OK || refuse_schema(s, field, out);
}

// A call of one of the tools, with arguments by its parameters.
static bool constrain_to_call(const rn_tokenizing *tokenizing, rn_job *job, rn_problem *out) {
    const rn_request *request = &job->request;
    uint64_t most = 2 * RN_SCHEMA_BYTES; // while it is made, and its old block
    rn_buffer schema;
    if (!take_memory(tokenizing, most, "tools", out)) return false;
    rn_buffer_init(&schema, RN_HOST_IO, RN_SCHEMA_BYTES);
    const char *arguments = tokenizing->tool_form == RN_TOOLS_LLAMA ? "parameters" : "arguments";
    rn_status s = rn_request_tool_schema(request->tools, request->tool_name, arguments,
                                         tokenizing->tool_form == RN_TOOLS_MISTRAL, &schema);
    bool good = s == RN_OK ? constrain_by(tokenizing, job, (rn_str){schema.data, schema.bytes},
                                          "tools", out)
                           : refuse_schema(s, "tool_choice", out);
    rn_buffer_free(&schema);
    rn_request_memory_release(tokenizing->memory, most);
    return good;
}

static bool constrain_choices(const rn_tokenizing *tokenizing, rn_job *job, rn_problem *out) {
    const rn_request *request = &job->request;
    if (has_tools(request)) {
        size_t bytes = job->choice_count * RN_TOOL_HELD_BYTES;
        if (!keep_room(tokenizing, job, bytes, out)) return false;
        if (rn_choices_read_tools(job, tokenizing->tool_form, must_call(request)) != RN_OK)
            return fail_with_error(out, "");
    }
    if (must_call(request)) return constrain_to_call(tokenizing, job, out);
    return !request->json || constrain_by(tokenizing, job, request->schema, "response_format", out);
}

// The answer is known to fit before the first text is read.
static bool read_embedding(const rn_tokenizing *tokenizing, rn_job *job, rn_problem *out) {
    if (!check_embeddings(tokenizing, job, out) || !read_prompts(tokenizing, job, out))
        return false;
    job->answer_bytes = count_answer_bytes(tokenizing, job);
    return true;
}

bool rn_tokenizing_read(const rn_tokenizing *tokenizing, rn_job *job, rn_problem *out) {
    if (job->request.kind == RN_REQUEST_EMBED) return read_embedding(tokenizing, job, out);
    uint64_t count = (uint64_t)job->request.prompt_count * job->request.n;
    if (count == 0 || count > tokenizing->sequences)
        return rn_problem_set(out, 400, "out_of_range", "n",
                              "%llu answers at once; this server makes 1 to %u",
                              (unsigned long long)count, tokenizing->sequences);
    if (!read_prompts(tokenizing, job, out)) return false;
    limit_tokens(tokenizing, job);
    if (!make_choices(tokenizing, job, out) || !constrain_choices(tokenizing, job, out) ||
        !rn_tokenizing_check(tokenizing, job, out))
        return false;
    rn_request_draw_seed(&job->request);
    job->answer_bytes = count_answer_bytes(tokenizing, job);
    return true;
}
