/* y = (x - mean) / sqrt(variance + 1e-5) * weight + bias, a row at a time. */
#include "../kernels.h"
#include "../simd.h"

typedef struct {
    const float *x, *weight, *bias;
    int64_t rows, size, pieces;
    float *out;
} Job;

static void norm_piece(void *context, int64_t piece)
{
    const Job *j = context;
    const int64_t size = j->size, end = hs_share(j->rows, j->pieces, piece + 1);
    for (int64_t r = hs_share(j->rows, j->pieces, piece); r < end; r++) {
        const float *x = j->x + r * size;
        float *out = j->out + r * size;
        Vec sum = splat(0.0f), square = splat(0.0f);
        for (int64_t i = 0; i < size; i += LANES) sum = add8(sum, load(x + i));
        const Vec mean = splat(sum_of(sum) / (float)size);
        for (int64_t i = 0; i < size; i += LANES) {
            const Vec off = sub8(load(x + i), mean);
            square = fma8(off, off, square);
        }
        const Vec scale = splat(1.0f / sqrtf(sum_of(square) / (float)size + 1e-5f));
        for (int64_t i = 0; i < size; i += LANES)
            store(out + i, fma8(mul8(sub8(load(x + i), mean), scale), load(j->weight + i),
                                load(j->bias + i)));
    }
}

/* x, out [rows, size]; weight, bias [size]; size is a multiple of eight, checked by the caller. */
void hs_layer_norm(const float *x, const float *weight, const float *bias, int64_t rows,
                   int64_t size, float *out, int threads)
{
    Job job = {x, weight, bias, rows, size, pieces_of(rows, rows * size, threads), out};
    hs_run(norm_piece, &job, job.pieces, threads);
}
