// preload.c — libration_preload.so: takes the place of malloc and its family in a whole process, so
// that a program that knows nothing of ration is recorded from beginning to end (`ration profile
// run`). Its variables are in <ration/hooks.h>.
//
// Before main, after main and inside the profiler the calls go straight to the C library. Looking
// that up (dlsym) may itself ask for memory: then a small buffer answers, whose blocks are never
// released. So may a thread's first look at libration.so's own variables: `busy`, which is why it
// lies where the loader has put it before the first instruction (initial-exec).
#include <ration/hooks.h>

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static rn_hooks_calls real;
static _Atomic(const rn_hooks_calls *) counting; // NULL: nothing is counted
static atomic_bool is_resolved;
static bool sees_mappings;
static _Thread_local bool busy
    __attribute__((tls_model("initial-exec"))); // this thread is counting
static uintptr_t ours_begin, ours_end;          // libration.so: its memory is the profiler's

// ---- before the C library is known ----------------------------------------------------

static _Alignas(64) char early[16 << 10];
static size_t early_used;

static void *early_alloc(size_t align, size_t bytes) {
    size_t begin = (early_used + align - 1) & ~(align - 1);
    if (begin > sizeof early || bytes > sizeof early - begin) return NULL;
    early_used = begin + bytes;
    return early + begin; // zero: nothing is handed out twice
}

static bool is_early(const void *block) {
    return (const char *)block >= early && (const char *)block < early + sizeof early;
}

// `block` is early, or NULL.
static void *early_realloc(char *block, size_t bytes) {
    void *moved = malloc(bytes);
    if (!moved || !block) return moved;
    size_t most = sizeof early - (size_t)(block - early);
    return memcpy(moved, block, bytes < most ? bytes : most);
}

// The first call comes from the loader, before there are threads.
static void resolve(void) {
    static bool is_busy;
    if (is_busy) return;
    is_busy = true;
    rn_hooks_calls found = {0};
    *(void **)&found.malloc = dlsym(RTLD_NEXT, "malloc");
    *(void **)&found.calloc = dlsym(RTLD_NEXT, "calloc");
    *(void **)&found.realloc = dlsym(RTLD_NEXT, "realloc");
    *(void **)&found.posix_memalign = dlsym(RTLD_NEXT, "posix_memalign");
    *(void **)&found.aligned_alloc = dlsym(RTLD_NEXT, "aligned_alloc");
    *(void **)&found.memalign = dlsym(RTLD_NEXT, "memalign");
    *(void **)&found.free = dlsym(RTLD_NEXT, "free");
    *(void **)&found.mmap = dlsym(RTLD_NEXT, "mmap");
    *(void **)&found.munmap = dlsym(RTLD_NEXT, "munmap");
    real = found;
    atomic_store_explicit(&is_resolved, true, memory_order_release);
}

// Whose functions serve this caller, to be left again; NULL: nobody's yet.
static const rn_hooks_calls *enter(const void *caller) {
    if (!atomic_load_explicit(&is_resolved, memory_order_acquire)) {
        resolve();
        if (!atomic_load_explicit(&is_resolved, memory_order_acquire)) return NULL;
    }
    const rn_hooks_calls *on = atomic_load_explicit(&counting, memory_order_acquire);
    bool ours = (uintptr_t)caller >= ours_begin && (uintptr_t)caller < ours_end;
    if (!on || ours || busy) return &real;
    busy = true;
    return on;
}

static void leave(const rn_hooks_calls *c) {
    if (c && c != &real) busy = false;
}
#define ENTER enter(__builtin_return_address(0))

// By its name whoever walks a stack finds this library.
void rn_preload_is_here(void);
EXPORT void rn_preload_is_here(void) {}

// ---- the family

EXPORT void *malloc(size_t bytes) {
    const rn_hooks_calls *c = ENTER;
    void *block = c ? c->malloc(bytes) : early_alloc(16, bytes);
    leave(c);
    return block;
}

