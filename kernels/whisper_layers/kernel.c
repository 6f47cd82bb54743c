/* Whole Whisper layers, of the encoder and of the decoder: what reference.py says, without some
 * twenty calls through Python and torch a layer. A row of the result depends on its own sequence
 * only, not on the others in the batch, nor on the number of threads. */
#include "../gelu.h"
#include "../kernels.h"

#define HEAD_VECTORS 16 /* a head has at most this many vectors: 128 values */
#define KEYS 8          /* keys scored together: one vector of scores */
#define BUFFERS 5

typedef struct {
    const float *weight, *bias;
} Norm;

typedef struct {
    Norm self_norm, cross_norm, mlp_norm;
    Weight qkv, out, cross_q, cross_out, up, down; /* cross_q.panels NULL: the layer has no cross */
} Layer;

/* Keys or values of all layers: head h of row t of layer l lies at l * layer + t * row + h * head. */
typedef struct {
    float *data;
    int64_t layer, row, head;
} Memory;

typedef struct {
    int64_t rows;         /* of x */
    int64_t before;       /* rows of k and v that are there already */
    int64_t keep;         /* new rows whose keys and values are written behind those */
    int64_t heard;        /* rows of heard_k and heard_v */
    Memory k, v, heard_k, heard_v;
    float *seen;          /* [watched, rows, heard] or NULL */
} Sequence;

typedef struct {
    int64_t first, end; /* of the layers that are run */
    int64_t width, heads, ffn, causal, sequences, watched;
    const Layer *layer;
    const Sequence *sequence;
    const int64_t *watch; /* [watched, 2]: layer and head whose attention to the sound is wanted */
    float *x;             /* [rows of all sequences, width], written over */
    int64_t threads;
} Call;

typedef struct {
    const Call *call;
    int64_t rows, at;     /* of all sequences; the layer */
    float *normed, *wide, *heads, *hidden, *product;
    int64_t size;         /* values of an element-wise stage */
    int64_t pieces, cross;
    _Atomic int failed;
} Job;

/* --- element-wise ---------------------------------------------------------------------------- */

static void gelu_piece(void *context, int64_t piece)
{
    const Job *j = context;
    const int64_t vectors = j->size / LANES, end = hs_share(vectors, j->pieces, piece + 1) * LANES;
    int64_t i = hs_share(vectors, j->pieces, piece) * LANES;
    for (; i + PART_LANES <= end; i += PART_LANES)
        store_part(j->hidden + i, gelu_part(load_part(j->hidden + i)));
    for (; i < end; i += LANES) store(j->hidden + i, gelu8(load(j->hidden + i)));
}

static void add(float *restrict to, const float *restrict from, int64_t size)
{
    for (int64_t i = 0; i < size; i += LANES) store(to + i, add8(load(to + i), load(from + i)));
}

/* --- attention ------------------------------------------------------------------------------- */

/* scores[t] = q . key t, for `count` keys `row` floats apart; eight at a time, the last one again
 * where fewer are left. */
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
        for (int i = 0; i < KEYS && t + i < count; i++) scores[t + i] = sum_of(sum[i]);
    }
}

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
    for (int i = 0, at = 0; i < count; at += (int)spans[i++].count)
        mix(vectors, scores + at, spans[i].v, spans[i].v_row, spans[i].count, sum);
    UNROLL for (int64_t d = 0; d < vectors; d++) store(out + LANES * d, sum[d]);
}

/* --- attention of several rows to the same keys: in an encoder, where every row sees all of them */

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

/* `rows` rows of one head, whose keys are `turned`; scores: room for them. */
INLINE void attend_block(const int rows, int64_t dim, const float *query, int64_t q_row,
                         const float *turned, int64_t room, const Span *spans, int count,
                         float *scores, float *out, int64_t out_row)
{
    int64_t keys = 0;
    for (int i = 0; i < count; i++) keys += spans[i].count;
    score_block(rows, dim, query, q_row, turned, room, scores);
    for (int m = 0; m < rows; m++)
        scale_by(1.0f / soften(scores + m * room, keys), scores + m * room, keys);
    mix_block(rows, dim, scores, room, spans, count, out, out_row);
}

static const float *at(const Memory *m, int64_t layer, int64_t head)
{
    return m->data + layer * m->layer + head * m->head;
}

/* What row r of sequence s attends to: the words or positions before and the new rows, or the
 * sound. `first`: of its rows in the batch. */
static int spans_of(const Job *j, const Sequence *s, int64_t first, int64_t r, int64_t head, Span *to)
{
    const Call *c = j->call;
    const int64_t width = c->width, dim = width / c->heads;
    if (j->cross) {
        to[0] = (Span){at(&s->heard_k, j->at, head), at(&s->heard_v, j->at, head), s->heard_k.row,
                       s->heard_v.row, s->heard};
        return 1;
    }
    const float *fresh = j->wide + first * 3 * width + head * dim;
    to[0] = (Span){at(&s->k, j->at, head), at(&s->v, j->at, head), s->k.row, s->v.row, s->before};
    to[1] = (Span){fresh + width, fresh + 2 * width, 3 * width, 3 * width, c->causal ? r + 1 : s->rows};
    return 2;
}

