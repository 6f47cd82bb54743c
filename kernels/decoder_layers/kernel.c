/* Whole Llama/Qwen2 layers from the other kernels: the same calls in the same order as reference.py,
 * hence the same bits, without a dozen calls through Python a layer. */
#include "../kernels.h"

#include <stdlib.h>
#include <string.h>

#define PARTS 10 /* buffers of one call */

typedef struct {
    const float *attn_norm, *ffn_norm; /* [hidden] */
    const float *key_scale;            /* [kv_heads, head_dim] or NULL */
    Weight qkv[3], attn_out, gate_up[2], down;
} Layer;

typedef struct {
    int64_t layers, hidden, ffn; /* sizes; heads and the like are in `attention` */
    const Layer *layer;
    void *const *k_pools, *const *v_pools; /* one pair a layer */
    float *x;                              /* [rows, hidden], written over */
    const float *cosine, *sine;            /* [rows, head_dim / 2] */
    const int64_t *slots;                  /* [rows] */
    const int64_t *wanted;                 /* [wanted_rows]: rows that come out; NULL: all */
    int64_t wanted_rows;
    float *out;          /* [wanted_rows or rows, hidden] */
    Attention attention; /* rows, tables and threads; its pointers q, pools, out are set here */
    float eps;
    float *queries; /* [layers, wanted_rows or rows, heads * head_dim], written; NULL: not wanted */
    const uint8_t *coded; /* [rows]: as hs_append_mixed has it; NULL: none */
} Call;

/* One block of memory, cut in parts; room for as many rows as there are or come out (a row may be
 * wanted twice). */
typedef struct {
    float *normed, *q, *k, *v, *q_turned, *k_turned, *heads, *gate, *up, *product;
    int32_t *seqs, *contexts;
} Buffers;

static int allocate(const Call *c, Buffers *b, void **memory)
{
    const Attention *a = &c->attention;
    const int64_t q = a->heads * a->head_dim, kv = a->kv_heads * a->head_dim;
    const int64_t widths[PARTS] = {c->hidden, q, kv, kv, q, kv, q, c->ffn, c->ffn, c->hidden};
    float **parts[PARTS] = {&b->normed, &b->q, &b->k, &b->v, &b->q_turned,
                            &b->k_turned, &b->heads, &b->gate, &b->up, &b->product};
    const int64_t rows = a->rows > c->wanted_rows ? a->rows : c->wanted_rows;
    int64_t total = 2; /* sequence and context of the wanted rows */
    for (int i = 0; i < PARTS; i++) total += widths[i];
    float *at = malloc((size_t)(total * rows) * sizeof(float));
    if (!at) return -1;
    *memory = at;
    for (int i = 0; i < PARTS; at += widths[i++] * rows) *parts[i] = at;
    b->seqs = (int32_t *)at;
    b->contexts = b->seqs + rows;
    return 0;
}

static void add(float *restrict to, const float *restrict from, int64_t size)
{
    for (int64_t i = 0; i < size; i++) to[i] += from[i];
}

/* to[i] = from[ids[i]] for rows of `width` floats. */
static void gather(float *to, const float *from, const int64_t *ids, int64_t count, int64_t width)
{
    for (int64_t i = 0; i < count; i++)
        memcpy(to + i * width, from + ids[i] * width, (size_t)width * sizeof(float));
}

/* The queries of the rows that come out, as they attend in layer i. */
static void hand_out(const Call *c, int64_t i, const Buffers *b)
{
    const int64_t width = c->attention.heads * c->attention.head_dim;
    const int64_t rows = c->wanted ? c->wanted_rows : c->attention.rows;
    float *to = c->queries + i * rows * width;
    if (c->wanted) gather(to, b->q_turned, c->wanted, rows, width);
    else memcpy(to, b->q_turned, (size_t)(rows * width) * sizeof(float));
}

/* Behind the last K and V, rows that nobody asks about need no more work. */
static void keep_wanted(const Call *c, Attention *a, Buffers *b)
{
    gather(c->out, c->x, c->wanted, c->wanted_rows, c->hidden);
    gather(b->q, b->q_turned, c->wanted, c->wanted_rows, a->heads * a->head_dim);
    for (int64_t i = 0; i < c->wanted_rows; i++) {
        b->seqs[i] = a->seq_of_row[c->wanted[i]];
        b->contexts[i] = a->context_of_row[c->wanted[i]];
    }
    a->q = b->q;
    a->seq_of_row = b->seqs;
    a->context_of_row = b->contexts;
    a->rows = c->wanted_rows;
}

