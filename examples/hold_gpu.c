// hold_gpu.c — takes a GPU's memory away from others, for as long as its standard input is open.
//
//     hold_gpu 64MiB < fifo      leaves so much beside what another process's context takes
//
// The context's size is taken from its own: kernels and driver take the same in every process.
// Prints one line when it has done so: what it holds, what is free, what its context takes.
#include <ration/cuda.h>
#include <ration/ration.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)

// The largest piece that leaves `leave` bytes, 0 where there is none.
static uint64_t find_piece(uint64_t free_bytes, uint64_t leave) {
    static const uint64_t pieces[] = {4096 * MIB, 256 * MIB, 16 * MIB, 2 * MIB};
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
        if (free_bytes >= leave + pieces[i]) return pieces[i];
    return 0;
}

static rn_status hold(rn_device *gpu, uint64_t leave) {
    rn_gpu_memory_info info;
    RN_TRY(rn_cuda_memory_info(gpu, &info));
    leave += info.unaccounted_bytes;
    for (uint64_t piece; (piece = find_piece(info.free_bytes, leave));) {
        void *block;
        RN_TRY(rn_cuda_allocate(gpu, piece, &block)); // goes back with the device
        RN_TRY(rn_cuda_memory_info(gpu, &info));
    }
    printf("holds %llu free %llu outside %llu\n", (unsigned long long)rn_cuda_current_bytes(gpu),
           (unsigned long long)info.free_bytes, (unsigned long long)info.unaccounted_bytes);
    fflush(stdout);
    char byte;
    while (read(STDIN_FILENO, &byte, 1) > 0)
        continue;
    return RN_OK;
}

int main(int argc, char **argv) {
    rn_device *gpu = NULL;
    uint64_t leave = 0;
    if (argc != 2 || rn_size_parse((rn_str){argv[1], strlen(argv[1])}, 0, &leave) != RN_OK) {
        fprintf(stderr, "usage: hold_gpu SIZE\n");
        return 2;
    }
    rn_status s = rn_cuda_device_create(0, 1, &gpu);
    if (s == RN_OK) s = hold(gpu, leave);
    if (s != RN_OK) fprintf(stderr, "hold_gpu: %s\n", rn_last_error()->message);
    rn_device_destroy(gpu);
    return s == RN_OK ? 0 : s == RN_UNSUPPORTED || s == RN_NOT_FOUND ? 77 : 3;
}
