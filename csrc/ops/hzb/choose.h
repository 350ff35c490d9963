/* Which algorithm "auto" is. */
#ifndef HZB_OPS_HZB_CHOOSE_H
#define HZB_OPS_HZB_CHOOSE_H

#include "ops/hzb/plan.h"

/* The fastest for these levels and so many frames of a submission on such a device, which can
   reduce them by large tiles or not, as an enum hzb_algorithm. The plan needs its options, sides
   and levels. */
int hzb_choose_algorithm(const struct hzb_plan *plan, uint32_t frames, bool tiled,
                         const struct hzb_limits *limits);

#endif
