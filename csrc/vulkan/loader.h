/* The Vulkan loader, the one instance of the process, and the devices it lists. Opening a device is
   vulkan/device.h. */
#ifndef HZB_VULKAN_LOADER_H
#define HZB_VULKAN_LOADER_H

#include "base/fault.h"
#include "base/status.h"

#include <stdint.h>
#include <volk.h>

enum hzb_device_kind {
    HZB_KIND_DISCRETE,
    HZB_KIND_INTEGRATED,
    HZB_KIND_VIRTUAL,
    HZB_KIND_NATIVE,
    HZB_KIND_SOFTWARE,
    HZB_KIND_OTHER,
};

/* "discrete", "integrated", … */
const char *hzb_device_kind_name(enum hzb_device_kind kind);

struct hzb_device_info {
    char name[VK_MAX_PHYSICAL_DEVICE_NAME_SIZE];
    enum hzb_device_kind kind;
    uint32_t vendor_id, device_id;
    uint8_t uuid[VK_UUID_SIZE];
    char driver_name[VK_MAX_DRIVER_NAME_SIZE];
    char driver_version[VK_MAX_DRIVER_INFO_SIZE]; /* VkPhysicalDeviceDriverProperties.driverInfo, or
                                                     the number when that is empty */
    uint32_t api_version;
    uint64_t memory;    /* bytes of the device-local heaps */
    bool survives_fork; /* a child can open it while its parent has it open */
};

/* Once a process, before anything else here; false when the system has no resources for it. */
bool hzb_instance_setup(void);

/* Hold this around calls that lock something in the loader itself: a child that is forked during
   one would find that locked for ever, so a fork waits for them. Not for more than the calls. */
void hzb_loader_take(void);
void hzb_loader_drop(void);

/* The instance, made at the first call and kept; any thread, no lock of a caller's is needed. Fails
   with HZB_LOADER_NOT_FOUND, or HZB_NO_DEVICE with result VK_ERROR_INCOMPATIBLE_DRIVER, each with
   its remedy, and with HZB_FAILED after hzb_instance_end and in a process forked after its parent
   made the instance and has a hardware device. The devices are listed with it, so it fails as
   hzb_physical_devices does, too. A failure leaves nothing behind: the next call tries again. */
enum hzb_status hzb_instance(VkInstance *instance, struct hzb_error *err);

/* The physical devices in the driver's order: handles and records, `*count` of them, in arrays that
   live as long as the instance. Devices below Vulkan 1.1 or without a compute queue are left out.
   No devices is HZB_NO_DEVICE (result NULL) with its remedy. */
enum hzb_status hzb_physical_devices(const VkPhysicalDevice **handles,
                                     const struct hzb_device_info **records, uint32_t *count,
                                     struct hzb_error *err);

/* Whether this process was forked from one that had made the instance, and has not made its own. */
bool hzb_instance_inherited(void);
/* HZB_FAILED in such a process, if its parent has a hardware device. */
enum hzb_status hzb_check_fork(struct hzb_error *err);
/* Refuse any device after hzb_instance_end. */
enum hzb_status hzb_fail_ended(struct hzb_error *err);
/* The records that such a process inherited, and those of one whose instance has ended, in the
   driver's order, for listing only: their devices cannot be opened. NULL and 0 in any other. */
const struct hzb_device_info *hzb_kept_records(uint32_t *count);

/* The Vulkan version whose functions may be used with a device: its own, at most the instance's. */
uint32_t hzb_usable_version(const struct hzb_device_info *info);

/* The queue family that work on a device goes to, preferably one with timestamps, and the bits that
   its timestamps have; false when no family computes. */
bool hzb_compute_family(VkPhysicalDevice physical, uint32_t *family, uint32_t *timestamp_bits);

/* Called once, at exit: there is no instance from now on. If this process made one it is destroyed,
   unless some device is still in use. */
void hzb_instance_end(bool in_use);

/* HZB_VALIDATION=1 in the environment when the instance is made turns the Khronos validation layer
   on, synchronization validation included, and keeps its messages of severity warning and above
   (the first 256 not yet taken). Returns the oldest kept message (to be freed with hzb_free) or
   NULL. */
char *hzb_validation_take(void);

const char *hzb_result_name(VkResult result);

/* Record a failed call: out-of-memory and lost-device results get their own status. */
enum hzb_status hzb_vulkan_fail(struct hzb_error *err, VkResult result, const char *function);

/* What a planted fault has the next call return, which is then not made; VK_SUCCESS: there is none.
 */
VkResult hzb_planted_result(void);

/* Make one Vulkan call that returns a VkResult, through the planted-fault check; on failure fill
   `err` and jump to `fail`. The one way such calls are made: VK_RESULT where it matters which
   success it was, VK_CREATE where the last argument receives a new object, which is counted. */
#define VK_RESULT(result, function, ...)                                                           \
    do {                                                                                           \
        (result) = hzb_planted_result();                                                           \
        if ((result) == VK_SUCCESS)                                                                \
            (result) = (function)(__VA_ARGS__);                                                    \
        if ((result) < 0) {                                                                        \
            hzb_vulkan_fail(err, (result), hzb_function_name(#function));                          \
            goto fail;                                                                             \
        }                                                                                          \
    } while (0)

#define VK(function, ...)                                                                          \
    do {                                                                                           \
        VkResult vk_result_;                                                                       \
        VK_RESULT(vk_result_, function, __VA_ARGS__);                                              \
    } while (0)

#define VK_CREATE(object, function, ...)                                                           \
    do {                                                                                           \
        __typeof__(object) vk_object_ = VK_NULL_HANDLE;                                            \
        VK(function, __VA_ARGS__, &vk_object_);                                                    \
        (object) = vk_object_;                                                                     \
        hzb_vulkan_count(1);                                                                       \
    } while (0)

/* The counterpart of VK_CREATE for an object of `parent` (an instance or a device); one that was
   never made is left alone. */
#define VK_DESTROY(function, parent, object)                                                       \
    do {                                                                                           \
        if (object) {                                                                              \
            (function)((parent), (object), NULL);                                                  \
            (object) = VK_NULL_HANDLE;                                                             \
            hzb_vulkan_count(-1);                                                                  \
        }                                                                                          \
    } while (0)

/* "vkCreateFence" from "device->vk.vkCreateFence": the last name of an expression. */
const char *hzb_function_name(const char *expression);

/* Vulkan objects made and not yet destroyed, by anyone; VK_CREATE and VK_DESTROY report here. */
void hzb_vulkan_count(int change);
long hzb_live_vulkan_objects(void);

#endif