/* Where the weights of a watched head go, or NULL. */
static float *seen_at(const Job *j, const Sequence *s, int64_t head, int64_t r)
{
    if (!j->cross || !s->seen) return NULL;
    for (int64_t i = 0; i < j->call->watched; i++)
        if (j->call->watch[2 * i] == j->at && j->call->watch[2 * i + 1] == head)
            return s->seen + (i * s->rows + r) * s->heard;
    return NULL;
}

/* Where the keys of the longest sequence have room, in whole blocks. */
static int64_t room_for_keys(const Job *j)
{
    int64_t longest = 0;
    for (int64_t i = 0; i < j->call->sequences; i++) {
        const Sequence *s = j->call->sequence + i;
        const int64_t keys = j->cross ? s->heard : s->before + s->rows;
        longest = keys > longest ? keys : longest;
    }
    return (longest + BLOCK_KEYS - 1) / BLOCK_KEYS * BLOCK_KEYS;
}

/* Rows low .. high of one sequence and head, each seeing all of its keys. */
static void attend_all(const Job *j, const Sequence *s, int64_t first, int64_t low, int64_t high,
                       int64_t head, float *turned, float *scores)
{
    const int64_t width = j->call->width, dim = width / j->call->heads, q_row = 3 * width;
    Span spans[2];
    const int count = spans_of(j, s, first, low, head, spans);
    const int64_t keys = spans[0].count + spans[1].count;
    const int64_t room = (keys + BLOCK_KEYS - 1) / BLOCK_KEYS * BLOCK_KEYS;
    memset(turned, 0, (size_t)(dim * room) * sizeof(float));
    turn(spans, dim, 0, room, turned);
    turn(spans + 1, dim, spans[0].count, room, turned);
    for (int64_t r = low; r < high; r += BLOCK_ROWS) {
        const float *q = j->wide + (first + r) * q_row + head * dim;
        float *out = j->heads + (first + r) * width + head * dim;
        switch (high - r < BLOCK_ROWS ? high - r : BLOCK_ROWS) {
#define ROWS(N) attend_block(N, dim, q, q_row, turned, room, spans, count, scores, out, width); break;
        case 1: ROWS(1)
        case 2: ROWS(2)
        case 3: ROWS(3)
#if BLOCK_ROWS > 4
        case 4: ROWS(4)
        case 5: ROWS(5)
        case 6: ROWS(6)
        case 7: ROWS(7)
#endif
        default: ROWS(BLOCK_ROWS)
#undef ROWS
        }
    }
}

/* Heads and the rows of all sequences are counted through: item = head * rows + row, so that a
 * piece turns few heads' keys. */
static void attend_all_piece(void *context, int64_t piece)
{
    Job *j = context;
    const Call *c = j->call;
    const int64_t room = room_for_keys(j), dim = c->width / c->heads;
    float *turned = malloc((size_t)((dim + BLOCK_ROWS) * room) * sizeof(float));
    if (!turned) {
        j->failed = 1;
        return;
    }
    const int64_t from = hs_share(c->heads * j->rows, j->pieces, piece);
    const int64_t end = hs_share(c->heads * j->rows, j->pieces, piece + 1);
    for (int64_t head = 0, first = 0; head < c->heads; head++)
        for (int64_t i = 0; i < c->sequences; first += c->sequence[i++].rows) {
            const Sequence *s = c->sequence + i;
            const int64_t low = from > first ? from - first : 0;
            const int64_t high = end - first < s->rows ? end - first : s->rows;
            if (low < high)
                attend_all(j, s, first - head * j->rows, low, high, head, turned, turned + dim * room);
        }
    free(turned);
}

/* Rows of all sequences and heads are counted through: item = row * heads + head. */
static void attend_piece(void *context, int64_t piece)
{
    Job *j = context;
    const Call *c = j->call;
    const int64_t dim = c->width / c->heads, q_row = j->cross ? c->width : 3 * c->width;
    int64_t first = 0;
    float *scores = malloc((size_t)room_for_keys(j) * sizeof(float));
    if (!scores) {
        j->failed = 1;
        return;
    }
    /* Head by head through the rows: its keys stay in the cache. */
    const int64_t from = hs_share(j->rows, j->pieces, piece), end = hs_share(j->rows, j->pieces, piece + 1);
    for (int64_t i = 0; i < c->sequences; first += c->sequence[i++].rows) {
        const Sequence *s = c->sequence + i;
        const int64_t low = from > first ? from - first : 0;
        const int64_t high = end - first < s->rows ? end - first : s->rows;
        for (int64_t head = 0; head < c->heads; head++)
            for (int64_t r = low; r < high; r++) {
                Span spans[2];
                const int count = spans_of(j, s, first, r, head, spans);
                const float *q = j->wide + (first + r) * q_row + head * dim;
                float *out = j->heads + (first + r) * c->width + head * dim;
                if (dim == 64) attend(8, q, spans, count, scores, out);
                else attend(dim / LANES, q, spans, count, scores, out);
                float *seen = seen_at(j, s, head, r);
                if (seen) memcpy(seen, scores, (size_t)s->heard * sizeof(float));
            }
    }
    free(scores);
}

