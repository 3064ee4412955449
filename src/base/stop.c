// stop.c — a chain of stops for each thread, and the work since the last look.
#include "base/stop.h"

#include <stdatomic.h>
#include <stddef.h>

typedef struct watch {
    rn_stop *innermost;
    const rn_flag *flag; // asked last: the outermost
    uint64_t units;      // since the last look
    rn_stop_answer answer;
} watch;
static _Thread_local watch thread_watch;

static rn_stop_answer ask(rn_stop *stop, uint64_t units) {
    if (units > stop->most_units) stop->most_units = units;
    stop->look_count++;
    if (stop->answer == RN_STOP_GO_ON && stop->check) stop->answer = stop->check(stop->self);
    return stop->answer;
}

rn_stop_answer rn_stop_look(void) {
    watch *w = &thread_watch;
    rn_stop_answer answer = RN_STOP_GO_ON;
    for (rn_stop *stop = w->innermost; stop; stop = stop->outer) {
        rn_stop_answer other = ask(stop, w->units);
        if (other > answer) answer = other;
    }
    if (w->flag && atomic_load_explicit(w->flag, memory_order_relaxed)) answer = RN_STOP_CANCEL;
    w->units = 0;
    return w->answer = answer;
}

rn_stop_answer rn_stop_spend(uint64_t units) {
    watch *w = &thread_watch;
    w->units += units;
    // An answer to end is asked for again: the flag may be down by now.
    bool looks = w->units >= RN_STOP_UNITS || w->answer != RN_STOP_GO_ON;
    return looks ? rn_stop_look() : RN_STOP_GO_ON;
}

rn_status rn_stop_try(uint64_t units) {
    if (rn_stop_spend(units) != RN_STOP_CANCEL) return RN_OK;
    return rn_fail(RN_CANCELLED, "stopped before it was done");
}

// The answer is one of the stops that are left: it is asked anew.
static void change(rn_stop *innermost) {
    thread_watch.innermost = innermost;
    thread_watch.answer = RN_STOP_GO_ON;
    for (const rn_stop *stop = innermost; stop; stop = stop->outer)
        if (stop->answer > thread_watch.answer) thread_watch.answer = stop->answer;
}

void rn_stop_enter(rn_stop *stop) {
    stop->outer = thread_watch.innermost;
    change(stop);
}

void rn_stop_leave(rn_stop *stop) {
    change(stop->outer);
}

void rn_stop_on(const rn_flag *flag) {
    thread_watch.flag = flag;
    thread_watch.answer = RN_STOP_GO_ON;
}
