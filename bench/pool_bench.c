// pool_bench.c — the pool against glibc's malloc and mimalloc, on one trace in one run.
//
//     pool_bench [--json] [--runs N] [--operations N] [--seed N]
//
// Time: the trace of tensor_trace.h is replayed without touching memory (bookkeeping and system
// calls only; best of the runs), and once in a child process that writes a byte to each page of
// every block (page faults included). Footprint: that child's peak resident growth, and for the
// pool also its peak reserved bytes, over the trace's peak of live bytes. Every allocator has its
// default settings.
#include <ration/pool.h>
#include "tensor_trace.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// ---- the contenders ---------------------------------------------------------------------------

typedef union slot {
    void *pointer;
    rn_pool_block block;
} slot;

typedef struct contender {
    const char *name;
    void *(*alloc)(size_t bytes); // malloc and friends; NULL for the pool
    void (*release)(void *pointer);
    rn_pool *pool;
    double untouched_ns, touched_ns; // by operation
    uint64_t peak_rss_bytes, peak_reserved_bytes;
} contender;

static void touch(char *memory, size_t bytes) {
    for (size_t i = 0; i < bytes; i += 4096)
        ((volatile char *)memory)[i] = 1;
}

static void replay_pool(const trace *t, rn_pool *pool, slot *slots, bool touched) {
    for (size_t i = 0; i < t->count; i++) {
        slot *s = &slots[t->ops[i].slot];
        if (t->ops[i].bytes == 0) {
            rn_pool_free(pool, s->block);
        } else {
            if (rn_pool_alloc(pool, t->ops[i].bytes, 64, &s->block) != RN_OK) abort();
            if (touched) touch((char *)(uintptr_t)s->block.address, s->block.bytes);
        }
    }
}

static void replay_malloc(const trace *t, const contender *c, slot *slots, bool touched) {
    for (size_t i = 0; i < t->count; i++) {
        slot *s = &slots[t->ops[i].slot];
        if (t->ops[i].bytes == 0) {
            c->release(s->pointer);
        } else {
            if (!(s->pointer = c->alloc(t->ops[i].bytes))) abort();
            if (touched) touch(s->pointer, t->ops[i].bytes);
        }
    }
}

static double replay(const trace *t, contender *c, slot *slots, bool touched) { // ns by operation
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    if (c->pool)
        replay_pool(t, c->pool, slots, touched);
    else
        replay_malloc(t, c, slots, touched);
    clock_gettime(CLOCK_MONOTONIC, &end);
    double ns = (double)(end.tv_sec - start.tv_sec) * 1e9 + (double)(end.tv_nsec - start.tv_nsec);
    return ns / (double)t->count;
}

static uint64_t read_status(const char *key) { // of this process, in bytes
    char line[256];
    unsigned long kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, key, strlen(key)) == 0) sscanf(line + strlen(key), ": %lu", &kib);
    if (file) fclose(file);
    return (uint64_t)kib * 1024;
}

// In a child, so that every contender starts from an empty heap and its peak is its own.
static void measure_footprint(const trace *t, contender *c, slot *slots) {
    int ends[2];
    if (pipe(ends) != 0) abort();
    pid_t child = fork();
    if (child == 0) {
        uint64_t before = read_status("VmRSS");
        c->touched_ns = replay(t, c, slots, true);
        c->peak_rss_bytes = read_status("VmHWM") - before;
        rn_pool_stats stats = {0};
        if (c->pool) rn_pool_get_stats(c->pool, &stats);
        c->peak_reserved_bytes = stats.peak_reserved_bytes;
        _exit(write(ends[1], c, sizeof *c) == sizeof *c ? 0 : 1);
    }
    int status = 1;
    if (child < 0 || read(ends[0], c, sizeof *c) != sizeof *c) abort();
    waitpid(child, &status, 0);
    close(ends[0]), close(ends[1]);
}

static size_t find_contenders(contender *out) {
    size_t count = 0;
    out[count++] = (contender){.name = "pool"};
    if (rn_pool_create(rn_pool_source_host(NULL, false), NULL, &out[0].pool) != RN_OK) abort();
    out[count++] = (contender){.name = "glibc", .alloc = malloc, .release = free};
    void *library = dlopen("libmimalloc.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!library) library = dlopen("libmimalloc.so", RTLD_NOW | RTLD_LOCAL);
    contender mimalloc = {.name = "mimalloc"};
    if (library) {
        *(void **)&mimalloc.alloc = dlsym(library, "mi_malloc");
        *(void **)&mimalloc.release = dlsym(library, "mi_free");
    }
    if (mimalloc.alloc && mimalloc.release) out[count++] = mimalloc;
    return count;
}

static void print_table(const trace *t, const contender *all, size_t count) {
    double peak = (double)t->peak_bytes;
    printf("%zu operations, peak of live bytes %.1f MiB\n", t->count, peak / 0x1p20);
    printf("%-10s %14s %14s %16s %16s\n", "", "ns/op", "ns/op touched", "peak rss/live",
           "reserved/live");
    for (size_t i = 0; i < count; i++) {
        printf("%-10s %14.1f %14.1f %16.3f", all[i].name, all[i].untouched_ns, all[i].touched_ns,
               (double)all[i].peak_rss_bytes / peak);
        if (all[i].pool) printf(" %16.3f", (double)all[i].peak_reserved_bytes / peak);
        printf("\n");
    }
    if (count < 3) printf("mimalloc: not installed\n");
}

static void print_json(const trace *t, const contender *all, size_t count) {
    printf(
        "{\"bench\": \"pool\", \"operations\": %zu, \"peak_live_bytes\": %llu, \"allocators\": [",
        t->count, (unsigned long long)t->peak_bytes);
    for (size_t i = 0; i < count; i++)
        printf("%s{\"name\": \"%s\", \"untouched_ns\": %.1f, \"touched_ns\": %.1f, "
               "\"peak_rss_bytes\": %llu, \"peak_reserved_bytes\": %llu}",
               i ? ", " : "", all[i].name, all[i].untouched_ns, all[i].touched_ns,
               (unsigned long long)all[i].peak_rss_bytes,
               (unsigned long long)all[i].peak_reserved_bytes);
    printf("]}\n");
}

int main(int argc, char **argv) {
    bool json = false;
    size_t operations = 200000;
    int runs = 7;
    uint64_t seed = 42;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) json = true;
        if (i + 1 < argc && strcmp(argv[i], "--runs") == 0) runs = atoi(argv[i + 1]);
        if (i + 1 < argc && strcmp(argv[i], "--operations") == 0)
            operations = strtoull(argv[i + 1], NULL, 10);
        if (i + 1 < argc && strcmp(argv[i], "--seed") == 0) seed = strtoull(argv[i + 1], NULL, 10);
    }
    trace t;
    make_trace(&t, operations, seed);
    slot *slots = calloc(t.slot_count, sizeof *slots);
    memset(slots, 1, t.slot_count * sizeof *slots); // resident before anything is measured
    contender all[3];
    size_t count = find_contenders(all);
    for (size_t i = 0; i < count; i++)
        measure_footprint(&t, &all[i], slots);
    for (int run = 0; run < runs; run++) // by turns, so that a slow moment hits them all
        for (size_t i = 0; i < count; i++) {
            double ns = replay(&t, &all[i], slots, false);
            if (run == 0 || ns < all[i].untouched_ns) all[i].untouched_ns = ns;
        }
    (json ? print_json : print_table)(&t, all, count);
    rn_pool_destroy(all[0].pool);
    return 0;
}
