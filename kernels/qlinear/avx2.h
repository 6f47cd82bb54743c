/* One panel with vectors of 256 bits: AVX2, and AVX-VNNI where it is there. */
#ifndef HEADSTART_QLINEAR_AVX2_H
#define HEADSTART_QLINEAR_AVX2_H

#include "input.h"

#define TILE 3 /* rows of x that share one pass over a weight vector: fit the registers */

static void quantize_row(const float *x, int64_t groups, int8_t *q, Group *out)
{
    const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    const __m256 largest = _mm256_set1_ps(3.402823466e38f);
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7), ones = _mm256_set1_epi16(1);
    for (int64_t g = 0; g < groups; g++, x += GROUP, q += GROUP, out++) {
        __m256 v[4], most = _mm256_setzero_ps(), bad = _mm256_setzero_ps();
        UNROLL for (int i = 0; i < 4; i++) {
            v[i] = _mm256_loadu_ps(x + 8 * i);
            __m256 size = _mm256_and_ps(v[i], magnitude);
            bad = _mm256_or_ps(bad, _mm256_cmp_ps(size, largest, _CMP_NLE_UQ));
            most = _mm256_max_ps(most, size);
        }
        __m128 m = _mm_max_ps(_mm256_castps256_ps128(most), _mm256_extractf128_ps(most, 1));
        m = _mm_max_ps(m, _mm_movehl_ps(m, m));
        m = _mm_max_ss(m, _mm_movehdup_ps(m));
        float top = _mm_cvtss_f32(m);
        if (top <= TINY || _mm256_movemask_ps(bad)) {
            quantize_group(x, q, out);
            continue;
        }
        __m256 inverse = _mm256_set1_ps(127.0f / top);
        __m256i c[4];
        UNROLL for (int i = 0; i < 4; i++)
            c[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse));
        __m256i a = _mm256_packs_epi32(c[0], c[1]), b = _mm256_packs_epi32(c[2], c[3]);
        __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(a, b), order);
        _mm256_storeu_si256((__m256i *)q, bytes);
        __m256i halves = _mm256_hadd_epi32(_mm256_madd_epi16(a, ones), _mm256_madd_epi16(b, ones));
        __m128i s = _mm_add_epi32(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1));
        out->sum[0] = _mm_extract_epi32(s, 0) + _mm_extract_epi32(s, 1);
        out->sum[1] = _mm_extract_epi32(s, 2) + _mm_extract_epi32(s, 3);
        out->total = out->sum[0] + out->sum[1];
        out->scale = top / 127.0f;
        out->scaled_sum = out->scale * (float)out->total;
    }
}

/* Expanded Q8_0 that is `narrow`: a pair of its products more fits 16 bits, a third less work. */
enum { Q8_NARROW = 100 };
#define NARROW_MOST 63

/* Vector v of a half as unsigned bytes (Q8_0: signed). */
INLINE __m256i vector_at(const int bits, const uint8_t *half, const int v)
{
    if (bits == 8) return _mm256_loadu_si256((const __m256i *)(half + 32 * v));
    __m256i q = _mm256_loadu_si256((const __m256i *)(half + plane_bytes(bits) + 32 * (v & 3)));
    if (v >= 4) q = _mm256_srli_epi16(q, 4);
    q = _mm256_and_si256(q, _mm256_set1_epi8(15));
    if (bits == 4) return q;
    const int shift = bits == 5 ? 4 - v : 4 - 2 * (v & 3);
    const uint8_t *plane = bits == 5 ? half : half + 32 * (v >> 2);
    __m256i high = _mm256_loadu_si256((const __m256i *)plane);
    high = shift > 0 ? _mm256_slli_epi16(high, shift) : _mm256_srli_epi16(high, -shift);
    return _mm256_or_si256(q, _mm256_and_si256(high, _mm256_set1_epi8(bits == 5 ? 16 : 48)));
}

#ifdef HEADSTART_VNNI
/* Whether expanded codes have their zero taken off: then they are the signed operand of the
 * multiplication, q + 128 is the unsigned one, and sums start at -128 * sum of codes. That saves the
 * correction by the sum of q for every row of x. */
