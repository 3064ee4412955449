// http_wire.c — a table of GnuTLS's functions, filled by a loop over its rows; its types are
// pointers to us, and its numbers are part of its interface since 3.0.
#include "server/http_wire.h"

#include "base/buffer.h"
#include "base/file.h"
#include "base/str.h"
#include "memory/account.h"

#include <dlfcn.h>
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#define FROM     RN_HOST_IO
#define PEM_MAX  ((size_t)1 << 20) // bytes of a PEM file
#define VERSIONS "NORMAL:-VERS-TLS1.0:-VERS-TLS1.1"

enum {
    AS_SERVER = 1 | 1 << 3 | 1 << 6, // GNUTLS_SERVER, _NONBLOCK, _NO_SIGNAL
    CERTIFICATE = 1,                 // GNUTLS_CRD_CERTIFICATE
    PEM = 1,                         // GNUTLS_X509_FMT_PEM
    SHUT_SENDING = 1,                // GNUTLS_SHUT_WR
    AGAIN = -28,
    INTERRUPTED = -52,
};

typedef struct datum {
    const void *data;
    unsigned bytes;
} datum;

struct rn_tls {
    void *library, *credentials, *priorities;
    int (*allocate_credentials)(void **credentials);
    void (*free_credentials)(void *credentials);
    int (*set_key)(void *credentials, const datum *certificate, const datum *key, int form);
    int (*priorities_open)(void **priorities, const char *text, const char **error);
    void (*priorities_close)(void *priorities);
    int (*session_open)(void **session, unsigned flags);
    void (*session_close)(void *session);
    int (*set_priorities)(void *session, void *priorities);
    int (*set_credentials)(void *session, int kind, void *credentials);
    void (*set_sockets)(void *session, int receive, int send);
    int (*shake_hands)(void *session);
    int (*direction)(void *session);
    ssize_t (*receive)(void *session, void *data, size_t bytes);
    ssize_t (*send)(void *session, const void *data, size_t bytes);
    int (*bye)(void *session, int how);
    int (*is_fatal)(int error);
    const char *(*say)(int error);
};

typedef struct row {
    const char *symbol;
    size_t offset; // of its field
} row;

#define ROW(symbol, field)                                                                         \
    { "gnutls_" symbol, offsetof(rn_tls, field) }
static const row rows[] = {
    ROW("certificate_allocate_credentials", allocate_credentials),
    ROW("certificate_free_credentials", free_credentials),
    ROW("certificate_set_x509_key_mem", set_key),
    ROW("priority_init", priorities_open),
    ROW("priority_deinit", priorities_close),
    ROW("init", session_open),
    ROW("deinit", session_close),
    ROW("priority_set", set_priorities),
    ROW("credentials_set", set_credentials),
    ROW("transport_set_int2", set_sockets),
    ROW("handshake", shake_hands),
    ROW("record_get_direction", direction),
    ROW("record_recv", receive),
    ROW("record_send", send),
    ROW("bye", bye),
    ROW("error_is_fatal", is_fatal),
    ROW("strerror", say),
};

// ---- the library --------------------------------------------------------------------------------

static rn_status find_functions(const char *name, rn_tls *tls) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        void *function = dlsym(tls->library, rows[i].symbol);
        if (!function)
            return rn_hint(rn_fail(RN_UNSUPPORTED, "%s has no %s", name, rows[i].symbol),
                           "GnuTLS 3.6 and later versions will do");
        memcpy((char *)tls + rows[i].offset, &function, sizeof function);
    }
    return RN_OK;
}

static rn_status load(const char *name, rn_tls *out) {
    *out = (rn_tls){.library = dlopen(name, RTLD_NOW | RTLD_LOCAL)};
    if (!out->library)
        return rn_hint(rn_fail(RN_NOT_FOUND, "no library for TLS: %s", dlerror()),
                       "HTTPS needs GnuTLS: the package libgnutls30 of Debian and Ubuntu, gnutls "
                       "elsewhere; or put a proxy in front");
    return find_functions(name, out);
}

rn_status rn_tls_try(const char *name) {
    rn_tls tls;
    return load(name, &tls);
}

static rn_status read_pem(const char *path, const char *what, rn_buffer *out) {
    rn_status s = rn_file_read_all(path, out);
    if (s == RN_OK) s = rn_buffer_append(out, "", 1); // a terminated string
    if (s != RN_OK) return rn_hint(s, "--tls-cert and --tls-key name files in PEM form");
    if (strstr(out->data, what)) return RN_OK;
    return rn_hint(rn_error_locate(rn_fail(RN_INVALID, "no '-----BEGIN ... %s-----' in it", what),
                                   path, RN_NO_OFFSET),
                   "--tls-cert and --tls-key name files in PEM form");
}

static rn_status fail(const rn_tls *tls, const char *what, int error) {
    return rn_fail(RN_INVALID, "%s: %s", what, tls->say(error));
}

