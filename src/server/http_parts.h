// http_parts.h — what the files http*.c share.
//
//     http.c         life: socket, library, threads; connections come and go
//     http_frame.c   is this one request, and one only?          (before anything else)
//     http_routes.c  the table of routes                         (404, 405)
//     http_key.c     who may ask                                 (401)
//     http_request.c a request's way: checks, body, then         (400, 403, 413, 415, 429, 503)
//     http_answer.c  ... an answer at once
//     http_ask.c     ... or a job, whose connection sleeps while there is nothing to send
//     http_watch.c   the thread that looks after those who sleep, and those who dawdle
//
// A connection has at most one request at a time, so both are one record, and all records are there
// from the start. libmicrohttpd calls on its own thread; `wake` comes from the engine's.
//
// Locks, outermost first: http->lock, a job's. rn_engine_cancel is called without any.
#ifndef RN_SERVER_HTTP_PARTS_H
#define RN_SERVER_HTTP_PARTS_H

#include "server/mhd.h"
#include "server/reply.h"
#include "server/server.h"

// Of libmicrohttpd's memory for a connection: a request's head, then its body in pieces, then what
// is sent. Heads above RN_HTTP_HEAD_BYTES are refused while there is room to say so.
#define RN_HTTP_POOL_BYTES (12u << 10)
#define RN_HTTP_HEAD_BYTES (8u << 10)
// What a part of an answer is formed in.
#define RN_HTTP_PART_BYTES (4u << 10)
// Asked of the system for either direction of a connection; it takes twice as much.
#define RN_HTTP_SOCKET_BYTES (8u << 10)
// Of an answer that may lie there unread without being counted as under way: the short ones.
#define RN_HTTP_LEFT_BYTES 1024

// ---- routes -------------------------------------------------------------------------------------

typedef struct rn_route {
    const char *method, *path; // a path that ends in '*' is one that begins so
    rn_handler *handler;       // NULL: an ask
    rn_ask_kind ask;
    bool open;        // to those without a key, too
    bool needs_ready; // 503 before the model is loaded, and while it drains
} rn_route;

// All of them, for tests.
const rn_route *rn_routes(size_t *out_count);
// NULL: *out_problem is 404, or 405 and `allow` lists what would do ("GET, HEAD").
const rn_route *rn_route_find(const char *method, const char *path, char allow[64],
                              rn_problem *out_problem);

// ---- keys ---------------------------------------------------------------------------------------

#define RN_KEY_BYTES 512 // with the terminator; shorter ones are padded with zeros

typedef struct rn_keys {
    char (*keys)[RN_KEY_BYTES]; // (count)
    size_t count;
} rn_keys;

// RN_INVALID: an empty or a very long one.
RN_MUST_USE rn_status rn_keys_open(const char *const *keys, size_t count, rn_keys *out);
void rn_keys_close(rn_keys *keys);
// Whether `authorization` ("Bearer ...", or NULL) has one of the keys; which, in *out_index. Takes
// as long whatever is in it.
bool rn_keys_match(const rn_keys *keys, const char *authorization, size_t *out_index);

// ---- a connection and its request ---------------------------------------------------------------

typedef struct rn_client {
    rn_http *http;
    struct MHD_Connection *connection; // NULL: not in use
    struct rn_client *next_free;
    int socket;
    bool surplus;              // above the limit: refused as soon as it asks
    uint64_t address;          // hashed
    _Atomic uint64_t since_ns; // a request is awaited or received since then; 0: it is complete
    _Atomic bool unread;       // the last answer is still in the system's buffers: it is under way
    _Atomic bool asleep;       // suspended: libmicrohttpd leaves the socket alone until `wake`

    // The watcher's.
    bool pinned;        // the job must stay
    bool doomed;        // the client is gone: its job is to be cancelled
    bool cancelled;     // ... and has been
    bool may_probe;     // HTTP/1.1 without TLS, and nothing of the answer is sent yet
    uint64_t probed_ns; // half-closed: when it was last asked whether it is there

    // The request's; pointers, counts and flags are zero when there is none.
    bool close; // the connection ends with the answer
    const rn_route *route;
    uint64_t who;                 // asks, for fairness
    uint32_t key;                 // that it has shown, counted from 1; 0: none
    struct MHD_Response *refusal; // waits for the end of the body
    uint16_t refusal_status;
    uint64_t length; // of the body, as the head says; 0: it does not
    char *body;      // (body_capacity)
    size_t body_bytes, body_capacity;
    uint64_t room_bytes;   // taken for it
    uint64_t thrown_bytes; // of a body that is refused
    rn_buffer answer;      // of a handler, until it is sent; from `answers`
    rn_allocator answers;
    rn_job *job;
    rn_reply reply; // where job is not NULL
} rn_client;

