/* Buffers and images by use. */
#ifndef HZB_VULKAN_MEMORY_H
#define HZB_VULKAN_MEMORY_H

#include "vulkan/device.h"

enum hzb_memory_use {
    HZB_MEMORY_UPLOAD,   /* host-visible, written by the host */
    HZB_MEMORY_READBACK, /* host-visible and, where there is one, host-cached; read by the host */
    HZB_MEMORY_DEVICE,   /* device-local */
    HZB_MEMORY_USES,
};

struct hzb_buffer {
    VkBuffer handle;
    VkDeviceMemory memory;
    uint64_t size;
    void *mapped; /* for UPLOAD and READBACK */
    bool coherent;
};

/* All buffers are storage buffers and sources and targets of copies. Zero `buffer` first; destroy
   takes a zeroed or half-made one. */
enum hzb_status hzb_buffer_create(struct hzb_device *device, enum hzb_memory_use use, uint64_t size,
                                  struct hzb_buffer *buffer, struct hzb_error *err);
void hzb_buffer_destroy(struct hzb_device *device, struct hzb_buffer *buffer);
/* Make host writes visible to the device, or device writes to the host, where not coherent. */
enum hzb_status hzb_buffer_flush(struct hzb_device *device, struct hzb_buffer *buffer,
                                 struct hzb_error *err);
enum hzb_status hzb_buffer_invalidate(struct hzb_device *device, struct hzb_buffer *buffer,
                                      struct hzb_error *err);

/* A sampled R32_UINT 2-D array image, written by copies, with its view and a nearest-filter,
   clamp-to-edge sampler. */
struct hzb_image {
    VkImage handle;
    VkDeviceMemory memory;
    VkImageView view;
    VkSampler sampler;
    uint32_t width, height, layers;
};

enum hzb_status hzb_image_create(struct hzb_device *device, uint32_t width, uint32_t height,
                                 uint32_t layers, struct hzb_image *image, struct hzb_error *err);
void hzb_image_destroy(struct hzb_device *device, struct hzb_image *image);

/* The heap that memory of this use comes from. */
uint32_t hzb_memory_heap(const struct hzb_device *device, enum hzb_memory_use use);

#endif
