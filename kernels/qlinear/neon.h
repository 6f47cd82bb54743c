/* One panel with the vectors of 64-bit Arm: 128 bits, four rows of W times 4 values along K. A panel's
 * 16 rows are QUADS such vectors. How bytes are multiplied depends on what the processor has:
 *   neon     smlal: products in 16 bits, as many added there as fit, then folded to four sums
 *   dotprod  sdot: four products of each lane to 32 bits
 *   i8mm     smmla, for many rows of x: two rows of W times two rows of x, 8 values each
 * Codes are signed bytes throughout; expanded ones have their zero taken off. */
#ifndef HEADSTART_QLINEAR_NEON_H
#define HEADSTART_QLINEAR_NEON_H

#include "input.h"

#define TILE 4  /* rows of x that share one pass over an expanded chunk */
#define QUADS 4 /* of rows in a panel */

/* --- activations ----------------------------------------------------------------------------- */

static void quantize_row(const float *x, int64_t groups, int8_t *q, Group *out)
{
    const float32x4_t largest = vdupq_n_f32(3.402823466e38f);
    for (int64_t g = 0; g < groups; g++, x += GROUP, q += GROUP, out++) {
        float32x4_t v[8], most = vdupq_n_f32(0.0f);
        uint32x4_t finite = vdupq_n_u32(UINT32_MAX);
        UNROLL for (int i = 0; i < 8; i++) {
            v[i] = vld1q_f32(x + 4 * i);
            const float32x4_t size = vabsq_f32(v[i]);
            finite = vandq_u32(finite, vcleq_f32(size, largest));
            most = vmaxq_f32(most, size);
        }
        const float top = vmaxvq_f32(most); /* NaN where a value is: then not finite */
        if (top <= TINY || vminvq_u32(finite) == 0) {
            quantize_group(x, q, out);
            continue;
        }
        const float32x4_t inverse = vdupq_n_f32(127.0f / top);
        int32x4_t code[8];
        UNROLL for (int i = 0; i < 8; i++) code[i] = vcvtnq_s32_f32(vmulq_f32(v[i], inverse));
        UNROLL for (int part = 0; part < 2; part++) {
            const int32x4_t *c = code + 4 * part;
            const int16x8_t low = vcombine_s16(vmovn_s32(c[0]), vmovn_s32(c[1]));
            const int16x8_t high = vcombine_s16(vmovn_s32(c[2]), vmovn_s32(c[3]));
            vst1q_s8(q + 16 * part, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
            out->sum[part] =
                vaddvq_s32(vaddq_s32(vaddq_s32(c[0], c[1]), vaddq_s32(c[2], c[3])));
        }
        out->total = out->sum[0] + out->sum[1];
        out->scale = top / 127.0f;
        out->scaled_sum = out->scale * (float)out->total;
    }
}

/* Items of the work of quantising: a row each. */
static int64_t quantize_items(const Input *in) { return in->rows; }

static void quantize_range(const Input *in, int64_t from, int64_t end)
{
    for (int64_t m = from; m < end; m++)
        quantize_row(in->x + m * in->cols, in->groups, in->q + m * in->cols,
                     in->group + m * in->groups);
}

/* --- weights --------------------------------------------------------------------------------- */

/* Vector v of a group for quad j of a panel's rows: codes from 0 on, those of Q8_0 signed. */
INLINE int8x16_t codes_at(const int bits, const uint8_t *first_half, const int v, const int j)
{
    const uint8_t *half = first_half + (j >> 1) * half_bytes(bits) + 16 * (j & 1);
    if (bits == 8) return vreinterpretq_s8_u8(vld1q_u8(half + 32 * v));
    uint8x16_t q = vld1q_u8(half + plane_bytes(bits) + 32 * (v & 3));
    q = v >= 4 ? vshrq_n_u8(q, 4) : vandq_u8(q, vdupq_n_u8(15));
    if (bits != 4) {
        const int shift = bits == 5 ? 4 - v : 4 - 2 * (v & 3);
        uint8x16_t high = vld1q_u8(bits == 5 ? half : half + 32 * (v >> 2));
        high = vshlq_u8(high, vdupq_n_s8((int8_t)shift)); /* to the right where it is negative */
        q = vorrq_u8(q, vandq_u8(high, vdupq_n_u8(bits == 5 ? 16 : 48)));
    }
    return vreinterpretq_s8_u8(q);
}

INLINE float32x4_t halves_at(const uint8_t *p)
{
    return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p)));
}

