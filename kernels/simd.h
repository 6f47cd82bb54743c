/* Eight floats at a time for any processor: GCC and clang vector extensions, with intrinsics where
 * they change the speed. Used by the small operations; qlinear has its own. On Arm they are two
 * vectors of four: GCC keeps a wider one in memory, not in registers. So arithmetic has names here.
 *
 * A sum over lanes is always one of eight. Where every lane is a result of its own, a `Part` is the
 * widest vector there is: 16 floats with AVX-512, else 8. */
#ifndef HEADSTART_SIMD_H
#define HEADSTART_SIMD_H

#include "fma.h"
#include "level.h"
#include "pool.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define LANES 8

/* Pieces for `items` independent items that hold `values` floats together: one where waking other
 * threads costs more than it saves. */
#define ALONE_VALUES 32768
INLINE int64_t pieces_of(int64_t items, int64_t values, int threads)
{
    const int64_t most = values > ALONE_VALUES ? threads * 4 : 1;
    return items < most ? items : most;
}

#ifdef HEADSTART_NEON
typedef struct {
    float32x4_t low, high;
} Vec;

INLINE Vec load(const float *p) { return (Vec){vld1q_f32(p), vld1q_f32(p + 4)}; }
INLINE void store(float *p, Vec v)
{
    vst1q_f32(p, v.low);
    vst1q_f32(p + 4, v.high);
}
INLINE Vec splat(float x) { return (Vec){vdupq_n_f32(x), vdupq_n_f32(x)}; }
INLINE float first_of(Vec v) { return vgetq_lane_f32(v.low, 0); }
INLINE Vec neg8(Vec v) { return (Vec){vnegq_f32(v.low), vnegq_f32(v.high)}; }
#define EACH_HALF(name, of)                                                                  \
    INLINE Vec name(Vec a, Vec b) { return (Vec){of(a.low, b.low), of(a.high, b.high)}; }
EACH_HALF(add8, vaddq_f32)
EACH_HALF(sub8, vsubq_f32)
EACH_HALF(mul8, vmulq_f32)
EACH_HALF(div8, vdivq_f32)
#undef EACH_HALF
#else
typedef float Vec __attribute__((vector_size(32)));
typedef int32_t VecInt __attribute__((vector_size(32)));

INLINE Vec load(const float *p)
{
    Vec v;
    memcpy(&v, p, sizeof v);
    return v;
}
INLINE void store(float *p, Vec v) { memcpy(p, &v, sizeof v); }
INLINE Vec splat(float x) { return (Vec){x, x, x, x, x, x, x, x}; }
INLINE float first_of(Vec v) { return v[0]; }
INLINE Vec neg8(Vec v) { return -v; }
INLINE Vec add8(Vec a, Vec b) { return a + b; }
INLINE Vec sub8(Vec a, Vec b) { return a - b; }
INLINE Vec mul8(Vec a, Vec b) { return a * b; }
INLINE Vec div8(Vec a, Vec b) { return a / b; }
#endif

/* a * b + c with one rounding. */
INLINE Vec fma8(Vec a, Vec b, Vec c)
{
#ifdef HEADSTART_AVX2
    return _mm256_fmadd_ps(a, b, c);
#elif defined(HEADSTART_NEON)
    return (Vec){vfmaq_f32(c.low, a.low, b.low), vfmaq_f32(c.high, a.high, b.high)};
#else
    float x[LANES], y[LANES], z[LANES];
    store(x, a);
    store(y, b);
    store(z, c);
    fma4(x, y, z, z);
    fma4(x + 4, y + 4, z + 4, z + 4);
    return load(z);
#endif
}

/* b where either is NaN. */
INLINE Vec max8(Vec a, Vec b)
{
#ifdef HEADSTART_AVX2
    return _mm256_max_ps(a, b);
#elif defined(HEADSTART_NEON) /* its own maximum of a NaN is a NaN */
    return (Vec){vbslq_f32(vcgtq_f32(a.low, b.low), a.low, b.low),
                 vbslq_f32(vcgtq_f32(a.high, b.high), a.high, b.high)};
#else
    Vec out;
    for (int i = 0; i < LANES; i++) out[i] = a[i] > b[i] ? a[i] : b[i];
    return out;
#endif
}

/* Sum and maximum of the lanes, always in the same order. */
INLINE float sum_of(Vec v)
{
#ifdef HEADSTART_NEON
    const float32x4_t sum = vaddq_f32(v.low, v.high);
    return vpadds_f32(vadd_f32(vget_low_f32(sum), vget_high_f32(sum)));
#else
    return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
#endif
}
INLINE float max_of(Vec v)
{
    float lanes[LANES];
    store(lanes, v);
    float most = lanes[0];
    for (int i = 1; i < LANES; i++) most = lanes[i] > most ? lanes[i] : most;
    return most;
}

/* e^x within 2 ulp for results above 2^-126; below -104 zero, above 88.7 infinity, NaN stays NaN.
 * x = n ln 2 + r with |r| <= ln 2 / 2; e^r by its Taylor polynomial of degree 7, whose first left
 * out term is below 2^-27; 2^n as two factors, so that neither leaves the exponent's range. */
