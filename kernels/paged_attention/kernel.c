/* Attention over a paged cache, softmax kept up span by span (formula in README.md).
 *
 * A (row, head) walks its sequence in spans of SPAN tokens counted from the first; every sum runs
 * over dimensions or tokens in a fixed order. So the bits depend on the query and on the keys and
 * values it sees, not on which rows or heads share the call, the block size, the numbers of the
 * blocks, or the thread count.
 */
#include "../kernels.h"
#include "../simd.h"
#include "storage.h"

#define SPAN 64       /* tokens between two updates of the running maximum */
#define OUT_PARTS 4   /* parts of two heads' output kept in registers while tokens go by */
#define QUAD 4        /* tokens scored at a time */

/* One thread's memory; `width` is head_dim rounded up to whole vectors, the rest zeros. */
typedef struct {
    float *query;         /* [heads, width], times scale */
    float *keys, *values; /* [SPAN, width]: converted copies */
    float *out;           /* [heads, width] */
    float *most, *total;  /* [heads] */
    float *weights;       /* [heads, SPAN]: scores, then their exponentials */
    const float *key_rows[SPAN], *value_rows[SPAN]; /* where each token's lie, in pool or copy */
} Work;

INLINE int64_t rounded(int64_t n) { return (n + LANES - 1) / LANES * LANES; }

/* scores[t] = the sum of the lanes of sum[t], pairs of neighbours first. */
INLINE void add_lanes(const Vec sum[QUAD], float *scores)
{
#ifdef HEADSTART_AVX2
    const __m256 pairs =
        _mm256_hadd_ps(_mm256_hadd_ps(sum[0], sum[1]), _mm256_hadd_ps(sum[2], sum[3]));
    _mm_storeu_ps(scores,
                  _mm_add_ps(_mm256_castps256_ps128(pairs), _mm256_extractf128_ps(pairs, 1)));
#elif defined(HEADSTART_NEON)
    const float32x4_t low =
        vpaddq_f32(vpaddq_f32(sum[0].low, sum[1].low), vpaddq_f32(sum[2].low, sum[3].low));
    const float32x4_t high =
        vpaddq_f32(vpaddq_f32(sum[0].high, sum[1].high), vpaddq_f32(sum[2].high, sum[3].high));
    vst1q_f32(scores, vaddq_f32(low, high));
#else
    for (int t = 0; t < QUAD; t++) {
        const Vec v = sum[t]; /* in the order of the horizontal additions above */
        scores[t] = ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]));
    }
#endif
}

/* Scores of four keys with two queries. Two heads share the loads of the keys, two times four sums
 * fit the registers with their pointers; each sum is the same whatever it is computed beside. Where
 * vectors are wide enough one holds both heads' eight lanes. */
INLINE void score_quad(const float *const q[2], const float *const *keys, int64_t width,
                       float *const scores[2])
{
    Vec sum[2][QUAD];
    const float *k0 = keys[0], *k1 = keys[1], *k2 = keys[2], *k3 = keys[3];
#ifdef HEADSTART_WIDE
    Part two[QUAD];
    UNROLL for (int t = 0; t < QUAD; t++) two[t] = splat_part(0.0f);
    for (int64_t d = 0; d < width; d += LANES) {
        const Part query = join(load(q[0] + d), load(q[1] + d));
        two[0] = fma_part(twice(load(k0 + d)), query, two[0]);
        two[1] = fma_part(twice(load(k1 + d)), query, two[1]);
        two[2] = fma_part(twice(load(k2 + d)), query, two[2]);
        two[3] = fma_part(twice(load(k3 + d)), query, two[3]);
    }
    UNROLL for (int t = 0; t < QUAD; t++) {
        sum[0][t] = low_half(two[t]);
        sum[1][t] = high_half(two[t]);
    }
#else
    UNROLL for (int t = 0; t < QUAD; t++) sum[0][t] = sum[1][t] = splat(0.0f);
    for (int64_t d = 0; d < width; d += LANES) {
        const Vec key[QUAD] = {load(k0 + d), load(k1 + d), load(k2 + d), load(k3 + d)};
        UNROLL for (int h = 0; h < 2; h++) {
            const Vec query = load(q[h] + d);
            UNROLL for (int t = 0; t < QUAD; t++) sum[h][t] = fma8(key[t], query, sum[h][t]);
        }
    }
#endif
    UNROLL for (int h = 0; h < 2; h++) add_lanes(sum[h], scores[h]);
}

