/* What every packet of sound passes through, compiled: see front.py for what calls it, and
   resample.py and vad.py for the same in numpy, which is the meaning and the fallback. */

#include <math.h>
#include <stdint.h>

enum { OUTPUTS_MAX = 480, PITCH = 160, LAG_FIRST = 10, LAG_END = 58 };

static inline void slice(const float *x, const float *matrix, int16_t *out, long taps,
                         long outputs) {
    float sum[OUTPUTS_MAX];
    for (long k = 0; k < outputs; k++) sum[k] = 0.0f;
    for (long t = 0; t < taps; t++) {  /* in this order, however packets were cut */
        const float at = x[t], *row = matrix + t * outputs;
        for (long k = 0; k < outputs; k++) sum[k] += at * row[k];
    }
    for (long k = 0; k < outputs; k++) {
        const float whole = rintf(sum[k]);
        out[k] = (int16_t)(whole < -32768.0f ? -32768.0f : whole > 32767.0f ? 32767.0f : whole);
    }
}

/* line: float[history + blocks * block], of which each slice of `step` samples, with the history
   before it, becomes `outputs` samples; matrix: float[history + step][outputs]. Returns 0, or 1
   when a slice has more outputs than there is room for. */
int headstart_resample(const float *line, const float *matrix, int16_t *out, long slices,
                       long step, long history, long outputs) {
    if (outputs > OUTPUTS_MAX) return 1;
    for (long i = 0; i < slices; i++) {
        const float *x = line + i * step;
        if (outputs == 32) slice(x, matrix, out + i * 32, history + step, 32);  /* 24 to 16 kHz */
        else slice(x, matrix, out + i * outputs, history + step, outputs);
    }
    return 0;
}

/* Mean square of int16[n]: a whole sum, so no order of adding changes it. */
double headstart_mean_square(const int16_t *samples, long n) {
    int64_t sum = 0;
    for (long i = 0; i < n; i++) sum += (int32_t)samples[i] * samples[i];
    return (double)sum / (double)n;
}

static void low_pass(const int16_t *window, float *low) {  /* int16[320] to float[80] */
    for (int i = 0; i < PITCH / 2; i++) {
        const int16_t *of = window + 4 * i;
        low[i] = 0.25f * (float)(of[0] + of[1] + of[2] + of[3]);
    }
}

/* How periodic two windows of int16[320] at 16 kHz are at a voice's pitch; vad.voicing says how. */
double headstart_voicing(const int16_t *last, const int16_t *window) {
    enum { N = PITCH - 1, LAGS = LAG_END - LAG_FIRST };
    float low[PITCH], x[N + LAG_END], energy[N + 1], sum[LAGS];
    low_pass(last, low);
    low_pass(window, low + PITCH / 2);
    float mean = 0.0f;
    for (int i = 0; i < N; i++) mean += x[i] = low[i] + low[i + 1];
    mean /= N;
    energy[0] = 0.0f;
    for (int i = 0; i < N; i++) {
        x[i] -= mean;
        energy[i + 1] = energy[i] + x[i] * x[i];
    }
    for (int i = N; i < N + LAG_END; i++) x[i] = 0.0f;  /* what lies beyond counts for nothing */
    for (int k = 0; k < LAGS; k++) sum[k] = 0.0f;
    for (int i = 0; i < N; i++)
        for (int k = 0; k < LAGS; k++) sum[k] += x[i] * x[i + LAG_FIRST + k];
    float most = -1.0f;
    for (int k = 0; k < LAGS; k++) {
        const int lag = LAG_FIRST + k;
        const float product = (energy[N] - energy[lag]) * energy[N - lag];
        const float share = sum[k] / sqrtf(product > 1e-3f ? product : 1e-3f);
        if (share > most) most = share;
    }
    return most;
}