INLINE int is_centred(const int kind) { return !is_affine(kind); }

/* Nothing overflows: narrow codes need no other way. */
INLINE int is_narrow(const Scratch *s)
{
    (void)s;
    return 0;
}

/* zero_shift of packed codes: those of Q8_0 are made unsigned. */
INLINE int packed_zero(const int kind) { return kind == Q8_0 ? 7 : zero_shift(kind); }

/* Integer dot products of one group: sum[part][h][m], part 1 only for Q6_K (values 16 .. 31).
 * `spread`: w holds bytes. Sums of four products go to 32 bits at once. */
INLINE void dot_group(const int kind, const int spread, const int halves, const int m_rows,
                      const uint8_t *w, const int8_t *const *q, __m256i sum[2][2][TILE])
{
    const int bits = bits_of(kind);
    UNROLL for (int v = 0; v < VECTORS; v++) {
        const int part = kind == Q6_K && v >= 4, first = v == 0 || (kind == Q6_K && v == 4);
        __m256i code[2];
        UNROLL for (int h = 0; h < halves; h++) {
            code[h] = vector_at(spread ? 8 : bits, w + h * (spread ? 256 : half_bytes(bits)), v);
            if (kind == Q8_0 && !spread)
                code[h] = _mm256_xor_si256(code[h], _mm256_set1_epi8((char)0x80));
        }
        UNROLL for (int m = 0; m < m_rows; m++) {
            int32_t four;
            memcpy(&four, q[m] + 4 * v, 4);
            const __m256i a = _mm256_set1_epi32(four);
            UNROLL for (int h = 0; h < halves; h++) {
                const __m256i so_far = first ? _mm256_setzero_si256() : sum[part][h][m];
                sum[part][h][m] = spread && is_centred(kind) ? dot_bytes(so_far, a, code[h])
                                                             : dot_bytes(so_far, code[h], a);
            }
        }
    }
}

#else
/* Vectors whose products fit 16 bits when added: codes times +-127, in pairs. */
INLINE int addable(const int kind)
{
    const int bits = bits_of(kind);
    return kind == Q8_NARROW || bits == 6 ? 2 : bits == 5 ? 4 : bits == 4 ? 8 : 1;
}

INLINE int is_narrow(const Scratch *s) { return s->narrow; }

/* As with AVX-VNNI above. The bounds of `addable` hold for these too. */
INLINE int is_centred(const int kind) { return zero_shift(kind) >= 0; }
INLINE int packed_zero(const int kind) { return zero_shift(kind); }

/* Products of vector v of both halves with m_rows rows of x, added to pairs (the first: stored). */
INLINE void add_products(const int kind, const int spread, const int halves, const int m_rows,
                         const uint8_t *w, const int8_t *const *q, const int v, const int first,
                         __m256i pairs[2][TILE])
{
    const int bits = bits_of(kind);
    __m256i code[2];
    UNROLL for (int h = 0; h < halves; h++)
        code[h] = vector_at(spread ? 8 : bits, w + h * (spread ? 256 : half_bytes(bits)), v);
    UNROLL for (int m = 0; m < m_rows; m++) {
        int32_t four;
        memcpy(&four, q[m] + 4 * v, 4);
        const __m256i a = _mm256_set1_epi32(four);
        UNROLL for (int h = 0; h < halves; h++) {
            __m256i product;
            if (kind == Q8_0 || kind == Q8_NARROW) /* 255 * 127 * 2 overflows 16 bits, 128 * 127 * 2 does not */
                product = _mm256_maddubs_epi16(_mm256_abs_epi8(code[h]), _mm256_sign_epi8(a, code[h]));
            else if (spread && is_centred(kind)) product = _mm256_maddubs_epi16(a, code[h]);
            else product = _mm256_maddubs_epi16(code[h], a);
            pairs[h][m] = first ? product : _mm256_add_epi16(pairs[h][m], product);
        }
    }
}

