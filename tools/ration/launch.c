// launch.c — ration launch: several ranks of one job on this machine, which begin and end together.
//
// A rank is a process with RATION_RANK, RATION_RANKS and RATION_MASTER in its environment
// (<ration/comm.h>). Rank 0 inherits the socket that the others look for, so that no port is
// guessed. The first rank that fails ends the job: the others have a while to end by themselves,
// and say why, then they are asked, then killed; the job's exit code is that rank's.
#include "command.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_RANKS = 256, EXIT_LOST = 5, PATIENCE_SECONDS = 10, KILL_SECONDS = 30 };

typedef struct job {
    const invocation *in;
    uint32_t ranks;
    int listener;
    char master[64], key[33], threads[16];
    char **arguments; // of the program, NULL behind the last
    const char *program;
    pid_t processes[MOST_RANKS]; // 0: it has ended
    uint32_t alive;
    int code;         // of the first that failed; 0: none
    double failed_at; // seconds; 0: none has
    double asked_at;  // those that were left; 0: not yet
    bool killed;
} job;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

// ---- what is started ----------------------------------------------------------------------------

static bool is_command(const char *word) {
    for (size_t i = 0; i < all_command_count; i++)
        if (strcmp(all_commands[i]->name, word) == 0) return true;
    return false;
}

static bool works_on_ranks(const char *name) {
    return strcmp(name, "train") == 0 || strcmp(name, "calibrate") == 0 ||
           strcmp(name, "run") == 0 || strcmp(name, "serve") == 0;
}

// "ration", or one of its commands, is this program; anything else is looked for as shells do.
static rn_status choose_program(job *j) {
    static char *words[1024];
    char **rest = j->in->rest;
    int count = j->in->rest_count, at = 1;
    if (count == 0)
        return rn_hint(rn_fail(RN_INVALID, "ration launch: what is to be started?"),
                       "usage: ration %s", j->in->command->usage);
    if (count > 1000) return rn_fail(RN_INVALID, "ration launch: more than 1000 arguments");
    bool named = strcmp(rest[0], "ration") == 0, own = named || is_command(rest[0]);
    const char *name = named ? (count > 1 ? rest[1] : "") : rest[0];
    if (own && name[0] != '-' && !works_on_ranks(name))
        return rn_hint(rn_fail(RN_INVALID, "ration %s works in one process", name),
                       "of ration's own commands `train`, `run`, `serve` and `calibrate` work on "
                       "several ranks");
    words[0] = own ? (char *)(uintptr_t) "ration" : rest[0];
    for (int i = named || !own ? 1 : 0; i < count; i++)
        words[at++] = rest[i];
    words[at] = NULL;
    j->arguments = words;
    j->program = own ? "/proc/self/exe" : rest[0];
    return RN_OK;
}

static rn_status check_place(void) {
    rn_comm_launch around = rn_comm_find_launch();
    if (!around.launcher) return RN_OK;
    return rn_hint(rn_fail(RN_INVALID, "ration launch was itself started as rank %u of %u by %s",
                           around.rank, around.ranks, around.launcher),
                   "one launcher is enough: %s ration train ...",
                   strcmp(around.launcher, "ration launch") == 0 ? "ration launch -n N"
                                                                 : around.launcher);
}

// On the loopback address, at a port that is free.
static rn_status open_listener(job *j) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    uint8_t random[16];
    j->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (j->listener < 0 || bind(j->listener, (struct sockaddr *)&at, sizeof at) != 0 ||
        listen(j->listener, 2 * MOST_RANKS) != 0 ||
        getsockname(j->listener, (struct sockaddr *)&at, &bytes) != 0)
        return rn_fail(RN_IO, "cannot listen on this machine: %s", strerror(errno));
    snprintf(j->master, sizeof j->master, "127.0.0.1:%u", ntohs(at.sin_port));
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return rn_fail(RN_IO, "no random numbers: %s", strerror(errno));
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(j->key + 2 * i, 3, "%02x", random[i]);
    return RN_OK;
}

