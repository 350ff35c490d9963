/* The commands of one submission: their recording, submission and end. What is not recorded here is
   not used. */
#include "vulkan/commands.h"

#include <time.h>

/* A small build is done in less time than it takes to be woken from a wait. */
#define SPIN_NS 50000

static enum hzb_status begin_buffer(struct hzb_device *device, struct hzb_commands *commands,
                                    VkCommandBuffer *buffer, VkCommandBufferUsageFlags usage,
                                    struct hzb_error *err)
{
    const VkCommandBufferAllocateInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
        .commandPool = device->command_pool,
        .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
        .commandBufferCount = 1,
    };
    const VkCommandBufferBeginInfo begin = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
        .flags = usage,
    };
    if (!*buffer)
        VK_CREATE(*buffer, device->vk.vkAllocateCommandBuffers, device->handle, &info);
    VK(device->vk.vkBeginCommandBuffer, *buffer, &begin);
    commands->buffer = *buffer;
    return HZB_OK;

fail:
    return err->status;
}

enum hzb_status hzb_commands_begin(struct hzb_device *device, uint32_t dispatches,
                                   struct hzb_commands *commands, struct hzb_error *err)
{
    const VkDescriptorPoolSize sizes[] = {
        {VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, dispatches * HZB_MAX_BUFFERS},
        {VK_DESCRIPTOR_TYPE_COMBINED_IMAGE_SAMPLER, dispatches},
    };
    const VkDescriptorPoolCreateInfo descriptors = {
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO,
        .maxSets = dispatches,
        .poolSizeCount = sizeof(sizes) / sizeof(*sizes),
        .pPoolSizes = sizes,
    };
    const VkFenceCreateInfo fence = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
    const VkQueryPoolCreateInfo queries = {
        .sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO,
        .queryType = VK_QUERY_TYPE_TIMESTAMP,
        .queryCount = 2,
    };
    VK_CREATE(commands->descriptors, device->vk.vkCreateDescriptorPool, device->handle,
              &descriptors, NULL);
    VK_CREATE(commands->fence, device->vk.vkCreateFence, device->handle, &fence, NULL);
    if (device->limits.timestamps)
        VK_CREATE(commands->queries, device->vk.vkCreateQueryPool, device->handle, &queries, NULL);
    if (begin_buffer(device, commands, &commands->kept, 0, err))
        goto fail;
    if (commands->queries)
        device->vk.vkCmdResetQueryPool(commands->buffer, commands->queries, 0, 2);
    return HZB_OK;

fail:
    hzb_commands_destroy(device, commands);
    return err->status;
}

enum hzb_status hzb_commands_end(struct hzb_device *device, struct hzb_commands *commands,
                                 struct hzb_error *err)
{
    VK(device->vk.vkEndCommandBuffer, commands->buffer);
    return HZB_OK;

fail:
    return err->status;
}

enum hzb_status hzb_commands_begin_last(struct hzb_device *device, struct hzb_commands *commands,
                                        struct hzb_error *err)
{
    return begin_buffer(device, commands, &commands->last,
                        VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT, err);
}

static void free_buffer(struct hzb_device *device, VkCommandBuffer buffer)
{
    if (buffer) {
        device->vk.vkFreeCommandBuffers(device->handle, device->command_pool, 1, &buffer);
        hzb_vulkan_count(-1);
    }
}

void hzb_commands_destroy(struct hzb_device *device, struct hzb_commands *commands)
{
    free_buffer(device, commands->kept);
    free_buffer(device, commands->last);
    VK_DESTROY(device->vk.vkDestroyQueryPool, device->handle, commands->queries);
    VK_DESTROY(device->vk.vkDestroyFence, device->handle, commands->fence);
    VK_DESTROY(device->vk.vkDestroyDescriptorPool, device->handle, commands->descriptors);
    *commands = (struct hzb_commands){0};
}

enum hzb_status hzb_commands_dispatch(struct hzb_device *device, struct hzb_commands *commands,
                                      const struct hzb_pipeline *pipeline,
                                      const struct hzb_range *ranges, uint32_t range_count,
                                      const struct hzb_image *image, const void *push,
                                      uint32_t push_bytes, const uint32_t groups[3],
                                      struct hzb_error *err)
{
    const VkDescriptorSetAllocateInfo info = {
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO,
        .descriptorPool = commands->descriptors,
        .descriptorSetCount = 1,
        .pSetLayouts = &pipeline->set_layout,
    };
    VkDescriptorSet set;
    VK(device->vk.vkAllocateDescriptorSets, device->handle, &info, &set);

