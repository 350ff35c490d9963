/* One opened Vulkan device: its queue, function table, limits and features. Memory, pipelines and
   commands on it have their own files. */
#ifndef HZB_VULKAN_DEVICE_H
#define HZB_VULKAN_DEVICE_H

#include "vulkan/loader.h"

#include <stdatomic.h>

/* What plans and kernels depend on; every field is what the device can do less what
   HZB_HIDE_FEATURES (a comma-separated list: "storage16", "subgroup_size_control", "images",
   "unified", "shuffle", "pipeline_robustness") hides, which tests use to take the paths of lesser
   devices. */
struct hzb_limits {
    uint64_t storage_range;     /* maxStorageBufferRange */
    uint64_t buffer_bytes;      /* the largest buffer, less what drivers add to one */
    uint32_t group_count[3];    /* maxComputeWorkGroupCount */
    uint32_t group_invocations; /* of one dimension: maxComputeWorkGroupInvocations or less */
    uint32_t group_subgroups;   /* of required size: maxComputeWorkgroupSubgroups */
    uint32_t shared_bytes;
    uint32_t image_side;      /* maxImageDimension2D; 0 when images are hidden */
    uint32_t image_layers;    /* maxImageArrayLayers */
    uint32_t subgroup_size;   /* the size that pipelines are required to have; 0 where a size cannot
                                 be required with full subgroups in compute, or subgroupBarrier (basic
                                 operations) is missing */
    bool subgroup_shuffle;    /* shuffles in compute */
    bool storage16;           /* 16-bit words in storage buffers */
    bool pipeline_robustness; /* pipelines may do without the bounds checks of buffers that some
                                 drivers add though nobody asked for them */
    bool unified;             /* a processor: device, upload and read-back memory are one */
    VkDriverId driver;        /* 0 where the driver does not say */
    bool timestamps;
    uint32_t distrusted; /* bits of what an operation found the driver to get wrong */
    double timestamp_ns; /* nanoseconds a tick */
};

struct hzb_pipelines;

struct hzb_device {
    atomic_long references;
    atomic_bool destroyed; /* but for memory on it */
    VkDevice handle;
    VkPhysicalDevice physical;
    struct VolkDeviceTable vk;
    VkQueue queue;
    uint32_t queue_family;
    VkCommandPool command_pool;
    struct hzb_device_info info;
    struct hzb_limits limits;
    VkPhysicalDeviceMemoryProperties memory;
    uint64_t timestamp_mask; /* the bits of a timestamp that count */
    struct hzb_pipelines *pipelines;
};

enum hzb_status hzb_device_create(VkPhysicalDevice physical, const struct hzb_device_info *info,
                                  struct hzb_device **device, struct hzb_error *err);
/* May take as long as what is in flight. Nothing better can be done after a failure, so there is no
   status. NULL is allowed. */
void hzb_device_wait_idle(struct hzb_device *device);
/* Wait for the device to be idle and free all that work on it needs. The VkDevice itself goes when
   nobody has memory on it any more. NULL is allowed. */
void hzb_device_destroy(struct hzb_device *device);

/* Keep the VkDevice for memory on it; any thread. */
void hzb_device_retain(struct hzb_device *device);
void hzb_device_release(struct hzb_device *device);

#endif
