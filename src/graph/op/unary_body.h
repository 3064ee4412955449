// unary_body.h — the functions of floats in the type REAL; <tgmath.h> takes each function of it.
// Included by unary.c once a type. No guard.

static void NAME(const rn_unary_attrs *attrs, REAL *v /* (n) */, uint64_t n) {
    const REAL a = (REAL)attrs->a, b = (REAL)attrs->b;
#define EACH(CASE, EXPRESSION)                                                                     \
    case RN_UNARY_##CASE:                                                                          \
        for (uint64_t i = 0; i < n; i++) {                                                         \
            const REAL x = v[i];                                                                   \
            v[i] = (REAL)(EXPRESSION);                                                             \
        }                                                                                          \
        break;
    switch (attrs->function) {
        EACH(ABS, fabs(x))
        EACH(NEG, -x)
        EACH(SIGN, x > 0 ? 1 : x < 0 ? -1 : x) // NaN and -0 stay
        EACH(RECIPROCAL, 1 / x)
        EACH(CEIL, ceil(x))
        EACH(FLOOR, floor(x))
        EACH(ROUND, nearbyint(x)) // to even, C's default
        EACH(SQRT, sqrt(x))
        EACH(EXP, exp(x))
        EACH(LOG, log(x))
        EACH(SIN, sin(x))
        EACH(COS, cos(x))
        EACH(TAN, tan(x))
        EACH(ASIN, asin(x))
        EACH(ACOS, acos(x))
        EACH(ATAN, atan(x))
        EACH(SINH, sinh(x))
        EACH(COSH, cosh(x))
        EACH(ASINH, asinh(x))
        EACH(ACOSH, acosh(x))
        EACH(ATANH, atanh(x))
        EACH(ERF, erf(x))
        EACH(TANH, tanh(x))
        EACH(SIGMOID, 1 / (1 + exp(-x)))
        EACH(RELU, x < 0 ? 0 : x) // NaN stays NaN
        EACH(GELU, x * (1 + erf(x * (REAL)0.70710678118654752)) / 2)
        EACH(GELU_TANH,
             x * (1 + tanh((REAL)0.79788456080286536 * (x + (REAL)0.044715 * x * x * x))) / 2)
        // log(1 + e^x) without overflow
        EACH(SOFTPLUS, (x > 0 ? x : 0) + log1p(exp(-fabs(x))))
        EACH(SOFTSIGN, x / (1 + fabs(x)))
        EACH(MISH, x * tanh((x > 0 ? x : 0) + log1p(exp(-fabs(x)))))
        EACH(SWISH, x / (1 + exp(-a * x)))
        EACH(HARD_SIGMOID, fmax((REAL)0, fmin((REAL)1, a * x + b)))
        EACH(HARD_SWISH, x * fmax((REAL)0, fmin((REAL)1, x / 6 + (REAL)0.5)))
        EACH(ELU, x < 0 ? a * expm1(x) : x)
        EACH(SELU, b * (x < 0 ? a * expm1(x) : x))
        EACH(CELU, x < 0 ? a * expm1(x / a) : x)
        EACH(LEAKY_RELU, x < 0 ? a * x : x)
        EACH(THRESHOLDED_RELU, x > a ? x : 0)
        EACH(SHRINK, x < -a ? x + b : x > a ? x - b : 0)
    default:
        break; // the shape rule has refused it
    }
#undef EACH
}

#undef NAME
#undef REAL
