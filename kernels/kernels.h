/* What the C kernels offer each other; documented where they are defined. */
#ifndef HEADSTART_KERNELS_H
#define HEADSTART_KERNELS_H

#include <stdint.h>

/* A weight [rows, cols] in panels, and where its product with x goes. */
typedef struct {
    int kind;
    int64_t rows;
    const uint8_t *panels;
    const float *bias; /* [rows] or NULL */
    float *out;        /* [input rows, rows] */
} Weight;

/* What a pool of K or V holds; storage.py of paged_attention says how. */
enum { STORED_FP32, STORED_FP16, STORED_INT8, STORED_FP8 };

/* One call of attention. */
typedef struct {
    int64_t rows, heads, kv_heads, head_dim, block_size, num_blocks, seqs, max_blocks;
    const float *q;              /* [rows, heads, head_dim] */
    const void *k_pool, *v_pool; /* [num_blocks, kv_heads, block_size, rows of head_dim numbers] */
    const int32_t *tables;       /* [seqs, max_blocks] */
    const int32_t *seq_of_row, *context_of_row;
    float *out; /* [rows, heads, head_dim] */
    float scale;
    int32_t storage;
    int32_t threads;
    /* Blocks from wide_blocks on are of another type, in the pools' memory from its first byte on,
     * at distances of narrow_stride bytes; wide_blocks == num_blocks: there are none. */
    int32_t narrow_storage;
    int64_t wide_blocks, narrow_stride;
} Attention;

int hs_qlinear(const float *x, int64_t rows, int64_t cols, int count, const Weight *weights,
               int threads);
int64_t hs_attention_bad_row(const Attention *c);
int64_t hs_attention(const Attention *c);
int64_t hs_append(void *k_pool, void *v_pool, const float *k, const float *v, const int64_t *slots,
                  int64_t rows, int64_t kv_heads, int64_t block_size, int64_t head_dim,
                  int64_t num_blocks, int32_t storage);
int64_t hs_append_mixed(const Attention *c, const float *k, const float *v, const int64_t *slots,
                        const uint8_t *coded);
void hs_rms_norm(const float *x, const float *weight, int64_t rows, int64_t size, float eps,
                 float *out, int threads);
void hs_layer_norm(const float *x, const float *weight, const float *bias, int64_t rows,
                   int64_t size, float *out, int threads);
void hs_rope(const float *x, const float *cosine, const float *sine, int64_t rows, int64_t heads,
             int64_t half, float *out, int threads);
void hs_silu_mul(const float *gate, const float *up, int64_t size, float *out, int threads);

#endif