    VkDescriptorBufferInfo buffers[HZB_MAX_BUFFERS];
    VkDescriptorImageInfo sampled;
    VkWriteDescriptorSet writes[HZB_MAX_BUFFERS + 1];
    for (uint32_t i = 0; i < range_count; i++) {
        buffers[i] = (VkDescriptorBufferInfo){
            .buffer = ranges[i].buffer->handle,
            .offset = ranges[i].offset,
            .range = ranges[i].size,
        };
        writes[i] = (VkWriteDescriptorSet){
            .sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
            .dstSet = set,
            .dstBinding = i,
            .descriptorCount = 1,
            .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
            .pBufferInfo = &buffers[i],
        };
    }
    if (image) {
        sampled = (VkDescriptorImageInfo){
            .sampler = image->sampler,
            .imageView = image->view,
            .imageLayout = VK_IMAGE_LAYOUT_SHADER_READ_ONLY_OPTIMAL,
        };
        writes[range_count] = (VkWriteDescriptorSet){
            .sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
            .dstSet = set,
            .dstBinding = range_count,
            .descriptorCount = 1,
            .descriptorType = VK_DESCRIPTOR_TYPE_COMBINED_IMAGE_SAMPLER,
            .pImageInfo = &sampled,
        };
    }
    device->vk.vkUpdateDescriptorSets(device->handle, range_count + !!image, writes, 0, NULL);

    device->vk.vkCmdBindPipeline(commands->buffer, VK_PIPELINE_BIND_POINT_COMPUTE,
                                 pipeline->handle);
    device->vk.vkCmdBindDescriptorSets(commands->buffer, VK_PIPELINE_BIND_POINT_COMPUTE,
                                       pipeline->layout, 0, 1, &set, 0, NULL);
    device->vk.vkCmdPushConstants(commands->buffer, pipeline->layout, VK_SHADER_STAGE_COMPUTE_BIT,
                                  0, push_bytes, push);
    device->vk.vkCmdDispatch(commands->buffer, groups[0], groups[1], groups[2]);
    return HZB_OK;

fail:
    return err->status;
}

void hzb_commands_copy(struct hzb_device *device, struct hzb_commands *commands,
                       const struct hzb_range *source, const struct hzb_buffer *target,
                       uint64_t target_offset)
{
    const VkBufferCopy region = {
        .srcOffset = source->offset,
        .dstOffset = target_offset,
        .size = source->size,
    };
    device->vk.vkCmdCopyBuffer(commands->buffer, source->buffer->handle, target->handle, 1,
                               &region);
}

/* Who touches memory on one side of a barrier, and how. */
struct side {
    VkPipelineStageFlags stages;
    VkAccessFlags accesses;
};

static const struct side copy_reads = {VK_PIPELINE_STAGE_TRANSFER_BIT, VK_ACCESS_TRANSFER_READ_BIT};
static const struct side copy_writes = {VK_PIPELINE_STAGE_TRANSFER_BIT,
                                        VK_ACCESS_TRANSFER_WRITE_BIT};
static const struct side kernel_reads = {VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
                                         VK_ACCESS_SHADER_READ_BIT};
static const struct side kernel_writes = {VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
                                          VK_ACCESS_SHADER_WRITE_BIT};
static const struct side kernel_uses = {VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
                                        VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT};
static const struct side host_reads = {VK_PIPELINE_STAGE_HOST_BIT, VK_ACCESS_HOST_READ_BIT};

static void move_image(struct hzb_device *device, struct hzb_commands *commands,
                       const struct hzb_image *image, const struct side *before,
                       const struct side *after, VkImageLayout from, VkImageLayout to)
{
    const VkImageMemoryBarrier barrier = {
        .sType = VK_STRUCTURE_TYPE_IMAGE_MEMORY_BARRIER,
        .srcAccessMask = before->accesses,
        .dstAccessMask = after->accesses,
        .oldLayout = from,
        .newLayout = to,
        .srcQueueFamilyIndex = VK_QUEUE_FAMILY_IGNORED,
        .dstQueueFamilyIndex = VK_QUEUE_FAMILY_IGNORED,
        .image = image->handle,
        .subresourceRange = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 1, 0, image->layers},
    };
    device->vk.vkCmdPipelineBarrier(commands->buffer, before->stages, after->stages, 0, 0, NULL, 0,
                                    NULL, 1, &barrier);
}

void hzb_commands_zero(struct hzb_device *device, struct hzb_commands *commands,
                       const struct hzb_buffer *buffer)
{
    device->vk.vkCmdFillBuffer(commands->buffer, buffer->handle, 0, VK_WHOLE_SIZE, 0);
}