/* 16 sub-scales as floats. */
INLINE void subs_at(const uint8_t *subs, const int is_signed, float32x4_t to[QUADS])
{
    const uint8x16_t s = vld1q_u8(subs);
    int16x8_t part[2];
    if (is_signed) {
        part[0] = vmovl_s8(vget_low_s8(vreinterpretq_s8_u8(s)));
        part[1] = vmovl_s8(vget_high_s8(vreinterpretq_s8_u8(s)));
    } else {
        part[0] = vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(s)));
        part[1] = vreinterpretq_s16_u16(vmovl_u8(vget_high_u8(s)));
    }
    UNROLL for (int j = 0; j < QUADS; j++)
        to[j] = vcvtq_f32_s32(
            vmovl_s16(j & 1 ? vget_high_s16(part[j >> 1]) : vget_low_s16(part[j >> 1])));
}

/* Scales and minimums of a panel's rows for group g of a cell; the same values as scale_at. The
 * second scale, of values 16 .. 31 of the group, is set for Q6_K only. */
INLINE void scales_at(const int kind, const uint8_t *cell, int g, float32x4_t scale[2][QUADS],
                      float32x4_t least[QUADS])
{
    const uint8_t *subs = cell + PANEL * 2 * (1 + is_affine(kind));
    float32x4_t factor[QUADS];
    UNROLL for (int j = 0; j < QUADS; j++) {
        scale[0][j] = halves_at(cell + 8 * j);
        if (is_affine(kind)) least[j] = halves_at(cell + PANEL * 2 + 8 * j);
    }
    if (!is_super(kind)) return;
    if (kind == Q6_K) {
        subs_at(subs + (2 * g + 1) * PANEL, 1, factor);
        UNROLL for (int j = 0; j < QUADS; j++) scale[1][j] = vmulq_f32(scale[0][j], factor[j]);
        subs_at(subs + 2 * g * PANEL, 1, factor);
    } else {
        subs_at(subs + (8 + g) * PANEL, 0, factor);
        UNROLL for (int j = 0; j < QUADS; j++) least[j] = vmulq_f32(least[j], vnegq_f32(factor[j]));
        subs_at(subs + g * PANEL, 0, factor);
    }
    UNROLL for (int j = 0; j < QUADS; j++) scale[0][j] = vmulq_f32(scale[0][j], factor[j]);
}

/* --- products -------------------------------------------------------------------------------- */

/* Adds one group's share to the accumulators of a quad of rows of W and one row of x. */
INLINE float32x4_t finish(const int kind, float32x4_t acc, const float32x4_t scale[2],
                          float32x4_t least, const Group *group, int32x4_t first, int32x4_t second)
{
    const float32x4_t scale_x = vdupq_n_f32(group->scale);
    acc = vfmaq_f32(acc, vmulq_f32(scale[0], scale_x), vcvtq_f32_s32(first));
    if (kind == Q6_K) acc = vfmaq_f32(acc, vmulq_f32(scale[1], scale_x), vcvtq_f32_s32(second));
    if (is_affine(kind)) acc = vfmaq_f32(acc, least, vdupq_n_f32(group->scaled_sum));
    return acc;
}

