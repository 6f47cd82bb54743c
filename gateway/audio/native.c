/* What every packet of sound passes through, compiled: see front.py for what calls it, and
   resample.py, vad.py and tones.py for the same in numpy, which is the meaning and the fallback. */

#include <math.h>
#include <stdint.h>
#include <string.h>

enum { BLOCK_MAX = 480, HISTORY_MAX = 192, OUTPUTS_MAX = 480 };  /* 48 kHz; as in front.py */
enum { SIDE = 40, STEP_MAX = 16 };  /* of many slices */
enum { RATE_HZ = 16000, WINDOW = 320 };  /* what the VAD hears */
enum { PITCH = 160, LAG_FIRST = 10, LAG_END = 58 };
enum { HEARD = 480, NOTE_LAG_FIRST = 40, NOTE_LAG_END = 233 };  /* as in tones.py */
enum { TONE_NO, TONE_MAYBE, TONE_YES };
enum { LEVELS_MAX = 5, BACKGROUND = 150, BACKGROUND_BINS = 201 };  /* as in vad.py */

#define LEAST_SHARE 1e-9

/* GCC for Arm keeps vectors in registers only if they are no wider than those. */
#ifdef __aarch64__
enum { WIDE = 4 };
typedef float floats __attribute__((vector_size(16), aligned(4)));
#else
enum { WIDE = 8 };
typedef float floats __attribute__((vector_size(32), aligned(4)));
#endif

static inline void put(int16_t *out, float sum) {
    const float whole = rintf(sum);
    *out = (int16_t)(whole < -32768.0f ? -32768.0f : whole > 32767.0f ? 32767.0f : whole);
}

/* One slice, where there are few: its outputs side by side. */
static void slice(const float *x, const float *matrix, int16_t *out, long taps, long outputs) {
    float sum[OUTPUTS_MAX];
    for (long k = 0; k < outputs; k++) sum[k] = 0.0f;
    for (long t = 0; t < taps; t++) {  /* in this order, however packets were cut */
        const float at = x[t], *row = matrix + t * outputs;
        for (long k = 0; k < outputs; k++) sum[k] += at * row[k];
    }
    for (long k = 0; k < outputs; k++) put(out + k, sum[k]);
}

/* A stream's filter and what it holds back; resample.py says what the sizes mean. */
struct stream {
    const float *matrix;                  /* float[history + step][outputs] */
    long history, block, step, outputs;
    long held;                            /* samples that wait for their block to fill */
    int16_t kept[HISTORY_MAX + BLOCK_MAX];  /* history, then those */
};

/* `put`, of SIDE sums at a time, as whole numbers. */
static inline void round_all(int32_t *whole, const floats *sums) {
    float sum[SIDE];
    memcpy(sum, sums, sizeof sum);
    for (int i = 0; i < SIDE; i++) {
        const float low = sum[i] < -32768.0f ? -32768.0f : sum[i];
        const float in = low > 32767.0f ? 32767.0f : low;
        whole[i] = (int32_t)((in + 0x1.8p23f) - 0x1.8p23f);  /* rintf, of so small a number */
    }
}

/* Outputs k to k + together of SIDE slices, from whose samples rows were made: no sum waits for the
   one before it. The samples that a row of weights is for lie `row` apart, those of slices in a
   row. */
static inline __attribute__((always_inline)) void side_by_side(
    const struct stream *s, const float *from, long row, long k, int16_t *out, int together) {
    floats sum[2][SIDE / WIDE] = {0};
    const float *weight = s->matrix + k;
    for (long t = 0, i = 0; t < s->history + s->step; t++, weight += s->outputs) {
        const float *at = from + i * row;
        for (int j = 0; j < SIDE / WIDE; j++) {
            const floats x = *(const floats *)(at + WIDE * j);
            for (int o = 0; o < together; o++) sum[o][j] += x * weight[o];
        }
        if (++i == s->step) i = 0, from++;
    }
    int32_t whole[2][SIDE];
    for (int o = 0; o < together; o++) round_all(whole[o], sum[o]);
    if (together == 2 && s->outputs == 2) {  /* the usual ones, which lie close together */
        for (int i = 0; i < SIDE; i++)
            out[2 * i] = (int16_t)whole[0][i], out[2 * i + 1] = (int16_t)whole[1][i];
        return;
    }
    for (int o = 0; o < together; o++)
        for (int i = 0; i < SIDE; i++) out[k + o + i * s->outputs] = (int16_t)whole[o][i];
}

