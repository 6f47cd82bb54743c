/* Rotates the first half of each head against its second half. */
#include "../kernels.h"
#include "../simd.h"

typedef struct {
    const float *x, *cosine, *sine;
    int64_t rows, heads, half, pieces;
    float *out;
} Job;

static void rotate_piece(void *context, int64_t piece)
{
    const Job *j = context;
    const int64_t half = j->half, end = hs_share(j->rows, j->pieces, piece + 1);
    for (int64_t row = hs_share(j->rows, j->pieces, piece); row < end; row++) {
        const float *c = j->cosine + row * half, *s = j->sine + row * half;
        for (int64_t head = 0; head < j->heads; head++) {
            const float *a = j->x + (row * j->heads + head) * 2 * half, *b = a + half;
            float *restrict to = j->out + (row * j->heads + head) * 2 * half;
            for (int64_t i = 0; i < half; i++) {
                to[i] = a[i] * c[i] - b[i] * s[i];
                to[i + half] = b[i] * c[i] + a[i] * s[i];
            }
        }
    }
}

/* x, out [rows, heads, 2 * half]; cosine, sine [rows, half]. */
void hs_rope(const float *x, const float *cosine, const float *sine, int64_t rows, int64_t heads,
             int64_t half, float *out, int threads)
{
    Job job = {x, cosine, sine, rows, heads, half,
               pieces_of(rows, rows * heads * half, threads), out};
    hs_run(rotate_piece, &job, job.pieces, threads);
}
