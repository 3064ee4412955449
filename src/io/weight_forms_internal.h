// weight_forms_internal.h — a checkpoint's forms, for the files that find and read them.
#ifndef RN_IO_WEIGHT_FORMS_INTERNAL_H
#define RN_IO_WEIGHT_FORMS_INTERNAL_H

#include "io/checkpoint.h"
#include "io/weight_forms.h"

#include <pthread.h>

struct rn_weight_forms {
    rn_weight_form *items; // (count)
    size_t count;
    rn_map by_name;        // X.weight -> index
    pthread_mutex_t mutex; // of `room`
    uint8_t *room;         // (room_bytes), on a 64-byte boundary
    size_t room_bytes;
};

// Bytes of `room` that reading the form takes at least; at most that much of `wanted` is of use.
uint64_t rn_form_room_bytes(const rn_weight_form *form, uint64_t wanted);
// An error with the tensor's file and offset.
rn_status rn_form_blame(const rn_checkpoint *checkpoint, const rn_tensor_info *tensor, rn_status s);
// Adds those that stand for all experts of a layer (form_stacks.c); items has room for as many
// more.
RN_MUST_USE rn_status rn_checkpoint_stack_forms(rn_checkpoint *checkpoint);
// rn_weight_form_read of one of these.
RN_MUST_USE rn_status rn_form_stack_read(const rn_checkpoint *checkpoint,
                                         const rn_weight_form *stack, uint64_t first, uint64_t rows,
                                         rn_form_piece piece, void *self);
// Of the middle of an unsigned number of `bits`.
static inline int rn_form_middle(uint32_t bits) {
    return 1 << (bits - 1);
}

#endif