#ifdef HEADSTART_DOTPROD
/* sum + code * (four bytes of x), which `lane` of them says. Intrinsics want it as a literal. */
INLINE int32x4_t dot_lane(int32x4_t sum, int8x16_t code, int8x16_t x, const int lane)
{
    switch (lane) {
    case 0: return vdotq_laneq_s32(sum, code, x, 0);
    case 1: return vdotq_laneq_s32(sum, code, x, 1);
    case 2: return vdotq_laneq_s32(sum, code, x, 2);
    default: return vdotq_laneq_s32(sum, code, x, 3);
    }
}

/* Adds one group to sum[part][j][m] for quads j0 .. j1; part 1 only for Q6_K (values 16 .. 31).
 * `spread`: w holds bytes in the order of expand, else it is a group of packed codes. */
INLINE void dot_group(const int kind, const int spread, const int j0, const int j1, const int m_rows,
                      const uint8_t *w, const int8_t *const *q, int32x4_t sum[2][QUADS][TILE])
{
    UNROLL for (int part = 0; part < 2; part++) {
        int8x16_t x[TILE];
        UNROLL for (int m = 0; m < m_rows; m++) x[m] = vld1q_s8(q[m] + 16 * part);
        UNROLL for (int lane = 0; lane < 4; lane++) {
            const int v = 4 * part + lane, to = kind == Q6_K ? part : 0;
            UNROLL for (int j = j0; j < j1; j++) {
                const int8x16_t code = spread
                                           ? vld1q_s8((const int8_t *)w + 64 * v + 16 * j)
                                           : codes_at(bits_of(kind), w, v, j);
                UNROLL for (int m = 0; m < m_rows; m++)
                    sum[to][j][m] = dot_lane(sum[to][j][m], code, x[m], lane);
            }
        }
    }
}
#else
/* Vectors whose products fit 16 bits when added: codes times +-127, lane by lane. */
INLINE int addable(const int kind) { return kind == Q8_0 ? 2 : kind == Q6_K ? 4 : 8; }

/* As above. */
INLINE void dot_group(const int kind, const int spread, const int j0, const int j1, const int m_rows,
                      const uint8_t *w, const int8_t *const *q, int32x4_t sum[2][QUADS][TILE])
{
    const int step = addable(kind);
    UNROLL for (int v0 = 0; v0 < VECTORS; v0 += step) {
        int16x8_t low[QUADS][TILE], high[QUADS][TILE]; /* rows 0 and 1 of a quad, rows 2 and 3 */
        UNROLL for (int v = v0; v < v0 + step; v++) {
            int8x16_t code[QUADS];
            UNROLL for (int j = j0; j < j1; j++)
                code[j] = spread ? vld1q_s8((const int8_t *)w + 64 * v + 16 * j)
                                 : codes_at(bits_of(kind), w, v, j);
            UNROLL for (int m = 0; m < m_rows; m++) {
                int32_t four;
                memcpy(&four, q[m] + 4 * v, 4);
                const int8x16_t x = vreinterpretq_s8_s32(vdupq_n_s32(four));
                UNROLL for (int j = j0; j < j1; j++) {
                    if (v == v0) {
                        low[j][m] = vmull_s8(vget_low_s8(code[j]), vget_low_s8(x));
                        high[j][m] = vmull_high_s8(code[j], x);
                    } else {
                        low[j][m] = vmlal_s8(low[j][m], vget_low_s8(code[j]), vget_low_s8(x));
                        high[j][m] = vmlal_high_s8(high[j][m], code[j], x);
                    }
                }
            }
        }
        const int to = kind == Q6_K && v0 >= 4;
        UNROLL for (int m = 0; m < m_rows; m++)
            UNROLL for (int j = j0; j < j1; j++) {
                const int32x4_t four_rows =
                    vpaddq_s32(vpaddlq_s16(low[j][m]), vpaddlq_s16(high[j][m]));
                sum[to][j][m] = vaddq_s32(sum[to][j][m], four_rows);
            }
    }
}
#endif

