/* log_softmax(x)[id] of each row. The sum runs in eight lanes: floats within a block, doubles over the
 * blocks. */
#include "../logarithm.h"
#include "../simd.h"

#define BLOCK_VECTORS 64

typedef struct {
    const float *x;
    const int64_t *ids;
    int64_t rows, size, pieces;
    int as_log;
    float *out;
} Job;

/* Eight values of a row, -infinity behind its end. */
INLINE Vec load_row(const float *x, int64_t i, int64_t size)
{
    if (i + LANES <= size) return load(x + i);
    float last[LANES];
    for (int k = 0; k < LANES; k++) last[k] = i + k < size ? x[i + k] : -INFINITY;
    return load(last);
}

static double sum_of_exponentials(const float *x, int64_t size, float most)
{
    double lanes[LANES] = {0};
    for (int64_t i = 0; i < size;) {
        Vec sum = splat(0.0f);
        for (int k = 0; k < BLOCK_VECTORS && i < size; k++, i += LANES)
            sum = add8(sum, exp8(sub8(load_row(x, i, size), splat(most))));
        float part[LANES];
        store(part, sum);
        for (int k = 0; k < LANES; k++) lanes[k] += (double)part[k];
    }
    return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
           ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

static void rows_piece(void *context, int64_t piece)
{
    const Job *j = context;
    const int64_t end = hs_share(j->rows, j->pieces, piece + 1);
    for (int64_t r = hs_share(j->rows, j->pieces, piece); r < end; r++) {
        const float *x = j->x + r * j->size;
        Vec highest = splat(-INFINITY);
        for (int64_t i = 0; i < j->size; i += LANES) highest = max8(highest, load_row(x, i, j->size));
        const float most = max_of(highest);
        const double sum = sum_of_exponentials(x, j->size, most);
        const float over = x[j->ids[r]] - most; /* a float again: exact where it is 0 */
        j->out[r] = j->as_log ? (float)((double)over - ln_of(sum))
                              : (float)((double)first_of(exp8(splat(over))) / sum);
    }
}

/* x [rows, size], ids and out [rows]; every id is below size, checked by the caller. */
void hs_picked_softmax(const float *x, const int64_t *ids, int64_t rows, int64_t size, int as_log,
                       float *out, int threads)
{
    Job job = {x, ids, rows, size, pieces_of(rows, rows * size, threads), as_log, out};
    hs_run(rows_piece, &job, job.pieces, threads);
}
