/* Recording, submitting and awaiting the commands of one submission. What is recorded is an
   operation's business. */
#ifndef HZB_VULKAN_COMMANDS_H
#define HZB_VULKAN_COMMANDS_H

#include "vulkan/memory.h"
#include "vulkan/pipeline.h"

struct hzb_commands {
    VkCommandBuffer kept, last; /* submitted in this order; `last` only where it was ever begun */
    VkCommandBuffer buffer;     /* the one of them that is recorded to */
    VkDescriptorPool descriptors;
    VkFence fence;
    VkQueryPool queries; /* two timestamps around the kernels, where the device has timestamps */
    bool submitted;      /* and not yet known to be done */
};

/* Begin recording, with room for `dispatches` (at least 1) of them. Zero `commands` first; destroy
   takes a zeroed or half-made one, but not a submitted one. */
enum hzb_status hzb_commands_begin(struct hzb_device *device, uint32_t dispatches,
                                   struct hzb_commands *commands, struct hzb_error *err);
enum hzb_status hzb_commands_end(struct hzb_device *device, struct hzb_commands *commands,
                                 struct hzb_error *err);
/* Begin to record, after the end of what is kept, what comes last in the next submission and is
   good for that one alone. Not while submitted. */
enum hzb_status hzb_commands_begin_last(struct hzb_device *device, struct hzb_commands *commands,
                                        struct hzb_error *err);
void hzb_commands_destroy(struct hzb_device *device, struct hzb_commands *commands);

struct hzb_range {
    const struct hzb_buffer *buffer;
    uint64_t offset, size; /* offset: a multiple of 256 */
};

/* Record one dispatch; `ranges` has one entry per buffer binding of the kernel. */
enum hzb_status hzb_commands_dispatch(struct hzb_device *device, struct hzb_commands *commands,
                                      const struct hzb_pipeline *pipeline,
                                      const struct hzb_range *ranges, uint32_t range_count,
                                      const struct hzb_image *image, const void *push,
                                      uint32_t push_bytes, const uint32_t groups[3],
                                      struct hzb_error *err);

void hzb_commands_copy(struct hzb_device *device, struct hzb_commands *commands,
                       const struct hzb_range *source, const struct hzb_buffer *target,
                       uint64_t target_offset);
void hzb_commands_zero(struct hzb_device *device, struct hzb_commands *commands,
                       const struct hzb_buffer *buffer);
/* Layer after layer, `pitch` texels from row to row; takes the image from any state to one that
 * kernels can sample. */
void hzb_commands_copy_to_image(struct hzb_device *device, struct hzb_commands *commands,
                                const struct hzb_buffer *source, uint32_t pitch,
                                const struct hzb_image *image);

/* What must be seen by what comes next. */
enum hzb_barrier {
    HZB_BARRIER_COPY_TO_KERNEL,
    HZB_BARRIER_KERNEL_TO_KERNEL,
    HZB_BARRIER_KERNEL_TO_COPY,
    HZB_BARRIER_KERNEL_TO_HOST,
    HZB_BARRIER_COPY_TO_HOST,
};
void hzb_commands_barrier(struct hzb_device *device, struct hzb_commands *commands,
                          enum hzb_barrier barrier);

/* Write timestamp 0 (before the kernels) or 1 (after them); nothing where there are none. */
void hzb_commands_timestamp(struct hzb_device *device, struct hzb_commands *commands,
                            uint32_t which);
/* Nanoseconds between the two, of a submission that is done; negative where there are none. */
double hzb_commands_elapsed(struct hzb_device *device, const struct hzb_commands *commands);

/* What is kept may be submitted again once it is done. */
enum hzb_status hzb_commands_submit(struct hzb_device *device, struct hzb_commands *commands,
                                    struct hzb_error *err);
/* Wait at most this long for a submitted one; `*done` says whether it is. */
enum hzb_status hzb_commands_wait(struct hzb_device *device, struct hzb_commands *commands,
                                  uint64_t nanoseconds, bool *done, struct hzb_error *err);

#endif