EXPORT void *calloc(size_t count, size_t bytes) {
    const rn_hooks_calls *c = ENTER;
    size_t whole = 0;
    bool fits = !__builtin_mul_overflow(count, bytes, &whole);
    void *block = c ? c->calloc(count, bytes) : fits ? early_alloc(16, whole) : NULL;
    leave(c);
    return block;
}

static void *resize(const rn_hooks_calls *c, void *block, size_t bytes) {
    void *moved = c && !is_early(block) ? c->realloc(block, bytes) : NULL;
    leave(c);
    return c && !is_early(block) ? moved : early_realloc(block, bytes);
}

EXPORT void *realloc(void *block, size_t bytes) {
    return resize(ENTER, block, bytes);
}

EXPORT void *reallocarray(void *block, size_t count, size_t bytes) {
    size_t whole;
    if (!__builtin_mul_overflow(count, bytes, &whole)) return resize(ENTER, block, whole);
    errno = ENOMEM;
    return NULL;
}

EXPORT int posix_memalign(void **out, size_t align, size_t bytes) {
    const rn_hooks_calls *c = ENTER;
    int error = 0;
    if (c)
        error = c->posix_memalign(out, align, bytes);
    else if (!(*out = early_alloc(align, bytes)))
        error = ENOMEM;
    leave(c);
    return error;
}

EXPORT void *aligned_alloc(size_t align, size_t bytes) {
    const rn_hooks_calls *c = ENTER;
    void *block = c ? c->aligned_alloc(align, bytes) : early_alloc(align, bytes);
    leave(c);
    return block;
}

EXPORT void *memalign(size_t align, size_t bytes) {
    const rn_hooks_calls *c = ENTER;
    void *block = c ? c->memalign(align, bytes) : early_alloc(align, bytes);
    leave(c);
    return block;
}

EXPORT void *valloc(size_t bytes) {
    const rn_hooks_calls *c = ENTER;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *block = c ? c->memalign(page, bytes) : early_alloc(page, bytes);
    leave(c);
    return block;
}

EXPORT void free(void *block) {
    if (is_early(block)) return;
    const rn_hooks_calls *c = ENTER;
    if (c) c->free(block);
    leave(c);
}

static void *map(const rn_hooks_calls *c, void *address, size_t bytes, int protection, int flags,
                 int file, off_t offset) {
    const rn_hooks_calls *by = sees_mappings && c ? c : &real;
    void *block = by->mmap ? by->mmap(address, bytes, protection, flags, file, offset)
                           : (void *)syscall(SYS_mmap, address, bytes, protection, flags, file,
                                             offset); // while the C library's is looked up
    leave(c);
    return block;
}

EXPORT void *mmap(void *address, size_t bytes, int protection, int flags, int file, off_t offset) {
    return map(ENTER, address, bytes, protection, flags, file, offset);
}

EXPORT void *mmap64(void *address, size_t bytes, int protection, int flags, int file,
                    off64_t offset) {
    return map(ENTER, address, bytes, protection, flags, file, offset);
}

EXPORT int munmap(void *address, size_t bytes) {
    const rn_hooks_calls *c = ENTER;
    const rn_hooks_calls *by = sees_mappings && c ? c : &real;
    int error = by->munmap ? by->munmap(address, bytes) : (int)syscall(SYS_munmap, address, bytes);
    leave(c);
    return error;
}

// ---- from the beginning to the end

// The preload library's messages go to the program's error stream, as the loader's do.
static void complain(const char *what, const char *why) {
    char text[1024];
    int bytes = snprintf(text, sizeof text, "ration: %s: %s\n", what, why);
    if (bytes > 0)
        (void)!write(STDERR_FILENO, text,
                     (size_t)bytes < sizeof text ? (size_t)bytes : sizeof text - 1);
}

static int find_ours(struct dl_phdr_info *info, size_t info_bytes, void *self) {
    uintptr_t inside = (uintptr_t)rn_profile_start, begin = UINTPTR_MAX, end = 0;
    (void)info_bytes, (void)self;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type != PT_LOAD) continue;
        uintptr_t from = info->dlpi_addr + p->p_vaddr;
        if (from < begin) begin = from;
        if (from + p->p_memsz > end) end = from + p->p_memsz;
    }
    if (inside < begin || inside >= end) return 0;
    ours_begin = begin, ours_end = end;
    return 1;
}

