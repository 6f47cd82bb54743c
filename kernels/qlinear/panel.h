/* The panel layout (described in panels.py) and helpers shared by pack.c and kernel.c. */
#ifndef HEADSTART_PANEL_H
#define HEADSTART_PANEL_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define PANEL 16   /* rows of W in a panel */
#define GROUP 32   /* values along K that share one activation scale */
#define VECTORS 8  /* vectors in a half of a group: 8 rows x 4 values each */
#define INLINE static inline __attribute__((always_inline))

/* The numbers of formats.py. */
enum { Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K, F16, F32 };

INLINE int is_float(int kind) { return kind >= F16; }
INLINE int is_super(int kind) { return kind == Q4_K || kind == Q5_K || kind == Q6_K; }
INLINE int is_affine(int kind)
{
    return kind == Q4_1 || kind == Q5_1 || kind == Q4_K || kind == Q5_K;
}
INLINE int bits_of(int kind)
{
    switch (kind) {
    case Q5_0: case Q5_1: case Q5_K: return 5;
    case Q6_K: return 6;
    case Q8_0: return 8;
    case F16: return 16;
    case F32: return 32;
    default: return 4;
    }
}
/* log2 of the code that means zero, -1 where it is 0 (Q8_0 keeps signed codes). */
INLINE int zero_shift(int kind)
{
    return kind == Q4_0 ? 3 : kind == Q5_0 ? 4 : kind == Q6_K ? 5 : -1;
}
INLINE int block_of(int kind) { return is_float(kind) ? 1 : is_super(kind) ? 256 : 32; }

INLINE int plane_bytes(int bits) { return bits == 5 ? 32 : bits == 6 ? 64 : 0; }
INLINE int half_bytes(int bits) { return 32 * bits; }

/* Bytes before the codes of one cell: scales, minimums, sub-scales, sub-minimums. */
INLINE int head_bytes(int kind)
{
    int affine = 1 + is_affine(kind);
    int subs = !is_super(kind) ? 0 : kind == Q6_K ? 16 : 8;
    return PANEL * 2 * affine + PANEL * subs * affine;
}
INLINE int64_t cell_bytes(int kind)
{
    if (is_float(kind)) return PANEL * bits_of(kind) / 8;
    return head_bytes(kind) + PANEL * block_of(kind) * bits_of(kind) / 8;
}

INLINE float half_to_float(uint16_t h)
{
#ifdef __F16C__
    return __builtin_ia32_vcvtph2ps((__attribute__((vector_size(16))) short){(short)h})[0];
#else
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, body = h & 0x7fff, bits;
    if (body >= 0x7c00) bits = sign | 0x7f800000u | (body & 0x3ff) << 13;
    else if (body >= 0x400) bits = sign | (body + (112u << 10)) << 13;
    else {
        float tiny = (float)body * 0x1p-24f;
        return sign ? -tiny : tiny;
    }
    float out;
    memcpy(&out, &bits, 4);
    return out;
#endif
}
INLINE float load_half(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, 2);
    return half_to_float(h);
}

/* Code (0 .. 2^bits - 1; Q8_0: the byte) of vector v, byte `lane` = 4 * row + k, of a half. */
INLINE int code_at(int bits, const uint8_t *half, int v, int lane)
{
    if (bits == 8) return (int8_t)half[32 * v + lane];
    int nibble = half[plane_bytes(bits) + 32 * (v & 3) + lane] >> (v < 4 ? 0 : 4) & 15;
    if (bits == 5) return nibble | (half[lane] >> v & 1) << 4;
    if (bits == 6) return nibble | (half[32 * (v >> 2) + lane] >> 2 * (v & 3) & 3) << 4;
    return nibble;
}

/* Scale and minimum of row r for the 16 values from 16 * part of group g of a cell. */
INLINE void scale_at(int kind, const uint8_t *cell, int g, int part, int r, float *s, float *m)
{
    float d = load_half(cell + 2 * r);
    float least = is_affine(kind) ? load_half(cell + PANEL * 2 + 2 * r) : 0.0f;
    if (is_super(kind)) {
        const uint8_t *subs = cell + PANEL * 2 * (1 + is_affine(kind));
        if (kind == Q6_K) d *= (float)(int8_t)subs[(2 * g + part) * PANEL + r];
        else {
            d *= (float)subs[g * PANEL + r];
            least *= -(float)subs[(8 + g) * PANEL + r];
        }
    }
    *s = d;
    *m = least;
}

#endif
