/* Attention of rows of one head to keys and values in up to SPANS parts: softmax(q k^T / sqrt(d)) v. */
#ifndef HEADSTART_WHISPER_ATTENTION_H
#define HEADSTART_WHISPER_ATTENTION_H

#include "../simd.h"

#define HEAD_VECTORS 16 /* a head has at most this many vectors: 128 values */
#define KEYS 8          /* keys scored together: one vector of scores */

/* sum_of each of eight vectors, with the same additions. */
INLINE Vec sums_of(const Vec v[KEYS])
{
#ifdef HEADSTART_AVX2
    __m256 half[4], pair[2];
    UNROLL for (int i = 0; i < 4; i++)
        half[i] = _mm256_add_ps(_mm256_permute2f128_ps(v[i], v[i + 4], 0x20),
                                _mm256_permute2f128_ps(v[i], v[i + 4], 0x31));
    UNROLL for (int i = 0; i < 2; i++)
        pair[i] = _mm256_add_ps(_mm256_shuffle_ps(half[2 * i], half[2 * i + 1], 0x44),
                                _mm256_shuffle_ps(half[2 * i], half[2 * i + 1], 0xee));
    return _mm256_add_ps(_mm256_shuffle_ps(pair[0], pair[1], 0x88),
                         _mm256_shuffle_ps(pair[0], pair[1], 0xdd));
#elif defined(HEADSTART_NEON)
    float32x4_t pair[4];
    UNROLL for (int i = 0; i < 4; i++) {
        const float32x4_t a = vaddq_f32(v[2 * i].low, v[2 * i].high);
        const float32x4_t b = vaddq_f32(v[2 * i + 1].low, v[2 * i + 1].high);
        pair[i] = vcombine_f32(vadd_f32(vget_low_f32(a), vget_high_f32(a)),
                               vadd_f32(vget_low_f32(b), vget_high_f32(b)));
    }
    return (Vec){vpaddq_f32(pair[0], pair[1]), vpaddq_f32(pair[2], pair[3])};
#else
    float sums[KEYS];
    for (int i = 0; i < KEYS; i++) sums[i] = sum_of(v[i]);
    return load(sums);
#endif
}

/* scores[t] = q . key t, for `count` keys `row` floats apart; eight at a time, the last one again
 * where fewer are left: what is written behind `count` is of no use. */
INLINE void score(const int64_t vectors, const float *q, const float *keys, int64_t row,
                  int64_t count, float *scores)
{
    for (int64_t t = 0; t < count; t += KEYS) {
        Vec sum[KEYS];
        UNROLL for (int i = 0; i < KEYS; i++) sum[i] = splat(0.0f);
        const float *key[KEYS];
        UNROLL for (int i = 0; i < KEYS; i++) key[i] = keys + (t + i < count ? t + i : count - 1) * row;
        UNROLL for (int64_t d = 0; d < vectors; d++) {
            const Vec part = load(q + LANES * d);
            UNROLL for (int i = 0; i < KEYS; i++) sum[i] = fma8(part, load(key[i] + LANES * d), sum[i]);
        }
        store(scores + t, sums_of(sum));
    }
}

#ifdef HEADSTART_WIDE
/* `score` of two rows, whose queries lie side by side, eight values of each: [vectors, 2, 8]. Each
 * half of a vector is what `score` has. */
INLINE void score_two(const int64_t vectors, const float *q, const float *keys, int64_t row,
                      int64_t count, float *first, float *second)
{
    for (int64_t t = 0; t < count; t += KEYS) {
        Part sum[KEYS];
        UNROLL for (int i = 0; i < KEYS; i++) sum[i] = splat_part(0.0f);
        const float *key[KEYS];
        UNROLL for (int i = 0; i < KEYS; i++) key[i] = keys + (t + i < count ? t + i : count - 1) * row;
        UNROLL for (int64_t d = 0; d < vectors; d++) {
            const Part part = load_part(q + PART_LANES * d);
            UNROLL for (int i = 0; i < KEYS; i++)
                sum[i] = fma_part(part, twice(load(key[i] + LANES * d)), sum[i]);
        }
        Vec half[KEYS];
        UNROLL for (int i = 0; i < KEYS; i++) half[i] = low_half(sum[i]);
        store(first + t, sums_of(half));
        UNROLL for (int i = 0; i < KEYS; i++) half[i] = high_half(sum[i]);
        store(second + t, sums_of(half));
    }
}
#endif

