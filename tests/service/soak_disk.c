/* A disk that fails to order: preloaded into the service, it answers writes and syncs of the store's files with errors.

   SOAK_DISK names a file of four 32-bit numbers: every how many writes fail (0: none), with which errno, every how many syncs fail
   with EIO, and whether a failing write leaves the first half of its bytes in the file. Only files whose name, or the name of
   whose folder, begins with "swerve.db" are concerned: the database, its log and the journal, not the service's log and the compiled
   code. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

static volatile int32_t *order;
static atomic_uint writes, syncs;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("SOAK_DISK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *found = mmap(NULL, 16, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (found != MAP_FAILED)
        order = found;
}

static int concerned(int file)
{
    char link[32], path[512];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0)
        return 0;
    path[length] = 0;
    return strstr(path, "/swerve.db") != NULL;
}

static int write_fails(int file)
{
    return order && order[0] > 0 && concerned(file) && atomic_fetch_add(&writes, 1) % (unsigned)order[0] == 0;
}

static int sync_fails(int file)
{
    return order && order[2] > 0 && concerned(file) && atomic_fetch_add(&syncs, 1) % (unsigned)order[2] == 0;
}

#define REAL(name) \
    static __typeof__(&name) real; \
    if (!real) \
        real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

#define PWRITE(name, offset_type) \
    ssize_t name(int file, const void *from, size_t size, offset_type at) \
    { \
        REAL(name); \
        if (write_fails(file)) { \
            int code = order[1]; \
            if (order[3] && size > 1) \
                real(file, from, size / 2, at); \
            errno = code ? code : EIO; \
            return -1; \
        } \
        return real(file, from, size, at); \
    }

PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

ssize_t write(int file, const void *from, size_t size)
{
    REAL(write);
    if (write_fails(file)) {
        errno = order[1] ? order[1] : EIO;
        return -1;
    }
    return real(file, from, size);
}

#define SYNC(name) \
    int name(int file) \
    { \
        REAL(name); \
        if (sync_fails(file)) { \
            errno = EIO; \
            return -1; \
        } \
        return real(file); \
    }

SYNC(fsync)
SYNC(fdatasync)
