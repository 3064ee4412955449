// stop.h — ends long computations of a thread from outside.
//
//     static rn_flag interrupted;            // a signal handler sets it
//     rn_stop_on(&interrupted);
//     rn_status s = rn_plan_make(...);       // RN_CANCELLED, within a tenth of a second
//
// Heeded by what computes without reading or writing much: planning, placing, reading and writing
// lists of buffers. What has a `cancel` or `check` of its own heeds both.
#ifndef RATION_STOP_H
#define RATION_STOP_H

#include <ration/api.h>

RN_BEGIN_DECLS

// From now on the calling thread's computations look at the flag, which must outlive them; NULL: at
// none.
RN_API void rn_stop_on(const rn_flag *flag);

RN_END_DECLS

#endif
