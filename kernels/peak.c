/* What the processor's units for products of bytes could do: the bound for bench.py. */
#include "level.h"
#include "pool.h"

#include <stdatomic.h>

#define CHAINS 12 /* independent sums: more than the latency times the units */
#define STEPS 4096

#if defined(HEADSTART_AVX512)
#define LANES_OF_BYTES 64
typedef __m512i Bytes;
#define SPLAT(x) _mm512_set1_epi8(x)
#define MULTIPLY(sum, a, b) _mm512_dpbusd_epi32(sum, a, b)
#elif defined(HEADSTART_VNNI)
#define LANES_OF_BYTES 32
typedef __m256i Bytes;
#define SPLAT(x) _mm256_set1_epi8(x)
#define MULTIPLY(sum, a, b) dot_bytes(sum, a, b)
#elif defined(HEADSTART_AVX2) /* the products of pairs alone: summing them takes more */
#define LANES_OF_BYTES 32
typedef __m256i Bytes;
#define SPLAT(x) _mm256_set1_epi8(x)
#define MULTIPLY(sum, a, b) _mm256_maddubs_epi16(sum, b)
#elif defined(HEADSTART_I8MM)
#define LANES_OF_BYTES 32 /* products of an instruction: two rows of 8 bytes by two */
typedef int32x4_t Bytes;
#define SPLAT(x) vreinterpretq_s32_s8(vdupq_n_s8(x))
#define MULTIPLY(sum, a, b) vmmlaq_s32(sum, vreinterpretq_s8_s32(a), vreinterpretq_s8_s32(b))
#elif defined(HEADSTART_DOTPROD)
#define LANES_OF_BYTES 16
typedef int32x4_t Bytes;
#define SPLAT(x) vreinterpretq_s32_s8(vdupq_n_s8(x))
#define MULTIPLY(sum, a, b) vdotq_s32(sum, vreinterpretq_s8_s32(a), vreinterpretq_s8_s32(b))
#elif defined(HEADSTART_NEON) /* the products alone: summing them to 32 bits takes more */
#define LANES_OF_BYTES 8
typedef int16x8_t Bytes;
#define SPLAT(x) vreinterpretq_s16_s8(vdupq_n_s8(x))
#define MULTIPLY(sum, a, b)                                                                     \
    vmlal_s8(sum, vget_low_s8(vreinterpretq_s8_s16(a)), vget_low_s8(vreinterpretq_s8_s16(b)))
#endif

#ifdef LANES_OF_BYTES
static void multiply_piece(void *context, int64_t piece)
{
    const Bytes a = SPLAT((char)(piece | 1)), b = SPLAT(3);
    Bytes sum[CHAINS];
    UNROLL_12 for (int i = 0; i < CHAINS; i++) sum[i] = SPLAT((char)i);
    for (int step = 0; step < STEPS; step++) {
        UNROLL_12 for (int i = 0; i < CHAINS; i++) sum[i] = MULTIPLY(sum[i], a, b);
    }
    Bytes all = SPLAT(0);
    UNROLL_12 for (int i = 0; i < CHAINS; i++) all ^= sum[i];
    (void)a;
    atomic_fetch_add((_Atomic int64_t *)context, all[0]);
}

/* Multiplies in registers: the number of products, on all threads together. */
int64_t hs_peak(int64_t pieces, int threads)
{
    _Atomic int64_t sink = 0; /* so that nothing is left out as unused */
    hs_run(multiply_piece, &sink, pieces, threads);
    return pieces * STEPS * CHAINS * LANES_OF_BYTES;
}
#else
/* No such unit: 0. */
int64_t hs_peak(int64_t pieces, int threads)
{
    (void)pieces;
    (void)threads;
    return 0;
}
#endif
