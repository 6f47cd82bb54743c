/* y = x W^T + bias for weights in panels. The layout is in panels.py, the formula in README.md.
 *
 * Every output y[m, n] is one lane of one accumulator, summed over groups of K in ascending order:
 *     acc = fma(s_w * s_x, (float)(sum of code * q - zero * sum of q), acc)
 *     acc = fma(min_w, s_x * sum of q, acc)                                   (affine kinds)
 * The integers are exact, so any tiling over rows, panels and threads gives the same bits.
 */
#include "../kernels.h"
#include "../pool.h"
#include "input.h"

#if defined(HEADSTART_AVX512)
#include "avx512.h"
#elif defined(HEADSTART_AVX2)
#include "avx2.h"
#elif defined(HEADSTART_NEON)
#include "neon.h"
#else
#include "portable.h"
#endif

/* --- all panels ------------------------------------------------------------------------------ */

/* Sums and bias -> rows of the output. */
INLINE void write_rows(const int width, int count, const Scratch *scratch)
{
    float *out = scratch->out;
    for (int m = 0; m < count; m++, out += scratch->out_row) {
        const float *acc = scratch->acc[m];
        if (scratch->bias)
            for (int r = 0; r < width; r++) out[r] = acc[r] + scratch->bias[r];
        else
            for (int r = 0; r < width; r++) out[r] = acc[r];
    }
}

static void run_panel(const Weight *w, int64_t p, const Input *in, Scratch *scratch)
{
    const uint8_t *panel = w->panels + p * (in->cols / block_of(w->kind)) * cell_bytes(w->kind);
    const int64_t first = p * PANEL, left = w->rows - first;
    scratch->width = left < PANEL ? (int)left : PANEL;
    scratch->bias = w->bias ? w->bias + first : NULL;
    scratch->out_row = w->rows;
    for (int64_t m0 = 0; m0 < in->rows; m0 += CHUNK_ROWS) {
        const int count = in->rows - m0 < CHUNK_ROWS ? (int)(in->rows - m0) : CHUNK_ROWS;
        int written = 0;
        scratch->out = w->out + m0 * w->rows + first;
        switch (w->kind) {
#define KIND(K) case K: written = panel_kind(K, panel, in, m0, count, scratch); break;
            KIND(Q4_0) KIND(Q4_1) KIND(Q5_0) KIND(Q5_1) KIND(Q8_0) KIND(Q4_K) KIND(Q5_K) KIND(Q6_K)
#undef KIND
        case F16: panel_float(F16, panel, in, m0, count, scratch); break;
        default: panel_float(F32, panel, in, m0, count, scratch);
        }
        if (written) continue;
        if (scratch->width == PANEL) write_rows(PANEL, count, scratch);
        else write_rows(scratch->width, count, scratch);
    }
}

static int64_t panels_of(const Weight *w) { return (w->rows + PANEL - 1) / PANEL; }

typedef struct {
    Input in;
    const Weight *weights;
    int64_t panels; /* of all weights together */
    int64_t pieces;
} Job;

static void quantize_piece(void *context, int64_t piece)
{
    const Job *job = context;
    const int64_t items = quantize_items(&job->in);
    quantize_range(&job->in, hs_share(items, job->pieces, piece),
                   hs_share(items, job->pieces, piece + 1));
}

static void multiply_piece(void *context, int64_t piece)
{
    const Job *job = context;
    const int64_t end = hs_share(job->panels, job->pieces, piece + 1);
    Scratch scratch;
    for (int64_t item = hs_share(job->panels, job->pieces, piece); item < end; item++) {
        const Weight *w = job->weights;
        int64_t panel = item;
        for (; panel >= panels_of(w); w++) panel -= panels_of(w);
        run_panel(w, panel, &job->in, &scratch);
    }
}

/* weights[i].out = x [rows, cols] times weight i transposed, plus its bias.
 * Returns 0, or -1 where memory ran out. */
int hs_qlinear(const float *x, int64_t rows, int64_t cols, int count, const Weight *weights,
               int threads)
{
    Job job = {{rows, cols, (cols + GROUP - 1) / GROUP, x, NULL, NULL, NULL}, weights, 0, 0};
    int quantized = 0;
    for (int i = 0; i < count; i++) {
        job.panels += panels_of(weights + i);
        quantized |= !is_float(weights[i].kind);
    }
    const int64_t room = (rows + ROUNDED_ROWS - 1) / ROUNDED_ROWS * ROUNDED_ROWS;
    const size_t code_bytes = (size_t)(room * job.in.groups * GROUP);
    uint8_t *memory = malloc(2 * code_bytes + (size_t)(room * job.in.groups) * sizeof(Group));
    if (!memory) return -1;
    job.in.q = (int8_t *)memory;
    job.in.raised = (int8_t *)memory + code_bytes;
    job.in.group = (Group *)(memory + 2 * code_bytes);
    if (quantized) {
        /* A few thousand values take well under a microsecond: not worth waking anyone. */
        const int64_t items = quantize_items(&job.in);
        job.pieces = rows * cols < 16384 ? 1 : items < threads * 4 ? items : threads * 4;
        hs_run(quantize_piece, &job, job.pieces, threads);
    }
    /* Several pieces a thread, so that one thread held up by another process is made up for. */
    job.pieces = job.panels < threads * 8 ? job.panels : threads * 8;
    hs_run(multiply_piece, &job, job.pieces, threads);
    free(memory);
    return 0;
}

/* The level of instructions that this library was compiled for. */
const char *hs_level(void) { return HEADSTART_LEVEL; }
