// linear_loss.h — linear_cross_entropy as products and losses of chunks of rows, run by a back
// end's kernels for those.
//
//     rows that count ─ gather ─▶ [x] ─ matmul ─▶ [logits] ─ cross_entropy ─▶ loss +=
//                                                 [logits] ─ cross_entropy_grad ─▶ [d logits]
//                                                 [d logits], x ─ matmul ─▶ dw +=
//                                                 [d logits], w ─ matmul ─▶ [dx] ─ scatter ─▶ dx
//
// What stands in brackets lies in the workspace, for one chunk. There are as few chunks, of equal
// size, as RN_LINEAR_LOSS_BYTES of logits allow; so small problems are one chunk, and then all bits
// are those of the ops that it replaces. The gradients are made on the way and not again: logits
// are computed once. For back ends whose memory is the host's.
#ifndef RN_GRAPH_LINEAR_LOSS_H
#define RN_GRAPH_LINEAR_LOSS_H

#include "graph/op.h"

#define RN_LINEAR_LOSS_BYTES ((uint64_t)96 << 20)

enum { RN_LCE_X, RN_LCE_W, RN_LCE_TARGETS, RN_LCE_INPUTS };
enum { RN_LCE_LOSS, RN_LCE_DX, RN_LCE_DW, RN_LCE_OUTPUTS };

RN_MUST_USE rn_status rn_linear_loss_run(const rn_call *call,
                                         rn_status (*run)(const rn_call *part));
uint64_t rn_linear_loss_workspace(const rn_call *call, uint64_t (*workspace)(const rn_call *part));

#endif
