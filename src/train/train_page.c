// train_page.c — a training as a page: curves as SVG, memory as bars. No script, no network.
#include "train/train_log.h"

#include "base/file.h"
#include "base/str.h"
#include "memory/account.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    PAGE_BYTES = 16 << 20,
    WIDTH = 900,
    HEIGHT = 220,
    LEFT = 70,
    RIGHT = 10,
    TOP = 12,
    BOTTOM = 24
};

static const char style[] =
    "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">"
    "<meta name=\"viewport\" content=\"width=device-width\"><title>training</title><style>"
    ":root{color-scheme:light dark;--ink:#1f2328;--paper:#fff;--faint:#8c959f;--grid:#d0d7de}"
    "@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--paper:#0d1117;--faint:#7d8590;"
    "--grid:#30363d}}"
    "body{font:14px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);"
    "max-width:940px;margin:24px auto;padding:0 "
    "16px}h1{font-size:20px}h2{font-size:15px;margin:24px "
    "0 4px}svg{width:100%;height:auto;display:block}svg text{font:11px system-ui,sans-serif;"
    "fill:var(--faint)}.g{stroke:var(--grid);stroke-width:1}.c{fill:none;stroke-width:1.6}"
    "table{border-collapse:collapse;width:100%}td,th{text-align:right;padding:3px 8px;"
    "border-bottom:1px solid var(--grid);font-variant-numeric:tabular-nums}"
    "td:first-child,th:first-child{text-align:left}.bar{display:inline-block;height:10px}"
    "</style></head><body>\n";

// ---- curves -------------------------------------------------------------------------------------

typedef double (*getter)(const rn_train_point *point);
static double loss_of(const rn_train_point *p) {
    return (double)p->loss;
}
static double validation_of(const rn_train_point *p) {
    return (double)p->validation_loss;
}
static double rate_of(const rn_train_point *p) {
    return p->rate;
}
static double norm_of(const rn_train_point *p) {
    return (double)p->gradient_norm;
}
static double speed_of(const rn_train_point *p) {
    return p->tokens_per_second;
}
static double memory_of(const rn_train_point *p) {
    return (double)p->memory_bytes / (1 << 20);
}

typedef struct frame {
    double low, high, first, last;
} frame;

static void widen(const rn_train_log *log, getter get, frame *f) {
    for (uint32_t i = 0; i < log->count; i++) {
        double value = get(&log->points[i]);
        if (!isfinite(value)) continue;
        f->low = fmin(f->low, value);
        f->high = fmax(f->high, value);
    }
}

static double x_of(const frame *f, uint64_t step) {
    double span = f->last > f->first ? f->last - f->first : 1;
    return LEFT + ((double)step - f->first) / span * (WIDTH - LEFT - RIGHT);
}

static double y_of(const frame *f, double value) {
    double span = f->high > f->low ? f->high - f->low : 1;
    return TOP + (f->high - value) / span * (HEIGHT - TOP - BOTTOM);
}

// A gap where there is no number; single points are dots.
static rn_status draw(const rn_train_log *log, getter get, const frame *f, const char *color,
                      bool dots, rn_sink sink) {
    bool open = false;
    for (uint32_t i = 0; i < log->count; i++) {
        double value = get(&log->points[i]), x = x_of(f, log->points[i].step);
        if (!isfinite(value)) continue;
        if (dots)
            RN_TRY(rn_sink_print(sink, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>", x,
                                 y_of(f, value), color));
        if (!open)
            RN_TRY(rn_sink_print(sink, "<polyline class=\"c\" stroke=\"%s\" points=\"", color));
        open = true;
        RN_TRY(rn_sink_print(sink, "%.1f,%.1f ", x, y_of(f, value)));
        if (dots) { // lines would lie about what is between
            RN_TRY(rn_sink_print(sink, "\"/>"));
            open = false;
        }
    }
    return open ? rn_sink_print(sink, "\"/>") : RN_OK;
}

// So that neighbours on the axis differ.
static int decimals_of(const frame *f) {
    int decimals = 0;
    for (double step = (f->high - f->low) / 4; step < 20 && decimals < 9; step *= 10)
        decimals++;
    return decimals;
}

static rn_status draw_grid(const frame *f, rn_sink sink) {
    for (int i = 0; i <= 4; i++) {
        double value = f->low + (f->high - f->low) * i / 4, y = y_of(f, value);
        RN_TRY(rn_sink_print(sink,
                             "<line class=\"g\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>",
                             LEFT, WIDTH - RIGHT, y, y));
        RN_TRY(rn_sink_print(sink, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.*f</text>",
                             LEFT - 6, y + 4, decimals_of(f), value));
    }
    RN_TRY(rn_sink_print(sink, "<text x=\"%d\" y=\"%d\">step %.0f</text>", LEFT, HEIGHT - 6,
                         f->first));
    return rn_sink_print(sink, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%.0f</text>",
                         WIDTH - RIGHT, HEIGHT - 6, f->last);
}

static rn_status write_chart(const rn_train_log *log, const char *title, getter get, getter second,
                             const char *color, rn_sink sink) {
    frame f = {.low = INFINITY, .high = -INFINITY};
    widen(log, get, &f);
    if (second) widen(log, second, &f);
    if (!(f.low <= f.high)) return RN_OK;
    if (f.low == f.high) { // the same all the time: from zero on
        f.low = fmin(f.low, 0);
        f.high = f.high > 0 ? f.high : f.low + 1;
    }
    f.first = (double)log->points[0].step;
    f.last = (double)log->points[log->count - 1].step;
    RN_TRY(rn_sink_print(sink,
                         "<h2>%s</h2><svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">",
                         title, WIDTH, HEIGHT, title));
    RN_TRY(draw_grid(&f, sink));
    RN_TRY(draw(log, get, &f, color, false, sink));
    if (second) RN_TRY(draw(log, second, &f, "#e36209", true, sink));
    return rn_sink_print(sink, "</svg>\n");
}

