// ops.c — the table of all ops, from ops.def.
#include "graph/op.h"

#define RN_OP(NAME, name) extern const rn_op_info rn_##name##_op;
#include <ration/ops.def>
#undef RN_OP

static const rn_op_info *const ops[RN_OP_COUNT] = {
#define RN_OP(NAME, name) [RN_OP_##NAME] = &rn_##name##_op,
#include <ration/ops.def>
#undef RN_OP
};

const rn_op_info *rn_op_get(rn_op op) {
    return ops[op];
}

const char *rn_op_name(rn_op op) {
    return op < RN_OP_COUNT ? ops[op]->name : "?";
}
