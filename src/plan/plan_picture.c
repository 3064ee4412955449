// plan_picture.c — the arena as a picture: steps from left to right, addresses from the bottom up.
//
//     address ^  +----+ +--------+
//             |  |    | |        |         a rectangle for each buffer
//             +--+----+-+--------+-> step
//             [ block 0 ][ block 1 ]       what is computed then
//             ___/\__/\____                the bytes that are alive
//
// Numbers are written without printf's decimal point, which depends on the locale.
#include "plan/plan_show.h"

#include "base/checked.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    LEFT = 92,
    TOP = 50,
    WIDTH = 1000,
    HEIGHT = 500,
    BAND_TOP = TOP + HEIGHT + 4, // the blocks
    BAND = 16,
    CURVE_TOP = BAND_TOP + BAND + 34,
    CURVE = 90,
    CURVE_END = CURVE_TOP + CURVE,
    LEGEND = CURVE_END + 24,
    LETTER = 6 // about as wide as a letter of the font
};

// One colour a purpose, light enough for dark lines.
static const char *const colours[RN_PURPOSE_COUNT] = {
    [RN_PURPOSE_WEIGHTS] = "#7fadd4",     [RN_PURPOSE_KV] = "#b3a2d6",
    [RN_PURPOSE_ACTIVATIONS] = "#8fc99b", [RN_PURPOSE_GRADIENTS] = "#e8a87c",
    [RN_PURPOSE_OPTIMIZER] = "#d98f9f",   [RN_PURPOSE_WORKSPACE] = "#d9cf7f",
    [RN_PURPOSE_STAGING] = "#a9a9a9",     [RN_PURPOSE_IO] = "#a9a9a9",
    [RN_PURPOSE_PROFILER] = "#a9a9a9",    [RN_PURPOSE_UNACCOUNTED] = "#a9a9a9",
    [RN_PURPOSE_OTHER] = "#c9c9c9",       [RN_PURPOSE_STATE] = "#c99ccf"};
static const char streamed_colour[] = "#c3dcf0";

// ---- text and numbers ---------------------------------------------------------------------------

static const char *entity_of(char c) {
    return c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '"' ? "&quot;" : NULL;
}

// What stands for the character at text[0], and in *bytes its length; NULL: itself.
static const char *replace(const char *text, size_t *bytes) {
    size_t length = rn_utf8_sequence(text, *bytes);
    bool control = (unsigned char)*text < 0x20 && *text != '\n' && *text != '\t';
    *bytes = length ? length : 1;
    return length == 0 || control || *text == 0x7f ? "?" : entity_of(*text);
}

static rn_status write_escaped(void *self, const char *text, size_t bytes) {
    rn_sink to = *(rn_sink *)self;
    size_t plain = 0, length;
    for (size_t at = 0; at < bytes; at += length) {
        length = bytes - at;
        const char *other = replace(text + at, &length);
        if (!other) continue;
        RN_TRY(rn_sink_write(to, text + plain, at - plain));
        RN_TRY(rn_sink_write(to, other, strlen(other)));
        plain = at + length;
    }
    return rn_sink_write(to, text + plain, bytes - plain);
}

rn_sink rn_plan_escaped(rn_sink *to) {
    return (rn_sink){to, write_escaped};
}

static rn_status escape(rn_sink sink, const char *text) {
    return rn_sink_print(rn_plan_escaped(&sink), "%s", text);
}

// A coordinate, in hundredths.
typedef struct point_text {
    char text[16];
} point_text;

static point_text point(double value) {
    point_text out;
    unsigned hundredths = (unsigned)lround(value * 100);
    snprintf(out.text, sizeof out.text, "%u.%02u", hundredths / 100, hundredths % 100);
    return out;
}
#define POINT(value) point(value).text

static double x_of(const rn_plan *plan, uint32_t step) {
    return LEFT + (double)WIDTH * step / plan->step_count;
}

// tall: the bytes that the picture is high.
static double y_of(uint64_t tall, uint64_t offset) {
    return TOP + HEIGHT * (1 - (double)offset / (double)tall);
}

