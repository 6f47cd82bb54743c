/* Whole Whisper layers, of the encoder and of the decoder: what reference.py says, without some
 * twenty calls through Python and torch a layer. A row of the result depends on its own sequence
 * only, not on the others in the batch, nor on the number of threads. */
#include "../gelu.h"
#include "../kernels.h"
#include "attention.h"

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
    int64_t far;          /* rows of far_k and far_v, which are attended to first */
    int64_t heard;        /* rows of heard_k and heard_v */
    int64_t beyond;       /* rows of beyond_k and beyond_v: of the sound too, behind those */
    Memory k, v, far_k, far_v, heard_k, heard_v, beyond_k, beyond_v;
    float *seen;          /* [watched, rows, heard + beyond] or NULL */
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
        to[1] = (Span){at(&s->beyond_k, j->at, head), at(&s->beyond_v, j->at, head), s->beyond_k.row,
                       s->beyond_v.row, s->beyond};
        return 2;
    }
    const float *fresh = j->wide + first * 3 * width + head * dim;
    to[0] = (Span){at(&s->far_k, j->at, head), at(&s->far_v, j->at, head), s->far_k.row, s->far_v.row,
                   s->far};
    to[1] = (Span){at(&s->k, j->at, head), at(&s->v, j->at, head), s->k.row, s->v.row, s->before};
    to[2] = (Span){fresh + width, fresh + 2 * width, 3 * width, 3 * width, c->causal ? r + 1 : s->rows};
    return SPANS;
}

/* Where the weights of a watched head go, or NULL. */
static float *seen_at(const Job *j, const Sequence *s, int64_t head, int64_t r)
{
    if (!j->cross || !s->seen) return NULL;
    for (int64_t i = 0; i < j->call->watched; i++)
        if (j->call->watch[2 * i] == j->at && j->call->watch[2 * i + 1] == head)
            return s->seen + (i * s->rows + r) * (s->heard + s->beyond);
    return NULL;
}

/* Where the keys of the longest sequence have room, in whole blocks, and what `score` writes behind
 * them. */
static int64_t room_for_keys(const Job *j)
{
    int64_t longest = 0;
    for (int64_t i = 0; i < j->call->sequences; i++) {
        const Sequence *s = j->call->sequence + i;
        const int64_t keys = j->cross ? s->heard + s->beyond : s->far + s->before + s->rows;
        longest = keys > longest ? keys : longest;
    }
    return (longest + KEYS + BLOCK_KEYS - 1) / BLOCK_KEYS * BLOCK_KEYS;
}

/* Rows low .. high of one sequence and head, each seeing all of its keys. */
static void attend_all(const Job *j, const Sequence *s, int64_t first, int64_t low, int64_t high,
                       int64_t head, float *turned, float *scores)
{
    const int64_t width = j->call->width, dim = width / j->call->heads, q_row = 3 * width;
    Span spans[SPANS];
    const int count = spans_of(j, s, first, low, head, spans);
    int64_t keys = 0;
    for (int i = 0; i < count; i++) keys += spans[i].count;
    const int64_t room = (keys + BLOCK_KEYS - 1) / BLOCK_KEYS * BLOCK_KEYS;
    for (int64_t d = 0; d < dim; d++) /* behind the last key */
        memset(turned + d * room + keys, 0, (size_t)(room - keys) * sizeof(float));
    for (int64_t i = 0, to = 0; i < count; to += spans[i++].count) turn(spans + i, dim, to, room, turned);
    for (int64_t r = low; r < high; r += BLOCK_ROWS) {
        const float *q = j->wide + (first + r) * q_row + head * dim;
        float *out = j->heads + (first + r) * width + head * dim;
        const int rows = high - r < BLOCK_ROWS ? (int)(high - r) : BLOCK_ROWS;
        EACH_ROWS(rows, score_block, dim, q, q_row, turned, room, scores)
        mix_rows(rows, dim, scores, room, spans, count, out, width);
    }
}

/* Rows low .. high of one sequence and head of a decoder to the sound. */
static void attend_sound_rows(const Job *j, const Sequence *s, int64_t first, int64_t low, int64_t high,
                              int64_t head, int64_t room, float *scores)
{
    const int64_t width = j->call->width, dim = width / j->call->heads;
    Span spans[SPANS];
    const int count = spans_of(j, s, first, low, head, spans);
    for (int64_t r = low; r < high; r += BLOCK_ROWS) {
        const int rows = high - r < BLOCK_ROWS ? (int)(high - r) : BLOCK_ROWS;
        const float *q = j->wide + (first + r) * width + head * dim;
        float *out = j->heads + (first + r) * width + head * dim;
        if (rows == 1) {
            attend(dim / LANES, q, spans, count, scores, out);
        } else {
            if (dim == 64) score_rows(8, rows, q, width, room, spans, count, scores);
            else score_rows(dim / LANES, rows, q, width, room, spans, count, scores);
            mix_rows(rows, dim, scores, room, spans, count, out, width);
        }
        for (int64_t m = 0; m < rows; m++) {
            float *seen = seen_at(j, s, head, r + m);
            if (seen) memcpy(seen, scores + m * room, (size_t)(s->heard + s->beyond) * sizeof(float));
        }
    }
}

/* Heads and the rows of all sequences are counted through: item = head * rows + row, so that a
 * piece turns few heads' keys, and rows share the loads of keys and values. */
static void attend_all_piece(void *context, int64_t piece)
{
    Job *j = context;
    const Call *c = j->call;
    const int64_t room = room_for_keys(j), dim = c->width / c->heads;
    const int64_t turned_rows = j->cross ? 0 : dim;
    float *turned = malloc((size_t)((turned_rows + BLOCK_ROWS) * room) * sizeof(float));
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
            if (low >= high) continue;
            if (j->cross) attend_sound_rows(j, s, first - head * j->rows, low, high, head, room, turned);
            else attend_all(j, s, first - head * j->rows, low, high, head, turned, turned + dim * room);
        }
    free(turned);
}

/* A decoder's words, each to those up to itself. Rows of all sequences are counted through. */
static void attend_piece(void *context, int64_t piece)
{
    Job *j = context;
    const Call *c = j->call;
    const int64_t dim = c->width / c->heads, q_row = 3 * c->width;
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
                Span spans[SPANS];
                const int count = spans_of(j, s, first, r, head, spans);
                const float *q = j->wide + (first + r) * q_row + head * dim;
                float *out = j->heads + (first + r) * c->width + head * dim;
                if (dim == 64) attend(8, q, spans, count, scores, out);
                else attend(dim / LANES, q, spans, count, scores, out);
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
    /* A vector of keys and values takes about as long as a value of the element-wise stages. */
    const int64_t values = j->rows * room_for_keys(j) * width / LANES;
    if (cross || !j->call->causal) run(j, attend_all_piece, j->call->heads * j->rows, values);
    else run(j, attend_piece, j->rows, values);
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