// The processors of this process in equal parts, unless the user said how many threads.
static void share_processors(job *j) {
    cpu_set_t set;
    long count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    long each = count / (long)j->ranks;
    snprintf(j->threads, sizeof j->threads, "%ld", each > 0 ? each : 1);
}

static void set_number(const char *name, uint32_t value) {
    char text[16];
    snprintf(text, sizeof text, "%u", value);
    setenv(name, text, 1);
}

static void be_rank(job *j, uint32_t rank, pid_t parent) {
    set_number("RATION_RANK", rank);
    set_number("RATION_RANKS", j->ranks);
    set_number("RATION_LOCAL_RANK", rank);
    set_number("RATION_LOCAL_RANKS", j->ranks);
    setenv("RATION_MASTER", j->master, 1);
    setenv("RATION_JOB", j->key, 1);
    setenv("RATION_THREADS", j->threads, 0);
    if (rank == 0) {
        set_number("RATION_MASTER_SOCKET", (uint32_t)j->listener);
        (void)fcntl(j->listener, F_SETFD, 0);
    }
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM); // no orphans
    if (getppid() != parent) _exit(EXIT_LOST);
    execvp(j->program, j->arguments);
    int error = errno;
    fprintf(stderr, "ration: cannot start %s: %s\n", j->arguments[0], strerror(error));
    _exit(error == ENOENT ? 127 : 126); // as shells do
}

// ---- their end ----------------------------------------------------------------------------------

static void signal_all(const job *j, int number) {
    for (uint32_t r = 0; r < j->ranks; r++)
        if (j->processes[r]) kill(j->processes[r], number);
}

static rn_status start_all(job *j) {
    pid_t parent = getpid();
    fflush(stdout);
    for (uint32_t r = 0; r < j->ranks; r++) {
        pid_t child = fork();
        if (child == 0) be_rank(j, r, parent);
        if (child < 0) {
            rn_status s = rn_fail(RN_IO, "cannot start rank %u: %s", r, strerror(errno));
            signal_all(j, SIGKILL);
            while (wait(NULL) > 0 || errno == EINTR) {
            }
            return s;
        }
        j->processes[r] = child;
        j->alive++;
    }
    return RN_OK;
}

static void note_end(job *j, pid_t process, int status) {
    uint32_t rank = 0;
    while (rank < j->ranks && j->processes[rank] != process)
        rank++;
    if (rank == j->ranks) return;
    j->processes[rank] = 0;
    j->alive--;
    if (WIFSIGNALED(status) && !j->killed)
        fprintf(stderr, "ration: rank %u of %u (process %ld) was ended by signal %d (%s)\n", rank,
                j->ranks, (long)process, WTERMSIG(status), strsignal(WTERMSIG(status)));
    int code = WIFSIGNALED(status) ? EXIT_LOST : WEXITSTATUS(status);
    if (!code || j->code) return;
    j->code = code;
    j->failed_at = now();
}

// A rank that was stopped (SIGSTOP, a debugger) hears of its end once it goes on.
static void ask_all(job *j) {
    signal_all(j, SIGTERM);
    signal_all(j, SIGCONT);
    j->asked_at = now();
}

// Some seconds to end by themselves and say why, then asked, then killed. The second Ctrl-C ends
// this process by the system's own means, and with it the ranks (PR_SET_PDEATHSIG).
static void press(job *j) {
    if (interrupted && j->asked_at == 0) ask_all(j);
    if (j->failed_at > 0 && now() - j->failed_at > PATIENCE_SECONDS && j->asked_at == 0) {
        fprintf(stderr, "ration: %u rank%s did not end after that; now asked to\n", j->alive,
                j->alive == 1 ? "" : "s");
        ask_all(j);
    }
    if (j->asked_at > 0 && now() - j->asked_at > KILL_SECONDS && !j->killed) {
        j->killed = true;
        fprintf(stderr, "ration: %u rank%s did not end when asked; now killed\n", j->alive,
                j->alive == 1 ? "" : "s");
        signal_all(j, SIGKILL);
    }
}

