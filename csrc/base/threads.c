/* The lock: a flag under a mutex, so that waiting can end early and the owner is known. The pool of
   worker threads is in workers.c. */
#include "base/threads.h"

#include "base/fault.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

bool hzb_lock_init(struct hzb_lock *lock)
{
    lock->held = false;
    if (hzb_fault_due(HZB_FAULT_THREAD) || pthread_mutex_init(&lock->mutex, NULL))
        return false;
    /* Waits must not depend on somebody setting the wall clock. */
    pthread_condattr_t monotonic;
    if (!pthread_condattr_init(&monotonic)) {
        bool made = !pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC) &&
                    !pthread_cond_init(&lock->changed, &monotonic);
        pthread_condattr_destroy(&monotonic);
        if (made)
            return true;
    }
    pthread_mutex_destroy(&lock->mutex);
    return false;
}

void hzb_lock_destroy(struct hzb_lock *lock)
{
    pthread_cond_destroy(&lock->changed);
    pthread_mutex_destroy(&lock->mutex);
}

static struct timespec deadline_after(int milliseconds)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    time.tv_sec += milliseconds / 1000;
    time.tv_nsec += milliseconds % 1000 * 1000000L;
    if (time.tv_nsec >= 1000000000L) {
        time.tv_nsec -= 1000000000L;
        time.tv_sec++;
    }
    return time;
}

enum hzb_lock_result hzb_lock_take(struct hzb_lock *lock, int milliseconds)
{
    enum hzb_lock_result result = HZB_LOCK_TAKEN;
    pthread_mutex_lock(&lock->mutex);
    if (lock->held && pthread_equal(lock->owner, pthread_self())) {
        result = HZB_LOCK_OWN;
    } else if (lock->held) {
        struct timespec deadline = deadline_after(milliseconds);
        while (lock->held && result == HZB_LOCK_TAKEN)
            if (pthread_cond_timedwait(&lock->changed, &lock->mutex, &deadline))
                result = lock->held ? HZB_LOCK_TIMEOUT : HZB_LOCK_TAKEN;
    }
    if (result == HZB_LOCK_TAKEN) {
        lock->held = true;
        lock->owner = pthread_self();
    }
    pthread_mutex_unlock(&lock->mutex);
    return result;
}

void hzb_lock_drop(struct hzb_lock *lock)
{
    pthread_mutex_lock(&lock->mutex);
    lock->held = false;
    pthread_cond_signal(&lock->changed);
    pthread_mutex_unlock(&lock->mutex);
}

void hzb_mutex_take(struct hzb_mutex *mutex) { pthread_mutex_lock(&mutex->mutex); }

void hzb_mutex_drop(struct hzb_mutex *mutex) { pthread_mutex_unlock(&mutex->mutex); }

bool hzb_at_fork(void (*before)(void), void (*in_parent)(void), void (*in_child)(void))
{
    return !hzb_fault_due(HZB_FAULT_THREAD) && !pthread_atfork(before, in_parent, in_child);
}

bool hzb_at_fork_in_child(void (*handler)(void)) { return hzb_at_fork(NULL, NULL, handler); }

static _Atomic pid_t process; /* 0: not set up */

static void ask_system(void) { process = getpid(); }

bool hzb_process_setup(void)
{
    ask_system();
    return hzb_at_fork_in_child(ask_system);
}

pid_t hzb_process(void)
{
    pid_t known = process;
    return known ? known : getpid();
}

#ifdef __GLIBC__
static _Atomic pid_t spares_children; /* 0: nobody */

static void end_child(int status, void *unused)
{
    (void)unused;
    if (hzb_process() == spares_children)
        return;
    fflush(NULL);
    _exit(status);
}
#endif

void hzb_spare_children_exit_functions(void)
{
#ifdef __GLIBC__
    if (!atomic_exchange(&spares_children, hzb_process()))
        on_exit(end_child, NULL);
#endif
}