// ---- the arena ----------------------------------------------------------------------------------

static rn_status draw_box(rn_sink sink, double left, double top, double right, double bottom) {
    return rn_sink_print(sink, "<rect x=\"%s\" y=\"%s\" width=\"%s\" height=\"%s\"", POINT(left),
                         POINT(top), POINT(right - left), POINT(bottom - top));
}

static rn_status draw_buffer(const rn_plan *plan, uint64_t tall, const rn_plan_buffer *b,
                             rn_sink sink) {
    bool streamed = rn_plan_is_streamed(plan, b);
    RN_TRY(draw_box(sink, x_of(plan, b->first_step), y_of(tall, b->offset + b->bytes),
                    x_of(plan, b->last_step + 1), y_of(tall, b->offset)));
    RN_TRY(rn_sink_print(sink, " fill=\"%s\"><title>",
                         streamed ? streamed_colour : colours[b->purpose]));
    RN_TRY(escape(sink, rn_plan_buffer_name(plan, b)));
    return rn_sink_print(sink, "\n%s, %s at %s\nsteps %u to %u</title></rect>\n",
                         streamed ? "weights read in each run" : rn_purpose_name(b->purpose),
                         rn_size_format(b->bytes).text, rn_size_format(b->offset).text,
                         b->first_step + 1, b->last_step + 1);
}

static rn_status draw_buffers(const rn_plan *plan, uint64_t tall, rn_sink sink) {
    RN_TRY(rn_sink_print(sink, "<g class=\"buffers\">\n"));
    for (uint32_t i = 0; i < plan->buffer_count; i++)
        if (plan->buffers[i].bytes) RN_TRY(draw_buffer(plan, tall, &plan->buffers[i], sink));
    return rn_sink_print(sink, "</g>\n");
}

// A line at every power of two bytes of which there are four to eight.
static rn_status draw_axes(uint64_t tall, rn_sink sink) {
    uint64_t tick = 64;
    while (tall / tick > 7)
        tick *= 2;
    for (uint64_t at = 0; at <= tall; at += tick) {
        point_text y = point(y_of(tall, at));
        RN_TRY(rn_sink_print(sink,
                             "<path class=\"grid\" d=\"M%d %sh%d\"/><text class=\"end\" x=\"%d\" "
                             "y=\"%s\" dy=\"4\">%s</text>\n",
                             LEFT - 4, y.text, WIDTH + 4, LEFT - 7, y.text,
                             rn_size_format(at).text));
    }
    return rn_sink_print(sink,
                         "<text transform=\"translate(16 %d) rotate(-90)\" "
                         "text-anchor=\"middle\">address in the arena</text>\n",
                         TOP + HEIGHT / 2);
}

// ---- the blocks ---------------------------------------------------------------------------------

// What is computed in a step for a block; updates stand between the backward nodes of any block.
static const rn_node *node_at(const rn_plan *plan, uint32_t step) {
    if (plan->steps[step].kind != RN_STEP_COMPUTE) return NULL;
    const rn_node *node = rn_graph_node(plan->graph, plan->steps[step].node);
    return node->phase == RN_PHASE_UPDATE ? NULL : node;
}

// The first node from `first` on, and the step at which another block, or its other phase, begins.
static const rn_node *find_block(const rn_plan *plan, uint32_t first, uint32_t *out_end) {
    const rn_node *node = NULL;
    for (*out_end = first; *out_end < plan->step_count; ++*out_end) {
        const rn_node *other = node_at(plan, *out_end);
        if (!node) node = other;
        if (other && (other->block != node->block || other->phase != node->phase)) break;
    }
    return node;
}

// A name that is too long for its block is written smaller: zooming in shows it.
static rn_status draw_name(const char *name, double left, double right, rn_sink sink) {
    double room = (right - left) / ((double)strlen(name) * LETTER + 1);
    RN_TRY(rn_sink_print(sink, "<text x=\"%s\" y=\"%d\" font-size=\"%s\">",
                         POINT((left + right) / 2), BAND_TOP + 12,
                         POINT(room < 1 ? 10 * room : 10)));
    RN_TRY(escape(sink, name));
    return rn_sink_print(sink, "</text>\n");
}