/* Sets rows[t] to the fp32 row of `width` of token first + t: in the pool, or converted in `copy`. */
static void find_rows(const Attention *c, const void *pool, const int32_t *table, int64_t kv,
                      int64_t first, int64_t tokens, float *copy, const float **rows)
{
    const int64_t dim = c->head_dim, width = rounded(dim), size = c->block_size;
    const int64_t stride = row_bytes(c->storage, dim);
    for (int64_t t = 0; t < tokens; t++, copy += width) {
        const int64_t block = table[(first + t) / size], offset = (first + t) % size;
        const uint8_t *row = (const uint8_t *)pool +
                             ((block * c->kv_heads + kv) * size + offset) * stride;
        rows[t] = copy;
        if (c->storage == STORED_FP32 && dim == width) rows[t] = (const float *)row;
        else row_to_floats(row, c->storage, dim, copy);
    }
}

/* The row at a slot of a pool with blocks of two types, and its type. */
INLINE uint8_t *row_of_two(const Attention *c, const void *pool, int64_t block, int64_t kv,
                           int64_t offset, int32_t *storage)
{
    const int64_t at = kv * c->block_size + offset, narrow = block - c->wide_blocks;
    *storage = narrow < 0 ? c->storage : c->narrow_storage;
    const int64_t row = row_bytes(*storage, c->head_dim);
    const int64_t stride = narrow < 0 ? c->kv_heads * c->block_size * row : c->narrow_stride;
    return (uint8_t *)pool + (narrow < 0 ? block : narrow) * stride + at * row;
}

/* `find_rows` where blocks are of two types. */
static void find_rows_of_two(const Attention *c, const void *pool, const int32_t *table, int64_t kv,
                             int64_t first, int64_t tokens, float *copy, const float **rows)
{
    const int64_t dim = c->head_dim, width = rounded(dim), size = c->block_size;
    for (int64_t t = 0; t < tokens; t++, copy += width) {
        int32_t storage;
        const uint8_t *row = row_of_two(c, pool, table[(first + t) / size], kv, (first + t) % size,
                                        &storage);
        rows[t] = copy;
        if (storage == STORED_FP32 && dim == width) rows[t] = (const float *)row;
        else row_to_floats(row, storage, dim, copy);
    }
}

/* weights[h][0 .. tokens] = scores of heads h and g (the same head twice where one is left). */
static void score_span(const Work *w, int64_t tokens, int64_t width, int64_t h, int64_t g)
{
    const float *const q[2] = {w->query + h * width, w->query + g * width};
    for (int64_t t = 0; t < tokens; t += QUAD) {
        const float *keys[QUAD];
        float *const scores[2] = {w->weights + h * SPAN + t, w->weights + g * SPAN + t};
        for (int i = 0; i < QUAD; i++) keys[i] = w->key_rows[t + i < tokens ? t + i : tokens - 1];
        score_quad(q, keys, width, scores);
    }
}

/* Scores -> weights, head h's running maximum and total; returns what the output so far fades by. */
static float weigh_span(const Work *w, int64_t tokens, int64_t h)
{
    float *weights = w->weights + h * SPAN;
    for (int64_t t = tokens; t % PART_LANES; t++) weights[t] = -INFINITY;
    Part highest = splat_part(w->most[h]);
    for (int64_t t = 0; t < tokens; t += PART_LANES)
        highest = max_part(load_part(weights + t), highest);
    const float now = max_of_part(highest), fade = first_of(exp8(splat(w->most[h] - now)));
    /* A NaN score is passed over by max_part, but makes its weight and so the total NaN. */
    Vec sum = splat(0.0f);
    for (int64_t t = 0; t < tokens; t += PART_LANES) {
        const Part weight = exp_part(sub_part(load_part(weights + t), splat_part(now)));
        store_part(weights + t, weight);
        sum = add_halves(sum, weight);
    }
    w->total[h] = w->total[h] * fade + sum_of(sum);
    w->most[h] = now;
    return fade;
}

/* out[head][count parts from d] = out * fade + sum over tokens of weight * value, two heads. */
INLINE void add_values(const Work *w, int64_t tokens, int64_t d, const int count,
                       const float fade[2], const float *const weights[2], float *const out[2])
{
    Part acc[2][OUT_PARTS];
    UNROLL for (int h = 0; h < 2; h++)
        UNROLL for (int i = 0; i < count; i++)
            acc[h][i] = mul_part(load_part(out[h] + d + PART_LANES * i), splat_part(fade[h]));
    for (int64_t t = 0; t < tokens; t++) {
        const float *value = w->value_rows[t] + d;
        const Part first = splat_part(weights[0][t]), second = splat_part(weights[1][t]);
        UNROLL for (int i = 0; i < count; i++) {
            const Part v = load_part(value + PART_LANES * i);
            acc[0][i] = fma_part(first, v, acc[0][i]);
            acc[1][i] = fma_part(second, v, acc[1][i]);
        }
    }
    UNROLL for (int h = 0; h < 2; h++)
        UNROLL for (int i = 0; i < count; i++)
            store_part(out[h] + d + PART_LANES * i, acc[h][i]);
}

