// profiling.c — recording while a command runs: because of --profile, of the configuration
// ([[backend]] enable_memory_profiling), or of SIGUSR2.
//
// A signal's handler can do next to nothing, so it posts a semaphore, and a thread that waits for
// it begins or ends a recording. Everything else happens before that thread is there, and after it.
#include "command.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MAX_PATH_BYTES = 4096, STACK_BYTES = 256 << 10 };

static sem_t asked; // once for each SIGUSR2
static struct {
    const invocation *in;
    pthread_t watcher;
    bool has_watcher;
    atomic_bool done;
    unsigned begun;   // recordings so far
    bool open;        // one was begun and not stopped; it may have ended by itself (a full disk)
    bool leaves_json; // the configuration asked
} state;

// ---- names ----------------------------------------------------------------------------

// "run.rntrace", then "run-2.rntrace": no recording overwrites an earlier one of this program.
static void number_name(const char *name, unsigned number, char out[MAX_PATH_BYTES]) {
    const char *slash = strrchr(name, '/'), *dot = strrchr(slash ? slash : name, '.');
    int stem = dot ? (int)(dot - name) : (int)strlen(name);
    snprintf(out, MAX_PATH_BYTES, "%.*s-%u%s", stem, name, number, dot ? dot : "");
}

static bool is_no(const char *text) {
    static const char *const words[] = {"", "false", "no", "off", "0"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(text, words[i]) == 0) return true;
    return false;
}

// The file that was named, or one by the time: that one is new, whatever it takes.
static void choose_name(const invocation *in, char out[MAX_PATH_BYTES]) {
    char name[MAX_PATH_BYTES];
    const char *given = rn_settings_text(in->settings, "profile");
    bool named = !is_no(given) && !rn_settings_bool(in->settings, "profile");
    unsigned number = named ? state.begun : 1;
    if (named)
        snprintf(name, sizeof name, "%s", given);
    else
        default_profile_name("ration", ".rntrace", name);
    snprintf(out, MAX_PATH_BYTES, "%s", name);
    if (named && number > 1) number_name(name, number, out);
    while (!named && access(out, F_OK) == 0)
        number_name(name, ++number, out);
}

// "run model.gguf": no flags, for a prompt is nobody's business.
static void describe(const invocation *in, char out[256]) {
    int bytes = snprintf(out, 256, "%s", in->command->name);
    for (size_t i = 0; i < in->word_count && bytes < 256; i++)
        bytes += snprintf(out + bytes, 256 - (size_t)bytes, " %s", in->words[i]);
}

// ---- beginning and ending -------------------------------------------------------------

static rn_status start(const invocation *in) {
    char path[MAX_PATH_BYTES], what[256];
    double seconds = rn_settings_number(in->settings, "profile-interval");
    state.begun++;
    choose_name(in, path);
    describe(in, what);
    rn_profile_options options = {
        .path = path,
        .command = what,
        .limit_bytes = rn_settings_size(in->settings, "profile-limit"),
        .keep_newest = rn_settings_bool(in->settings, "profile-ring"),
        .snapshot_seconds = seconds > 0 ? seconds : -1,
    };
    RN_TRY(rn_profile_start(&options));
    state.open = true;
    return RN_OK;
}

static void warn(const char *what) {
    fprintf(stderr, "ration: warning: %s: %s\n", what, rn_last_error()->message);
    if (rn_last_error()->hint[0]) fprintf(stderr, "  hint: %s\n", rn_last_error()->hint);
}

static void write_json(const char *trace) {
    char path[MAX_PATH_BYTES];
    rn_timeline *timeline = NULL;
    default_profile_name("memory_profile", ".json", path);
    rn_status s = rn_timeline_open(trace, &timeline);
    if (s == RN_OK) s = write_export(timeline, RN_EXPORT_JSON, path);
    rn_timeline_destroy(timeline);
    if (s != RN_OK)
        warn("no JSON profile");
    else if (!rn_settings_bool(state.in->settings, "quiet"))
        fprintf(stderr, "profile: %s\n", path);
}

static void stop(const invocation *in) {
    rn_profile_facts facts;
    bool quiet = rn_settings_bool(in->settings, "quiet");
    rn_status s = rn_profile_stop();
    state.open = false;
    rn_profile_get_facts(&facts);
    if (s != RN_OK) warn("the recording is not complete");
    if (!quiet)
        fprintf(stderr, "profile: %s (%llu events, %s); ration profile html %s -o page.html\n",
                facts.path, (unsigned long long)facts.event_count,
                rn_size_format(facts.file_bytes).text, facts.path);
    if (state.leaves_json) write_json(facts.path);
}

// ---- SIGUSR2 --------------------------------------------------------------------------

static void on_signal(int number) {
    int error = errno;
    (void)number;
    sem_post(&asked);
    errno = error;
}

void catch_profile_signal(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    if (sem_init(&asked, 0, 0) == 0) sigaction(SIGUSR2, &action, NULL);
}

static void *watch(void *self) {
    const invocation *in = self;
    for (;;) {
        while (sem_wait(&asked) != 0)
            continue;
        if (atomic_load(&state.done)) return NULL;
        if (state.open)
            stop(in);
        else if (start(in) != RN_OK)
            warn("nothing is recorded");
    }
}

// Without a watcher, SIGUSR2 does nothing.
static void start_watcher(const invocation *in) {
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) != 0) return;
    if (pthread_attr_setstacksize(&attributes, STACK_BYTES) == 0)
        state.has_watcher =
            pthread_create(&state.watcher, &attributes, watch, (void *)(uintptr_t)in) == 0;
    pthread_attr_destroy(&attributes);
}

// ---- for main.c -----------------------------------------------------------------------

// Looking at recordings and settings is recorded by a flag only: RATION_PROFILE would overwrite
// what is being looked at.
static bool is_watched(const invocation *in) {
    return in->command != &config_command && in->command != &profile_command;
}

static bool is_wanted(const invocation *in) {
    bool flag = strcmp(rn_settings_origin(in->settings, "profile"), "--profile") == 0;
    return !is_no(rn_settings_text(in->settings, "profile")) && (flag || is_watched(in));
}

rn_status begin_profiling(const invocation *in) {
    bool seed = rn_settings_bool(in->settings, "backend-enable-memory-profiling");
    state.in = in;
    state.leaves_json = seed && is_watched(in) && in->command != &inspect_command;
    if (is_wanted(in) || state.leaves_json) RN_TRY(start(in));
    if (is_watched(in)) start_watcher(in);
    return RN_OK;
}

void end_profiling(const invocation *in) {
    rn_error_info error = *rn_last_error();
    if (state.has_watcher) {
        atomic_store(&state.done, true);
        sem_post(&asked);
        pthread_join(state.watcher, NULL);
        state.has_watcher = false;
    }
    if (state.open) stop(in);
    (void)rn_error_restore(&error);
}

// Rings of threads that have said nothing yet, and names and tables of a session.
uint64_t profiling_bytes(void) {
    enum { MORE_RINGS = 4 };
    if (!rn_profile_is_on()) return 0;
    return rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_PROFILER).now_bytes +
           MORE_RINGS * ((uint64_t)256 << 10) + ((uint64_t)1 << 20);
}
