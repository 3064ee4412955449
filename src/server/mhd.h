// mhd.h — libmicrohttpd, found at run time: the library works without it, and only a server asks
// for it. One row of mhd.def is one function.
#ifndef RN_SERVER_MHD_H
#define RN_SERVER_MHD_H

#include <ration/status.h>

#include <microhttpd.h>

typedef struct rn_mhd {
    void *library;
#define RN_MHD(name) __typeof__(MHD_##name) *name;
#include "server/mhd.def"
#undef RN_MHD
} rn_mhd;

// Loads it at the first call; constant from then on. RN_NOT_FOUND with what to install.
RN_MUST_USE rn_status rn_mhd_get(const rn_mhd **out);
// From a library of this name, for tests. RN_UNSUPPORTED names the function that it lacks.
RN_MUST_USE rn_status rn_mhd_load(const char *name, rn_mhd *out);
void rn_mhd_unload(rn_mhd *mhd);

#endif
