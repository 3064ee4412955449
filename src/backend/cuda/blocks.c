// blocks.c — linear probing; a removal moves what follows back, so that there are no gravestones.
#include "backend/cuda/blocks.h"

#define FIRST_CAPACITY 256

static size_t home_of(const rn_cuda_blocks *blocks, uint64_t address) {
    // Addresses are multiples of 256; a product with an odd number spreads them over the high bits.
    return (size_t)((address >> 8) * UINT64_C(0x9E3779B97F4A7C15) >> 32) & (blocks->capacity - 1);
}

static rn_cuda_block *slot_of(const rn_cuda_blocks *blocks, uint64_t address) {
    size_t i = home_of(blocks, address);
    while (blocks->slots[i].block.address && blocks->slots[i].block.address != address)
        i = (i + 1) & (blocks->capacity - 1);
    return &blocks->slots[i];
}

static rn_status grow(rn_cuda_blocks *blocks) {
    rn_cuda_blocks old = *blocks;
    size_t capacity = old.capacity ? 2 * old.capacity : FIRST_CAPACITY;
    void *slots;
    RN_TRY(rn_alloc_zeroed(old.from, capacity, sizeof(rn_cuda_block), &slots));
    blocks->slots = slots;
    blocks->capacity = capacity;
    for (size_t i = 0; i < old.capacity; i++)
        if (old.slots[i].block.address) *slot_of(blocks, old.slots[i].block.address) = old.slots[i];
    rn_cuda_blocks_free(&old);
    return RN_OK;
}

void rn_cuda_blocks_free(rn_cuda_blocks *blocks) {
    rn_free(blocks->from, blocks->slots, blocks->capacity * sizeof(rn_cuda_block));
    blocks->slots = NULL;
    blocks->capacity = blocks->count = 0;
}

rn_status rn_cuda_blocks_add(rn_cuda_blocks *blocks, rn_cuda_block block) {
    if (2 * (blocks->count + 1) > blocks->capacity) RN_TRY(grow(blocks));
    *slot_of(blocks, block.block.address) = block;
    blocks->count++;
    return RN_OK;
}

rn_cuda_block *rn_cuda_blocks_find(const rn_cuda_blocks *blocks, uint64_t address) {
    if (blocks->capacity == 0 || address == 0) return NULL;
    rn_cuda_block *slot = slot_of(blocks, address);
    return slot->block.address ? slot : NULL;
}

void rn_cuda_blocks_remove(rn_cuda_blocks *blocks, rn_cuda_block *found) {
    size_t mask = blocks->capacity - 1, hole = (size_t)(found - blocks->slots);
    for (size_t i = (hole + 1) & mask; blocks->slots[i].block.address; i = (i + 1) & mask) {
        size_t home = home_of(blocks, blocks->slots[i].block.address);
        if (((i - home) & mask) < ((i - hole) & mask)) continue; // its home lies behind the hole
        blocks->slots[hole] = blocks->slots[i];
        hole = i;
    }
    blocks->slots[hole] = (rn_cuda_block){0};
    blocks->count--;
}