// ---- memory -------------------------------------------------------------------------------------

static const char *color_of(int purpose) {
    static const char *const colors[] = {"#0969da", "#8250df", "#2da44e",
                                         "#e36209", "#bf3989", "#1b7c83"};
    return colors[purpose % (int)(sizeof colors / sizeof *colors)];
}

static rn_status write_fact(const rn_train_phase_fact *fact, uint64_t most, rn_sink sink) {
    RN_TRY(rn_sink_print(sink, "<tr><td>%s</td><td style=\"text-align:left;width:50%%\">",
                         fact->name));
    uint64_t plan = 0, held = 0;
    for (int i = 0; i < RN_PURPOSE_COUNT; i++) {
        plan += fact->plan_bytes[i];
        held += fact->fact_bytes[i];
        if (fact->fact_bytes[i] == 0) continue;
        RN_TRY(rn_sink_print(
            sink,
            "<span class=\"bar\" title=\"%s %s\" style=\"width:%.2f%%;background:%s\"></span>",
            rn_purpose_name((rn_purpose)i), rn_size_format(fact->fact_bytes[i]).text,
            100 * (double)fact->fact_bytes[i] / (double)most, color_of(i)));
    }
    RN_TRY(rn_sink_print(sink, "</td><td>%s</td>", rn_size_format(plan).text));
    return rn_sink_print(sink, "<td>%s</td><td>%s</td></tr>\n", rn_size_format(held).text,
                         plan == held ? "equal" : "differ");
}

static rn_status write_memory(const rn_train_phase_fact *facts, size_t count, rn_sink sink) {
    uint64_t most = 1;
    for (size_t n = 0; n < count; n++) {
        uint64_t sum = 0;
        for (int i = 0; i < RN_PURPOSE_COUNT; i++)
            sum += facts[n].fact_bytes[i];
        most = sum > most ? sum : most;
    }
    RN_TRY(rn_sink_print(sink, "<h2>memory by phase and purpose</h2><table><tr><th>phase</th>"
                               "<th></th><th>plan</th><th>fact</th><th></th></tr>\n"));
    for (size_t n = 0; n < count; n++)
        RN_TRY(write_fact(&facts[n], most, sink));
    RN_TRY(rn_sink_print(sink, "</table>\n<p>"));
    for (int i = 0; i < RN_PURPOSE_COUNT; i++) {
        uint64_t held = 0;
        for (size_t n = 0; n < count; n++)
            held = facts[n].fact_bytes[i] > held ? facts[n].fact_bytes[i] : held;
        if (held == 0) continue;
        RN_TRY(rn_sink_print(
            sink, "<span class=\"bar\" style=\"width:10px;background:%s\"></span> %s %s &emsp;",
            color_of(i), rn_purpose_name((rn_purpose)i), rn_size_format(held).text));
    }
    return rn_sink_print(sink, "</p>\n");
}

// ---- the page -----------------------------------------------------------------------------------

static rn_status write_escaped(const char *text, rn_sink sink) {
    for (; *text; text++) {
        const char *as = *text == '<' ? "&lt;" : *text == '&' ? "&amp;" : NULL;
        unsigned char c = (unsigned char)*text;
        RN_TRY(as ? rn_sink_print(sink, "%s", as) : rn_sink_print(sink, "%c", c < 32 ? ' ' : c));
    }
    return RN_OK;
}

static rn_status write_page(const rn_train_log *log, const char *title,
                            const rn_train_phase_fact *facts, size_t count, rn_sink sink) {
    RN_TRY(rn_sink_write(sink, style, sizeof style - 1));
    RN_TRY(rn_sink_print(sink, "<h1>"));
    RN_TRY(write_escaped(title, sink));
    RN_TRY(rn_sink_print(sink, "</h1>\n"));
    if (log->count) {
        RN_TRY(
            write_chart(log, "loss (dots: validation)", loss_of, validation_of, "#0969da", sink));
        RN_TRY(write_chart(log, "learning rate", rate_of, NULL, "#2da44e", sink));
        RN_TRY(write_chart(log, "gradient norm", norm_of, NULL, "#8250df", sink));
        RN_TRY(write_chart(log, "tokens a second", speed_of, NULL, "#1b7c83", sink));
        RN_TRY(write_chart(log, "MiB on the ledger", memory_of, NULL, "#bf3989", sink));
    }
    if (count) RN_TRY(write_memory(facts, count, sink));
    return rn_sink_print(sink, "</body></html>\n");
}

rn_status rn_train_log_page(const rn_train_log *log, const char *title,
                            const rn_train_phase_fact *facts, size_t fact_count) {
    char path[PATH_MAX];
    rn_buffer text;
    RN_TRY(rn_path_join(log->folder, "run.html", path, sizeof path));
    rn_buffer_init(&text, RN_HOST_IO, PAGE_BYTES);
    rn_status s = write_page(log, title, facts, fact_count, rn_buffer_sink(&text));
    if (s == RN_OK) s = rn_file_replace(path, text.data, text.bytes);
    rn_buffer_free(&text);
    return s;
}
