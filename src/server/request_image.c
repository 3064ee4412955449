// request_image.c — POST /v1/images/generations: OpenAI's fields, and those that a diffusion model
// has besides (seed, steps, guidance, negative_prompt, scheduler).
#include "server/request_reader.h"

#include <string.h>

enum { MOST_PICTURES = 10, MOST_STEPS = 1000, MOST_SIDE = 1 << 14 };

typedef struct image_field {
    const char *name;
    bool (*read)(rn_request_state *state, const char *name);
} image_field;

// ---- texts --------------------------------------------------------------------------------------

// Kept with a zero behind it, as the tokenizers of image models take it.
static bool keep_text(rn_request_state *state, const char *name, const char **out) {
    rn_request_reader *reader = &state->reader;
    if (!rn_request_string(reader, name)) return false;
    if (memchr(reader->item.text.data, 0, reader->item.text.bytes))
        return rn_problem_set(reader->problem, 400, "invalid_value", name,
                              "%s has a character of value 0", name);
    rn_str text = rn_request_keep(reader);
    *(char *)rn_request_take(reader, 1, 1) = 0;
    *out = text.data;
    return true;
}

static bool read_prompt(rn_request_state *state, const char *name) {
    return keep_text(state, name, &state->request->image.prompt);
}

static bool read_negative(rn_request_state *state, const char *name) {
    return keep_text(state, name, &state->request->image.negative);
}

static bool read_model(rn_request_state *state, const char *name) {
    if (!rn_request_string(&state->reader, name)) return false;
    state->request->model = rn_request_keep(&state->reader);
    return true;
}

// ---- one of a few -------------------------------------------------------------------------------

// Which of "a|b|c" the text is; -1: none, and that was said.
static int choose(rn_request_state *state, const char *name, const char *values) {
    rn_str text = state->reader.item.text;
    if (!rn_request_string(&state->reader, name)) return -1;
    int index = 0;
    for (const char *at = values;; at++, index++) {
        size_t bytes = strcspn(at, "|");
        if (rn_str_equal(text, (rn_str){at, bytes})) return index;
        at += bytes;
        if (!*at) break;
    }
    (void)rn_problem_set(state->reader.problem, 400, "invalid_value", name,
                         "%s is '%s': it must be one of %s", name, rn_request_show(text).text,
                         values);
    return -1;
}

static bool read_form(rn_request_state *state, const char *name) {
    int form = choose(state, name, "b64_json|url");
    state->request->image.url = form == 1;
    return form >= 0;
}

static bool read_scheduler(rn_request_state *state, const char *name) {
    if (!rn_request_string(&state->reader, name)) return false;
    if (rn_scheduler_parse(state->reader.item.text, &state->request->image.scheduler) == RN_OK)
        return true;
    return rn_problem_set(state->reader.problem, 400, "invalid_value", name, "%.200s: %.250s",
                          rn_last_error()->message, rn_last_error()->hint);
}

// Pictures are drawn as they are: no transparency, no loss.
static bool read_background(rn_request_state *state, const char *name) {
    return choose(state, name, "auto|opaque") >= 0;
}

static bool read_output_format(rn_request_state *state, const char *name) {
    return choose(state, name, "png") >= 0;
}

// ---- numbers ------------------------------------------------------------------------------------

static bool read_up_to(rn_request_state *state, const char *name, int64_t least, int64_t most,
                       uint32_t *out) {
    int64_t value;
    if (!rn_request_integer(&state->reader, name, least, most, &value)) return false;
    *out = (uint32_t)value;
    return true;
}

static bool read_n(rn_request_state *state, const char *name) {
    return read_up_to(state, name, 1, MOST_PICTURES, &state->request->n);
}

static bool read_steps(rn_request_state *state, const char *name) {
    return read_up_to(state, name, 1, MOST_STEPS, &state->request->image.steps);
}