/* Integer dot products of one group: sum[part][h][m], part 1 only for Q6_K (values 16 .. 31).
 * `spread`: w holds bytes. Unrolling by two there keeps the compiler from hoisting loads until the
 * accumulators spill; packed codes need v to be a constant. */
INLINE void dot_group(const int kind, const int spread, const int halves, const int m_rows,
                      const uint8_t *w, const int8_t *const *q, __m256i sum[2][2][TILE])
{
    const int step = addable(kind);
    const __m256i ones = _mm256_set1_epi16(1);
    UNROLL for (int v0 = 0; v0 < VECTORS; v0 += step) {
        __m256i pairs[2][TILE];
        if (spread && step > 2) {
            UNROLL for (int m = 0; m < m_rows; m++) pairs[0][m] = pairs[1][m] = _mm256_setzero_si256();
            _Pragma("GCC unroll 2") for (int v = v0; v < v0 + step; v++)
                add_products(kind, spread, halves, m_rows, w, q, v, 0, pairs);
        } else {
            UNROLL for (int v = v0; v < v0 + step; v++)
                add_products(kind, spread, halves, m_rows, w, q, v, v == v0, pairs);
        }
        const int part = kind == Q6_K && v0 >= 4, first = v0 == 0 || (kind == Q6_K && v0 == 4);
        UNROLL for (int m = 0; m < m_rows; m++)
            UNROLL for (int h = 0; h < halves; h++) {
                const __m256i wide = _mm256_madd_epi16(pairs[h][m], ones);
                sum[part][h][m] = first ? wide : _mm256_add_epi32(sum[part][h][m], wide);
            }
    }
}

#endif

/* acc + scale_w * scale_x * (sum - zero * sum of q) for 8 rows of W; zero < 0: nothing to take off. */
INLINE __m256 scaled(const int zero, __m256 acc, __m256 scale_w, __m256 scale_x, __m256i sum,
                     int32_t q_sum)
{
    if (zero >= 0) sum = _mm256_sub_epi32(sum, _mm256_slli_epi32(_mm256_set1_epi32(q_sum), zero));
    return _mm256_fmadd_ps(_mm256_mul_ps(scale_w, scale_x), _mm256_cvtepi32_ps(sum), acc);
}

/* Adds one group's share to the accumulators of 8 rows of W and one row of x. */
INLINE __m256 finish(const int kind, const int zero, __m256 acc, const __m256 scale[2],
                     __m256 least, const Group *group, __m256i first, __m256i second)
{
    const __m256 scale_x = _mm256_set1_ps(group->scale);
    if (kind == Q6_K) {
        acc = scaled(zero, acc, scale[0], scale_x, first, group->sum[0]);
        return scaled(zero, acc, scale[1], scale_x, second, group->sum[1]);
    }
    acc = scaled(zero, acc, scale[0], scale_x, first, group->total);
    if (is_affine(kind)) acc = _mm256_fmadd_ps(least, _mm256_set1_ps(group->scaled_sum), acc);
    return acc;
}

INLINE __m256 halves_at(const uint8_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}

/* Scales and minimums of rows 8h .. 8h + 7 for group g of a cell; the same values as scale_at. */
INLINE void scales_at(const int kind, const uint8_t *cell, int g, int h, __m256 scale[2],
                      __m256 *least)
{
    __m256 d = halves_at(cell + 16 * h);
    *least = is_affine(kind) ? halves_at(cell + PANEL * 2 + 16 * h) : _mm256_setzero_ps();
    scale[0] = scale[1] = d;
    if (!is_super(kind)) return;
    const uint8_t *subs = cell + PANEL * 2 * (1 + is_affine(kind)) + 8 * h;
    if (kind == Q6_K) {
        for (int part = 0; part < 2; part++) {
            __m128i s = _mm_loadl_epi64((const __m128i *)(subs + (2 * g + part) * PANEL));
            scale[part] = _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(s)));
        }
        return;
    }
    __m128i s = _mm_loadl_epi64((const __m128i *)(subs + g * PANEL));
    __m128i m = _mm_loadl_epi64((const __m128i *)(subs + (8 + g) * PANEL));
    scale[0] = _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(s)));
    __m256 factor = _mm256_sub_ps(_mm256_setzero_ps(), _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(m)));
    *least = _mm256_mul_ps(*least, factor);
}

