/* One call, whatever it computes: upload, record, submit, wait, read back, or all of it on the
   processor. Which of the two a context does is decided here and nowhere else. */
#ifndef HZB_CORE_JOB_H
#define HZB_CORE_JOB_H

#include "core/blocks.h"
#include "core/context.h"
#include "core/op.h"

struct hzb_job {
    const struct hzb_op *op;
    const void *request;
    void *plan; /* memory for one, which hzb_job_plan fills */
    const struct hzb_frames *frames;
    const struct hzb_output *outputs;
    struct hzb_block *block; /* that outputs with a buffer lie on; NULL: there are none */
};

/* Plan the job for a context's device, where it needs a plan. */
enum hzb_status hzb_job_plan(const struct hzb_context *context, const struct hzb_job *job,
                             struct hzb_error *err);

/* Whether memory for a planned job is there: upload, device and read-back bytes against the heaps,
   and what of it is the host's, `result_bytes` of the caller's arrays included, against what the
   process may still use. Allocates nothing. */
enum hzb_status hzb_job_check_memory(const struct hzb_context *context, const struct hzb_job *job,
                                     uint64_t result_bytes, struct hzb_error *err);

/* Take a block for results of a planned job; of memory that the device fills where that saves a
   copy. NULL where hzb_block_take has none. May take the context's lock, as
   hzb_job_run does. */
enum hzb_status hzb_job_take_block(struct hzb_context *context, const struct hzb_job *job,
                                   uint64_t bytes, const struct hzb_hooks *hooks,
                                   struct hzb_block **block, struct hzb_error *err);

/* Run a planned job on a Vulkan device whose context's lock is held. */
enum hzb_status hzb_job_run_locked(struct hzb_context *context, const struct hzb_job *job,
                                   const struct hzb_hooks *hooks, struct hzb_error *err);

/* Run a planned job, once the kernels of its plan have given a known answer; takes the context's
 * lock. The caller holds no interpreter lock. */
enum hzb_status hzb_job_run(struct hzb_context *context, const struct hzb_job *job,
                            const struct hzb_hooks *hooks, struct hzb_error *err);

#endif
