// http_wire.h — the bytes of a connection: plain, or by TLS. GnuTLS is found at run time; only a
// server with a certificate asks for it.
#ifndef RN_SERVER_HTTP_WIRE_H
#define RN_SERVER_HTTP_WIRE_H

#include <ration/status.h>

#include <stdbool.h>
#include <stddef.h>

typedef struct rn_tls rn_tls;

typedef struct rn_wire {
    int socket; // does not block
    const rn_tls *tls;
    void *session; // of TLS
} rn_wire;

// A certificate chain and its key, in PEM form. RN_NOT_FOUND: GnuTLS is not there (what to
// install), or a file; RN_UNSUPPORTED: it lacks a function; RN_INVALID: not PEM, or not a pair.
RN_MUST_USE rn_status rn_tls_open(const char *certificate, const char *key, rn_tls **out);
void rn_tls_close(rn_tls *tls); // NULL-safe
// Whether the library of this name has all that is needed; for tests.
RN_MUST_USE rn_status rn_tls_try(const char *name);

// Takes the socket over. False: there is no memory for it.
bool rn_wire_open(const rn_tls *tls, int socket, rn_wire *out);
void rn_wire_close(rn_wire *wire);

typedef enum rn_wire_news {
    RN_WIRE_DONE, // *out_bytes came or went
    RN_WIRE_IN,   // not now: when bytes have come
    RN_WIRE_OUT,  // ... can go
    RN_WIRE_END,  // the other side sends no more, or it broke
} rn_wire_news;
rn_wire_news rn_wire_shake_hands(rn_wire *wire);
rn_wire_news rn_wire_receive(rn_wire *wire, void *to, size_t bytes, size_t *out_bytes);
// What did not go must be sent again from the same place.
rn_wire_news rn_wire_send(rn_wire *wire, const void *from, size_t bytes, size_t *out_bytes);
// Nothing more is sent.
void rn_wire_finish(rn_wire *wire);

#endif
