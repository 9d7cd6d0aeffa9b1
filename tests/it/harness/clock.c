/* Preloaded into the daemon: shifts its wall clock by the number of seconds in /etc/infill/clock. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t id, struct timespec *at)
{
    static int (*real)(clockid_t, struct timespec *);
    char text[32];
    int failed, file;
    ssize_t length;

    if (!real)
        real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    failed = real(id, at);
    if (failed || id != CLOCK_REALTIME)
        return failed;
    file = open("/etc/infill/clock", O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return 0;
    length = read(file, text, sizeof text - 1);
    close(file);
    if (length > 0) {
        text[length] = 0;
        at->tv_sec += atol(text);
    }
    return 0;
}
