/* The whole operation on the host processor, without Vulkan: the same bits. */
#ifndef HZB_OPS_HZB_CPU_H
#define HZB_OPS_HZB_CPU_H

#include "base/hooks.h"
#include "core/frames.h"
#include "ops/hzb/options.h"

/* Build the levels of all frames; the outputs are the levels of chain 0, then those of chain 1.
   Allocates nothing. When interrupted, what the outputs hold is undefined. */
enum hzb_status hzb_cpu_build(const struct hzb_request *request, const struct hzb_frames *frames,
                              const struct hzb_output *outputs, const struct hzb_hooks *hooks,
                              struct hzb_error *err);

#endif
