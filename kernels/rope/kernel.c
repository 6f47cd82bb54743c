/* Rotates the first half of each head against its second half. */
#include "../simd.h"

/* x, out [rows, heads, 2 * half]; cosine, sine [rows, half]. */
void hs_rope(const float *x, const float *cosine, const float *sine, int64_t rows, int64_t heads,
             int64_t half, float *out, int threads)
{
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(static) if (rows * heads * half > 32768)
    for (int64_t row = 0; row < rows; row++) {
        const float *c = cosine + row * half, *s = sine + row * half;
        for (int64_t head = 0; head < heads; head++) {
            const float *a = x + (row * heads + head) * 2 * half, *b = a + half;
            float *restrict to = out + (row * heads + head) * 2 * half;
            for (int64_t i = 0; i < half; i++) {
                to[i] = a[i] * c[i] - b[i] * s[i];
                to[i + half] = b[i] * c[i] + a[i] * s[i];
            }
        }
    }
}
