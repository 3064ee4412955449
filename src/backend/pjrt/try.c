// try.c — a child process tries a plugin, with a limit on its time; what it found is kept.
//
// The child is a program of its own (probe/probe.c), whose bytes are a part of the library and are
// run from an anonymous file. So nothing has to be installed beside the library, and nothing of
// this process is in the child but its environment: a fork would inherit locks that other threads
// hold, and a CUDA context that no child can use.
//
// Only a plugin that worked is remembered: whatever made one fail may have been mended. A line of
// ration/plugins in the user's cache folder, fields separated by tabs:
//
//     path, bytes, mtime in ns, environment, "MINOR DEVICES LIMIT HOST PLATFORM|KIND"
#include "backend/pjrt/pjrt.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/sha256.h"
#include "memory/account.h"

#include <ration/log.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

__asm__(".pushsection .rodata\n"
        ".balign 64\n"
        "rn_pjrt_probe:\n"
        ".incbin \"" RATION_PJRT_PROBE "\"\n"
        "rn_pjrt_probe_end:\n"
        ".byte 0\n"
        ".popsection\n");
extern const char rn_pjrt_probe[], rn_pjrt_probe_end[];

extern char **environ;

enum { LIMIT_MS = 120000, MOST_FILE = 64 << 10, MOST_LINES = 64 };

// ---- a child ------------------------------------------------------------------------------------

// What it said: its line, and the end of what it wrote to its standard error.
typedef struct answer {
    char line[1024], noise[1024];
    size_t line_bytes, noise_bytes;
    int status; // of waitpid
    bool timed_out;
} answer;

static int limit_ms(void) {
    const char *told = getenv("RATION_XLA_TRY_MS");
    long limit = told ? strtol(told, NULL, 10) : 0;
    return limit > 0 && limit < 3600000 ? (int)limit : LIMIT_MS;
}

static size_t count_between(const char *begin, const char *end) {
    return (size_t)(end - begin);
}

// An anonymous file with the program in it.
static rn_status make_program(int *out) {
    size_t bytes = count_between(rn_pjrt_probe, rn_pjrt_probe_end);
    int made = memfd_create("ration-probe", MFD_CLOEXEC);
    *out = made < 0 ? -1 : fcntl(made, F_DUPFD_CLOEXEC, 10); // away from what the child is given
    if (made >= 0) close(made);
    if (*out < 0) return rn_file_fail("make", "an anonymous file");
    rn_status s = rn_file_write_at(*out, "an anonymous file", 0, rn_pjrt_probe, bytes);
    if (s != RN_OK) close(*out);
    return s;
}

// Both ends away from the descriptors that the child is given.
static bool make_pipe(int out[2]) {
    int pair[2];
    if (pipe2(pair, O_CLOEXEC) != 0) return false;
    for (int i = 0; i < 2; i++) {
        out[i] = fcntl(pair[i], F_DUPFD_CLOEXEC, 10);
        close(pair[i]);
    }
    return out[0] >= 0 && out[1] >= 0;
}

