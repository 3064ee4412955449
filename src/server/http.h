// http.h — connections, read and answered by one thread, and the table of routes.
#ifndef RN_SERVER_HTTP_H
#define RN_SERVER_HTTP_H

#include <ration/serve.h>

typedef struct rn_http rn_http;

// Binds, listens, answers from now on. `server` must be complete but for its engine's model.
RN_MUST_USE rn_status rn_http_start(rn_server *server, rn_http **out);
// Takes no new connections; those that are there go on.
void rn_http_stop_accepting(rn_http *http);
// Waits until answers that are complete have gone out, so many seconds at most.
void rn_http_flush(rn_http *http, double seconds);
// Ends all connections. Jobs of theirs are cancelled first. NULL-safe.
void rn_http_destroy(rn_http *http);
uint16_t rn_http_port(const rn_http *http);
// What connections can take, at most: their buffers, the system's buffers for them, threads.
uint64_t rn_http_bytes(const rn_server_options *options);

#endif