#ifdef HEADSTART_NEON
INLINE float32x4_t exp4(float32x4_t x)
{
    const float32x4_t magic = vdupq_n_f32(0x1.8p23f);
    const uint32x4_t is_number = vceqq_f32(x, x);
    const float32x4_t y = vminq_f32(vmaxq_f32(x, vdupq_n_f32(-104.0f)), vdupq_n_f32(89.0f));
    const float32x4_t n =
        vsubq_f32(vaddq_f32(vmulq_f32(y, vdupq_n_f32(0x1.715476p+0f)), magic), magic);
    float32x4_t r = vfmaq_f32(y, n, vdupq_n_f32(-0x1.62e4p-1f));
    r = vfmaq_f32(r, n, vdupq_n_f32(-0x1.7f7d1cp-20f));
    float32x4_t p = vdupq_n_f32(1.0f / 5040.0f);
    p = vfmaq_f32(vdupq_n_f32(1.0f / 720.0f), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0f / 120.0f), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0f / 24.0f), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0f / 6.0f), p, r);
    p = vfmaq_f32(vdupq_n_f32(0.5f), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0f), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0f), p, r);
    const int32x4_t exponent = vcvtq_s32_f32(n), part = vshrq_n_s32(exponent, 1);
    const int32x4_t bias = vdupq_n_s32(127);
    const int32x4_t first = vshlq_n_s32(vaddq_s32(part, bias), 23);
    const int32x4_t second = vshlq_n_s32(vaddq_s32(vsubq_s32(exponent, part), bias), 23);
    p = vmulq_f32(vmulq_f32(p, vreinterpretq_f32_s32(first)), vreinterpretq_f32_s32(second));
    return vbslq_f32(is_number, p, x);
}

INLINE Vec exp8(Vec x) { return (Vec){exp4(x.low), exp4(x.high)}; }
#else
INLINE Vec exp8(Vec x)
{
    const Vec low = splat(-104.0f), high = splat(89.0f), magic = splat(0x1.8p23f);
    const VecInt is_nan = x != x;
    Vec y = (Vec)(((VecInt)x & (x > low)) | ((VecInt)low & ~(x > low)));
    y = (Vec)(((VecInt)y & (y < high)) | ((VecInt)high & ~(y < high)));
    Vec n = (y * splat(0x1.715476p+0f) + magic) - magic;
    Vec r = fma8(n, splat(-0x1.62e4p-1f), y);
    r = fma8(n, splat(-0x1.7f7d1cp-20f), r);
    Vec p = splat(1.0f / 5040.0f);
    p = fma8(p, r, splat(1.0f / 720.0f));
    p = fma8(p, r, splat(1.0f / 120.0f));
    p = fma8(p, r, splat(1.0f / 24.0f));
    p = fma8(p, r, splat(1.0f / 6.0f));
    p = fma8(p, r, splat(0.5f));
    p = fma8(p, r, splat(1.0f));
    p = fma8(p, r, splat(1.0f));
    VecInt exponent = __builtin_convertvector(n, VecInt);
    VecInt part = exponent >> 1;
    Vec first = (Vec)((part + 127) << 23), second = (Vec)((exponent - part + 127) << 23);
    p = p * first * second;
    return (Vec)(((VecInt)p & ~is_nan) | ((VecInt)x & is_nan));
}
#endif

#ifdef HEADSTART_WIDE
#define PART_LANES 16
typedef float Part __attribute__((vector_size(64)));
INLINE Part splat_part(float x) { return (Part)_mm512_set1_ps(x); }
INLINE Part neg_part(Part v) { return -v; }
INLINE Part add_part(Part a, Part b) { return a + b; }
INLINE Part sub_part(Part a, Part b) { return a - b; }
INLINE Part mul_part(Part a, Part b) { return a * b; }
INLINE Part div_part(Part a, Part b) { return a / b; }
INLINE Part fma_part(Part a, Part b, Part c) { return (Part)_mm512_fmadd_ps(a, b, c); }
INLINE Part max_part(Part a, Part b) { return (Part)_mm512_max_ps(a, b); }
INLINE Vec low_half(Part v) { return (Vec)_mm512_castps512_ps256(v); }
INLINE Vec high_half(Part v)
{
    return (Vec)_mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(v), 1));
}
INLINE Part join(Vec low, Vec high)
{
    return (Part)_mm512_castpd_ps(_mm512_insertf64x4(
        _mm512_castps_pd(_mm512_castps256_ps512(low)), _mm256_castps_pd(high), 1));
}

INLINE Part twice(Vec v)
{
    return (Part)_mm512_castpd_ps(_mm512_broadcast_f64x4(_mm256_castps_pd(v)));
}

