// hook_calls.c — what takes the place of malloc and its family in a library that is watched: asks
// for room, calls the function that would have been called, tells hooks.c what came of it.
#include "profile/hook/hook_count.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "base/checked.h"
#include "profile/hook/hook_got.h"

static rn_hooks_calls real;
static atomic_bool is_wrapped;
static pthread_mutex_t install_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_size_t slot_count;

static void *settle(void *block, size_t bytes, rn_hook_room room) {
    if (room != RN_HOOK_UNWANTED) rn_hook_saw_alloc(block, bytes, room);
    return block;
}

static void *refused(void) {
    errno = ENOMEM;
    return NULL;
}

static void *call_malloc(size_t bytes) {
    rn_hook_room room = rn_hook_take_room(bytes, 0);
    if (room == RN_HOOK_REFUSED) return refused();
    return settle(real.malloc(bytes), bytes, room);
}

static void *call_calloc(size_t count, size_t bytes) {
    size_t whole;
    if (!rn_mul_size(count, bytes, &whole)) return refused();
    rn_hook_room room = rn_hook_take_room(whole, 0);
    if (room == RN_HOOK_REFUSED) return refused();
    return settle(real.calloc(count, bytes), whole, room);
}

// The old block is gone before the new one is there, as far as anyone counts. If there is no new
// one, the old one is still the program's.
static void *call_realloc(void *block, size_t bytes) {
    uint64_t before = rn_hook_saw_free(block);
    void *moved = NULL;
    rn_hook_room room = rn_hook_take_room(bytes, before ? UINT64_MAX : 0);
    bool allowed = room != RN_HOOK_REFUSED;
    if (allowed) moved = settle(real.realloc(block, bytes), bytes, room);
    if (!moved && before && bytes)
        (void)rn_hooks_adopt((uint64_t)(uintptr_t)block, before, RN_PURPOSE_OTHER);
    return allowed ? moved : refused();
}

static void *call_reallocarray(void *block, size_t count, size_t bytes) {
    size_t whole;
    return rn_mul_size(count, bytes, &whole) ? call_realloc(block, whole) : refused();
}

static int call_posix_memalign(void **out, size_t align, size_t bytes) {
    rn_hook_room room = rn_hook_take_room(bytes, align);
    if (room == RN_HOOK_REFUSED) return ENOMEM;
    int error = real.posix_memalign(out, align, bytes);
    (void)settle(error ? NULL : *out, bytes, room);
    return error;
}

static void *call_aligned_alloc(size_t align, size_t bytes) {
    rn_hook_room room = rn_hook_take_room(bytes, align);
    if (room == RN_HOOK_REFUSED) return refused();
    return settle(real.aligned_alloc(align, bytes), bytes, room);
}

static void *call_memalign(size_t align, size_t bytes) {
    rn_hook_room room = rn_hook_take_room(bytes, align);
    if (room == RN_HOOK_REFUSED) return refused();
    return settle(real.memalign(align, bytes), bytes, room);
}

// free leaves errno alone, and so must what is done beside it.
static void call_free(void *block) {
    int code = errno;
    (void)rn_hook_saw_free(block);
    errno = code;
    real.free(block);
}

static void *call_mmap(void *address, size_t bytes, int protection, int flags, int file,
                       long offset) {
    rn_hook_room room = RN_HOOK_UNWANTED;
    bool is_block = (flags & MAP_ANONYMOUS) && !(flags & MAP_FIXED) && protection != PROT_NONE;
    if (is_block) room = rn_hook_take_room(bytes, 0);
    if (room == RN_HOOK_REFUSED) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    void *block = real.mmap(address, bytes, protection, flags, file, offset);
    (void)settle(block == MAP_FAILED ? NULL : block, bytes, room);
    return block;
}

