// scratch.c — the memory of a save, a verification, a resumption: planned as the phase "save".
//
//     | a tensor as f32 (most) | a chunk of it | a writer's buffers |
//
// On the host it is the arena above what persists: no session runs meanwhile. So writing a file
// takes nothing beside the plan but tables of names.
#include "train/trainer.h"

#include "base/checked.h"
#include "io/writer.h"
#include "memory/account.h"

static size_t tensor_bytes(uint64_t most) {
    uint64_t elements = most + rn_min_u64(most, RN_TRAINER_CHUNK);
    return (size_t)rn_round_up(elements * sizeof(float), RN_PAGE_BYTES);
}

// No larger than a tensor needs.
size_t rn_trainer_buffer_bytes(uint64_t most) {
    enum { MOST = 256 << 10, LEAST = 8 << 10 };
    return (size_t)rn_round_up(rn_min_u64(most * sizeof(float), MOST), LEAST);
}

uint64_t rn_trainer_scratch_bytes(uint64_t most) {
    rn_writer_options options = {.buffer_bytes = rn_trainer_buffer_bytes(most)};
    return tensor_bytes(most) + rn_writer_buffers_bytes(&options) + RN_PAGE_BYTES;
}

// Blocks one behind the other; all of them go at once.
static void *take_block(void *self, size_t bytes, size_t align) {
    rn_trainer_scratch *s = self;
    uintptr_t at = rn_round_up((uintptr_t)s->buffers + s->used, align);
    size_t end = (size_t)(at - (uintptr_t)s->buffers) + bytes;
    if (end > s->buffers_bytes) {
        (void)rn_fail(RN_INTERNAL, "the plan of a save is too small: %zu of %zu bytes", end,
                      s->buffers_bytes);
        return NULL;
    }
    s->used = end;
    return (void *)at;
}

static void leave_block(void *self, void *block, size_t bytes) {
    (void)self, (void)block, (void)bytes;
}

rn_status rn_trainer_scratch_take(rn_trainer *trainer, rn_trainer_scratch *out) {
    *out = (rn_trainer_scratch){.bytes = rn_trainer_scratch_bytes(trainer->most)};
    out->values = rn_program_scratch(trainer->run, RN_TRAINER_SAVE);
    if (!out->values) { // the arena is not on the host
        RN_TRY(rn_alloc(RN_HOST_IO, out->bytes, &out->block));
        out->values = out->block;
    }
    out->chunk = out->values + trainer->most;
    out->buffers = (uint8_t *)out->values + tensor_bytes(trainer->most);
    out->buffers_bytes = out->bytes - tensor_bytes(trainer->most);
    out->from = (rn_allocator){.self = out, .alloc = take_block, .free = leave_block};
    return RN_OK;
}

void rn_trainer_scratch_free(rn_trainer_scratch *scratch) {
    rn_free(RN_HOST_IO, scratch->block, scratch->bytes);
}
