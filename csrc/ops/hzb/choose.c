/* The measured rules behind algorithm="auto", and nothing else: what a device cannot do is checked
   in ops/hzb/plan.c. */
#include "ops/hzb/choose.h"

#define ANY_DRIVER ((VkDriverId)0)

struct rule {
    bool unified;         /* for drivers on the processor, else for hardware */
    VkDriverId driver;    /* or any */
    uint64_t most_texels; /* of all frames of a submission together */
    enum hzb_algorithm algorithm;
};

/* The first that holds is taken; the figures are in benchmarks/records. */
static const struct rule rules[] = {
    /* On the processor the simplest kernel is the fastest (2026-11-30-cpu-drivers), but where
       llvmpipe takes longer to begin a dispatch than to run it. */
    {true, VK_DRIVER_ID_MESA_LLVMPIPE, 300 * 300, HZB_ALGORITHM_BATCHED},
    {true, ANY_DRIVER, UINT64_MAX, HZB_ALGORITHM_PER_LEVEL},
    /* Waiting for counts takes less than a second dispatch, in batches too (2026-11-30-h200-kernels
       and -tiles). Only NVIDIA's driver is measured. */
    {false, ANY_DRIVER, UINT64_MAX, HZB_ALGORITHM_SINGLE_PASS},
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
            texels <= rule->most_texels)
            return rule->algorithm;
}
