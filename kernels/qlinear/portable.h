/* One panel without vector instructions. */
#ifndef HEADSTART_PORTABLE_H
#define HEADSTART_PORTABLE_H

#include "../fma.h"
#include "input.h"

static void quantize_row(const float *x, int64_t groups, int8_t *q, Group *out)
{
    for (int64_t g = 0; g < groups; g++) quantize_group(x + GROUP * g, q + GROUP * g, out + g);
}

INLINE int panel_kind(const int kind, const uint8_t *panel, const Input *in, int64_t m0, int count,
                      Scratch *scratch)
{
    const int bits = bits_of(kind), groups = block_of(kind) / GROUP;
    const int zero = zero_shift(kind) < 0 ? 0 : 1 << zero_shift(kind);
    memset(scratch->acc, 0, (size_t)count * sizeof scratch->acc[0]);
    for (int64_t g = 0; g < in->groups; g++) {
        const uint8_t *cell = panel + g / groups * cell_bytes(kind);
        for (int r = 0; r < PANEL; r++) {
            int sub = (int)(g % groups);
            const uint8_t *half = cell + head_bytes(kind) + (2 * sub + r / 8) * half_bytes(bits);
            int8_t codes[GROUP];
            float scale[2], least[2];
            for (int part = 0; part < 2; part++)
                scale_at(kind, cell, sub, part, r, scale + part, least + part);
            for (int i = 0; i < GROUP; i++)
                codes[i] = (int8_t)(code_at(bits, half, i / 4, 4 * (r % 8) + i % 4) - zero);
            for (int m = 0; m < count; m++) {
                const int8_t *q = in->q + (m0 + m) * in->cols + GROUP * g;
                const Group *group = in->group + (m0 + m) * in->groups + g;
                int32_t sum[2] = {0, 0};
                for (int i = 0; i < 16; i++) sum[0] += codes[i] * q[i];
                for (int i = 16; i < 32; i++) sum[1] += codes[i] * q[i];
                float *acc = scratch->acc[m] + r;
                if (kind == Q6_K) {
                    *acc = fma1(scale[0] * group->scale, (float)sum[0], *acc);
                    *acc = fma1(scale[1] * group->scale, (float)sum[1], *acc);
                } else
                    *acc = fma1(scale[0] * group->scale, (float)(sum[0] + sum[1]), *acc);
                if (is_affine(kind)) *acc = fma1(least[0], group->scaled_sum, *acc);
            }
        }
    }
    return 0;
}

INLINE void panel_float(const int kind, const uint8_t *panel, const Input *in, int64_t m0, int count,
                        Scratch *scratch)
{
    for (int m = 0; m < count; m++) {
        const float *x = in->x + (m0 + m) * in->cols;
        float *acc = scratch->acc[m];
        memset(acc, 0, sizeof scratch->acc[m]);
        for (int64_t k = 0; k < in->cols; k++) {
            const float each[4] = {x[k], x[k], x[k], x[k]};
            float w[PANEL];
            for (int r = 0; r < PANEL; r++)
                if (kind == F16) w[r] = load_half(panel + cell_bytes(kind) * k + 2 * r);
                else memcpy(w + r, panel + cell_bytes(kind) * k + 4 * r, 4);
            for (int r = 0; r < PANEL; r += 4) fma4(w + r, each, acc + r, acc + r);
        }
    }
}

static int64_t quantize_items(const Input *in) { return in->rows; }

static void quantize_range(const Input *in, int64_t from, int64_t end)
{
    for (int64_t m = from; m < end; m++)
        quantize_row(in->x + m * in->cols, in->groups, in->q + m * in->cols,
                     in->group + m * in->groups);
}

#endif
