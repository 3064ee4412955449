// place_bench.c — how often `rn_place` finds the optimum of problems whose optimum is known.
//
//     place_bench [SEEDS [SECONDS]]        a table: families x pieces, solved of SEEDS, median s
//     place_bench --write FOLDER [SEEDS]   the same problems as CSV files, for other programs
//     place_bench --files SECONDS CAPACITY FILE.csv...   any files: seconds, nodes, fits or not;
//                                          CAPACITY 0: the lowest height, and the gap to the bound
//
// Seconds are the process's own (user and system), so a busy machine changes little.
#include "../tests/support/cut_rectangle.h"

#include <ration/ration.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST = 400, MOST_SEEDS = 100, HEIGHT = 1 << 20, GRAIN = 1 << 10 };

static const size_t piece_counts[] = {20, 40, 60, 80, 120, 200, 300};
enum { PIECE_COUNTS = sizeof piece_counts / sizeof *piece_counts };

static double seconds_used(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static double deadline;
static rn_place_answer check_time(void *self) {
    (void)self;
    return seconds_used() < deadline ? RN_PLACE_CONTINUE : RN_PLACE_STOP;
}

static void must(rn_status s) {
    if (s == RN_OK) return;
    fprintf(stderr, "place_bench: %s\n", rn_last_error()->message);
    exit(1);
}

static double place(const rn_place_buffer *buffers, size_t count, double seconds, uint64_t capacity,
                    uint64_t *offsets, rn_placement *out) {
    double start = seconds_used();
    deadline = start + seconds;
    rn_place_options options = {.capacity_bytes = capacity,
                                .effort = capacity ? RN_PLACE_FIT : RN_PLACE_BEST,
                                .node_limit = UINT64_MAX,
                                .check = check_time};
    must(rn_place(buffers, count, &options, offsets, out));
    double used = seconds_used() - start;
    // Looks at every pair: not for the largest.
    if (count <= 20000 && !rn_place_is_valid(buffers, count, offsets, out->height_bytes)) {
        fprintf(stderr, "place_bench: a placement is not valid\n");
        exit(1);
    }
    return used;
}

// ---- problems with a known optimum --------------------------------------------------------------

static rn_place_buffer buffers[MOST];
static uint64_t bottoms[MOST], offsets[MOST];

static cut_rectangle cut(cut_family family, size_t pieces, uint64_t seed) {
    cut_rectangle r = {.buffers = buffers,
                       .bottom = bottoms,
                       .moments = 2 * pieces,
                       .height_bytes = HEIGHT,
                       .grain = GRAIN};
    cut_make(&r, family, seed, pieces);
    return r;
}

static int by_value(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return a < b ? -1 : a > b;
}

static void print_cell(cut_family family, size_t pieces, uint64_t seeds, double seconds,
                       uint64_t *solved_in_all) {
    double used[MOST_SEEDS];
    uint64_t solved = 0;
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        cut_rectangle r = cut(family, pieces, seed);
        rn_placement p;
        used[seed - 1] = place(r.buffers, r.count, seconds, HEIGHT, offsets, &p);
        solved += p.height_bytes == HEIGHT;
    }
    qsort(used, seeds, sizeof *used, by_value);
    printf("  %3llu %7.3f", (unsigned long long)solved, used[seeds / 2]);
    fflush(stdout);
    *solved_in_all += solved;
}

static void print_table(uint64_t seeds, double seconds) {
    uint64_t solved = 0;
    printf("placed without a gap, of %llu each; median seconds (limit %.0f)\n  %-10s",
           (unsigned long long)seeds, seconds, "pieces");
    for (size_t i = 0; i < PIECE_COUNTS; i++)
        printf("  %11zu", piece_counts[i]);
    for (cut_family family = CUT_GUILLOTINE; family < CUT_FAMILIES; family++) {
        printf("\n  %-10s", cut_family_names[family]);
        for (size_t i = 0; i < PIECE_COUNTS; i++)
            print_cell(family, piece_counts[i], seeds, seconds, &solved);
    }
    uint64_t all = (uint64_t)CUT_FAMILIES * PIECE_COUNTS * seeds;
    printf("\n  %llu of %llu\n", (unsigned long long)solved, (unsigned long long)all);
}

static void write_all(const char *folder, uint64_t seeds) {
    for (cut_family family = CUT_GUILLOTINE; family < CUT_FAMILIES; family++)
        for (size_t i = 0; i < PIECE_COUNTS; i++)
            for (uint64_t seed = 1; seed <= seeds; seed++) {
                cut_rectangle r = cut(family, piece_counts[i], seed);
                char path[512];
                snprintf(path, sizeof path, "%s/%s.%zu.%llu.csv", folder, cut_family_names[family],
                         piece_counts[i], (unsigned long long)seed);
                FILE *file = fopen(path, "w");
                if (!file) {
                    perror(path);
                    exit(1);
                }
                fprintf(file, "id,lower,upper,size\n");
                for (size_t k = 0; k < r.count; k++)
                    fprintf(file, "%zu,%llu,%llu,%llu\n", k, (unsigned long long)buffers[k].lower,
                            (unsigned long long)buffers[k].upper,
                            (unsigned long long)buffers[k].size_bytes);
                fclose(file);
            }
}

// ---- files --------------------------------------------------------------------------------------

static void place_file(const char *path, double seconds, uint64_t capacity) {
    rn_place_table table;
    rn_placement p;
    const char *name = strrchr(path, '/');
    must(rn_place_table_read(path, &table));
    double used = place(table.buffers, table.count, seconds, capacity, table.offsets, &p);
    printf("  %-24s %7zu buffers  %s  gap %6.3f %%  %8.3f s  %llu nodes\n", name ? name + 1 : path,
           table.count,
           capacity    ? (p.fits ? "fits" : "    ")
           : p.optimal ? "optimal"
                       : "       ",
           100.0 * (double)(p.height_bytes - p.lower_bound_bytes) / (double)p.lower_bound_bytes,
           used, (unsigned long long)p.node_count);
    rn_place_table_free(&table);
}

int main(int argc, char **argv) {
    bool writes = argc > 2 && strcmp(argv[1], "--write") == 0;
    bool files = argc > 4 && strcmp(argv[1], "--files") == 0;
    int at = writes ? 3 : 1;
    uint64_t seeds = argc > at && !files ? strtoull(argv[at], NULL, 10) : 4;
    if (seeds < 1 || seeds > MOST_SEEDS) {
        fprintf(stderr, "place_bench: 1 to %d seeds\n", MOST_SEEDS);
        return 2;
    }
    if (writes) write_all(argv[2], seeds);
    for (int i = 4; files && i < argc; i++)
        place_file(argv[i], strtod(argv[2], NULL), strtoull(argv[3], NULL, 10));
    if (!writes && !files) print_table(seeds, argc > 2 ? strtod(argv[2], NULL) : 2);
    return 0;
}
