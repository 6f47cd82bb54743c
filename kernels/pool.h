/* One pool of threads for all kernels of the process. */
#ifndef HEADSTART_POOL_H
#define HEADSTART_POOL_H

#include <stdint.h>

typedef void (*PoolTask)(void *context, int64_t piece);

/* Runs task(context, 0 .. pieces - 1), each once, in any order, on at most `threads` threads, the
 * caller's among them; returns when all are done. */
void hs_run(PoolTask task, void *context, int64_t pieces, int threads);

/* First item of piece i when `items` are cut into `pieces` even shares. */
static inline int64_t hs_share(int64_t items, int64_t pieces, int64_t i)
{
    return items * i / pieces;
}

#endif
