// embed.c — an embedder: a plan and a session over packed texts, and what becomes of their rows.
//
//     texts ─ tokens ─▶ | text 0 | text 1 | text 2 |   rows of a run      hidden (rows, dim)
//                       └ pooled, cut to the dimensions, normed ◀─────────────┘
//
// Texts go into runs in their order, as many as have room: a text is never cut into two runs, since
// its rows see each other. Pooling is a sum over a text's rows in their order, on the host, so it
// does not depend on the run either.
//
// A reranker's texts are pairs, and a row is one number: the first row's is the score.
#include <ration/embed.h>

#include "base/arena.h"
#include "base/checked.h"
#include "base/reserved.h"
#include "memory/account.h"
#include "plan/plan.h"
#include "runtime/session.h"

#include <ration/calibrate.h>
#include <ration/device.h>
#include <ration/profile.h>

#include <math.h>
#include <string.h>

#define FROM RN_HOST_OTHER

enum { DEFAULT_ROWS = 512, LIST_BYTES = 64 << 10 }; // LIST: tokens of a text of an ordinary length

struct rn_embedder {
    const rn_model *model;
    rn_embedder_options options;
    uint32_t dim, dimensions, text_tokens;
    bool normalizes;
    rn_plan *plan;
    rn_session *session;
    rn_arena memory;             // all that follows, taken before the plan is made
    uint32_t rows;               // of a run, at most
    int32_t *tokens, *positions; // (rows): the run's inputs
    int32_t *spans;              // (rows, 2)
    int32_t *types;              // (rows), of pairs
    bool scores, has_types;      // has_types: its tokens have types
    uint32_t *ends;              // (rows): of the run's texts, the row behind each
    uint32_t row_count, text_count;
    bool failed; // the session must be reset
    rn_embedder_facts facts;
};

// ---- options ------------------------------------------------------------------------------------

static rn_status resolve(rn_embedder *e) {
    const rn_model_info *info = rn_model_get_info(e->model);
    rn_embedder_options *o = &e->options;
    const rn_embedding_info *own = &info->embedding;
    RN_TRY(rn_check_reserved(o->reserved, "rn_embedder_options"));
    RN_TRY(rn_check_reserved(o->plan.reserved, "rn_plan_options"));
    RN_TRY(rn_check_reserved(o->session.reserved, "rn_session_options"));
    e->scores = o->text.scores;
    if (e->scores) o->form = (rn_embedding_form){RN_POOLING_CLS, RN_EMBEDDING_NORM_NONE, 0, false};
    if (o->form.pooling == RN_POOLING_MODEL) o->form.pooling = own->pooling;
    e->normalizes = o->form.norm == RN_EMBEDDING_NORM_MODEL ? own->normalizes
                                                            : o->form.norm == RN_EMBEDDING_NORM_L2;
    e->dim = e->scores ? 1 : info->dim;
    e->dimensions = o->form.dimensions ? o->form.dimensions : e->dim;
    if (e->dimensions > e->dim)
        return rn_fail(RN_INVALID, "%u dimensions are more than the model's %u", e->dimensions,
                       e->dim);
    e->text_tokens = o->text.text_tokens ? o->text.text_tokens
                                         : (uint32_t)rn_min_u64(own->text_tokens, DEFAULT_ROWS);
    if (e->text_tokens > own->text_tokens)
        return rn_fail(RN_INVALID, "texts of %u tokens are longer than the model's %u",
                       e->text_tokens, own->text_tokens);
    o->text.text_tokens = e->text_tokens;
    o->text.rows = (uint32_t)rn_max_u64(o->text.rows ? o->text.rows : DEFAULT_ROWS, e->text_tokens);
    return RN_OK;
}

