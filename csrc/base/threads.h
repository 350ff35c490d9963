/* A lock that knows its owner and can be awaited in slices, and forks. The pool of worker threads
   is base/workers.h. */
#ifndef HZB_BASE_THREADS_H
#define HZB_BASE_THREADS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

struct hzb_lock {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool held;
    pthread_t owner;
};

/* False when the system has no resources for a lock. */
bool hzb_lock_init(struct hzb_lock *lock);
void hzb_lock_destroy(struct hzb_lock *lock);

enum hzb_lock_result { HZB_LOCK_TAKEN, HZB_LOCK_TIMEOUT, HZB_LOCK_OWN };
/* Wait at most `milliseconds`; HZB_LOCK_OWN at once when the calling thread holds it already. */
enum hzb_lock_result hzb_lock_take(struct hzb_lock *lock, int milliseconds);
void hzb_lock_drop(struct hzb_lock *lock);

/* A plain lock in static storage, for what a process has one of: `= HZB_MUTEX_INIT`. */
struct hzb_mutex {
    pthread_mutex_t mutex;
};
#define HZB_MUTEX_INIT {PTHREAD_MUTEX_INITIALIZER}

void hzb_mutex_take(struct hzb_mutex *mutex);
void hzb_mutex_drop(struct hzb_mutex *mutex);

/* Have handlers called at every fork from now on: before it, and after it in either process before
   anything else there. NULL: none. */
bool hzb_at_fork(void (*before)(void), void (*in_parent)(void), void (*in_child)(void));
bool hzb_at_fork_in_child(void (*handler)(void));

/* Once a process, before anything that has to know a fork when it sees one; false when the system
   has no resources for it. */
bool hzb_process_setup(void);

/* The number of this process. Asking the system takes its time in some containers. */
pid_t hzb_process(void);

/* From now on a forked child of this process ends by exit() without the exit functions that are
   registered by now, where the C library tells them the status (glibc); once is enough. For
   libraries whose own do not stand a fork. */
void hzb_spare_children_exit_functions(void);

#endif