static uint64_t size_variable(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);
    uint64_t bytes = otherwise;
    if (text && text[0] && rn_size_parse((rn_str){text, strlen(text)}, 0, &bytes) != RN_OK) {
        complain(name, rn_last_error()->message);
        return otherwise;
    }
    return bytes;
}

static bool says(const char *name, const char *value) {
    const char *text = getenv(name);
    return text && strcmp(text, value) == 0;
}

// "run.rntrace" -> "run.1234.rntrace"
static void name_for_child(const char *path, char *out, size_t bytes) {
    const char *slash = strrchr(path, '/'), *dot = strrchr(path, '.');
    if (!dot || (slash && dot < slash)) dot = path + strlen(path);
    (void)snprintf(out, bytes, "%.*s.%ld%s", (int)(dot - path), path, (long)getpid(), dot);
}

static void read_command(char *out, size_t bytes) {
    FILE *file = fopen("/proc/self/cmdline", "r");
    size_t count = file ? fread(out, 1, bytes - 1, file) : 0;
    if (file) (void)fclose(file);
    while (count > 0 && out[count - 1] == '\0')
        count--;
    for (size_t i = 0; i < count; i++)
        if (out[i] == '\0') out[i] = ' ';
    out[count] = '\0';
}

static void start(const char *path) {
    char command[256];
    const char *interval = getenv(RN_PRELOAD_INTERVAL);
    read_command(command, sizeof command);
    rn_profile_options options = {
        .path = path,
        .command = command,
        .limit_bytes = size_variable(RN_PRELOAD_FILE_LIMIT, 0),
        .snapshot_seconds = interval ? strtod(interval, NULL) : 0,
    };
    if (rn_profile_start(&options) != RN_OK) complain(path, rn_last_error()->message);
}

static void go_on_in_child(void) {
    char path[4096];
    const char *file = getenv(RN_PRELOAD_FILE);
    if (!file || !atomic_load(&counting)) return;
    name_for_child(file, path, sizeof path);
    start(path);
    rn_hooks_replay();
}

// Whether FILE belongs to another process, whose child this is.
static bool is_child(void) {
    char pid[32];
    (void)snprintf(pid, sizeof pid, "%ld", (long)getpid());
    const char *owner = getenv(RN_PRELOAD_OWNER);
    if (owner) return strcmp(owner, pid) != 0;
    (void)setenv(RN_PRELOAD_OWNER, pid, 1);
    return false;
}

__attribute__((constructor)) static void begin(void) {
    char own_path[4096];
    const char *path = getenv(RN_PRELOAD_FILE);
    bool follows = says(RN_PRELOAD_CHILDREN, "1");
    leave(enter(NULL));
    if (!path || !path[0]) return;
    if (is_child()) {
        if (!follows) return;
        name_for_child(path, own_path, sizeof own_path);
        path = own_path;
    }
    (void)dl_iterate_phdr(find_ours, NULL);
    sees_mappings = says(RN_PRELOAD_ALLOCATIONS, "all");
    rn_hooks_set_filter(sees_mappings ? (rn_hooks_filter){0, 0} : RN_HOOKS_TENSORS);
    rn_hooks_set_limit(size_variable(RN_PRELOAD_LIMIT, RN_NO_LIMIT));
    start(path);
    rn_hooks_set_stacks(!says(RN_PRELOAD_STACKS, "false"));
    atomic_store(&counting, rn_hooks_wrap(&real));
    if (follows) (void)pthread_atfork(NULL, NULL, go_on_in_child); // after the recorder's own
}

__attribute__((destructor)) static void end(void) {
    if (!atomic_exchange(&counting, NULL)) return;
    if (rn_profile_stop() != RN_OK) complain("the recording", rn_last_error()->message);
}
