/* Rows of K or V as they lie in a pool (storage.py says how), and as floats. */
#ifndef HEADSTART_STORAGE_H
#define HEADSTART_STORAGE_H

#include "../kernels.h"
#include "../simd.h"

#define INT8_LARGEST 127.0f
#define FP8_LARGEST 448.0f

/* Bytes of a row of `dim` numbers. */
INLINE int64_t row_bytes(int32_t storage, int64_t dim)
{
    switch (storage) {
    case STORED_FP32: return dim * (int64_t)sizeof(float);
    case STORED_FP16: return dim * (int64_t)sizeof(uint16_t);
    default: return dim + (int64_t)sizeof(float);
    }
}

/* An e4m3 code's bits are those of a half with four bits more to the left, and 2^-8 its size. */
INLINE uint16_t fp8_as_half(uint8_t code)
{
    return (uint16_t)((code & 0x80) << 8 | (code & 0x7f) << 7);
}

/* Round to nearest, ties to even; |x| <= FP8_LARGEST. Below 2^-6 codes are multiples of 2^-9. */
INLINE uint8_t float_to_fp8(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    const uint8_t sign = (uint8_t)(bits >> 24 & 0x80);
    bits &= 0x7fffffff;
    if (bits < 0x3c800000) return sign | (uint8_t)lrintf(fabsf(x) * 0x1p9f);
    return sign | (uint8_t)((bits - (120u << 23) + 0x7ffff + (bits >> 20 & 1)) >> 20);
}

INLINE Vec load_int8(const int8_t *p)
{
#ifdef HEADSTART_AVX2
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
#elif defined(HEADSTART_NEON)
    const int16x8_t codes = vmovl_s8(vld1_s8(p));
    return (Vec){vcvtq_f32_s32(vmovl_s16(vget_low_s16(codes))),
                 vcvtq_f32_s32(vmovl_s16(vget_high_s16(codes)))};
#else
    Vec v;
    for (int i = 0; i < LANES; i++) v[i] = (float)p[i];
    return v;
#endif
}

/* 2^-8 times what the codes stand for. */
INLINE Vec load_fp8(const uint8_t *p)
{
#ifdef HEADSTART_AVX2
    const __m128i code = _mm_cvtepu8_epi16(_mm_loadl_epi64((const __m128i *)p));
    const __m128i sign = _mm_slli_epi16(_mm_and_si128(code, _mm_set1_epi16(0x80)), 8);
    const __m128i body = _mm_slli_epi16(_mm_and_si128(code, _mm_set1_epi16(0x7f)), 7);
    return _mm256_cvtph_ps(_mm_or_si128(sign, body));
#elif defined(HEADSTART_NEON)
    const uint16x8_t code = vmovl_u8(vld1_u8(p));
    const uint16x8_t sign = vshlq_n_u16(vandq_u16(code, vdupq_n_u16(0x80)), 8);
    const uint16x8_t half = vorrq_u16(sign, vshlq_n_u16(vandq_u16(code, vdupq_n_u16(0x7f)), 7));
    return (Vec){vcvt_f32_f16(vreinterpret_f16_u16(vget_low_u16(half))),
                 vcvt_f32_f16(vreinterpret_f16_u16(vget_high_u16(half)))};
#else
    Vec v;
    for (int i = 0; i < LANES; i++) v[i] = half_to_float(fp8_as_half(p[i]));
    return v;
#endif
}

INLINE float scale_behind(const uint8_t *row, int64_t dim)
{
    float scale;
    memcpy(&scale, row + dim, sizeof scale);
    return scale;
}

static void int8_row_to_floats(const uint8_t *row, int64_t dim, float *out)
{
    const float scale = scale_behind(row, dim);
    const int8_t *codes = (const int8_t *)row;
    int64_t d = 0;
    for (; d + LANES <= dim; d += LANES) store(out + d, mul8(load_int8(codes + d), splat(scale)));
    for (; d < dim; d++) out[d] = (float)codes[d] * scale;
}

static void fp8_row_to_floats(const uint8_t *row, int64_t dim, float *out)
{
    const float scale = scale_behind(row, dim) * 0x1p8f;
    int64_t d = 0;
    for (; d + LANES <= dim; d += LANES) store(out + d, mul8(load_fp8(row + d), splat(scale)));
    for (; d < dim; d++) out[d] = half_to_float(fp8_as_half(row[d])) * scale;
}

static void half_row_to_floats(const uint16_t *row, int64_t dim, float *out)
{
    int64_t d = 0;
    for (; d + LANES <= dim; d += LANES) store(out + d, load_half8(row + d));
    for (; d < dim; d++) out[d] = half_to_float(row[d]);
}

/* A row of a pool -> out [dim]. */
INLINE void row_to_floats(const uint8_t *row, int32_t storage, int64_t dim, float *out)
{
    switch (storage) {
    case STORED_FP32: memcpy(out, row, (size_t)dim * sizeof(float)); return;
    case STORED_FP16: half_row_to_floats((const uint16_t *)row, dim, out); return;
    case STORED_INT8: int8_row_to_floats(row, dim, out); return;
    default: fp8_row_to_floats(row, dim, out); return;
    }
}

INLINE float clamped(float x, float most) { return x > most ? most : x < -most ? -most : x; }

/* Codes and the scale behind them. Where the scale is no use, zero included, codes are zeros. */
static void floats_to_codes(const float *x, int32_t storage, int64_t dim, uint8_t *row)
{
    const float largest = storage == STORED_INT8 ? INT8_LARGEST : FP8_LARGEST;
    float most = 0.0f;
    for (int64_t d = 0; d < dim; d++) {
        const float size = fabsf(x[d]);
        most = size > most || size != size ? size : most;
        if (most != most) break; /* NaN stays */
    }
    const float scale = most / largest;
    memcpy(row + dim, &scale, sizeof scale);
    if (!(scale > 0.0f && scale < INFINITY)) {
        memset(row, 0, (size_t)dim);
        return;
    }
    if (storage == STORED_INT8)
        for (int64_t d = 0; d < dim; d++)
            row[d] = (uint8_t)(int8_t)rintf(clamped(x[d] / scale, largest));
    else
        for (int64_t d = 0; d < dim; d++) row[d] = float_to_fp8(clamped(x[d] / scale, largest));
}

/* x [dim] -> a row of a pool. */
INLINE void floats_to_row(const float *x, int32_t storage, int64_t dim, uint8_t *row)
{
    if (storage == STORED_FP32) memcpy(row, x, (size_t)dim * sizeof(float));
    else if (storage == STORED_FP16)
        for (int64_t d = 0; d < dim; d++) ((uint16_t *)row)[d] = float_to_half(x[d]);
    else floats_to_codes(x, storage, dim, row);
}

#endif
