// curl_load.c — see curl_load.h. Numbers of options are libcurl's ABI (curl/curl.h, 7.x and 8.x).
#include "support/curl_load.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum {
    OPT_WRITEDATA = 10001,
    OPT_URL = 10002,
    OPT_RANGE = 10007,
    OPT_ERRORBUFFER = 10010,
    OPT_WRITEFUNCTION = 20011,
    OPT_LOW_SPEED_LIMIT = 19,
    OPT_LOW_SPEED_TIME = 20,
    OPT_USERAGENT = 10018,
    OPT_HTTPHEADER = 10023,
    OPT_NOPROGRESS = 43,
    OPT_FOLLOWLOCATION = 52,
    OPT_MAXREDIRS = 68,
    OPT_CONNECTTIMEOUT = 78,
    OPT_NOSIGNAL = 99,
    OPT_PROTOCOLS_STR = 10318,
    OPT_XFERINFODATA = 10057,
    OPT_XFERINFOFUNCTION = 20219,
    INFO_RESPONSE_CODE = 0x200002,
    ERROR_BYTES = 256,
    DONE = 0,
    WRITE_ERROR = 23,
    ABORTED = 42
};

typedef struct curl_library {
    void *(*init)(void);
    int (*setopt)(void *easy, int option, ...);
    int (*perform)(void *easy);
    int (*getinfo)(void *easy, int info, ...);
    void (*cleanup)(void *easy);
    const char *(*strerror)(int code);
    void *(*append)(void *list, const char *text);
    void (*free_all)(void *list);
    bool is_there;
} curl_library;

static curl_library curl;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void) {
    static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4", "libcurl.so"};
    void *library = NULL;
    for (size_t i = 0; !library && i < sizeof names / sizeof *names; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!library) return;
    const struct {
        const char *name;
        void *place;
    } functions[] = {{"curl_easy_init", &curl.init},       {"curl_easy_setopt", &curl.setopt},
                     {"curl_easy_perform", &curl.perform}, {"curl_easy_getinfo", &curl.getinfo},
                     {"curl_easy_cleanup", &curl.cleanup}, {"curl_easy_strerror", &curl.strerror},
                     {"curl_slist_append", &curl.append},  {"curl_slist_free_all", &curl.free_all}};
    curl.is_there = true;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *found = dlsym(library, functions[i].name);
        memcpy(functions[i].place, &found, sizeof found);
        curl.is_there &= found != NULL;
    }
}

typedef struct transfer {
    rn_http_get *get;
    void *easy;
    bool checked; // the status has been looked at
    bool refused; // by `put`
} transfer;

// An error's page is not the file.
static size_t take(char *data, size_t size, size_t count, void *self) {
    transfer *t = self;
    if (!t->checked) {
        curl.getinfo(t->easy, INFO_RESPONSE_CODE, &t->get->status);
        t->get->from_start = t->get->from && t->get->status == 200;
        t->checked = true;
    }
    if (t->get->status != 200 && t->get->status != 206) return size * count;
    t->refused = !t->get->put(t->get->self, data, size * count);
    return t->refused ? 0 : size * count;
}

static int look(void *self, int64_t total, int64_t now, int64_t up_total, int64_t up) {
    const transfer *t = self;
    (void)total, (void)now, (void)up_total, (void)up;
    return t->get->cancel && atomic_load(t->get->cancel);
}

static void set_options(transfer *t, void *headers, char *error) {
    char range[32];
    curl.setopt(t->easy, OPT_URL, t->get->url);
    curl.setopt(t->easy, OPT_ERRORBUFFER, error);
    curl.setopt(t->easy, OPT_WRITEFUNCTION, take);
    curl.setopt(t->easy, OPT_WRITEDATA, t);
    curl.setopt(t->easy, OPT_XFERINFOFUNCTION, look);
    curl.setopt(t->easy, OPT_XFERINFODATA, t);
    curl.setopt(t->easy, OPT_NOPROGRESS, 0L);
    curl.setopt(t->easy, OPT_NOSIGNAL, 1L);
    curl.setopt(t->easy, OPT_FOLLOWLOCATION, 1L);
    curl.setopt(t->easy, OPT_MAXREDIRS, 8L);
    curl.setopt(t->easy, OPT_CONNECTTIMEOUT, 30L);
    curl.setopt(t->easy, OPT_LOW_SPEED_LIMIT, 1L);
    curl.setopt(t->easy, OPT_LOW_SPEED_TIME, 60L);
    curl.setopt(t->easy, OPT_PROTOCOLS_STR, "http,https");
    curl.setopt(t->easy, OPT_USERAGENT, "ration");
    if (headers) curl.setopt(t->easy, OPT_HTTPHEADER, headers);
    snprintf(range, sizeof range, "%llu-", (unsigned long long)t->get->from);
    if (t->get->from) curl.setopt(t->easy, OPT_RANGE, range);
}

static rn_status explain(const transfer *t, int code, const char *error) {
    if (code == DONE) return RN_OK;
    if (t->refused && code == WRITE_ERROR) return RN_OK; // `put` knows why
    if (code == ABORTED) return rn_fail(RN_CANCELLED, "the download was ended");
    return rn_hint(
        rn_fail(RN_IO, "%.200s: %.200s", t->get->url, error[0] ? error : curl.strerror(code)),
        "is there a network? what was downloaded stays, and the next try goes on there");
}

rn_status rn_http_fetch(rn_http_get *get) {
    char error[ERROR_BYTES] = "", header[600];
    transfer t = {.get = get};
    void *headers = NULL;
    pthread_once(&once, load);
    get->status = 0;
    get->from_start = false;
    if (!curl.is_there)
        return rn_hint(rn_fail(RN_NOT_FOUND, "downloading needs libcurl, which is not here"),
                       "install libcurl4, or download the files by other means into a folder of "
                       "$RATION_MODELS");
    t.easy = curl.init();
    if (!t.easy) return rn_fail(RN_NO_MEMORY, "libcurl has no memory");
    if (get->token && get->token[0] && strlen(get->token) < 512) {
        snprintf(header, sizeof header, "Authorization: Bearer %s", get->token);
        headers = curl.append(NULL, header);
    }
    set_options(&t, headers, error);
    int code = curl.perform(t.easy);
    if (!t.checked) curl.getinfo(t.easy, INFO_RESPONSE_CODE, &get->status);
    rn_status s = explain(&t, code, error);
    curl.free_all(headers);
    curl.cleanup(t.easy);
    return s;
}
