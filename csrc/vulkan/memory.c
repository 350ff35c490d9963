/* Buffers and images, and which of a device's memory types each use gets. */
#include "vulkan/memory.h"

enum {
    LOCAL = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT,
    VISIBLE = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT,
    COHERENT = VK_MEMORY_PROPERTY_HOST_COHERENT_BIT,
    CACHED = VK_MEMORY_PROPERTY_HOST_CACHED_BIT,
};

/* What a use wants of a memory type, the weightiest first; `unwanted` flags count when absent.
   Every device has a type that grants the first wish and suits all buffers. */
static const struct {
    VkMemoryPropertyFlags order[4], unwanted;
} wishes[] = {
    /* Cached memory is slower to write through, and the part of a graphics card's memory that the
       host sees may be small. */
    [HZB_MEMORY_UPLOAD] = {{VISIBLE, COHERENT, CACHED, LOCAL}, CACHED | LOCAL},
    /* The host reads uncached memory at a small part of the speed. */
    [HZB_MEMORY_READBACK] = {{VISIBLE, CACHED, COHERENT, LOCAL}, LOCAL},
    [HZB_MEMORY_DEVICE] = {{LOCAL, VISIBLE, CACHED, COHERENT}, VISIBLE | CACHED | COHERENT},
};

/* The best of the types in `allowed`; of equals the first, which drivers list as the faster. */
static uint32_t choose_type(const struct hzb_device *device, enum hzb_memory_use use,
                            uint32_t allowed)
{
    /* Types with any other flag (protected, lazily allocated, …) have rules of their own. */
    const VkMemoryPropertyFlags plain = LOCAL | VISIBLE | COHERENT | CACHED;
    uint32_t best = 0;
    int best_score = -1;
    for (uint32_t i = 0; i < device->memory.memoryTypeCount; i++) {
        VkMemoryPropertyFlags flags = device->memory.memoryTypes[i].propertyFlags;
        if (!(allowed >> i & 1) || flags & ~plain)
            continue;
        int score = 0;
        for (int wish = 0; wish < 4; wish++) {
            bool granted = (flags ^ wishes[use].unwanted) & wishes[use].order[wish];
            score = 2 * score + granted;
        }
        if (score > best_score) {
            best = i;
            best_score = score;
        }
    }
    return best;
}

uint32_t hzb_memory_heap(const struct hzb_device *device, enum hzb_memory_use use)
{
    return device->memory.memoryTypes[choose_type(device, use, UINT32_MAX)].heapIndex;
}

static enum hzb_status allocate(struct hzb_device *device, uint32_t type, uint64_t size,
                                VkDeviceMemory *memory, struct hzb_error *err)
{
    const VkMemoryAllocateInfo info = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
        .allocationSize = size,
        .memoryTypeIndex = type,
    };
    VK_CREATE(*memory, device->vk.vkAllocateMemory, device->handle, &info, NULL);
    return HZB_OK;

fail:
    return err->status;
}

enum hzb_status hzb_buffer_create(struct hzb_device *device, enum hzb_memory_use use, uint64_t size,
                                  struct hzb_buffer *buffer, struct hzb_error *err)
{
    const VkBufferCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
        .size = size,
        .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
                 VK_BUFFER_USAGE_TRANSFER_DST_BIT,
        .sharingMode = VK_SHARING_MODE_EXCLUSIVE,
    };
    VK_CREATE(buffer->handle, device->vk.vkCreateBuffer, device->handle, &info, NULL);
    buffer->size = size;

    VkMemoryRequirements needs;
    device->vk.vkGetBufferMemoryRequirements(device->handle, buffer->handle, &needs);
    uint32_t type = choose_type(device, use, needs.memoryTypeBits);
    buffer->coherent =
        device->memory.memoryTypes[type].propertyFlags & VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    if (allocate(device, type, needs.size, &buffer->memory, err))
        goto fail;
    VK(device->vk.vkBindBufferMemory, device->handle, buffer->handle, buffer->memory, 0);
    if (use != HZB_MEMORY_DEVICE) {
        VK(device->vk.vkMapMemory, device->handle, buffer->memory, 0, VK_WHOLE_SIZE, 0,
           &buffer->mapped);
    }
    return HZB_OK;

fail:
    hzb_buffer_destroy(device, buffer);
    return err->status;
}

void hzb_buffer_destroy(struct hzb_device *device, struct hzb_buffer *buffer)
{
    VK_DESTROY(device->vk.vkDestroyBuffer, device->handle, buffer->handle);
    VK_DESTROY(device->vk.vkFreeMemory, device->handle, buffer->memory);
    *buffer = (struct hzb_buffer){0};
}

