// errors.c — what the texts of CUDA's driver, of its libraries and of PyTorch on top of them mean.
#include "backend/cuda/cuda.h"

static const rn_error_row rows[] = {
    RN_ERROR_TEXT("cuda_out_of_memory",
                  "CUDA_ERROR_OUT_OF_MEMORY|CUDA out of memory|cudaErrorMemoryAllocation|"
                  "CUBLAS_STATUS_ALLOC_FAILED",
                  "the GPU's memory is full", "other processes may hold it, too: see nvidia-smi"),
    RN_ERROR_TEXT("cuda_driver_insufficient",
                  "CUDA driver version is insufficient|cudaErrorInsufficientDriver|"
                  "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH|CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE|"
                  "the CUDA driver * has no cu",
                  "NVIDIA's driver is too old, or not the one that the kernel has loaded",
                  "install a newer driver and restart the machine"),
    RN_ERROR_TEXT(
        "cuda_no_device",
        "CUDA_ERROR_NO_DEVICE|no CUDA-capable device|CUDA_ERROR_INVALID_DEVICE|there is no cuda:",
        "there is no such GPU", "nvidia-smi lists them; CUDA_VISIBLE_DEVICES may hide some"),
    RN_ERROR_TEXT("cuda_no_driver", "no CUDA driver|Found no NVIDIA driver|CUDA_ERROR_STUB_LIBRARY",
                  "NVIDIA's driver is not installed, or not visible in this container",
                  "install it, or start the container with --gpus"),
    RN_ERROR_TEXT("cuda_failed", "CUDA_ERROR_|CUDA error:", "the GPU or its driver failed",
                  "see the system's log (dmesg) for NVRM messages"),
};

const rn_error_table rn_cuda_errors = {rows, sizeof rows / sizeof *rows};
