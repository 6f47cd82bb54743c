/* GGUF blocks -> panels, and panels -> exact fp32 rows. The same as panels.py, fast. */
#include "../pool.h"
#include "panel.h"

#define BLOCK_MAX 256

/* Bytes of one GGUF block. */
INLINE int64_t gguf_bytes(const int kind)
{
    switch (kind) {
    case Q4_0: return 18;
    case Q4_1: return 20;
    case Q5_0: return 22;
    case Q5_1: return 24;
    case Q8_0: return 34;
    case Q4_K: return 144;
    case Q5_K: return 176;
    case Q6_K: return 210;
    case F16: return 2;
    default: return 4;
    }
}

/* Blocks of 32: d, [m], [32 fifth bits], nibbles. Q8_0: d, 32 int8. */
INLINE void codes_of_small(const int kind, const uint8_t *block, uint8_t *codes)
{
    if (kind == Q8_0) {
        memcpy(codes, block + 2, 32);
        return;
    }
    const uint8_t *bits = block + (is_affine(kind) ? 4 : 2);
    const uint8_t *nibbles = bits + (bits_of(kind) == 5 ? 4 : 0);
    uint64_t pair[2]; /* 16 bytes of two codes each */
    memcpy(pair, nibbles, sizeof pair);
    uint64_t eights[4]; /* eight codes each */
    for (int i = 0; i < 2; i++) {
        eights[i] = pair[i] & 0x0f0f0f0f0f0f0f0full;
        eights[i + 2] = pair[i] >> 4 & 0x0f0f0f0f0f0f0f0full;
    }
    for (int byte = 0; byte < 4 && bits_of(kind) == 5; byte++) {
        /* Eight copies of a byte, of which the i-th keeps bit i; a carry then makes it bit 7. */
        uint64_t eight = 0x0101010101010101ull * bits[byte] & 0x8040201008040201ull;
        eight = (eight + 0x007f7f7f7f7f7f7full) & 0x8080808080808080ull;
        eights[byte] |= eight >> 3;
    }
    memcpy(codes, eights, sizeof eights);
}

/* Q4_K, Q5_K: d, dmin, 12 bytes of sub-scales, [32 bytes of fifth bits], 128 of nibbles. */
INLINE void codes_of_super(const int kind, const uint8_t *block, uint8_t *codes)
{
    const uint8_t *high = block + 16, *nibbles = block + (kind == Q5_K ? 48 : 16);
    for (int g = 0; g < 8; g++)
        for (int i = 0; i < 32; i++) {
            int code = nibbles[32 * (g >> 1) + i] >> 4 * (g & 1) & 15;
            if (kind == Q5_K) code |= (high[i] >> g & 1) << 4;
            codes[32 * g + i] = (uint8_t)code;
        }
}

/* Q6_K: 128 bytes of nibbles, 64 of two high bits, 16 int8 sub-scales, d. */
static void codes_of_q6k(const uint8_t *block, uint8_t *codes)
{
    for (int n = 0; n < 2; n++)
        for (int part = 0; part < 4; part++)
            for (int i = 0; i < 32; i++) {
                int low = block[64 * n + 32 * (part & 1) + i] >> 4 * (part >> 1) & 15;
                int high = block[128 + 32 * n + i] >> 2 * part & 3;
                codes[128 * n + 32 * part + i] = (uint8_t)(low | high << 4);
            }
}

/* Writes row r's scales into the head of its panel's cell. */
INLINE void pack_head(const int kind, const uint8_t *block, uint8_t *cell, int r)
{
    memcpy(cell + 2 * r, kind == Q6_K ? block + 208 : block, 2);
    if (is_affine(kind)) memcpy(cell + PANEL * 2 + 2 * r, block + 2, 2);
    uint8_t *subs = cell + PANEL * 2 * (1 + is_affine(kind));
    if (kind == Q6_K)
        for (int s = 0; s < 16; s++) subs[s * PANEL + r] = block[192 + s];
    else if (is_super(kind))
        for (int s = 0; s < 8; s++) {
            const uint8_t *p = block + 4;
            int scale = s < 4 ? p[s] & 63 : (p[s + 4] & 15) | p[s - 4] >> 6 << 4;
            int least = s < 4 ? p[s + 4] & 63 : p[s + 4] >> 4 | p[s] >> 6 << 4;
            subs[s * PANEL + r] = (uint8_t)scale;
            subs[(8 + s) * PANEL + r] = (uint8_t)least;
        }
}