static VkMappedMemoryRange whole(const struct hzb_buffer *buffer)
{
    return (VkMappedMemoryRange){
        .sType = VK_STRUCTURE_TYPE_MAPPED_MEMORY_RANGE,
        .memory = buffer->memory,
        .size = VK_WHOLE_SIZE,
    };
}

enum hzb_status hzb_buffer_flush(struct hzb_device *device, struct hzb_buffer *buffer,
                                 struct hzb_error *err)
{
    if (!buffer->coherent) {
        const VkMappedMemoryRange range = whole(buffer);
        VK(device->vk.vkFlushMappedMemoryRanges, device->handle, 1, &range);
    }
    return HZB_OK;

fail:
    return err->status;
}

enum hzb_status hzb_buffer_invalidate(struct hzb_device *device, struct hzb_buffer *buffer,
                                      struct hzb_error *err)
{
    if (!buffer->coherent) {
        const VkMappedMemoryRange range = whole(buffer);
        VK(device->vk.vkInvalidateMappedMemoryRanges, device->handle, 1, &range);
    }
    return HZB_OK;

fail:
    return err->status;
}

enum hzb_status hzb_image_create(struct hzb_device *device, uint32_t width, uint32_t height,
                                 uint32_t layers, struct hzb_image *image, struct hzb_error *err)
{
    const VkImageCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_IMAGE_CREATE_INFO,
        .imageType = VK_IMAGE_TYPE_2D,
        .format = VK_FORMAT_R32_UINT,
        .extent = {width, height, 1},
        .mipLevels = 1,
        .arrayLayers = layers,
        .samples = VK_SAMPLE_COUNT_1_BIT,
        .tiling = VK_IMAGE_TILING_OPTIMAL,
        .usage = VK_IMAGE_USAGE_SAMPLED_BIT | VK_IMAGE_USAGE_TRANSFER_DST_BIT,
        .sharingMode = VK_SHARING_MODE_EXCLUSIVE,
        .initialLayout = VK_IMAGE_LAYOUT_UNDEFINED,
    };
    const VkSamplerCreateInfo sampler = {
        .sType = VK_STRUCTURE_TYPE_SAMPLER_CREATE_INFO,
        .magFilter = VK_FILTER_NEAREST,
        .minFilter = VK_FILTER_NEAREST,
        .mipmapMode = VK_SAMPLER_MIPMAP_MODE_NEAREST,
        .addressModeU = VK_SAMPLER_ADDRESS_MODE_CLAMP_TO_EDGE,
        .addressModeV = VK_SAMPLER_ADDRESS_MODE_CLAMP_TO_EDGE,
        .addressModeW = VK_SAMPLER_ADDRESS_MODE_CLAMP_TO_EDGE,
    };
    VK_CREATE(image->handle, device->vk.vkCreateImage, device->handle, &info, NULL);
    image->width = width;
    image->height = height;
    image->layers = layers;

    VkMemoryRequirements needs;
    device->vk.vkGetImageMemoryRequirements(device->handle, image->handle, &needs);
    uint32_t type = choose_type(device, HZB_MEMORY_DEVICE, needs.memoryTypeBits);
    if (allocate(device, type, needs.size, &image->memory, err))
        goto fail;
    VK(device->vk.vkBindImageMemory, device->handle, image->handle, image->memory, 0);

    const VkImageViewCreateInfo view = {
        .sType = VK_STRUCTURE_TYPE_IMAGE_VIEW_CREATE_INFO,
        .image = image->handle,
        .viewType = VK_IMAGE_VIEW_TYPE_2D_ARRAY,
        .format = VK_FORMAT_R32_UINT,
        .subresourceRange = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 1, 0, layers},
    };
    VK_CREATE(image->view, device->vk.vkCreateImageView, device->handle, &view, NULL);
    VK_CREATE(image->sampler, device->vk.vkCreateSampler, device->handle, &sampler, NULL);
    return HZB_OK;

fail:
    hzb_image_destroy(device, image);
    return err->status;
}

void hzb_image_destroy(struct hzb_device *device, struct hzb_image *image)
{
    VK_DESTROY(device->vk.vkDestroySampler, device->handle, image->sampler);
    VK_DESTROY(device->vk.vkDestroyImageView, device->handle, image->view);
    VK_DESTROY(device->vk.vkDestroyImage, device->handle, image->handle);
    VK_DESTROY(device->vk.vkFreeMemory, device->handle, image->memory);
    *image = (struct hzb_image){0};
}
