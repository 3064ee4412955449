// serve.c — ration serve: a model behind HTTP, within a budget.
#include "rank_job.h"
#include "run.h"
#include "support/model_names.h"

#include <malloc.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_KEYS = 256, MAX_MODELS = 32 };

typedef struct server_command {
    rn_comm *comm; // of several ranks, of which this is number 0; NULL: one process
    const invocation *in;
    rn_adapter adapters[MAX_ADAPTERS];
    rn_diffusion_adapter image_adapters[MAX_ADAPTERS];
    char adapter_paths[MAX_ADAPTERS][4096];
    text_buffer chat_template, key_file;
    const char *keys[MAX_KEYS];
    host_budget begun;  // before there is a device
    host_budget budget; // for the device in use
    double drain_seconds;
    rn_found_model first, found[MAX_MODELS]; // named by --model; behind the first
    rn_server_model more[MAX_MODELS];
    char names[MAX_MODELS][256];
    rn_server_options options;
    rn_generator_options generator;
    constraint_texts experts;
    rn_server *server;
    bool plan_only; // ends as soon as there is a plan, which is printed
    rn_flag planned;
    rn_status printed;
} server_command;

// ---- settings -----------------------------------------------------------------------------------

static rn_status read_number(const invocation *in, const char *name, uint64_t least, uint64_t most,
                             uint64_t *out) {
    *out = rn_settings_count(in->settings, name);
    if (*out >= least && *out <= most) return RN_OK;
    return rn_fail(RN_INVALID, "--%s %llu: from %llu to %llu", name, (unsigned long long)*out,
                   (unsigned long long)least, (unsigned long long)most);
}

static rn_status read_count32(const invocation *in, const char *name, uint32_t most,
                              uint32_t *out) {
    uint64_t value = 0;
    RN_TRY(read_number(in, name, 1, most, &value));
    *out = (uint32_t)value;
    return RN_OK;
}

static rn_status read_bytes(const invocation *in, const char *name, uint64_t *out) {
    *out = rn_settings_size(in->settings, name);
    return *out ? RN_OK : rn_fail(RN_INVALID, "--%s 0: at least 1", name);
}

// Whole seconds, at least one.
static rn_status read_seconds(const invocation *in, const char *name, uint32_t *out) {
    const double most = 1 << 20;
    double seconds = 0;
    RN_TRY(parse_time(name, rn_settings_text(in->settings, name), &seconds));
    if (seconds <= 0 || seconds > most)
        return rn_fail(RN_INVALID, "--%s %g: above 0, at most %g seconds", name, seconds, most);
    *out = (uint32_t)ceil(seconds);
    return RN_OK;
}

// "auto", which is the limits' own default, or a number; 0 is no limit.
static rn_status read_per_address(const invocation *in, uint32_t most, uint32_t *out) {
    const char *text = rn_settings_text(in->settings, "per-address");
    char *end = NULL;
    if (strcmp(text, "auto") == 0) return RN_OK;
    unsigned long long value = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end || value > most)
        return rn_fail(RN_INVALID, "--per-address %s: a number up to %u, 0 for no limit, or auto",
                       text, most);
    *out = value ? (uint32_t)value : UINT32_MAX;
    return RN_OK;
}

// Milliseconds; 0 is no limit.
static rn_status read_gap(const invocation *in, uint32_t *out) {
    const double most = 3600;
    double seconds = 0;
    RN_TRY(parse_time("max-gap", rn_settings_text(in->settings, "max-gap"), &seconds));
    if (seconds < 0 || seconds > most)
        return rn_fail(RN_INVALID, "--max-gap %g: from 0 (no limit) to %g seconds", seconds, most);
    *out = seconds > 0 ? (uint32_t)ceil(seconds * 1000) : UINT32_MAX;
    return RN_OK;
}

static rn_status read_limits(const invocation *in, rn_server_limits *out) {
    enum { MANY = 65536 };
    RN_TRY(read_per_address(in, MANY, &out->per_address));
    RN_TRY(read_count32(in, "connections", MANY, &out->connections));
    RN_TRY(read_count32(in, "waiting", MANY, &out->waiting));
    RN_TRY(read_bytes(in, "max-body", &out->body_bytes));
    RN_TRY(read_bytes(in, "request-memory", &out->request_bytes));
    RN_TRY(read_count32(in, "max-tokens", INT32_MAX, &out->answer_tokens));
    RN_TRY(read_gap(in, &out->gap_ms));
    RN_TRY(read_seconds(in, "idle-timeout", &out->idle_seconds));
    return read_seconds(in, "wait-timeout", &out->wait_seconds);
}

static rn_status add_key(server_command *c, const char *key) {
    if (c->options.api_key_count == MAX_KEYS)
        return rn_fail(RN_INVALID, "more than %d API keys", MAX_KEYS);
    c->keys[c->options.api_key_count++] = key;
    return RN_OK;
}

