/* Compute pipelines: made once per kernel, specialization and device, and kept. */
#ifndef HZB_VULKAN_PIPELINE_H
#define HZB_VULKAN_PIPELINE_H

#include "vulkan/device.h"

#define HZB_MAX_CONSTANTS 16
#define HZB_MAX_BUFFERS 4
#define HZB_PUSH_BYTES 128

/* One SPIR-V module and the interface it has: storage buffers at bindings 0 … buffers - 1 of set 0,
   and where `image` is set a combined image sampler at binding `buffers`. */
struct hzb_kernel {
    const char *name;
    const uint32_t *words;
    size_t size; /* bytes */
    uint32_t buffers;
    bool image;
};

struct hzb_pipeline {
    VkPipeline handle;
    VkPipelineLayout layout;
    VkDescriptorSetLayout set_layout;
};

/* The pipeline of a kernel with specialization constants 0 … count - 1 and, where `subgroup_size`
   is not 0, exactly that subgroup size in full subgroups. It lives as long as the device. The
   caller holds the lock of the device's context. */
enum hzb_status hzb_pipeline_get(struct hzb_device *device, const struct hzb_kernel *kernel,
                                 const uint32_t *constants, uint32_t count, uint32_t subgroup_size,
                                 const struct hzb_pipeline **pipeline, struct hzb_error *err);

/* For hzb_device_destroy. */
void hzb_pipelines_destroy(struct hzb_device *device);

#endif
