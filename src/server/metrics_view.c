// metrics_view.c — /metrics: Prometheus' text format 0.0.4. A family is HELP, TYPE and its samples,
// each family once; label values are escaped, so that a model may be called what it likes.
#include "server/look.h"

#include "base/clock.h"
#include "memory/device_usage.h"

#include <ration/ration.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct text {
    rn_sink sink;
    rn_status status; // of the first write that failed; later ones do nothing
} text;

#define PRINT(t, ...)                                                                              \
    do {                                                                                           \
        if ((t)->status == RN_OK) (t)->status = rn_sink_print((t)->sink, __VA_ARGS__);             \
    } while (0)

static void open_family(text *t, const char *name, const char *type, const char *help) {
    PRINT(t, "# HELP ration_%s %s\n# TYPE ration_%s %s\n", name, help, name, type);
}

static void write_gauge(text *t, const char *name, uint64_t value, const char *help) {
    open_family(t, name, "gauge", help);
    PRINT(t, "ration_%s %" PRIu64 "\n", name, value);
}

static void write_escaped(text *t, const char *c, size_t bytes) {
    if (!bytes)
        PRINT(t, "\xEF\xBF\xBD");
    else if (*c == '\n')
        PRINT(t, "\\n");
    else
        PRINT(t, "%s%.*s", *c == '\\' || *c == '"' ? "\\" : "", (int)bytes, c);
}

// "name=" and the value in quotes: backslash, quote and newline are escaped, bytes that are not
// UTF-8 become U+FFFD.
static void write_label(text *t, const char *name, const char *value) {
    PRINT(t, "%s=\"", name);
    for (const char *c = value; *c;) {
        size_t bytes = rn_utf8_sequence(c, strlen(c));
        write_escaped(t, c, bytes);
        c += bytes ? bytes : 1;
    }
    PRINT(t, "\"");
}

// ---- what was counted ---------------------------------------------------------------------------

typedef struct counter {
    rn_count which;
    const char *name, *code; // code: a label, or NULL
    const char *help;        // NULL: of the family above
} counter;

static const counter counters[] = {
    {RN_COUNT_REQUESTS, "requests_total", NULL, "Requests that were taken in."},
    {RN_COUNT_DONE, "requests_done_total", NULL, "Requests answered in full."},
    {RN_COUNT_FAILED, "requests_failed_total", NULL, "Requests that failed once taken in."},
    {RN_COUNT_CANCELLED, "requests_cancelled_total", NULL, "Requests whose client went away."},
    {RN_COUNT_REFUSED_400, "requests_refused_total", "4xx",
     "Requests that were not taken in, by HTTP status; 4xx is all of those but 429."},
    {RN_COUNT_REFUSED_429, "requests_refused_total", "429", NULL},
    {RN_COUNT_REFUSED_503, "requests_refused_total", "503", NULL},
    {RN_COUNT_PROMPT_TOKENS, "prompt_tokens_total", NULL, "Tokens of prompts."},
    {RN_COUNT_SHARED_TOKENS, "shared_tokens_total", NULL,
     "Tokens of prompts that were not computed again: another request began with the same."},
    {RN_COUNT_NEW_TOKENS, "generated_tokens_total", NULL, "Tokens that were made."},
    {RN_COUNT_STEPS, "steps_total", NULL, "Steps of the model: each reads all weights once."},
    {RN_COUNT_FALLBACKS, "fallbacks_total", NULL,
     "Fallbacks to a later target of the ladder while serving."},
    {RN_COUNT_CONNECTIONS, "connections_total", NULL, "Connections that were accepted."},
};

static void write_counters(text *t, const rn_metrics *metrics) {
    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++) {
        const counter *c = &counters[i];
        if (c->help) open_family(t, c->name, "counter", c->help);
        PRINT(t, "ration_%s", c->name);
        if (c->code) PRINT(t, "{code=\"%s\"}", c->code);
        PRINT(t, " %" PRIu64 "\n", (uint64_t)atomic_load(&metrics->counts[c->which]));
    }
}