// A file that was asked for but holds no key must not open the door to everybody.
static rn_status read_key_file(server_command *c, const char *path) {
    size_t before = c->options.api_key_count;
    RN_TRY(read_text(path, &c->key_file));
    if (c->key_file.data)
        for (char *line = strtok(c->key_file.data, "\r\n"); line; line = strtok(NULL, "\r\n"))
            if (line[strspn(line, " \t")]) RN_TRY(add_key(c, line));
    if (c->options.api_key_count > before) return RN_OK;
    return rn_hint(
        rn_error_locate(rn_fail(RN_INVALID, "there is no key in it"), path, RN_NO_OFFSET),
        "one key a line");
}

static rn_status read_keys(server_command *c) {
    const char *const *items = NULL;
    const char *path = rn_settings_text(c->in->settings, "api-key-file");
    size_t count = rn_settings_list(c->in->settings, "api-key", &items);
    c->options.api_keys = c->keys;
    for (size_t i = 0; i < count; i++)
        RN_TRY(add_key(c, items[i]));
    return path[0] ? read_key_file(c, path) : RN_OK;
}

static rn_prefix_cache read_prefix_cache(const invocation *in) {
    const char *text = rn_settings_text(in->settings, "prefix-cache");
    if (strcmp(text, "all") == 0) return RN_PREFIX_CACHE_ALL;
    return strcmp(text, "off") == 0 ? RN_PREFIX_CACHE_OFF : RN_PREFIX_CACHE_KEY;
}

static const char *given(const invocation *in, const char *name) {
    const char *text = rn_settings_text(in->settings, name);
    return text[0] ? text : NULL;
}

// "models/Llama-1B.gguf" -> "Llama-1B": of several models, what requests call one. A file's own
// name is for people, and may have blanks.
static const char *name_of(const char *path, char out[256]) {
    size_t bytes = strlen(path);
    while (bytes > 1 && path[bytes - 1] == '/')
        bytes--;
    size_t begin = bytes;
    while (begin > 0 && path[begin - 1] != '/')
        begin--;
    if (bytes - begin > 5 && memcmp(path + bytes - 5, ".gguf", 5) == 0) bytes -= 5;
    snprintf(out, 256, "%.*s", (int)(bytes - begin), path + begin);
    return out;
}

// Words behind the first: paths, or names of models that are here.
static rn_status read_more_models(server_command *c) {
    const invocation *in = c->in;
    for (size_t i = 1; i < in->word_count; i++) {
        rn_found_model *found = &c->found[i - 1];
        rn_server_model *model = &c->more[i - 1];
        RN_TRY(rn_model_find(in->words[i], found));
        model->path = found->path;
        model->name = found->label[0] ? found->label : name_of(in->words[i], c->names[i]);
    }
    if (in->word_count > 1 && !c->options.model_name)
        c->options.model_name = name_of(in->words[0], c->names[0]);
    c->options.more_models = c->more;
    c->options.more_model_count = in->word_count > 1 ? in->word_count - 1 : 0;
    return RN_OK;
}

static rn_status read_model(server_command *c) {
    const invocation *in = c->in;
    rn_server_options *o = &c->options;
    const char *path = given(in, "template");
    const char *named = given(in, "model");
    o->model_path = in->word_count ? in->words[0] : NULL;
    o->model.adapters = c->adapters;
    o->model.tokenizer_path = given(in, "tokenizer");
    o->model_name = given(in, "served-name");
    if (!o->model_name && in->model_label[0]) o->model_name = in->model_label;
    if (!o->model_path && named) {
        RN_TRY(rn_model_find(named, &c->first));
        o->model_path = c->first.path;
        if (!o->model_name && c->first.label[0]) o->model_name = c->first.label;
    }
    RN_TRY(read_more_models(c));
    if (o->model_path && rn_diffusion_is(o->model_path))
        return read_image_parts(in, c->image_adapters, c->adapter_paths, &o->image);
    RN_TRY(read_adapters(in, c->adapters, c->adapter_paths, &o->model.adapter_count));
    if (!path) return RN_OK;
    RN_TRY(read_text(path, &c->chat_template));
    o->chat_template = c->chat_template.data ? c->chat_template.data : "";
    return RN_OK;
}

static rn_status set_budget(void *self, rn_device *device, rn_generator_options *generator) {
    server_command *c = self;
    RN_TRY(read_server_budget(c->in, device, &c->begun, &c->budget));
    use_budget(&c->budget, &generator->plan);
    generator->device_budget = c->budget.device;
    return RN_OK;
}

