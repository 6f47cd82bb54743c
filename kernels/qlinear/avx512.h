/* One panel with vectors of 512 bits and their integer dot products (AVX-512 VNNI), for many rows of x;
 * one or two go through avx2.h. A vector holds 16 rows of W times 4 values along K, so each accumulator has
 * one lane for each row of the panel, summed in the order of every other level.
 *
 * Codes are spread to unsigned bytes whose zero is 128 (0 where there is a minimum), so that sums
 * start at -128 * sum of q. Rows of x lie in tiles of TILE, padded at the end:
 *     q      [tiles, groups, 8 vectors, TILE, 4]
 *     group  [tiles, groups] of TileGroup
 * so a tile's pass over K reads one stream, and every operand is at a fixed distance from it. */
#ifndef HEADSTART_QLINEAR_AVX512_H
#define HEADSTART_QLINEAR_AVX512_H

#include "avx2.h"

#define ROWS ROUNDED_ROWS /* rows of x that share one pass over a panel's chunk */
#define PAIR 2            /* up to so many rows of x lie as avx2.h has them */
#define DIRECT (2 * ROWS) /* up to so many, each tile unpacks codes in registers */

typedef struct {
    float scale[ROWS], scaled_sum[ROWS];
    int32_t start[3][ROWS]; /* -128 * sum of q: first half of the group, second half, both */
} TileGroup;

_Static_assert(sizeof(TileGroup) <= ROWS * sizeof(Group), "hs_qlinear reserves that much");

/* --- activations ----------------------------------------------------------------------------- */

/* x[32] of row m of a tile -> its bytes, 4 * ROWS apart from vector to vector, and its numbers. */
INLINE void quantize_into_tile(const float *x, int m, int8_t *q, TileGroup *out)
{
    const __m512 a = _mm512_loadu_ps(x), b = _mm512_loadu_ps(x + 16);
    const __m512 largest = _mm512_set1_ps(3.402823466e38f);
    const __m512 size_a = _mm512_abs_ps(a), size_b = _mm512_abs_ps(b);
    const int bad = _mm512_cmp_ps_mask(size_a, largest, _CMP_NLE_UQ) |
                    _mm512_cmp_ps_mask(size_b, largest, _CMP_NLE_UQ);
    const float top = _mm512_reduce_max_ps(_mm512_max_ps(size_a, size_b));
    int8_t codes[GROUP];
    Group group;
    if (bad || top <= TINY)
        quantize_group(x, codes, &group);
    else {
        const __m512 inverse = _mm512_set1_ps(127.0f / top);
        const __m128i low = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(a, inverse)));
        const __m128i high = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(b, inverse)));
        _mm_storeu_si128((__m128i *)codes, low);
        _mm_storeu_si128((__m128i *)(codes + 16), high);
        const __m128i ones = _mm_set1_epi8(1), none = _mm_setzero_si128();
        __m128i sum = _mm_hadd_epi32(_mm_dpbusd_epi32(none, ones, low),
                                     _mm_dpbusd_epi32(none, ones, high));
        sum = _mm_hadd_epi32(sum, sum);
        group.sum[0] = _mm_cvtsi128_si32(sum);
        group.sum[1] = _mm_extract_epi32(sum, 1);
        group.total = group.sum[0] + group.sum[1];
        group.scale = top / 127.0f;
        group.scaled_sum = group.scale * (float)group.total;
    }
    UNROLL for (int v = 0; v < VECTORS; v++) memcpy(q + 4 * (ROWS * v + m), codes + 4 * v, 4);
    out->scale[m] = group.scale;
    out->scaled_sum[m] = group.scaled_sum;
    out->start[0][m] = -128 * group.sum[0];
    out->start[1][m] = -128 * group.sum[1];
    out->start[2][m] = -128 * group.total;
}

/* Items of the work of quantising: few rows one by one, many as one group of one tile. */
static int64_t quantize_items(const Input *in)
{
    return in->rows <= PAIR ? in->rows : (in->rows + ROWS - 1) / ROWS * in->groups;
}

static void quantize_range(const Input *in, int64_t from, int64_t end)
{
    if (in->rows <= PAIR) {
        for (int64_t m = from; m < end; m++)
            quantize_row(in->x + m * in->cols, in->groups, in->q + m * in->cols,
                         in->group + m * in->groups);
        return;
    }
    for (int64_t i = from; i < end; i++) {
        const int64_t m0 = i / in->groups * ROWS, left = in->rows - m0;
        const float *x = in->x + m0 * in->cols + i % in->groups * GROUP;
        if (left < ROWS) { /* rows that are not there are zeros */
            memset(in->q + i * ROWS * GROUP, 0, ROWS * GROUP);
            memset((TileGroup *)in->group + i, 0, sizeof(TileGroup));
        }
        for (int m = 0; m < ROWS && m < left; m++)
            quantize_into_tile(x + m * in->cols, m, in->q + i * ROWS * GROUP,
                               (TileGroup *)in->group + i);
    }
}

