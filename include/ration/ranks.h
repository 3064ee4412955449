// ranks.h — a job on more machines than there are here, on paper: what each rank would hold, and
// how long a step would take, from a plan for one rank and a model of the network. Pure functions.
//
//     rn_link link;
//     RN_TRY(rn_link_parse("5us,12.5GB,ring", &link));
//     RN_TRY(rn_ranks_for_text(plan, &shape, &link, 4, rows)); // pipeline, tensor parallel, ...
//     RN_TRY(rn_ranks_for_training(plan, &link, 1024, rows));  // data parallel, ZeRO 1 to 3
//
// The network is latency and bandwidth of one rank's link, the same for all: no contention, no
// slower links between racks. Times are given without any overlap of communication and computing,
// and with all of it hidden that can be.
#ifndef RATION_RANKS_H
#define RATION_RANKS_H

#include <ration/plan.h>

RN_BEGIN_DECLS

typedef enum rn_topology {
    RN_TOPOLOGY_RING, // pieces go round: bandwidth is best, latency grows with the ranks
    RN_TOPOLOGY_TREE, // halving and doubling: latency grows with their logarithm
} rn_topology;

typedef struct rn_link {
    double latency_seconds;  // of a message
    double bytes_per_second; // each way, a rank
    rn_topology topology;
} rn_link;

// "LATENCY,BYTES a second[,ring|tree]": "5us,12.5GB", "100us,117MiB,tree". RN_INVALID.
RN_API RN_MUST_USE rn_status rn_link_parse(const char *text, rn_link *out);

typedef enum rn_collective {
    RN_COLLECTIVE_ALL_REDUCE,
    RN_COLLECTIVE_REDUCE_SCATTER, // `bytes` is the whole that is scattered
    RN_COLLECTIVE_ALL_GATHER,     // `bytes` is the whole that is gathered
    RN_COLLECTIVE_SEND,           // from one rank to the next
} rn_collective;
// 0 for one rank. For N ranks, L latency, B bytes, W bytes a second:
//     ring   reduce-scatter, all-gather: (N - 1) L + (N - 1) / N B / W; all-reduce: both
//     tree   the same with log2 N (rounded up) in the place of the first N - 1
RN_API double rn_collective_seconds(rn_collective collective, const rn_link *link, uint64_t ranks,
                                    uint64_t bytes);

// Consecutive blocks for each rank so that the largest share is as small as can be. out_first
// (ranks + 1): rank r has blocks out_first[r] up to out_first[r + 1], at least one. RN_INVALID:
// more ranks than blocks.
RN_API RN_MUST_USE rn_status rn_ranks_split(const uint64_t *block_bytes, uint32_t block_count,
                                            uint32_t ranks, uint32_t *out_first);

// The same where ranks have room for different numbers of bytes: the largest share is as small as
// can be while each has room for its own. Where no cut does that, the shares exceed their rooms by
// the same factor, as nearly as can be.
RN_API RN_MUST_USE rn_status rn_ranks_split_within(const uint64_t *block_bytes,
                                                   uint32_t block_count,
                                                   const uint64_t *room_bytes /* (ranks) */,
                                                   uint32_t ranks, uint32_t *out_first);

typedef struct rn_ranks_row {
    char name[32]; // "pipeline", "tensor parallel", "ZeRO 3"
    bool possible; // else `why` says why not
    char why[128];
    uint64_t rank_bytes;    // what the fullest rank holds by its plan
    uint64_t traffic_bytes; // that a rank sends in a step
    double seconds;         // of a step (of a token): nothing overlaps
    double least_seconds;   // all communication that can be hidden is
    double prompt_seconds;  // text: for the prompt of the plan's workload
} rn_ranks_row;

// What a plan does not say of a text model.
typedef struct rn_text_shape {
    uint32_t dim, ffn, layers, heads, kv_heads;
} rn_text_shape;
enum { RN_RANKS_TEXT_ROWS = 3, RN_RANKS_TRAIN_ROWS = 4 };
// `plan` is for one rank with all weights resident. Rows: pipeline, tensor parallel, tensor
// parallel that splits output rows only (the same bits as one rank).
RN_API RN_MUST_USE rn_status rn_ranks_for_text(const rn_plan *plan, const rn_text_shape *shape,
                                               const rn_link *link, uint32_t ranks,
                                               rn_ranks_row out[RN_RANKS_TEXT_ROWS]);
// `plan` is a training step of what one rank takes of the batch. Rows: data parallel, ZeRO 1, 2, 3.
// All weights are trained; their gradients have the weights' bytes and are held until reduced.
RN_API RN_MUST_USE rn_status rn_ranks_for_training(const rn_plan *plan, const rn_link *link,
                                                   uint32_t ranks,
                                                   rn_ranks_row out[RN_RANKS_TRAIN_ROWS]);

RN_END_DECLS

#endif
