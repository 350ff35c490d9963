/* The measured rules behind algorithm="auto", and nothing else: what a device cannot do is checked
   in ops/hzb/plan.c. */
#include "ops/hzb/choose.h"

struct rule {
    bool unified;       /* for drivers on the processor, else for hardware */
    int64_t frames;     /* at least */
    int32_t algorithm;  /* enum hzb_algorithm */
};

/* The first that holds. Sources: benchmarks/records. */
static const struct rule rules[] = {
    /* lavapipe and SwiftShader run whatever is simplest fastest (cpu-drivers). */
    {true, 0, HZB_ALGORITHM_PER_LEVEL},
    /* The second dispatch of two is less than what workgroups wait for their count (h200-tiles). */
    {false, 16, HZB_ALGORITHM_TWO_PASS},
    {false, 0, HZB_ALGORITHM_SINGLE_PASS},
};

int hzb_choose_algorithm(const struct hzb_plan *plan, int64_t frames,
                         const struct hzb_limits *limits)
{
    if (plan->options.rounding == HZB_ROUNDING_UNREAL)
        return HZB_ALGORITHM_BATCHED; /* it is what defines that rounding */
    const struct rule *rule = rules;
    while (rule->unified != limits->unified || frames < rule->frames)
        rule++;
    return rule->algorithm;
}