// What is left behind a part unmapped from the front is a block again.
static int call_munmap(void *address, size_t bytes) {
    uint64_t before = rn_hook_saw_free(address);
    int error = real.munmap(address, bytes);
    if (error && before)
        (void)rn_hooks_adopt((uint64_t)(uintptr_t)address, before, RN_PURPOSE_OTHER);
    else if (before > bytes)
        (void)rn_hooks_adopt((uint64_t)(uintptr_t)address + bytes, before - bytes,
                             RN_PURPOSE_OTHER);
    return error;
}

// ---- in and out ---------------------------------------------------------------------------------

typedef struct row {
    const char *name;
    void *hook;
    void **real; // NULL: made of another one
} row;

static const row rows[] = {
    {"malloc", (void *)call_malloc, (void **)&real.malloc},
    {"calloc", (void *)call_calloc, (void **)&real.calloc},
    {"realloc", (void *)call_realloc, (void **)&real.realloc},
    {"reallocarray", (void *)call_reallocarray, NULL},
    {"posix_memalign", (void *)call_posix_memalign, (void **)&real.posix_memalign},
    {"aligned_alloc", (void *)call_aligned_alloc, (void **)&real.aligned_alloc},
    {"memalign", (void *)call_memalign, (void **)&real.memalign},
    {"free", (void *)call_free, (void **)&real.free},
};
#define ROW_COUNT (sizeof rows / sizeof rows[0])

static bool resolve(void) {
    for (size_t i = 0; i < ROW_COUNT; i++) {
        if (rows[i].real && !*rows[i].real) *rows[i].real = dlsym(RTLD_DEFAULT, rows[i].name);
        if (rows[i].real && !*rows[i].real) return false;
    }
    return true;
}

static rn_status install(const char *library) {
    rn_hook_function functions[ROW_COUNT];
    size_t libraries;
    if (!resolve()) return rn_fail(RN_UNSUPPORTED, "the C library's allocator was not found");
    for (size_t i = 0; i < ROW_COUNT; i++)
        functions[i] = (rn_hook_function){rows[i].name, NULL, rows[i].hook};
    size_t slots = rn_hook_got_set(library, functions, ROW_COUNT, &libraries);
    slot_count += slots;
    if (libraries == 0)
        return rn_hint(rn_fail(RN_UNSUPPORTED, "no library %s is loaded", library),
                       "it must be loaded first; a program at a fixed address cannot be watched "
                       "from inside, but by `ration profile run -- PROGRAM`");
    if (slot_count == 0)
        return rn_hint(
            rn_fail(RN_UNSUPPORTED, "%s does not call the C library's allocator", library),
            "`ration profile run -- PROGRAM` sees what the whole process asks for");
    return RN_OK;
}

rn_status rn_hooks_install(const char *library) {
    if (is_wrapped) return RN_OK;
    pthread_mutex_lock(&install_lock);
    rn_status s = install(library ? library : "libc10.so*");
    pthread_mutex_unlock(&install_lock);
    return s;
}

// Every library is looked at, as it is the hooks in the slots that are searched for.
void rn_hooks_remove(void) {
    rn_hook_function functions[ROW_COUNT];
    size_t libraries;
    pthread_mutex_lock(&install_lock);
    for (size_t i = 0; i < ROW_COUNT; i++) {
        void *back = rows[i].real ? *rows[i].real : dlsym(RTLD_DEFAULT, rows[i].name);
        functions[i] = (rn_hook_function){rows[i].name, rows[i].hook, back};
    }
    if (slot_count > 0) {
        (void)rn_hook_got_set("*", functions, ROW_COUNT, &libraries);
        rn_hook_forget();
    }
    slot_count = 0;
    pthread_mutex_unlock(&install_lock);
}

size_t rn_hook_slot_count(void) {
    return slot_count;
}

bool rn_hook_is_wrapped(void) {
    return is_wrapped;
}

const rn_hooks_calls *rn_hooks_wrap(const rn_hooks_calls *calls) {
    static const rn_hooks_calls counting = {
        call_malloc,   call_calloc, call_realloc, call_posix_memalign, call_aligned_alloc,
        call_memalign, call_free,   call_mmap,    call_munmap,
    };
    real = *calls;
    is_wrapped = true;
    return &counting;
}
