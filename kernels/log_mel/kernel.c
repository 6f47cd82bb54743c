/* Log-mel power of frames of sound: window, discrete Fourier transform of 400 real values, squared
 * size, mel filters, logarithm. All in doubles, by additions, multiplications and divisions alone and
 * in one order: no bit depends on the processor, on its C library, or on a frame's neighbours.
 *
 * 400 = 20 * 20: n = 20 a + b and k = c + 20 d, w = e^(-2 pi i / 400),
 *     X[k] = sum over b of w^(b c) w^(20 b d) (sum over a of x[20 a + b] w^(20 a c)).
 * x is real, so X[400 - k] is the conjugate of X[k], and c from 0 to 10 gives all there is. FRAMES
 * of them are transformed side by side, one in each lane. */
#include "../logarithm.h"
#include "../simd.h"

#define FFT 400
#define SIDE 20
#define HALF (SIDE / 2 + 1) /* values of c */
#define BINS (FFT / 2 + 1)
#ifdef HEADSTART_NEON
#define FRAMES 2 /* side by side */
#else
#define FRAMES 4
#endif
#define LEAST 1e-10
#define PER_LN 0x1.bcb7b1526e50ep-2 /* 1 / ln 10 */

typedef double Lanes __attribute__((vector_size(8 * FRAMES)));

typedef struct {
    Lanes re, im;
} Complex;

typedef struct {
    const double *cosine, *sine, *window; /* [FFT]: of n / FFT turns; [FFT] */
    const int32_t *first, *count;         /* [mels]: the bins that a filter has weights for */
    const double *weights;                /* [sum of count] */
    int64_t mels;
} Tables;

typedef struct {
    const Tables *tables;
    const double *samples;
    int64_t frames, hop, pieces;
    double *out;
} Job;

INLINE Lanes each(double x)
{
    Lanes all;
    for (int i = 0; i < FRAMES; i++) all[i] = x;
    return all;
}

/* cos and sin of i j / 20 turns. */
typedef struct {
    double cosine[SIDE][SIDE], sine[SIDE][SIDE];
} Side;

static void fill_side(const Tables *t, Side *to)
{
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < SIDE; j++) {
            to->cosine[i][j] = t->cosine[SIDE * (i * j % SIDE)];
            to->sine[i][j] = t->sine[SIDE * (i * j % SIDE)];
        }
}

/* inner[c][b] = w^(b c) * sum over a of x[20 a + b] w^(20 a c). Since x is real, a and 20 - a share
 * their cosine and, but for the sign, their sine. */
static void columns(const Tables *t, const Side *side, const Lanes *x, Complex inner[HALF][SIDE])
{
    for (int b = 0; b < SIDE; b++) {
        Lanes even[SIDE / 2], odd[SIDE / 2];
        for (int a = 1; a < SIDE / 2; a++) {
            even[a] = x[SIDE * a + b] + x[SIDE * (SIDE - a) + b];
            odd[a] = x[SIDE * a + b] - x[SIDE * (SIDE - a) + b];
        }
        for (int c = 0; c < HALF; c++) {
            Lanes re = x[b] + x[FFT / 2 + b] * each(side->cosine[c][SIDE / 2]), im = each(0.0);
            for (int a = 1; a < SIDE / 2; a++) {
                re += even[a] * each(side->cosine[c][a]);
                im -= odd[a] * each(side->sine[c][a]);
            }
            const Lanes cosine = each(t->cosine[b * c]), sine = each(t->sine[b * c]);
            inner[c][b].re = re * cosine + im * sine;
            inner[c][b].im = im * cosine - re * sine;
        }
    }
}

/* power[k] = |X[k]|^2, k = c + 20 d; above the middle k stands for 400 - k. */
static void rows(const Side *side, Complex inner[HALF][SIDE], Lanes power[BINS])
{
    for (int c = 0; c < HALF; c++)
        for (int d = 0; d < SIDE; d++) {
            const int k = c + SIDE * d, bin = k < BINS ? k : FFT - k;
            if (k >= BINS && bin % SIDE < HALF) continue; /* come by already: c is 0 or 10 */
            Lanes re = each(0.0), im = each(0.0);
            for (int b = 0; b < SIDE; b++) {
                const Lanes cosine = each(side->cosine[d][b]), sine = each(side->sine[d][b]);
                re += inner[c][b].re * cosine + inner[c][b].im * sine;
                im += inner[c][b].im * cosine - inner[c][b].re * sine;
            }
            power[bin] = re * re + im * im;
        }
}

/* Frames from `frame` on, as many as there are, up to FRAMES. */
static void some_frames(const Job *j, const Side *side, int64_t frame)
{
    const Tables *t = j->tables;
    Lanes x[FFT], power[BINS];
    Complex inner[HALF][SIDE];
    const int64_t left = j->frames - frame;
    const int count = left < FRAMES ? (int)left : FRAMES;
    for (int n = 0; n < FFT; n++) {
        x[n] = each(0.0);
        for (int i = 0; i < count; i++)
            x[n][i] = j->samples[(frame + i) * j->hop + n] * t->window[n];
    }
    columns(t, side, x, inner);
    rows(side, inner, power);
    const double *weight = t->weights;
    for (int64_t mel = 0; mel < t->mels; weight += t->count[mel++]) {
        Lanes sum = each(0.0);
        for (int i = 0; i < t->count[mel]; i++) sum += power[t->first[mel] + i] * each(weight[i]);
        for (int i = 0; i < count; i++)
            j->out[(frame + i) * t->mels + mel] = sum[i] > LEAST ? ln_of(sum[i]) * PER_LN : -10.0;
    }
}

static void frames_piece(void *context, int64_t piece)
{
    const Job *j = context;
    const int64_t groups = (j->frames + FRAMES - 1) / FRAMES;
    const int64_t end = hs_share(groups, j->pieces, piece + 1);
    Side side;
    fill_side(j->tables, &side);
    for (int64_t g = hs_share(groups, j->pieces, piece); g < end; g++)
        some_frames(j, &side, g * FRAMES);
}

/* samples [(frames - 1) * hop + 400], out [frames, mels]. */
void hs_log_mel(const Tables *tables, const double *samples, int64_t frames, int64_t hop,
                double *out, int threads)
{
    Job job = {tables, samples, frames, hop, 1, out};
    job.pieces = pieces_of((frames + FRAMES - 1) / FRAMES, frames * FFT, threads);
    hs_run(frames_piece, &job, job.pieces, threads);
}
