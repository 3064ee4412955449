// http_routes.c — one table: who answers what.
#include "server/http_parts.h"

#include <stdio.h>
#include <string.h>

#define GET(path, handler)                                                                         \
    { "GET", path, handler, .open = false }
#define POST(path, handler)                                                                        \
    { "POST", path, handler, .open = false }
#define ASK(path, kind)                                                                            \
    { "POST", path, NULL, kind, .needs_ready = true }

static const rn_route routes[] = {
    {"GET", "/", rn_handle_page, .open = true},
    {"GET", "/page.css", rn_handle_page, .open = true},
    {"GET", "/page.js", rn_handle_page, .open = true},
    {"GET", "/health/live", rn_handle_live, .open = true},
    {"GET", "/health/ready", rn_handle_ready, .open = true},
    GET("/health", rn_handle_health),
    GET("/metrics", rn_handle_metrics),
    GET("/models", rn_handle_models),
    GET("/v1/models", rn_handle_models),
    GET("/v1/models/*", rn_handle_models),
    GET("/plan", rn_handle_plan),
    GET("/profile", rn_handle_profile),
    GET("/openapi.json", rn_handle_openapi),
    ASK("/generate", RN_REQUEST_GENERATE),
    ASK("/v1/completions", RN_REQUEST_COMPLETION),
    ASK("/v1/chat/completions", RN_REQUEST_CHAT),
    ASK("/v1/responses", RN_REQUEST_RESPONSE),
    ASK("/v1/embeddings", RN_REQUEST_EMBED),
    ASK("/v1/rerank", RN_REQUEST_RERANK),
    ASK("/rerank", RN_REQUEST_RERANK), // and as llama-server has it
    ASK("/v1/reranking", RN_REQUEST_RERANK),
    ASK("/reranking", RN_REQUEST_RERANK),
    ASK("/v1/images/generations", RN_REQUEST_IMAGE),
    ASK("/api/chat", RN_REQUEST_OLLAMA_CHAT),
    ASK("/api/generate", RN_REQUEST_OLLAMA_GENERATE),
    ASK("/api/embed", RN_REQUEST_OLLAMA_EMBED),
    ASK("/api/embeddings", RN_REQUEST_OLLAMA_EMBEDDINGS),
    GET("/api/tags", rn_handle_tags),
    GET("/api/ps", rn_handle_tags),
    GET("/api/version", rn_handle_version),
    POST("/api/show", rn_handle_show),
    {"POST", "/tokenize", rn_handle_tokenize, .needs_ready = true},
    {"POST", "/detokenize", rn_handle_detokenize, .needs_ready = true},
    POST("/profile/start", rn_handle_profile_start),
    POST("/profile/stop", rn_handle_profile_stop),
};
enum { ROUTES = sizeof routes / sizeof *routes };

const rn_route *rn_routes(size_t *out_count) {
    *out_count = ROUTES;
    return routes;
}

static bool is_path(const rn_route *route, const char *path) {
    size_t bytes = strlen(route->path);
    if (route->path[bytes - 1] == '*') return strncmp(route->path, path, bytes - 1) == 0;
    return strcmp(route->path, path) == 0;
}

static bool is_method(const rn_route *route, const char *method) {
    return strcmp(route->method, method) == 0 ||
           (strcmp(method, "HEAD") == 0 && strcmp(route->method, "GET") == 0);
}

static void add_method(char allow[64], const char *method) {
    size_t bytes = strlen(allow);
    snprintf(allow + bytes, 64 - bytes, "%s%s%s", bytes ? ", " : "", method,
             strcmp(method, "GET") == 0 ? ", HEAD" : "");
}

const rn_route *rn_route_find(const char *method, const char *path, char allow[64],
                              rn_problem *out_problem) {
    allow[0] = 0;
    for (int i = 0; i < ROUTES; i++) {
        if (!is_path(&routes[i], path)) continue;
        if (is_method(&routes[i], method)) return &routes[i];
        add_method(allow, routes[i].method);
    }
    if (allow[0])
        rn_problem_set(out_problem, 405, "method_not_allowed", "", "this path takes %s", allow);
    else
        rn_problem_set(out_problem, 404, "not_found", "",
                       "no such path; /openapi.json lists those that there are");
    return NULL;
}
