// profile_view.c — /profile: starting, stopping and fetching a recording of the server's memory.
//
// A recording may be turned into another form here, but not at the price of what requests were
// promised: reading it takes memory, so it is done only where the plan leaves that much free, and
// only for files so small that connections do not wait long. The form goes to a file without a
// name, and from there to the client. For anything larger there is the file itself.
#include "server/look.h"

#include "base/file.h"
#include "base/json.h"
#include "profile/timeline.h"
#include "server/request_reader.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)
enum { LIMIT_MIB = 64, VIEWED_MIB = 16 };

// The process has one recorder.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static rn_status refuse(rn_http_answer *answer, uint16_t http, const char *code,
                        const char *message) {
    (void)rn_problem_set(&answer->problem, http, code, "", "%s", message);
    return RN_OK;
}

// ---- start --------------------------------------------------------------------------------------

static bool read_fields(rn_request_reader *reader, bool *ring) {
    bool more, seen = false, good = rn_request_open(reader);
    for (rn_str key; good && rn_request_next_key(reader, &key, &more); seen = true) {
        if (!more) return rn_request_close(reader);
        if (!rn_str_equal(key, RN_STR("ring"))) return rn_request_unknown(reader, key);
        if (seen) return rn_request_twice(reader, "ring");
        good = rn_request_next(reader) && rn_request_flag(reader, "ring", ring);
    }
    return false;
}

// {"ring": false}, or nothing.
static bool read_options(rn_str body, bool *ring, rn_problem *problem) {
    rn_request_reader reader;
    rn_arena memory;
    *ring = true;
    if (!body.bytes) return true;
    bool good =
        rn_request_reader_begin(&reader, body, &memory, problem) && read_fields(&reader, ring);
    rn_arena_free_all(&memory);
    return good;
}

static rn_status write_started(rn_http_answer *answer, bool ring) {
    rn_json json;
    rn_json_begin(&json, rn_buffer_sink(&answer->body), false);
    rn_json_object(&json, NULL);
    rn_json_bool(&json, "recording", true);
    rn_json_u64(&json, "limit_bytes", LIMIT_MIB * MIB);
    rn_json_bool(&json, "ring", ring);
    rn_json_end(&json);
    return rn_json_finish(&json);
}

static rn_status refuse_second(rn_server *server, rn_http_answer *answer) {
    return refuse(answer, 409, "recording",
                  rn_server_recording_is_open(&server->recording)
                      ? "a recording is under way; POST /profile/stop ends it"
                      : "the process is being recorded otherwise (--profile, SIGUSR2)");
}

static rn_status start(rn_server *server, bool ring, rn_http_answer *answer) {
    if (rn_profile_is_on()) return refuse_second(server, answer);
    rn_status s =
        rn_server_recording_start(&server->recording, &(rn_server_recording_options){
                                                          .folder = server->options.profile_folder,
                                                          .limit_bytes = LIMIT_MIB * MIB,
                                                          .ring = ring,
                                                          .threads = server->options.threads,
                                                      });
    // A signal may have come in between.
    if (s != RN_OK && rn_profile_is_on()) return refuse_second(server, answer);
    return s == RN_OK ? write_started(answer, ring) : s;
}

rn_status rn_handle_profile_start(rn_server *server, const rn_http_request *request,
                                  rn_http_answer *answer) {
    bool ring;
    if (!read_options(request->body, &ring, &answer->problem)) return RN_OK;
    pthread_mutex_lock(&lock);
    rn_status s = start(server, ring, answer);
    pthread_mutex_unlock(&lock);
    return s;
}

// ---- stop ---------------------------------------------------------------------------------------

static rn_status write_stopped(rn_http_answer *answer, bool complete) {
    rn_profile_facts facts;
    rn_json json;
    rn_profile_get_facts(&facts);
    rn_json_begin(&json, rn_buffer_sink(&answer->body), false);
    rn_json_object(&json, NULL);
    rn_json_bool(&json, "recording", false);
    rn_json_bool(&json, "complete", complete);
    rn_json_u64(&json, "events", facts.event_count);
    rn_json_u64(&json, "dropped", facts.dropped_count);
    rn_json_u64(&json, "bytes", facts.file_bytes);
    rn_json_string(&json, "download", "/profile");
    rn_json_end(&json);
    return rn_json_finish(&json);
}

// A disk that was full ends a recording, but what it has can be read.
static rn_status stop(rn_server *server, rn_http_answer *answer) {
    if (!rn_server_recording_is_open(&server->recording))
        return refuse(answer, 409, "not_recording", "no recording of /profile/start is under way");
    return write_stopped(answer, rn_server_recording_stop(&server->recording) == RN_OK);
}

rn_status rn_handle_profile_stop(rn_server *server, const rn_http_request *request,
                                 rn_http_answer *answer) {
    (void)request;
    pthread_mutex_lock(&lock);
    rn_status s = stop(server, answer);
    pthread_mutex_unlock(&lock);
    return s;
}

// ---- fetch --------------------------------------------------------------------------------------

typedef struct form {
    const char *name, *type, *file; // of ?format=, of the answer, of a download (NULL: shown)
    rn_export as;
} form;

static const form forms[] = {
    {"trace", "application/octet-stream", "ration.rntrace", RN_EXPORT_COUNT}, // as it is
    {"html", "text/html; charset=utf-8", NULL, RN_EXPORT_HTML},
    {"json", "application/json", "memory_profile.json", RN_EXPORT_JSON},
    {"chrome", "application/json", "ration.trace.json", RN_EXPORT_CHROME},
    {"torch", "application/octet-stream", "ration.pickle", RN_EXPORT_TORCH},
    {"csv", "text/csv; charset=utf-8", "ration.csv", RN_EXPORT_CSV},
    {"prometheus", "text/plain; version=0.0.4; charset=utf-8", NULL, RN_EXPORT_PROMETHEUS},
    {"pprof", "application/octet-stream", "ration.pb", RN_EXPORT_PPROF},
};

