/* Making compute pipelines, and finding again those that were made. */
#include "vulkan/pipeline.h"

#include "base/alloc.h"
#include "vulkan/robustness.h"

#include <string.h>

struct layouts {
    VkDescriptorSetLayout set;
    VkPipelineLayout pipeline;
};

struct made {
    struct hzb_pipeline pipeline;
    const struct hzb_kernel *kernel;
    uint32_t constants[HZB_MAX_CONSTANTS];
    uint32_t count, subgroup_size;
    struct made *next;
};

struct hzb_pipelines {
    struct layouts layouts[HZB_MAX_BUFFERS + 1][2]; /* by buffers and image of a kernel */
    struct made *first;
};

static enum hzb_status make_layouts(struct hzb_device *device, const struct hzb_kernel *kernel,
                                    struct layouts *layouts, struct hzb_error *err)
{
    VkDescriptorSetLayoutBinding bindings[HZB_MAX_BUFFERS + 1];
    uint32_t count = kernel->buffers + kernel->image;
    for (uint32_t i = 0; i < count; i++) {
        bindings[i] = (VkDescriptorSetLayoutBinding){
            .binding = i,
            .descriptorType = i < kernel->buffers ? VK_DESCRIPTOR_TYPE_STORAGE_BUFFER
                                                  : VK_DESCRIPTOR_TYPE_COMBINED_IMAGE_SAMPLER,
            .descriptorCount = 1,
            .stageFlags = VK_SHADER_STAGE_COMPUTE_BIT,
        };
    }
    const VkDescriptorSetLayoutCreateInfo set_info = {
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO,
        .bindingCount = count,
        .pBindings = bindings,
    };
    const VkPushConstantRange push = {
        .stageFlags = VK_SHADER_STAGE_COMPUTE_BIT,
        .size = HZB_PUSH_BYTES,
    };
    const VkPipelineLayoutCreateInfo pipeline_info = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
        .setLayoutCount = 1,
        .pSetLayouts = &layouts->set,
        .pushConstantRangeCount = 1,
        .pPushConstantRanges = &push,
    };
    /* What an earlier, failed call made is kept: the device destroys it. */
    if (!layouts->set) {
        VK_CREATE(layouts->set, device->vk.vkCreateDescriptorSetLayout, device->handle, &set_info,
                  NULL);
    }
    if (!layouts->pipeline) {
        VK_CREATE(layouts->pipeline, device->vk.vkCreatePipelineLayout, device->handle,
                  &pipeline_info, NULL);
    }
    return HZB_OK;

fail:
    return err->status;
}

static enum hzb_status make_pipeline(struct hzb_device *device, const struct made *made,
                                     VkPipelineLayout layout, VkPipeline *pipeline,
                                     struct hzb_error *err)
{
    VkSpecializationMapEntry entries[HZB_MAX_CONSTANTS];
    for (uint32_t i = 0; i < made->count; i++) {
        entries[i] = (VkSpecializationMapEntry){
            .constantID = i, .offset = i * sizeof(uint32_t), .size = sizeof(uint32_t)};
    }
    const VkSpecializationInfo specialization = {
        .mapEntryCount = made->count,
        .pMapEntries = entries,
        .dataSize = made->count * sizeof(uint32_t),
        .pData = made->constants,
    };
    VkPipelineShaderStageRequiredSubgroupSizeCreateInfo required = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO,
        .requiredSubgroupSize = made->subgroup_size,
    };
    const VkShaderModuleCreateInfo module_info = {
        .sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
        .codeSize = made->kernel->size,
        .pCode = made->kernel->words,
    };
    /* NVIDIA's driver checks each access to a buffer unless told not to: up to 6 % of a build. */
    const VkPipelineRobustnessCreateInfoEXT unchecked = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_ROBUSTNESS_CREATE_INFO_EXT,
        .storageBuffers = VK_PIPELINE_ROBUSTNESS_BUFFER_BEHAVIOR_DISABLED_EXT,
    };
    VkComputePipelineCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
        .pNext = device->limits.pipeline_robustness ? &unchecked : NULL,
        .stage =
            {
                .sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                .pName = "main",
                .pSpecializationInfo = &specialization,
            },
        .layout = layout,
    };
    if (made->subgroup_size) {
        info.stage.pNext = &required;
        info.stage.flags = VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT;
    }
    VkShaderModule module = VK_NULL_HANDLE;
    VK_CREATE(module, device->vk.vkCreateShaderModule, device->handle, &module_info, NULL);
    info.stage.module = module;
    VK_CREATE(*pipeline, device->vk.vkCreateComputePipelines, device->handle, VK_NULL_HANDLE, 1,
              &info, NULL);
    VK_DESTROY(device->vk.vkDestroyShaderModule, device->handle, module);
    return HZB_OK;

fail:
    VK_DESTROY(device->vk.vkDestroyShaderModule, device->handle, module);
    return err->status;
}

static bool is_same(const struct made *made, const struct hzb_kernel *kernel,
                    const uint32_t *constants, uint32_t count, uint32_t subgroup_size)
{
    return made->kernel == kernel && made->count == count && made->subgroup_size == subgroup_size &&
           !memcmp(made->constants, constants, count * sizeof(*constants));
}

enum hzb_status hzb_pipeline_get(struct hzb_device *device, const struct hzb_kernel *kernel,
                                 const uint32_t *constants, uint32_t count, uint32_t subgroup_size,
                                 const struct hzb_pipeline **pipeline, struct hzb_error *err)
{
    if (!device->pipelines) {
        device->pipelines = hzb_calloc(1, sizeof(*device->pipelines));
        if (!device->pipelines)
            return hzb_fail_no_memory(err, sizeof(*device->pipelines));
    }
    struct hzb_pipelines *all = device->pipelines;
    for (const struct made *made = all->first; made; made = made->next) {
        if (is_same(made, kernel, constants, count, subgroup_size)) {
            *pipeline = &made->pipeline;
            return HZB_OK;
        }
    }

    struct layouts *layouts = &all->layouts[kernel->buffers][kernel->image];
    struct made *made = hzb_calloc(1, sizeof(*made));
    if (!made)
        return hzb_fail_no_memory(err, sizeof(*made));
    made->kernel = kernel;
    made->count = count;
    made->subgroup_size = subgroup_size;
    memcpy(made->constants, constants, count * sizeof(*constants));
    if (make_layouts(device, kernel, layouts, err) ||
        make_pipeline(device, made, layouts->pipeline, &made->pipeline.handle, err)) {
        hzb_free(made);
        return err->status;
    }
    made->pipeline.layout = layouts->pipeline;
    made->pipeline.set_layout = layouts->set;
    made->next = all->first;
    all->first = made;
    *pipeline = &made->pipeline;
    return HZB_OK;
}

void hzb_pipelines_destroy(struct hzb_device *device)
{
    struct hzb_pipelines *all = device->pipelines;
    if (!all)
        return;
    while (all->first) {
        struct made *made = all->first;
        all->first = made->next;
        VK_DESTROY(device->vk.vkDestroyPipeline, device->handle, made->pipeline.handle);
        hzb_free(made);
    }
    struct layouts *layouts = &all->layouts[0][0];
    for (size_t i = 0; i < sizeof(all->layouts) / sizeof(*layouts); i++) {
        VK_DESTROY(device->vk.vkDestroyPipelineLayout, device->handle, layouts[i].pipeline);
        VK_DESTROY(device->vk.vkDestroyDescriptorSetLayout, device->handle, layouts[i].set);
    }
    hzb_free(all);
    device->pipelines = NULL;
}