/* Sample i of every slice goes into row i. */
static inline __attribute__((always_inline)) void take_apart(
    float *rows, long row, const int16_t *in, long n, long step) {
    for (long i = 0; i < step; i++)
        for (long k = 0; k < n / step; k++) rows[i * row + k] = in[k * step + i];
}

/* Many slices are done side by side. */
static void many_slices(const struct stream *s, const int16_t *in, int16_t *out) {
    const long slices = s->block / s->step, n = s->history + s->block;
    const long row = n / s->step + 1;
    float rows[HISTORY_MAX + BLOCK_MAX + STEP_MAX];
    if (s->step == 3) take_apart(rows, row, in, n, 3);  /* from 24 to 16 kHz: known, it is quicker */
    else take_apart(rows, row, in, n, s->step);
    for (long at = n / s->step * s->step; at < n; at++)  /* less than a slice */
        rows[at % s->step * row + at / s->step] = in[at];
    for (long first = 0; first < slices; first += SIDE, out += SIDE * s->outputs) {
        long k = 0;
        for (; k + 2 <= s->outputs; k += 2) side_by_side(s, rows + first, row, k, out, 2);
        if (k < s->outputs) side_by_side(s, rows + first, row, k, out, 1);
    }
}

static void one_block(const struct stream *s, const int16_t *in, int16_t *out) {
    const long taps = s->history + s->step, slices = s->block / s->step;
    if (slices % SIDE == 0 && s->step <= STEP_MAX) {
        many_slices(s, in, out);
        return;
    }
    float x[HISTORY_MAX + BLOCK_MAX];
    for (long i = 0; i < s->history + s->block; i++) x[i] = in[i];
    for (long i = 0; i < slices; i++)
        slice(x + i * s->step, s->matrix, out + i * s->outputs, taps, s->outputs);
}

/* in: int16[n]. Every block of the stream that is full now becomes slices * outputs samples of
   out; the rest is held. */
void headstart_resample(struct stream *s, const int16_t *in, int n, int16_t *out) {
    const long outputs = s->block / s->step * s->outputs;
    int16_t *waiting = s->kept + s->history;
    while (s->held + n >= s->block) {
        const long more = s->block - s->held;
        memcpy(waiting + s->held, in, more * sizeof *in);
        in += more, n -= more, s->held = 0;
        one_block(s, s->kept, out);
        out += outputs;
        memmove(s->kept, s->kept + s->block, s->history * sizeof *in);
    }
    memcpy(waiting + s->held, in, n * sizeof *in);
    s->held += n;
}

