// server.h — a server's parts, and what the endpoints are handed.
//
//     server.c    life                 http*.c     connections, routes
//     request*.c  JSON to a request    job.c       a request under way
//     engine*.c   the generator        reply*.c    pieces to JSON and events
//     health.c, metrics.c, ...         endpoints that only look
#ifndef RN_SERVER_SERVER_H
#define RN_SERVER_SERVER_H

#include "base/buffer.h"
#include "server/engine.h"
#include "server/http.h"
#include "server/metrics.h"
#include "server/recording.h"

struct rn_server {
    rn_server_options options; // nothing left to default
    rn_request_memory memory;
    rn_metrics metrics;
    rn_engine *engine;       // the first that works: whoever names no model gets it
    rn_engine **engines;     // (engine_count), one a model
    rn_server_options *each; // (engine_count): what each is given
    uint32_t engine_count;
    rn_roster roster; // of several
    rn_http *http;
    rn_server_recording recording; // that /profile/start asked for
    _Atomic uint64_t told[16];     // a bit for each field's name that was warned of, by its hash
    int64_t started;               // seconds since 1970
    uint64_t started_ns;
};

// The engine that serves a name: a model's, or an adapter's; NULL: none does.
rn_engine *rn_server_find(rn_server *server, rn_str name);
// Where nobody does, and any name will do: one that makes what is asked for, the first if none.
rn_engine *rn_server_pick(rn_server *server, rn_request_kind kind);
// One that is loaded, the first if none is.
rn_engine *rn_server_loaded(rn_server *server);

// ---- endpoints that answer at once --------------------------------------------------------------

typedef struct rn_http_request {
    const char *method, *path; // "GET", "/health"
    rn_str body;
    rn_str query; // pairs "name=value", each of them terminated
} rn_http_request;
// A value of the query ("?format=html"), or NULL; holds while the request does.
const char *rn_http_query(const rn_http_request *request, const char *name);

typedef struct rn_http_answer {
    uint16_t status;      // 200 unless set
    const char *type;     // "application/json" unless set
    rn_buffer body;       // initialised; capped at 64 MiB, on the ledger
    rn_str borrowed;      // instead of body, where data is not NULL: lives as long as the process
    int file;             // instead of both, where >= 0: sent as it is and closed
    const char *download; // a file's name for browsers (Content-Disposition), or NULL
    const char *policy;   // a page's Content-Security-Policy; NULL: only what stands in it
    rn_problem problem;   // where http is not 0: the answer; its retry_seconds count in any case
} rn_http_answer;

// A failure that is no problem of the request becomes 500 (or 503) by its error.
typedef rn_status rn_handler(rn_server *server, const rn_http_request *request,
                             rn_http_answer *answer);

rn_handler rn_handle_live, rn_handle_ready, rn_handle_health, rn_handle_metrics;
rn_handler rn_handle_models, rn_handle_plan;
rn_handler rn_handle_tags, rn_handle_version, rn_handle_show;
rn_handler rn_handle_profile_start, rn_handle_profile_stop, rn_handle_profile;
rn_handler rn_handle_tokenize, rn_handle_detokenize;
rn_handler rn_handle_openapi, rn_handle_page;

// What a recording takes, and a bound for one that is looked at; part of the server's own bytes.
#define RN_PROFILE_VIEW_BYTES ((uint64_t)3 << 20)
// Ends a recording that /profile/start began, and removes its file where nobody named a folder.
void rn_profile_view_end(rn_server *server);

#endif