/* The same for one vector of eight, where no whole part is left. */
INLINE void add_eight(const Work *w, int64_t tokens, int64_t d, const float fade[2],
                      const float *const weights[2], float *const out[2])
{
    Vec acc[2] = {mul8(load(out[0] + d), splat(fade[0])), mul8(load(out[1] + d), splat(fade[1]))};
    for (int64_t t = 0; t < tokens; t++) {
        const Vec v = load(w->value_rows[t] + d);
        UNROLL for (int h = 0; h < 2; h++) acc[h] = fma8(splat(weights[h][t]), v, acc[h]);
    }
    UNROLL for (int h = 0; h < 2; h++) store(out[h] + d, acc[h]);
}

/* Takes the span's tokens into the running softmax of heads h and g. */
static void take_span(const Work *w, int64_t tokens, int64_t width, int64_t h, int64_t g)
{
    score_span(w, tokens, width, h, g);
    const float first = weigh_span(w, tokens, h);
    const float fade[2] = {first, g == h ? first : weigh_span(w, tokens, g)};
    const float *const weights[2] = {w->weights + h * SPAN, w->weights + g * SPAN};
    float *const out[2] = {w->out + h * width, w->out + g * width};
    int64_t d = 0;
    for (; d + OUT_PARTS * PART_LANES <= width; d += OUT_PARTS * PART_LANES)
        add_values(w, tokens, d, OUT_PARTS, fade, weights, out);
    for (; d + PART_LANES <= width; d += PART_LANES)
        add_values(w, tokens, d, 1, fade, weights, out);
    for (; d < width; d += LANES) add_eight(w, tokens, d, fade, weights, out);
}

/* Heads [h0, h1) of one row, all of one KV head. */
static void attend(const Attention *c, int64_t row, int64_t h0, int64_t h1, Work *w)
{
    const int64_t dim = c->head_dim, width = rounded(dim), kv = h0 / (c->heads / c->kv_heads);
    const int64_t context = c->context_of_row[row];
    const int32_t *table = c->tables + c->seq_of_row[row] * c->max_blocks;
    for (int64_t h = h0; h < h1; h++) {
        const float *from = c->q + (row * c->heads + h) * dim;
        for (int64_t d = 0; d < dim; d++) w->query[h * width + d] = from[d] * c->scale;
        memset(w->out + h * width, 0, (size_t)width * sizeof(float));
        w->most[h] = -INFINITY;
        w->total[h] = 0.0f;
    }
    for (int64_t first = 0; first < context; first += SPAN) {
        const int64_t tokens = context - first < SPAN ? context - first : SPAN;
        if (c->wide_blocks < c->num_blocks) {
            find_rows_of_two(c, c->k_pool, table, kv, first, tokens, w->keys, w->key_rows);
            find_rows_of_two(c, c->v_pool, table, kv, first, tokens, w->values, w->value_rows);
        } else {
            find_rows(c, c->k_pool, table, kv, first, tokens, w->keys, w->key_rows);
            find_rows(c, c->v_pool, table, kv, first, tokens, w->values, w->value_rows);
        }
        for (int64_t h = h0; h < h1; h += 2)
            take_span(w, tokens, width, h, h + 1 < h1 ? h + 1 : h);
    }
    for (int64_t h = h0; h < h1; h++) {
        float *to = c->out + (row * c->heads + h) * dim;
        for (int64_t d = 0; d < dim; d++)
            to[d] = context > 0 ? w->out[h * width + d] / w->total[h] : 0.0f;
    }
}

/* The first row that names a sequence, length or block that is not there, or -1. */
int64_t hs_attention_bad_row(const Attention *c)
{
    for (int64_t row = 0; row < c->rows; row++) {
        const int64_t seq = c->seq_of_row[row], context = c->context_of_row[row];
        if (seq < 0 || seq >= c->seqs || context < 0) return row;
        const int64_t blocks = (context + c->block_size - 1) / c->block_size;
        if (blocks > c->max_blocks) return row;
        for (int64_t b = 0; b < blocks; b++) {
            const int64_t block = c->tables[seq * c->max_blocks + b];
            if (block < 0 || block >= c->num_blocks) return row;
        }
    }
    return -1;
}

typedef struct {
    const Attention *call;
    int64_t heads_a_piece; /* counted through all rows */
    _Atomic int failed;
} Job;

