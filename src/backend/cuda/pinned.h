// pinned.h — host memory that devices copy from and to at their full rate.
//
// The system cannot move or swap it, so all devices together stay within a limit of their own
// (<ration/cuda.h>). Fences have words of it: a device's queue and a thread of the host tell each
// other by one how far they have come.
#ifndef RN_BACKEND_CUDA_PINNED_H
#define RN_BACKEND_CUDA_PINNED_H

#include "backend/cuda/driver.h"

#include <pthread.h>

// Inside the device's context; asks the limit and the budget, and charges `account`. Page-aligned.
// RN_OVER_BUDGET, RN_NO_MEMORY, RN_DEVICE.
RN_MUST_USE rn_status rn_cuda_pinned_take(const rn_cuda_driver *driver, rn_account account,
                                          uint64_t bytes, void **out);
void rn_cuda_pinned_release(const rn_cuda_driver *driver, rn_account account, void *block,
                            uint64_t bytes);

// ---- words ----------------------------------------------------------------------------

typedef _Atomic uint64_t rn_cuda_word;
typedef struct rn_cuda_word_slab rn_cuda_word_slab;
typedef struct rn_cuda_words {
    const rn_cuda_driver *driver;
    pthread_mutex_t lock;
    rn_cuda_word_slab *slabs;
} rn_cuda_words;

void rn_cuda_words_open(const rn_cuda_driver *driver, rn_cuda_words *out);
// All words are back. Inside the device's context.
void rn_cuda_words_close(rn_cuda_words *words);
// A word of zero, alone in its cache line; inside the device's context.
RN_MUST_USE rn_status rn_cuda_words_take(rn_cuda_words *words, rn_cuda_word **out);
void rn_cuda_words_release(rn_cuda_words *words, rn_cuda_word *word);

#endif
