/* A wall clock that is ahead of the machine's, or behind it: preloaded into a server.

   SERVER_CLOCK names a file of one number of eight bytes, the seconds by which it is ahead; it may change at any time. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile double *ahead;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("SERVER_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *found = mmap(NULL, sizeof *ahead, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (found != MAP_FAILED)
        ahead = found;
}

int clock_gettime(clockid_t which, struct timespec *at)
{
    long done = syscall(SYS_clock_gettime, which, at);
    if (done == 0 && ahead && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) {
        long long more = (long long)(*ahead * 1e9) + at->tv_nsec;
        at->tv_sec += more / 1000000000;
        at->tv_nsec = more % 1000000000;
        if (at->tv_nsec < 0) {
            at->tv_nsec += 1000000000;
            at->tv_sec -= 1;
        }
    }
    return (int)done;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone)
{
    struct timespec found;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &found))
        return -1;
    at->tv_sec = found.tv_sec;
    at->tv_usec = found.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at)
{
    struct timespec found;
    clock_gettime(CLOCK_REALTIME, &found);
    if (at)
        *at = found.tv_sec;
    return found.tv_sec;
}
