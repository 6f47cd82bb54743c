/* out = gate / (1 + e^-gate) * up, element by element. */
#include "../kernels.h"
#include "../simd.h"

INLINE Vec silu_mul8(Vec gate, Vec up) { return gate / (splat(1.0f) + exp8(-gate)) * up; }

typedef struct {
    const float *gate, *up;
    int64_t vectors, pieces;
    float *out;
} Job;

static void silu_piece(void *context, int64_t piece)
{
    const Job *j = context;
    const int64_t end = hs_share(j->vectors, j->pieces, piece + 1) * LANES;
    for (int64_t i = hs_share(j->vectors, j->pieces, piece) * LANES; i < end; i += LANES)
        store(j->out + i, silu_mul8(load(j->gate + i), load(j->up + i)));
}

/* All three hold `size` values. */
void hs_silu_mul(const float *gate, const float *up, int64_t size, float *out, int threads)
{
    const int64_t vectors = size / LANES, whole = vectors * LANES;
    Job job = {gate, up, vectors, pieces_of(vectors, size, threads), out};
    hs_run(silu_piece, &job, job.pieces, threads);
    if (whole < size) {
        float g[LANES] = {0}, u[LANES] = {0}, o[LANES];
        memcpy(g, gate + whole, (size_t)(size - whole) * sizeof *g);
        memcpy(u, up + whole, (size_t)(size - whole) * sizeof *u);
        store(o, silu_mul8(load(g), load(u)));
        memcpy(out + whole, o, (size_t)(size - whole) * sizeof *o);
    }
}
