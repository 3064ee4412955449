// embedding.h — ids come with each run and are not to be trusted.
#ifndef RN_GRAPH_OP_EMBEDDING_H
#define RN_GRAPH_OP_EMBEDDING_H

#include <ration/status.h>

// RN_INVALID names the first id that is not a row of a table of `vocab` rows, and its place.
static inline rn_status rn_embedding_check(const int32_t *ids, uint64_t count, uint64_t vocab) {
    for (uint64_t i = 0; i < count; i++)
        if (ids[i] < 0 || (uint64_t)ids[i] >= vocab)
            return rn_hint(rn_fail(RN_INVALID, "embedding: id %d at place %llu is not in 0 .. %llu",
                                   ids[i], (unsigned long long)i, (unsigned long long)vocab - 1),
                           "the ids were made for another vocabulary: check the tokenizer");
    return RN_OK;
}

#endif
