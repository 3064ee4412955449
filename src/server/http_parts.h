// http_parts.h — what the files http*.c share.
//
//     http.c         life: socket, records, bytes, the thread's beginning and end
//     http_loop.c    the thread: connections come, wait, are woken and go
//     http_head.c    is this one request, and one only?          (400, 414, 431, 501, 505)
//     http_routes.c  the table of routes                         (404, 405)
//     http_key.c     who may ask                                 (401)
//     http_place.c   whose connections stay when there are many  (429, 503)
//     http_request.c a request's way: checks, body, then         (403, 413, 415, 429, 503)
//     http_answer.c  ... an answer at once
//     http_job.c     ... or a job, whose connection sleeps while there is nothing to send
//     http_send.c    answers on their way
//     http_wire.c    bytes in and out, by TLS where it is asked for
//     http_block.c   the memory that they lie in meanwhile
//
// One thread does all of it; `wake` comes from the engine's. A connection has at most one request
// at a time, so both are one record, and all records are there from the start. Every state of a
// connection is one function that does what can be done now and says what it waits for.
#ifndef RN_SERVER_HTTP_PARTS_H
#define RN_SERVER_HTTP_PARTS_H

#include "server/http_block.h"
#include "server/http_head.h"
#include "server/http_wire.h"
#include "server/reply.h"
#include "server/server.h"

// What comes in: a head, and what was sent behind it. Only while there is something.
#define RN_HTTP_INPUT_BYTES (12u << 10)
// What a part of an answer is formed in, with its head or the frame of a chunk.
#define RN_HTTP_PART_BYTES   (4u << 10)
#define RN_HTTP_OUTPUT_BYTES (RN_HTTP_PART_BYTES + (2u << 10))
// Asked of the system for either direction of a connection; it takes twice as much.
#define RN_HTTP_SOCKET_BYTES (8u << 10)
// Of an answer that may lie there unread without being counted as under way: the short ones.
#define RN_HTTP_LEFT_BYTES 1024
// GnuTLS's state for one connection, measured (see tests/server/http_memory.py).
#define RN_TLS_BYTES (24u << 10)
// Connections above the limit: they are answered where they ask for a probe, and else told.
#define RN_HTTP_SURPLUS 32

// ---- routes -------------------------------------------------------------------------------------

