// speculate.c — prompt lookup: names, quotations, code and lists say the same thing twice.
#include "generate/speculate.h"

#include "base/checked.h"

#include <string.h>

enum { LONGEST = 3, SHORTEST = 2 }; // of what is looked for

// Where the last earlier occurrence of the last n tokens ends, or 0.
static size_t find_last(const uint32_t *tokens, size_t count, size_t n) {
    const uint32_t *wanted = tokens + count - n;
    for (size_t end = count - 1; end >= n; end--)
        if (tokens[end - 1] == wanted[n - 1] &&
            memcmp(tokens + end - n, wanted, n * sizeof *tokens) == 0)
            return end;
    return 0;
}

uint32_t rn_draft_find(uint32_t *tokens, size_t count, uint32_t most) {
    size_t end = 0;
    for (size_t n = LONGEST; n >= SHORTEST && !end && most; n--)
        if (count > n) end = find_last(tokens, count, n);
    if (!end) return 0;
    for (uint32_t i = 0; i < most; i++)
        tokens[count + i] = tokens[end + i];
    return most;
}

uint32_t rn_draft_adapt(uint32_t length, uint32_t drafted, uint32_t accepted, uint32_t most) {
    if (drafted == 0) return length;
    return (uint32_t)rn_min_u64(accepted == drafted ? 2 * (uint64_t)length : accepted + 1, most);
}