static const form *find_form(const char *name) {
    if (!name) return &forms[0];
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (strcmp(name, forms[i].name) == 0) return &forms[i];
    return NULL;
}

// What the plan does not need; without a budget, what the system has.
static uint64_t free_bytes(rn_server *server) {
    rn_engine_facts facts;
    rn_process_info process = {0};
    rn_engine_get_facts(server->engine, &facts);
    uint64_t planned = facts.predicted_bytes, budget = facts.budget_bytes;
    if (budget) return (budget > planned ? budget - planned : 0) + RN_PROFILE_VIEW_BYTES;
    (void)!rn_process_read(&process);
    return rn_process_free_bytes(&process);
}

// Bytes held for each of the file: 3.3 and 3.8 were measured, with recordings of text models. The
// hard limit of the budget stands behind this estimate.
enum { VIEW_FACTOR = 6 };

static rn_status refuse_view(rn_http_answer *answer, const char *why) {
    (void)rn_problem_set(&answer->problem, 503, "over_budget", "format",
                         "%s; download the recording (GET /profile) and use ration profile html, "
                         "or ration profile export",
                         why);
    return RN_OK;
}

static bool may_view(rn_server *server, uint64_t bytes, rn_http_answer *answer) {
    char why[160];
    uint64_t need = bytes * VIEW_FACTOR, left = free_bytes(server);
    if (bytes <= VIEWED_MIB * MIB && need <= left) return true;
    if (bytes > VIEWED_MIB * MIB)
        snprintf(why, sizeof why, "the recording has %s, and what is converted here %s at most",
                 rn_size_format(bytes).text, rn_size_format(VIEWED_MIB * MIB).text);
    else
        snprintf(why, sizeof why, "converting the recording may take %s, and the budget leaves %s",
                 rn_size_format(need).text, rn_size_format(left).text);
    (void)!refuse_view(answer, why);
    return false;
}

typedef struct spool {
    int fd;
    uint64_t bytes;
} spool;

static rn_status put(void *self, const char *text, size_t bytes) {
    spool *s = self;
    RN_TRY(rn_file_write_at(s->fd, "a recording's other form", s->bytes, text, bytes));
    s->bytes += bytes;
    return RN_OK;
}

// Beside the recording, and without a name from the start.
static rn_status open_spool(const char *recording, int *out_fd) {
    char path[4096 + 8];
    snprintf(path, sizeof path, "%s.XXXXXX", recording);
    *out_fd = mkostemp(path, O_CLOEXEC);
    if (*out_fd < 0) return rn_file_fail("make a file beside", recording);
    (void)unlink(path);
    return RN_OK;
}

// A page shows the name of the file that it was made from.
static void hide_folder(rn_timeline *timeline) {
    const char *slash = strrchr(timeline->path, '/');
    if (slash) memmove(timeline->path, slash + 1, strlen(slash));
}

static rn_status export(const char *path, rn_export as, int *out_fd) {
    rn_timeline *timeline = NULL;
    RN_TRY(rn_timeline_open(path, &timeline));
    hide_folder(timeline);
    spool out = {.fd = -1};
    rn_status s = open_spool(path, &out.fd);
    if (s == RN_OK) s = rn_timeline_export(timeline, as, (rn_sink){&out, put});
    rn_timeline_destroy(timeline);
    if (s == RN_OK)
        *out_fd = out.fd;
    else if (out.fd >= 0)
        close(out.fd);
    return s;
}

static rn_status view(rn_server *server, const form *f, uint64_t bytes, rn_http_answer *answer) {
    if (!may_view(server, bytes, answer)) return RN_OK;
    rn_status s = export(server->recording.path, f->as, &answer->file);
    if (s == RN_OVER_BUDGET || s == RN_NO_MEMORY)
        return refuse_view(answer, "there is no memory left to convert the recording");
    return s;
}

static rn_status fetch(rn_server *server, const form *f, rn_http_answer *answer) {
    int fd = -1;
    uint64_t bytes = 0;
    if (rn_server_recording_is_open(&server->recording))
        return refuse(answer, 409, "recording", "it is being recorded; POST /profile/stop first");
    if (!server->recording.path[0])
        return refuse(answer, 404, "no_recording",
                      "nothing was recorded; POST /profile/start, later /profile/stop");
    RN_TRY(rn_file_open(server->recording.path, &fd, &bytes));
    answer->type = f->type;
    answer->download = f->file;
    if (f->as == RN_EXPORT_COUNT) {
        answer->file = fd;
        return RN_OK;
    }
    close(fd);
    return view(server, f, bytes, answer);
}

rn_status rn_handle_profile(rn_server *server, const rn_http_request *request,
                            rn_http_answer *answer) {
    const form *f = find_form(rn_http_query(request, "format"));
    if (!f) {
        (void)rn_problem_set(&answer->problem, 400, "invalid_value", "format",
                             "format is trace, html, json, chrome, torch, csv or prometheus");
        return RN_OK;
    }
    pthread_mutex_lock(&lock);
    rn_status s = fetch(server, f, answer);
    pthread_mutex_unlock(&lock);
    return s;
}

void rn_profile_view_end(rn_server *server) {
    pthread_mutex_lock(&lock);
    rn_server_recording_end(&server->recording);
    pthread_mutex_unlock(&lock);
}
