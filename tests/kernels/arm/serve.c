/* Calls functions of this program for another process, over pipes. What their pointers point to lies
 * in that process: a page that is touched is fetched from it, at the same address, and what a call
 * wrote there goes back behind the call. So the other process's tests need not know that the code
 * they call runs on another processor, under emulation.
 *
 * Arguments: the file descriptor of the other process's memory. Input: struct request; output: struct
 * reply and, for a string, its bytes. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096
#define SLOTS (1 << 17) /* pages of one call, at most half as many */
#define INTEGERS 16
#define FLOATS 8

struct request {
    uint64_t function; /* its address here */
    int64_t returns;   /* 'i', 'd' or 's': integer, double or string */
    int64_t integers[INTEGERS];
    double floats[FLOATS];
    int64_t single; /* the floats are of 32 bits */
};

struct reply {
    int64_t integer;
    double real;
    int64_t length; /* of the string behind it */
};

static int memory; /* of the other process */

/* A page's address and what it held when it was fetched. */
static struct {
    uintptr_t page;
    uint8_t *before;
} slots[SLOTS];
static uint8_t *copies;         /* room for what pages held */
static int order[SLOTS / 2];    /* slots in use */
static int used;
static volatile char busy;

static int slot_of(uintptr_t page)
{
    int at = (int)((page / PAGE * 0x9e3779b97f4a7c15ull) >> 47);
    while (slots[at].page && slots[at].page != page) at = (at + 1) % SLOTS;
    return at;
}

static void give_up(const char *what, uintptr_t address)
{
    char line[200];
    const int length = snprintf(line, sizeof line, "%s: address %#lx\n", what, (unsigned long)address);
    if (write(STDERR_FILENO, line, (size_t)length)) {}
    _exit(3);
}

/* A page is there as a whole or not at all: other threads may run into it meanwhile. */
static void fetch_page(int number, siginfo_t *info, void *context)
{
    (void)number;
    (void)context;
    const uintptr_t page = (uintptr_t)info->si_addr / PAGE * PAGE;
    while (__atomic_test_and_set(&busy, __ATOMIC_ACQUIRE)) {}
    const int at = slot_of(page);
    if (!slots[at].page) {
        if (used == SLOTS / 2) give_up("too many pages in one call", page);
        uint8_t *made = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (made == MAP_FAILED || pread(memory, made, PAGE, (off_t)page) != PAGE)
            give_up("no such memory", (uintptr_t)info->si_addr);
        slots[at].before = copies + (size_t)used * PAGE;
        order[used++] = at;
        memcpy(slots[at].before, made, PAGE);
        if (mremap(made, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)page) == MAP_FAILED)
            give_up("a page cannot be placed", page);
        slots[at].page = page;
    }
    __atomic_clear(&busy, __ATOMIC_RELEASE);
}

/* Only what has changed: the other process may write beside it. */
static void give_back(void)
{
    for (int n = 0; n < used; n++) {
        const int at = order[n];
        const uint8_t *now = (const uint8_t *)slots[at].page, *before = slots[at].before;
        for (int i = 0; i < PAGE;) {
            int end = i;
            while (end < PAGE && now[end] != before[end]) end++;
            if (end > i && pwrite(memory, now + i, (size_t)(end - i),
                                  (off_t)(slots[at].page + (uintptr_t)i)) != end - i)
                give_up("cannot be written", slots[at].page);
            i = end + 1;
        }
        munmap((void *)slots[at].page, PAGE);
    }
    for (int n = 0; n < used; n++) slots[order[n]].page = 0;
    used = 0;
}

/* In the place of memset (--wrap): the C library's clears whole cache lines by an instruction of its
 * own (dc zva), and where that meets a page that is not there, qemu goes on at the wrong place. */
__attribute__((optimize("no-tree-loop-distribute-patterns"))) void *__wrap_memset(void *to, int value,
                                                                               size_t size)
{
    for (size_t i = 0; i < size; i++) ((uint8_t *)to)[i] = (uint8_t)value;
    return to;
}

/* What runs here: for the tests of what a system says of its processor. */
uint64_t serve_auxval(uint64_t type) { return getauxval(type); }

/* In the place of the WebRTC project's VAD, of which there is none for this processor: 1 where a
 * sample of the window is beyond a thousand. on_arm.py has the same in Python. */
int serve_detector(void *vad, int rate_hz, const int16_t *window, size_t n)
{
    (void)vad;
    (void)rate_hz;
    for (size_t i = 0; i < n; i++)
        if (window[i] > 1000) return 1;
    return 0;
}

typedef int64_t Integer(int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t,
                        int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t,
                        double, double, double, double, double, double, double, double);
typedef double Real(int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t,
                    int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t,
                    double, double, double, double, double, double, double, double);

/* A float of 32 bits is the lower half of a register. */
static double as_passed(const struct request *r, int i)
{
    double passed = r->floats[i];
    if (r->single) {
        const float narrow = (float)r->floats[i];
        passed = 0.0;
        memcpy(&passed, &narrow, sizeof narrow);
    }
    return passed;
}

#define I(n) r->integers[n]
#define F(n) as_passed(r, n)
#define ALL                                                                                        \
    I(0), I(1), I(2), I(3), I(4), I(5), I(6), I(7), I(8), I(9), I(10), I(11), I(12), I(13), I(14), \
        I(15), F(0), F(1), F(2), F(3), F(4), F(5), F(6), F(7)

static struct reply call(const struct request *r)
{
    struct reply reply = {0};
    if (r->returns == 'd') reply.real = ((Real *)r->function)(ALL);
    else reply.integer = ((Integer *)r->function)(ALL);
    if (r->returns == 's') reply.length = (int64_t)strlen((const char *)reply.integer);
    return reply;
}

static int all(ssize_t (*move)(int, void *, size_t), int file, void *data, size_t size)
{
    for (size_t done = 0; done < size;) {
        const ssize_t moved = move(file, (char *)data + done, size - done);
        if (moved <= 0) return 0;
        done += (size_t)moved;
    }
    return 1;
}

static ssize_t write_some(int file, void *data, size_t size) { return write(file, data, size); }

int main(int count, char **arguments)
{
    if (count != 2) return 2;
    memory = atoi(arguments[1]);
    copies = mmap(NULL, (size_t)SLOTS / 2 * PAGE, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (copies == MAP_FAILED) return 2;
    struct sigaction action = {.sa_sigaction = fetch_page, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(SIGSEGV, &action, NULL);
    struct request request;
    while (all(read, STDIN_FILENO, &request, sizeof request)) {
        struct reply reply = call(&request);
        give_back();
        if (!all(write_some, STDOUT_FILENO, &reply, sizeof reply)) return 1;
        if (reply.length &&
            !all(write_some, STDOUT_FILENO, (void *)reply.integer, (size_t)reply.length))
            return 1;
    }
    return 0;
}
