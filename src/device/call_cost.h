// call_cost.h — how many seconds a call takes on a device, for plans. Pure: rates and caps are all
// that is known, no device is asked.
#ifndef RN_DEVICE_CALL_COST_H
#define RN_DEVICE_CALL_COST_H

#include "device/kernel.h"

// A typical job: rows that come first, runs of one row that follow. {0}: not known.
typedef struct rn_workload {
    uint64_t rows, passes;
} rn_workload;

// Seconds, as the device's back end counts them.
double rn_cost_call(const rn_device_caps *caps, const rn_call *call, rn_workload workload);

// ---- for back ends ------------------------------------------------------------------------------

// What the call computes and moves.
rn_cost rn_cost_count(const rn_call *call);
// Rows of the result: all its axes but the last.
double rn_cost_rows(const rn_call *call);
// The common rates alone: a call is bound by arithmetic or by memory, whichever is slower, and has
// a fixed cost. Products with quantised weights run at their own rate unless activations stay as
// they are, and a product takes as long as one of caps->product_rows more.
double rn_cost_roofline(const rn_device_caps *caps, const rn_call *call, rn_cost cost);

#endif