/* --- weights --------------------------------------------------------------------------------- */

/* 32 bytes of each half of a panel: 16 rows. */
INLINE __m512i both(const uint8_t *half, const int apart)
{
    const __m256i first = _mm256_loadu_si256((const __m256i *)half);
    return _mm512_inserti64x4(_mm512_castsi256_si512(first),
                              _mm256_loadu_si256((const __m256i *)(half + apart)), 1);
}

/* Vector v of a group as unsigned bytes; those of Q8_0 as they lie in the file, signed. */
INLINE __m512i codes_of_both(const int bits, const uint8_t *half, const int v)
{
    const int apart = half_bytes(bits);
    if (bits == 8) return both(half + 32 * v, apart);
    __m512i q = both(half + plane_bytes(bits) + 32 * (v & 3), apart);
    if (v >= 4) q = _mm512_srli_epi16(q, 4);
    q = _mm512_and_si512(q, _mm512_set1_epi8(15));
    if (bits == 4) return q;
    const int shift = bits == 5 ? 4 - v : 4 - 2 * (v & 3);
    __m512i high = both(bits == 5 ? half : half + 32 * (v >> 2), apart);
    high = shift > 0 ? _mm512_slli_epi16(high, shift) : _mm512_srli_epi16(high, -shift);
    return _mm512_or_si512(q, _mm512_and_si512(high, _mm512_set1_epi8(bits == 5 ? 16 : 48)));
}

