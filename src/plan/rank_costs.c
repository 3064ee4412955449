// rank_costs.c — ranks on paper. Formulas are the field's (Thakur et al. for collectives; the ZeRO
// paper for bytes and traffic); what they leave out stands in the header, and the command prints
// it.
#include <ration/ranks.h>

#include "base/checked.h"
#include "base/number.h"
#include "base/str.h"
#include "memory/account.h"
#include "plan/plan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

// ---- the network --------------------------------------------------------------------------------

static rn_status parse_latency(const char *text, double *out) {
    const char *end = text + strspn(text, "0123456789.+-eE");
    double value = 0;
    bool good = rn_number_read((rn_str){text, (size_t)(end - text)}, &value) == RN_OK;
    double unit = strcmp(end, "ns") == 0   ? 1e-9
                  : strcmp(end, "us") == 0 ? 1e-6
                  : strcmp(end, "ms") == 0 ? 1e-3
                  : strcmp(end, "s") == 0  ? 1
                                           : 0;
    if (!good || unit == 0 || !(value >= 0) || value > 1e6)
        return rn_fail(RN_INVALID, "'%s' is no latency", text);
    *out = value * unit;
    return RN_OK;
}

static rn_status parse_topology(const char *text, rn_topology *out) {
    *out = strcmp(text, "tree") == 0 ? RN_TOPOLOGY_TREE : RN_TOPOLOGY_RING;
    return !text[0] || strcmp(text, "tree") == 0 || strcmp(text, "ring") == 0
               ? RN_OK
               : rn_fail(RN_INVALID, "'%s' is neither ring nor tree", text);
}

static rn_status parse_parts(char *text, rn_link *out) {
    char *width = strchr(text, ','), *topology = width ? strchr(width + 1, ',') : NULL;
    uint64_t bytes = 0;
    if (!width) return rn_fail(RN_INVALID, "'%s' has no bandwidth", text);
    *width++ = 0;
    if (topology) *topology++ = 0;
    char *slash = strstr(width, "/s");
    if (slash && !slash[2]) *slash = 0;
    RN_TRY(parse_latency(text, &out->latency_seconds));
    RN_TRY(rn_size_parse(rn_str_from(width), 0, &bytes));
    if (!bytes) return rn_fail(RN_INVALID, "'%s' is no bandwidth", width);
    out->bytes_per_second = (double)bytes;
    return parse_topology(topology ? topology : "", &out->topology);
}

rn_status rn_link_parse(const char *text, rn_link *out) {
    char copy[96];
    if (strlen(text) >= sizeof copy)
        return rn_fail(RN_INVALID, "a link of %zu characters", strlen(text));
    snprintf(copy, sizeof copy, "%s", text);
    rn_status s = parse_parts(copy, out);
    return s == RN_OK ? s
                      : rn_hint(s, "LATENCY,BYTES a second and ring or tree: 5us,12.5GB or "
                                   "100us,117MiB,tree");
}

double rn_collective_seconds(rn_collective collective, const rn_link *link, uint64_t ranks,
                             uint64_t bytes) {
    if (ranks <= 1) return 0;
    double n = (double)ranks, steps = link->topology == RN_TOPOLOGY_TREE ? ceil(log2(n)) : n - 1;
    double whole = (double)bytes / link->bytes_per_second;
    if (collective == RN_COLLECTIVE_SEND) return link->latency_seconds + whole;
    double one = steps * link->latency_seconds + (n - 1) / n * whole;
    return collective == RN_COLLECTIVE_ALL_REDUCE ? 2 * one : one;
}

// ---- blocks of a pipeline -----------------------------------------------------------------------

// What a rank may have at most: as much as all, of its own room, or a multiple of that.
typedef struct share_limit {
    const uint64_t *room; // (ranks); NULL: no limit of their own
    uint64_t most;
    double factor; // of the room; below 1: 1
} share_limit;

static uint64_t limit_of(const share_limit *limit, uint32_t rank) {
    if (!limit->room) return limit->most;
    double wide = (double)limit->room[rank] * limit->factor;
    uint64_t room = limit->factor <= 1                ? limit->room[rank]
                    : wide < (double)(UINT64_MAX / 2) ? (uint64_t)wide
                                                      : UINT64_MAX / 2;
    return rn_min_u64(room, limit->most);
}