// The count is the sum of what was read: buckets that others fill meanwhile stay consistent.
static void write_histogram(text *t, const rn_histogram *histogram, const char *name,
                            const char *help) {
    uint64_t sum_ns = atomic_load(&histogram->sum_ns), count = 0;
    open_family(t, name, "histogram", help);
    for (size_t i = 0; i < RN_BUCKETS; i++) {
        count += atomic_load(&histogram->buckets[i]);
        if (i < RN_BUCKETS - 1)
            PRINT(t, "ration_%s_bucket{le=\"%g\"} %" PRIu64 "\n", name, rn_bucket_seconds[i],
                  count);
    }
    PRINT(t, "ration_%s_bucket{le=\"+Inf\"} %" PRIu64 "\n", name, count);
    PRINT(t, "ration_%s_sum %.9f\nration_%s_count %" PRIu64 "\n", name, (double)sum_ns * 1e-9, name,
          count);
}

static void write_histograms(text *t, const rn_metrics *metrics) {
    const rn_histogram *spans = metrics->spans;
    write_histogram(t, &spans[RN_SPAN_QUEUE], "queue_seconds", "From taken in to admitted.");
    write_histogram(t, &spans[RN_SPAN_FIRST], "time_to_first_token_seconds",
                    "From taken in to the first token.");
    write_histogram(t, &spans[RN_SPAN_BETWEEN], "time_between_tokens_seconds",
                    "Between tokens of an answer.");
    write_histogram(t, &spans[RN_SPAN_END_TO_END], "request_seconds",
                    "From taken in to the end of the answer.");
}

// ---- where it stands ----------------------------------------------------------------------------

static void write_info(text *t, rn_server *server, const rn_engine_facts *facts) {
    char index[16];
    snprintf(index, sizeof index, "%u", facts->target_index);
    open_family(t, "info", "gauge", "What serves, on the device really in use.");
    PRINT(t, "ration_info{");
    write_label(t, "version", rn_version());
    PRINT(t, ",");
    write_label(t, "model", rn_engine_model_name(rn_server_loaded(server)));
    PRINT(t, ",");
    write_label(t, "device", facts->target);
    PRINT(t, ",");
    write_label(t, "target_index", facts->target[0] ? index : "");
    PRINT(t, "} 1\n");
    write_gauge(t, "start_time_seconds", (uint64_t)server->started,
                "When the server began, in seconds since 1970.");
    write_gauge(t, "ready", facts->phase == RN_ENGINE_READY, "1 while requests are taken in.");
}

// Of several models.
static void write_models(text *t, const rn_server *server) {
    static const char *const names[] = {"model_loaded", "model_loads_total", "model_share_bytes"};
    static const char *const helps[] = {"1 while the model is loaded.", "How often it was loaded.",
                                        "What its plan may take of the budget."};
    for (int k = 0; k < 3; k++) {
        open_family(t, names[k], k == 1 ? "counter" : "gauge", helps[k]);
        for (uint32_t i = 0; i < server->engine_count; i++) {
            rn_engine_presence p = rn_engine_get_presence(server->engines[i]);
            uint64_t value = k == 0 ? p.loaded : k == 1 ? p.loads : p.share_bytes;
            PRINT(t, "ration_%s{", names[k]);
            write_label(t, "model", rn_engine_model_name(server->engines[i]));
            PRINT(t, "} %" PRIu64 "\n", value);
        }
    }
}

