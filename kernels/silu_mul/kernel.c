/* out = gate / (1 + e^-gate) * up, element by element. */
#include "../simd.h"

INLINE Vec silu_mul8(Vec gate, Vec up) { return gate / (splat(1.0f) + exp8(-gate)) * up; }

void hs_silu_mul(const float *gate, const float *up, int64_t size, float *out, int threads)
{
    const int64_t whole = size / LANES * LANES;
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(static) if (size > 32768)
    for (int64_t i = 0; i < whole; i += LANES) store(out + i, silu_mul8(load(gate + i), load(up + i)));
    if (whole < size) {
        float g[LANES] = {0}, u[LANES] = {0}, o[LANES];
        memcpy(g, gate + whole, (size_t)(size - whole) * sizeof *g);
        memcpy(u, up + whole, (size_t)(size - whole) * sizeof *u);
        store(o, silu_mul8(load(g), load(u)));
        memcpy(out + whole, o, (size_t)(size - whole) * sizeof *o);
    }
}