// Blocks that are to be dealt.
typedef struct dealing {
    const uint64_t *bytes; // (count)
    uint32_t count, ranks;
    uint64_t all;  // bytes
    bool *reached; // (ranks + 1, count + 1): the first r ranks can have the first b blocks
} dealing;

static bool *reached(const dealing *d, uint32_t rank) {
    return d->reached + (size_t)rank * (d->count + 1u);
}

// What rank r can end with, from what the ranks before it can: its share is the smallest where they
// end as far on as they can.
static void reach(const dealing *d, const share_limit *limit, uint32_t rank) {
    const bool *before = reached(d, rank);
    bool *now = reached(d, rank + 1);
    uint64_t sum = 0, most = limit_of(limit, rank);
    bool any = false;
    now[0] = false;
    for (uint32_t b = 0; b < d->count; b++) {
        if (before[b]) sum = 0;
        any = any || before[b];
        sum += d->bytes[b];
        now[b + 1] = any && sum <= most;
    }
}

// Whether shares within their limits do, and which: the first ranks have the most.
static bool deal(const dealing *d, const share_limit *limit, uint32_t *out_first) {
    memset(reached(d, 0), 0, d->count + 1u);
    reached(d, 0)[0] = true;
    for (uint32_t r = 0; r < d->ranks; r++)
        reach(d, limit, r);
    uint32_t at = d->count;
    if (!reached(d, d->ranks)[at]) return false;
    for (uint32_t r = d->ranks; r > 0; r--) {
        out_first[r] = at;
        do
            at--;
        while (!reached(d, r - 1)[at]);
    }
    out_first[0] = 0;
    return true;
}

// The smallest common limit that does, and its shares; all bytes do.
static void find_shares(const dealing *d, share_limit limit, uint32_t *out_first) {
    uint64_t low = 0, high = d->all;
    while (low < high) {
        limit.most = low + (high - low) / 2;
        if (deal(d, &limit, out_first))
            high = limit.most;
        else
            low = limit.most + 1;
    }
    limit.most = low;
    (void)deal(d, &limit, out_first);
}

// By how much all rooms must be exceeded; 0: some have none, and there is no such factor.
static double find_factor(const dealing *d, const uint64_t *room, uint32_t *out_first) {
    double low = 1, high = 2;
    share_limit limit = {.room = room, .most = d->all, .factor = high};
    while (!deal(d, &limit, out_first)) {
        if (high > 1e18) return 0;
        limit.factor = high *= 2;
    }
    for (int i = 0; i < 60; i++) {
        limit.factor = low + (high - low) / 2;
        *(deal(d, &limit, out_first) ? &high : &low) = limit.factor;
    }
    return high;
}

static void deal_within(const dealing *d, const uint64_t *room, uint32_t *out_first) {
    share_limit limit = {.room = room, .most = d->all, .factor = 1};
    if (room && !deal(d, &limit, out_first)) {
        limit.factor = find_factor(d, room, out_first);
        if (limit.factor == 0) limit.room = NULL;
    }
    find_shares(d, limit, out_first);
}

rn_status rn_ranks_split_within(const uint64_t *block_bytes, uint32_t block_count,
                                const uint64_t *room_bytes, uint32_t ranks, uint32_t *out_first) {
    dealing d = {.bytes = block_bytes, .count = block_count, .ranks = ranks};
    size_t places = ((size_t)ranks + 1) * ((size_t)block_count + 1);
    void *block = NULL;
    if (ranks == 0 || ranks > block_count)
        return rn_hint(rn_fail(RN_INVALID, "%u ranks for %u blocks", ranks, block_count),
                       "a rank has at least one block: take fewer ranks");
    for (uint32_t i = 0; i < block_count; i++)
        if (!rn_add_u64(d.all, block_bytes[i], &d.all))
            return rn_fail(RN_INVALID, "blocks of more bytes than can be counted");
    RN_TRY(rn_alloc(RN_HOST_OTHER, places, &block));
    d.reached = block;
    deal_within(&d, room_bytes, out_first);
    rn_free(RN_HOST_OTHER, block, places);
    return RN_OK;
}