/* Four neighbouring codes of a row, one in each byte. */
INLINE uint32_t four_at(const uint8_t *codes)
{
    uint32_t four;
    memcpy(&four, codes, sizeof four);
    return four;
}

/* Codes of 8 rows, 32 of each, `row_stride` apart -> one half of a group. Vector v of row r is four
 * codes: they move together, and no shift takes a bit of one into its neighbour's byte. */
INLINE void pack_half(const int bits, const uint8_t *codes, int64_t row_stride, uint8_t *half)
{
    uint32_t vector[VECTORS][8], plane[2][8];
    for (int r = 0; r < 8; r++)
        for (int v = 0; v < VECTORS; v++) vector[v][r] = four_at(codes + r * row_stride + 4 * v);
    if (bits == 8) {
        memcpy(half, vector, sizeof vector);
        return;
    }
    for (int r = 0; r < 8; r++) plane[0][r] = plane[1][r] = 0;
    for (int v = 0; v < VECTORS; v++)
        for (int r = 0; r < 8; r++) {
            const uint32_t high = vector[v][r] >> 4 & 0x03030303u;
            if (bits == 5) plane[0][r] |= high << v;
            if (bits == 6) plane[v >> 2][r] |= high << 2 * (v & 3);
        }
    memcpy(half, plane, (size_t)plane_bytes(bits));
    for (int v = 0; v < VECTORS / 2; v++)
        for (int r = 0; r < 8; r++)
            vector[v][r] = (vector[v][r] & 0x0f0f0f0fu) | (vector[v + 4][r] & 0x0f0f0f0fu) << 4;
    memcpy(half + plane_bytes(bits), vector, (size_t)half_bytes(4));
}

INLINE void pack_kind(const int kind, const uint8_t *raw, int rows, int64_t blocks, uint8_t *out)
{
    uint8_t codes[PANEL][BLOCK_MAX];
    const int64_t row_bytes = blocks * gguf_bytes(kind), cell = cell_bytes(kind);
    const int bits = bits_of(kind), groups = block_of(kind) / GROUP;
    memset(codes, 0, sizeof codes);
    if (rows < PANEL) memset(out, 0, (size_t)(blocks * cell));
    for (int64_t b = 0; b < blocks; b++, out += cell) {
        for (int r = 0; r < rows; r++) {
            const uint8_t *block = raw + r * row_bytes + b * gguf_bytes(kind);
            if (is_float(kind)) {
                memcpy(out + r * gguf_bytes(kind), block, (size_t)gguf_bytes(kind));
                continue;
            }
            pack_head(kind, block, out, r);
            if (kind == Q6_K) codes_of_q6k(block, codes[r]);
            else if (is_super(kind)) codes_of_super(kind, block, codes[r]);
            else codes_of_small(kind, block, codes[r]);
        }
        for (int g = 0; g < groups; g++)
            for (int h = 0; h < 2; h++)
                pack_half(bits, codes[8 * h] + GROUP * g, BLOCK_MAX,
                          out + head_bytes(kind) + (2 * g + h) * half_bytes(bits));
    }
}

static void pack_panel(int kind, const uint8_t *raw, int rows, int64_t blocks, uint8_t *out)
{
    switch (kind) {
#define KIND(K) case K: pack_kind(K, raw, rows, blocks, out); break;
        KIND(Q4_0) KIND(Q4_1) KIND(Q5_0) KIND(Q5_1) KIND(Q8_0) KIND(Q4_K) KIND(Q5_K) KIND(Q6_K)
        KIND(F16)
    default: pack_kind(F32, raw, rows, blocks, out);
#undef KIND
    }
}

