/* Threads take pieces of a job by ticket, and the caller waits only for pieces that were taken.
 *
 * An OpenMP region ends when every thread of the team has arrived. On a machine whose cores are also
 * wanted by other processes a team member may not get a core for many milliseconds, and each of the
 * 170 regions of a decoded token would wait for it. Here a worker that is late finds no pieces left,
 * and the caller has gone on. Results do not depend on who computes a piece.
 *
 * One job runs at a time. A call that comes while another thread's job is running does its own
 * pieces alone. A worker spins for SPINS turns after its last piece, about the time between two
 * kernels of one token, then sleeps. Where the other cores are busy Linux wakes it on the caller's own
 * core, where the two would only take turns: a worker that finds itself there moves away. */
#define _GNU_SOURCE
#include "pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>

#define MAX_WORKERS 255
#define SPINS 4000
#define SPINS_BEFORE_YIELD 256

#if defined(__x86_64__) || defined(__i386__)
#define relax() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define relax() __asm__ volatile("yield")
#else
#define relax() ((void)0)
#endif

/* ticket: generation 24 bits | workers that may help 8 | pieces not yet taken 32. The generation
 * makes a ticket read before a job's end useless after it. */
static _Atomic uint64_t ticket;
static _Atomic int64_t done;
static _Atomic int sleeping;
static pthread_mutex_t caller = PTHREAD_MUTEX_INITIALIZER; /* held while a job runs */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;   /* guards going to sleep */
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
/* Written by the caller before the ticket and read after a piece was taken: stable in between. */
static int workers;
static PoolTask job_task;
static void *job_context;
static int64_t job_pieces;

static uint32_t left_for(uint64_t t, int worker)
{
    return worker < (int)(t >> 32 & 0xff) ? (uint32_t)t : 0;
}

#ifdef __linux__
static _Atomic int caller_core;
#define here() sched_getcpu()

/* Keeps the calling worker off the core. `all`: the cores it had at its start. */
static void leave_core(int core, const cpu_set_t *all)
{
    cpu_set_t others = *all;
    if (core < 0 || core >= CPU_SETSIZE) return;
    CPU_CLR(core, &others);
    if (CPU_COUNT(&others) > 0) sched_setaffinity(0, sizeof others, &others);
}
#endif

/* Takes pieces until there are none for this worker (-1: the caller, who may always help). */
static int take_pieces(int worker)
{
    int taken = 0;
    uint64_t t = atomic_load(&ticket);
    while ((worker < 0 ? (uint32_t)t : left_for(t, worker)) > 0) {
        if (!atomic_compare_exchange_weak(&ticket, &t, t - 1)) continue;
        job_task(job_context, job_pieces - (int64_t)(uint32_t)t);
        atomic_fetch_add(&done, 1);
        taken++;
        t = atomic_load(&ticket);
    }
    return taken;
}

static void *work(void *argument)
{
    const int worker = (int)(intptr_t)argument;
#ifdef __linux__
    cpu_set_t all;
    CPU_ZERO(&all);
    sched_getaffinity(0, sizeof all, &all);
#endif
    for (int spins = 0;;) {
#ifdef __linux__
        if (left_for(atomic_load(&ticket), worker) > 0 && here() == atomic_load(&caller_core))
            leave_core(here(), &all);
#endif
        if (take_pieces(worker)) spins = 0;
        if (++spins < SPINS) {
            relax();
            continue;
        }
        pthread_mutex_lock(&lock);
        atomic_fetch_add(&sleeping, 1);
        while (left_for(atomic_load(&ticket), worker) == 0) pthread_cond_wait(&wake, &lock);
        atomic_fetch_sub(&sleeping, 1);
        pthread_mutex_unlock(&lock);
        spins = 0;
    }
    return NULL;
}

/* A forked child has none of the threads, and none of the work. */
static void after_fork(void)
{
    pthread_mutex_t free_mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t nobody = PTHREAD_COND_INITIALIZER;
    caller = lock = free_mutex;
    wake = nobody;
    atomic_store(&sleeping, 0);
    workers = 0;
    /* Pieces that were left of the parent's job are not the child's: new workers would take them. */
    atomic_store(&ticket, atomic_load(&ticket) >> 40 << 40);
}

static void prepare(void) { pthread_atfork(NULL, NULL, after_fork); }

/* Starts workers up to `count`; fewer where the system gives no more. */
static void start_workers(int count)
{
    sigset_t all, before;
    pthread_once(&once, prepare);
    sigfillset(&all); /* signals are for the program's own threads, but not a thread's own faults */
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGFPE);
    sigdelset(&all, SIGILL);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (; workers < count; workers++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, work, (void *)(intptr_t)workers)) break;
        pthread_detach(thread);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void hs_run(PoolTask task, void *context, int64_t pieces, int threads)
{
    int help = threads - 1 < MAX_WORKERS ? threads - 1 : MAX_WORKERS;
    if (help < 1 || pieces < 2 || pieces > UINT32_MAX || pthread_mutex_trylock(&caller)) {
        for (int64_t i = 0; i < pieces; i++) task(context, i);
        return;
    }
    if (workers < help) start_workers(help);
    job_task = task;
    job_context = context;
    job_pieces = pieces;
    atomic_store(&done, 0);
#ifdef __linux__
    atomic_store(&caller_core, here());
#endif
    uint64_t generation = (atomic_load(&ticket) >> 40) + 1;
    atomic_store(&ticket, generation << 40 | (uint64_t)help << 32 | (uint64_t)pieces);
    if (atomic_load(&sleeping) > 0) {
        pthread_mutex_lock(&lock);
        pthread_cond_broadcast(&wake);
        pthread_mutex_unlock(&lock);
    }
    take_pieces(-1);
    /* A worker that holds a piece may have lost its core: give it this one. */
    for (int spins = 0; atomic_load(&done) < pieces; spins++)
        if (spins < SPINS_BEFORE_YIELD) relax();
        else sched_yield();
    pthread_mutex_unlock(&caller);
}
