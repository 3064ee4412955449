// profile_run.c — ration profile run: another program with the recorder preloaded.
#include "command.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_PATH_BYTES = 4096 };

// Beside the program in a build folder, or where an installation puts libraries.
static rn_status find_preload(char out[MAX_PATH_BYTES]) {
    static const char *const places[] = {"../lib", "../" RATION_LIBRARY_FOLDER};
    char own[MAX_PATH_BYTES];
    ssize_t bytes = readlink("/proc/self/exe", own, sizeof own - 1);
    if (bytes < 0) return rn_fail(RN_IO, "cannot read /proc/self/exe: %s", strerror(errno));
    own[bytes] = '\0';
    *strrchr(own, '/') = '\0';
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        int wrote = snprintf(out, MAX_PATH_BYTES, "%s/%s/libration_preload.so", own, places[i]);
        if (wrote < MAX_PATH_BYTES && access(out, R_OK) == 0) return RN_OK;
    }
    return rn_hint(rn_fail(RN_NOT_FOUND, "libration_preload.so is not beside this program"),
                   "it is built and installed together with ration: make build");
}

static void set_preload(const char *library) {
    char value[2 * MAX_PATH_BYTES];
    const char *before = getenv("LD_PRELOAD");
    snprintf(value, sizeof value, "%s%s%s", library, before && *before ? ":" : "",
             before ? before : "");
    setenv("LD_PRELOAD", value, 1);
}

static void set_environment(const invocation *in, const char *library, const char *file) {
    static const char *const names[][2] = {{RN_PRELOAD_ALLOCATIONS, "allocations"},
                                           {RN_PRELOAD_STACKS, "stacks"},
                                           {RN_PRELOAD_LIMIT, "budget"},
                                           {RN_PRELOAD_FILE_LIMIT, "profile-limit"},
                                           {RN_PRELOAD_INTERVAL, "profile-interval"}};
    set_preload(library);
    setenv(RN_PRELOAD_FILE, file, 1);
    unsetenv(RN_PRELOAD_OWNER); // where this is run by a program that is recorded itself
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = rn_settings_text(in->settings, names[i][1]);
        if (*value) setenv(names[i][0], value, 1);
    }
}

static rn_status start(const invocation *in, const char *library, const char *file, pid_t *out) {
    pid_t child = fork();
    if (child < 0) return rn_fail(RN_IO, "cannot start a program: %s", strerror(errno));
    if (child == 0) {
        set_environment(in, library, file);
        execvp(in->rest[0], in->rest);
        int error = errno;
        fprintf(stderr, "ration: cannot start %s: %s\n", in->rest[0], strerror(error));
        _exit(error == ENOENT ? 127 : 126); // as shells do
    }
    *out = child;
    return RN_OK;
}

// Ctrl-C reaches the program by itself (it is in the terminal's group); a SIGTERM is handed on.
static int wait_for(pid_t child) {
    int status = 0;
    bool told = false;
    signal(SIGINT, SIG_IGN); // what it means is the program's business
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
        if (interrupted && !told) kill(child, SIGTERM);
        told = interrupted;
    }
    return status;
}

// How the program ended is what a script wants to know first: its own code, or as a shell says it
// of one that a signal ended.
static int tell_ending(const char *program, int status) {
    if (WIFSIGNALED(status)) {
        fprintf(stderr, "ration: %s was ended by signal %d (%s)\n", program, WTERMSIG(status),
                strsignal(WTERMSIG(status)));
        return 128 + WTERMSIG(status);
    }
    if (WEXITSTATUS(status))
        fprintf(stderr, "ration: %s ended with exit code %d\n", program, WEXITSTATUS(status));
    return WEXITSTATUS(status);
}

// Whole, for the program may go to another folder.
static rn_status choose_file(const invocation *in, char out[MAX_PATH_BYTES]) {
    char name[MAX_PATH_BYTES], folder[MAX_PATH_BYTES];
    const char *given = rn_settings_text(in->settings, "output");
    if (*given)
        snprintf(name, sizeof name, "%s", given);
    else
        default_profile_name("ration", ".rntrace", name);
    if (!getcwd(folder, sizeof folder)) return rn_fail(RN_IO, "there is no working folder");
    const char *before = name[0] == '/' ? "" : folder;
    if (snprintf(out, MAX_PATH_BYTES, "%s%s%s", before, *before ? "/" : "", name) >= MAX_PATH_BYTES)
        return rn_fail(RN_INVALID, "the name of the recording is too long");
    return RN_OK;
}

rn_status profile_run(const invocation *in) {
    char library[MAX_PATH_BYTES], file[MAX_PATH_BYTES];
    pid_t child = 0;
    RN_TRY(find_preload(library));
    RN_TRY(choose_file(in, file));
    RN_TRY(start(in, library, file, &child));
    *in->exit_code = tell_ending(in->rest[0], wait_for(child));
    if (access(file, R_OK) != 0 && *in->exit_code) return RN_OK;
    if (access(file, R_OK) != 0)
        return rn_hint(rn_fail(RN_NOT_FOUND, "%s was not written", file),
                       "a statically linked or set-uid program cannot be recorded");
    fprintf(stderr, "profile: %s\n  ration profile report %s\n  ration profile html %s\n", file,
            file, file);
    return RN_OK;
}