// In a process group of its own: a compiler's children end with it.
static int spawn(int program, const char *plugin, int line, int noise, pid_t *out) {
    char path[64], *words[] = {(char *)"probe", (char *)plugin, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    snprintf(path, sizeof path, "/proc/self/fd/%d", program);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, noise, 2);
    posix_spawn_file_actions_adddup2(&actions, line, 3);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
                                              POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    int error = posix_spawn(out, path, &actions, &attributes, words, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

// Appends to what there is, and forgets the beginning where there is no room.
static bool read_some(int fd, char *text, size_t *used, size_t room) {
    char part[512];
    ssize_t count = read(fd, part, sizeof part);
    if (count < 0 && errno == EINTR) return true;
    if (count <= 0) return false;
    size_t bytes = (size_t)count, most = room - 1;
    size_t over = *used + bytes > most ? *used + bytes - most : 0;
    memmove(text, text + over, *used - over);
    *used -= over;
    memcpy(text + *used, part, bytes);
    *used += bytes;
    text[*used] = 0;
    return true;
}

// Until both pipes are closed or the time is over.
static void listen_to(pid_t child, int line, int noise, answer *out) {
    struct pollfd fds[2] = {{.fd = line, .events = POLLIN}, {.fd = noise, .events = POLLIN}};
    uint64_t end = rn_clock_ns() + (uint64_t)limit_ms() * 1000000;
    while (fds[0].fd >= 0 || fds[1].fd >= 0) {
        uint64_t now = rn_clock_ns();
        out->timed_out = now >= end;
        if (out->timed_out) break;
        if (poll(fds, 2, (int)((end - now) / 1000000) + 1) < 0 && errno != EINTR) break;
        if (fds[0].revents && !read_some(line, out->line, &out->line_bytes, sizeof out->line))
            fds[0].fd = -1;
        if (fds[1].revents && !read_some(noise, out->noise, &out->noise_bytes, sizeof out->noise))
            fds[1].fd = -1;
        fds[0].revents = fds[1].revents = 0;
    }
    kill(-child, SIGKILL); // what it started, and itself where it hangs
    while (waitpid(child, &out->status, 0) < 0 && errno == EINTR)
        continue;
}

static rn_status ask_child(const char *plugin, answer *out) {
    int program = -1, line[2] = {-1, -1}, noise[2] = {-1, -1};
    pid_t child = 0;
    *out = (answer){0};
    RN_TRY(make_program(&program));
    bool piped = make_pipe(line) && make_pipe(noise);
    int error = piped ? spawn(program, plugin, line[1], noise[1], &child) : errno;
    for (int i = 1; i >= 0; i--) {
        if (i == 0 && !error) listen_to(child, line[0], noise[0], out);
        if (line[i] >= 0) close(line[i]);
        if (noise[i] >= 0) close(noise[i]);
    }
    close(program);
    if (error)
        return rn_fail(RN_IO, "no process can be started to try the plugin: %s", strerror(error));
    rn_str_clean(out->line);
    rn_str_clean(out->noise);
    return RN_OK;
}

// ---- what it found ------------------------------------------------------------------------------

// The last line of the noise: what a runtime says before it ends the process.
static const char *last_words(answer *a) {
    while (a->noise_bytes && strchr("\n ", a->noise[a->noise_bytes - 1]))
        a->noise[--a->noise_bytes] = 0;
    const char *begin = strrchr(a->noise, '\n');
    return begin ? begin + 1 : a->noise;
}

static rn_status refuse_death(const char *plugin, answer *a) {
    const char *words = last_words(a);
    const char *quote = words[0] ? ": " : "";
    rn_status s;
    if (a->timed_out)
        s = rn_fail(RN_DEVICE, "the plugin hangs: it did nothing for %d ms%s%.400s", limit_ms(),
                    quote, words);
    else if (WIFSIGNALED(a->status))
        s = rn_fail(RN_DEVICE, "the plugin ends its process by signal %d (%s)%s%.400s",
                    WTERMSIG(a->status), strsignal(WTERMSIG(a->status)), quote, words);
    else
        s = rn_fail(RN_DEVICE, "the plugin ends its process with exit code %d%s%.400s",
                    WEXITSTATUS(a->status), quote, words);
    s = rn_error_locate(s, plugin, RN_NO_OFFSET);
    return rn_hint(s, "it was tried in a process of its own; install it anew, or choose another "
                      "device");
}

static rn_status refuse_failure(const char *plugin, const char *text) {
    static const struct {
        const char *word;
        rn_status status;
    } known[] = {
        {"missing ", RN_NOT_FOUND}, {"no_plugin ", RN_UNSUPPORTED}, {"version ", RN_UNSUPPORTED}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        size_t bytes = strlen(known[i].word);
        if (strncmp(text, known[i].word, bytes) != 0) continue;
        rn_status s = rn_fail(known[i].status, "%s", text + bytes);
        s = rn_error_locate(s, plugin, RN_NO_OFFSET);
        return rn_hint(s, "xla: takes the file of a PJRT plugin, with its folder where the system "
                          "does not find it");
    }
    char *rest = NULL;
    if (strncmp(text, "device ", 7) == 0) text += 7;
    int code = (int)strtol(text, &rest, 10);
    return rn_error_locate(rn_fail(rn_pjrt_status(code), "%s:%s", rn_pjrt_code_name(code), rest),
                           plugin, RN_NO_OFFSET);
}

static bool parse_facts(const char *line, rn_pjrt_facts *out) {
    int used = 0;
    *out = (rn_pjrt_facts){0};
    if (sscanf(line, "ok %d %" SCNu32 " %" SCNu64 " %" SCNu64 " %31[^|]|%n", &out->minor,
               &out->device_count, &out->limit_bytes, &out->host_bytes, out->platform,
               &used) != 5 ||
        used == 0)
        return false;
    snprintf(out->kind, sizeof out->kind, "%s", line + used);
    return true;
}

// ---- remembering --------------------------------------------------------------------------------

// What a plugin does depends on its file, and on these.
static void describe(const char *path, const struct stat *file, char *out, size_t bytes) {
    static const char *const names[] = {"XLA_FLAGS", "CUDA_VISIBLE_DEVICES",
                                        "NEURON_RT_VISIBLE_CORES", "NEURON_RT_NUM_CORES",
                                        "LD_LIBRARY_PATH"};
    uint8_t digest[RN_SHA256_BYTES];
    char text[2 * RN_SHA256_BYTES + 1];
    rn_sha256 hash;
    rn_sha256_begin(&hash);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i]);
        rn_sha256_add(&hash, value ? value : "", value ? strlen(value) + 1 : 1);
    }
    rn_sha256_end(&hash, digest);
    rn_sha256_text(digest, text);
    snprintf(out, bytes, "%s\t%lld\t%lld\t%.16s\t", path, (long long)file->st_size,
             (long long)file->st_mtim.tv_sec * 1000000000 + file->st_mtim.tv_nsec, text);
}