/* --- few rows of x: codes are unpacked in registers ------------------------------------------- */

/* All of K for one panel and one or two rows of x, straight from the packed bytes. Sums start at what
 * the codes' zero takes off. */
INLINE void panel_packed(const int kind, const int m_rows, const uint8_t *panel, const Input *in,
                         int64_t m0, float out[][PANEL])
{
    const int bits = bits_of(kind), groups = block_of(kind) / GROUP, parts = kind == Q6_K ? 2 : 1;
    const int zero = zero_shift(kind) < 0 ? 0 : 1 << zero_shift(kind);
    const int64_t cells = in->groups / groups;
    const int8_t *q[TILE];
    const Group *group[TILE];
    float32x4_t acc[QUADS][TILE];
    UNROLL for (int m = 0; m < m_rows; m++) {
        q[m] = in->q + (m0 + m) * in->cols;
        group[m] = in->group + (m0 + m) * in->groups;
        UNROLL for (int j = 0; j < QUADS; j++) acc[j][m] = vdupq_n_f32(0.0f);
    }
    for (int64_t c = 0; c < cells; c++, panel += cell_bytes(kind)) {
        const uint8_t *half = panel + head_bytes(kind);
        for (int g = 0; g < groups; g++, half += 2 * half_bytes(bits)) {
            UNROLL for (int i = 0; i < 2 * half_bytes(bits); i += 64)
                __builtin_prefetch(half + AHEAD_BYTES + i);
            int32x4_t sum[2][QUADS][TILE];
            UNROLL for (int m = 0; m < m_rows; m++)
                UNROLL for (int part = 0; part < 2; part++) {
                    const int32_t total = parts == 2 ? group[m]->sum[part] : group[m]->total;
                    UNROLL for (int j = 0; j < QUADS; j++)
                        sum[part][j][m] = vdupq_n_s32(-zero * total);
                }
            dot_group(kind, 0, 0, QUADS, m_rows, half, q, sum);
            float32x4_t scale[2][QUADS], least[QUADS];
            scales_at(kind, panel, g, scale, least);
            UNROLL for (int j = 0; j < QUADS; j++) {
                const float32x4_t both[2] = {scale[0][j], scale[parts - 1][j]};
                const float32x4_t under = is_affine(kind) ? least[j] : vdupq_n_f32(0.0f);
                UNROLL for (int m = 0; m < m_rows; m++)
                    acc[j][m] = finish(kind, acc[j][m], both, under, group[m], sum[0][j][m],
                                       sum[1][j][m]);
            }
            UNROLL for (int m = 0; m < m_rows; m++) {
                q[m] += GROUP;
                group[m]++;
            }
        }
    }
    UNROLL for (int m = 0; m < m_rows; m++)
        UNROLL for (int j = 0; j < QUADS; j++) vst1q_f32(out[m] + 4 * j, acc[j][m]);
}

/* All of K for one panel and up to FEW rows of x. */
INLINE void panel_few(const int kind, const uint8_t *panel, const Input *in, int64_t m0, int count,
                      float acc[][PANEL])
{
    int m = 0;
    for (; m + 2 <= count; m += 2) panel_packed(kind, 2, panel, in, m0 + m, acc + m);
    if (m < count) panel_packed(kind, 1, panel, in, m0 + m, acc + m);
}

/* --- many rows of x: a chunk of a panel is expanded once --------------------------------------- */

/* Where byte 0 of quad j of vector v lies in an expanded group; with i8mm vectors v and v + 1 are
 * zipped, so that 16 bytes are 8 values along K of two rows. */