typedef struct rn_route {
    const char *method, *path; // a path that ends in '*' is one that begins so
    rn_handler *handler;       // NULL: a request for tokens
    rn_request_kind kind;
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
// Whether the value of Authorization ("Bearer ...", or empty) has one of the keys; which, in
// *out_index. Takes as long whatever is in it.
bool rn_keys_match(const rn_keys *keys, rn_str value, size_t *out_index);

// ---- a connection and its request ---------------------------------------------------------------

// What a connection does next.
typedef enum rn_client_state {
    RN_CLIENT_FREE,      // nobody's record
    RN_CLIENT_HANDSHAKE, // of TLS
    RN_CLIENT_HEAD,      // waits for a request, or the rest of its head
    RN_CLIENT_BODY,      // ... of its body
    RN_CLIENT_ANSWER,    // an answer is being made
    RN_CLIENT_SEND,      // ... and sent
    RN_CLIENT_DISCARD,   // it was refused; what is left of its body is thrown away
    RN_CLIENT_LINGER,    // all is said; until the other side has closed, too
    RN_CLIENT_GONE,      // closed; a wake is still to come
} rn_client_state;

// What it waits for.
typedef enum rn_step {
    RN_STEP_ON, // nothing: there is more to do
    RN_STEP_IN,
    RN_STEP_OUT,
    RN_STEP_SLEEP, // until it is woken
    RN_STEP_CLOSE, // to be closed
} rn_step;

// Where an answer's body comes from.
typedef struct rn_http_source {
    rn_str memory;  // what is left of it
    int file;       // -1: none; closed at the end
    uint64_t bytes; // left of the file
    bool reply;     // of the job's
    bool chunked;
} rn_http_source;

typedef struct rn_client {
    rn_http *http;
    struct rn_client *next_free, *next_woken;
    rn_client_state state;
    uint32_t events; // of epoll, asked for
    rn_wire wire;
    bool surplus;       // above a limit
    uint64_t address;   // hashed
    uint64_t since_ns;  // a request is awaited or received since then
    uint64_t active_ns; // bytes came or went

    bool has_more;      // to do, after the others
    bool asleep;        // `wake` follows
    bool woken;         // under http->lock
    bool half_closed;   // while it slept the other side stopped sending, or is gone
    bool may_probe;     // HTTP/1.1 without TLS, and nothing of the answer is sent yet
    uint64_t probed_ns; // when it was last asked whether it is there

    char *in; // (RN_HTTP_INPUT_BYTES), or NULL
    size_t in_bytes, scanned;

    // The request's; zero when there is none.
    size_t head_bytes; // of `in`; its texts hold until the end
    const char *method, *path;
    rn_str query;
    bool is_http10, is_head;
    bool close; // the connection ends with the answer
    bool chunked, body_ended, expects_continue;
    const rn_route *route;
    uint64_t who;    // asks, for fairness
    uint32_t key;    // that it has shown, counted from 1; 0: none
    bool owed;       // all of it is there, and its answer is not out
    bool counted;    // as under way
    bool unread;     // ... still, because the last answer lies in the system's buffers
    uint64_t length; // of the body, as the head says; 0: it does not
    uint64_t left;   // of it
    rn_chunks chunks;
    char *body; // (body_capacity)
    size_t body_bytes, body_capacity;
    uint64_t memory_bytes; // taken for it
    uint64_t thrown_bytes; // of a body that is refused
    rn_buffer answer;      // of a handler, until it is sent; from `answers`
    rn_allocator answers;
    rn_engine *engine; // of the model that the request is for
    rn_job *job;
    rn_reply reply; // where job is not NULL
    char *out;      // (RN_HTTP_OUTPUT_BYTES), or NULL
    size_t out_bytes, sent;
    rn_http_source source;
} rn_client;

struct rn_http {
    rn_server *server;
    rn_keys keys;
    rn_tls *tls; // NULL: plain
    int listening, epoll, bell;
    uint16_t port;
    bool is_local;            // only this machine can reach it
    bool has_more;            // one of the clients has
    bool paused;              // no new connections until the next look: descriptors are short
    uint32_t client_count;    // records
    uint32_t answers_at_once; // requests that may be under way
    uint32_t per_address, per_client; // connections of one, and requests under way
    pthread_t thread;
    bool started;

    rn_http_blocks inputs, outputs;
    rn_client *clients;           // (client_count)
    uint32_t fresh;               // records never used before begin here
    uint32_t in_use, most_in_use; // since memory was given back
    uint32_t regular, surplus;    // connections within the limits, and above
    uint32_t open_requests;
    rn_client *free_clients;

    _Atomic uint32_t owed; // whole requests whose answers are not sent
    _Atomic bool closing;  // no new connections; those that are there are closed after their answer
    _Atomic bool ending;   // every request is cut off, then the thread ends

    pthread_mutex_t lock; // of what follows
    rn_client *woken;
};

// ---- http_loop.c --------------------------------------------------------------------------------

void *rn_http_main(void *http);
// Does all that can be done now.
void rn_http_advance(rn_client *client);
// Closes the connection and gives the record back, at once or after the wake that is still to come.
void rn_http_close(rn_client *client);
// Rings for the thread. Any thread.
void rn_http_ring(rn_http *http);

// ---- http_place.c -------------------------------------------------------------------------------

// A connection comes: within the limits, or one of the surplus; where there are too many of those,
// the one that has been silent longest is closed. False: there is no place at all.
bool rn_http_place_enter(rn_client *client);
void rn_http_place_leave(rn_client *client);
// A request that may be answered takes the place of a connection that waits for its client. False:
// all have something to do (*out_problem: 429, 503).
bool rn_http_place_claim(rn_client *client, rn_problem *out_problem);
// One that waits is closed to make room. False: there is none.
bool rn_http_place_free(rn_http *http);
// Whether another request may be under way, of all and of this client. False: *out_problem.
bool rn_http_place_has_room(const rn_client *client, rn_problem *out_problem);
// It is under way, until its answer is read. It is no longer: read or not.
void rn_http_place_count(rn_client *client);
void rn_http_place_settle(rn_client *client);
// Whether the system has more than RN_HTTP_LEFT_BYTES that the client has not taken.
bool rn_http_is_unread(const rn_client *client);

// ---- http_request.c -----------------------------------------------------------------------------

rn_step rn_http_read_head(rn_client *client);
rn_step rn_http_read_body(rn_client *client); // or throws it away
// Its answer is out, or it broke off: nothing of the request is left.
void rn_http_request_end(rn_client *client);
// Gives back the body and its share of the request memory.
void rn_http_free_body(rn_client *client);

// ---- http_answer.c ------------------------------------------------------------------------------

// The head of an answer while it is written.
typedef struct rn_head_text {
    size_t bytes;
    char text[1536]; // more than the longest
} rn_head_text;

// Begins with what every answer has; `type` may be NULL.
void rn_head_begin(const rn_client *client, unsigned status, const char *type, rn_head_text *out);
void rn_head_add(rn_head_text *head, const char *name, const char *value);
void rn_head_add_number(rn_head_text *head, const char *name, uint64_t value);

// Says so at once, and counts it; takes no memory. What is left of the body is thrown away as it
// comes. `allow` as of rn_route_find, or NULL.
rn_step rn_http_refuse(rn_client *client, const rn_problem *problem, const char *allow);
// Calls the route's handler.
rn_step rn_http_handle(rn_client *client);
// An answer to a browser's question whether it may ask.
rn_step rn_http_preflight(rn_client *client);

// ---- http_send.c --------------------------------------------------------------------------------

// Takes over source.file. A length of UINT64_MAX: it is not known before the end.
rn_step rn_http_send_begin(rn_client *client, rn_head_text *head, rn_http_source source,
                           uint64_t length);
rn_step rn_http_send(rn_client *client);
// The other side is told that nothing more comes.
rn_step rn_http_linger_begin(rn_client *client);
rn_step rn_http_linger(rn_client *client);

// ---- http_job.c ---------------------------------------------------------------------------------

// At first and after each wake.
rn_step rn_http_job(rn_client *client);
// There is nothing to read: sleeps. False: there is by now.
bool rn_http_job_sleep(rn_client *client);
// The request is over: its job is left.
void rn_http_job_end(rn_client *client);

#endif
