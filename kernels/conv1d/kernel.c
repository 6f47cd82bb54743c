/* y = gelu(conv(x) + bias) over rows of channels in time order.
 *
 * An output's receptive field lies in x as one dense run of taps * channels floats, so the convolution
 * is a matrix product whose rows overlap. Weights lie in panels of PANEL outputs: panel p holds
 * [taps * channels][PANEL]. Every output is one lane: within SUM values of the run they are added in
 * ascending order from zero, and the parts of SUM values in ascending order to each other. Tiles,
 * panels and threads change nothing of that. */
#include "../gelu.h"
#include "../simd.h"

#define PANEL 16
#define SUM 384  /* values of one chain: 24 KB of a panel, which stay in the first-level cache */
#define ROWS 96  /* rows of y whose sums are kept between parts */

/* A panel's outputs are PARTS vectors; TILE rows of y share a pass over a part of it: as many as fit the
 * registers. */
#define PARTS (PANEL / PART_LANES)
#ifdef HEADSTART_WIDE
#define TILE 12
#else
#define TILE 6
#endif

typedef struct {
    const float *x, *panels, *bias;
    int64_t rows, outputs, run, step; /* `step`: floats between the runs of neighbouring rows */
    float *out;
    int64_t pieces, panel_count;
} Job;

/* sum[m] += part of the run from k on, `count` values; the first part is stored. */
INLINE void tile(const int m_rows, const float *x, int64_t step, const float *panel, int64_t count,
                 int first, float sum[][PANEL])
{
    const int lanes = PANEL / PARTS;
    Part acc[TILE][PARTS];
    UNROLL_12 for (int m = 0; m < m_rows; m++)
        UNROLL for (int h = 0; h < PARTS; h++) acc[m][h] = splat_part(0.0f);
    for (int64_t k = 0; k < count; k++) {
        Part weight[PARTS];
        UNROLL for (int h = 0; h < PARTS; h++) weight[h] = load_part(panel + k * PANEL + h * lanes);
        UNROLL_12 for (int m = 0; m < m_rows; m++)
            UNROLL for (int h = 0; h < PARTS; h++)
                acc[m][h] = fma_part(splat_part(x[m * step + k]), weight[h], acc[m][h]);
    }
    UNROLL_12 for (int m = 0; m < m_rows; m++)
        UNROLL for (int h = 0; h < PARTS; h++) {
            float *to = sum[m] + h * lanes;
            const Part total = first ? acc[m][h] : add_part(load_part(to), acc[m][h]);
            store_part(to, total);
        }
}

static void tiles(const Job *j, const float *panel, int64_t row, int64_t rows, int64_t k,
                  float sum[][PANEL])
{
    const int64_t count = j->run - k < SUM ? j->run - k : SUM;
    const float *x = j->x + row * j->step + k;
    panel += k * PANEL;
    for (int64_t m = 0; m < rows; m += TILE) {
        switch (rows - m < TILE ? rows - m : TILE) {
#define OF(N) tile(N, x + m * j->step, j->step, panel, count, k == 0, sum + m); break;
        case 1: OF(1)
        case 2: OF(2)
        case 3: OF(3)
        case 4: OF(4)
        case 5: OF(5)
#if TILE > 6
        case 6: OF(6)
        case 7: OF(7)
        case 8: OF(8)
        case 9: OF(9)
        case 10: OF(10)
        case 11: OF(11)
#endif
        default: OF(TILE)
#undef OF
        }
    }
}

/* Outputs 16 p .. 16 p + 15 of all rows. */
static void panel_of(const Job *j, int64_t p)
{
    const float *panel = j->panels + p * j->run * PANEL;
    const int64_t left = j->outputs - p * PANEL, width = left < PANEL ? left : PANEL;
    float sum[ROWS][PANEL] __attribute__((aligned(32))), bias[PANEL] = {0};
    memcpy(bias, j->bias + p * PANEL, (size_t)width * sizeof(float));
    for (int64_t row = 0; row < j->rows; row += ROWS) {
        const int64_t rows = j->rows - row < ROWS ? j->rows - row : ROWS;
        for (int64_t k = 0; k < j->run; k += SUM) tiles(j, panel, row, rows, k, sum);
        for (int64_t m = 0; m < rows; m++) {
            for (int h = 0; h < PANEL; h += PART_LANES)
                store_part(sum[m] + h,
                           gelu_part(add_part(load_part(sum[m] + h), load_part(bias + h))));
            memcpy(j->out + (row + m) * j->outputs + p * PANEL, sum[m], (size_t)width * sizeof(float));
        }
    }
}

static void panels_piece(void *context, int64_t piece)
{
    const Job *j = context;
    const int64_t end = hs_share(j->panel_count, j->pieces, piece + 1);
    for (int64_t p = hs_share(j->panel_count, j->pieces, piece); p < end; p++) panel_of(j, p);
}

/* x [(rows - 1) * step + run floats], bias [outputs], out [rows, outputs]. */
void hs_conv1d(const float *x, const float *panels, const float *bias, int64_t rows,
               int64_t outputs, int64_t run, int64_t step, float *out, int threads)
{
    Job job = {x, panels, bias, rows, outputs, run, step, out, 1, (outputs + PANEL - 1) / PANEL};
    job.pieces = pieces_of(job.panel_count, rows * run, threads);
    hs_run(panels_piece, &job, job.pieces, threads);
}
