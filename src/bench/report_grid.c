// report_grid.c — a table of texts, aligned for a terminal or as Markdown.
#include "bench/bench_report.h"

#include "base/str.h"
#include "memory/account.h"

#include <string.h>

rn_status rn_bench_grid_create(const rn_bench_column *columns, size_t column_count,
                               size_t row_count, rn_bench_grid *out) {
    void *block = NULL;
    *out = (rn_bench_grid){.columns = columns, .column_count = column_count};
    RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, row_count, sizeof *out->rows, &block));
    out->rows = block;
    out->row_count = row_count;
    return RN_OK;
}

void rn_bench_grid_destroy(rn_bench_grid *grid) {
    rn_free(RN_HOST_OTHER, grid->rows, grid->row_count * sizeof *grid->rows);
    grid->rows = NULL;
    grid->row_count = 0;
}

// Characters and not bytes: "±" is one.
static size_t width_of(const char *text) {
    size_t width = 0;
    for (; *text; text++)
        if ((*text & 0xc0) != 0x80) width++;
    return width;
}

// The widest text of each column; 0 where there is none.
static void measure(const rn_bench_grid *grid, size_t widths[RN_BENCH_COLUMNS]) {
    for (size_t c = 0; c < grid->column_count; c++) {
        widths[c] = 0;
        for (size_t r = 0; r < grid->row_count; r++) {
            size_t width = width_of(grid->rows[r].cells[c].text);
            if (width > widths[c]) widths[c] = width;
        }
        size_t title = width_of(grid->columns[c].title);
        if (widths[c] && title > widths[c]) widths[c] = title;
    }
}

// Leaves columns out, those of the highest rank first, until the rest has room. The first stays.
static void fit(const rn_bench_grid *grid, size_t widths[RN_BENCH_COLUMNS], size_t room) {
    for (;;) {
        size_t all = 0, worst = 0;
        for (size_t c = 0; c < grid->column_count; c++) {
            if (!widths[c]) continue;
            all += widths[c] + (c ? 2 : 0);
            if (c && (!worst || grid->columns[c].rank >= grid->columns[worst].rank)) worst = c;
        }
        if (all <= room || !worst) return;
        widths[worst] = 0;
    }
}

static rn_status pad(rn_sink sink, size_t count) {
    return count ? rn_sink_print(sink, "%*s", (int)count, "") : RN_OK;
}

static rn_status put_aligned(rn_sink sink, const char *text, size_t width, bool left, bool last) {
    size_t missing = width > width_of(text) ? width - width_of(text) : 0;
    if (!left) RN_TRY(pad(sink, missing));
    RN_TRY(rn_sink_write(sink, text, strlen(text)));
    return left && !last ? pad(sink, missing) : RN_OK;
}

// As many characters as have room, with dots where some are cut off.
static rn_status put_cut(rn_sink sink, const char *text, size_t room) {
    if (width_of(text) <= room) return rn_sink_write(sink, text, strlen(text));
    size_t bytes = 0;
    for (size_t shown = 0; shown + 3 < room && text[bytes]; shown++)
        do
            bytes++;
        while ((text[bytes] & 0xc0) == 0x80);
    RN_TRY(rn_sink_write(sink, text, bytes));
    return rn_sink_write(sink, "...", 3);
}

static rn_status put_line(const rn_bench_grid *grid, const rn_bench_row *row,
                          const size_t widths[RN_BENCH_COLUMNS], size_t room, rn_sink sink) {
    size_t last = 0;
    for (size_t c = 0; c < grid->column_count; c++)
        if (widths[c]) last = c;
    for (size_t c = 0; c <= last; c++) {
        if (!widths[c]) continue;
        const char *text = row ? row->cells[c].text : grid->columns[c].title;
        if (c) RN_TRY(rn_sink_write(sink, "  ", 2));
        RN_TRY(put_aligned(sink, text, widths[c], grid->columns[c].is_text, c == last));
        if (row && row->note[0]) {
            size_t used = widths[c] + 2;
            RN_TRY(rn_sink_write(sink, "  ", 2));
            RN_TRY(put_cut(sink, row->note, room > used + 20 ? room - used : 20));
            break;
        }
    }
    return rn_sink_write(sink, "\n", 1);
}

static rn_status write_aligned(const rn_bench_grid *grid, size_t room, rn_sink sink) {
    size_t widths[RN_BENCH_COLUMNS];
    measure(grid, widths);
    fit(grid, widths, room);
    RN_TRY(put_line(grid, NULL, widths, room, sink));
    for (size_t r = 0; r < grid->row_count; r++)
        RN_TRY(put_line(grid, &grid->rows[r], widths, room, sink));
    return RN_OK;
}

// ---- Markdown -----------------------------------------------------------------------------------

static rn_status put_escaped(rn_sink sink, const char *text) {
    for (; *text; text++) {
        if (*text == '|')
            RN_TRY(rn_sink_write(sink, "\\|", 2));
        else if (*text == '<')
            RN_TRY(rn_sink_write(sink, "&lt;", 4));
        else
            RN_TRY(rn_sink_write(sink, *text == '\n' ? " " : text, 1));
    }
    return RN_OK;
}

static rn_status write_markdown(const rn_bench_grid *grid, rn_sink sink) {
    size_t widths[RN_BENCH_COLUMNS];
    measure(grid, widths);
    for (size_t c = 0; c < grid->column_count; c++)
        if (widths[c]) RN_TRY(rn_sink_print(sink, "| %s ", grid->columns[c].title));
    RN_TRY(rn_sink_print(sink, "|\n"));
    for (size_t c = 0; c < grid->column_count; c++)
        if (widths[c]) RN_TRY(rn_sink_print(sink, "|%s", grid->columns[c].is_text ? "---" : "--:"));
    RN_TRY(rn_sink_print(sink, "|\n"));
    for (size_t r = 0; r < grid->row_count; r++) {
        const rn_bench_row *row = &grid->rows[r];
        bool noted = false; // the note stands in the second column
        for (size_t c = 0; c < grid->column_count; c++) {
            if (!widths[c]) continue;
            RN_TRY(rn_sink_print(sink, "| "));
            RN_TRY(put_escaped(sink, c && !noted ? (row->note[0] ? row->note : row->cells[c].text)
                                     : c && row->note[0] ? ""
                                                         : row->cells[c].text));
            if (c) noted = row->note[0];
            RN_TRY(rn_sink_print(sink, " "));
        }
        RN_TRY(rn_sink_print(sink, "|\n"));
    }
    return RN_OK;
}

rn_status rn_bench_grid_write(const rn_bench_grid *grid, rn_bench_form form, uint32_t width,
                              rn_sink sink) {
    return form == RN_BENCH_MARKDOWN ? write_markdown(grid, sink)
                                     : write_aligned(grid, width ? width : 100, sink);
}
