// stand_in.c — memory for a request that was refused.
//
// ONNX Runtime does not look whether an allocation failed: it writes to where there is nothing. So
// a refused request gets addresses that all lie on the same few megabytes, again and again: what is
// written there is lost, nothing crashes, and no more memory is taken, while the run is told to
// end.
//
//     addresses  |────────|────────|────────|──
//                 └───┬────┴───┬────┴───┬────
//     memory          one window of 4 MiB
#include "backend/ort/ort.h"

#include "base/alloc.h"
#include "base/checked.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#define WINDOW_BYTES ((uint64_t)4 << 20)

typedef struct stand_in stand_in;
struct stand_in {
    void *address;
    uint64_t bytes;
    stand_in *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static stand_in *all;
static int window = -1;

static bool open_window(void) {
    if (window >= 0) return true;
    int file = memfd_create("ration-ort", MFD_CLOEXEC);
    if (file < 0) return false;
    if (ftruncate(file, (off_t)WINDOW_BYTES) != 0) {
        close(file);
        return false;
    }
    window = file;
    return true;
}

static void *map_window(uint64_t bytes) {
    char *begin = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (begin == MAP_FAILED) return NULL;
    for (uint64_t at = 0; at < bytes; at += WINDOW_BYTES) {
        uint64_t part = rn_min_u64(bytes - at, WINDOW_BYTES);
        if (mmap(begin + at, part, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, window, 0) ==
            MAP_FAILED) {
            munmap(begin, bytes);
            return NULL;
        }
    }
    return begin;
}

void *rn_ort_stand_in(uint64_t bytes) {
    void *node = NULL, *address = NULL;
    if (bytes > PTRDIFF_MAX - WINDOW_BYTES) return NULL;
    bytes = rn_round_up(bytes, RN_PAGE_BYTES);
    pthread_mutex_lock(&lock);
    if (open_window() && rn_alloc(&rn_system_allocator, sizeof(stand_in), &node) == RN_OK)
        address = map_window(bytes);
    if (address) {
        *(stand_in *)node = (stand_in){address, bytes, all};
        all = node;
    } else {
        rn_free(&rn_system_allocator, node, sizeof(stand_in));
    }
    pthread_mutex_unlock(&lock);
    return address;
}

bool rn_ort_stand_in_free(void *address) {
    pthread_mutex_lock(&lock);
    stand_in **at = &all;
    while (*at && (*at)->address != address)
        at = &(*at)->next;
    stand_in *one = *at;
    if (one) {
        *at = one->next;
        munmap(one->address, one->bytes);
        rn_free(&rn_system_allocator, one, sizeof *one);
    }
    pthread_mutex_unlock(&lock);
    return one != NULL;
}
