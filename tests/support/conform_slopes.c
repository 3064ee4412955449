// conform_slopes.c — a gradient is the slope of the loss: central differences by the reference
// loops.
//
//     slope(d) = (loss(x + h d) - loss(x - h d)) / 2h      against      sum of gradient * d
//
// in random directions d of all elements at once, which see any element that is wrong by much, and
// along single elements, which see one that is wrong by little. The loss is summed here, in double;
// what is left of rounding is that of the results themselves.
//
// The error that is allowed has three parts. Results in f32 are off by some FLT_EPSILON of their
// size each, which 2h divides: 8 FLT_EPSILON sqrt(sum (factor y)^2) / h. The third derivative adds
// about h^2/6 of the gradient's size; h is 1/64, and for the functions and ranges of the table that
// is below 1/1000 of it. And each gradient is itself a sum in f32, which is far below both.
//
// A product that rounds its activations (int8 weights and the like) is a stair, but a straight one:
// h is 1, and |x| <= 2 then. A rounded element is off by at most 1/127, by 0.0045 in the mean
// square; so the slope is off by 0.0045 |gradient| / sqrt(2). Five times that is allowed: 1/64
// |gradient|.
#include "conform.h"

#include "support.h"

#include <float.h>
#include <math.h>

#define STEP        0x1p-6
#define SLOPE_ERROR 1e-3

typedef struct slopes {
    const conform_case *c;
    test_run *run;
    double step, error;
    double coarse; // of the whole gradient's length
} slopes;

static double draw(uint64_t *state) { // in (-1, 1)
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(int32_t)(*state >> 32) / 0x1p31;
}

// The loss, and the size of its terms.
static double measure(const slopes *s, double *out_size) {
    double loss = 0, squares = 0;
    test_run_phase(s->run, RN_PHASE_FORWARD);
    for (uint32_t i = 0; i < s->c->output_count; i++) {
        const float *y = test_run_data(s->run, s->c->outputs[i]);
        const float *factor = test_run_data(s->run, s->c->factors[i]);
        uint64_t n = rn_tensor_elements(&s->run->values[s->c->outputs[i]]);
        for (uint64_t j = 0; j < n; j++) {
            double term = (double)y[j] * (double)factor[j];
            loss += term;
            squares += term * term;
        }
    }
    *out_size = sqrt(squares);
    return loss;
}

// x = base + h d, and d becomes what the rounding of x made of it.
static void move(float *x, const float *base, double *d, uint64_t n, double h) {
    for (uint64_t i = 0; i < n; i++) {
        x[i] = (float)((double)base[i] + h * d[i]);
        d[i] = ((double)x[i] - (double)base[i]) / h;
    }
}

// Whether the slope along d (n) is that of the gradient.
static bool check_direction(const slopes *s, const conform_input *input, const float *base,
                            const float *gradient, const double *d, conform_why *why) {
    uint64_t n = rn_tensor_elements(&s->run->values[input->value]);
    float *x = test_run_data(s->run, input->value);
    double *up = malloc(2 * n * sizeof *up), *down = up + n, size = 0, must = 0, squares = 0,
           all_squares = 0;
    memcpy(up, d, n * sizeof *d);
    memcpy(down, d, n * sizeof *d);
    move(x, base, up, n, s->step);
    double above = measure(s, &size);
    move(x, base, down, n, -s->step);
    double below = measure(s, &size);
    memcpy(x, base, n * sizeof *x);
    for (uint64_t i = 0; i < n; i++) {
        double term = (double)gradient[i] * (up[i] + down[i]) / 2;
        must += term;
        squares += term * term;
        all_squares += (double)gradient[i] * (double)gradient[i];
    }
    free(up);
    double is = (above - below) / (2 * s->step);
    double allowed =
        s->error * sqrt(squares) + s->coarse * sqrt(all_squares) + 8 * FLT_EPSILON * size / s->step;
    if (fabs(is - must) <= allowed) return true;
    snprintf(why->text, sizeof why->text, "the gradient says %.6g, the slope is %.6g +- %.2g", must,
             is, allowed);
    return false;
}

enum { DIRECTIONS = 2, ELEMENTS = 8 };

static bool check_input(const slopes *s, uint32_t number, conform_why *why) {
    const conform_input *input = &s->c->inputs[number];
    uint64_t n = rn_tensor_elements(&s->run->values[input->value]), state = number + 1;
    float *base = malloc(2 * n * sizeof *base), *gradient = base + n;
    double *d = calloc(n, sizeof *d);
    conform_why what = {{0}};
    bool good = true;
    memcpy(base, test_run_data(s->run, input->value), n * sizeof *base);
    memcpy(gradient, test_run_data(s->run, input->gradient), n * sizeof *gradient);
    for (int k = 0; good && k < DIRECTIONS; k++) {
        for (uint64_t i = 0; i < n; i++)
            d[i] = draw(&state);
        good = check_direction(s, input, base, gradient, d, &what);
    }
    for (uint64_t k = 0; good && k < n && k < ELEMENTS; k++) {
        uint64_t at = n <= ELEMENTS ? k : (uint64_t)(fabs(draw(&state)) * (double)n);
        memset(d, 0, n * sizeof *d);
        d[at] = 1;
        good = check_direction(s, input, base, gradient, d, &what);
    }
    free(d);
    free(base);
    if (!good)
        snprintf(why->text, sizeof why->text, "%s, %s: input %u: %.300s", rn_op_name(s->c->row->op),
                 s->c->row->what, number, what.text);
    return good;
}

bool conform_slopes(const conform_row *row, void (*spoil)(test_run *run, const conform_case *c),
                    conform_why *why) {
    conform_case c;
    test_run run;
    conform_open(&c, row, true);
    conform_run_open(&c, row->rows, &run);
    test_run_all(&run);
    if (spoil) spoil(&run, &c);
    slopes s = {.c = &c, .run = &run, .step = STEP, .error = SLOPE_ERROR};
    if (row->stairs) s.step = 1, s.coarse = 1.0 / 64;
    bool good = true;
    for (uint32_t i = 0; good && i < c.input_count; i++)
        if (c.inputs[i].wanted) good = check_input(&s, i, why);
    test_run_close(&run);
    conform_close(&c);
    return good;
}
