// engine_embed.c — a model that makes embeddings: a run takes texts of all jobs in turn, as many as
// have room, so that neither a job of one text waits for one of a thousand nor does a run go half
// empty. Whose company a text has does not change its bits. A reranker's texts are pairs and its
// embeddings one number: those of a job wait for each other, since the best is told first.
#include "server/engine_parts.h"

#include "base/checked.h"
#include "memory/account.h"

#include <ration/embed.h>

#include <math.h>

#define FROM RN_HOST_IO

enum { RUN_TEXTS = 256, DEFAULT_TOKENS = 2048 };

struct rn_engine_embedding {
    rn_embedder *embedder; // NULL: not loaded
    uint32_t dim, rows;
    bool normalizes, ranks;
    uint32_t count; // of the run's texts
    rn_tokens texts[RUN_TEXTS];
    rn_token_pair pairs[RUN_TEXTS];
    rn_job *jobs[RUN_TEXTS];
    float *vectors; // (RUN_TEXTS, dim)
};

// ---- life ---------------------------------------------------------------------------------------

bool rn_engine_is_for_embeddings(const rn_engine *e) {
    return e->options->embeddings || rn_model_get_info(e->model)->encoder;
}

rn_status rn_engine_embedding_open(rn_engine *e) {
    void *block = NULL, *vectors = NULL;
    bool ranks = rn_model_get_info(e->model)->ranks;
    uint32_t dim = ranks ? 1 : rn_model_get_info(e->model)->dim;
    RN_TRY(rn_alloc_zeroed(FROM, 1, sizeof(rn_engine_embedding), &block));
    e->embedding = block;
    e->embedding->dim = dim;
    e->embedding->ranks = ranks;
    e->embedding->normalizes = rn_model_get_info(e->model)->embedding.normalizes;
    RN_TRY(rn_alloc_zeroed(FROM, (size_t)RUN_TEXTS * dim, sizeof(float), &vectors));
    e->embedding->vectors = vectors;
    return RN_OK;
}

void rn_engine_embedding_close(rn_engine *e) {
    rn_engine_embedding *m = e->embedding;
    if (!m) return;
    rn_engine_embedding_unload(e);
    rn_free(FROM, m->vectors, (size_t)RUN_TEXTS * m->dim * sizeof(float));
    rn_free(FROM, m, sizeof *m);
    e->embedding = NULL;
}

static void set_embedder(rn_engine *e, rn_embedder *embedder) {
    pthread_mutex_lock(&e->plan_lock);
    e->embedding->embedder = embedder;
    pthread_mutex_unlock(&e->plan_lock);
}

static rn_embedder_options options_of(const rn_engine *e, const rn_generator_options *o) {
    const rn_embedding_info *info = &rn_model_get_info(e->model)->embedding;
    uint32_t most = (uint32_t)rn_min_u64(info->text_tokens, DEFAULT_TOKENS);
    return (rn_embedder_options){
        .text = {.text_tokens = o->text.context ? o->text.context : most,
                 .rows = o->text.rows,
                 .unquantised_activations = o->text.unquantised_activations,
                 .scores = rn_model_get_info(e->model)->ranks},
        .plan = o->plan,
        .device_budget = o->device_budget,
        .session = o->session,
        .measure_rates = o->measure_rates,
        .planned = o->planned,
        .planned_self = o->planned_self,
    };
}

rn_status rn_engine_embedding_predict(const rn_engine *e, const rn_generator_options *o,
                                      rn_plan **out) {
    rn_embedder_options options = options_of(e, o);
    return rn_embedder_predict(e->model, &options, out);
}

rn_status rn_engine_embedding_load(rn_engine *e) {
    rn_embedder_options options = options_of(e, &e->generator_options);
    rn_embedder *embedder = NULL;
    RN_TRY(rn_embedder_create(e->model, &options, &embedder));
    e->embedding->rows = (uint32_t)rn_plan_get_summary(rn_embedder_plan(embedder))->rows;
    set_embedder(e, embedder);
    return RN_OK;
}

void rn_engine_embedding_unload(rn_engine *e) {
    rn_embedder *embedder = e->embedding ? e->embedding->embedder : NULL;
    if (!embedder) return;
    set_embedder(e, NULL);
    rn_embedder_destroy(embedder);
}

const rn_plan *rn_engine_embedding_plan(const rn_engine *e) {
    const rn_engine_embedding *m = e->embedding;
    return m && m->embedder ? rn_embedder_plan(m->embedder) : NULL;
}

uint32_t rn_engine_embedding_tokens(const rn_engine *e) {
    return rn_embedder_text_tokens(e->embedding->embedder);
}

