/* Attention over a paged cache, softmax kept up block by block (formula in README.md).
 *
 * A (row, head) walks its sequence's blocks in order; every sum runs over dimensions or tokens in a
 * fixed order. So the bits depend on the query, the keys and values it sees and the block size, not
 * on which rows or heads share the call, the numbers of the blocks, or the thread count.
 */
#include "../simd.h"

#define OUT_VECTORS 4 /* vectors of the output kept in registers while the tokens go by */

typedef struct {
    int64_t rows, heads, kv_heads, head_dim, block_size, num_blocks, seqs, max_blocks;
    const float *q;             /* [rows, heads, head_dim] */
    const void *k_pool, *v_pool; /* [num_blocks, kv_heads, block_size, head_dim] */
    const int32_t *tables;      /* [seqs, max_blocks] */
    const int32_t *seq_of_row, *context_of_row;
    float *out; /* [rows, heads, head_dim] */
    float scale;
    int32_t half; /* pools are fp16, else fp32 */
    int32_t threads;
} Call;

/* One thread's memory; `width` is head_dim rounded up to whole vectors, the rest zeros. */
typedef struct {
    float *query;       /* [heads, width], times scale */
    float *keys, *values; /* [block_size, width] */
    float *weights;     /* [block_size rounded up to LANES] */
    float *out;         /* [heads, width] */
    float *most, *total; /* [heads] */
} Work;

INLINE int64_t rounded(int64_t n) { return (n + LANES - 1) / LANES * LANES; }

/* Eight dot products with one query, one per lane. */
INLINE Vec dots(const float *query, const float *const *keys, int64_t width)
{
    Vec sum[LANES];
    UNROLL for (int t = 0; t < LANES; t++) sum[t] = splat(0.0f);
    for (int64_t d = 0; d < width; d += LANES) {
        Vec v = load(query + d);
        UNROLL for (int t = 0; t < LANES; t++) sum[t] = fma8(load(keys[t] + d), v, sum[t]);
    }
#ifdef HEADSTART_AVX2
    __m256 a = _mm256_hadd_ps(_mm256_hadd_ps(sum[0], sum[1]), _mm256_hadd_ps(sum[2], sum[3]));
    __m256 b = _mm256_hadd_ps(_mm256_hadd_ps(sum[4], sum[5]), _mm256_hadd_ps(sum[6], sum[7]));
    return _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
#else
    Vec out;
    for (int t = 0; t < LANES; t++) out[t] = sum_of(sum[t]);
    return out;
#endif
}

/* The block as fp32 rows of `width`: where it lies, or a converted copy in `copy`. */
static const float *block_rows(const Call *c, const void *pool, int64_t at, int64_t tokens,
                               float *copy)
{
    const int64_t dim = c->head_dim, width = rounded(dim);
    if (!c->half && dim == width) return (const float *)pool + at;
    for (int64_t t = 0; t < tokens; t++, at += dim, copy += width) {
        int64_t d = 0;
        if (!c->half) {
            memcpy(copy, (const float *)pool + at, (size_t)dim * sizeof(float));
            continue;
        }
        const uint16_t *from = (const uint16_t *)pool + at;
        for (; d + LANES <= dim; d += LANES) store(copy + d, load_half8(from + d));
        for (; d < dim; d++) copy[d] = half_to_float(from[d]);
    }
    return copy - tokens * width;
}

/* Takes `tokens` keys and values into head h's running softmax. */
static void take_block(const float *keys, const float *values, int64_t tokens, int64_t width,
                       const Work *w, int64_t h)
{
    Vec most = splat(-INFINITY);
    for (int64_t t = 0; t < tokens; t += LANES) {
        const float *rows[LANES];
        for (int i = 0; i < LANES; i++)
            rows[i] = keys + (t + i < tokens ? t + i : tokens - 1) * width;
        Vec score = dots(w->query + h * width, rows, width);
        for (int64_t i = tokens - t; i < LANES; i++) score[i] = -INFINITY;
        store(w->weights + t, score);
        most = max8(score, most);
    }
    float now = max_of(most);
    now = now > w->most[h] ? now : w->most[h];
    /* A NaN score compares false everywhere above: it must still reach the weights. */
    Vec sum = splat(0.0f), top = splat(now);
    for (int64_t t = 0; t < tokens; t += LANES) {
        Vec weight = exp8(load(w->weights + t) - top);
        store(w->weights + t, weight);
        sum += weight;
    }
    float fade = exp8(splat(w->most[h] - now))[0];
    w->total[h] = w->total[h] * fade + sum_of(sum);
    w->most[h] = now;
    float *out = w->out + h * width;
    for (int64_t d = 0; d < width; d += OUT_VECTORS * LANES) {
        const int count = width - d < OUT_VECTORS * LANES ? (int)(width - d) / LANES : OUT_VECTORS;
        Vec acc[OUT_VECTORS];
        if (count == OUT_VECTORS) {
            UNROLL for (int i = 0; i < OUT_VECTORS; i++)
                acc[i] = load(out + d + LANES * i) * splat(fade);
            for (int64_t t = 0; t < tokens; t++)
                UNROLL for (int i = 0; i < OUT_VECTORS; i++)
                    acc[i] = fma8(splat(w->weights[t]), load(values + t * width + d + LANES * i),
                                  acc[i]);
            UNROLL for (int i = 0; i < OUT_VECTORS; i++) store(out + d + LANES * i, acc[i]);
            continue;
        }
        for (int i = 0; i < count; i++) {
            Vec one = load(out + d + LANES * i) * splat(fade);
            for (int64_t t = 0; t < tokens; t++)
                one = fma8(splat(w->weights[t]), load(values + t * width + d + LANES * i), one);
            store(out + d + LANES * i, one);
        }
    }
}

