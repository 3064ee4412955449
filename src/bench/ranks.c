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

// Without a difference, each figure's sign is as likely + as -, so each of the 2^n choices among
// the ranks 1 to n is as likely to be the positive ones. How many have the sum w is the coefficient
// of q^w in (1 + q) (1 + q^2) ... (1 + q^n).
size_t rn_ranks_of_pairs(size_t n, double confidence) {
    enum { MOST_SUM = RN_RANKS_MOST * (RN_RANKS_MOST + 1) / 2 };
    double choices[MOST_SUM + 1], below = 0;
    size_t last = n * (n + 1) / 2;
    if (n == 0 || n > RN_RANKS_MOST) return 0;
    memset(choices, 0, sizeof choices);
    choices[0] = 1;
    for (size_t i = 1; i <= n; i++)
        for (size_t w = last; w != SIZE_MAX; w--)
            choices[w] = (choices[w] + (w >= i ? choices[w - i] : 0)) / 2;
    for (size_t w = 0; w <= last / 2; w++) {
        below += choices[w];
        if (below > (1 - confidence) / 2) return w;
    }
    return last / 2;
}

bool rn_ranks_pairs(const double *differences, size_t n, double confidence, double *out_shift,
                    rn_interval *out_interval) {
    double means[RN_RANKS_MOST * (RN_RANKS_MOST + 1) / 2];
    size_t k = rn_ranks_of_pairs(n, confidence), count = 0;
    if (k == 0) return false;
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j <= i; j++)
            means[count++] = (differences[i] + differences[j]) / 2;
    *out_shift = rn_median(means, count);
    *out_interval = (rn_interval){means[k - 1], means[count - k]};
    return true;
}
