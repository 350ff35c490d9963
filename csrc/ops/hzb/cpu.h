/* The whole operation on the host processor, without Vulkan: the same bits. */
#ifndef HZB_OPS_HZB_CPU_H
#define HZB_OPS_HZB_CPU_H

#include "core/context.h"
#include "core/op.h"
#include "ops/hzb/cpu_kernels.h"
#include "ops/hzb/options.h"

/* The kernels for this processor: the best, or those that HZB_CPU names (baseline, avx2, avx512). A
   name that is unknown, or beyond this processor, is HZB_VALUE_ERROR and lists what there is. */
enum hzb_status hzb_cpu_choose(const struct hzb_cpu_kernels **kernels, struct hzb_error *err);

/* Build the levels of all frames; options and extent have been checked, and the outputs are the
   levels of chain 0, then those of chain 1. Allocates nothing. When interrupted, what the outputs
   hold is undefined. */
enum hzb_status hzb_cpu_build(const struct hzb_options *options, const struct hzb_extent *extent,
                              const struct hzb_frames *frames, const struct hzb_output *outputs,
                              const struct hzb_hooks *hooks, struct hzb_error *err);

#endif
