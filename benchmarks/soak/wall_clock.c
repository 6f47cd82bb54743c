/* A date that jumps, for one process and its children: LD_PRELOAD this, and the eight bytes of the
   file that HEADSTART_WALL_CLOCK names (nanoseconds, signed) are added to whatever asks for the time
   of day. Clocks that nobody sets are left alone, as in a machine whose date is set. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S 1000000000LL

static const volatile int64_t *jump_ns;
static int (*real)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void)
{
    const char *name = getenv("HEADSTART_WALL_CLOCK");
    int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    if (file >= 0) {
        void *at = mmap(NULL, sizeof *jump_ns, PROT_READ, MAP_SHARED, file, 0);
        if (at != MAP_FAILED)
            jump_ns = at;
        close(file);
    }
    real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int failed = real ? real(clock, now) : (int)syscall(SYS_clock_gettime, clock, now);
    if (!failed && jump_ns && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t ns = now->tv_sec * NS_PER_S + now->tv_nsec + *jump_ns;
        now->tv_sec = ns / NS_PER_S;
        now->tv_nsec = ns % NS_PER_S;
    }
    return failed;
}

int gettimeofday(struct timeval *now, void *zone)
{
    struct timespec fine;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &fine);
    now->tv_sec = fine.tv_sec;
    now->tv_usec = fine.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *now)
{
    struct timespec fine;
    clock_gettime(CLOCK_REALTIME, &fine);
    if (now)
        *now = fine.tv_sec;
    return fine.tv_sec;
}