/* All of K for one panel and one or two rows of x, straight from the packed bytes. */
INLINE void panel_packed(const int kind, const int m_rows, const uint8_t *panel, const Input *in,
                         int64_t m0, float out[][PANEL])
{
    const int bits = bits_of(kind), groups = block_of(kind) / GROUP;
    const int64_t cells = in->groups / groups;
    const int8_t *q[TILE];
    const Group *group[TILE];
    __m256 acc[2][TILE];
    UNROLL for (int m = 0; m < m_rows; m++) {
        q[m] = in->q + (m0 + m) * in->cols;
        group[m] = in->group + (m0 + m) * in->groups;
        acc[0][m] = acc[1][m] = _mm256_setzero_ps();
    }
    for (int64_t c = 0; c < cells; c++, panel += cell_bytes(kind)) {
        const uint8_t *half = panel + head_bytes(kind);
        for (int g = 0; g < groups; g++) {
            UNROLL for (int i = 0; i < 2 * half_bytes(bits); i += 64)
                _mm_prefetch((const char *)half + AHEAD_BYTES + i, _MM_HINT_T0);
            UNROLL for (int h = 0; h < 2; h++, half += half_bytes(bits)) {
                __m256i sum[2][2][TILE];
                __m256 scale[2], least;
                scales_at(kind, panel, g, h, scale, &least);
                dot_group(kind, 0, 1, m_rows, half, q, sum);
                UNROLL for (int m = 0; m < m_rows; m++)
                    acc[h][m] = finish(kind, packed_zero(kind), acc[h][m], scale, least, group[m],
                                       sum[0][0][m], sum[1][0][m]);
            }
            UNROLL for (int m = 0; m < m_rows; m++) {
                q[m] += GROUP;
                group[m]++;
            }
        }
    }
    UNROLL for (int m = 0; m < m_rows; m++)
        UNROLL for (int h = 0; h < 2; h++) _mm256_storeu_ps(out[m] + 8 * h, acc[h][m]);
}

/* All of K for one panel and up to FEW rows of x. */
INLINE void panel_few(const int kind, const uint8_t *panel, const Input *in, int64_t m0, int count,
                      float acc[][PANEL])
{
    int m = 0;
    for (; m + 2 <= count; m += 2) panel_packed(kind, 2, panel, in, m0 + m, acc + m);
    if (m < count) panel_packed(kind, 1, panel, in, m0 + m, acc + m);
}

#ifndef HEADSTART_AVX512
/* One half of a group: codes to bytes, centred where the kind is; base[part] to -128 * their sum;
 * `most`: the largest size of a signed code so far, byte by byte. */