/* Mean square of int16[n] about their mean: whole sums, so no order of adding changes it. */
double headstart_mean_square(const int16_t *samples, long n) {
    int64_t square = 0, sum = 0;
    for (long i = 0; i < n; i++) {
        square += (int32_t)samples[i] * samples[i];
        sum += samples[i];
    }
    return (double)(n * square - sum * sum) / (double)(n * n);
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

/* What of int16[480]'s power two sine waves leave over; tones.partials_rest says how. Doubles that
   hold whole numbers: exact, in any order. */
double headstart_partials_rest(const int16_t *heard) {
    enum { SUMS = HEARD / 4, N = SUMS - 2 };
    double sum[SUMS], x[N];
    for (int i = 0; i < SUMS; i++) {
        const int16_t *of = heard + 4 * i;
        sum[i] = of[0] + of[1] + of[2] + of[3];
    }
    for (int i = 0; i < N; i++) x[i] = sum[i + 2] - sum[i];  /* of (sum[i + 1] + sum[i]) */
    double aa = 0, ab = 0, bb = 0, ea = 0, eb = 0, ee = 0, power = 0;
    for (int i = 0; i < N; i++) power += x[i] * x[i];
    for (int i = 0; i + 4 < N; i++) {
        const double e = x[i + 4] + x[i], a = x[i + 3] + x[i + 1], b = x[i + 2];
        aa += a * a, ab += a * b, bb += b * b;
        ea += e * a, eb += e * b, ee += e * e;
    }
    const double determinant = aa * bb - ab * ab;
    double rest;
    if (determinant > LEAST_SHARE * aa * bb) {
        const double a = (ea * bb - eb * ab) / determinant;
        const double b = (eb * aa - ea * ab) / determinant;
        rest = ee - a * ea - b * eb;
    } else {
        rest = ee - ea * ea / (aa > 1.0 ? aa : 1.0);
    }
    return rest / (power > 1.0 ? power : 1.0);
}

/* Highest normalised autocorrelation of int16[480]; tones.note_periodic says of what. */
double headstart_note_periodic(const int16_t *heard) {
    enum { N = HEARD - 7, LAGS = NOTE_LAG_END - NOTE_LAG_FIRST + 2 };
    double x[N + NOTE_LAG_END + 1], energy[N + 1], sum[LAGS], share[LAGS];
    int64_t whole[N], total = 0;
    for (int i = 0; i < N; i++) {
        const int16_t *s = heard + i;  /* times 1 2 3 4 4 3 2 1 */
        whole[i] = s[0] + s[7] + 2 * (s[1] + s[6]) + 3 * (s[2] + s[5]) + 4 * (s[3] + s[4]);
        total += whole[i];
    }
    const int64_t mean = total / N - (total % N < 0);  /* rounded downwards */
    energy[0] = 0;
    for (int i = 0; i < N; i++) {
        x[i] = (double)(whole[i] - mean);
        energy[i + 1] = energy[i] + x[i] * x[i];
    }
    for (int i = N; i < N + NOTE_LAG_END + 1; i++) x[i] = 0;
    for (int k = 0; k < LAGS; k++) sum[k] = 0;
    for (int i = 0; i < N; i++)
        for (int k = 0; k < LAGS; k++) sum[k] += x[i] * x[i + NOTE_LAG_FIRST - 1 + k];
    for (int k = 0; k < LAGS; k++) {
        const int lag = NOTE_LAG_FIRST - 1 + k;
        const double power = (energy[N] - energy[lag]) * energy[N - lag];
        share[k] = sum[k] / sqrt(power > 1.0 ? power : 1.0);
    }
    double most = -1.0;
    for (int k = 1; k + 1 < LAGS; k++) {
        const double before = share[k - 1], at = share[k], after = share[k + 1];
        if (at < before || at < after) continue;
        const double bend = 8.0 * (before - 2.0 * at + after), lean = before - after;
        const double peak = at - (bend < 0.0 ? lean * lean / (bend < -1e-12 ? bend : -1e-12) : 0.0);
        if (peak > most) most = peak;
    }
    return most;
}

/* A speech score's numbers and state; vad.WebRtcScore says what they mean and what is done. */
struct score {
    int (*process)(void *vad, int rate_hz, const int16_t *window, size_t n);
    void *vad;  /* the WebRTC project's */
    double floor_dbfs, silence_dbfs, least_voicing, going_on_voicing, faint_voicing, clear_voicing;
    double room_fall, room_rise, margin_db, going_on_margin_db;
    double partials_rest, maybe_partials_rest, note_periodic, maybe_note_periodic;
    double voice_span_db, quiet_room_db, voice_rise, voice_fall;
    double background_share, beginning_over_db, going_on_over_db, faint_over_db;
    long least_voiced, going_on_voiced, voice_lasts, going_on_lasts, behind_tone_voiced;
    long tone_lasts, doubt_max, doubt_ends, spoke_lately, faint_lasts, least_clear;
    long level_windows, beginning_level_windows, bins_per_db;
    double room_dbfs, voice_dbfs;
    double mean_squares[LEVELS_MAX];  /* the newest last */
    long known;                       /* of these */
    long warming_up, voiced, since_voice, since_tone, unpitched, doubted;
    long since_faint, faint, clear;
    long levels, oldest;  /* in `bins`, a ring */
    uint8_t bins[BACKGROUND], counts[BACKGROUND_BINS];
    int16_t last[WINDOW];
};

static double level_dbfs(const struct score *s, double mean_square) {
    if (mean_square <= 0.0) return s->silence_dbfs;
    const double level = 10.0 * log10(mean_square / (32768.0 * 32768.0));
    return level > s->silence_dbfs ? level : s->silence_dbfs;
}

/* vad.Background: recent_dbfs, learn and level_dbfs. */
static double recent_dbfs(const struct score *s, long windows) {
    if (windows > s->known) windows = s->known;
    double total = 0.0;
    for (long i = s->level_windows - windows; i < s->level_windows; i++)
        total += s->mean_squares[i];
    return level_dbfs(s, total / (double)windows);
}

static void learn_background(struct score *s, double mean_square) {
    const long n = s->level_windows;
    memmove(s->mean_squares, s->mean_squares + 1, (size_t)(n - 1) * sizeof *s->mean_squares);
    s->mean_squares[n - 1] = mean_square;
    if (s->known < n) s->known++;
    long bin = (long)((recent_dbfs(s, n) - s->silence_dbfs) * (double)s->bins_per_db);
    if (bin > BACKGROUND_BINS - 1) bin = BACKGROUND_BINS - 1;
    if (s->levels < BACKGROUND) {
        s->bins[s->levels++] = (uint8_t)bin;
    } else {
        s->counts[s->bins[s->oldest]]--;
        s->bins[s->oldest] = (uint8_t)bin;
        s->oldest = (s->oldest + 1) % BACKGROUND;
    }
    s->counts[bin]++;
}

static double background_dbfs(const struct score *s) {
    long below = (long)(s->background_share * (double)s->levels), bin = 0;
    while (s->counts[bin] <= below) below -= s->counts[bin++];
    return s->silence_dbfs + (double)bin / (double)s->bins_per_db;
}

/* tones.tone_in, of the window and half of the last one. */
static int tone_in(const struct score *s, const int16_t *window) {
    int16_t heard[HEARD];
    memcpy(heard, s->last + 2 * WINDOW - HEARD, (HEARD - WINDOW) * sizeof *heard);
    memcpy(heard + HEARD - WINDOW, window, WINDOW * sizeof *heard);
    const double rest = headstart_partials_rest(heard);
    if (rest <= s->partials_rest) return TONE_YES;
    const double periodic = headstart_note_periodic(heard);
    if (periodic >= s->note_periodic) return TONE_YES;
    if (s->since_voice < s->spoke_lately) return TONE_NO;
    const int near = rest <= s->maybe_partials_rest || periodic >= s->maybe_note_periodic;
    return near ? TONE_MAYBE : TONE_NO;
}

static long least_voiced(const struct score *s, int going_on) {
    if (going_on) return s->going_on_voiced;
    return s->since_tone < s->tone_lasts ? s->behind_tone_voiced : s->least_voiced;
}

static void doubt(struct score *s, int tone, int pitched, int speaking) {
    s->unpitched = pitched ? 0 : s->unpitched + 1;
    if (speaking || s->unpitched >= s->doubt_ends) s->doubted = 0;
    else if ((s->doubted || tone != TONE_NO) && s->doubted < s->doubt_max) s->doubted++;
}

static void find_faint(
    struct score *s, double pitch, double level, double background, int going_on
) {
    const double floor = s->room_dbfs > background ? s->room_dbfs : background;
    const int faint = pitch >= s->faint_voicing && level >= floor + s->faint_over_db;
    s->since_faint = faint ? 0 : s->since_faint + 1;
    if (going_on || s->since_faint >= s->faint_lasts) s->faint = 0;
    else if ((s->faint || faint) && s->faint <= s->doubt_max) s->faint++;
}

static double margin_db(const struct score *s, int going_on) {
    if (!going_on) return s->margin_db;
    const double near = s->voice_dbfs - s->voice_span_db - s->room_dbfs;
    const double most = near < s->quiet_room_db ? near : s->quiet_room_db;
    return most > s->going_on_margin_db ? most : s->going_on_margin_db;
}

static int stands_out(const struct score *s, double level, double background, int going_on) {
    if (level < s->room_dbfs + margin_db(s, going_on)) return 0;
    if (s->clear >= s->least_clear) return 1;
    const long windows = going_on ? s->level_windows : s->beginning_level_windows;
    const double over_db = going_on ? s->going_on_over_db : s->beginning_over_db;
    return recent_dbfs(s, windows) >= background + over_db;
}

static void learn_voice(struct score *s, double level, int going_on) {
    const double louder = level - s->voice_dbfs;
    const double share = louder > 0 ? s->voice_rise : s->voice_fall;
    s->voice_dbfs += (going_on ? share : 1.0) * louder;
}

/* 0, or for speech 1 and how many windows before it had begun. */
static int is_speech(struct score *s, const int16_t *window) {
    const double square = headstart_mean_square(window, WINDOW);
    learn_background(s, square);
    const double level = level_dbfs(s, square), background = background_dbfs(s);
    const int likely =
        s->process(s->vad, RATE_HZ, window, WINDOW) == 1 && level >= s->floor_dbfs;
    const double pitch = likely ? headstart_voicing(s->last, window) : 0.0;
    s->clear = pitch >= s->clear_voicing ? s->clear + 1 : 0;
    const int speaking = s->since_voice < s->voice_lasts;
    const int going_on = s->since_voice < s->going_on_lasts;
    const int pitched = pitch >= (going_on ? s->going_on_voicing : s->least_voicing);
    const int tone = pitched && !speaking ? tone_in(s, window) : TONE_NO;
    s->since_tone = tone == TONE_YES ? 0 : s->since_tone + 1;
    doubt(s, tone, pitched, speaking);
    memcpy(s->last, window, sizeof s->last);
    const int has_voice = pitched && tone != TONE_YES;
    if (!has_voice && !speaking)
        s->room_dbfs += (level < s->room_dbfs ? s->room_fall : s->room_rise)
                        * (level - s->room_dbfs);
    find_faint(s, pitch, level, background, going_on);
    if (!has_voice || !stands_out(s, level, background, going_on)) s->voiced = 0;
    else if (tone == TONE_NO) s->voiced++;
    const int is_voice = s->voiced >= least_voiced(s, going_on);
    if (is_voice) learn_voice(s, level, going_on);
    s->since_voice = is_voice ? 0 : s->since_voice + 1;
    if (s->warming_up) {
        s->warming_up--;
        return 0;
    }
    const long earlier = s->doubted >= s->faint ? s->doubted : s->faint - 1;
    return likely && s->since_voice < s->voice_lasts ? 1 + (int)earlier : 0;
}

/* pcm: int16[n][320] at 16 kHz. Into speech, for each of the n windows, what is_speech says. */
void headstart_judge(struct score *s, const int16_t *pcm, int n, uint8_t *speech) {
    for (long i = 0; i < n; i++) speech[i] = (uint8_t)is_speech(s, pcm + i * WINDOW);
}
