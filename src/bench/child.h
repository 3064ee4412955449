// child.h — a command in a process group of its own, with limits, and what becomes of it.
//
//     rn_child child;
//     RN_TRY(rn_child_start(&options, &child)); // its records: child.record_fd; its log: log_fd
//     ... read both until they end, or enough time has passed ...
//     rn_child_finish(&child, late, &end);      // killed with all it started, where it still runs
//
// Memory is limited by a cgroup of its own (v2, or v1) where one can be made, else by RLIMIT_DATA,
// which counts what is allocated and not what is used.
#ifndef RN_BENCH_CHILD_H
#define RN_BENCH_CHILD_H

#include <ration/status.h>

#include <sys/types.h>

typedef struct rn_child_options {
    const char *const *command; // ended by NULL
    const char *variable;       // "NAME=value", for its environment; NULL: none
    uint64_t limit_bytes;       // of its memory; 0: none
    uint32_t cores;             // it is bound to so many of those that this process may use;
                                // 0: to none
} rn_child_options;

// The descriptor on which a child writes its records.
enum { RN_CHILD_RECORD_FD = 3 };

typedef struct rn_child {
    pid_t id;
    int record_fd, log_fd; // both do not block; -1 once closed
    uint64_t begin_ns;
    char group[512]; // the folder of its cgroup; "": none
    bool group_v2;
} rn_child;

typedef struct rn_child_end {
    int signal;      // 0: none
    int exit_code;   // -1: a signal
    bool over_limit; // the cgroup's limit killed it
    uint64_t resident_peak_bytes;
    double seconds;
} rn_child_end;

// RN_NOT_FOUND: no such program. RN_IO.
RN_MUST_USE rn_status rn_child_start(const rn_child_options *options, rn_child *out);
bool rn_child_has_ended(const rn_child *child);
// Kills its group at once (`kill`), or waits for its end; then what it started is killed.
void rn_child_finish(rn_child *child, bool kill_it, rn_child_end *out);

#endif