static rn_status take_memory(rn_embedder *e) {
    void *tokens, *positions, *spans, *types, *ends;
    size_t rows = e->options.text.rows;
    RN_TRY(rn_arena_array(&e->memory, rows, sizeof *e->tokens, &tokens));
    RN_TRY(rn_arena_array(&e->memory, rows, sizeof *e->positions, &positions));
    RN_TRY(rn_arena_array(&e->memory, rows, 2 * sizeof *e->spans, &spans));
    RN_TRY(rn_arena_array(&e->memory, rows, sizeof *e->types, &types));
    RN_TRY(rn_arena_array(&e->memory, rows, sizeof *e->ends, &ends));
    e->tokens = tokens;
    e->positions = positions;
    e->spans = spans;
    e->types = types;
    e->ends = ends;
    return RN_OK;
}

// ---- the plan -----------------------------------------------------------------------------------

static const rn_device_caps *caps_of(const rn_embedder *e) {
    rn_device *device = e->options.session.device;
    return device ? rn_device_get_caps(device) : rn_cpu_caps();
}

// The embedder's own memory is beside the plan, and so are the tables of plan and session, which no
// plan can plan, where the budget is the process's.
static rn_status count_beside(const rn_embedder *e, const rn_recipe *recipe, rn_plan_options *out) {
    uint64_t own = e->memory.held_bytes + sizeof *e + LIST_BYTES;
    rn_graph *graph = NULL;
    *out = e->options.plan;
    if (out->reserved_bytes) {
        RN_TRY(rn_recipe_build(recipe, caps_of(e)->fusions, &(rn_recipe_options){0}, &graph));
        own += rn_plan_table_bytes(graph);
        rn_graph_destroy(graph);
    }
    if (!rn_add_u64(out->reserved_bytes, own, &out->reserved_bytes))
        return rn_fail(RN_INVALID, "%llu bytes beside the plan",
                       (unsigned long long)e->options.plan.reserved_bytes);
    rn_device *device = e->options.session.device;
    return device ? rn_plan_options_for(device, &e->options.device_budget, out) : RN_OK;
}

static rn_status make_plan(rn_embedder *e) {
    rn_plan_options options;
    rn_recipe recipe = {0};
    RN_TRY(rn_model_make_embedding_recipe(e->model, &e->options.text, &recipe));
    rn_profile_begin(rn_profile_name("plan"));
    rn_status s = count_beside(e, &recipe, &options);
    if (s == RN_OK) s = rn_plan_make(&recipe, caps_of(e), &options, &e->plan);
    rn_profile_end();
    rn_recipe_destroy(&recipe);
    return s;
}

// A refusal is a matter of bytes and does not wait for this.
static rn_status plan_by_measure(rn_embedder *e) {
    const rn_plan_options *options = &e->plan->options;
    rn_device *device = e->options.session.device;
    rn_rates_quick_options quick = {.checkpoint = rn_model_weights(e->model).checkpoint};
    if (options->reserved_bytes) quick.room_bytes = rn_plan_room(options, options->budget_bytes);
    rn_rates_source before = rn_rates_apply(device);
    if (rn_rates_measure_quick(device, &quick) == before) return RN_OK;
    rn_plan_destroy(e->plan);
    e->plan = NULL;
    return make_plan(e);
}

// ---- life ---------------------------------------------------------------------------------------

// With its memory and its plan, but without a session.
static rn_status prepare(const rn_model *model, const rn_embedder_options *options,
                         rn_embedder **out) {
    void *block = NULL;
    *out = NULL;
    RN_TRY(rn_alloc_zeroed(FROM, 1, sizeof(rn_embedder), &block));
    rn_embedder *e = block;
    e->model = model;
    if (options) e->options = *options;
    rn_arena_init(&e->memory, FROM, RN_PAGE_BYTES);
    rn_status s = resolve(e);
    if (s == RN_OK) s = take_memory(e);
    if (s == RN_OK) s = make_plan(e);
    if (s == RN_OK)
        *out = e;
    else
        rn_embedder_destroy(e);
    return s;
}

