// profile_bench.c — nanoseconds an event: operations, allocations, charges heard by the recorder;
// one thread and two, recording and not. Best of several rounds; target: 100 ns while recording,
// nothing that can be measured while not.
//
//     profile_bench [--json] [folder for the trace, "." by default]
#include <ration/profile.h>

#include "base/clock.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

// Short rounds, many of them: on a busy machine some are undisturbed. Each fills several rings.
enum { OPERATIONS = 40000, ROUNDS = 75, CASES = 4 };

static const rn_account account = {RN_DEVICE_HOST, RN_PURPOSE_ACTIVATIONS, NULL};
static rn_account named = {RN_DEVICE_HOST, RN_PURPOSE_ACTIVATIONS, NULL};
static uint32_t operation;

static void operation_loop(void) {
    for (int i = 0; i < OPERATIONS / 2; i++) {
        rn_profile_begin(operation);
        rn_profile_end();
    }
}

static void alloc_loop(void) {
    for (int i = 0; i < OPERATIONS / 2; i++) {
        rn_profile_alloc(account, 4096, 4096, 0, 0);
        rn_profile_free(account, 4096, 4096, 0);
    }
}

static void charge_loop(void) {
    for (int i = 0; i < OPERATIONS / 2; i++) {
        rn_ledger_charge(account, NULL, 4096);
        rn_ledger_release(account, NULL, 4096);
    }
}

static void holder_loop(void) {
    for (int i = 0; i < OPERATIONS / 2; i++) {
        rn_ledger_charge(named, NULL, 4096);
        rn_ledger_release(named, NULL, 4096);
    }
}

static void (*const loops[CASES])(void) = {operation_loop, alloc_loop, charge_loop, holder_loop};
static const char *const titles[CASES] = {"rn_profile_begin, end", "rn_profile_alloc, free",
                                          "rn_ledger_charge, release", "  of a named holder"};
static const char *const keys[CASES] = {"operation", "alloc", "charge", "holder"};

static void *run_loop(void *loop) {
    loops[*(const int *)loop]();
    return NULL;
}

static void run_two(int loop) {
    pthread_t other;
    if (pthread_create(&other, NULL, run_loop, &loop) != 0) return;
    run_loop(&loop);
    pthread_join(other, NULL);
}

static double best_ns(int loop, int threads) {
    double best = 1e9;
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t start = rn_clock_ns();
        if (threads == 1)
            run_loop(&loop);
        else
            run_two(loop);
        double ns = (double)(rn_clock_ns() - start) / OPERATIONS;
        if (ns < best) best = ns;
    }
    return best;
}

static bool record(const char *path) {
    rn_profile_options options = {.path = path, .command = "profile_bench", .keep_newest = true};
    if (rn_profile_start(&options) == RN_OK) return true;
    fprintf(stderr, "profile_bench: %s\n", rn_last_error()->message);
    return false;
}

static bool measure(const char *path, double out[CASES][4]) {
    for (int loop = 0; loop < CASES; loop++)
        for (int threads = 1; threads <= 2; threads++) {
            out[loop][threads - 1] = best_ns(loop, threads);
            if (!record(path)) return false;
            operation = rn_profile_name("operation");
            out[loop][threads + 1] = best_ns(loop, threads);
            if (rn_profile_stop() != RN_OK) return false;
        }
    return true;
}

static void print_json(double ns[CASES][4]) {
    printf("{");
    for (int i = 0; i < CASES; i++)
        printf("%s\"%s_off_ns\": %.2f, \"%s_off_two_threads_ns\": %.2f, \"%s_ns\": %.2f, "
               "\"%s_two_threads_ns\": %.2f",
               i ? ", " : "", keys[i], ns[i][0], keys[i], ns[i][1], keys[i], ns[i][2], keys[i],
               ns[i][3]);
    printf("}\n");
}

static void print_table(double ns[CASES][4]) {
    printf("profile, ns an event (best of %d rounds of %d; target 100 while recording)\n", ROUNDS,
           OPERATIONS);
    printf("  %-26s %20s %20s\n", "", "off", "recording");
    printf("  %-26s %10s%10s %10s%10s\n", "threads", "1", "2", "1", "2");
    for (int i = 0; i < CASES; i++)
        printf("  %-26s %10.2f%10.2f %10.2f%10.2f\n", titles[i], ns[i][0], ns[i][1], ns[i][2],
               ns[i][3]);
}

int main(int argc, char **argv) {
    bool json = argc > 1 && strcmp(argv[1], "--json") == 0;
    const char *folder = argc > 1 + json ? argv[1 + json] : ".";
    char path[4096];
    double ns[CASES][4];
    snprintf(path, sizeof path, "%s/profile_bench.rntrace", folder);
    if (rn_holder_open(RN_DEVICE_HOST, RN_PURPOSE_ACTIVATIONS, "bench", &named.holder) != RN_OK)
        return 1;
    bool done = measure(path, ns);
    rn_holder_close(named.holder);
    unlink(path);
    if (!done) return 1;
    if (json)
        print_json(ns);
    else
        print_table(ns);
    return 0;
}
