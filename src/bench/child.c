// child.c — see child.h. Between fork and exec only what is safe there: system calls, no memory is
// taken, and what can fail was done before.
#include "bench/child.h"

#include "base/clock.h"
#include "base/file.h"
#include "memory/account.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

// ---- a cgroup -----------------------------------------------------------------------------------

// Where this process's group is: the line "0::PATH", or of v1 that with the memory controller.
static bool find_group(bool v2, char *out, size_t bytes) {
    char text[4096], *at = text;
    int fd = open("/proc/self/cgroup", O_RDONLY | O_CLOEXEC);
    ssize_t count = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    if (count <= 0) return false;
    text[count] = 0;
    for (char *line; (line = strsep(&at, "\n")) && *line;) {
        char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL;
        if (!path) continue;
        *path++ = 0;
        if (v2 ? strcmp(line, "0:") != 0 : strcmp(names + 1, "memory") != 0) continue;
        snprintf(out, bytes, "%s%s", v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory",
                 strcmp(path, "/") == 0 ? "" : path);
        return true;
    }
    return false;
}

static bool write_group(const char *group, const char *file, const char *text) {
    char path[600];
    snprintf(path, sizeof path, "%s/%s", group, file);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0) close(fd);
    return done;
}

static bool make_group(bool v2, uint64_t limit_bytes, rn_child *c) {
    static _Atomic unsigned number;
    char own[400], limit[32];
    if (!find_group(v2, own, sizeof own)) return false;
    snprintf(c->group, sizeof c->group, "%s/ration-bench-%d-%u", own, (int)getpid(), number++);
    snprintf(limit, sizeof limit, "%llu", (unsigned long long)limit_bytes);
    c->group_v2 = v2;
    bool made = mkdir(c->group, 0755) == 0;
    if (made && write_group(c->group, v2 ? "memory.max" : "memory.limit_in_bytes", limit)) {
        if (v2) write_group(c->group, "memory.swap.max", "0");
        return true;
    }
    if (made) rmdir(c->group);
    c->group[0] = 0;
    return false;
}

// How often the limit killed a process: "oom_kill N".
static bool was_over_limit(const rn_child *c) {
    char path[600], text[1024];
    snprintf(path, sizeof path, "%s/%s", c->group,
             c->group_v2 ? "memory.events" : "memory.oom_control");
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t count = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    if (count <= 0) return false;
    text[count] = 0;
    const char *at = strstr(text, "oom_kill ");
    return at && strtoul(at + 9, NULL, 10) > 0;
}

// ---- starting -----------------------------------------------------------------------------------

// What the child needs, made before the fork.
typedef struct birth {
    char path[4096];
    char **environment; // (environment_count)
    size_t environment_count;
    const char *const *command;
    int record, log, report; // its ends; report: errno of a failing exec
    int group;               // of its cgroup: cgroup.procs; -1: none
    bool bound;
    cpu_set_t cores;
    rlim_t data_limit; // 0: none
} birth;

// As execvp finds it.
static rn_status find_program(const char *name, char *out, size_t bytes) {
    const char *rest = strchr(name, '/') ? NULL : getenv("PATH");
    snprintf(out, bytes, "%s", name);
    while (rest && *rest) {
        size_t length = strcspn(rest, ":");
        snprintf(out, bytes, "%.*s/%s", (int)length, rest, name);
        if (access(out, X_OK) == 0) return RN_OK;
        rest += length + (rest[length] == ':');
    }
    if (strchr(name, '/') && access(name, X_OK) == 0) return RN_OK;
    return rn_fail(RN_NOT_FOUND, "there is no program '%s'", name);
}

// The environment, with `variable` in the place of one of its name.
static rn_status make_environment(const char *variable, birth *b) {
    size_t count = 0, at = 0, name = variable ? strcspn(variable, "=") + 1 : 0;
    while (environ[count])
        count++;
    b->environment_count = count + 2;
    RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, count + 2, sizeof *b->environment,
                           (void **)&b->environment));
    for (size_t i = 0; i < count; i++)
        if (!variable || strncmp(environ[i], variable, name) != 0)
            b->environment[at++] = environ[i];
    if (variable) b->environment[at] = (char *)variable;
    return RN_OK;
}

// The last ones of those that this process may use: the first are where others usually are.
static bool choose_cores(uint32_t count, cpu_set_t *out) {
    cpu_set_t all;
    CPU_ZERO(out);
    if (count == 0 || sched_getaffinity(0, sizeof all, &all) != 0) return false;
    for (int i = CPU_SETSIZE - 1; i >= 0 && count > 0; i--)
        if (CPU_ISSET(i, &all)) {
            CPU_SET(i, out);
            count--;
        }
    return CPU_COUNT(out) > 0;
}