INLINE void expand_half(const int kind, const uint8_t *half, uint8_t *codes, int32_t *const base[2],
                        __m256i *most)
{
    const int bits = bits_of(kind), parts = kind == Q6_K ? 2 : 1;
    __m256i sum[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    UNROLL for (int v = 0; v < VECTORS; v++) {
        __m256i code = vector_at(bits, half, v);
        if (kind == Q8_0) *most = _mm256_max_epu8(*most, _mm256_abs_epi8(code));
        if (is_centred(kind)) {
            const int part = parts == 2 && v >= 4;
            if (kind != Q8_0)
                code = _mm256_sub_epi8(code, _mm256_set1_epi8((char)(1 << zero_shift(kind))));
            sum[part] = _mm256_add_epi16(sum[part],
                                         _mm256_maddubs_epi16(_mm256_set1_epi8(1), code));
        }
        _mm256_store_si256((__m256i *)(codes + 32 * v), code);
    }
    if (!is_centred(kind)) return;
    for (int part = 0; part < parts; part++)
        _mm256_store_si256((__m256i *)base[part],
                           _mm256_madd_epi16(sum[part], _mm256_set1_epi16(-128)));
}

/* Spreads groups g0 .. g0 + count of a panel into the scratch. */
INLINE void expand(const int kind, const uint8_t *panel, int64_t g0, int count, Scratch *to)
{
    const int bits = bits_of(kind), groups = block_of(kind) / GROUP;
    uint8_t *codes = to->codes;
    __m256i most = _mm256_setzero_si256();
    for (int i = 0; i < count; i++) {
        const uint8_t *cell = panel + (g0 + i) / groups * cell_bytes(kind);
        const int g = (int)((g0 + i) % groups);
        const uint8_t *half = cell + head_bytes(kind) + 2 * g * half_bytes(bits);
        for (int h = 0; h < 2; h++, half += half_bytes(bits), codes += 32 * VECTORS) {
            int32_t *const base[2] = {to->base[i][0] + 8 * h, to->base[i][1] + 8 * h};
            __m256 scale[2], least;
            scales_at(kind, cell, g, h, scale, &least);
            _mm256_store_ps(to->scale[i][0] + 8 * h, scale[0]);
            _mm256_store_ps(to->scale[i][1] + 8 * h, scale[1]);
            _mm256_store_ps(to->least[i] + 8 * h, least);
            expand_half(kind, half, codes, base, &most);
        }
    }
    const __m256i bound = _mm256_set1_epi8(NARROW_MOST);
    to->narrow = _mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_max_epu8(most, bound), bound)) == -1;
}

/* A part of the panels that is expanded next, to be brought into the cache meanwhile. */
typedef struct {
    const char *from;
    int64_t bytes;
} Ahead;

/* Adds `count` expanded groups to acc[m_rows][16], and fetches some of what is ahead with each: more
 * at once would wait for the few lines that may be on their way. */
INLINE void tile_expanded(const int kind, const int m_rows, const Scratch *w, const Input *in,
                          int64_t m0, int64_t g0, int count, float acc[][PANEL], const Ahead ahead)
{
    const int parts = kind == Q6_K ? 2 : 1;
    const int64_t step = (ahead.bytes / count + 63) / 64 * 64;
    const int8_t *q[TILE];
    const Group *group[TILE];
    UNROLL for (int m = 0; m < m_rows; m++) {
        q[m] = (is_centred(kind) ? in->raised : in->q) + (m0 + m) * in->cols + GROUP * g0;
        group[m] = in->group + (m0 + m) * in->groups + g0;
    }
    for (int i = 0; i < count; i++) {
        __m256i sum[2][2][TILE];
        for (int64_t b = i * step; b < (i + 1) * step && b < ahead.bytes; b += 64)
            _mm_prefetch(ahead.from + b, _MM_HINT_T1);
        dot_group(kind, 1, 2, m_rows, w->codes + i * PANEL * GROUP, q, sum);
        UNROLL for (int h = 0; h < 2; h++) {
            const __m256 scale[2] = {_mm256_load_ps(w->scale[i][0] + 8 * h),
                                     _mm256_load_ps(w->scale[i][1] + 8 * h)};
            const __m256 least = _mm256_load_ps(w->least[i] + 8 * h);
            UNROLL for (int m = 0; m < m_rows; m++) {
                float *to = acc[m] + 8 * h;
                for (int part = 0; is_centred(kind) && part < parts; part++)
                    sum[part][h][m] = _mm256_add_epi32(
                        sum[part][h][m],
                        _mm256_load_si256((const __m256i *)(w->base[i][part] + 8 * h)));
                _mm256_store_ps(to, finish(kind, -1, _mm256_load_ps(to), scale, least, group[m] + i,
                                           sum[0][h][m], sum[1][h][m]));
            }
        }
        UNROLL for (int m = 0; m < m_rows; m++) q[m] += GROUP;
    }
}