INLINE void store_pair(const int v, const int j, int8x16_t even, int8x16_t odd, int8_t *to)
{
#ifdef HEADSTART_I8MM
    const int32x4_t a = vreinterpretq_s32_s8(even), b = vreinterpretq_s32_s8(odd);
    vst1q_s8(to + 64 * v + 32 * j, vreinterpretq_s8_s32(vzip1q_s32(a, b)));
    vst1q_s8(to + 64 * v + 32 * j + 16, vreinterpretq_s8_s32(vzip2q_s32(a, b)));
#else
    vst1q_s8(to + 64 * v + 16 * j, even);
    vst1q_s8(to + 64 * (v + 1) + 16 * j, odd);
#endif
}

/* Spreads groups g0 .. g0 + count of a panel into the scratch. */
INLINE void expand(const int kind, const uint8_t *panel, int64_t g0, int count, Scratch *to)
{
    const int bits = bits_of(kind), groups = block_of(kind) / GROUP, parts = kind == Q6_K ? 2 : 1;
    const int8x16_t zero = vdupq_n_s8(zero_shift(kind) < 0 ? 0 : (int8_t)(1 << zero_shift(kind)));
    for (int i = 0; i < count; i++) {
        const uint8_t *cell = panel + (g0 + i) / groups * cell_bytes(kind);
        const int g = (int)((g0 + i) % groups);
        const uint8_t *half = cell + head_bytes(kind) + 2 * g * half_bytes(bits);
        float32x4_t scale[2][QUADS], least[QUADS];
        scales_at(kind, cell, g, scale, least);
        UNROLL for (int j = 0; j < QUADS; j++) {
            vst1q_f32(to->scale[i][0] + 4 * j, scale[0][j]);
            if (parts == 2) vst1q_f32(to->scale[i][1] + 4 * j, scale[1][j]);
            if (is_affine(kind)) vst1q_f32(to->least[i] + 4 * j, least[j]);
        }
        int8_t *codes = (int8_t *)to->codes + i * PANEL * GROUP;
        UNROLL for (int v = 0; v < VECTORS; v += 2)
            UNROLL for (int j = 0; j < QUADS; j++)
                store_pair(v, j, vsubq_s8(codes_at(bits, half, v, j), zero),
                           vsubq_s8(codes_at(bits, half, v + 1, j), zero), codes);
    }
}

#ifdef HEADSTART_I8MM
/* One group's sums of m_rows rows of x with quads j0 .. j1, two rows of x at a time: an odd last one
 * is taken twice. */
INLINE void multiply_group(const int kind, const int j0, const int j1, const int m_rows,
                           const uint8_t *w, const int8_t *const *q,
                           int32x4_t sum[2][QUADS][TILE])
{
    const int pairs = (m_rows + 1) / 2, parts = kind == Q6_K ? 2 : 1, vectors = VECTORS / parts;
    UNROLL for (int part = 0; part < parts; part++) {
        int32x4_t square[QUADS][2][TILE / 2]; /* lanes: W0 x0, W0 x1, W1 x0, W1 x1 */
        UNROLL for (int p = 0; p < pairs; p++)
            UNROLL for (int j = j0; j < j1; j++)
                square[j][0][p] = square[j][1][p] = vdupq_n_s32(0);
        UNROLL for (int v = vectors * part; v < vectors * (part + 1); v += 2) {
            int8x16_t x[TILE / 2];
            UNROLL for (int p = 0; p < pairs; p++) {
                const int8_t *second = q[2 * p + 1 < m_rows ? 2 * p + 1 : 2 * p];
                x[p] = vcombine_s8(vld1_s8(q[2 * p] + 4 * v), vld1_s8(second + 4 * v));
            }
            UNROLL for (int j = j0; j < j1; j++)
                UNROLL for (int i = 0; i < 2; i++) {
                    const int8x16_t code = vld1q_s8((const int8_t *)w + 64 * v + 32 * j + 16 * i);
                    UNROLL for (int p = 0; p < pairs; p++)
                        square[j][i][p] = vmmlaq_s32(square[j][i][p], code, x[p]);
                }
        }
        UNROLL for (int p = 0; p < pairs; p++)
            UNROLL for (int j = j0; j < j1; j++) {
                sum[part][j][2 * p] = vuzp1q_s32(square[j][0][p], square[j][1][p]);
                if (2 * p + 1 < m_rows)
                    sum[part][j][2 * p + 1] = vuzp2q_s32(square[j][0][p], square[j][1][p]);
            }
    }
}
#else
/* One group's sums of m_rows rows of x with quads j0 .. j1. */
INLINE void multiply_group(const int kind, const int j0, const int j1, const int m_rows,
                           const uint8_t *w, const int8_t *const *q,
                           int32x4_t sum[2][QUADS][TILE])
{
    UNROLL for (int m = 0; m < m_rows; m++)
        UNROLL for (int j = j0; j < j1; j++) sum[0][j][m] = sum[1][j][m] = vdupq_n_s32(0);
    dot_group(kind, 1, j0, j1, m_rows, w, q, sum);
}
#endif

