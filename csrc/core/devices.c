/* Choosing a device from the list of vulkan/loader.h. Opening it is vulkan/device.c. */
#include "core/devices.h"

#include "base/files.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* The lowest is taken when nobody names a device. */
static const int rank_of_kind[] = {
    [HZB_KIND_DISCRETE] = 0, [HZB_KIND_INTEGRATED] = 1, [HZB_KIND_VIRTUAL] = 2,
    [HZB_KIND_NATIVE] = 3,   [HZB_KIND_SOFTWARE] = 4,   [HZB_KIND_OTHER] = 5,
};

void hzb_uuid_text(const uint8_t uuid[VK_UUID_SIZE], char text[HZB_UUID_TEXT])
{
    for (uint32_t i = 0; i < VK_UUID_SIZE; i++) {
        bool starts_group = i == 4 || i == 6 || i == 8 || i == 10;
        text += sprintf(text, starts_group ? "-%02x" : "%02x", uuid[i]);
    }
}

/* Append to text that ends at `*used`, as far as there is room. */
static void append(char *text, size_t size, size_t *used, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static void append(char *text, size_t size, size_t *used, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text + *used, size - *used, format, arguments);
    va_end(arguments);
    *used += (size_t)(length > 0 ? length : 0);
    *used = *used < size ? *used : size - 1;
}

static uint32_t best_by_rank(const struct hzb_device_info *records, uint32_t count)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < count; i++)
        if (rank_of_kind[records[i].kind] < rank_of_kind[records[best].kind])
            best = i;
    return best;
}

/* The index of the device that a spec names, or `count`. */
static uint32_t find(const char *spec, const struct hzb_device_info *records, uint32_t count)
{
    if (!*spec)
        return count;
    if (!spec[strspn(spec, "0123456789")]) {
        unsigned long long index = strtoull(spec, NULL, 10);
        return index < count ? (uint32_t)index : count;
    }
    if (!strcasecmp(spec, "lavapipe"))
        spec = "llvmpipe";
    uint32_t found = 0;
    for (; found < count; found++) {
        char uuid[HZB_UUID_TEXT];
        hzb_uuid_text(records[found].uuid, uuid);
        if (!strcasecmp(uuid, spec) || strcasestr(records[found].name, spec) ||
            strcasestr(records[found].driver_name, spec)) {
            break;
        }
    }
    return found;
}

static enum hzb_status fail_to_find(const char *argument, const char *spec,
                                    const struct hzb_device_info *records, uint32_t count,
                                    struct hzb_error *err)
{
    char list[1600];
    size_t used = 0;
    for (uint32_t i = 0; i < count; i++) {
        char uuid[HZB_UUID_TEXT];
        hzb_uuid_text(records[i].uuid, uuid);
        append(list, sizeof(list), &used, "%s%u: %s (%s, driver %s, UUID %s)", i ? "; " : "", i,
               records[i].name, hzb_device_kind_name(records[i].kind), records[i].driver_name,
               uuid);
    }
    return hzb_fail(err, HZB_VALUE_ERROR,
                    "%s: no device matches '%.200s'; pass an index, a UUID or part of the name of "
                    "a device or driver; there is %s",
                    argument, spec, list);
}

enum hzb_status hzb_devices_choose(const char *spec, struct hzb_choice *choice,
                                   struct hzb_error *err)
{
    const VkPhysicalDevice *handles;
    const struct hzb_device_info *records;
    uint32_t count;
    enum hzb_status status = hzb_physical_devices(&handles, &records, &count, err);
    if (status)
        return status;
    const char *argument = "device";
    if (!spec) {
        const char *value = getenv("HZB_DEVICE");
        if (value && *value) {
            argument = "HZB_DEVICE";
            spec = value;
        }
    }
    uint32_t index = spec ? find(spec, records, count) : best_by_rank(records, count);
    if (index == count)
        return fail_to_find(argument, spec, records, count, err);
    *choice = (struct hzb_choice){handles[index], &records[index], spec != NULL};
    return HZB_OK;
}

void hzb_devices_notice(const struct hzb_choice *choice, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    if (choice->named || choice->info->kind != HZB_KIND_SOFTWARE)
        return;
    append(text, size, &used, "no hardware Vulkan device: using %.100s, a software driver",
           choice->info->name);
    const char *node = hzb_file_exists("/dev/nvidia*") ? "/dev/nvidia*"
                       : hzb_file_exists("/dev/dri")   ? "/dev/dri"
                                                       : NULL;
    if (node) {
        append(text, size, &used,
               "; yet %s exists, so this machine may have a GPU whose Vulkan driver is not "
               "installed, or not passed into this container (for NVIDIA: the 'graphics' driver "
               "capability, libegl1 and libxext6)",
               node);
    }
}