/* out += weights[t] * value t. */
INLINE void mix(const int64_t vectors, const float *weights, const float *values, int64_t row,
                int64_t count, Vec *out)
{
    Vec sum[HEAD_VECTORS]; /* of its own, so that it stays in registers */
    UNROLL for (int64_t d = 0; d < vectors; d++) sum[d] = out[d];
    for (int64_t t = 0; t < count; t++) {
        const Vec w = splat(weights[t]);
        UNROLL for (int64_t d = 0; d < vectors; d++)
            sum[d] = fma8(w, load(values + t * row + LANES * d), sum[d]);
    }
    UNROLL for (int64_t d = 0; d < vectors; d++) out[d] = sum[d];
}

/* Softmax over `count` scores in place, but for the division: their sum. The room behind the
 * scores up to a whole part is written over; what is there adds zeros. */
static float soften(float *scores, int64_t count)
{
    for (int64_t t = count; t % PART_LANES; t++) scores[t] = -INFINITY;
    Part most = splat_part(-INFINITY);
    Vec total = splat(0.0f);
    for (int64_t t = 0; t < count; t += PART_LANES) most = max_part(most, load_part(scores + t));
    most = splat_part(max_of_part(most));
    for (int64_t t = 0; t < count; t += PART_LANES) {
        const Part weight = exp_part(sub_part(load_part(scores + t), most));
        store_part(scores + t, weight);
        total = add_halves(total, weight);
    }
    return sum_of(total);
}

/* scores[t] *= share, up to a whole part. */
static void scale_by(float share, float *scores, int64_t count)
{
    for (int64_t t = 0; t < count; t += PART_LANES)
        store_part(scores + t, mul_part(load_part(scores + t), splat_part(share)));
}

#define SPANS 3
typedef struct {
    const float *k, *v;
    int64_t k_row, v_row, count;
} Span;

/* One row of one head over the spans; scores hold the weights afterwards. */
INLINE void attend(const int64_t vectors, const float *query, const Span *spans, int count,
                   float *scores, float *out)
{
    float q[HEAD_VECTORS * LANES] __attribute__((aligned(32)));
    Vec sum[HEAD_VECTORS];
    const Vec scale = splat(1.0f / sqrtf((float)(vectors * LANES)));
    UNROLL for (int64_t d = 0; d < vectors; d++) {
        store(q + LANES * d, mul8(load(query + LANES * d), scale));
        sum[d] = splat(0.0f);
    }
    int64_t keys = 0;
    for (int i = 0; i < count; keys += spans[i++].count)
        score(vectors, q, spans[i].k, spans[i].k_row, spans[i].count, scores + keys);
    const float total = soften(scores, keys);
    scale_by(1.0f / total, scores, keys);
    for (int64_t i = 0, at = 0; i < count; at += spans[i++].count)
        mix(vectors, scores + at, spans[i].v, spans[i].v_row, spans[i].count, sum);
    UNROLL for (int64_t d = 0; d < vectors; d++) store(out + LANES * d, sum[d]);
}

/* --- attention of several rows to the same keys: in an encoder, and in a decoder to the sound ----- */

/* Rows that share one pass over keys and values: as many as fit the registers, two parts each. */
#ifdef HEADSTART_WIDE
#define BLOCK_ROWS 8
#else
#define BLOCK_ROWS 4
#endif
#define BLOCK_KEYS (2 * PART_LANES)

