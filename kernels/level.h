/* The vector instructions that this library is compiled for: the compiler's flags decide
 * (kernels/levels.py), and HEADSTART_SCALAR turns all of them off. Each level's results have the same
 * bits. */
#ifndef HEADSTART_LEVEL_H
#define HEADSTART_LEVEL_H

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__) && !defined(HEADSTART_SCALAR)
#define HEADSTART_AVX2 1
#include <immintrin.h>

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && \
    defined(__AVX512VL__) && defined(__AVX512VNNI__)
#define HEADSTART_AVX512 1
#endif

/* Vectors of 16 floats: wherever each lane is a sum of its own. */
#ifdef __AVX512F__
#define HEADSTART_WIDE 1
#endif

/* sum + four products of bytes, unsigned times signed, in each of eight lanes of 32 bits. Nothing
 * saturates on the way, unlike in vpmaddubsw. */
#ifdef HEADSTART_AVX512
#define HEADSTART_VNNI 1
#define dot_bytes(sum, u, s) _mm256_dpbusd_epi32(sum, u, s)
#elif defined(__AVXVNNI__)
#define HEADSTART_VNNI 1
#define dot_bytes(sum, u, s) _mm256_dpbusd_avx_epi32(sum, u, s)
#endif

#elif defined(__aarch64__) && defined(__ARM_NEON) && !defined(__ARM_BIG_ENDIAN) && \
    !defined(HEADSTART_SCALAR)
#define HEADSTART_NEON 1
#include <arm_neon.h>

#ifdef __ARM_FEATURE_DOTPROD
#define HEADSTART_DOTPROD 1
#ifdef __ARM_FEATURE_MATMUL_INT8
#define HEADSTART_I8MM 1
#endif
#endif
#endif

/* Before a loop whose bounds are constants: all of it, at most 8 or 12 turns. */
#ifdef __clang__
#define UNROLL _Pragma("unroll")
#define UNROLL_12 _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 8")
#define UNROLL_12 _Pragma("GCC unroll 12")
#endif

/* The name of the level, as in levels.py. */
#if defined(HEADSTART_AVX512)
#define HEADSTART_LEVEL "avx512"
#elif defined(HEADSTART_VNNI)
#define HEADSTART_LEVEL "avxvnni"
#elif defined(HEADSTART_AVX2)
#define HEADSTART_LEVEL "avx2"
#elif defined(HEADSTART_I8MM)
#define HEADSTART_LEVEL "i8mm"
#elif defined(HEADSTART_DOTPROD)
#define HEADSTART_LEVEL "dotprod"
#elif defined(HEADSTART_NEON)
#define HEADSTART_LEVEL "neon"
#else
#define HEADSTART_LEVEL "scalar"
#endif

#endif