/* --- layers ---------------------------------------------------------------------------------- */

/* Writes the first `keep` new keys and values of each sequence behind those it has. */
static void remember(const Job *j)
{
    const Call *c = j->call;
    const int64_t width = c->width, dim = width / c->heads;
    int64_t first = 0;
    for (int64_t i = 0; i < c->sequences; first += c->sequence[i++].rows) {
        const Sequence *s = c->sequence + i;
        for (int64_t r = 0; r < s->keep; r++)
            for (int64_t head = 0; head < c->heads; head++) {
                const float *fresh = j->wide + (first + r) * 3 * width + head * dim;
                const int64_t to = j->at * s->k.layer + (s->before + r) * s->k.row + head * s->k.head;
                const int64_t to_v = j->at * s->v.layer + (s->before + r) * s->v.row + head * s->v.head;
                memcpy(s->k.data + to, fresh + width, (size_t)dim * sizeof(float));
                memcpy(s->v.data + to_v, fresh + 2 * width, (size_t)dim * sizeof(float));
            }
    }
}

static int multiply(const Job *j, const float *x, int64_t cols, const Weight *weight, float *out)
{
    Weight to = *weight;
    to.out = out;
    return hs_qlinear(x, j->rows, cols, 1, &to, (int)j->call->threads);
}

static void run(Job *j, PoolTask task, int64_t items, int64_t values)
{
    j->pieces = pieces_of(items, values, (int)j->call->threads);
    hs_run(task, j, j->pieces, (int)j->call->threads);
}

static void normalise(const Job *j, const Norm *norm)
{
    const Call *c = j->call;
    hs_layer_norm(c->x, norm->weight, norm->bias, j->rows, c->width, j->normed, (int)c->threads);
}

/* x += what attention says: to itself and the rows before, or (`cross`) to the sound. */
static int add_attention(Job *j, const Norm *norm, const Weight *in, const Weight *out, int cross)
{
    const int64_t width = j->call->width;
    j->cross = cross;
    normalise(j, norm);
    if (multiply(j, j->normed, width, in, j->wide)) return -1;
    if (!cross) remember(j);
    if (!cross && !j->call->causal)
        run(j, attend_all_piece, j->call->heads * j->rows, j->rows * width * LANES);
    else
        run(j, attend_piece, j->rows, j->rows * width * LANES);
    if (j->failed || multiply(j, j->heads, width, out, j->product)) return -1;
    add(j->call->x, j->product, j->rows * width);
    return 0;
}

static int run_layer(Job *j, const Layer *layer)
{
    const Call *c = j->call;
    if (add_attention(j, &layer->self_norm, &layer->qkv, &layer->out, 0)) return -1;
    if (layer->cross_q.panels &&
        add_attention(j, &layer->cross_norm, &layer->cross_q, &layer->cross_out, 1))
        return -1;
    normalise(j, &layer->mlp_norm);
    if (multiply(j, j->normed, c->width, &layer->up, j->hidden)) return -1;
    j->size = j->rows * c->ffn;
    run(j, gelu_piece, j->size / LANES, j->size);
    if (multiply(j, j->hidden, c->ffn, &layer->down, j->product)) return -1;
    add(c->x, j->product, j->rows * c->width);
    return 0;
}

/* 0, or -1 where memory ran out. Widths are multiples of eight, checked by the caller. */
int64_t hs_whisper_layers(const Call *c)
{
    Job job = {.call = c};
    for (int64_t i = 0; i < c->sequences; i++) job.rows += c->sequence[i].rows;
    const int64_t widths[BUFFERS] = {c->width, 3 * c->width, c->width, c->ffn, c->width};
    float **buffers[BUFFERS] = {&job.normed, &job.wide, &job.heads, &job.hidden, &job.product};
    int64_t total = 0;
    for (int i = 0; i < BUFFERS; i++) total += widths[i];
    float *memory = malloc((size_t)(total * job.rows) * sizeof(float));
    if (!memory) return -1;
    float *next = memory;
    for (int i = 0; i < BUFFERS; next += widths[i++] * job.rows) *buffers[i] = next;
    int failed = 0;
    for (job.at = c->first; job.at < c->end && !failed; job.at++)
        failed = run_layer(&job, c->layer + job.at);
    free(memory);
    return failed;
}