static void write_load(text *t, rn_server *server, const rn_engine_facts *facts) {
    const rn_generator_facts *g = &facts->generator;
    write_gauge(t, "requests_running", facts->running, "Requests that are being answered.");
    write_gauge(t, "requests_waiting", facts->waiting, "Requests in the queue.");
    write_gauge(t, "sequences", facts->sequences, "Sequences being written.");
    write_gauge(t, "sequences_max", facts->sequences_max, "Sequences that can be at once.");
    write_gauge(t, "connections", atomic_load(&server->metrics.connections_now),
                "Connections that are open.");
    open_family(t, "tokens_per_second", "gauge", "Tokens made, in the mean of three seconds.");
    PRINT(t, "ration_tokens_per_second %.3f\n",
          rn_rate_get(&server->metrics.new_tokens, rn_clock_ns()));
    write_gauge(t, "kv_pages_used", g->kv_pages, "Pages of the KV cache in use.");
    write_gauge(t, "kv_pages_kept", g->kv_pages_kept,
                "Pages that nobody uses, kept for prompts that begin alike.");
    write_gauge(t, "kv_pages_max", g->kv_pages_total, "Pages of the KV cache.");
    write_gauge(t, "kv_page_bytes", g->kv_page_bytes, "Bytes of a page.");
}

// ---- memory -------------------------------------------------------------------------------------

static void write_account(text *t, const char *name, size_t device, int purpose, uint64_t bytes) {
    PRINT(t, "ration_%s{", name);
    write_label(t, "device", rn_device_name((rn_device_id)device));
    PRINT(t, ",");
    write_label(t, "purpose", rn_purpose_name((rn_purpose)purpose));
    PRINT(t, "} %" PRIu64 "\n", bytes);
}

static void write_ledger(text *t, const char *name, bool peak, const char *help) {
    open_family(t, name, "gauge", help);
    for (size_t d = 0; d < rn_device_count(); d++)
        for (int p = 0; p < RN_PURPOSE_COUNT; p++) {
            rn_ledger_line line = rn_ledger_read((rn_device_id)d, (rn_purpose)p);
            if (line.peak_bytes)
                write_account(t, name, d, p, peak ? line.peak_bytes : line.now_bytes);
        }
}

static void write_device(text *t, const char *name, size_t device, uint64_t bytes) {
    PRINT(t, "ration_%s{", name);
    write_label(t, "device", rn_device_name((rn_device_id)device));
    PRINT(t, "} %" PRIu64 "\n", bytes);
}

static void write_totals(text *t) {
    open_family(t, "memory_device_peak_bytes", "gauge",
                "The most bytes on the ledger at once, by device.");
    for (size_t d = 0; d < rn_device_count(); d++)
        write_device(t, "memory_device_peak_bytes", d, rn_ledger_total((rn_device_id)d).peak_bytes);
}

// Devices without a budget are left out.
static void write_budgets(text *t, const rn_engine_facts *facts) {
    open_family(t, "memory_budget_bytes", "gauge", "What may be used at most, by device.");
    for (size_t d = 0; d < rn_device_count(); d++) {
        uint64_t bytes = rn_budget_of((rn_device_id)d, facts);
        if (bytes) write_device(t, "memory_budget_bytes", d, bytes);
    }
}

// What drivers say, where they do.
static void write_drivers(text *t) {
    rn_device_usage usage;
    bool first = true;
    for (size_t d = 0; d < rn_device_count(); d++) {
        if (!rn_device_usage_read((rn_device_id)d, &usage)) continue;
        if (first)
            open_family(t, "memory_driver_bytes", "gauge",
                        "Bytes that the device's driver says are held, by anybody, by category.");
        first = false;
        for (uint32_t i = 0; i < usage.category_count; i++) {
            PRINT(t, "ration_memory_driver_bytes{");
            write_label(t, "device", rn_device_name((rn_device_id)d));
            PRINT(t, ",");
            write_label(t, "category", usage.categories[i].name);
            PRINT(t, "} %" PRIu64 "\n", usage.categories[i].bytes);
        }
    }
}

static void write_total(text *t, const char *name, uint64_t value, const char *help) {
    open_family(t, name, "counter", help);
    PRINT(t, "ration_%s %" PRIu64 "\n", name, value);
}

// Experts on demand. The hit rate is 1 - missed / needed, over any time.
static void write_experts(text *t, const rn_engine_facts *facts) {
    const rn_session_facts *s = &facts->generator.session;
    if (facts->expert_layers == 0) return;
    write_gauge(t, "expert_slots", facts->expert_slots,
                "Slots for experts in each of their layers.");
    write_gauge(t, "expert_slot_bytes", facts->expert_slot_bytes, "Bytes of all of them.");
    write_total(t, "experts_needed_total", s->experts_needed,
                "Experts that steps chose, each once a step and layer.");
    write_total(t, "experts_missed_total", s->experts_missed,
                "Of these, those that were not in memory.");
    write_total(t, "expert_read_bytes_total", s->expert_read_bytes,
                "Bytes that were read for them.");
}