/* Eight keys, eight values of each, as columns. */
INLINE void turn_eight(const float *keys, int64_t row, int64_t room, float *to)
{
#ifdef HEADSTART_AVX2
    __m256 a[LANES], b[LANES];
    UNROLL for (int i = 0; i < LANES; i++) a[i] = _mm256_loadu_ps(keys + i * row);
    UNROLL for (int i = 0; i < LANES; i += 2) {
        b[i] = _mm256_unpacklo_ps(a[i], a[i + 1]);
        b[i + 1] = _mm256_unpackhi_ps(a[i], a[i + 1]);
    }
    UNROLL for (int i = 0; i < LANES; i += 4) {
        a[i] = _mm256_shuffle_ps(b[i], b[i + 2], 0x44);
        a[i + 1] = _mm256_shuffle_ps(b[i], b[i + 2], 0xee);
        a[i + 2] = _mm256_shuffle_ps(b[i + 1], b[i + 3], 0x44);
        a[i + 3] = _mm256_shuffle_ps(b[i + 1], b[i + 3], 0xee);
    }
    UNROLL for (int i = 0; i < 4; i++) {
        _mm256_storeu_ps(to + i * room, _mm256_permute2f128_ps(a[i], a[i + 4], 0x20));
        _mm256_storeu_ps(to + (i + 4) * room, _mm256_permute2f128_ps(a[i], a[i + 4], 0x31));
    }
#elif defined(HEADSTART_NEON)
    UNROLL for (int t = 0; t < LANES; t += 4)
        UNROLL for (int d = 0; d < LANES; d += 4) {
            const float *from = keys + t * row + d;
            const float32x4_t a = vld1q_f32(from), b = vld1q_f32(from + row);
            const float32x4_t c = vld1q_f32(from + 2 * row), e = vld1q_f32(from + 3 * row);
            /* Columns of a and c, of b and e; then all four. */
            const float32x4x2_t ac = vzipq_f32(a, c), be = vzipq_f32(b, e);
            const float32x4x2_t first = vzipq_f32(ac.val[0], be.val[0]);
            const float32x4x2_t second = vzipq_f32(ac.val[1], be.val[1]);
            vst1q_f32(to + d * room + t, first.val[0]);
            vst1q_f32(to + (d + 1) * room + t, first.val[1]);
            vst1q_f32(to + (d + 2) * room + t, second.val[0]);
            vst1q_f32(to + (d + 3) * room + t, second.val[1]);
        }
#else
    for (int t = 0; t < LANES; t++)
        for (int d = 0; d < LANES; d++) to[d * room + t] = keys[t * row + d];
#endif
}

/* Keys as columns: turned[d * room + t]. `at` keys are there already. */
static void turn(const Span *span, int64_t dim, int64_t at, int64_t room, float *turned)
{
    int64_t t = 0;
    for (; t + LANES <= span->count; t += LANES)
        for (int64_t d = 0; d < dim; d += LANES)
            turn_eight(span->k + t * span->k_row + d, span->k_row, room, turned + d * room + at + t);
    for (; t < span->count; t++)
        for (int64_t d = 0; d < dim; d++) turned[d * room + at + t] = span->k[t * span->k_row + d];
}

/* scores[m * room + t] = query m . key t for all keys; every sum runs over d in ascending order. */
INLINE void score_block(const int rows, int64_t dim, const float *query, int64_t q_row,
                        const float *turned, int64_t room, float *scores)
{
    const Part scale = splat_part(1.0f / sqrtf((float)dim));
    for (int64_t t = 0; t < room; t += BLOCK_KEYS) {
        Part sum[BLOCK_ROWS][2];
        UNROLL for (int m = 0; m < rows; m++) sum[m][0] = sum[m][1] = splat_part(0.0f);
        for (int64_t d = 0; d < dim; d++) {
            const float *keys = turned + d * room + t;
            const Part first = load_part(keys), second = load_part(keys + PART_LANES);
            UNROLL for (int m = 0; m < rows; m++) {
                const Part part = splat_part(query[m * q_row + d]);
                sum[m][0] = fma_part(part, first, sum[m][0]);
                sum[m][1] = fma_part(part, second, sum[m][1]);
            }
        }
        UNROLL for (int m = 0; m < rows; m++) {
            store_part(scores + m * room + t, mul_part(sum[m][0], scale));
            store_part(scores + m * room + t + PART_LANES, mul_part(sum[m][1], scale));
        }
    }
}

/* out[m] = sum of weights[m][t] * value t over the spans: two parts of a head at a time, then what is
 * left of it by vectors of eight. */