/* x [rows, heads, dim] times, or over, the scale of each head's group: [heads / group, dim]. */
static void equalise(float *x, const float *scale, int64_t rows, int64_t heads, int64_t group,
                     int64_t dim, int divide)
{
    for (int64_t i = 0; i < rows * heads; i++, x += dim) {
        const float *by = scale + i % heads / group * dim;
        if (divide)
            for (int64_t d = 0; d < dim; d++) x[d] /= by[d];
        else
            for (int64_t d = 0; d < dim; d++) x[d] *= by[d];
    }
}

/* Norm, projections, rotation; K and V go to the layer's pools. 0, or -1: out of memory. */
static int project(const Call *c, int64_t i, const float *x, const Buffers *b)
{
    const Attention *a = &c->attention;
    const Layer *layer = c->layer + i;
    Weight qkv[3] = {layer->qkv[0], layer->qkv[1], layer->qkv[2]};
    qkv[0].out = b->q;
    qkv[1].out = b->k;
    qkv[2].out = b->v;
    hs_rms_norm(x, layer->attn_norm, a->rows, c->hidden, c->eps, b->normed, a->threads);
    if (hs_qlinear(b->normed, a->rows, c->hidden, 3, qkv, a->threads)) return -1;
    const int64_t half = a->head_dim / 2;
    hs_rope(b->q, c->cosine, c->sine, a->rows, a->heads, half, b->q_turned, a->threads);
    hs_rope(b->k, c->cosine, c->sine, a->rows, a->kv_heads, half, b->k_turned, a->threads);
    if (layer->key_scale) {
        const int64_t group = a->heads / a->kv_heads;
        equalise(b->q_turned, layer->key_scale, a->rows, a->heads, group, a->head_dim, 0);
        equalise(b->k_turned, layer->key_scale, a->rows, a->kv_heads, 1, a->head_dim, 1);
    }
    if (a->wide_blocks < a->num_blocks) {
        Attention to = *a;
        to.k_pool = c->k_pools[i];
        to.v_pool = c->v_pools[i];
        return hs_append_mixed(&to, b->k_turned, b->v, c->slots, c->coded) == -1 ? 0 : -1;
    }
    hs_append(c->k_pools[i], c->v_pools[i], b->k_turned, b->v, c->slots, a->rows, a->kv_heads,
              a->block_size, a->head_dim, a->num_blocks, a->storage);
    return 0;
}

/* Attention's output and the MLP are added to x [rows, hidden]. 0, or -1: out of memory. */
static int finish(const Call *c, const Layer *layer, const Attention *a, float *x, const Buffers *b)
{
    const int64_t rows = a->rows;
    Weight attn_out = layer->attn_out, down = layer->down;
    Weight gate_up[2] = {layer->gate_up[0], layer->gate_up[1]};
    attn_out.out = down.out = b->product;
    gate_up[0].out = b->gate;
    gate_up[1].out = b->up;
    if (hs_attention(a) != -1) return -1;
    if (hs_qlinear(b->heads, rows, a->heads * a->head_dim, 1, &attn_out, a->threads)) return -1;
    add(x, b->product, rows * c->hidden);
    hs_rms_norm(x, layer->ffn_norm, rows, c->hidden, c->eps, b->normed, a->threads);
    if (hs_qlinear(b->normed, rows, c->hidden, 2, gate_up, a->threads)) return -1;
    hs_silu_mul(b->gate, b->up, rows * c->ffn, b->gate, a->threads);
    if (hs_qlinear(b->gate, rows, c->ffn, 1, &down, a->threads)) return -1;
    add(x, b->product, rows * c->hidden);
    return 0;
}

/* -1: done; -2: out of memory; else the first row that names something that is not there, and
 * nothing was done. */
int64_t hs_decoder_layers(const Call *c)
{
    const int64_t bad = hs_attention_bad_row(&c->attention);
    if (bad >= 0) return bad;
    for (int64_t row = 0; row < c->attention.rows; row++)
        if (c->slots[row] < 0 || c->slots[row] >= c->attention.num_blocks * c->attention.block_size)
            return row;
    Buffers b;
    void *memory;
    if (allocate(c, &b, &memory)) return -2;
    int failed = 0;
    for (int64_t i = 0; i < c->layers && !failed; i++) {
        Attention a = c->attention;
        float *x = c->x;
        failed = project(c, i, x, &b);
        if (c->queries && !failed) hand_out(c, i, &b);
        a.q = b.q_turned;
        a.out = b.heads;
        a.k_pool = c->k_pools[i];
        a.v_pool = c->v_pools[i];
        if (i == c->layers - 1 && c->wanted) {
            keep_wanted(c, &a, &b);
            x = c->out;
        }
        if (!failed && a.rows > 0) failed = finish(c, c->layer + i, &a, x, &b);
    }
    free(memory);
    return failed ? -2 : -1;
}
