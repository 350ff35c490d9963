/* Opening a device: what it can do, less what is hidden for tests, and the queue that work goes to.
   Everything used beyond Vulkan 1.1 is asked for here. */
#include "vulkan/device.h"

#include "base/alloc.h"
#include "base/threads.h"
#include "vulkan/pipeline.h"
#include "vulkan/robustness.h"

#include <stdlib.h>
#include <string.h>

/* Invocations of the smallest workgroups, which full subgroups of the required size must fill. */
#define GROUP_SIZE 64

/* What a driver may add to a buffer as it allocates it: SwiftShader refuses one of just the size
   that it names as the largest. */
#define BUFFER_PADDING (UINT64_C(64) << 10)

enum {
    HIDE_STORAGE16 = 1 << 0,
    HIDE_SUBGROUP_SIZE_CONTROL = 1 << 1,
    HIDE_IMAGES = 1 << 2,
    HIDE_UNIFIED = 1 << 3,
    HIDE_SHUFFLE = 1 << 4,
    HIDE_PIPELINE_ROBUSTNESS = 1 << 5,
};

struct extensions {
    bool subgroup_size_control, maintenance4; /* of Vulkan 1.1 and 1.2 devices; core in 1.3 */
    bool pipeline_robustness;
};

static enum hzb_status read_hidden(unsigned *hidden, struct hzb_error *err)
{
    static const struct {
        const char *word;
        unsigned bit;
    } known[] = {
        {"storage16", HIDE_STORAGE16}, {"subgroup_size_control", HIDE_SUBGROUP_SIZE_CONTROL},
        {"images", HIDE_IMAGES},       {"unified", HIDE_UNIFIED},
        {"shuffle", HIDE_SHUFFLE},     {"pipeline_robustness", HIDE_PIPELINE_ROBUSTNESS},
    };
    const char *text = getenv("HZB_HIDE_FEATURES");
    *hidden = 0;
    while (text && *text) {
        size_t length = strcspn(text, ",");
        unsigned bit = 0;
        for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
            if (strlen(known[i].word) == length && !memcmp(known[i].word, text, length))
                bit = known[i].bit;
        if (!bit) {
            return hzb_fail(err, HZB_VALUE_ERROR,
                            "HZB_HIDE_FEATURES names \"%.*s\": it is a comma-separated list of "
                            "storage16, subgroup_size_control, images, unified, "
                            "shuffle and pipeline_robustness",
                            (int)length, text);
        }
        *hidden |= bit;
        text += length + (text[length] == ',');
    }
    return HZB_OK;
}

static enum hzb_status read_extensions(VkPhysicalDevice physical, struct extensions *extensions,
                                       struct hzb_error *err)
{
    VkExtensionProperties *listed = NULL;
    VkResult result;
    uint32_t count;
    *extensions = (struct extensions){0};
    do {
        VK(vkEnumerateDeviceExtensionProperties, physical, NULL, &count, NULL);
        void *grown = hzb_realloc(listed, count, sizeof(*listed));
        if (!grown) {
            hzb_fail_no_memory(err, count * sizeof(*listed));
            goto fail;
        }
        listed = grown;
        VK_RESULT(result, vkEnumerateDeviceExtensionProperties, physical, NULL, &count, listed);
    } while (result == VK_INCOMPLETE);
    for (uint32_t i = 0; i < count; i++) {
        const char *name = listed[i].extensionName;
        extensions->subgroup_size_control |=
            !strcmp(name, VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME);
        extensions->maintenance4 |= !strcmp(name, VK_KHR_MAINTENANCE_4_EXTENSION_NAME);
        extensions->pipeline_robustness |= !strcmp(name, VK_EXT_PIPELINE_ROBUSTNESS_EXTENSION_NAME);
    }
    hzb_free(listed);
    return HZB_OK;

fail:
    hzb_free(listed);
    return err->status;
}

/* The subgroup size that pipelines can be required to have, or 0. */
static uint32_t usable_subgroup_size(const VkPhysicalDeviceSubgroupProperties *subgroup,
                                     const VkPhysicalDeviceSubgroupSizeControlFeatures *features,
                                     const VkPhysicalDeviceSubgroupSizeControlProperties *control)
{
    uint32_t size = subgroup->subgroupSize;
    bool usable = features->subgroupSizeControl && features->computeFullSubgroups &&
                  control->requiredSubgroupSizeStages & VK_SHADER_STAGE_COMPUTE_BIT &&
                  subgroup->supportedStages & VK_SHADER_STAGE_COMPUTE_BIT &&
                  subgroup->supportedOperations & VK_SUBGROUP_FEATURE_BASIC_BIT &&
                  control->minSubgroupSize <= size && size <= control->maxSubgroupSize && size &&
                  GROUP_SIZE % size == 0 &&
                  GROUP_SIZE / size <= control->maxComputeWorkgroupSubgroups;
    return usable ? size : 0;
}

