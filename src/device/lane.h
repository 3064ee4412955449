// lane.h — what every queue does with a command, whichever thread it runs in: poison, cancelling,
// fences.
#ifndef RN_DEVICE_LANE_H
#define RN_DEVICE_LANE_H

#include "device/device.h"

typedef struct rn_lane {
    rn_executor executor;
    const _Atomic bool *cancel; // or NULL
    bool poisoned;
    rn_error_info error; // of the first failure, while poisoned
} rn_lane;

// Carries the command out, or skips it where the lane is poisoned. Fences are reached and notes
// taken either way.
void rn_lane_run(rn_lane *lane, const rn_command *command);
// RN_OK, or the kept error as the thread's own.
rn_status rn_lane_status(const rn_lane *lane);

#endif