rn_status rn_ranks_split(const uint64_t *block_bytes, uint32_t block_count, uint32_t ranks,
                         uint32_t *out_first) {
    return rn_ranks_split_within(block_bytes, block_count, NULL, ranks, out_first);
}

// ---- text ---------------------------------------------------------------------------------------

typedef struct text_case {
    const rn_plan_summary *plan;
    const rn_text_shape *shape;
    const rn_link *link;
    uint32_t ranks;
    double chunks; // runs of the prompt
} text_case;

static uint64_t share_up(uint64_t bytes, uint64_t part, uint64_t of) {
    return (uint64_t)ceil((double)bytes * (double)part / (double)of);
}

static rn_ranks_row refuse(rn_ranks_row row, const char *what, uint32_t have, uint32_t ranks) {
    snprintf(row.why, sizeof row.why, "%u %s, %u ranks", have, what, ranks);
    return row;
}

// Embedding and head count as layers' equals: exact bytes are the session's, not the paper's.
static rn_ranks_row find_pipeline(const text_case *c) {
    rn_ranks_row row = {.name = "pipeline"};
    const rn_plan_summary *p = c->plan;
    uint32_t n = c->ranks, layers = c->shape->layers;
    if (n > layers) return refuse(row, "layers", layers, n);
    uint64_t by_layer = p->purpose_bytes[RN_PURPOSE_WEIGHTS] + p->purpose_bytes[RN_PURPOSE_KV] +
                        p->purpose_bytes[RN_PURPOSE_STATE];
    uint64_t fullest = rn_div_up(layers, n), rows = rn_max_u64(p->rows, 1);
    uint64_t token = (uint64_t)c->shape->dim * sizeof(float);
    double share = (double)fullest / layers;
    double hop = rn_collective_seconds(RN_COLLECTIVE_SEND, c->link, n, token);
    double chunk = p->prefill_seconds / c->chunks * share +
                   rn_collective_seconds(RN_COLLECTIVE_SEND, c->link, n, token * rows);
    row.possible = true;
    row.rank_bytes = share_up(by_layer, fullest, layers) + (p->planned_bytes - by_layer);
    row.traffic_bytes = n > 1 ? token : 0;
    row.seconds = p->decode_seconds + (n - 1) * hop; // one sequence: ranks take turns
    row.least_seconds = rn_max_u64(n, 1) == 1 ? p->decode_seconds : p->decode_seconds * share + hop;
    row.prompt_seconds = n == 1 ? p->prefill_seconds : chunk * (c->chunks + n - 1);
    return row;
}

// Two sums of a token's width a layer; or, of output rows only, gathers of the heads' results, of
// two outputs of that width and of the inner layer's.
static double tensor_seconds(const text_case *c, bool exact, uint64_t rows) {
    uint64_t width = (uint64_t)c->shape->dim * sizeof(float) * rows;
    uint64_t inner = (uint64_t)c->shape->ffn * sizeof(float) * rows;
    double one = rn_collective_seconds(exact ? RN_COLLECTIVE_ALL_GATHER : RN_COLLECTIVE_ALL_REDUCE,
                                       c->link, c->ranks, width);
    double ffn = rn_collective_seconds(RN_COLLECTIVE_ALL_GATHER, c->link, c->ranks, inner);
    return c->shape->layers * (exact ? 3 * one + ffn : 2 * one);
}

static rn_ranks_row find_tensor(const text_case *c, bool exact) {
    rn_ranks_row row = {0};
    const rn_plan_summary *p = c->plan;
    uint32_t n = c->ranks, heads = c->shape->kv_heads;
    snprintf(row.name, sizeof row.name, exact ? "tensor parallel, exact" : "tensor parallel");
    if (n > heads) return refuse(row, "key-value heads", heads, n);
    uint64_t split = p->purpose_bytes[RN_PURPOSE_WEIGHTS] + p->purpose_bytes[RN_PURPOSE_KV];
    uint64_t most = rn_div_up(heads, n);
    double share = (double)most / heads, width = (double)c->shape->dim * sizeof(float);
    double sent = exact ? 3 * width + (double)c->shape->ffn * sizeof(float) : 4 * width;
    row.possible = true;
    row.rank_bytes = share_up(split, most, heads) + (p->planned_bytes - split);
    row.traffic_bytes = (uint64_t)(c->shape->layers * sent * (n - 1) / n);
    row.seconds = p->decode_seconds * share + tensor_seconds(c, exact, 1);
    row.least_seconds = row.seconds; // the next product waits for each
    row.prompt_seconds =
        p->prefill_seconds * share + c->chunks * tensor_seconds(c, exact, rn_max_u64(p->rows, 1));
    return row;
}

