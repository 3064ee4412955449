// ledger_bench.c — nanoseconds a charge: alone, with a holder, inside scopes, with a listener, on
// two threads. A charge and its release are two operations. Best of several rounds; target: 20 ns
// uncontended, no listener.
#include <ration/memory.h>

#include "base/clock.h"
#include "memory/account.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { OPERATIONS = 2000000, ROUNDS = 7 };

static rn_account account = {RN_DEVICE_HOST, RN_PURPOSE_ACTIVATIONS, NULL};
static volatile uint64_t heard;

static void charge_loop(void) {
    for (int i = 0; i < OPERATIONS / 2; i++) {
        rn_ledger_charge(account, NULL, 4096);
        rn_ledger_release(account, NULL, 4096);
    }
}

static void budget_loop(void) {
    for (int i = 0; i < OPERATIONS / 2; i++)
        if (rn_budget_charge(account, NULL, 4096) == RN_OK) rn_ledger_release(account, NULL, 4096);
}

static double best_ns(void (*loop)(void)) {
    double best = 1e9;
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t start = rn_clock_ns();
        loop();
        double ns = (double)(rn_clock_ns() - start) / OPERATIONS;
        if (ns < best) best = ns;
    }
    return best;
}

static void *charge_thread(void *unused) {
    (void)unused;
    charge_loop();
    return NULL;
}

static void two_threads(void) {
    pthread_t other;
    if (pthread_create(&other, NULL, charge_thread, NULL) != 0) return;
    charge_loop();
    pthread_join(other, NULL);
}

static void listen(void *self, const rn_event *event) {
    (void)self;
    heard += event->bytes;
}

static double in_two_scopes(void) {
    rn_scope outer, inner;
    rn_scope_begin(&outer, "outer", RN_DEVICE_ANY);
    rn_scope_begin(&inner, "inner", RN_DEVICE_ANY);
    double ns = best_ns(charge_loop);
    (void)rn_scope_end(&inner);
    (void)rn_scope_end(&outer);
    return ns;
}

int main(int argc, char **argv) {
    bool json = argc > 1 && strcmp(argv[1], "--json") == 0;
    rn_holder *holder = NULL;
    double plain = best_ns(charge_loop), budget = best_ns(budget_loop);
    if (rn_holder_open(RN_DEVICE_HOST, RN_PURPOSE_ACTIVATIONS, "bench", &holder) != RN_OK) return 1;
    account.holder = holder;
    double named = best_ns(charge_loop);
    account.holder = NULL;
    rn_holder_close(holder);
    double scoped = in_two_scopes();
    rn_ledger_listen(listen, NULL);
    double listened = best_ns(charge_loop);
    rn_ledger_listen(NULL, NULL);
    double contended = best_ns(two_threads);
    if (json) {
        printf("{\"charge_ns\": %.2f, \"budget_charge_ns\": %.2f, \"holder_ns\": %.2f, "
               "\"two_scopes_ns\": %.2f, \"listener_ns\": %.2f, \"two_threads_ns\": %.2f}\n",
               plain, budget, named, scoped, listened, contended);
        return 0;
    }
    printf("ledger, ns a charge or release (best of %d rounds of %d)\n", ROUNDS, OPERATIONS);
    printf("  uncontended, no listener   %6.2f   (target 20)\n", plain);
    printf("  with the budget's check    %6.2f\n", budget);
    printf("  with a named holder        %6.2f\n", named);
    printf("  inside two scopes          %6.2f\n", scoped);
    printf("  with a listener            %6.2f\n", listened);
    printf("  two threads at once        %6.2f   (a thread)\n", contended);
    return 0;
}
