/* Whether a context's driver gets an operation's kernels right. */
#ifndef HZB_CORE_TRUST_H
#define HZB_CORE_TRUST_H

#include "core/job.h"

/* Run the known case of a planned job, unless that has been done, and compare with what the
   processor makes of it. If it is wrong, the context distrusts the kernel from then on, and the job
   is planned anew without it. */
enum hzb_status hzb_trust_locked(struct hzb_context *context, const struct hzb_job *job,
                                 const struct hzb_hooks *hooks, struct hzb_error *err);

#endif