static rn_status draw_block(const rn_plan *plan, const rn_node *node, uint32_t first, uint32_t end,
                            rn_sink sink) {
    double left = x_of(plan, first), right = x_of(plan, end);
    const char *name = rn_graph_block_name(plan->graph, node->block);
    RN_TRY(draw_box(sink, left, BAND_TOP, right, BAND_TOP + BAND));
    RN_TRY(rn_sink_print(sink, "><title>"));
    RN_TRY(escape(sink, name));
    RN_TRY(rn_sink_print(sink, "\n%s, steps %u to %u</title></rect>",
                         node->phase == RN_PHASE_FORWARD ? "forward" : "backward", first + 1, end));
    return draw_name(name, left, right, sink);
}

static rn_status draw_blocks(const rn_plan *plan, rn_sink sink) {
    RN_TRY(rn_sink_print(sink, "<g class=\"blocks\">\n"));
    for (uint32_t first = 0, end; first < plan->step_count; first = end) {
        const rn_node *node = find_block(plan, first, &end);
        if (node) RN_TRY(draw_block(plan, node, first, end, sink));
    }
    return rn_sink_print(sink,
                         "</g>\n<text x=\"%d\" y=\"%d\">step 1</text><text class=\"end\" x=\"%d\" "
                         "y=\"%d\">step %u</text>\n",
                         LEFT, BAND_TOP + BAND + 14, LEFT + WIDTH, BAND_TOP + BAND + 14,
                         plan->step_count);
}

// ---- the curve ----------------------------------------------------------------------------------

static rn_status draw_curve(const rn_plan *plan, uint64_t tall, rn_sink sink) {
    double scale = CURVE / (double)tall;
    RN_TRY(rn_sink_print(sink, "<path class=\"live\" d=\"M%d %d", LEFT, CURVE_END));
    for (uint32_t i = 0; i < plan->step_count; i++)
        RN_TRY(rn_sink_print(sink, "V%sH%s",
                             POINT(CURVE_END - scale * (double)plan->steps[i].live_bytes),
                             POINT(x_of(plan, i + 1))));
    point_text peak = point(CURVE_END - scale * (double)plan->summary.live_peak_bytes);
    return rn_sink_print(sink,
                         "V%dZ\"/>\n<path class=\"peak\" d=\"M%d %sh%d\"/><text class=\"end\" "
                         "x=\"%d\" y=\"%s\" dy=\"4\">%s</text><text class=\"end\" x=\"%d\" "
                         "y=\"%d\">alive</text>\n",
                         CURVE_END, LEFT - 4, peak.text, WIDTH + 4, LEFT - 7, peak.text,
                         rn_size_format(plan->summary.live_peak_bytes).text, LEFT - 7, CURVE_END);
}

// ---- the frame ----------------------------------------------------------------------------------

static rn_status draw_key(const char *colour, const char *name, int *x, rn_sink sink) {
    RN_TRY(draw_box(sink, *x, LEGEND, *x + 12, LEGEND + 12));
    RN_TRY(rn_sink_print(sink, " fill=\"%s\"/><text x=\"%d\" y=\"%d\">%s</text>\n", colour, *x + 17,
                         LEGEND + 10, name));
    *x += 45 + (int)strlen(name) * LETTER;
    return RN_OK;
}

static rn_status draw_legend(const rn_plan *plan, rn_sink sink) {
    bool used[RN_PURPOSE_COUNT] = {false}, streamed = false;
    int x = LEFT;
    for (uint32_t i = 0; i < plan->buffer_count; i++) {
        bool again = rn_plan_is_streamed(plan, &plan->buffers[i]);
        streamed |= again;
        used[plan->buffers[i].purpose] |= !again;
    }
    for (int p = 0; p < RN_PURPOSE_COUNT; p++)
        if (used[p]) RN_TRY(draw_key(colours[p], rn_purpose_name((rn_purpose)p), &x, sink));
    return streamed ? draw_key(streamed_colour, "weights read in each run", &x, sink) : RN_OK;
}