/* Quads of rows of W that share a pass: what their sums leave of the 32 registers. Without dotprod
 * each has two vectors of sums. */
#ifdef HEADSTART_DOTPROD
#define TOGETHER QUADS
#else
#define TOGETHER (QUADS / 2)
#endif

/* Adds `count` expanded groups to acc[m_rows][16]. */
INLINE void tile_expanded(const int kind, const int m_rows, const Scratch *w, const Input *in,
                          int64_t m0, int64_t g0, int count, float acc[][PANEL])
{
    const int parts = kind == Q6_K ? 2 : 1;
    const int8_t *q[TILE];
    const Group *group[TILE];
    UNROLL for (int m = 0; m < m_rows; m++) {
        q[m] = in->q + (m0 + m) * in->cols + GROUP * g0;
        group[m] = in->group + (m0 + m) * in->groups + g0;
    }
    for (int i = 0; i < count; i++) {
        UNROLL for (int j0 = 0; j0 < QUADS; j0 += TOGETHER) {
            int32x4_t sum[2][QUADS][TILE];
            multiply_group(kind, j0, j0 + TOGETHER, m_rows, w->codes + i * PANEL * GROUP, q, sum);
            UNROLL for (int j = j0; j < j0 + TOGETHER; j++) {
                const float32x4_t scale[2] = {vld1q_f32(w->scale[i][0] + 4 * j),
                                              vld1q_f32(w->scale[i][parts - 1] + 4 * j)};
                const float32x4_t least =
                    is_affine(kind) ? vld1q_f32(w->least[i] + 4 * j) : vdupq_n_f32(0.0f);
                UNROLL for (int m = 0; m < m_rows; m++) {
                    float *to = acc[m] + 4 * j;
                    vst1q_f32(to, finish(kind, vld1q_f32(to), scale, least, group[m] + i,
                                         sum[0][j][m], sum[parts - 1][j][m]));
                }
            }
        }
        UNROLL for (int m = 0; m < m_rows; m++) q[m] += GROUP;
    }
}

/* Adds `count` expanded groups to acc[0 .. m_count]. */
INLINE void tiles(const int kind, const Scratch *w, const Input *in, int64_t m0, int m_count,
                  int64_t g0, int count, float acc[][PANEL])
{
    int m = 0;
    for (; m + TILE <= m_count; m += TILE)
        tile_expanded(kind, TILE, w, in, m0 + m, g0, count, acc + m);
    switch (m_count - m) {
    case 3: tile_expanded(kind, 3, w, in, m0 + m, g0, count, acc + m); break;
    case 2: tile_expanded(kind, 2, w, in, m0 + m, g0, count, acc + m); break;
    case 1: tile_expanded(kind, 1, w, in, m0 + m, g0, count, acc + m); break;
    default: break;
    }
}

/* Once expanded, codes differ in nothing but what follows from these four. */
#define TILES(K)                                                                                  \
    static void tiles_##K(const Scratch *w, const Input *in, int64_t m0, int m_count, int64_t g0, \
                          int count, float acc[][PANEL])                                          \
    {                                                                                             \
        tiles(K, w, in, m0, m_count, g0, count, acc);                                             \
    }