/* The same operations as in exp8. */
INLINE Part exp_part(Part x)
{
    const __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    const Part magic = splat_part(0x1.8p23f);
    const Part y = (Part)_mm512_min_ps(_mm512_max_ps(x, splat_part(-104.0f)), splat_part(89.0f));
    const Part n = (y * splat_part(0x1.715476p+0f) + magic) - magic;
    Part r = fma_part(n, splat_part(-0x1.62e4p-1f), y);
    r = fma_part(n, splat_part(-0x1.7f7d1cp-20f), r);
    Part p = splat_part(1.0f / 5040.0f);
    p = fma_part(p, r, splat_part(1.0f / 720.0f));
    p = fma_part(p, r, splat_part(1.0f / 120.0f));
    p = fma_part(p, r, splat_part(1.0f / 24.0f));
    p = fma_part(p, r, splat_part(1.0f / 6.0f));
    p = fma_part(p, r, splat_part(0.5f));
    p = fma_part(p, r, splat_part(1.0f));
    p = fma_part(p, r, splat_part(1.0f));
    const __m512i exponent = _mm512_cvttps_epi32(n), part = _mm512_srai_epi32(exponent, 1);
    const __m512i bias = _mm512_set1_epi32(127);
    const __m512i first = _mm512_slli_epi32(_mm512_add_epi32(part, bias), 23);
    const __m512i second =
        _mm512_slli_epi32(_mm512_add_epi32(_mm512_sub_epi32(exponent, part), bias), 23);
    p = p * (Part)_mm512_castsi512_ps(first) * (Part)_mm512_castsi512_ps(second);
    return (Part)_mm512_mask_mov_ps(p, is_nan, x);
}
#else
#define PART_LANES LANES
typedef Vec Part;
INLINE Part splat_part(float x) { return splat(x); }
INLINE Part neg_part(Part v) { return neg8(v); }
INLINE Part add_part(Part a, Part b) { return add8(a, b); }
INLINE Part sub_part(Part a, Part b) { return sub8(a, b); }
INLINE Part mul_part(Part a, Part b) { return mul8(a, b); }
INLINE Part div_part(Part a, Part b) { return div8(a, b); }
INLINE Part fma_part(Part a, Part b, Part c) { return fma8(a, b, c); }
INLINE Part max_part(Part a, Part b) { return max8(a, b); }
INLINE Part exp_part(Part x) { return exp8(x); }
#endif

#ifdef HEADSTART_WIDE
INLINE Part load_part(const float *p)
{
    Part v;
    memcpy(&v, p, sizeof v);
    return v;
}
INLINE void store_part(float *p, Part v) { memcpy(p, &v, sizeof v); }
#else
INLINE Part load_part(const float *p) { return load(p); }
INLINE void store_part(float *p, Part v) { store(p, v); }
#endif

/* The maximum of the lanes, and lanes folded into a sum of eight: first halves before second. */
#ifdef HEADSTART_WIDE
INLINE float max_of_part(Part v) { return max_of(max8(low_half(v), high_half(v))); }
INLINE Vec add_halves(Vec sum, Part v) { return sum + low_half(v) + high_half(v); }
#else
INLINE float max_of_part(Part v) { return max_of(v); }
INLINE Vec add_halves(Vec sum, Part v) { return add8(sum, v); }
#endif

INLINE float half_to_float(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, body = h & 0x7fff, bits;
    if (body < 0x400) return (sign ? -1.0f : 1.0f) * (float)body * 0x1p-24f;
    bits = body >= 0x7c00 ? sign | 0x7f800000u | (body & 0x3ff) << 13
                          : sign | (body + (112u << 10)) << 13;
    float out;
    memcpy(&out, &bits, 4);
    return out;
}

/* Round to nearest, ties to even; too large is infinity. */
INLINE uint16_t float_to_half(float x)
{
#ifdef HEADSTART_AVX2
    return (uint16_t)_cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT);
#elif defined(HEADSTART_NEON)
    return vget_lane_u16(vreinterpret_u16_f16(vcvt_f16_f32(vdupq_n_f32(x))), 0);
#else
    uint32_t bits;
    memcpy(&bits, &x, 4);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    bits &= 0x7fffffff;
    if (bits > 0x7f800000) return sign | 0x7e00;
    if (bits >= 0x477ff000) return sign | 0x7c00;
    if (bits < 0x38800000) return sign | (uint16_t)lrintf(fabsf(x) * 0x1p24f);
    return sign | (uint16_t)((bits - 0x38000000 + 0xfff + (bits >> 13 & 1)) >> 13);
#endif
}

INLINE Vec load_half8(const uint16_t *p)
{
#ifdef HEADSTART_AVX2
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
#elif defined(HEADSTART_NEON)
    const uint16x8_t halves = vld1q_u16(p);
    return (Vec){vcvt_f32_f16(vreinterpret_f16_u16(vget_low_u16(halves))),
                 vcvt_f32_f16(vreinterpret_f16_u16(vget_high_u16(halves)))};
#else
    Vec v;
    for (int i = 0; i < LANES; i++) v[i] = half_to_float(p[i]);
    return v;
#endif
}

#endif