static rn_status draw_title(const rn_plan *plan, rn_sink sink) {
    const rn_plan_summary *s = &plan->summary;
    RN_TRY(rn_sink_print(sink, "<text x=\"%d\" y=\"20\" class=\"title\">", LEFT));
    RN_TRY(escape(sink, plan->name));
    RN_TRY(rn_sink_print(sink, " on "));
    RN_TRY(escape(sink, plan->caps.name));
    return rn_sink_print(sink,
                         ": arena of %s</text><text x=\"%d\" y=\"38\">at most %s alive; %u of %u "
                         "blocks resident, %u recomputed; predicted time %s</text>\n",
                         rn_size_format(s->arena_bytes).text, LEFT,
                         rn_size_format(s->live_peak_bytes).text, s->resident_blocks,
                         s->block_count, s->recomputed_blocks, rn_time_format(s->seconds).text);
}

static const char style[] =
    "<style>text{fill:#222}.title{font-size:15px;font-weight:bold}.end{text-anchor:end}"
    ".grid{stroke:#0002}.buffers rect{stroke:#0005;stroke-width:.5}"
    ".buffers rect:hover{stroke:#000;stroke-width:1.5}path,rect{vector-effect:non-scaling-stroke}"
    ".blocks rect{fill:#eee;stroke:#999;stroke-width:.5}.blocks text{text-anchor:middle;"
    "pointer-events:none}.live{fill:#8884;stroke:#777}"
    ".peak{stroke:#c33;stroke-dasharray:4 3}</style>\n"
    "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n";

static rn_status check(const rn_plan *plan) {
    if (plan->step_count && plan->summary.arena_bytes) return RN_OK;
    return rn_fail(RN_INVALID, "the plan of %s has nothing to draw", plan->name);
}

static rn_status draw_plan(const rn_plan *plan, uint64_t tall, rn_sink sink) {
    RN_TRY(draw_title(plan, sink));
    RN_TRY(draw_axes(tall, sink));
    RN_TRY(draw_buffers(plan, tall, sink));
    RN_TRY(draw_blocks(plan, sink));
    RN_TRY(draw_curve(plan, tall, sink));
    return draw_legend(plan, sink);
}

static rn_status begin_picture(uint32_t plans, rn_sink sink) {
    RN_TRY(rn_sink_print(sink,
                         "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %u %d\" "
                         "font-family=\"sans-serif\" font-size=\"11\">\n",
                         plans * (LEFT + WIDTH + 20), LEGEND + 30));
    return rn_sink_write(sink, style, sizeof style - 1);
}

rn_status rn_plan_svg(const rn_plan *plan, rn_sink sink) {
    RN_TRY(check(plan));
    RN_TRY(begin_picture(1, sink));
    RN_TRY(draw_plan(plan, plan->summary.arena_bytes, sink));
    return rn_sink_print(sink, "</svg>\n");
}

rn_status rn_plans_svg(const rn_plan *const *plans, uint32_t count, rn_sink sink) {
    uint64_t tall = 0; // one scale of addresses: what they share is beside each other
    for (uint32_t i = 0; i < count; i++) {
        RN_TRY(check(plans[i]));
        tall = rn_max_u64(tall, plans[i]->summary.arena_bytes);
    }
    RN_TRY(begin_picture(count, sink));
    for (uint32_t i = 0; i < count; i++) {
        RN_TRY(rn_sink_print(sink, "<g transform=\"translate(%u 0)\">\n", i * (LEFT + WIDTH + 20)));
        RN_TRY(draw_plan(plans[i], tall, sink));
        RN_TRY(rn_sink_print(sink, "</g>\n"));
    }
    return rn_sink_print(sink, "</svg>\n");
}
