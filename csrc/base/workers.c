/* A pool that one loop at a time owns. Its threads sleep between loops; they are started when a
   loop first wants them, and again in a forked child, where only the thread that forked lives on.
 */
#include "base/workers.h"

#include "base/fault.h"
#include "base/system.h"
#include "base/threads.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_THREADS = 256,
    /* Looks at a flag before going to sleep: some ten microseconds, less than sleeping and being
       woken costs. */
    SPINS = 500,
};

struct loop {
    hzb_task *task;
    void *data;
    int64_t count;
};

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t wake, left;
    pid_t pid; /* whose threads these are */
    pthread_t threads[MAX_THREADS];
    int started;

    /* Under the mutex, as is every change of the two atomics after it. */
    struct loop loop;
    int wanted; /* threads that may still join the loop */
    bool ending;
    atomic_uint loops;    /* counts the loops, for sleepers to see that there is one */
    atomic_int at_work;   /* threads that have joined and not left */
    _Atomic int64_t next; /* turn */
} pool;

/* The process whose loop owns the pool; 0: none. That of a parent does not count. */
static _Atomic pid_t owner;

static bool own(pid_t self)
{
    pid_t other = atomic_load(&owner);
    return other != self && atomic_compare_exchange_strong(&owner, &other, self);
}

static void disown(void) { atomic_store(&owner, 0); }

static inline void relax(void)
{
#ifdef __x86_64__
    __builtin_ia32_pause();
#endif
}

static void take_turns(const struct loop *loop)
{
    for (int64_t i; (i = atomic_fetch_add(&pool.next, 1)) < loop->count;)
        loop->task(loop->data, i);
}

static void *work(void *unused)
{
    (void)unused;
    unsigned seen = 0;
    for (;;) {
        for (int i = 0; i < SPINS && atomic_load(&pool.loops) == seen; i++)
            relax();
        pthread_mutex_lock(&pool.mutex);
        while (atomic_load(&pool.loops) == seen && !pool.ending)
            pthread_cond_wait(&pool.wake, &pool.mutex);
        if (pool.ending) {
            pthread_mutex_unlock(&pool.mutex);
            return NULL;
        }
        seen = atomic_load(&pool.loops);
        bool joins = pool.wanted > 0;
        struct loop loop = pool.loop;
        if (joins) {
            pool.wanted--;
            atomic_fetch_add(&pool.at_work, 1);
        }
        pthread_mutex_unlock(&pool.mutex);
        if (joins) {
            take_turns(&loop);
            pthread_mutex_lock(&pool.mutex);
            if (atomic_fetch_sub(&pool.at_work, 1) == 1)
                pthread_cond_signal(&pool.left);
            pthread_mutex_unlock(&pool.mutex);
        }
    }
}

static bool start_thread(pthread_t *thread)
{
    /* Signals are for the threads of the application. */
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    bool started = !hzb_fault_due(HZB_FAULT_THREAD) && !pthread_create(thread, NULL, work, NULL);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return started;
}

/* What is left of a parent's pool is forgotten: its mutex may be held by a thread that is no more.
 */
static void make_mine(pid_t self)
{
    if (pool.pid != self) {
        memset(&pool, 0, sizeof(pool));
        pthread_mutex_init(&pool.mutex, NULL);
        pthread_cond_init(&pool.wake, NULL);
        pthread_cond_init(&pool.left, NULL);
        pool.pid = self;
    }
}

static void run_in_pool(const struct loop *loop, int helpers)
{
    while (pool.started < helpers && start_thread(&pool.threads[pool.started]))
        pool.started++;
    pthread_mutex_lock(&pool.mutex);
    pool.loop = *loop;
    pool.wanted = helpers;
    atomic_store(&pool.next, 0);
    atomic_fetch_add(&pool.loops, 1);
    pthread_cond_broadcast(&pool.wake);
    pthread_mutex_unlock(&pool.mutex);

    take_turns(loop);

    for (int i = 0; i < SPINS && atomic_load(&pool.at_work); i++)
        relax();
    pthread_mutex_lock(&pool.mutex);
    pool.wanted = 0;
    while (atomic_load(&pool.at_work))
        pthread_cond_wait(&pool.left, &pool.mutex);
    pthread_mutex_unlock(&pool.mutex);
}

void hzb_workers_run(hzb_task *task, void *data, int64_t count, int threads)
{
    int helpers = threads < MAX_THREADS ? threads - 1 : MAX_THREADS - 1;
    if (count <= helpers)
        helpers = (int)count - 1;
    pid_t self = hzb_process();
    if (helpers > 0 && own(self)) {
        make_mine(self);
        run_in_pool(&(struct loop){task, data, count}, helpers);
        disown();
        return;
    }
    for (int64_t i = 0; i < count; i++)
        task(data, i);
}

void hzb_workers_shutdown(void)
{
    pid_t self = hzb_process();
    if (!own(self))
        return;
    make_mine(self);
    pthread_mutex_lock(&pool.mutex);
    pool.ending = true;
    pthread_cond_broadcast(&pool.wake);
    pthread_mutex_unlock(&pool.mutex);
    for (; pool.started; pool.started--)
        pthread_join(pool.threads[pool.started - 1], NULL);
    pool.ending = false;
    disown();
}

enum hzb_status hzb_workers_count(int *threads, struct hzb_error *err)
{
    const char *text = getenv("HZB_NUM_THREADS");
    if (text && *text) {
        char *end;
        errno = 0;
        long number = strtol(text, &end, 10);
        if (errno || *end || number < 1) {
            return hzb_fail(err, HZB_VALUE_ERROR,
                            "HZB_NUM_THREADS: '%.100s' is not a number of threads; set it to 1 or "
                            "more, or unset it to use every processor the process may use",
                            text);
        }
        *threads = number < MAX_THREADS ? (int)number : MAX_THREADS;
        return HZB_OK;
    }
    static atomic_int usable;
    int cpus = atomic_load(&usable);
    if (!cpus) {
        cpus = hzb_usable_cpus();
        cpus = cpus < MAX_THREADS ? cpus : MAX_THREADS;
        atomic_store(&usable, cpus);
    }
    *threads = cpus;
    return HZB_OK;
}
