/* GELU of eight floats at a time, or of a part. */
#ifndef HEADSTART_GELU_H
#define HEADSTART_GELU_H

#include "simd.h"

/* x * Phi(x). erf by a rational function of 1 / (1 + p |x|) times e^-x^2, within 2e-7
 * (Abramowitz and Stegun 7.1.26). */
#ifdef HEADSTART_NEON
INLINE float32x4_t gelu4(float32x4_t x)
{
    const float32x4_t one = vdupq_n_f32(1.0f), z = vmulq_f32(x, vdupq_n_f32(0.70710678f));
    const float32x4_t size = vabsq_f32(z);
    const float32x4_t t = vdivq_f32(one, vfmaq_f32(one, size, vdupq_n_f32(0.3275911f)));
    float32x4_t p = vfmaq_f32(vdupq_n_f32(-1.453152027f), t, vdupq_n_f32(1.061405429f));
    p = vfmaq_f32(vdupq_n_f32(1.421413741f), p, t);
    p = vfmaq_f32(vdupq_n_f32(-0.284496736f), p, t);
    p = vmulq_f32(vfmaq_f32(vdupq_n_f32(0.254829592f), p, t), t);
    const float32x4_t fades = exp4(vmulq_f32(vnegq_f32(size), size));
    const float32x4_t erf_size = vsubq_f32(one, vmulq_f32(p, fades));
    const float32x4_t erf = vbslq_f32(vdupq_n_u32(0x80000000u), z, vabsq_f32(erf_size));
    return vmulq_f32(vmulq_f32(vdupq_n_f32(0.5f), x), vaddq_f32(one, erf));
}

INLINE Vec gelu8(Vec x) { return (Vec){gelu4(x.low), gelu4(x.high)}; }
#else
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

#ifdef HEADSTART_WIDE
/* The same operations as in gelu8. */
INLINE Part gelu_part(Part x)
{
    const __m512i sign_bit = _mm512_set1_epi32(INT32_MIN);
    const Part one = splat_part(1.0f), z = x * splat_part(0.70710678f);
    const Part size = (Part)_mm512_castsi512_ps(
        _mm512_andnot_si512(sign_bit, _mm512_castps_si512(z)));
    const Part t = one / fma_part(size, splat_part(0.3275911f), one);
    Part p = fma_part(t, splat_part(1.061405429f), splat_part(-1.453152027f));
    p = fma_part(p, t, splat_part(1.421413741f));
    p = fma_part(p, t, splat_part(-0.284496736f));
    p = fma_part(p, t, splat_part(0.254829592f)) * t;
    const Part erf_size = one - p * exp_part(-size * size);
    const __m512i sign = _mm512_and_si512(_mm512_castps_si512(z), sign_bit);
    const Part erf =
        (Part)_mm512_castsi512_ps(_mm512_or_si512(_mm512_castps_si512(erf_size), sign));
    return splat_part(0.5f) * x * (one + erf);
}
#else
INLINE Part gelu_part(Part x) { return gelu8(x); }
#endif

#endif
