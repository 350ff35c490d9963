/* The measured rules behind algorithm="auto", and nothing else: what a device cannot do is checked
   in ops/hzb/plan.c. */
#include "ops/hzb/choose.h"

#define ANY_DRIVER ((VkDriverId)0)

struct rule {
    bool unified;      /* for drivers on the processor, else for hardware */
    VkDriverId driver; /* or any */
    uint32_t least_frames;
    uint64_t most_texels; /* of all of them together */
    enum hzb_algorithm algorithm;
};

/* The first that holds is taken; the figures are in benchmarks/records. */
static const struct rule rules[] = {
    /* On the processor the simplest kernel is the fastest (2026-11-30-cpu-drivers), but where
       llvmpipe takes longer to begin a dispatch than to run it. */
    {true, VK_DRIVER_ID_MESA_LLVMPIPE, 0, 300 * 300, HZB_ALGORITHM_BATCHED},
    {true, ANY_DRIVER, 0, UINT64_MAX, HZB_ALGORITHM_PER_LEVEL},
    /* Workgroups that wait for their count cost a batch more than a second dispatch
       (2026-11-30-h200-kernels). Only NVIDIA's driver is measured. */
    {false, ANY_DRIVER, 16, UINT64_MAX, HZB_ALGORITHM_TWO_PASS},
    {false, ANY_DRIVER, 0, UINT64_MAX, HZB_ALGORITHM_SINGLE_PASS},
};

int hzb_choose_algorithm(const struct hzb_plan *plan, uint32_t frames,
                         const struct hzb_limits *limits)
{
    if (plan->options.rounding == HZB_ROUNDING_UNREAL)
        return HZB_ALGORITHM_BATCHED; /* it is what defines that rounding */
    uint64_t texels = (uint64_t)plan->width * plan->height * frames;
    for (const struct rule *rule = rules;; rule++)
        if (rule->unified == limits->unified &&
            (rule->driver == ANY_DRIVER || rule->driver == limits->driver) &&
            frames >= rule->least_frames && texels <= rule->most_texels)
            return rule->algorithm;
}
