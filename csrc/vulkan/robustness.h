/* VK_EXT_pipeline_robustness for Vulkan headers before 1.3.221, such as those of Ubuntu 22.04: what
   is used of it, by the names of later ones. */
#ifndef HZB_VULKAN_ROBUSTNESS_H
#define HZB_VULKAN_ROBUSTNESS_H

#include <volk.h>

#ifndef VK_EXT_pipeline_robustness
#define VK_EXT_pipeline_robustness 1
#define VK_EXT_PIPELINE_ROBUSTNESS_EXTENSION_NAME "VK_EXT_pipeline_robustness"
#define VK_STRUCTURE_TYPE_PIPELINE_ROBUSTNESS_CREATE_INFO_EXT ((VkStructureType)1000068000)
#define VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PIPELINE_ROBUSTNESS_FEATURES_EXT                         \
    ((VkStructureType)1000068001)

typedef struct {
    VkStructureType sType;
    void *pNext;
    VkBool32 pipelineRobustness;
} VkPhysicalDevicePipelineRobustnessFeaturesEXT;

typedef enum {
    VK_PIPELINE_ROBUSTNESS_BUFFER_BEHAVIOR_DISABLED_EXT = 1,
    VK_PIPELINE_ROBUSTNESS_BUFFER_BEHAVIOR_MAX_ENUM_EXT = 0x7fffffff,
} VkPipelineRobustnessBufferBehaviorEXT;

typedef enum {
    VK_PIPELINE_ROBUSTNESS_IMAGE_BEHAVIOR_DEVICE_DEFAULT_EXT = 0,
    VK_PIPELINE_ROBUSTNESS_IMAGE_BEHAVIOR_MAX_ENUM_EXT = 0x7fffffff,
} VkPipelineRobustnessImageBehaviorEXT;

typedef struct {
    VkStructureType sType;
    const void *pNext;
    VkPipelineRobustnessBufferBehaviorEXT storageBuffers, uniformBuffers, vertexInputs;
    VkPipelineRobustnessImageBehaviorEXT images;
} VkPipelineRobustnessCreateInfoEXT;
#endif

#endif