static bool read_seed(rn_request_state *state, const char *name) {
    int64_t value;
    if (!rn_request_integer(&state->reader, name, 0, INT64_MAX, &value)) return false;
    state->request->sampling.seed = (uint64_t)value;
    state->request->has_seed = true;
    return true;
}

static bool read_guidance(rn_request_state *state, const char *name) {
    return rn_request_number(&state->reader, name, 1, 999, &state->request->image.guidance);
}

// "768x512"; "auto": the model's own.
static bool read_size(rn_request_state *state, const char *name) {
    rn_request_reader *reader = &state->reader;
    rn_request_image *image = &state->request->image;
    if (!rn_request_string(reader, name)) return false;
    rn_str text = reader->item.text;
    if (rn_str_equal(text, RN_STR("auto"))) return true;
    uint32_t sides[2] = {0, 0};
    size_t at = 0, side = 0;
    for (; at < text.bytes && sides[side] <= MOST_SIDE; at++) {
        char c = text.data[at];
        if (c == 'x' && side == 0 && at > 0)
            side = 1;
        else if (c >= '0' && c <= '9')
            sides[side] = sides[side] * 10 + (uint32_t)(c - '0');
        else
            break;
    }
    uint32_t multiple = state->limits->image_multiple;
    if (at < text.bytes || side == 0 || !sides[0] || !sides[1] || sides[0] > MOST_SIDE ||
        sides[1] > MOST_SIDE)
        return rn_problem_set(reader->problem, 400, "invalid_value", name,
                              "size is '%s': it must be 'auto' or WIDTHxHEIGHT, up to %d each",
                              rn_request_show(text).text, (int)MOST_SIDE);
    if (sides[0] % multiple || sides[1] % multiple)
        return rn_problem_set(reader->problem, 400, "invalid_value", name,
                              "size is %ux%u: this model's sides are multiples of %u", sides[0],
                              sides[1], multiple);
    image->width = sides[0];
    image->height = sides[1];
    return true;
}

static bool read_stream(rn_request_state *state, const char *name) {
    return rn_request_flag(&state->reader, name, &state->request->stream);
}

static bool read_partial(rn_request_state *state, const char *name) {
    uint32_t count = 0;
    if (!read_up_to(state, name, 0, 3, &count)) return false;
    return count == 0 || rn_request_unsupported(&state->reader, name, "0");
}

static bool ignore_text(rn_request_state *state, const char *name) {
    return rn_request_string(&state->reader, name);
}

static bool ignore_compression(rn_request_state *state, const char *name) {
    uint32_t ignored;
    return read_up_to(state, name, 0, 100, &ignored); // of PNG there is none that loses anything
}

// ---- the table ----------------------------------------------------------------------------------

static const image_field fields[] = {
    {"model", read_model},
    {"prompt", read_prompt},
    {"negative_prompt", read_negative},
    {"n", read_n},
    {"size", read_size},
    {"steps", read_steps},
    {"guidance", read_guidance},
    {"scheduler", read_scheduler},
    {"seed", read_seed},
    {"response_format", read_form},
    {"stream", read_stream},
    {"partial_images", read_partial},
    {"background", read_background},
    {"output_format", read_output_format},
    {"output_compression", ignore_compression},
    // They cannot change what a model of this kind draws.
    {"quality", ignore_text},
    {"style", ignore_text},
    {"moderation", ignore_text},
    {"user", ignore_text},
};

bool rn_request_read_image_field(rn_request_state *state, rn_str key) {
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        uint64_t bit = (uint64_t)1 << i;
        if (!rn_str_equal(key, rn_str_from(fields[i].name))) continue;
        if (state->seen & bit) return rn_request_twice(&state->reader, fields[i].name);
        state->seen |= bit;
        if (!rn_request_next(&state->reader)) return false;
        return state->reader.item.kind == RN_JSON_NULL || // not given
               fields[i].read(state, fields[i].name);
    }
    return rn_request_pass_over(&state->reader, key);
}