static _Noreturn void become(const birth *b) {
    sigset_t none;
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (b->group >= 0 && write(b->group, "0", 1) != 1) _exit(127);
    if (b->bound) sched_setaffinity(0, sizeof b->cores, &b->cores);
    if (b->data_limit) setrlimit(RLIMIT_DATA, &(struct rlimit){b->data_limit, b->data_limit});
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    for (int i = 1; i < NSIG; i++)
        signal(i, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    int zero = open("/dev/null", O_RDONLY);
    dup2(zero, 0);
    dup2(b->log, 1);
    dup2(b->log, 2);
    dup2(b->record, RN_CHILD_RECORD_FD);
    execve(b->path, (char *const *)b->command, b->environment);
    int error = errno;
    (void)!write(b->report, &error, sizeof error);
    _exit(127);
}

// Ends away from the descriptors that the child is given, closed by exec.
static bool make_pipe(int out[2]) {
    int pair[2];
    if (pipe2(pair, O_CLOEXEC) != 0) return false;
    for (int i = 0; i < 2; i++) {
        out[i] = fcntl(pair[i], F_DUPFD_CLOEXEC, 10);
        close(pair[i]);
    }
    return out[0] >= 0 && out[1] >= 0;
}

static void close_one(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

static rn_status fork_child(birth *b, rn_child *c) {
    int record[2] = {-1, -1}, log[2] = {-1, -1}, report[2] = {-1, -1}, error = 0;
    bool piped = make_pipe(record) && make_pipe(log) && make_pipe(report);
    b->record = record[1];
    b->log = log[1];
    b->report = report[1];
    c->begin_ns = rn_clock_ns();
    c->id = piped ? fork() : -1;
    if (c->id == 0) become(b);
    error = c->id < 0 ? errno : 0;
    close_one(&record[1]);
    close_one(&log[1]);
    close_one(&report[1]);
    if (c->id > 0) {
        setpgid(c->id, c->id); // whoever of both comes first
        // Ends at once where the exec worked: that closes it.
        if (read(report[0], &error, sizeof error) == sizeof error)
            while (waitpid(c->id, NULL, 0) < 0 && errno == EINTR)
                continue;
    }
    close_one(&report[0]);
    c->record_fd = record[0];
    c->log_fd = log[0];
    if (error == 0) {
        fcntl(c->record_fd, F_SETFL, O_NONBLOCK);
        fcntl(c->log_fd, F_SETFL, O_NONBLOCK);
        fcntl(c->record_fd, F_SETPIPE_SZ, 1 << 20); // the worker waits less; a refusal is no harm
        return RN_OK;
    }
    close_one(&c->record_fd);
    close_one(&c->log_fd);
    return rn_fail(RN_IO, "%s cannot be started: %s", b->path, strerror(error));
}

rn_status rn_child_start(const rn_child_options *options, rn_child *out) {
    birth b = {.command = options->command, .group = -1};
    *out = (rn_child){.record_fd = -1, .log_fd = -1};
    RN_TRY(find_program(options->command[0], b.path, sizeof b.path));
    RN_TRY(make_environment(options->variable, &b));
    b.bound = choose_cores(options->cores, &b.cores);
    if (options->limit_bytes) {
        if (make_group(true, options->limit_bytes, out) ||
            make_group(false, options->limit_bytes, out)) {
            char path[600];
            snprintf(path, sizeof path, "%s/cgroup.procs", out->group);
            b.group = open(path, O_WRONLY | O_CLOEXEC);
        }
        if (b.group < 0) b.data_limit = (rlim_t)options->limit_bytes;
    }
    rn_status s = fork_child(&b, out);
    close_one(&b.group);
    if (s != RN_OK && out->group[0]) rmdir(out->group);
    rn_free(RN_HOST_OTHER, b.environment, b.environment_count * sizeof *b.environment);
    return s;
}

// ---- ending -------------------------------------------------------------------------------------

bool rn_child_has_ended(const rn_child *c) {
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)c->id, &info, WEXITED | WNOWAIT | WNOHANG) == 0 && info.si_pid != 0;
}

void rn_child_finish(rn_child *c, bool kill_it, rn_child_end *out) {
    struct rusage usage = {0};
    int status = 0;
    *out = (rn_child_end){.exit_code = -1};
    if (kill_it) kill(-c->id, SIGKILL);
    siginfo_t info;
    while (waitid(P_PID, (id_t)c->id, &info, WEXITED | WNOWAIT) < 0 && errno == EINTR)
        continue;
    out->seconds = (double)(rn_clock_ns() - c->begin_ns) * 1e-9;
    kill(-c->id, SIGKILL); // what it started and left behind; its number is not yet another's
    while (wait4(c->id, &status, 0, &usage) < 0 && errno == EINTR)
        continue;
    if (WIFSIGNALED(status)) out->signal = WTERMSIG(status);
    if (WIFEXITED(status)) out->exit_code = WEXITSTATUS(status);
    out->resident_peak_bytes = (uint64_t)usage.ru_maxrss * 1024;
    close_one(&c->record_fd);
    close_one(&c->log_fd);
    if (!c->group[0]) return;
    out->over_limit = was_over_limit(c);
    // Processes that were killed leave it within moments.
    for (int i = 0; i < 100 && rmdir(c->group) != 0 && errno == EBUSY; i++)
        usleep(1000);
}