void hzb_commands_copy_to_image(struct hzb_device *device, struct hzb_commands *commands,
                                const struct hzb_buffer *source, uint32_t pitch,
                                const struct hzb_image *image)
{
    /* Kernels recorded earlier may still be sampling the image: they are waited for, and as they
       wrote nothing there is nothing to be made available. */
    const struct side sampling = {VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, 0};
    const VkBufferImageCopy region = {
        .bufferRowLength = pitch,
        .imageSubresource = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 0, image->layers},
        .imageExtent = {image->width, image->height, 1},
    };
    move_image(device, commands, image, &sampling, &copy_writes, VK_IMAGE_LAYOUT_UNDEFINED,
               VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL);
    device->vk.vkCmdCopyBufferToImage(commands->buffer, source->handle, image->handle,
                                      VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL, 1, &region);
    move_image(device, commands, image, &copy_writes, &kernel_reads,
               VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL, VK_IMAGE_LAYOUT_SHADER_READ_ONLY_OPTIMAL);
}

void hzb_commands_barrier(struct hzb_device *device, struct hzb_commands *commands,
                          enum hzb_barrier barrier)
{
    static const struct {
        const struct side *before, *after;
    } sides[] = {
        [HZB_BARRIER_COPY_TO_KERNEL] = {&copy_writes, &kernel_uses},
        [HZB_BARRIER_KERNEL_TO_KERNEL] = {&kernel_writes, &kernel_uses},
        [HZB_BARRIER_KERNEL_TO_COPY] = {&kernel_writes, &copy_reads},
        [HZB_BARRIER_KERNEL_TO_HOST] = {&kernel_writes, &host_reads},
        [HZB_BARRIER_COPY_TO_HOST] = {&copy_writes, &host_reads},
    };
    const struct side *before = sides[barrier].before, *after = sides[barrier].after;
    const VkMemoryBarrier memory = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
        .srcAccessMask = before->accesses,
        .dstAccessMask = after->accesses,
    };
    device->vk.vkCmdPipelineBarrier(commands->buffer, before->stages, after->stages, 0, 1, &memory,
                                    0, NULL, 0, NULL);
}

void hzb_commands_timestamp(struct hzb_device *device, struct hzb_commands *commands,
                            uint32_t which)
{
    if (commands->queries) {
        /* Written when all before it is done, so that uploads do not count as kernels. */
        device->vk.vkCmdWriteTimestamp(commands->buffer, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT,
                                       commands->queries, which);
    }
}

double hzb_commands_elapsed(struct hzb_device *device, const struct hzb_commands *commands)
{
    struct hzb_error ignored, *err = &ignored;
    VkResult result;
    uint64_t ticks[2];
    if (!commands->queries)
        return -1;
    VK_RESULT(result, device->vk.vkGetQueryPoolResults, device->handle, commands->queries, 0, 2,
              sizeof(ticks), ticks, sizeof(*ticks), VK_QUERY_RESULT_64_BIT);
    if (result == VK_SUCCESS)
        return ((ticks[1] - ticks[0]) & device->timestamp_mask) * device->limits.timestamp_ns;
fail:
    return -1;
}

enum hzb_status hzb_commands_submit(struct hzb_device *device, struct hzb_commands *commands,
                                    struct hzb_error *err)
{
    const VkCommandBuffer buffers[] = {commands->kept, commands->last};
    const VkSubmitInfo info = {
        .sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
        .commandBufferCount = 1 + !!commands->last,
        .pCommandBuffers = buffers,
    };
    VK(device->vk.vkResetFences, device->handle, 1, &commands->fence);
    VK(device->vk.vkQueueSubmit, device->queue, 1, &info, commands->fence);
    commands->submitted = true;
    return HZB_OK;

fail:
    return err->status;
}

static uint64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * UINT64_C(1000000000) + time.tv_nsec;
}

enum hzb_status hzb_commands_wait(struct hzb_device *device, struct hzb_commands *commands,
                                  uint64_t nanoseconds, bool *done, struct hzb_error *err)
{
    VkResult result = commands->submitted ? VK_NOT_READY : VK_SUCCESS;
    /* A software driver needs this processor for the work itself. */
    if (device->info.kind != HZB_KIND_SOFTWARE) {
        uint64_t end = now_ns() + (nanoseconds < SPIN_NS ? nanoseconds : SPIN_NS);
        while (result == VK_NOT_READY && now_ns() < end)
            VK_RESULT(result, device->vk.vkGetFenceStatus, device->handle, commands->fence);
    }
    if (result != VK_SUCCESS) {
        VK_RESULT(result, device->vk.vkWaitForFences, device->handle, 1, &commands->fence, VK_TRUE,
                  nanoseconds);
    }
    commands->submitted = result != VK_SUCCESS;
    *done = !commands->submitted;
    return HZB_OK;

fail:
    *done = false;
    return err->status;
}
