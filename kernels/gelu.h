/* GELU of eight floats at a time. */
#ifndef HEADSTART_GELU_H
#define HEADSTART_GELU_H

#include "simd.h"

/* x * Phi(x). erf by a rational function of 1 / (1 + p |x|) times e^-x^2, within 2e-7
 * (Abramowitz and Stegun 7.1.26). */
INLINE Vec gelu8(Vec x)
{
    const Vec z = x * splat(0.70710678f);
    const Vec size = max8(z, -z);
    const Vec t = splat(1.0f) / fma8(size, splat(0.3275911f), splat(1.0f));
    Vec p = fma8(t, splat(1.061405429f), splat(-1.453152027f));
    p = fma8(p, t, splat(1.421413741f));
    p = fma8(p, t, splat(-0.284496736f));
    p = fma8(p, t, splat(0.254829592f)) * t;
    const Vec erf_size = splat(1.0f) - p * exp8(-size * size);
    const VecInt sign = (VecInt)z & (VecInt){INT32_MIN, INT32_MIN, INT32_MIN, INT32_MIN,
                                             INT32_MIN, INT32_MIN, INT32_MIN, INT32_MIN};
    const Vec erf = (Vec)((VecInt)erf_size | sign);
    return splat(0.5f) * x * (splat(1.0f) + erf);
}

#endif
