// bench_report.h — what the forms of a report share: tables of texts, and the writers.
#ifndef RN_BENCH_BENCH_REPORT_H
#define RN_BENCH_BENCH_REPORT_H

#include <ration/bench_report.h>

// It ran: RN_BENCH_SUCCESS or RN_BENCH_WRONG.
bool rn_bench_has_figures(const rn_bench_result *result);
// Of the process's ledger, or as the system counts, with the device's; RN_BENCH_UNKNOWN.
uint64_t rn_bench_peak(const rn_bench_result *result, bool of_ledger);

// Fewer samples than these have no interval of 95 %: the smallest and the largest of five leave the
// median out in one case of 16.
enum { RN_BENCH_FEW = 6 };

// In a word: "slower", "too large", "new"; "" where nothing is certain.
const char *rn_bench_verdict(const rn_bench_change *change);

// ---- a table of texts ---------------------------------------------------------------------------

enum { RN_BENCH_COLUMNS = 20 };

typedef struct rn_bench_column {
    const char *title;
    bool is_text; // aligned left
    int rank;     // where a terminal is too narrow, columns of the highest rank are left out first
} rn_bench_column;

typedef struct rn_bench_cell {
    char text[96]; // ASCII or UTF-8 without control characters
} rn_bench_cell;

typedef struct rn_bench_row {
    rn_bench_cell cells[RN_BENCH_COLUMNS]; // "": nothing is known
    char note[512]; // where not empty, it stands in the place of all cells but the first
} rn_bench_row;

// A column without any text is left out.
typedef struct rn_bench_grid {
    const rn_bench_column *columns; // (column_count)
    size_t column_count, row_count;
    rn_bench_row *rows; // (row_count)
} rn_bench_grid;

RN_MUST_USE rn_status rn_bench_grid_create(const rn_bench_column *columns, size_t column_count,
                                           size_t row_count, rn_bench_grid *out);
void rn_bench_grid_destroy(rn_bench_grid *grid);
// RN_BENCH_TEXT within `width` columns, or RN_BENCH_MARKDOWN.
RN_MUST_USE rn_status rn_bench_grid_write(const rn_bench_grid *grid, rn_bench_form form,
                                          uint32_t width, rn_sink sink);

// ---- the forms ----------------------------------------------------------------------------------

RN_MUST_USE rn_status rn_bench_tables_write(const rn_bench_results *results, rn_bench_form form,
                                            const rn_bench_report_options *options, rn_sink sink);
RN_MUST_USE rn_status rn_bench_changes_write(const rn_bench_changes *changes, rn_bench_form form,
                                             uint32_t width, rn_sink sink);
RN_MUST_USE rn_status rn_bench_csv_write(const rn_bench_results *results, rn_sink sink);
RN_MUST_USE rn_status rn_bench_page_write(const rn_bench_results *results,
                                          const rn_bench_changes *changes, rn_sink sink);

#endif