static rn_status use_pair(rn_tls *tls, const rn_buffer *certificate, const rn_buffer *key) {
    int error = tls->allocate_credentials(&tls->credentials);
    if (error) return rn_fail(RN_NO_MEMORY, "no memory for a certificate");
    datum chain = {certificate->data, (unsigned)certificate->bytes - 1};
    datum secret = {key->data, (unsigned)key->bytes - 1};
    error = tls->set_key(tls->credentials, &chain, &secret, PEM);
    if (error < 0)
        return rn_hint(fail(tls, "the certificate and its key cannot be used", error),
                       "does the key belong to the certificate?");
    error = tls->priorities_open(&tls->priorities, VERSIONS, NULL);
    return error ? fail(tls, "TLS cannot be set up", error) : RN_OK;
}

rn_status rn_tls_open(const char *certificate, const char *key, rn_tls **out) {
    rn_buffer chain, secret;
    void *block = NULL;
    *out = NULL;
    rn_buffer_init(&chain, FROM, PEM_MAX);
    rn_buffer_init(&secret, FROM, PEM_MAX);
    RN_TRY(rn_alloc_zeroed(FROM, 1, sizeof(rn_tls), &block));
    rn_tls *tls = block;
    rn_status s = read_pem(certificate, "CERTIFICATE", &chain);
    if (s == RN_OK) s = read_pem(key, "PRIVATE KEY", &secret);
    if (s == RN_OK) s = load("libgnutls.so.30", tls);
    if (s == RN_OK) s = use_pair(tls, &chain, &secret);
    if (secret.data) explicit_bzero(secret.data, secret.bytes);
    rn_buffer_free(&chain);
    rn_buffer_free(&secret);
    if (s == RN_OK)
        *out = tls;
    else
        rn_tls_close(tls);
    return s;
}

// The library stays: it has cleared up what it keeps for the process only when that ends.
void rn_tls_close(rn_tls *tls) {
    if (!tls) return;
    if (tls->priorities) tls->priorities_close(tls->priorities);
    if (tls->credentials) tls->free_credentials(tls->credentials);
    rn_free(FROM, tls, sizeof *tls);
}

// ---- a connection -------------------------------------------------------------------------------

bool rn_wire_open(const rn_tls *tls, int socket, rn_wire *out) {
    *out = (rn_wire){.socket = socket, .tls = tls};
    if (!tls) return true;
    if (tls->session_open(&out->session, AS_SERVER) != 0) {
        out->session = NULL;
        return false;
    }
    tls->set_sockets(out->session, socket, socket);
    return tls->set_priorities(out->session, tls->priorities) == 0 &&
           tls->set_credentials(out->session, CERTIFICATE, tls->credentials) == 0;
}

void rn_wire_close(rn_wire *wire) {
    if (wire->session) wire->tls->session_close(wire->session);
    if (wire->socket >= 0) close(wire->socket);
    *wire = (rn_wire){.socket = -1};
}

static rn_wire_news judge(const rn_wire *wire, ssize_t result, rn_wire_news constraint) {
    if (!wire->session) return errno == EAGAIN || errno == EINTR ? constraint : RN_WIRE_END;
    if (result == AGAIN || result == INTERRUPTED)
        return wire->tls->direction(wire->session) ? RN_WIRE_OUT : RN_WIRE_IN;
    return wire->tls->is_fatal((int)result) ? RN_WIRE_END : constraint; // a warning: once more
}

rn_wire_news rn_wire_shake_hands(rn_wire *wire) {
    int result = wire->tls->shake_hands(wire->session);
    return result == 0 ? RN_WIRE_DONE : judge(wire, result, RN_WIRE_IN);
}

rn_wire_news rn_wire_receive(rn_wire *wire, void *to, size_t bytes, size_t *out_bytes) {
    ssize_t got = wire->session ? wire->tls->receive(wire->session, to, bytes)
                                : recv(wire->socket, to, bytes, MSG_DONTWAIT);
    *out_bytes = got > 0 ? (size_t)got : 0;
    if (got > 0) return RN_WIRE_DONE;
    return got == 0 ? RN_WIRE_END : judge(wire, got, RN_WIRE_IN);
}

rn_wire_news rn_wire_send(rn_wire *wire, const void *from, size_t bytes, size_t *out_bytes) {
    ssize_t sent = wire->session ? wire->tls->send(wire->session, from, bytes)
                                 : send(wire->socket, from, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    *out_bytes = sent > 0 ? (size_t)sent : 0;
    return sent >= 0 ? RN_WIRE_DONE : judge(wire, sent, RN_WIRE_OUT);
}

void rn_wire_finish(rn_wire *wire) {
    if (wire->session) (void)wire->tls->bye(wire->session, SHUT_SENDING);
    shutdown(wire->socket, SHUT_WR);
}
