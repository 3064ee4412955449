// clock.c — clock_gettime, twice.
#include "base/clock.h"

#include <stdio.h>
#include <time.h>

uint64_t rn_clock_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void rn_clock_text(char out[40], bool full) {
    struct timespec now;
    struct tm parts;
    clock_gettime(CLOCK_REALTIME, &now);
    if (full)
        gmtime_r(&now.tv_sec, &parts);
    else
        localtime_r(&now.tv_sec, &parts);
    size_t bytes = strftime(out, 40, full ? "%Y-%m-%dT%H:%M:%S" : "%H:%M:%S", &parts);
    snprintf(out + bytes, 40 - bytes, ".%03ld%s", now.tv_nsec / 1000000, full ? "Z" : "");
}
