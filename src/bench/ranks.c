// ranks.c — see ranks.h.
//
// Of n + m figures without a difference between the sets, each of the C(n + m, n) orders is as
// likely as any other. How many of them have U = u is the coefficient of q^u in
//
//     (1 - q^(m+1)) (1 - q^(m+2)) ... (1 - q^(m+n))  /  (1 - q) (1 - q^2) ... (1 - q^n)
//
// which is multiplied out factor by factor. A coefficient depends on those before it alone, so the
// small ones of the tail, which are what is wanted, are not touched by the rounding of large ones.
#include "bench/ranks.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_PAIRS = RN_RANKS_MOST * RN_RANKS_MOST };

size_t rn_ranks_of_interval(size_t n, size_t m, double confidence) {
    double orders[MOST_PAIRS / 2 + 1], all = 1, below = 0;
    size_t last = n * m / 2; // the distribution is symmetric
    if (n == 0 || m == 0 || n > RN_RANKS_MOST || m > RN_RANKS_MOST) return 0;
    memset(orders, 0, sizeof orders);
    orders[0] = 1;
    for (size_t i = 1; i <= n; i++) {
        for (size_t u = last; u >= m + i; u--)
            orders[u] -= orders[u - m - i];
        for (size_t u = i; u <= last; u++)
            orders[u] += orders[u - i];
        all *= (double)(m + i) / (double)i;
    }
    for (size_t u = 0; u <= last; u++) {
        below += orders[u] / all;
        if (below > (1 - confidence) / 2) return u;
    }
    return last;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double rn_median(double *figures, size_t count) {
    qsort(figures, count, sizeof *figures, compare);
    return (figures[(count - 1) / 2] + figures[count / 2]) / 2;
}

bool rn_ranks_shift(const double *before, size_t n, const double *after, size_t m,
                    double confidence, double *out_shift, rn_interval *out_interval) {
    double differences[MOST_PAIRS];
    size_t k = rn_ranks_of_interval(n, m, confidence), count = 0;
    if (k == 0) return false;
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < m; j++)
            differences[count++] = after[j] - before[i];
    *out_shift = rn_median(differences, count);
    *out_interval = (rn_interval){differences[k - 1], differences[count - k]};
    return true;
}