INLINE void mix_block(const int rows, int64_t dim, const float *weights, int64_t room,
                      const Span *spans, int count, float *out, int64_t out_row)
{
    int64_t d = 0;
    for (; d + 2 * PART_LANES <= dim; d += 2 * PART_LANES) {
        Part sum[BLOCK_ROWS][2];
        UNROLL for (int m = 0; m < rows; m++) sum[m][0] = sum[m][1] = splat_part(0.0f);
        const float *w = weights;
        for (int i = 0; i < count; w += spans[i++].count)
            for (int64_t t = 0; t < spans[i].count; t++) {
                const float *value = spans[i].v + t * spans[i].v_row + d;
                const Part first = load_part(value), second = load_part(value + PART_LANES);
                UNROLL for (int m = 0; m < rows; m++) {
                    const Part part = splat_part(w[m * room + t]);
                    sum[m][0] = fma_part(part, first, sum[m][0]);
                    sum[m][1] = fma_part(part, second, sum[m][1]);
                }
            }
        UNROLL for (int m = 0; m < rows; m++) {
            store_part(out + m * out_row + d, sum[m][0]);
            store_part(out + m * out_row + d + PART_LANES, sum[m][1]);
        }
    }
    for (; d < dim; d += LANES) {
        Vec sum[BLOCK_ROWS];
        UNROLL for (int m = 0; m < rows; m++) sum[m] = splat(0.0f);
        const float *w = weights;
        for (int i = 0; i < count; w += spans[i++].count)
            for (int64_t t = 0; t < spans[i].count; t++) {
                const Vec value = load(spans[i].v + t * spans[i].v_row + d);
                UNROLL for (int m = 0; m < rows; m++)
                    sum[m] = fma8(splat(w[m * room + t]), value, sum[m]);
            }
        UNROLL for (int m = 0; m < rows; m++) store(out + m * out_row + d, sum[m]);
    }
}

/* A call of F whose first argument is a constant: `rows`, at most BLOCK_ROWS. */
#if BLOCK_ROWS > 4
#define MORE_ROWS(F, ...)                                                                     \
    case 4: F(4, __VA_ARGS__); break;                                                         \
    case 5: F(5, __VA_ARGS__); break;                                                         \
    case 6: F(6, __VA_ARGS__); break;                                                         \
    case 7: F(7, __VA_ARGS__); break;
#else
#define MORE_ROWS(F, ...)
#endif
#define EACH_ROWS(rows, F, ...)                                                               \
    switch (rows) {                                                                           \
    case 1: F(1, __VA_ARGS__); break;                                                         \
    case 2: F(2, __VA_ARGS__); break;                                                         \
    case 3: F(3, __VA_ARGS__); break;                                                         \
    MORE_ROWS(F, __VA_ARGS__)                                                                 \
    default: F(BLOCK_ROWS, __VA_ARGS__);                                                      \
    }

/* Scores to weights, and the sums of values with them. */
static void mix_rows(int rows, int64_t dim, float *scores, int64_t room, const Span *spans, int count,
                     float *out, int64_t out_row)
{
    int64_t keys = 0;
    for (int i = 0; i < count; i++) keys += spans[i].count;
    for (int m = 0; m < rows; m++)
        scale_by(1.0f / soften(scores + m * room, keys), scores + m * room, keys);
    EACH_ROWS(rows, mix_block, dim, scores, room, spans, count, out, out_row)
}

/* Scores of `rows` rows of one head of a decoder, with the bits of `attend`. */
INLINE void score_rows(const int64_t vectors, int rows, const float *query, int64_t q_row,
                       int64_t room, const Span *spans, int count, float *scores)
{
    float q[BLOCK_ROWS * HEAD_VECTORS * LANES] __attribute__((aligned(64)));
    const int64_t dim = vectors * LANES;
    const Vec scale = splat(1.0f / sqrtf((float)dim));
    for (int m = 0; m < rows; m++, query += q_row) {
#ifdef HEADSTART_WIDE /* in pairs, side by side; an odd last row beside itself */
        float *to = q + m / 2 * 2 * dim + m % 2 * LANES;
        const int is_alone = m == rows - 1 && m % 2 == 0;
        for (int64_t d = 0; d < vectors; d++, to += 2 * LANES) {
            store(to, mul8(load(query + LANES * d), scale));
            if (is_alone) store(to + LANES, load(to));
        }
#else
        for (int64_t d = 0; d < vectors; d++)
            store(q + m * dim + LANES * d, mul8(load(query + LANES * d), scale));
#endif
    }
    for (int i = 0; i < count; scores += spans[i++].count) {
#ifdef HEADSTART_WIDE
        for (int m = 0; m < rows; m += 2) {
            float *first = scores + m * room, *second = m + 1 < rows ? first + room : first;
            score_two(vectors, q + m * dim, spans[i].k, spans[i].k_row, spans[i].count, first, second);
        }
#else
        for (int m = 0; m < rows; m++)
            score(vectors, q + m * dim, spans[i].k, spans[i].k_row, spans[i].count, scores + m * room);
#endif
    }
}

#endif
