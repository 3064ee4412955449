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

rn_lookup rn_node_lookup(const rn_node *node) {
    const rn_op_info *info = ops[node->op];
    if (!(info->traits & RN_TRAIT_LOOKUP)) return RN_LOOKUP_NONE;
    return info->lookup ? info->lookup(node->attrs) : RN_LOOKUP_ROWS;
}

const char *rn_op_name(rn_op op) {
    return op < RN_OP_COUNT ? ops[op]->name : "?";
}
