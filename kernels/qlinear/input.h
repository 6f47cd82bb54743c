/* What every level of the kernel shares: activations as integers, and one thread's memory. */
#ifndef HEADSTART_INPUT_H
#define HEADSTART_INPUT_H

#include "../level.h"
#include "panel.h"

#define FEW 4           /* up to so many rows of x, codes are unpacked in registers (AVX-512: see there) */
#define CHUNK_GROUPS 32 /* groups of K expanded at a time: 16 KiB of codes */
#define CHUNK_ROWS 128  /* rows of x per expansion of a panel */
#define AHEAD_BYTES 2048 /* of the weight, fetched before use: +20 % for one row of x, Q5_0 */
#define TINY 1e-30f     /* groups below this are zero: 127 / TINY is still finite */

/* One group of 32 activations besides its int8 codes. */
typedef struct {
    float scale;      /* x = scale * q */
    float scaled_sum; /* scale * sum of q */
    int32_t sum[2];   /* sum of q over each half of the group */
    int32_t total;
} Group;

typedef struct {
    int64_t rows, cols, groups;
    const float *x; /* [rows, cols] */
    int8_t *q;      /* [rows, cols]; not filled when every weight is float */
    int8_t *raised; /* [rows, cols]: q + 128, unsigned; for more than FEW rows, with AVX2 */
    Group *group;   /* [rows, groups] */
} Input;
/* With AVX-512, q and group of more than PAIR rows have the order that avx512.h describes. */
#define ROUNDED_ROWS 8 /* there is room for a multiple of these */

/* --- activations ----------------------------------------------------------------------------- */

/* x[32] -> q[32] and its Group. A value that is not finite makes the whole row NaN. */
static void quantize_group(const float *x, int8_t *q, Group *out)
{
    float most = 0.0f;
    int finite = 1;
    for (int i = 0; i < GROUP; i++) {
        float size = fabsf(x[i]);
        finite &= size <= 3.402823466e38f;
        most = size > most ? size : most;
    }
    float inverse = most > TINY && finite ? 127.0f / most : 0.0f;
    out->sum[0] = out->sum[1] = 0;
    for (int i = 0; i < GROUP; i++) {
        int code = inverse > 0.0f ? (int)lrintf(x[i] * inverse) : 0;
        q[i] = (int8_t)code;
        out->sum[i / 16] += code;
    }
    out->scale = !finite ? NAN : inverse > 0.0f ? most / 127.0f : 0.0f;
    out->total = out->sum[0] + out->sum[1];
    out->scaled_sum = out->scale * (float)out->total;
}

/* A panel, or a chunk of one, with its codes spread to bytes and its scales to floats. */
typedef struct {
    _Alignas(64) uint8_t codes[CHUNK_GROUPS * PANEL * GROUP];
    _Alignas(64) float scale[CHUNK_GROUPS][2][PANEL]; /* per half group of K: equal but for Q6_K */
    _Alignas(64) float least[CHUNK_GROUPS][PANEL];
    int32_t base[CHUNK_GROUPS][2][PANEL]; /* -128 * sum of codes, per half group only for Q6_K */
    _Alignas(64) float acc[CHUNK_ROWS][PANEL];
    float *out;         /* where row 0 of acc goes, `out_row` floats from row to row */
    const float *bias;  /* to be added, or NULL */
    int64_t out_row;
    int width;          /* of the panel: PANEL but for a weight's last */
    int narrow; /* Q8_0 whose codes here all lie within +-NARROW_MOST */
} Scratch;

#endif