static rn_status open_session(rn_embedder *e) {
    rn_weight_source weights = rn_model_weights(e->model);
    if (e->options.measure_rates && e->options.session.device) RN_TRY(plan_by_measure(e));
    rn_stage("plan_made");
    if (e->options.planned) e->options.planned(e->options.planned_self, e->plan);
    e->rows = (uint32_t)rn_plan_get_summary(e->plan)->rows;
    RN_TRY(rn_session_create(e->plan, &weights, &e->options.session, &e->session));
    e->has_types =
        e->scores && rn_graph_find(rn_plan_graph(e->plan), RN_ROLE_INPUT, "type") != RN_NO_VALUE;
    rn_stage(caps_of(e)->own_memory ? "model_on_device" : "model_loaded_cpu");
    return RN_OK;
}

rn_status rn_embedder_create(const rn_model *model, const rn_embedder_options *options,
                             rn_embedder **out) {
    rn_embedder *e = NULL;
    *out = NULL;
    RN_TRY(prepare(model, options, &e));
    rn_status s = open_session(e);
    if (s == RN_OK)
        *out = e;
    else
        rn_embedder_destroy(e);
    return s;
}

rn_status rn_embedder_predict(const rn_model *model, const rn_embedder_options *options,
                              rn_plan **out) {
    rn_embedder *e = NULL;
    *out = NULL;
    RN_TRY(prepare(model, options, &e));
    *out = e->plan;
    e->plan = NULL;
    rn_embedder_destroy(e);
    return RN_OK;
}

void rn_embedder_destroy(rn_embedder *e) {
    if (!e) return;
    rn_session_destroy(e->session);
    rn_plan_destroy(e->plan);
    rn_arena_free_all(&e->memory);
    rn_free(FROM, e, sizeof *e);
}

const rn_plan *rn_embedder_plan(const rn_embedder *e) {
    return e->plan;
}

uint32_t rn_embedder_dimensions(const rn_embedder *e) {
    return e->dimensions;
}

uint32_t rn_embedder_text_tokens(const rn_embedder *e) {
    return e->text_tokens;
}

rn_embedder_facts rn_embedder_get_facts(const rn_embedder *e) {
    rn_embedder_facts facts = e->facts;
    facts.session = rn_session_get_facts(e->session);
    return facts;
}

// ---- pooling ------------------------------------------------------------------------------------

// hidden (count, dim) of one text -> out (dimensions).
static void pool(const rn_embedder *e, const float *hidden, size_t count, float *out) {
    rn_pooling how = e->options.form.pooling;
    size_t row = how == RN_POOLING_LAST ? count - 1 : 0;
    memcpy(out, hidden + row * e->dim, e->dimensions * sizeof *out);
    if (how != RN_POOLING_MEAN) return;
    for (size_t i = 1; i < count; i++)
        for (size_t d = 0; d < e->dimensions; d++)
            out[d] += hidden[i * e->dim + d];
    for (size_t d = 0; d < e->dimensions; d++)
        out[d] /= (float)count;
}

static double square_length(const float *x, size_t dimensions) {
    double sum = 0;
    for (size_t d = 0; d < dimensions; d++)
        sum += (double)x[d] * (double)x[d];
    return sum;
}

static rn_status norm(const rn_embedder *e, float *x) {
    double length = sqrt(square_length(x, e->dimensions));
    if (!isfinite(length))
        return rn_hint(rn_fail(RN_CORRUPT, "the model gives no finite numbers for text %llu",
                               (unsigned long long)e->facts.texts),
                       "its weights are damaged");
    for (size_t d = 0; e->normalizes && length > 0 && d < e->dimensions; d++)
        x[d] = (float)(x[d] / length);
    return RN_OK;
}

double rn_embedding_cosine(const float *a, const float *b, size_t dimensions) {
    double dot = 0, lengths = square_length(a, dimensions) * square_length(b, dimensions);
    for (size_t d = 0; d < dimensions; d++)
        dot += (double)a[d] * (double)b[d];
    return lengths > 0 ? dot / sqrt(lengths) : 0;
}