static rn_status read_options(server_command *c) {
    const invocation *in = c->in;
    rn_server_options *o = &c->options;
    uint64_t port = 0, threads = 0;
    RN_TRY(read_number(in, "port", 0, UINT16_MAX, &port));
    o->port = c->plan_only ? 0 : (uint16_t)port; // nobody is to come
    o->host = rn_settings_text(in->settings, "host");
    o->devices = device_targets(in);
    o->set_budget = set_budget;
    o->budget_self = c;
    o->no_fallback = !rn_settings_bool(in->settings, "fallback");
    RN_TRY(read_number(in, "threads", 0, UINT32_MAX, &threads));
    o->threads = (uint32_t)threads;
    o->tls_certificate = given(in, "tls-cert");
    o->tls_key = given(in, "tls-key");
    o->cors_origin = given(in, "cors");
    o->strict_model = rn_settings_bool(in->settings, "strict-model");
    o->embeddings = rn_settings_bool(in->settings, "embeddings");
    o->save_folder = given(in, "save");
    o->profile_folder = given(in, "profile-folder");
    o->prefix_cache = read_prefix_cache(in);
    RN_TRY(read_limits(in, &o->limits));
    RN_TRY(parse_time("drain", rn_settings_text(in->settings, "drain"), &c->drain_seconds));
    o->host_name_count = rn_settings_list(in->settings, "host-name", &o->host_names);
    RN_TRY(read_keys(c));
    return read_model(c);
}

// ---- loading ------------------------------------------------------------------------------------

// Into the log; where one is over its budget, the table with it.
static void hear_server_shares(void *self, const rn_rank_share *shares, uint32_t count) {
    (void)self;
    print_shares(stderr, shares, count);
}

static rn_status read_generator(server_command *c) {
    rn_generator_options *g = &c->generator;
    RN_TRY(read_text_options(c->in, &g->text));
    RN_TRY(read_count32(c->in, "parallel", 1024, &g->text.sequences));
    g->measure_rates = use_rates(c->in, c->options.threads);
    RN_TRY(begin_server_budget(c->in, &c->begun));
    g->plan.exact = rn_settings_bool(c->in->settings, "exact");
    RN_TRY(read_experts(c->in, &c->experts, &g->plan));
    g->session.cancel = &interrupt_flag;
    g->speculation = read_speculation(c->in);
    g->comm = c->comm;
    g->split = read_split(c->in);
    g->shared = hear_server_shares;
    g->planned_self = c;
    return RN_OK;
}

// What can be planned is planned, and within its bounds: from here on the reserve is there for the
// rest, too.
static rn_status lift_limit(const host_budget *budget) {
    return budget->planned_only ? RN_OK : rn_budget_set(RN_DEVICE_HOST, 0, budget->total_bytes);
}

// ---- planning only ------------------------------------------------------------------------------

static rn_status print_plan(const server_command *c, const rn_plan *plan) {
    const rn_text_options *text = &c->generator.text;
    if (c->in->json) return rn_plan_json(plan, rn_sink_file(stdout));
    printf("ration serve: %u answers at once, %s for requests, %s for itself\n", text->sequences,
           rn_size_format(c->options.limits.request_bytes).text,
           rn_size_format(rn_server_own_bytes(c->server)).text);
    return rn_plan_print(plan, rn_sink_file(stdout));
}

// The server is made as if it were to serve, so that what it holds beside the plan is the same to
// the byte; the first plan ends it before anything is loaded.
static void take_plan(void *self, const rn_plan *plan) {
    server_command *c = self;
    c->printed = print_plan(c, plan);
    atomic_store(&c->planned, true);
}

static rn_status end_planning(const server_command *c, rn_status s) {
    if (!atomic_load(&c->planned)) return s;
    return c->printed;
}

// The server's library, threads and sockets are there before the process is measured.
static rn_status serve(server_command *c) {
    RN_TRY(read_options(c));
    RN_TRY(rn_server_create(&c->options, &c->server));
    RN_TRY(read_generator(c));
    if (c->plan_only) {
        c->generator.planned = take_plan;
        c->generator.planned_self = c;
        c->generator.session.cancel = &c->planned;
    }
    rn_status s = rn_server_load(c->server, &c->generator);
    if (c->plan_only) return end_planning(c, s);
    if (s == RN_CANCELLED && interrupted) return RN_OK; // asked to end before it could serve
    RN_TRY(s);
    RN_TRY(lift_limit(&c->budget));
    return rn_server_run(c->server, &interrupt_flag, c->drain_seconds);
}

// Requests are small blocks from several threads: one heap for all of them, and what is large goes
// back to the system at once, so that resident memory follows the ledger.
static void keep_heap_small(void) {
    mallopt(M_ARENA_MAX, 1);
    mallopt(M_MMAP_THRESHOLD, 64 << 10);
    mallopt(M_TRIM_THRESHOLD, 256 << 10);
}