static bool is_unified(const struct hzb_device *device)
{
    const VkMemoryPropertyFlags all = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT |
                                      VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
                                      VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
    for (uint32_t i = 0; i < device->memory.memoryTypeCount; i++)
        if ((device->memory.memoryTypes[i].propertyFlags & all) == all)
            return device->info.kind == HZB_KIND_SOFTWARE;
    return false;
}

static void read_limits(struct hzb_device *device, const struct extensions *extensions,
                        unsigned hidden, uint32_t timestamp_bits)
{
    VkPhysicalDeviceSubgroupSizeControlFeatures control_features = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES};
    VkPhysicalDevice16BitStorageFeatures storage_features = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_16BIT_STORAGE_FEATURES};
    VkPhysicalDevicePipelineRobustnessFeaturesEXT robustness_features = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PIPELINE_ROBUSTNESS_FEATURES_EXT};
    VkPhysicalDeviceFeatures2 features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                          .pNext = &storage_features};
    VkPhysicalDeviceSubgroupSizeControlProperties control = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES};
    VkPhysicalDeviceMaintenance4Properties maintenance4 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_PROPERTIES,
        .maxBufferSize = UINT64_MAX};
    VkPhysicalDeviceSubgroupProperties subgroup = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES};
    VkPhysicalDeviceMaintenance3Properties maintenance3 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES, .pNext = &subgroup};
    VkPhysicalDeviceDriverProperties driver = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES, .pNext = &maintenance3};
    VkPhysicalDeviceProperties2 properties = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, .pNext = &driver};
    bool core = hzb_usable_version(&device->info) >= VK_API_VERSION_1_3;
    if (core || extensions->subgroup_size_control) {
        storage_features.pNext = &control_features;
        subgroup.pNext = &control;
    }
    if (extensions->pipeline_robustness) {
        robustness_features.pNext = features.pNext;
        features.pNext = &robustness_features;
    }
    if (core || extensions->maintenance4) {
        maintenance4.pNext = properties.pNext;
        properties.pNext = &maintenance4;
    }
    vkGetPhysicalDeviceFeatures2(device->physical, &features);
    vkGetPhysicalDeviceProperties2(device->physical, &properties);
    vkGetPhysicalDeviceMemoryProperties(device->physical, &device->memory);

    const VkPhysicalDeviceLimits *limits = &properties.properties.limits;
    uint64_t allocation = maintenance3.maxMemoryAllocationSize;
    bool images = !(hidden & HIDE_IMAGES);
    device->limits = (struct hzb_limits){
        .storage_range = limits->maxStorageBufferRange,
        .buffer_bytes =
            (allocation < maintenance4.maxBufferSize ? allocation : maintenance4.maxBufferSize) -
            BUFFER_PADDING,
        .group_count = {limits->maxComputeWorkGroupCount[0], limits->maxComputeWorkGroupCount[1],
                        limits->maxComputeWorkGroupCount[2]},
        .group_invocations =
            limits->maxComputeWorkGroupInvocations < limits->maxComputeWorkGroupSize[0]
                ? limits->maxComputeWorkGroupInvocations
                : limits->maxComputeWorkGroupSize[0],
        .group_subgroups = control.maxComputeWorkgroupSubgroups,
        .shared_bytes = limits->maxComputeSharedMemorySize,
        .image_side = images ? limits->maxImageDimension2D : 0,
        .image_layers = images ? limits->maxImageArrayLayers : 0,
        .subgroup_size = hidden & HIDE_SUBGROUP_SIZE_CONTROL
                             ? 0
                             : usable_subgroup_size(&subgroup, &control_features, &control),
        .subgroup_shuffle = !(hidden & HIDE_SHUFFLE) &&
                            subgroup.supportedStages & VK_SHADER_STAGE_COMPUTE_BIT &&
                            subgroup.supportedOperations & VK_SUBGROUP_FEATURE_SHUFFLE_BIT,
        .storage16 = !(hidden & HIDE_STORAGE16) && storage_features.storageBuffer16BitAccess,
        .unified = !(hidden & HIDE_UNIFIED) && is_unified(device),
        .pipeline_robustness =
            !(hidden & HIDE_PIPELINE_ROBUSTNESS) && robustness_features.pipelineRobustness,
        .driver = driver.driverID,
        .timestamps = timestamp_bits != 0,
        .timestamp_ns = limits->timestampPeriod,
    };
    device->timestamp_mask = timestamp_bits < 64 ? (UINT64_C(1) << timestamp_bits) - 1 : UINT64_MAX;
}

