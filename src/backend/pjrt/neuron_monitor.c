// neuron_monitor.c — the memory of Neuron's cores as neuron-monitor has it: a child process that
// writes a line of JSON every few seconds.
//
//     {"neuron_runtime_data": [{"pid": 7, "report": {"memory_used": {... "usage_breakdown": {
//         "neuroncore_memory_usage": {"0": {"tensors": 4096, "constants": 0, ...}, "1": ...}}}}}]}
//
// Its lines are another program's: of bounded length, read as a stream, and what is no such line is
// passed over. When this process ends, the child's next line has no reader, and it ends, too.
#include "backend/pjrt/neuron.h"

#include "io/json_read.h"
#include "memory/account.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LINE_BYTES = 256 << 10 };

extern char **environ;

struct rn_neuron_monitor {
    char cores[64];
    pid_t child;
    int pipe;
    pthread_t thread;
    pthread_mutex_t lock;
    bool known; // under lock, as `newest`
    rn_device_usage newest;
    char line[LINE_BYTES];
};

// ---- a line -------------------------------------------------------------------------------------

// The categories of one core, behind its '{'.
static rn_status read_core(rn_json_reader *reader, bool named, rn_device_usage *out) {
    for (;;) {
        rn_json_item item;
        RN_TRY(rn_json_next(reader, &item));
        if (item.kind == RN_JSON_OBJECT_END) return RN_OK;
        char name[32];
        uint64_t bytes;
        snprintf(name, sizeof name, "%.*s", RN_STR_ARG(item.text));
        rn_str_clean(name);
        RN_TRY(rn_json_expect(reader, RN_JSON_NUMBER, &item));
        RN_TRY(rn_json_u64_of(&item, &bytes));
        if (named) rn_device_usage_add(out, name, bytes);
    }
}

// {"0": {...}, "1": {...}}
static rn_status read_cores(rn_json_reader *reader, const char *cores, rn_device_usage *out) {
    RN_TRY(rn_json_expect(reader, RN_JSON_OBJECT, NULL));
    for (;;) {
        rn_json_item item;
        RN_TRY(rn_json_next(reader, &item));
        if (item.kind == RN_JSON_OBJECT_END) return RN_OK;
        uint32_t core = 0;
        for (size_t i = 0; i < item.text.bytes; i++) {
            char digit = item.text.data[i];
            if (digit < '0' || digit > '9' || core > 4096)
                return rn_fail(RN_CORRUPT, "a core's number");
            core = core * 10 + (uint32_t)(digit - '0');
        }
        RN_TRY(rn_json_expect(reader, RN_JSON_OBJECT, NULL));
        RN_TRY(read_core(reader, rn_neuron_names(cores, core), out));
    }
}

static rn_status read_all(rn_json_reader *reader, const char *cores, rn_device_usage *out,
                          bool *out_any) {
    for (;;) {
        rn_json_item item;
        RN_TRY(rn_json_next(reader, &item));
        if (item.kind == RN_JSON_END) return RN_OK;
        if (item.kind != RN_JSON_KEY || !rn_str_equal(item.text, RN_STR("neuroncore_memory_usage")))
            continue;
        RN_TRY(read_cores(reader, cores, out));
        *out_any = true;
    }
}

bool rn_neuron_read_line(const char *cores, rn_str line, rn_device_usage *out) {
    rn_json_reader reader;
    bool any = false;
    *out = (rn_device_usage){.source = "neuron-monitor"};
    rn_json_reader_init(&reader, line, RN_HOST_OTHER);
    rn_status s = read_all(&reader, cores, out, &any);
    rn_json_reader_free(&reader);
    return s == RN_OK && any;
}

// ---- the child ----------------------------------------------------------------------------------

static void take_line(rn_neuron_monitor *m, size_t bytes) {
    rn_device_usage usage;
    if (!rn_neuron_read_line(m->cores, (rn_str){m->line, bytes}, &usage)) return;
    pthread_mutex_lock(&m->lock);
    m->newest = usage;
    m->known = true;
    pthread_mutex_unlock(&m->lock);
}

// Until the child ends. A line that is too long is passed over to its end.
static void *follow(void *self) {
    rn_neuron_monitor *m = self;
    size_t used = 0;
    bool skips = false;
    for (;;) {
        ssize_t got = read(m->pipe, m->line + used, LINE_BYTES - used);
        if (got <= 0) return NULL;
        size_t end = used + (size_t)got;
        for (char *newline; (newline = memchr(m->line, '\n', end));) {
            size_t bytes = (size_t)(newline - m->line);
            if (!skips) take_line(m, bytes);
            skips = false;
            end -= bytes + 1;
            memmove(m->line, newline + 1, end);
        }
        used = end;
        if (used == LINE_BYTES) {
            skips = true;
            used = 0;
        }
    }
}

// Its lines come through out_pipe; what else it says goes nowhere.
static bool spawn(pid_t *out_child, int *out_pipe) {
    const char *told = getenv("RATION_NEURON_MONITOR");
    char name[512];
    char *arguments[] = {name, NULL};
    int ends[2];
    posix_spawn_file_actions_t actions;
    snprintf(name, sizeof name, "%s", told && told[0] ? told : "neuron-monitor");
    if (pipe2(ends, O_CLOEXEC) != 0) return false;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    bool started = posix_spawnp(out_child, name, &actions, NULL, arguments, environ) == 0;
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (!started) close(ends[0]);
    *out_pipe = ends[0];
    return started;
}

static void end_child(pid_t child) {
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

rn_neuron_monitor *rn_neuron_monitor_start(const char *cores) {
    void *block = NULL;
    if (rn_alloc_zeroed(RN_HOST_OTHER, 1, sizeof(rn_neuron_monitor), &block) != RN_OK) return NULL;
    rn_neuron_monitor *m = block;
    snprintf(m->cores, sizeof m->cores, "%s", cores);
    pthread_mutex_init(&m->lock, NULL);
    bool started = spawn(&m->child, &m->pipe);
    if (started && pthread_create(&m->thread, NULL, follow, m) == 0) return m;
    if (started) {
        end_child(m->child);
        close(m->pipe);
    }
    pthread_mutex_destroy(&m->lock);
    rn_free(RN_HOST_OTHER, m, sizeof *m);
    return NULL;
}

void rn_neuron_monitor_stop(rn_neuron_monitor *m) {
    if (!m) return;
    end_child(m->child); // which ends the thread
    pthread_join(m->thread, NULL);
    close(m->pipe);
    pthread_mutex_destroy(&m->lock);
    rn_free(RN_HOST_OTHER, m, sizeof *m);
}

bool rn_neuron_monitor_read(rn_neuron_monitor *m, rn_device_usage *out) {
    pthread_mutex_lock(&m->lock);
    bool known = m->known;
    if (known) *out = m->newest;
    pthread_mutex_unlock(&m->lock);
    return known;
}
