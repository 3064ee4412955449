// lane.c — the first failure is kept, what follows is skipped, fences are always reached.
#include "device/lane.h"

#include <stdatomic.h>
#include <string.h>

static void poison(rn_lane *lane, const rn_error_info *error) {
    if (lane->poisoned) return;
    lane->error = *error;
    lane->poisoned = true;
}

static bool cancelled(const rn_lane *lane) {
    return lane->cancel && atomic_load(lane->cancel);
}

static rn_status act(rn_lane *lane, const rn_command *command) {
    if (cancelled(lane)) return rn_fail(RN_CANCELLED, "cancelled");
    if (command->kind == RN_COMMAND_CALL)
        return command->as.host.fn(command->as.host.self, command->as.host.index);
    return lane->executor.execute(lane->executor.self, command);
}

void rn_lane_run(rn_lane *lane, const rn_command *command) {
    const rn_error_info *error = NULL;
    switch (command->kind) {
    case RN_COMMAND_SIGNAL:
        rn_fence_reach(command->as.fence.fence, command->as.fence.ticket,
                       lane->poisoned ? &lane->error : NULL);
        return;
    case RN_COMMAND_NOTE:
        command->as.note.fn(command->as.note.self, command->as.note.index, lane->poisoned);
        return;
    case RN_COMMAND_WAIT:
        if (!lane->poisoned)
            error = rn_fence_await(command->as.fence.fence, command->as.fence.ticket);
        break;
    default:
        if (!lane->poisoned && act(lane, command) != RN_OK) error = rn_last_error();
    }
    if (error) poison(lane, error);
}

rn_status rn_lane_status(const rn_lane *lane) {
    return lane->poisoned ? rn_error_restore(&lane->error) : RN_OK;
}

// ---- the host as a device -----------------------------------------------------------------------

static rn_status execute(void *self, const rn_command *command) {
    (void)self;
    switch (command->kind) {
    case RN_COMMAND_LAUNCH:
        return command->as.launch.kernel->run(&command->as.launch.call);
    case RN_COMMAND_COPY_IN:
    case RN_COMMAND_COPY_OUT:
        memcpy(command->as.copy.target, command->as.copy.source, command->as.copy.bytes);
        return RN_OK;
    case RN_COMMAND_ZERO:
        memset(command->as.copy.target, 0, command->as.copy.bytes);
        return RN_OK;
    default:
        return rn_fail(RN_INTERNAL, "command %d is not a device's", (int)command->kind);
    }
}

const rn_executor rn_host_executor = {NULL, execute};
