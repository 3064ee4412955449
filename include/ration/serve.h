// serve.h — a model behind HTTP, within a budget.
//
//     rn_server *server;
//     RN_TRY(rn_server_create(&options, &server));  // listens; /health says "loading"
//     RN_TRY(rn_server_load(server, &generator));   // plan, ladder, weights, warm-up
//     RN_TRY(rn_server_run(server, &stop, 30));     // until stop is set, then ends what runs
//     rn_server_destroy(server);
//
// What it may ever need is planned before it serves: so many connections, so many bytes for all
// requests together, so many KV pages. A request that cannot be kept at once waits or is refused
// (429 with Retry-After); one that never can is refused with the numbers (400).
#ifndef RATION_SERVE_H
#define RATION_SERVE_H

#include <ration/diffuse.h>
#include <ration/generate.h>

RN_BEGIN_DECLS

typedef struct rn_server rn_server;

// 0 stands for the default that is named.
typedef struct rn_server_limits {
    uint32_t connections;   // at once; 2048
    uint32_t per_address;   // of them from one address, and requests under way of one key or
                            // address; three quarters of all. UINT32_MAX: no such limit
    uint32_t waiting;       // requests in the queue; 128
    uint64_t body_bytes;    // of one request; 1 MiB
    uint64_t request_bytes; // of all requests together: bodies, prompts, answers; 16 MiB
    uint32_t answer_tokens; // of one choice, at most; 1024
    uint32_t idle_seconds;  // a connection that neither sends nor takes anything, or a stream that
                            // is read so slowly that others wait for it; 60
    uint32_t wait_seconds;  // in the queue, then 503; 600
    uint32_t gap_ms;        // that a running answer waits for its next token while prompts are
                            // read; 500. UINT32_MAX: no such limit
} rn_server_limits;

// Whose prompts may share pages of the KV cache. Whoever shares sees it, by `cached_tokens` and by
// the time: a key could find out what another one has sent.
typedef enum rn_prefix_cache {
    RN_PREFIX_CACHE_KEY, // those of one key; without keys, all
    RN_PREFIX_CACHE_ALL,
    RN_PREFIX_CACHE_OFF,
} rn_prefix_cache;

// A model beside the first.
typedef struct rn_server_model {
    const char *path; // as rn_model_open
    const char *name; // NULL: the model's own name
} rn_server_model;

// Texts are borrowed while the server lives.
typedef struct rn_server_options {
    const char *model_path; // as rn_model_open, or as rn_diffusion_open: then pictures are served
    rn_model_options model;
    rn_diffusion_options image; // of a model that draws
    const char *model_name;     // what answers call it; NULL: the model's own name
    const char *chat_template;  // a template's text instead of the model's own, or NULL
    const char *devices;        // the ladder: "auto", "cpu", "cuda:0,cpu"; NULL: "auto"
    bool no_fallback;           // only the first target of the ladder
    uint32_t threads;           // of the CPU; 0: all

    const char *host;                      // an address to listen at; NULL: 127.0.0.1
    uint16_t port;                         // 0: any, see rn_server_port
    const char *tls_certificate, *tls_key; // files in PEM form; both or none
    const char *const *api_keys;           // (api_key_count); none: everybody may ask
    size_t api_key_count;
    const char *const *host_names; // (host_name_count); what a server that only this machine can
    size_t host_name_count;        // reach is called, beside addresses and localhost
    const char *cors_origin;       // "*" or an origin that browsers may ask from; NULL: none

    bool strict_model; // requests for another model than the one served and its adapters get 404;
                       // else they get the one served

    bool embeddings; // the model is to make embeddings; those that are for nothing else do in any
                     // case

    rn_server_limits limits;
    rn_prefix_cache prefix_cache;
    const char *save_folder;    // where what was compiled goes (the plan, as JSON); NULL: nowhere
    const char *profile_folder; // for recordings that /profile asks for; NULL: the system's
                                // folder for temporary files
    // NULL, or called for each target, in the thread that loads, before it is planned: sets plan
    // (budget_bytes, reserved_bytes, least_budget_bytes, with_reserve) and device_budget as
    // rn_server_load takes them. So a budget can depend on whether the device has its own memory.
    rn_status (*set_budget)(void *self, rn_device *device, rn_generator_options *generator);
    void *budget_self;
    // (more_model_count, at most 31); requests choose by `model`. All share the budget: they are
    // loaded as requests ask for them, and leave where there is no room for all. model,
    // chat_template and embeddings are for the first alone; limits.waiting is each one's own.
    const rn_server_model *more_models;
    size_t more_model_count;
    uint64_t reserved[4]; // zero
} rn_server_options;

// Binds and listens. RN_INVALID names the option; RN_IO: the address is taken; RN_NOT_FOUND: TLS is
// asked for and its library (GnuTLS) is not on this machine.
RN_API RN_MUST_USE rn_status rn_server_create(const rn_server_options *options, rn_server **out);
// Ends at once: what runs is cut off. NULL-safe.
RN_API void rn_server_destroy(rn_server *server);
RN_API uint16_t rn_server_port(const rn_server *server);

// What a server plans for where nobody says: rows of prompts in a run, tokens of a typical prompt.
enum { RN_SERVER_PROMPT_ROWS = 128, RN_SERVER_PROMPT_TOKENS = 512 };

// Opens the model, starts the ladder, runs a test step. Of `generator`: text, plan (budget_bytes,
// and reserved_bytes for what the caller holds beside; the server adds its own), device_budget,
// session.cancel and speculation; the rest is the server's. Logs a line for each stage.
// RN_OVER_BUDGET as rn_generator_create. After a failure it may be called again.
RN_API RN_MUST_USE rn_status rn_server_load(rn_server *server,
                                            const rn_generator_options *generator);
// Bytes that the server itself plans for: connections, requests, queue.
RN_API uint64_t rn_server_own_bytes(const rn_server *server);

// Serves until *stop; then accepts nothing new, ends what runs within drain_seconds and cuts off
// the rest. RN_DEVICE, RN_IO, ...: the last target of the ladder failed while serving.
RN_API RN_MUST_USE rn_status rn_server_run(rn_server *server, const rn_flag *stop,
                                           double drain_seconds);

RN_END_DECLS

#endif