// ---- runs ---------------------------------------------------------------------------------------

static rn_status run_rows(rn_embedder *e) {
    size_t bytes = e->row_count * sizeof(int32_t);
    if (e->failed) RN_TRY(rn_session_reset(e->session));
    e->failed = true; // until it is over
    RN_TRY(rn_session_set(e->session, "tokens", e->tokens, bytes));
    RN_TRY(rn_session_set(e->session, "position", e->positions, bytes));
    RN_TRY(rn_session_set(e->session, "span", e->spans, 2 * bytes));
    if (e->has_types) RN_TRY(rn_session_set(e->session, "type", e->types, bytes));
    RN_TRY(rn_session_run(e->session, e->row_count));
    e->failed = false;
    e->facts.seconds += rn_session_get_facts(e->session).seconds;
    e->facts.runs++;
    return RN_OK;
}

// Computes the texts that are waiting, and leaves none.
static rn_status flush(rn_embedder *e, float **out) {
    uint64_t bytes = 0;
    uint32_t rows = e->row_count, texts = e->text_count, first = 0;
    if (rows == 0) return RN_OK;
    rn_status s = run_rows(e);
    e->row_count = e->text_count = 0;
    RN_TRY(s);
    const float *hidden = rn_session_output(e->session, "hidden", &bytes);
    if (!hidden || bytes < (uint64_t)rows * e->dim * sizeof *hidden)
        return rn_fail(RN_INTERNAL, "a run gave no rows");
    for (uint32_t i = 0; i < texts; i++, *out += e->dimensions) {
        pool(e, hidden + (size_t)first * e->dim, e->ends[i] - first, *out);
        RN_TRY(norm(e, *out));
        first = e->ends[i];
        e->facts.texts++;
    }
    e->facts.tokens += rows;
    return RN_OK;
}

// Behind those that are waiting. Of a text that is too long the beginning counts, and the token
// that the tokenizer puts behind every text.
// second_at: from which token on it is the second of two texts, or its count.
static rn_status add_text(rn_embedder *e, const rn_tokens *text, size_t second_at, float **out) {
    const rn_tokenizer *tokenizer = rn_model_tokenizer(e->model);
    uint32_t vocab = rn_model_get_info(e->model)->vocab_size;
    uint32_t count = (uint32_t)rn_min_u64(text->count, e->text_tokens);
    bool keeps_end = tokenizer && rn_tokenizer_get_info(tokenizer)->adds_end;
    if (count == 0) return rn_fail(RN_INVALID, "a text has no tokens");
    if (e->row_count + count > e->rows) RN_TRY(flush(e, out));
    uint32_t first = e->row_count;
    for (uint32_t i = 0; i < count; i++) {
        bool is_end = keeps_end && i == count - 1;
        uint32_t id = text->ids[is_end ? text->count - 1 : i], row = first + i;
        if (id >= vocab)
            return rn_fail(RN_INVALID, "token %u is not in the vocabulary of %u", id, vocab);
        e->tokens[row] = (int32_t)id;
        e->positions[row] = (int32_t)(i + rn_model_get_info(e->model)->embedding.first_position);
        e->types[row] = i >= second_at;
        e->spans[2 * row] = (int32_t)first;
        e->spans[2 * row + 1] = (int32_t)(first + count);
    }
    e->row_count = e->ends[e->text_count++] = first + count;
    e->facts.cut_texts += text->count > count;
    return RN_OK;
}

static rn_status check_length(const rn_embedder *e, size_t index, size_t count) {
    if (!e->options.form.refuse_long || count <= e->text_tokens) return RN_OK;
    return rn_fail(RN_INVALID, "text %zu has %zu tokens, more than %u", index, count,
                   e->text_tokens);
}

// A reranker's session gives scores, another's does not.
static rn_status check_use(const rn_embedder *e, bool scores) {
    if (e->scores == scores) return RN_OK;
    return rn_fail(RN_INVALID, scores ? "this embedder makes embeddings, not scores"
                                      : "this embedder makes scores of pairs, not embeddings");
}

