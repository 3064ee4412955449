// rank_part.h — the part of a model that one of several ranks computes, as a recipe of its own: a
// planner, a session and a generator then do with it what they do with a whole model.
//
//     blocks   embedding, layers 0 .. 10 │ layers 11 .. 21, head
//     rank         0   ── hidden rows ──▶   1   ── logits ──▶ rank 0
//
// Or all blocks on each rank, with its part of their heads and products (rn_graph_share_heads).
#ifndef RN_GENERATE_RANK_PART_H
#define RN_GENERATE_RANK_PART_H

#include "generate/generate.h"

// What of a model a rank has. It must lie where it is while the maker of it is used.
typedef struct rn_rank_part {
    rn_text_maker whole;
    uint32_t rank, ranks;
    uint32_t first_block, end_block; // of the whole graph
    bool heads;                      // of all blocks its heads and rows of products, instead
} rn_rank_part;

// The maker of that part.
rn_text_maker rn_rank_part_maker(const rn_rank_part *part);

// The blocks of all ranks: out_first (ranks + 1). Of layers each rank has one at least; the
// embedding goes with the first, the head with the last. room_bytes (ranks): what each has for
// weights and KV cache. RN_INVALID: more ranks than layers.
RN_MUST_USE rn_status rn_rank_parts_cut(const rn_graph *whole, const uint64_t *room_bytes,
                                        uint32_t ranks, uint32_t *out_first);

// A graph of the maker's.
RN_MUST_USE rn_status rn_text_maker_build(const rn_text_maker *maker, const rn_text_options *text,
                                          rn_graph **out);

#endif