struct rn_http {
    rn_server *server;
    const rn_mhd *mhd;
    struct MHD_Daemon *daemon;
    rn_keys keys;
    rn_buffer certificate, certificate_key;
    uint16_t port;
    bool is_local;            // only this machine can reach it
    uint32_t client_count;    // records
    uint32_t answers_at_once; // requests that may be under way
    _Atomic uint32_t open_requests;
    _Atomic bool closing; // no new connections; those that are there are closed after their answer

    pthread_mutex_t lock; // what follows, and of clients: socket, pinned; waking
    pthread_cond_t changed;
    rn_client *clients; // (client_count)
    uint32_t fresh;     // records never used before begin here
    uint32_t in_use;
    rn_client *free_clients;
    _Atomic bool ending; // every request is cut off

    struct rn_http_watch {
        pthread_t thread;
        bool started;
        int stop;              // an eventfd
        struct pollfd *polled; // (answers_at_once)
        rn_client **looked_at; // (answers_at_once)
        uint32_t most_in_use;  // connections, since memory was given back
    } watch;
};

// ---- is it one request --------------------------------------------------------------------------

typedef struct rn_framing {
    bool has_length, chunked, expects_continue;
    uint64_t length;
} rn_framing;

// False: *out_problem (400, 431, 501); the connection must be closed, because where the next
// request begins is anybody's guess.
bool rn_framing_read(const rn_http *http, struct MHD_Connection *connection, const char *version,
                     rn_framing *out, rn_problem *out_problem);

// ---- a request's way ----------------------------------------------------------------------------

// libmicrohttpd's MHD_AccessHandlerCallback and MHD_RequestCompletedCallback.
enum MHD_Result rn_http_request_go(void *http, struct MHD_Connection *connection, const char *path,
                                   const char *method, const char *version, const char *data,
                                   size_t *data_bytes, void **request);
void rn_http_request_end(void *http, struct MHD_Connection *connection, void **request,
                         enum MHD_RequestTerminationCode code);

// Whether the system has more than RN_HTTP_LEFT_BYTES that the client has not taken.
bool rn_http_is_unread(const rn_client *client);
// The last answer is no longer under way, read or not.
void rn_http_settle(rn_client *client);

const char *rn_http_header(const rn_client *client, const char *name); // or NULL
// Gives back the body and its share of the room.
void rn_http_free_body(rn_client *client);

// ---- answers ------------------------------------------------------------------------------------

// Adds what every answer has; `type` may be NULL.
void rn_http_dress(const rn_client *client, struct MHD_Response *response, const char *type);
// A problem's answer, counted as refused; NULL: no memory even for that. `allow` as of
// rn_route_find, or NULL.
struct MHD_Response *rn_http_refusal(const rn_client *client, const rn_problem *problem,
                                     const char *allow);
// Both queue an answer and return what libmicrohttpd is to be told.
enum MHD_Result rn_http_refuse(rn_client *client, const rn_problem *problem, const char *allow);
enum MHD_Result rn_http_send(rn_client *client, unsigned status, struct MHD_Response *response);
// Calls the route's handler.
enum MHD_Result rn_http_handle(rn_client *client, const char *method, const char *path);
// An answer to a browser's question whether it may ask.
enum MHD_Result rn_http_preflight(rn_client *client);

// ---- asks ---------------------------------------------------------------------------------------

// At first and after each wake.
enum MHD_Result rn_http_ask(rn_client *client);
// The request is over: its job is left.
void rn_http_ask_end(rn_client *client);
// Ends the job of a client that sleeps, which wakes it; called with http->lock, which is released
// meanwhile. Once is enough: later calls do nothing.
void rn_http_ask_cancel(rn_client *client);

// ---- the watcher --------------------------------------------------------------------------------

RN_MUST_USE rn_status rn_http_watch_start(rn_http *http);
// NULL-safe fields: also after a start that failed.
void rn_http_watch_stop(rn_http *http);

#endif