rn_status rn_engine_embedding_try(rn_engine *e, bool whole) {
    rn_engine_embedding *m = e->embedding;
    uint32_t count = whole ? rn_engine_embedding_tokens(e) : (m->ranks ? 2 : 1);
    void *ids = NULL; // token 0
    RN_TRY(rn_alloc_zeroed(FROM, count, sizeof(uint32_t), &ids));
    rn_tokens text = {ids, count, count};
    rn_token_pair pair = {text, 1};
    rn_status s = m->ranks ? rn_embedder_score_pairs(m->embedder, &pair, 1, m->vectors)
                           : rn_embedder_embed_tokens(m->embedder, &text, 1, m->vectors);
    rn_free(FROM, ids, count * sizeof(uint32_t));
    return s;
}

// ---- a run --------------------------------------------------------------------------------------

// Texts of a job that are in the run, or were in one.
static uint32_t count_taken(const rn_engine_embedding *m, const rn_job *job) {
    uint32_t taken = job->embedded;
    for (uint32_t i = 0; i < m->count; i++)
        taken += m->jobs[i] == job;
    return taken;
}

// The next text of a job joins the run. False: it has none, or there is no room.
static bool add_text(rn_engine_embedding *m, rn_job *job, uint32_t *rows) {
    uint32_t index = count_taken(m, job);
    if (index == job->request.prompt_count || m->count == RUN_TEXTS) return false;
    const rn_tokens *text = &job->prompts[index];
    if (*rows + text->count > m->rows && m->count) return false;
    *rows += (uint32_t)text->count;
    m->texts[m->count] = *text;
    m->pairs[m->count] = (rn_token_pair){*text, job->second_at};
    m->jobs[m->count++] = job;
    return true;
}

// One of each, and again.
static void fill(rn_engine *e, rn_engine_embedding *m) {
    uint32_t rows = 0;
    m->count = 0;
    for (bool added = true; added;) {
        added = false;
        for (rn_job *job = e->running; job; job = job->next)
            added |= add_text(m, job, &rows);
    }
}

// The first numbers, of the length that the whole had.
static void cut(const rn_engine_embedding *m, float *vector, uint32_t dimensions) {
    double sum = 0;
    for (uint32_t i = 0; i < dimensions; i++)
        sum += (double)vector[i] * (double)vector[i];
    double length = sqrt(sum);
    for (uint32_t i = 0; m->normalizes && length > 0 && i < dimensions; i++)
        vector[i] = (float)(vector[i] / length);
}

static rn_status put(const rn_engine_embedding *m, rn_job *job, float *vector) {
    uint32_t dimensions = job->request.dimensions ? job->request.dimensions : m->dim;
    if (job->scores) {
        job->scores[job->embedded++] = *vector;
        return RN_OK;
    }
    if (dimensions < m->dim) cut(m, vector, dimensions);
    rn_piece piece = {.choice = job->embedded,
                      .kind = RN_PIECE_EMBEDDING,
                      .text = {(const char *)vector, dimensions * sizeof *vector}};
    if (!rn_job_put(job, &piece)) return rn_fail(RN_INTERNAL, "an embedding has no room");
    job->embedded++;
    return RN_OK;
}

// Of the scores that are left the best, of equal ones the first.
static uint32_t find_best(const rn_job *job) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < job->request.prompt_count; i++)
        if (!(job->scores[i] <= job->scores[best])) best = i;
    return best;
}

// Best first; what was told is the worst of all from then on. (Scores are finite: embed.c.)
static rn_status put_ranking(rn_job *job) {
    uint64_t count = job->request.prompt_count;
    if (job->request.top_n) count = rn_min_u64(count, job->request.top_n);
    for (uint64_t i = 0; i < count; i++) {
        uint32_t best = find_best(job);
        float score = job->scores[best];
        rn_piece piece = {.choice = best,
                          .kind = RN_PIECE_EMBEDDING,
                          .text = {(const char *)&score, sizeof score}};
        if (!rn_job_put(job, &piece)) return rn_fail(RN_INTERNAL, "a score has no room");
        job->scores[best] = -INFINITY;
    }
    return RN_OK;
}

rn_status rn_engine_embedding_step(rn_engine *e) {
    rn_engine_embedding *m = e->embedding;
    fill(e, m);
    RN_TRY(m->ranks ? rn_embedder_score_pairs(m->embedder, m->pairs, m->count, m->vectors)
                    : rn_embedder_embed_tokens(m->embedder, m->texts, m->count, m->vectors));
    for (uint32_t i = 0; i < m->count; i++)
        RN_TRY(put(m, m->jobs[i], m->vectors + (size_t)i * m->dim));
    for (rn_job *job = e->running, *next; job; job = next) {
        next = job->next;
        if (job->embedded < job->request.prompt_count) continue;
        if (job->scores) RN_TRY(put_ranking(job));
        rn_engine_end(e, job, RN_JOB_DONE, NULL);
    }
    return RN_OK;
}
