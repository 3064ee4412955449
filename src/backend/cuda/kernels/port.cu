// port.cu — small copies between the host and the device, made by threads.
//
// The device's copy engine takes copies one after the other: a token's few kilobytes would wait
// behind the hundred megabytes of weights that are on their way. Threads read and write the host's
// pinned memory beside it, over the same link.
//
// What comes from the host was there before the launch, so it is read before the kernel before this
// one has ended, past all caches; what goes there was made by that kernel.
#include "begin.cuh"

__device__ __forceinline__ uint4 read_host(const uint4 *at) {
    uint4 v;
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(at));
    return v;
}

// One vector a thread, and the bytes behind the last whole one, one by one.
extern "C" __global__ void rn_port(const __grid_constant__ rn_port_args a) {
    uint32_t i = (uint32_t)rn_thread(), whole = a.bytes / 16, at = whole * 16 + (i - whole);
    uint4 v = {};
    uint8_t last = 0;
    if (a.from_host && i < whole) v = read_host((const uint4 *)a.from + i);
    if (a.from_host && i >= whole && at < a.bytes) last = *((const volatile uint8_t *)a.from + at);
    rn_begin();
    if (!a.from_host && i < whole) v = __ldcg((const uint4 *)a.from + i);
    if (!a.from_host && i >= whole && at < a.bytes) last = __ldcg((const uint8_t *)a.from + at);
    if (i < whole) ((uint4 *)a.to)[i] = v;
    if (i >= whole && at < a.bytes) ((uint8_t *)a.to)[at] = last;
}