static bool read_kept(char *path, size_t path_bytes, rn_buffer *out) {
    if (rn_pjrt_cache_path("plugins", path, path_bytes) != RN_OK) return false;
    if (rn_file_exists(path) && rn_file_read_all(path, out) != RN_OK) out->bytes = 0;
    return rn_buffer_append(out, "", 1) == RN_OK;
}

bool rn_pjrt_was_tried(const char *plugin, rn_pjrt_facts *out) {
    char path[512], key[1024], line[300];
    struct stat file;
    rn_buffer kept;
    if (strchr(plugin, '\t') || strchr(plugin, '\n') || stat(plugin, &file) != 0) return false;
    rn_error_info error = *rn_last_error();
    describe(plugin, &file, key, sizeof key);
    rn_buffer_init(&kept, &rn_system_allocator, MOST_FILE);
    const char *at = read_kept(path, sizeof path, &kept) ? kept.data : NULL;
    bool found = false;
    for (; at && *at && !found; at += strcspn(at, "\n"), at += *at == '\n') {
        if (strncmp(at, key, strlen(key)) != 0) continue;
        const char *rest = at + strlen(key);
        snprintf(line, sizeof line, "ok %.*s", (int)strcspn(rest, "\n"), rest);
        found = parse_facts(line, out);
    }
    rn_buffer_free(&kept);
    (void)rn_error_restore(&error);
    return found;
}

// Lines of other plugins stay. A folder that cannot be written is no failure.
static void remember(const char *plugin, const rn_pjrt_facts *facts) {
    char path[512], key[1024], line[1400];
    struct stat file;
    rn_buffer kept, next;
    if (strchr(plugin, '\t') || strchr(plugin, '\n') || stat(plugin, &file) != 0) return;
    describe(plugin, &file, key, sizeof key);
    int bytes = snprintf(line, sizeof line, "%s%d %u %llu %llu %s|%s\n", key, facts->minor,
                         facts->device_count, (unsigned long long)facts->limit_bytes,
                         (unsigned long long)facts->host_bytes, facts->platform, facts->kind);
    rn_buffer_init(&kept, &rn_system_allocator, MOST_FILE);
    rn_buffer_init(&next, &rn_system_allocator, MOST_FILE);
    rn_status s = rn_buffer_append(&next, line, (size_t)bytes);
    const char *at = read_kept(path, sizeof path, &kept) ? kept.data : NULL;
    for (int lines = 1; at && s == RN_OK && *at && lines < MOST_LINES; lines++) {
        size_t length = strcspn(at, "\n");
        bool same = strncmp(at, key, strlen(key)) == 0;
        if (!same && at[length]) s = rn_buffer_append(&next, at, length + 1);
        at += length + (at[length] == '\n');
    }
    if (s == RN_OK && at) s = rn_file_replace(path, next.data, next.bytes);
    if (s != RN_OK || !at)
        rn_log(RN_LOG_DEBUG, "xla", "the try is not remembered: %s", rn_last_error()->message);
    rn_buffer_free(&kept);
    rn_buffer_free(&next);
}

rn_status rn_pjrt_try(const char *plugin, rn_pjrt_facts *out) {
    answer a;
    uint64_t begin = rn_clock_ns();
    *out = (rn_pjrt_facts){0};
    if (rn_pjrt_was_tried(plugin, out)) return RN_OK;
    RN_TRY(ask_child(plugin, &a));
    if (strncmp(a.line, "fail ", 5) == 0) return refuse_failure(plugin, a.line + 5);
    if (!parse_facts(a.line, out)) return refuse_death(plugin, &a);
    rn_log(RN_LOG_INFO, "xla", "%s was tried in %.0f ms: PJRT 0.%d, %u devices of %s, %s resident",
           plugin, (double)(rn_clock_ns() - begin) * 1e-6, out->minor, out->device_count, out->kind,
           rn_size_format(out->host_bytes).text);
    remember(plugin, out);
    return RN_OK;
}