rn_status rn_ranks_for_text(const rn_plan *plan, const rn_text_shape *shape, const rn_link *link,
                            uint32_t ranks, rn_ranks_row out[RN_RANKS_TEXT_ROWS]) {
    const rn_plan_summary *p = rn_plan_get_summary(plan);
    if (!ranks || !shape->layers || !shape->kv_heads || !shape->dim)
        return rn_fail(RN_INVALID, "ranks, layers, heads and width are at least 1");
    uint64_t runs = p->rows ? rn_div_up(rn_max_u64(p->workload_rows, 1), p->rows) : 1;
    text_case c = {p, shape, link, ranks, (double)runs};
    out[0] = find_pipeline(&c);
    out[1] = find_tensor(&c, false);
    out[2] = find_tensor(&c, true);
    return RN_OK;
}

// ---- training -----------------------------------------------------------------------------------

typedef struct train_case {
    uint64_t weights, gradients, states, rest; // bytes on one rank, nothing divided
    uint64_t block;                            // of one block's weights, about
    double seconds;                            // of the step, without the network
} train_case;

static rn_ranks_row find_stage(const train_case *c, const rn_link *link, uint64_t n, int stage) {
    rn_ranks_row row = {.possible = true};
    uint64_t weights = stage >= 3 ? rn_div_up(c->weights, n) + 2 * c->block : c->weights;
    uint64_t gradients = stage >= 2 ? rn_div_up(c->gradients, n) + c->block : c->gradients;
    uint64_t states = stage >= 1 ? rn_div_up(c->states, n) : c->states;
    double gather = rn_collective_seconds(RN_COLLECTIVE_ALL_GATHER, link, n, c->weights);
    double scatter = rn_collective_seconds(RN_COLLECTIVE_REDUCE_SCATTER, link, n, c->gradients);
    double network = stage == 0
                         ? rn_collective_seconds(RN_COLLECTIVE_ALL_REDUCE, link, n, c->gradients)
                         : scatter + (stage == 3 ? 2 : 1) * gather;
    double sent =
        (double)c->gradients * (stage == 0 ? 2 : 1) + (double)c->weights * (stage == 0   ? 0
                                                                            : stage == 3 ? 2
                                                                                         : 1);
    if (stage)
        snprintf(row.name, sizeof row.name, "ZeRO %d", stage);
    else
        snprintf(row.name, sizeof row.name, "data parallel");
    if (n == 1) weights = c->weights, gradients = c->gradients;
    row.rank_bytes = weights + gradients + states + c->rest;
    row.traffic_bytes = (uint64_t)(sent * (double)(n - 1) / (double)n);
    row.seconds = c->seconds + network;
    row.least_seconds = c->seconds > network ? c->seconds : network;
    return row;
}

rn_status rn_ranks_for_training(const rn_plan *plan, const rn_link *link, uint32_t ranks,
                                rn_ranks_row out[RN_RANKS_TRAIN_ROWS]) {
    const rn_plan_summary *p = rn_plan_get_summary(plan);
    if (!ranks) return rn_fail(RN_INVALID, "0 ranks");
    train_case c = {.weights = p->purpose_bytes[RN_PURPOSE_WEIGHTS],
                    .gradients = p->weight_bytes,
                    .states = p->purpose_bytes[RN_PURPOSE_OPTIMIZER],
                    .seconds = p->seconds};
    c.rest = p->planned_bytes - c.weights - c.states - p->purpose_bytes[RN_PURPOSE_GRADIENTS];
    c.block = rn_div_up(c.weights, p->block_count ? p->block_count : 1);
    for (int stage = 0; stage < RN_RANKS_TRAIN_ROWS; stage++)
        out[stage] = find_stage(&c, link, ranks, stage);
    return RN_OK;
}
