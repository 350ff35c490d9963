/* The list of devices, their ranking, and what a device spec names. */
#ifndef HZB_CORE_DEVICES_H
#define HZB_CORE_DEVICES_H

#include "vulkan/loader.h"

/* How a device was chosen, which decides what may be said and done about it. */
struct hzb_choice {
    VkPhysicalDevice physical;
    const struct hzb_device_info *info;
    bool named; /* by an argument or HZB_DEVICE, rather than by rank */
};

/* Find the device of a spec: digits are an index into the list, a UUID as 8-4-4-4-12 hex digits is
   a UUID, anything else part of a device's or driver's name, case ignored, first match ("lavapipe"
   is llvmpipe). NULL: HZB_DEVICE if set and not empty, else the best by rank. A spec that matches
   nothing is HZB_VALUE_ERROR and lists what there is; it names `device` or HZB_DEVICE, whichever
   the spec came from. */
enum hzb_status hzb_devices_choose(const char *spec, struct hzb_choice *choice,
                                   struct hzb_error *err);

/* One line for the log when a software driver is used without being named; empty when there is
   nothing to say. */
void hzb_devices_notice(const struct hzb_choice *choice, char *text, size_t size);

/* "6d657361-3232-2e33-2e36-000000000000" */
#define HZB_UUID_TEXT 37
void hzb_uuid_text(const uint8_t uuid[VK_UUID_SIZE], char text[HZB_UUID_TEXT]);

#endif
