// matmul_widened.h — products that read a weight across, whatever its dtype and layout: gradients
// with respect to x of a frozen weight, for the most part.
#ifndef RN_BACKEND_CPU_MATMUL_WIDENED_H
#define RN_BACKEND_CPU_MATMUL_WIDENED_H

#include "graph/op.h"

// w has rank 2 and is plain or in panels; it is widened to f32, activations are as they are.
rn_status rn_cpu_widened_matmul(const rn_call *call);
uint64_t rn_cpu_widened_matmul_workspace(const rn_call *call);

#endif