#define PIECES_A_THREAD 8

typedef struct {
    int kind;
    const uint8_t *raw;
    int64_t rows, blocks, panels, pieces;
    uint8_t *out;
} Packing;

static void pack_piece(void *context, int64_t piece)
{
    const Packing *j = context;
    const int64_t end = hs_share(j->panels, j->pieces, piece + 1);
    for (int64_t p = hs_share(j->panels, j->pieces, piece); p < end; p++) {
        const int64_t left = j->rows - p * PANEL;
        pack_panel(j->kind, j->raw + p * PANEL * j->blocks * gguf_bytes(j->kind),
                   left < PANEL ? (int)left : PANEL, j->blocks,
                   j->out + p * j->blocks * cell_bytes(j->kind));
    }
}

/* raw: GGUF bytes of [rows, cols]; out: [ceil(rows / 16), cols / block * cell_bytes]. */
void hs_pack(int kind, const uint8_t *raw, int64_t rows, int64_t cols, uint8_t *out, int threads)
{
    const int64_t panels = (rows + PANEL - 1) / PANEL, most = threads * PIECES_A_THREAD;
    Packing job = {kind, raw, rows, cols / block_of(kind), panels, panels < most ? panels : most, out};
    hs_run(pack_piece, &job, job.pieces, threads);
}

/* The exact values of row r of a panel. */
static void unpack_row(int kind, const uint8_t *panel, int64_t cols, int r, float *out)
{
    int64_t cell = cell_bytes(kind), blocks = cols / block_of(kind);
    if (is_float(kind)) {
        for (int64_t k = 0; k < cols; k++, panel += cell)
            if (kind == F16) out[k] = load_half(panel + 2 * r);
            else memcpy(out + k, panel + 4 * r, 4);
        return;
    }
    int bits = bits_of(kind), groups = block_of(kind) / GROUP;
    int zero = zero_shift(kind) < 0 ? 0 : 1 << zero_shift(kind);
    for (int64_t b = 0; b < blocks; b++, panel += cell)
        for (int g = 0; g < groups; g++) {
            const uint8_t *half = panel + head_bytes(kind) + (2 * g + r / 8) * half_bytes(bits);
            float s[2], m[2];
            for (int part = 0; part < 2; part++)
                scale_at(kind, panel, g, part, r, s + part, m + part);
            for (int i = 0; i < GROUP; i++) {
                int code = code_at(bits, half, i / 4, 4 * (r % 8) + i % 4) - zero;
                float scaled = s[i / 16] * (float)code;
                *out++ = is_affine(kind) ? scaled + m[i / 16] : scaled;
            }
        }
}

typedef struct {
    int kind;
    const uint8_t *packed;
    int64_t cols, count, pieces;
    const int64_t *ids;
    float *out;
} Gathering;

static void gather_piece(void *context, int64_t piece)
{
    const Gathering *j = context;
    const int64_t stride = j->cols / block_of(j->kind) * cell_bytes(j->kind);
    const int64_t end = hs_share(j->count, j->pieces, piece + 1);
    for (int64_t i = hs_share(j->count, j->pieces, piece); i < end; i++) {
        const int64_t row = j->ids ? j->ids[i] : i;
        unpack_row(j->kind, j->packed + row / PANEL * stride, j->cols, (int)(row % PANEL),
                   j->out + i * j->cols);
    }
}

/* out [count, cols] = rows `ids` of W; ids NULL: rows 0 .. count - 1. */
void hs_rows(int kind, const uint8_t *packed, int64_t cols, const int64_t *ids, int64_t count,
             float *out, int threads)
{
    const int64_t most = count > 16 ? threads * PIECES_A_THREAD : 1;
    Gathering job = {kind, packed, cols, count, count < most ? count : most, ids, out};
    hs_run(gather_piece, &job, job.pieces, threads);
}