rn_status rn_embedder_embed_tokens(rn_embedder *e, const rn_tokens *texts, size_t count,
                                   float *out) {
    rn_status s = check_use(e, false);
    e->row_count = e->text_count = 0;
    for (size_t i = 0; s == RN_OK && i < count; i++) {
        s = check_length(e, i, texts[i].count);
        if (s == RN_OK) s = add_text(e, &texts[i], texts[i].count, &out);
    }
    return s == RN_OK ? flush(e, &out) : s;
}

rn_status rn_embedder_embed(rn_embedder *e, const rn_str *texts, size_t count, float *out) {
    const rn_tokenizer *tokenizer = rn_model_tokenizer(e->model);
    rn_tokens tokens = {0};
    rn_status s = check_use(e, false);
    if (!tokenizer) return rn_fail(RN_NOT_FOUND, "the model comes without a tokenizer");
    e->row_count = e->text_count = 0;
    for (size_t i = 0; s == RN_OK && i < count; i++) {
        tokens.count = 0;
        s = rn_tokenizer_encode(tokenizer, texts[i], RN_ENCODE_BEGIN, &tokens);
        if (s == RN_OK) s = check_length(e, i, tokens.count);
        if (s == RN_OK) s = add_text(e, &tokens, tokens.count, &out);
    }
    rn_tokens_free(&tokens);
    return s == RN_OK ? flush(e, &out) : s;
}

// ---- scores -------------------------------------------------------------------------------------

rn_status rn_embedder_score_pairs(rn_embedder *e, const rn_token_pair *pairs, size_t count,
                                  float *out) {
    rn_status s = check_use(e, true);
    e->row_count = e->text_count = 0;
    for (size_t i = 0; s == RN_OK && i < count; i++) {
        if (pairs[i].second_at >= rn_min_u64(pairs[i].tokens.count, e->text_tokens))
            s = rn_fail(RN_INVALID, "pair %zu: its first text leaves none of the %u tokens", i,
                        e->text_tokens);
        if (s == RN_OK) s = add_text(e, &pairs[i].tokens, pairs[i].second_at, &out);
    }
    return s == RN_OK ? flush(e, &out) : s;
}

// The first text's tokens are in *pair; the second's take the place of another's.
static rn_status join_pair(const rn_tokenizer *tokenizer, rn_str second, rn_token_pair *pair) {
    pair->tokens.count = pair->second_at;
    return rn_tokenizer_encode(tokenizer, second, RN_ENCODE_SECOND, &pair->tokens);
}

rn_status rn_embedder_score(rn_embedder *e, rn_str query, const rn_str *texts, size_t count,
                            float *out) {
    const rn_tokenizer *tokenizer = rn_model_tokenizer(e->model);
    rn_token_pair pair = {0};
    if (!tokenizer) return rn_fail(RN_NOT_FOUND, "the model comes without a tokenizer");
    if (!rn_tokenizer_get_info(tokenizer)->joins_pairs)
        return rn_fail(RN_UNSUPPORTED, "the tokenizer does not say what stands between two texts");
    rn_status s = check_use(e, true);
    if (s == RN_OK) s = rn_tokenizer_encode(tokenizer, query, RN_ENCODE_FIRST, &pair.tokens);
    pair.second_at = pair.tokens.count;
    if (s == RN_OK && pair.second_at >= e->text_tokens)
        s = rn_fail(RN_INVALID, "the query has %zu tokens; with a text they may be %u",
                    pair.second_at, e->text_tokens);
    e->row_count = e->text_count = 0;
    for (size_t i = 0; s == RN_OK && i < count; i++) {
        s = join_pair(tokenizer, texts[i], &pair);
        if (s == RN_OK) s = add_text(e, &pair.tokens, pair.second_at, &out);
    }
    rn_tokens_free(&pair.tokens);
    return s == RN_OK ? flush(e, &out) : s;
}
