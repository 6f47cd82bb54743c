/* a * b + c with one rounding on every processor, so that a sum has the same bits everywhere. Where
 * the processor has no such instruction it is made of doubles: their product of two floats is exact,
 * and only a sum that fell on the midpoint between two floats, or is below their normal range, may
 * have been rounded twice; those few go to the library's fmaf, which is exact and slow. */
#ifndef HEADSTART_FMA_H
#define HEADSTART_FMA_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__FP_FAST_FMAF) && !defined(HEADSTART_NO_FMA)
#define HEADSTART_FMA_IS_FAST 1
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif

static inline __attribute__((always_inline)) float fma1(float a, float b, float c)
{
#ifdef HEADSTART_FMA_IS_FAST
    return __builtin_fmaf(a, b, c);
#else
    const double sum = (double)a * b + c;
    const float out = (float)sum;
    uint64_t bits;
    memcpy(&bits, &sum, 8);
    const int midpoint = (bits & 0x1fffffff) == 0x10000000;
    const int tiny = sum != 0.0 && fabsf(out) < 0x1p-126f;
    return midpoint | tiny ? fmaf(a, b, c) : out;
#endif
}

/* out[i] = a[i] * b[i] + c[i] for four floats; out may be any of them. */
static inline __attribute__((always_inline)) void fma4(const float *a, const float *b,
                                                       const float *c, float *out)
{
#if defined(HEADSTART_FMA_IS_FAST) || !defined(__SSE2__)
    for (int i = 0; i < 4; i++) out[i] = fma1(a[i], b[i], c[i]);
#else
    const __m128 x = _mm_loadu_ps(a), y = _mm_loadu_ps(b), z = _mm_loadu_ps(c);
    const __m128d low = _mm_add_pd(_mm_mul_pd(_mm_cvtps_pd(x), _mm_cvtps_pd(y)), _mm_cvtps_pd(z));
    const __m128d high = _mm_add_pd(
        _mm_mul_pd(_mm_cvtps_pd(_mm_movehl_ps(x, x)), _mm_cvtps_pd(_mm_movehl_ps(y, y))),
        _mm_cvtps_pd(_mm_movehl_ps(z, z)));
    const __m128 sum = _mm_movelh_ps(_mm_cvtpd_ps(low), _mm_cvtpd_ps(high));
    /* The lower halves of the four doubles, and which doubles are not zero. */
    const __m128i halves = _mm_castps_si128(
        _mm_shuffle_ps(_mm_castpd_ps(low), _mm_castpd_ps(high), _MM_SHUFFLE(2, 0, 2, 0)));
    const __m128i midpoint = _mm_cmpeq_epi32(_mm_and_si128(halves, _mm_set1_epi32(0x1fffffff)),
                                             _mm_set1_epi32(0x10000000));
    const __m128d zero = _mm_setzero_pd();
    const __m128 is_some =
        _mm_shuffle_ps(_mm_castpd_ps(_mm_cmpneq_pd(low, zero)),
                       _mm_castpd_ps(_mm_cmpneq_pd(high, zero)), _MM_SHUFFLE(2, 0, 2, 0));
    const __m128 size = _mm_andnot_ps(_mm_set1_ps(-0.0f), sum);
    const __m128 tiny = _mm_and_ps(is_some, _mm_cmplt_ps(size, _mm_set1_ps(0x1p-126f)));
    if (_mm_movemask_ps(_mm_or_ps(tiny, _mm_castsi128_ps(midpoint)))) {
        float p[4], q[4], r[4];
        _mm_storeu_ps(p, x);
        _mm_storeu_ps(q, y);
        _mm_storeu_ps(r, z);
        for (int i = 0; i < 4; i++) out[i] = fma1(p[i], q[i], r[i]);
    } else
        _mm_storeu_ps(out, sum);
#endif
}

#endif
