// Naps where threads meet: loaded before a test's own libraries, it lets the order in which its threads run vary.
//
// A thread may begin up to 20 ms late, and one that waits for another or wakes one may first sleep for up to 3 ms.
// What a test takes for granted of that order then shows in tens of runs, not in one of thousands: `make shake`.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static uint64_t draw(void) {
    static __thread uint64_t state;
    if (state == 0) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        state = ((uint64_t)now.tv_nsec ^ (uint64_t)(uintptr_t)&state) | 1;
    }
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

// Sleeps once in so many times. What the call before it has said of an error stays.
static void nap(unsigned one_in, unsigned max_us) {
    if (draw() % one_in != 0) {
        return;
    }
    int error = errno;
    struct timespec time = {.tv_sec = 0, .tv_nsec = (long)(draw() % max_us) * 1000};
    nanosleep(&time, NULL);
    errno = error;
}

// Rust's standard library and parking_lot wait and wake by this call.
long syscall(long number, ...) {
    static long (*next)(long, ...);
    if (next == NULL) {
        next = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    }
    va_list arguments;
    long of[6];
    va_start(arguments, number);
    for (int at = 0; at < 6; at++) {
        of[at] = va_arg(arguments, long);
    }
    va_end(arguments);
    if (number == SYS_futex) {
        nap(6, 3000);
    }
    long result = next(number, of[0], of[1], of[2], of[3], of[4], of[5]);
    if (number == SYS_futex) {
        nap(6, 3000);
    }
    return result;
}

struct beginning {
    void *(*run)(void *);
    void *argument;
};

static void *begin_late(void *argument) {
    struct beginning beginning = *(struct beginning *)argument;
    free(argument);
    nap(2, 20000);
    return beginning.run(beginning.argument);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument) {
    static int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    if (next == NULL) {
        next = (int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *))dlsym(
            RTLD_NEXT, "pthread_create");
    }
    struct beginning *beginning = malloc(sizeof *beginning);
    if (beginning == NULL) {
        return EAGAIN;
    }
    *beginning = (struct beginning){.run = run, .argument = argument};
    int result = next(thread, attributes, begin_late, beginning);
    if (result != 0) {
        free(beginning);
    }
    return result;
}
