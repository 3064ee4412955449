// storm.c — a program that allocates and frees as wildly as it can, and counts its bytes itself:
// what a recording of it must show. Knows nothing of ration.
//
//     storm MODE   tensors: two threads, blocks as PyTorch asks for them, and large ones
//                  all:     one thread, every function of the family, any size
//                  fork:    a child that allocates, too, and must not show
//                  loading: opens ./tls_0.so to ./tls_29.so, whose variables are a thread's own
//                  limit:   until NULL; prints how far it came
//                  hang:    holds what it prints, for ever
// Prints the largest number of bytes that were live at once.
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define KIB ((size_t)1024)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static size_t now, peak;

// Counting and allocating are one step, so that both counts see the same order.
static void count(size_t plus, size_t minus) {
    now = now - minus + plus;
    if (now > peak) peak = now;
}

static uint64_t next(uint64_t *seed) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

enum { SLOTS = 200 };

typedef struct block {
    void *at;
    size_t bytes;
} block;

static void *aligned(size_t align, size_t bytes) {
    void *at = NULL;
    return posix_memalign(&at, align, bytes) ? NULL : at;
}

static void *get(uint64_t kind, size_t bytes) {
    switch (kind % 5) {
    case 0:
        return aligned(64, bytes);
    case 1:
        return aligned_alloc(128, (bytes + 127) & ~(size_t)127);
    case 2:
        return malloc(bytes + 64 * KIB);
    case 3:
        return calloc(bytes + 64 * KIB, 1);
    default:
        return realloc(malloc(64 * KIB), bytes + 64 * KIB);
    }
}

static size_t size_of(uint64_t kind, size_t bytes) {
    return kind % 5 == 0 ? bytes : kind % 5 == 1 ? (bytes + 127) & ~(size_t)127 : bytes + 64 * KIB;
}

static void *storm(void *argument) {
    block blocks[SLOTS] = {{0}};
    uint64_t seed = (uint64_t)(uintptr_t)argument;
    for (int i = 0; i < 20000; i++) {
        block *b = &blocks[next(&seed) % SLOTS];
        uint64_t kind = next(&seed);
        size_t bytes = next(&seed) % (64 * KIB) + 1;
        pthread_mutex_lock(&lock);
        count(0, b->bytes);
        free(b->at);
        if (next(&seed) % 3) {
            b->at = get(kind, bytes);
            b->bytes = size_of(kind, bytes);
            if (kind % 5 == 4) count(64 * KIB, 0), count(0, 64 * KIB);
            count(b->bytes, 0);
        } else {
            *b = (block){0};
        }
        pthread_mutex_unlock(&lock);
        // Below every peak, without a lock: all that happens at once, and small blocks.
        free(malloc(bytes % 1000));
    }
    pthread_mutex_lock(&lock);
    for (int i = 0; i < SLOTS; i++) {
        count(0, blocks[i].bytes);
        free(blocks[i].at);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void run_tensors(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, storm, (void *)1);
    storm((void *)2);
    pthread_join(thread, NULL);
}

static void run_all(void) {
    static block blocks[SLOTS];
    uint64_t seed = 3;
    for (int i = 0; i < 20000; i++) {
        block *b = &blocks[next(&seed) % SLOTS];
        size_t bytes = next(&seed) % 5000 + 1;
        if (next(&seed) % 2) {
            count(bytes, b->bytes);
            b->at = realloc(b->at, bytes);
            b->bytes = bytes;
        } else {
            count(0, b->bytes);
            free(b->at);
            b->at = next(&seed) % 2 ? malloc(bytes) : reallocarray(NULL, bytes, 1);
            b->bytes = bytes;
            count(bytes, 0);
        }
    }
    size_t mapped = 1 << 20;
    void *map = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    count(mapped, 0);
    munmap(map, mapped);
    count(0, mapped);
}

static void run_fork(void) {
    void *mine = aligned(64, 1000 * KIB);
    count(1000 * KIB, 0);
    pid_t child = fork();
    if (child == 0) {
        memset(aligned(64, 9000 * KIB), 1, 9000 * KIB);
        exit(0);
    }
    waitpid(child, NULL, 0);
    free(mine);
}

// The loader itself asks for memory when a thread first looks at variables after so many libraries.
static void *load(void *argument) {
    for (int i = 0; i < 30; i++) {
        char name[32];
        snprintf(name, sizeof name, "./tls_%d.so", i);
        if (!dlopen(name, RTLD_NOW)) exit(3);
        pthread_mutex_lock(&lock);
        (void)!aligned(64, 1000);
        count(1000, 0);
        pthread_mutex_unlock(&lock);
    }
    return argument;
}

static void run_loading(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, load, NULL);
    load(NULL);
    pthread_join(thread, NULL);
}

static void run_limit(void) {
    for (void *at; (at = malloc(64 * KIB)) != NULL && now < ((size_t)64 << 20);)
        count(64 * KIB, 0);
}

static void run_hang(void) {
    for (int i = 0; i < 100; i++) {
        (void)!aligned(64, 100 * KIB);
        count(100 * KIB, 0);
    }
    printf("%zu\n", peak);
    fflush(stdout);
    for (;;)
        free(aligned(64, 10));
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "tensors";
    if (strcmp(mode, "tensors") == 0) run_tensors();
    if (strcmp(mode, "all") == 0) run_all();
    if (strcmp(mode, "fork") == 0) run_fork();
    if (strcmp(mode, "loading") == 0) run_loading();
    if (strcmp(mode, "limit") == 0) run_limit();
    if (strcmp(mode, "hang") == 0) run_hang();
    char text[32];
    int bytes = snprintf(text, sizeof text, "%zu\n", peak); // without stdio's buffer
    return write(1, text, (size_t)bytes) == bytes ? 0 : 1;
}