/* Make the logical device with what `limits` says is used, and its command pool. */
static enum hzb_status open_device(struct hzb_device *device, struct hzb_error *err)
{
    VkPhysicalDeviceSubgroupSizeControlFeatures control = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES,
        .subgroupSizeControl = VK_TRUE,
        .computeFullSubgroups = VK_TRUE,
    };
    const VkPhysicalDevice16BitStorageFeatures storage = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_16BIT_STORAGE_FEATURES,
        .pNext = device->limits.subgroup_size ? &control : NULL,
        .storageBuffer16BitAccess = device->limits.storage16,
    };
    const VkPhysicalDevicePipelineRobustnessFeaturesEXT robustness = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PIPELINE_ROBUSTNESS_FEATURES_EXT,
        .pNext = (void *)&storage,
        .pipelineRobustness = VK_TRUE,
    };
    const char *extensions[2];
    uint32_t extension_count = 0;
    if (device->limits.subgroup_size && hzb_usable_version(&device->info) < VK_API_VERSION_1_3)
        extensions[extension_count++] = VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME;
    if (device->limits.pipeline_robustness)
        extensions[extension_count++] = VK_EXT_PIPELINE_ROBUSTNESS_EXTENSION_NAME;
    const float priority = 1;
    const VkDeviceQueueCreateInfo queue = {
        .sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
        .queueFamilyIndex = device->queue_family,
        .queueCount = 1,
        .pQueuePriorities = &priority,
    };
    const VkDeviceCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
        .pNext = device->limits.pipeline_robustness ? (const void *)&robustness : &storage,
        .queueCreateInfoCount = 1,
        .pQueueCreateInfos = &queue,
        .enabledExtensionCount = extension_count,
        .ppEnabledExtensionNames = extensions,
    };
    const VkCommandPoolCreateInfo pool = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
        .flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
        .queueFamilyIndex = device->queue_family,
    };
    VK_CREATE(device->handle, vkCreateDevice, device->physical, &info, NULL);
    volkLoadDeviceTable(&device->vk, device->handle);
    device->vk.vkGetDeviceQueue(device->handle, device->queue_family, 0, &device->queue);
    VK_CREATE(device->command_pool, device->vk.vkCreateCommandPool, device->handle, &pool, NULL);
    return HZB_OK;

fail:
    return err->status;
}

static enum hzb_status read_and_open(struct hzb_device *device, struct hzb_error *err)
{
    struct extensions extensions;
    unsigned hidden;
    uint32_t timestamp_bits = 0;
    hzb_compute_family(device->physical, &device->queue_family, &timestamp_bits);
    if (read_hidden(&hidden, err) || read_extensions(device->physical, &extensions, err))
        return err->status;
    read_limits(device, &extensions, hidden, timestamp_bits);
    return open_device(device, err);
}

enum hzb_status hzb_device_create(VkPhysicalDevice physical, const struct hzb_device_info *info,
                                  struct hzb_device **made, struct hzb_error *err)
{
    struct hzb_device *device = hzb_calloc(1, sizeof(*device));
    if (!device)
        return hzb_fail_no_memory(err, sizeof(*device));
    device->references = 1;
    device->physical = physical;
    device->info = *info;
    hzb_loader_take();
    enum hzb_status status = read_and_open(device, err);
    hzb_loader_drop();
    if (status) {
        hzb_device_destroy(device);
        return status;
    }
    /* NVIDIA's crash in a child (580.159.04), after which the parent's own do not end. */
    if (info->kind != HZB_KIND_SOFTWARE)
        hzb_spare_children_exit_functions();
    *made = device;
    return HZB_OK;
}

void hzb_device_wait_idle(struct hzb_device *device)
{
    /* Not by VK: a planted loss does not end what runs. A real one does, and this wait with it. */
    if (device && device->handle)
        (void)device->vk.vkDeviceWaitIdle(device->handle);
}

void hzb_device_destroy(struct hzb_device *device)
{
    if (!device)
        return;
    device->destroyed = true;
    hzb_device_wait_idle(device);
    if (device->handle) {
        hzb_pipelines_destroy(device);
        VK_DESTROY(device->vk.vkDestroyCommandPool, device->handle, device->command_pool);
    }
    hzb_device_release(device);
}

void hzb_device_retain(struct hzb_device *device) { device->references++; }

void hzb_device_release(struct hzb_device *device)
{
    if (--device->references)
        return;
    if (device->handle) {
        hzb_loader_take();
        device->vk.vkDestroyDevice(device->handle, NULL);
        hzb_loader_drop();
        hzb_vulkan_count(-1);
    }
    hzb_free(device);
}
