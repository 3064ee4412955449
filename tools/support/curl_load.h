// curl_load.h — libcurl's easy interface, loaded when it is first needed.
#ifndef RATION_SUPPORT_CURL_LOAD_H
#define RATION_SUPPORT_CURL_LOAD_H

#include <ration/status.h>
#include <ration/stop.h>

typedef struct rn_http_get {
    const char *url;
    const char *token; // of the hub, or NULL; libcurl sends it to the first host only
    uint64_t from;     // the byte to begin with; 0: the first
    const rn_flag *cancel;
    // What comes; false ends it. `length`: of the whole resource, 0 where nobody said.
    bool (*put)(void *self, const void *data, size_t bytes);
    void *self;
    long status;     // out: 200, 206, 404, ...
    bool from_start; // out: the server sent all of it although `from` was asked for
} rn_http_get;

// RN_NOT_FOUND: no libcurl here. RN_IO: no connection, or it ended early. RN_CANCELLED. Other
// answers than 2xx are RN_OK: their body goes nowhere, see `status`.
RN_MUST_USE rn_status rn_http_fetch(rn_http_get *get);

#endif
