/* out = gate / (1 + e^-gate) * up, element by element. */
#include "../kernels.h"
#include "../simd.h"

INLINE Part silu_mul_part(Part gate, Part up)
{
    const Part divisor = add_part(splat_part(1.0f), exp_part(neg_part(gate)));
    return mul_part(div_part(gate, divisor), up);
}

typedef struct {
    const float *gate, *up;
    int64_t parts, pieces;
    float *out;
} Job;

static void silu_piece(void *context, int64_t piece)
{
    const Job *j = context;
    const int64_t end = hs_share(j->parts, j->pieces, piece + 1) * PART_LANES;
    for (int64_t i = hs_share(j->parts, j->pieces, piece) * PART_LANES; i < end; i += PART_LANES)
        store_part(j->out + i, silu_mul_part(load_part(j->gate + i), load_part(j->up + i)));
}

/* All three hold `size` values. */
void hs_silu_mul(const float *gate, const float *up, int64_t size, float *out, int threads)
{
    const int64_t parts = size / PART_LANES, whole = parts * PART_LANES;
    Job job = {gate, up, parts, pieces_of(parts, size, threads), out};
    hs_run(silu_piece, &job, job.pieces, threads);
    if (whole < size) {
        float g[PART_LANES] = {0}, u[PART_LANES] = {0}, o[PART_LANES];
        memcpy(g, gate + whole, (size_t)(size - whole) * sizeof *g);
        memcpy(u, up + whole, (size_t)(size - whole) * sizeof *u);
        store_part(o, silu_mul_part(load_part(g), load_part(u)));
        memcpy(out + whole, o, (size_t)(size - whole) * sizeof *o);
    }
}