/* Heads [h0, h1) of one row, all of one KV head. */
static void attend(const Call *c, int64_t row, int64_t h0, int64_t h1, const Work *w)
{
    const int64_t dim = c->head_dim, width = rounded(dim), kv = h0 / (c->heads / c->kv_heads);
    const int64_t context = c->context_of_row[row], size = c->block_size;
    const int32_t *table = c->tables + c->seq_of_row[row] * c->max_blocks;
    for (int64_t h = h0; h < h1; h++) {
        const float *from = c->q + (row * c->heads + h) * dim;
        for (int64_t d = 0; d < dim; d++) w->query[h * width + d] = from[d] * c->scale;
        memset(w->out + h * width, 0, (size_t)width * sizeof(float));
        w->most[h] = -INFINITY;
        w->total[h] = 0.0f;
    }
    for (int64_t done = 0; done < context; done += size) {
        const int64_t tokens = context - done < size ? context - done : size;
        const int64_t at = (table[done / size] * c->kv_heads + kv) * size * dim;
        const float *keys = block_rows(c, c->k_pool, at, tokens, w->keys);
        const float *values = block_rows(c, c->v_pool, at, tokens, w->values);
        for (int64_t h = h0; h < h1; h++) take_block(keys, values, tokens, width, w, h);
    }
    for (int64_t h = h0; h < h1; h++) {
        float *to = c->out + (row * c->heads + h) * dim;
        for (int64_t d = 0; d < dim; d++)
            to[d] = context > 0 ? w->out[h * width + d] / w->total[h] : 0.0f;
    }
}

/* The first row that names a sequence, length or block that is not there, or -1. */
static int64_t bad_row(const Call *c)
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
    const Call *call;
    int64_t heads_a_piece; /* counted through all rows */
    _Atomic int failed;
} Job;

static void attend_piece(void *context, int64_t piece)
{
    Job *job = context;
    const Call *c = job->call;
    const int64_t width = rounded(c->head_dim), heads = c->heads, group = heads / c->kv_heads;
    const int64_t floats = 2 * heads * width + 2 * c->block_size * width +
                           rounded(c->block_size) + 2 * heads;
    float *memory = calloc((size_t)floats, sizeof(float));
    if (!memory) {
        job->failed = 1;
        return;
    }
    Work w = {.query = memory, .out = memory + heads * width};
    w.keys = w.out + heads * width;
    w.values = w.keys + c->block_size * width;
    w.weights = w.values + c->block_size * width;
    w.most = w.weights + rounded(c->block_size);
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
int64_t hs_attention(const Call *c)
{
    const int64_t bad = bad_row(c);
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
                  int64_t num_blocks, int32_t half)
{
    for (int64_t row = 0; row < rows; row++)
        if (slots[row] < 0 || slots[row] >= num_blocks * block_size) return row;
    for (int64_t row = 0; row < rows; row++)
        for (int64_t head = 0; head < kv_heads; head++, k += head_dim, v += head_dim) {
            const int64_t block = slots[row] / block_size, offset = slots[row] % block_size;
            const int64_t at = ((block * kv_heads + head) * block_size + offset) * head_dim;
            if (!half) {
                memcpy((float *)k_pool + at, k, (size_t)head_dim * sizeof(float));
                memcpy((float *)v_pool + at, v, (size_t)head_dim * sizeof(float));
                continue;
            }
            for (int64_t d = 0; d < head_dim; d++) {
                ((uint16_t *)k_pool)[at + d] = float_to_half(k[d]);
                ((uint16_t *)v_pool)[at + d] = float_to_half(v[d]);
            }
        }
    return -1;
}
