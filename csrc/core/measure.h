/* GPU times of an operation's kernels, for benchmarks; results are not read back. */
#ifndef HZB_CORE_MEASURE_H
#define HZB_CORE_MEASURE_H

#include "core/job.h"

struct hzb_measure {
    uint32_t sets;    /* copies of frames and results that are used in turn, to outgrow caches */
    uint32_t repeats; /* figures wanted */
    uint64_t heat_ns; /* the same work before, so that the clocks are up */
    bool upload;      /* count the way from a device buffer to where kernels read, too */
};

/* Nanoseconds of each repeat in `times`. One submission's frames at most. The context's lock is
   held throughout; signals are not looked at. */
enum hzb_status hzb_measure_run(struct hzb_context *context, const struct hzb_job *job,
                                const struct hzb_measure *measure, double *times,
                                struct hzb_error *err);

#endif
