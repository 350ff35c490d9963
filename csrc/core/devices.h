/* The list of devices, their ranking, and what a device spec names. */
#ifndef HZB_CORE_DEVICES_H
#define HZB_CORE_DEVICES_H

#include "vulkan/loader.h"

/* The devices of the process: those that Vulkan has, in the drivers' order, and after them, the
   last, the processor. */
struct hzb_device_list {
    const VkPhysicalDevice *handles; /* of Vulkan's devices; NULL: they cannot be opened */
    const struct hzb_device_info *records;
    uint32_t count;
    struct hzb_error problem; /* why there are no handles */
};

void hzb_devices_list(struct hzb_device_list *list);
/* The record of the processor. Takes some time: it reads files of the system. */
void hzb_devices_native(struct hzb_device_info *info);

/* What there is to say about a choice that nobody made; an empty text: nothing. */
struct hzb_notice {
    bool warns; /* rather than informs */
    char text[600];
};

struct hzb_choice {
    VkPhysicalDevice physical;          /* NULL: the processor */
    const struct hzb_device_info *info; /* of `physical` */
    bool named;                         /* by a spec or HZB_DEVICE */
};

/* Find the device of a spec: "cpu" is the processor, digits are an index into the list, a UUID as
   8-4-4-4-12 hex digits is a UUID, anything else part of a device's or driver's name, case ignored,
   first match ("lavapipe" is llvmpipe). A spec that matches nothing is HZB_VALUE_ERROR and lists
   what there is. NULL: HZB_DEVICE if set and not empty, else the best by rank, which is the
   processor where Vulkan has no hardware or does not work at all; `notice` then says why. */
enum hzb_status hzb_devices_choose(const char *spec, struct hzb_choice *choice,
                                   struct hzb_notice *notice, struct hzb_error *err);

/* Choose the processor instead of a device that could not be opened for the reason `err`, if the
   driver gave it and nobody named the device; `notice` then says so. Whether it did. */
bool hzb_devices_fall_back(struct hzb_choice *choice, struct hzb_notice *notice,
                           const struct hzb_error *err);

/* A spec that finds the device again: "cpu", or "6d657361-3232-2e33-2e36-000000000000". */
#define HZB_SPEC_TEXT 37
void hzb_device_spec(const struct hzb_device_info *info, char text[HZB_SPEC_TEXT]);

#endif
