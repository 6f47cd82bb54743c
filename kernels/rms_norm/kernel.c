/* y = x / sqrt(mean(x^2) + eps) * weight, a row at a time. */
#include "../simd.h"

#define STREAMS 4 /* independent sums: hides the latency of the additions */

static float sum_of_squares(const float *x, int64_t size)
{
    Vec sum[STREAMS] = {{0}};
    int64_t i = 0;
    for (; i + STREAMS * LANES <= size; i += STREAMS * LANES)
        UNROLL for (int s = 0; s < STREAMS; s++) {
            Vec v = load(x + i + LANES * s);
            sum[s] = fma8(v, v, sum[s]);
        }
    float rest = 0.0f;
    for (; i < size; i++) rest += x[i] * x[i];
    return sum_of((sum[0] + sum[1]) + (sum[2] + sum[3])) + rest;
}

/* x, out [rows, size]; weight [size]. */
void hs_rms_norm(const float *x, const float *weight, int64_t rows, int64_t size, float eps,
                 float *out, int threads)
{
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(static) if (rows * size > 32768)
    for (int64_t row = 0; row < rows; row++) {
        const float *from = x + row * size;
        float *to = out + row * size;
        float scale = 1.0f / sqrtf(sum_of_squares(from, size) / (float)size + eps);
        for (int64_t i = 0; i < size; i++) to[i] = from[i] * scale * weight[i];
    }
}
