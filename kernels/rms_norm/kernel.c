/* y = x / sqrt(mean(x^2) + eps) * weight, a row at a time. */
#include "../kernels.h"
#include "../simd.h"

#define STREAMS 4 /* independent sums: hides the latency of the additions */

static float sum_of_squares(const float *x, int64_t size)
{
    Vec sum[STREAMS];
    UNROLL for (int s = 0; s < STREAMS; s++) sum[s] = splat(0.0f);
    int64_t i = 0;
    for (; i + STREAMS * LANES <= size; i += STREAMS * LANES)
        UNROLL for (int s = 0; s < STREAMS; s++) {
            Vec v = load(x + i + LANES * s);
            sum[s] = fma8(v, v, sum[s]);
        }
    float rest = 0.0f;
    for (; i < size; i++) rest += x[i] * x[i];
    return sum_of(add8(add8(sum[0], sum[1]), add8(sum[2], sum[3]))) + rest;
}

typedef struct {
    const float *x, *weight;
    int64_t rows, size, pieces;
    float eps, *out;
} Job;

static void norm_piece(void *context, int64_t piece)
{
    const Job *j = context;
    const int64_t end = hs_share(j->rows, j->pieces, piece + 1);
    for (int64_t row = hs_share(j->rows, j->pieces, piece); row < end; row++) {
        const float *from = j->x + row * j->size, *weight = j->weight;
        float *restrict to = j->out + row * j->size;
        const float scale = 1.0f / sqrtf(sum_of_squares(from, j->size) / (float)j->size + j->eps);
        for (int64_t i = 0; i < j->size; i++) to[i] = from[i] * scale * weight[i];
    }
}

/* x, out [rows, size]; weight [size]. */
void hs_rms_norm(const float *x, const float *weight, int64_t rows, int64_t size, float eps,
                 float *out, int threads)
{
    Job job = {x, weight, rows, size, pieces_of(rows, rows * size, threads), eps, out};
    hs_run(norm_piece, &job, job.pieces, threads);
}
