/* The one pool of threads of the process, for loops whose turns do not depend on each other. */
#ifndef HZB_BASE_WORKERS_H
#define HZB_BASE_WORKERS_H

#include "base/status.h"

#include <stdint.h>

/* Threads that a loop may use, the caller's included: HZB_NUM_THREADS or, where that is not set or
   empty, the processors that the process could use when it first asked. */
enum hzb_status hzb_workers_count(int *threads, struct hzb_error *err);

typedef void hzb_task(void *data, int64_t turn);

/* Call task(data, i) for every i in [0, count), in any order, on at most `threads` threads of which
   the caller's is one, and return when all is done. Threads that cannot be had are done without; so
   is the whole pool while another thread, or this one, is using it. Works in a forked child. */
void hzb_workers_run(hzb_task *task, void *data, int64_t count, int threads);

/* End the threads; a later loop starts new ones. Does nothing while a loop runs. */
void hzb_workers_shutdown(void);

#endif