static void note_rank(void *self, const rn_rank_share *share) {
    (void)share;
    *(bool *)self = true;
}

static void write_rank(void *self, const rn_rank_share *share) {
    for (int p = 0; p < RN_PURPOSE_COUNT; p++) {
        if (!share->purpose_bytes[p]) continue;
        PRINT((text *)self, "ration_rank_planned_bytes{rank=\"%" PRIu32 "\",", share->rank);
        write_label(self, "purpose", rn_purpose_name((rn_purpose)p));
        PRINT((text *)self, "} %" PRIu64 "\n", share->purpose_bytes[p]);
    }
}

static void write_rank_budget(void *self, const rn_rank_share *share) {
    if (share->budget_bytes != RN_NO_LIMIT)
        PRINT((text *)self, "ration_rank_budget_bytes{rank=\"%" PRIu32 "\"} %" PRIu64 "\n",
              share->rank, share->budget_bytes);
}

static void write_ranks(text *t, rn_server *server) {
    bool any = false;
    rn_engine_each_share(server->engine, note_rank, &any);
    if (!any) return;
    open_family(t, "rank_planned_bytes", "gauge", "Bytes of each rank's plan, by purpose.");
    rn_engine_each_share(server->engine, write_rank, t);
    open_family(t, "rank_budget_bytes", "gauge", "What each rank may use at most.");
    rn_engine_each_share(server->engine, write_rank_budget, t);
}

static void write_memory(text *t, rn_server *server, const rn_engine_facts *facts) {
    rn_process_info process = {0};
    (void)!rn_process_read(&process);
    write_ledger(t, "memory_bytes", false, "Bytes on the ledger, by device and purpose.");
    write_ledger(t, "memory_peak_bytes", true, "The most so far of each.");
    write_totals(t);
    write_drivers(t);
    write_budgets(t, facts);
    write_gauge(t, "memory_predicted_peak_bytes", facts->predicted_bytes,
                "What the process should take at most, by the plan; 0 before there is one.");
    write_gauge(t, "memory_streamed_bytes", facts->streamed_bytes,
                "Bytes of weights that are read for every step.");
    write_experts(t, facts);
    write_gauge(t, "resident_bytes", process.resident_bytes, "What the system holds of it.");
    write_gauge(t, "resident_peak_bytes", process.resident_peak_bytes, "The most so far.");
    if (process.cgroup_version && process.cgroup_limit_bytes != RN_NO_LIMIT)
        write_gauge(t, "container_limit_bytes", process.cgroup_limit_bytes,
                    "The container's memory limit.");
    write_gauge(t, "request_memory_bytes", rn_engine_request_bytes(server->engine),
                "Taken by requests: bodies, prompts, answers.");
    write_gauge(t, "request_memory_peak_bytes", atomic_load(&server->memory.peak_bytes),
                "The most so far.");
    write_gauge(t, "request_memory_limit_bytes", server->memory.total_bytes,
                "What all requests together may take.");
}

rn_status rn_handle_metrics(rn_server *server, const rn_http_request *request,
                            rn_http_answer *answer) {
    (void)request;
    rn_engine_facts facts;
    text t = {.sink = rn_buffer_sink(&answer->body)};
    rn_engine_get_facts(rn_server_loaded(server), &facts);
    answer->type = "text/plain; version=0.0.4; charset=utf-8";
    write_info(&t, server, &facts);
    write_load(&t, server, &facts);
    if (server->engine_count > 1) write_models(&t, server);
    write_counters(&t, &server->metrics);
    write_histograms(&t, &server->metrics);
    write_memory(&t, server, &facts);
    write_ranks(&t, server);
    return t.status;
}