static void wait_for_all(job *j) {
    while (j->alive) {
        int status = 0;
        pid_t ended = waitpid(-1, &status, j->failed_at > 0 || interrupted ? WNOHANG : 0);
        if (ended > 0)
            note_end(j, ended, status);
        else if (ended < 0 && errno != EINTR)
            return;
        press(j);
        if (ended == 0) nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
}

static rn_status run(const invocation *in) {
    static job j;
    uint64_t ranks = rn_settings_count(in->settings, "nproc");
    j = (job){.in = in, .ranks = (uint32_t)ranks, .listener = -1};
    if (ranks == 0 || ranks > MOST_RANKS)
        return rn_hint(rn_fail(RN_INVALID, "ration launch: how many ranks?"), "-n N, from 1 to %d",
                       MOST_RANKS);
    RN_TRY(check_place());
    RN_TRY(choose_program(&j));
    RN_TRY(open_listener(&j));
    share_processors(&j);
    rn_status s = start_all(&j);
    close(j.listener);
    RN_TRY(s);
    wait_for_all(&j);
    *in->exit_code = j.code;
    return RN_OK;
}

// ---- the command --------------------------------------------------------------------------------

// Whether a flag's value is the next word.
static bool takes_next(const char *flag) {
    bool named = flag[1] == '-';
    if (strchr(flag, '=') || (!named && flag[1] && flag[2])) return false;
    for (size_t i = 0; i < rn_option_count(); i++) {
        const rn_option *o = rn_option_at(i);
        if (!rn_option_is_for(o, "launch")) continue;
        if (named ? strcmp(o->name, flag + 2) == 0 : o->letter == flag[1])
            return o->type != RN_OPTION_BOOL && o->type != RN_OPTION_FILE;
    }
    return false;
}

// Its own flags end where the program begins.
static int count_own(int argc, char **argv) {
    int own = 0;
    while (own < argc && argv[own][0] == '-' && strcmp(argv[own], "--") != 0)
        own += 1 + (takes_next(argv[own]) && own + 1 < argc);
    return own;
}

static rn_status own_arguments(invocation *in, int argc, char **argv) {
    int own = count_own(argc, argv);
    int rest = own < argc && strcmp(argv[own], "--") == 0 ? own + 1 : own;
    in->rest = argv + rest;
    in->rest_count = argc - rest;
    RN_TRY(rn_settings_load_arguments(in->settings, "launch", own, argv, in->words, MAX_WORDS,
                                      &in->word_count));
    return rn_settings_check(in->settings);
}

const command launch_command = {
    .name = "launch",
    .usage = "launch -n N [--] [ration] train|run|serve ...\n       ration launch -n N -- PROGRAM "
             "[ARGUMENTS]",
    .summary = "several ranks of one job on this machine",
    .about =
        "Starts N processes of one job, its ranks, which find each other by sockets of this\n"
        "machine. The processors are divided among them (RATION_THREADS or --threads says\n"
        "otherwise); a --budget is each rank's own. When a rank fails or is killed, the others\n"
        "say which one it was and end, too; the exit code is that of the first that failed, 5\n"
        "where a signal ended it. Ctrl-C stops all: a training saves its step first.\n\n"
        "Another PROGRAM finds its rank in RATION_RANK, RATION_RANKS, RATION_LOCAL_RANK and\n"
        "RATION_MASTER (HOST:PORT of rank 0). For ranks on several machines use mpirun, srun or\n"
        "torchrun: train, run and serve understand their variables, too.",
    .example = "ration launch -n 2 ration train model --data chats.jsonl --out adapter",
    .max_words = 0,
    .run = run,
    .count_own = count_own,
    .own_arguments = own_arguments,
};
