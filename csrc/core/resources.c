/* The memory and command buffer of one submission. Keeping them is core/plans.c. */
#include "core/resources.h"

#include "core/blocks.h"

enum hzb_status hzb_resources_create(struct hzb_device *device, const struct hzb_needs *needs,
                                     enum hzb_residence residence, struct hzb_resources *resources,
                                     struct hzb_error *err)
{
    bool on_device = residence == HZB_ON_DEVICE;
    enum hzb_status status =
        hzb_buffer_create(device, on_device ? HZB_MEMORY_DEVICE : HZB_MEMORY_UPLOAD,
                          needs->upload_bytes, &resources->upload, err);
    if (!status && !on_device)
        status = hzb_buffer_create(device, HZB_MEMORY_READBACK, needs->result_bytes,
                                   &resources->readback, err);
    if (!status && !on_device && device->limits.unified)
        resources->results = resources->readback;
    else if (!status)
        status = hzb_buffer_create(device, HZB_MEMORY_DEVICE, needs->result_bytes,
                                   &resources->results, err);
    if (!status && needs->device_bytes)
        status = hzb_buffer_create(device, HZB_MEMORY_DEVICE, needs->device_bytes,
                                   &resources->device, err);
    if (!status && needs->scratch_bytes)
        status = hzb_buffer_create(device, HZB_MEMORY_DEVICE, needs->scratch_bytes,
                                   &resources->scratch, err);
    if (!status && needs->image_width)
        status = hzb_image_create(device, needs->image_width, needs->image_height,
                                  needs->image_layers, &resources->image, err);
    if (!status)
        status = hzb_commands_begin(device, needs->dispatches, &resources->commands, err);
    return status;
}

void hzb_resources_hold(struct hzb_resources *resources, struct hzb_block *block)
{
    if (block)
        hzb_block_retain(block);
    hzb_block_release(resources->block);
    resources->block = block;
}

void hzb_resources_destroy(struct hzb_device *device, struct hzb_resources *resources)
{
    hzb_commands_destroy(device, &resources->commands);
    hzb_image_destroy(device, &resources->image);
    if (resources->results.handle != resources->readback.handle)
        hzb_buffer_destroy(device, &resources->results);
    hzb_buffer_destroy(device, &resources->readback);
    hzb_buffer_destroy(device, &resources->scratch);
    hzb_buffer_destroy(device, &resources->device);
    hzb_buffer_destroy(device, &resources->upload);
    hzb_block_release(resources->block);
}
