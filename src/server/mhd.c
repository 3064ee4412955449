// mhd.c — the table is filled by a loop over its rows.
#include "server/mhd.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

typedef struct row {
    const char *symbol;
    size_t offset; // of its field
} row;

static const row rows[] = {
#define RN_MHD(name) {"MHD_" #name, offsetof(rn_mhd, name)},
#include "server/mhd.def"
#undef RN_MHD
};

static rn_status find_functions(const char *name, rn_mhd *mhd) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        void *function = dlsym(mhd->library, rows[i].symbol);
        if (!function)
            return rn_hint(rn_fail(RN_UNSUPPORTED, "%s has no %s", name, rows[i].symbol),
                           "libmicrohttpd 0.9.71 and later 0.9 and 1.0 versions will do");
        memcpy((char *)mhd + rows[i].offset, &function, sizeof function);
    }
    return RN_OK;
}

rn_status rn_mhd_load(const char *name, rn_mhd *out) {
    *out = (rn_mhd){.library = dlopen(name, RTLD_NOW | RTLD_LOCAL)};
    if (!out->library)
        return rn_hint(rn_fail(RN_NOT_FOUND, "no HTTP library: %s", dlerror()),
                       "a server needs libmicrohttpd: the package libmicrohttpd12 of Debian and "
                       "Ubuntu, libmicrohttpd elsewhere");
    rn_status status = find_functions(name, out);
    if (status != RN_OK) rn_mhd_unload(out);
    return status;
}

void rn_mhd_unload(rn_mhd *mhd) {
    if (mhd->library) dlclose(mhd->library);
    *mhd = (rn_mhd){0};
}

// The name with its version first: the plain one may be of another series.
static rn_status load_any(rn_mhd *mhd) {
    rn_status status = rn_mhd_load("libmicrohttpd.so.12", mhd);
    if (status != RN_NOT_FOUND) return status;
    return rn_mhd_load("libmicrohttpd.so", mhd);
}

rn_status rn_mhd_get(const rn_mhd **out) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static rn_mhd mhd; // under lock until it is there, then constant
    pthread_mutex_lock(&lock);
    rn_status status = mhd.library ? RN_OK : load_any(&mhd);
    pthread_mutex_unlock(&lock);
    *out = &mhd;
    return status;
}
