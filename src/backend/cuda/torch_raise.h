// torch_raise.h — raises PyTorch's own exceptions from C.
#ifndef RN_BACKEND_CUDA_TORCH_RAISE_H
#define RN_BACKEND_CUDA_TORCH_RAISE_H

#include <stdbool.h>

// Throws c10::OutOfMemoryError (torch.OutOfMemoryError in Python) with the message, or c10::Error
// (RuntimeError) where it is not about memory or this PyTorch hides the first one. Returns only
// where PyTorch is not loaded. The caller's frames are unwound without running anything: no lock
// may be held, nothing be owned.
void rn_torch_raise(bool out_of_memory, const char *message);

#endif