TILES(Q5_0) TILES(Q5_1) TILES(Q8_0) TILES(Q6_K)
#undef TILES

/* Brings `count` groups from g0 into the cache while others are computed with; behind a panel's
 * last group lies the next panel. */
INLINE void fetch_ahead(const int kind, const uint8_t *panel, int64_t g0, int count)
{
    const int64_t groups = block_of(kind) / GROUP;
    const uint8_t *from = panel + g0 / groups * cell_bytes(kind);
    for (int64_t i = 0; i < count / groups * cell_bytes(kind); i += 64)
        __builtin_prefetch(from + i, 0, 2);
}

/* scratch->acc for `count` rows of x; 0: not written to the output yet. */
INLINE int panel_kind(const int kind, const uint8_t *panel, const Input *in, int64_t m0, int count,
                      Scratch *scratch)
{
    if (count <= FEW) {
        panel_few(kind, panel, in, m0, count, scratch->acc);
        return 0;
    }
    memset(scratch->acc, 0, (size_t)count * sizeof scratch->acc[0]);
    for (int64_t g0 = 0; g0 < in->groups; g0 += CHUNK_GROUPS) {
        const int64_t left = in->groups - g0;
        const int groups = left < CHUNK_GROUPS ? (int)left : CHUNK_GROUPS;
        expand(kind, panel, g0, groups, scratch);
        fetch_ahead(kind, panel, g0 + groups, groups);
        if (kind == Q6_K) tiles_Q6_K(scratch, in, m0, count, g0, groups, scratch->acc);
        else if (kind == Q8_0) tiles_Q8_0(scratch, in, m0, count, g0, groups, scratch->acc);
        else if (is_affine(kind)) tiles_Q5_1(scratch, in, m0, count, g0, groups, scratch->acc);
        else tiles_Q5_0(scratch, in, m0, count, g0, groups, scratch->acc);
    }
    return 0;
}

/* acc[m][16] of m_rows rows: acc = fma(w[k], x[k], acc) in ascending k. */
INLINE void float_rows(const int kind, const int m_rows, const uint8_t *panel, const float *x,
                       int64_t cols, float acc[][PANEL])
{
    float32x4_t out[QUADS][TILE];
    UNROLL for (int j = 0; j < QUADS; j++)
        UNROLL for (int m = 0; m < m_rows; m++) out[j][m] = vdupq_n_f32(0.0f);
    for (int64_t k = 0; k < cols; k++, panel += cell_bytes(kind)) {
        float32x4_t w[QUADS];
        UNROLL for (int j = 0; j < QUADS; j++)
            w[j] = kind == F16 ? halves_at(panel + 8 * j)
                               : vreinterpretq_f32_u8(vld1q_u8(panel + 16 * j));
        UNROLL for (int m = 0; m < m_rows; m++) {
            const float32x4_t each = vdupq_n_f32(x[m * cols + k]);
            UNROLL for (int j = 0; j < QUADS; j++) out[j][m] = vfmaq_f32(out[j][m], w[j], each);
        }
    }
    UNROLL for (int j = 0; j < QUADS; j++)
        UNROLL for (int m = 0; m < m_rows; m++) vst1q_f32(acc[m] + 4 * j, out[j][m]);
}

INLINE void panel_float(const int kind, const uint8_t *panel, const Input *in, int64_t m0, int count,
                        Scratch *scratch)
{
    int m = 0;
    for (; m + TILE <= count; m += TILE)
        float_rows(kind, TILE, panel, in->x + (m0 + m) * in->cols, in->cols, scratch->acc + m);
    for (; m < count; m++)
        float_rows(kind, 1, panel, in->x + (m0 + m) * in->cols, in->cols, scratch->acc + m);
}

#endif
