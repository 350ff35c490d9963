/* The measured rules behind algorithm="auto", and nothing else: what a device cannot do is checked
   in ops/hzb/plan.c. */
#include "ops/hzb/choose.h"

/* When to take an algorithm; what is 0 or false does not matter. */
struct rule {
    bool unified;                       /* drivers on the processor */
    VkDriverId driver;                  /* one of them */
    bool untiled;                       /* chains that large tiles cannot reduce here */
    int chains;                         /* of these alone */
    uint64_t least_texels, most_texels; /* of all frames of a submission together */
    enum hzb_algorithm algorithm;
};

/* The first that holds is taken; the figures are in benchmarks/records. */
static const struct rule rules[] = {
    /* On the processor the simplest kernel is the fastest (2026-11-30-cpu-drivers), but where
       llvmpipe takes longer to begin a dispatch than to run it. */
    {.unified = true,
     .driver = VK_DRIVER_ID_MESA_LLVMPIPE,
     .most_texels = 300 * 300,
     .algorithm = HZB_ALGORITHM_BATCHED},
    {.unified = true, .algorithm = HZB_ALGORITHM_PER_LEVEL},
    /* Two chains of a large frame, somewhere between 8 and 33 million pixels, take longer by
       batches than level by level, most of all under "floor", which breaks batches up at odd sides
       (2026-11-30-h200-floor). Of hardware only NVIDIA's driver is measured. */
    {.untiled = true, .chains = 2, .least_texels = 16000000, .algorithm = HZB_ALGORITHM_PER_LEVEL},
    {.untiled = true, .algorithm = HZB_ALGORITHM_BATCHED},
    /* Waiting for counts takes less than a second dispatch, in batches too (2026-11-30-h200-kernels
       and -tiles). */
    {.algorithm = HZB_ALGORITHM_SINGLE_PASS},
};

static bool holds(const struct rule *rule, int chains, uint64_t texels, bool tiled,
                  const struct hzb_limits *limits)
{
    return (!rule->unified || limits->unified) &&
           (!rule->driver || rule->driver == limits->driver) && (!rule->untiled || !tiled) &&
           (!rule->chains || rule->chains == chains) && texels >= rule->least_texels &&
           (!rule->most_texels || texels <= rule->most_texels);
}

int hzb_choose_algorithm(const struct hzb_plan *plan, uint32_t frames, bool tiled,
                         const struct hzb_limits *limits)
{
    if (plan->options.rounding == HZB_ROUNDING_UNREAL)
        return HZB_ALGORITHM_BATCHED; /* it is what defines that rounding */
    uint64_t texels = (uint64_t)plan->width * plan->height * frames;
    const struct rule *rule = rules;
    while (!holds(rule, plan->chains, texels, tiled, limits))
        rule++; /* the last always holds */
    return rule->algorithm;
}
