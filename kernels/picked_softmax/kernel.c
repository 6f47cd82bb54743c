/* log_softmax(x)[id] of each row, and of the largest entry. The sum runs in eight lanes: floats within a
 * block, doubles over the blocks. */
#include "../logarithm.h"
#include "../simd.h"

#define BLOCK_VECTORS 64
#define BLOCK (BLOCK_VECTORS * LANES)

typedef struct {
    const float *x;
    const int64_t *ids;
    int64_t rows, size, pieces;
    int as_log;
    float *out;
} Job;

typedef struct {
    const float *x, *masks;
    const int64_t *mask;
    int64_t rows, size, pieces;
    int64_t *best;
    float *out;
} BestJob;

/* A part of a row, with its mask (NULL: none) added; -infinity behind the row's end. */
INLINE Part load_row(const float *x, const float *mask, int64_t i, int64_t size)
{
    if (i + PART_LANES <= size)
        return mask ? add_part(load_part(x + i), load_part(mask + i)) : load_part(x + i);
    float last[PART_LANES];
    for (int k = 0; k < PART_LANES; k++)
        last[k] = i + k < size ? (mask ? x[i + k] + mask[i + k] : x[i + k]) : -INFINITY;
    return load_part(last);
}

INLINE double sum_of_exponentials(const float *x, const float *mask, int64_t size, float most)
{
    double lanes[LANES] = {0};
    for (int64_t i = 0; i < size;) {
        Vec sum = splat(0.0f);
        for (int k = 0; k < BLOCK && i < size; k += PART_LANES, i += PART_LANES)
            sum = add_halves(sum, exp_part(sub_part(load_row(x, mask, i, size), splat_part(most))));
        float part[LANES];
        store(part, sum);
        for (int k = 0; k < LANES; k++) lanes[k] += (double)part[k];
    }
    return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
           ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

/* The largest value of a block of a row. */
INLINE float most_of(const float *x, const float *mask, int64_t from, int64_t size)
{
    Part highest = splat_part(-INFINITY);
    for (int64_t i = from; i < from + BLOCK && i < size; i += PART_LANES)
        highest = max_part(highest, load_row(x, mask, i, size));
    return max_of_part(highest);
}

static void rows_piece(void *context, int64_t piece)
{
    const Job *j = context;
    const int64_t end = hs_share(j->rows, j->pieces, piece + 1);
    for (int64_t r = hs_share(j->rows, j->pieces, piece); r < end; r++) {
        const float *x = j->x + r * j->size;
        float most = -INFINITY;
        for (int64_t i = 0; i < j->size; i += BLOCK) {
            const float here = most_of(x, NULL, i, j->size);
            most = here > most ? here : most;
        }
        const double sum = sum_of_exponentials(x, NULL, j->size, most);
        const float over = x[j->ids[r]] - most; /* a float again: exact where it is 0 */
        j->out[r] = j->as_log ? (float)((double)over - ln_of(sum))
                              : (float)((double)first_of(exp8(splat(over))) / sum);
    }
}

static void best_piece(void *context, int64_t piece)
{
    const BestJob *j = context;
    const int64_t end = hs_share(j->rows, j->pieces, piece + 1);
    for (int64_t r = hs_share(j->rows, j->pieces, piece); r < end; r++) {
        const float *x = j->x + r * j->size, *mask = j->masks + j->mask[r] * j->size;
        float most = -INFINITY;
        int64_t at = 0;
        for (int64_t i = 0; i < j->size; i += BLOCK) {
            const float here = most_of(x, mask, i, j->size);
            if (here > most) {
                most = here;
                at = i;
            }
        }
        while (at < j->size - 1 && !(x[at] + mask[at] == most)) at++;
        j->best[r] = at;
        j->out[r] = (float)(0.0 - ln_of(sum_of_exponentials(x, mask, j->size, most)));
    }
}

/* x [rows, size], ids and out [rows]; every id is below size, checked by the caller. */
void hs_picked_softmax(const float *x, const int64_t *ids, int64_t rows, int64_t size, int as_log,
                       float *out, int threads)
{
    Job job = {x, ids, rows, size, pieces_of(rows, rows * size, threads), as_log, out};
    hs_run(rows_piece, &job, job.pieces, threads);
}

/* x [rows, size], masks [several, size], mask [rows]: which of them is added to a row; best and out
 * [rows]: the first of the largest entries, and its log_softmax. */
void hs_best_log_softmax(const float *x, const float *masks, const int64_t *mask, int64_t rows,
                         int64_t size, int64_t *best, float *out, int threads)
{
    BestJob job = {x, masks, mask, rows, size, pieces_of(rows, rows * size, threads), best, out};
    hs_run(best_piece, &job, job.pieces, threads);
}
