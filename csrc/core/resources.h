/* Making and freeing the memory and command buffer of one submission. */
#ifndef HZB_CORE_RESOURCES_H
#define HZB_CORE_RESOURCES_H

#include "core/op.h"

enum hzb_residence {
    HZB_HOST_TO_HOST, /* frames come from the host and results go back to it */
    HZB_ON_DEVICE, /* `upload` is device memory and nothing is read back, for measuring kernels */
};

/* Make what one submission needs and begin recording. Zero `resources` first; destroy takes a
   zeroed or half-made one whose submission is done. */
enum hzb_status hzb_resources_create(struct hzb_device *device, const struct hzb_needs *needs,
                                     enum hzb_residence residence, struct hzb_resources *resources,
                                     struct hzb_error *err);
/* Have a submission keep the block that it writes to, or, with NULL, nothing any more. */
void hzb_resources_hold(struct hzb_resources *resources, struct hzb_block *block);
void hzb_resources_destroy(struct hzb_device *device, struct hzb_resources *resources);

#endif