INLINE __m512 wide_halves_at(const uint8_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

/* 16 sub-scales as floats. */
INLINE __m512 subs_at(const uint8_t *subs, const int is_signed)
{
    const __m128i s = _mm_loadu_si128((const __m128i *)subs);
    return _mm512_cvtepi32_ps(is_signed ? _mm512_cvtepi8_epi32(s) : _mm512_cvtepu8_epi32(s));
}

/* Scales and minimums of a panel's rows for group i of the chunk; the same values as scale_at. */
INLINE void expand_scales(const int kind, const uint8_t *cell, int g, int i, Scratch *to)
{
    const __m512 d = wide_halves_at(cell);
    const uint8_t *subs = cell + PANEL * 2 * (1 + is_affine(kind));
    __m512 scale = d;
    if (kind == Q6_K) {
        scale = _mm512_mul_ps(d, subs_at(subs + 2 * g * PANEL, 1));
        _mm512_store_ps(to->scale[i][1], _mm512_mul_ps(d, subs_at(subs + (2 * g + 1) * PANEL, 1)));
    } else if (is_super(kind))
        scale = _mm512_mul_ps(d, subs_at(subs + g * PANEL, 0));
    _mm512_store_ps(to->scale[i][0], scale);
    if (!is_affine(kind)) return;
    __m512 least = wide_halves_at(cell + PANEL * 2);
    if (is_super(kind))
        least = _mm512_mul_ps(
            least, _mm512_sub_ps(_mm512_setzero_ps(), subs_at(subs + (8 + g) * PANEL, 0)));
    _mm512_store_ps(to->least[i], least);
}

/* Vector v of a group as unsigned bytes whose zero is 128, or 0 where there is a minimum. */
INLINE __m512i raised(const int kind, const uint8_t *half, const int v)
{
    const int zero = zero_shift(kind) < 0 ? 0 : 1 << zero_shift(kind);
    const __m512i code = codes_of_both(bits_of(kind), half, v);
    return is_affine(kind) ? code : _mm512_add_epi8(code, _mm512_set1_epi8((char)(128 - zero)));
}

/* Spreads groups g0 .. g0 + count of a panel into the scratch. */
INLINE void expand(const int kind, const uint8_t *panel, int64_t g0, int count, Scratch *to)
{
    const int bits = bits_of(kind), groups = block_of(kind) / GROUP;
    uint8_t *codes = to->codes;
    for (int i = 0; i < count; i++) {
        const uint8_t *cell = panel + (g0 + i) / groups * cell_bytes(kind);
        const int g = (int)((g0 + i) % groups);
        const uint8_t *half = cell + head_bytes(kind) + 2 * g * half_bytes(bits);
        expand_scales(kind, cell, g, i, to);
        UNROLL for (int v = 0; v < VECTORS; v++, codes += 2 * 32)
            _mm512_store_si512(codes, raised(kind, half, v));
    }
}

/* --- products -------------------------------------------------------------------------------- */

/* A chunk of a panel's groups, expanded in the scratch. */
typedef struct {
    int64_t g0;
    int count, is_first, is_last;
    const char *ahead; /* what is expanded next: comes into the cache meanwhile */
    int64_t ahead_bytes;
} Chunk;

/* Adds a chunk to the sums of m_rows rows, from row m of the scratch, row `first` of a tile. Sums wait
 * in the scratch from chunk to chunk; behind the last one they go to the output, of the first `there`
 * rows. `panel`: where its codes are unpacked from, in registers; NULL: the scratch has them. Then
 * `share` bytes of what is expanded next are fetched on the way, some with each group: more at once
 * would wait for the few lines that may be on their way. */
INLINE void tile_rows(const int kind, const int m_rows, const uint8_t *panel, Scratch *w,
                      const Chunk *chunk, const int8_t *q, const TileGroup *group, int first, int m0,
                      int there, const char *ahead, int64_t share)
{
    const int parts = kind == Q6_K ? 2 : 1, vectors = VECTORS / parts, bits = bits_of(kind);
    const int groups = block_of(kind) / GROUP, fetched = 2 * half_bytes(bits);
    const int64_t step = (share / chunk->count + 63) / 64 * 64;
    const uint8_t *codes = w->codes;
    float(*acc)[PANEL] = w->acc + m0;
    __m512 out[ROWS];
    UNROLL for (int m = 0; m < m_rows; m++)
        out[m] = chunk->is_first ? _mm512_setzero_ps() : _mm512_load_ps(acc[m]);
    q += 4 * first;
    for (int i = 0; i < chunk->count; i++, group++) {
        const int at = panel ? 0 : i;
        if (panel) {
            const uint8_t *cell = panel + i / groups * cell_bytes(kind);
            codes = cell + head_bytes(kind) + i % groups * fetched;
            expand_scales(kind, cell, i % groups, 0, w);
            UNROLL for (int b = 0; b < fetched; b += 64)
                _mm_prefetch((const char *)codes + AHEAD_BYTES + b, _MM_HINT_T0);
        } else
            for (int64_t b = i * step; b < (i + 1) * step && b < share; b += 64)
                _mm_prefetch(ahead + b, _MM_HINT_T1);
        UNROLL for (int part = 0; part < parts; part++) {
            __m512i sum[ROWS];
            UNROLL for (int m = 0; m < m_rows; m++)
                sum[m] = is_affine(kind)
                             ? _mm512_setzero_si512()
                             : _mm512_set1_epi32(group->start[parts == 2 ? part : 2][first + m]);
            UNROLL for (int v = 0; v < vectors; v++) {
                const __m512i code = panel ? raised(kind, codes, part * vectors + v)
                                           : _mm512_load_si512(codes);
                UNROLL for (int m = 0; m < m_rows; m++) {
                    int32_t four;
                    memcpy(&four, q + 4 * m, 4);
                    sum[m] = _mm512_dpbusd_epi32(sum[m], code, _mm512_set1_epi32(four));
                }
                if (!panel) codes += 2 * 32;
                q += 4 * ROWS;
            }
            const __m512 scale = _mm512_load_ps(w->scale[at][part]);
            UNROLL for (int m = 0; m < m_rows; m++)
                out[m] = _mm512_fmadd_ps(
                    _mm512_mul_ps(scale, _mm512_set1_ps(group->scale[first + m])),
                    _mm512_cvtepi32_ps(sum[m]), out[m]);
        }
        if (!is_affine(kind)) continue;
        const __m512 least = _mm512_load_ps(w->least[at]);
        UNROLL for (int m = 0; m < m_rows; m++)
            out[m] = _mm512_fmadd_ps(least, _mm512_set1_ps(group->scaled_sum[first + m]), out[m]);
    }
    if (!chunk->is_last) {
        UNROLL for (int m = 0; m < m_rows; m++) _mm512_store_ps(acc[m], out[m]);
        return;
    }
    const __mmask16 lanes = (__mmask16)((1u << w->width) - 1);
    if (w->bias) {
        const __m512 bias = _mm512_maskz_loadu_ps(lanes, w->bias);
        UNROLL for (int m = 0; m < m_rows; m++) out[m] = _mm512_add_ps(out[m], bias);
    }
    float *to = w->out + m0 * w->out_row;
    UNROLL for (int m = 0; m < m_rows; m++, to += w->out_row)
        if (m < there) _mm512_mask_storeu_ps(to, lanes, out[m]);
}

/* Adds a chunk to the sums of m_count rows from row m0 of x, the first of a tile. */
INLINE void tiles(const int kind, Scratch *w, const Chunk *chunk, const Input *in, int64_t m0,
                  int m_count)
{
    for (int m = 0; m < m_count; m += ROWS) {
        const int64_t at = (m0 + m) / ROWS * in->groups + chunk->g0;
        const int8_t *q = in->q + at * ROWS * GROUP;
        const TileGroup *group = (const TileGroup *)in->group + at;
        const int rows = m_count - m < ROWS ? m_count - m : ROWS;
        for (int i = 0; chunk->is_last && i < rows; i++) /* is written soon */
            __builtin_prefetch(w->out + (m + i) * w->out_row, 1);
        int64_t share = (chunk->ahead_bytes * ROWS / m_count + 63) / 64 * 64;
        const char *ahead = chunk->ahead + m / ROWS * share;
#define SOME(count, first)                                                                         \
    tile_rows(kind, count, NULL, w, chunk, q, group, first, m + (first), count, ahead, share)
        if (rows == ROWS) {
            SOME(ROWS, 0);
            continue;
        }
        if (rows & 4) SOME(4, 0), share = 0;
        if (rows & 2) SOME(2, rows & 4), share = 0;
        if (rows & 1) SOME(1, rows & 6);
#undef SOME
    }
}

/* Once expanded, codes differ in nothing but what follows from these three. */
#define TILES(K)                                                                                   \
    static void tiles_##K(Scratch *w, const Chunk *chunk, const Input *in, int64_t m0, int m_count) \
    {                                                                                              \
        tiles(K, w, chunk, in, m0, m_count);                                                       \
    }
TILES(Q8_0) TILES(Q4_1) TILES(Q6_K)
#undef TILES

/* `count` rows of x: 1 if their output is written, 0 if the sums are in scratch->acc. */
INLINE int panel_kind(const int kind, const uint8_t *panel, const Input *in, int64_t m0, int count,
                      Scratch *scratch)
{
    if (in->rows <= PAIR) {
        panel_few(kind, panel, in, m0, count, scratch->acc);
        return 0;
    }
    if (in->rows <= DIRECT) {
        const Chunk whole = {.count = (int)in->groups, .is_first = 1, .is_last = 1};
        for (int m = 0; m < count; m += ROWS) {
            const int64_t at = m / ROWS * in->groups;
            const int8_t *q = in->q + at * ROWS * GROUP;
            const TileGroup *group = (const TileGroup *)in->group + at;
            const int left = count - m;
            if (left <= 4)
                tile_rows(kind, 4, panel, scratch, &whole, q, group, 0, m, left, NULL, 0);
            else tile_rows(kind, ROWS, panel, scratch, &whole, q, group, 0, m, left, NULL, 0);
        }
        return 1;
    }
    const int64_t groups = block_of(kind) / GROUP;
    for (int64_t g0 = 0; g0 < in->groups; g0 += CHUNK_GROUPS) {
        const int64_t left = in->groups - g0, next = g0 + CHUNK_GROUPS;
        Chunk chunk = {.g0 = g0, .is_first = g0 == 0, .is_last = left <= CHUNK_GROUPS};
        chunk.count = chunk.is_last ? (int)left : CHUNK_GROUPS;
        /* Behind a panel's last group lies the next panel. */
        chunk.ahead = (const char *)panel + (g0 + chunk.count) / groups * cell_bytes(kind);
        const int64_t then = in->groups - next < CHUNK_GROUPS ? in->groups - next : CHUNK_GROUPS;
        chunk.ahead_bytes = (chunk.is_last ? chunk.count : then) / groups * cell_bytes(kind);
        expand(kind, panel, g0, chunk.count, scratch);
        if (kind == Q6_K) tiles_Q6_K(scratch, &chunk, in, m0, count);
        else if (is_affine(kind)) tiles_Q4_1(scratch, &chunk, in, m0, count);
        else tiles_Q8_0(scratch, &chunk, in, m0, count);
    }
    return 1;
}

/* acc[m][16] of M rows: acc = fma(w[k], x[k], acc) in ascending k. */
INLINE void float_rows(const int kind, const int m_rows, const uint8_t *panel, const float *x,
                       int64_t cols, float acc[][PANEL])
{
    __m512 out[ROWS];
    UNROLL for (int m = 0; m < m_rows; m++) out[m] = _mm512_setzero_ps();
    for (int64_t k = 0; k < cols; k++, panel += cell_bytes(kind)) {
        const __m512 w = kind == F16 ? wide_halves_at(panel) : _mm512_loadu_ps(panel);
        UNROLL for (int m = 0; m < m_rows; m++)
            out[m] = _mm512_fmadd_ps(w, _mm512_set1_ps(x[m * cols + k]), out[m]);
    }
    UNROLL for (int m = 0; m < m_rows; m++) _mm512_store_ps(acc[m], out[m]);
}

INLINE void panel_float(const int kind, const uint8_t *panel, const Input *in, int64_t m0, int count,
                        Scratch *scratch)
{
    int m = 0;
    for (; m + ROWS <= count; m += ROWS)
        float_rows(kind, ROWS, panel, in->x + (m0 + m) * in->cols, in->cols, scratch->acc + m);
    for (; m < count; m++)
        float_rows(kind, 1, panel, in->x + (m0 + m) * in->cols, in->cols, scratch->acc + m);
}

#endif
