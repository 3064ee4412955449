// torch_allocator.h — the allocator's inner door, for tests.
#ifndef RN_BACKEND_CUDA_TORCH_ALLOCATOR_H
#define RN_BACKEND_CUDA_TORCH_ALLOCATOR_H

#include <ration/torch_cuda.h>

// Everything goes back, live blocks included, as if nothing had ever been allocated; limits stay.
// No other call may be under way.
void rn_torch_cuda_clear(void);
// Walks the pools' invariants.
bool rn_torch_cuda_is_valid(void);

#endif