// Who comes with settings of the seed is told which of them do nothing.
static void tell_unused_variables(const invocation *in) {
    static const struct {
        const char *name, *why;
    } unused[] = {{"NEURON_CORES", "no target of --device is a Neuron device"},
                  {"WORKERS", "one engine batches all requests; --parallel says how many at once"}};
    bool neuron = strstr(device_targets(in), "neuron");
    for (size_t i = neuron; i < sizeof unused / sizeof *unused; i++) {
        const char *value = getenv(unused[i].name);
        if (value && *value)
            rn_log(RN_LOG_WARNING, "server", "%s is set and has no effect here: %s", unused[i].name,
                   unused[i].why);
    }
}

static rn_status run_server(const invocation *in, rn_comm *comm, bool plan_only) {
    keep_heap_small();
    server_command *c = calloc(1, sizeof *c); // a few paths: too large for the stack
    if (!c) return rn_fail(RN_NO_MEMORY, "no memory");
    c->in = in;
    c->comm = comm;
    c->plan_only = plan_only;
    rn_status s = serve(c);
    rn_error_info error = *rn_last_error();
    rn_server_destroy(c->server);
    if (s != RN_OK) s = rn_error_restore(&error);
    free_text(&c->chat_template);
    free_text(&c->key_file);
    free(c);
    return s;
}

static rn_status run(const invocation *in) {
    signal(SIGPIPE, SIG_IGN); // who reads the log may go away; the server stays
    tell_unused_variables(in);
    rn_comm *comm = NULL;
    RN_TRY(open_model_ranks(in, &comm));
    rn_status s = rn_comm_rank(comm) ? follow_model(in, comm) : run_server(in, comm, false);
    return comm ? close_ranks(comm, s) : s;
}

rn_status plan_server(const invocation *in) {
    return run_server(in, NULL, true);
}

// ---- the seed's variables -----------------------------------------------------------------------

static rn_status load_variables(invocation *in) {
    static const struct {
        const char *variable, *option;
    } names[] = {{"MODEL_NAME", "model"},
                 {"MAX_LENGTH", "max-tokens"},
                 {"BATCH_SIZE", "parallel"},
                 {"SEQUENCE_LENGTH", "ctx"},
                 {"COMPILE_SEQUENCE_LENGTH", "chunk"},
                 {"HOST", "host"},
                 {"PORT", "port"},
                 {"COMPILED_MODEL_PATH", "save"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i].variable);
        const char *option = names[i].option;
        if (!value || !*value) continue;
        RN_TRY(rn_settings_set(in->settings, rn_option_find((rn_str){option, strlen(option)}),
                               (rn_str){value, strlen(value)}, names[i].variable));
    }
    return RN_OK;
}

const command serve_command = {
    .takes_model = true,
    .name = "serve",
    .usage = "serve [MODEL...] [--port 8000] [--budget SIZE] [options]",
    .summary = "models behind HTTP, within a memory budget",
    .about =
        "MODEL is a Hugging Face folder (config.json and safetensors) or a GGUF file, or an image\n"
        "model (a diffusers folder, a single file), which answers /v1/images/generations; without\n"
        "one, the small story teller that is part of ration. Answers POST /generate,\n"
        "/v1/completions, /v1/chat/completions, /v1/responses (streaming, too), Ollama's\n"
        "/api/chat and /api/generate, /tokenize, /detokenize; with a model for embeddings (BERT "
        "and the like,\n"
        "or any with --embeddings) /v1/embeddings, /api/embed and /api/embeddings instead;\n"
        "GET /health, /metrics, /v1/models, /plan, /profile, /openapi.json, and a page at /.\n"
        "Of several models, requests choose one by its name; they share the budget, are loaded as\n"
        "they are asked for, and leave where there is no room for all.\n"
        "Whether it fits is known before anything is loaded; what a request can need is promised\n"
        "before it begins; what cannot be promised waits, or is refused with 429 (later) or 400\n"
        "(never, with the numbers). On a GPU the budget is the GPU's: --budget\n"
        "cuda:0=4GiB,host=16GiB names both. One line a stage goes to standard error. SIGTERM,\n"
        "SIGINT or SIGHUP ends what runs and then the server. MODEL_NAME, MAX_LENGTH,\n"
        "BATCH_SIZE, SEQUENCE_LENGTH, HOST, PORT and COMPILED_MODEL_PATH in the environment are "
        "heeded as\n"
        "--model, --max-tokens, --parallel, --ctx, --host, --port and --save, as are\n"
        "COMPILE_SEQUENCE_LENGTH (--chunk) and, for targets of neuron, NEURON_CORES; WORKERS has "
        "no\n"
        "effect, and the log says so. --json writes the log as JSON lines.",
    .example = "ration serve models/llama-1b --budget 4GiB --port 8000",
    .min_words = 0,
    .max_words = MAX_MODELS,
    .limits_memory = true,
    .load_variables = load_variables,
    .run = run,
};