/* Adds `count` expanded groups to acc[0 .. m_count]; each tile fetches its share of what is ahead. */
INLINE void tiles(const int kind, const Scratch *w, const Input *in, int64_t m0, int m_count,
                  int64_t g0, int count, float acc[][PANEL], const Ahead ahead)
{
    const int64_t share = (ahead.bytes * TILE / m_count + 63) / 64 * 64;
    for (int m = 0; m < m_count; m += TILE) {
        const int64_t at = m / TILE * share, left = ahead.bytes - at;
        const Ahead here = {ahead.from + at, left < 0 ? 0 : left < share ? left : share};
        const int rows = m_count - m;
        if (rows >= TILE) tile_expanded(kind, TILE, w, in, m0 + m, g0, count, acc + m, here);
        else if (rows == 2) tile_expanded(kind, 2, w, in, m0 + m, g0, count, acc + m, here);
        else tile_expanded(kind, 1, w, in, m0 + m, g0, count, acc + m, here);
    }
}

/* Once expanded, Q4_K is Q4_1 and Q5_K is Q5_1: one function for both. */
#define TILES(K)                                                                                  \
    static void tiles_##K(const Scratch *w, const Input *in, int64_t m0, int m_count, int64_t g0, \
                          int count, float acc[][PANEL], Ahead ahead)                             \
    {                                                                                             \
        tiles(K, w, in, m0, m_count, g0, count, acc, ahead);                                      \
    }
TILES(Q4_0) TILES(Q4_1) TILES(Q5_0) TILES(Q5_1) TILES(Q8_0) TILES(Q8_NARROW) TILES(Q6_K)
#undef TILES

/* scratch->acc for `count` rows of x; 0: not written to the output yet. Few rows: unpack in registers; many: expand once, reuse. */
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
        /* Behind a panel's last group lies the next panel. */
        const int64_t block = block_of(kind) / GROUP, bytes = cell_bytes(kind);
        const Ahead ahead = {(const char *)panel + (g0 + groups) / block * bytes, groups / block * bytes};
        expand(kind, panel, g0, groups, scratch);
        switch (kind == Q8_0 && is_narrow(scratch) ? Q8_NARROW : kind) {
#define CASE(K, T) case K: tiles_##T(scratch, in, m0, count, g0, groups, scratch->acc, ahead); break;
            CASE(Q4_0, Q4_0) CASE(Q4_1, Q4_1) CASE(Q4_K, Q4_1) CASE(Q5_0, Q5_0) CASE(Q5_1, Q5_1)
            CASE(Q5_K, Q5_1) CASE(Q8_0, Q8_0) CASE(Q8_NARROW, Q8_NARROW)
            CASE(Q6_K, Q6_K)
#undef CASE
        }
    }
    return 0;
}

/* Items of the work of quantising: a row each. */
static int64_t quantize_items(const Input *in) { return in->rows; }

static void quantize_range(const Input *in, int64_t from, int64_t end)
{
    for (int64_t m = from; m < end; m++) {
        int8_t *restrict q = in->q + m * in->cols, *restrict raised = in->raised + m * in->cols;
        quantize_row(in->x + m * in->cols, in->groups, q, in->group + m * in->groups);
        if (in->rows > FEW)
            for (int64_t k = 0; k < in->cols; k++) raised[k] = (int8_t)(q[k] ^ 0x80);
    }
}

/* Float weights: acc[n] = fma(w[k, n], x[k], acc[n]) in ascending k. */
INLINE void panel_float(const int kind, const uint8_t *panel, const Input *in, int64_t m0, int count,
                        Scratch *scratch)
{
    for (int m = 0; m < count; m++) {
        const float *x = in->x + (m0 + m) * in->cols;
        __m256 acc[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
        for (int64_t k = 0; k < in->cols; k++)
            UNROLL for (int h = 0; h < 2; h++) {
                const uint8_t *at = panel + cell_bytes(kind) * k + cell_bytes(kind) / 2 * h;
                __m256 w = kind == F16 ? halves_at(at) : _mm256_loadu_ps((const float *)at);
                acc[h] = _mm256_fmadd_ps(w, _mm256_set1_ps(x[k]), acc[h]);
            }
        UNROLL for (int h = 0; h < 2; h++) _mm256_storeu_ps(scratch->acc[m] + 8 * h, acc[h]);
    }
}

#endif

#endif