static void attend_piece(void *context, int64_t piece)
{
    Job *job = context;
    const Attention *c = job->call;
    const int64_t width = rounded(c->head_dim), heads = c->heads, group = heads / c->kv_heads;
    const int64_t floats = 2 * heads * width + 2 * SPAN * width + heads * (SPAN + 2);
    float *memory = malloc((size_t)floats * sizeof(float));
    if (!memory) {
        job->failed = 1;
        return;
    }
    /* What pads a row to whole vectors must add nothing. */
    if (width != c->head_dim) memset(memory, 0, (size_t)floats * sizeof(float));
    Work w;
    w.query = memory;
    w.out = w.query + heads * width;
    w.keys = w.out + heads * width;
    w.values = w.keys + SPAN * width;
    w.weights = w.values + SPAN * width;
    w.most = w.weights + heads * SPAN;
    w.total = w.most + heads;
    int64_t h = piece * job->heads_a_piece, end = h + job->heads_a_piece;
    if (end > c->rows * heads) end = c->rows * heads;
    while (h < end) { /* one KV head of one row at a time */
        const int64_t next = (h / group + 1) * group, stop = next < end ? next : end;
        attend(c, h / heads, h % heads, (stop - 1) % heads + 1, &w);
        h = stop;
    }
    free(memory);
}

/* -1: done; -2: out of memory; else the first row that is not valid, and nothing was done. */
int64_t hs_attention(const Attention *c)
{
    const int64_t bad = hs_attention_bad_row(c);
    if (bad >= 0) return bad;
    /* One row: an even share of heads for each thread. More: a KV head's group at a time. */
    const int64_t share = (c->heads + c->threads - 1) / c->threads;
    Job job = {c, c->rows == 1 ? share : c->heads / c->kv_heads, 0};
    const int64_t pieces = (c->rows * c->heads + job.heads_a_piece - 1) / job.heads_a_piece;
    hs_run(attend_piece, &job, pieces, c->threads);
    return job.failed ? -2 : -1;
}

/* Stores k, v [rows, kv_heads, head_dim] at slots; -1, or the first row whose slot is not there. */
int64_t hs_append(void *k_pool, void *v_pool, const float *k, const float *v, const int64_t *slots,
                  int64_t rows, int64_t kv_heads, int64_t block_size, int64_t head_dim,
                  int64_t num_blocks, int32_t storage)
{
    const int64_t stride = row_bytes(storage, head_dim);
    for (int64_t row = 0; row < rows; row++)
        if (slots[row] < 0 || slots[row] >= num_blocks * block_size) return row;
    for (int64_t row = 0; row < rows; row++)
        for (int64_t head = 0; head < kv_heads; head++, k += head_dim, v += head_dim) {
            const int64_t block = slots[row] / block_size, offset = slots[row] % block_size;
            const int64_t at = ((block * kv_heads + head) * block_size + offset) * stride;
            floats_to_row(k, storage, head_dim, (uint8_t *)k_pool + at);
            floats_to_row(v, storage, head_dim, (uint8_t *)v_pool + at);
        }
    return -1;
}

/* One row to one place; `codes` and `floats` are memory of dim + 4 bytes and of dim. */
static void append_one(const Attention *c, const void *pool, const float *from, int64_t slot,
                       int64_t head, int coded, uint8_t *codes, float *floats)
{
    int32_t storage;
    uint8_t *row = row_of_two(c, pool, slot / c->block_size, head, slot % c->block_size, &storage);
    if (coded && storage != c->narrow_storage) { /* read as a narrow block gives it */
        floats_to_row(from, c->narrow_storage, c->head_dim, codes);
        row_to_floats(codes, c->narrow_storage, c->head_dim, floats);
        from = floats;
    }
    floats_to_row(from, storage, c->head_dim, row);
}

/* hs_append where blocks are of two types; rows, pools and sizes are those of `c`. coded [rows]: 1:
 * rounded to the narrow type wherever the row lies; NULL: none. -2: out of memory. */
int64_t hs_append_mixed(const Attention *c, const float *k, const float *v, const int64_t *slots,
                        const uint8_t *coded)
{
    for (int64_t row = 0; row < c->rows; row++)
        if (slots[row] < 0 || slots[row] >= c->num_blocks * c->block_size) return row;
    const int64_t dim = c->head_dim;
    float *floats = malloc((size_t)(2 * dim + 1) * sizeof(float));
    if (!floats) return -2;
    uint8_t *codes = (uint8_t *)(floats + dim);
    for (int64_t row = 0; row < c->rows; row++)
        for (int64_t head = 0; head < c->kv_heads; head++, k += dim, v += dim) {
            const int rounds = coded && coded[row];
            append_one(c, c->k_pool, k, slots[row], head, rounds, codes, floats);
            append_one(c, c->v_pool, v, slots[row], head, rounds, codes, floats);
        }
    free(floats);
    return -1;
}
