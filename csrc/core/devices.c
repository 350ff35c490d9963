/* The processor beside the devices of vulkan/loader.h, and choosing one of them. Opening it is
   vulkan/device.c. */
#include "core/devices.h"

#include "base/files.h"
#include "base/system.h"

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

#define NATIVE_SPEC "cpu"

/* How a notice begins. */
#define ON_PROCESSOR "building on the processor (device \"" NATIVE_SPEC "\"): "

void hzb_devices_list(struct hzb_device_list *list)
{
    list->problem.status = HZB_OK;
    if (hzb_physical_devices(&list->handles, &list->records, &list->count, &list->problem))
        list->records = hzb_kept_records(&list->count);
}

void hzb_devices_native(struct hzb_device_info *info)
{
    /* With a wrong HZB_CPU, which builds complain of, the best. */
    enum hzb_instructions instructions;
    struct hzb_error ignored;
    hzb_instructions_choose(&instructions, &ignored);
    *info = (struct hzb_device_info){
        .kind = HZB_KIND_NATIVE,
        .driver_name = "hzb",
        .memory = hzb_memory_size(),
        .survives_fork = true,
    };
    hzb_processor_name(info->name, sizeof(info->name));
    snprintf(info->driver_version, sizeof(info->driver_version), "%s %s", HZB_VERSION,
             hzb_instructions_name(instructions));
}

void hzb_device_spec(const struct hzb_device_info *info, char text[HZB_SPEC_TEXT])
{
    if (info->kind == HZB_KIND_NATIVE) {
        strcpy(text, NATIVE_SPEC);
        return;
    }
    for (uint32_t i = 0; i < VK_UUID_SIZE; i++) {
        bool starts_group = i == 4 || i == 6 || i == 8 || i == 10;
        text += sprintf(text, starts_group ? "-%02x" : "%02x", info->uuid[i]);
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

/* The index of the best device, that of the processor included. */
static uint32_t best_by_rank(const struct hzb_device_list *list)
{
    uint32_t best = list->count;
    int rank = rank_of_kind[HZB_KIND_NATIVE];
    for (uint32_t i = 0; list->handles && i < list->count; i++) {
        if (rank_of_kind[list->records[i].kind] < rank) {
            best = i;
            rank = rank_of_kind[list->records[i].kind];
        }
    }
    return best;
}

static bool has_name(const struct hzb_device_info *info, const char *part)
{
    return strcasestr(info->name, part) || strcasestr(info->driver_name, part);
}

/* The index of the device that a spec names; false when it names none. */
static bool find(const char *spec, const struct hzb_device_list *list, uint32_t *index)
{
    if (!*spec)
        return false;
    if (!spec[strspn(spec, "0123456789")]) {
        unsigned long long number = strtoull(spec, NULL, 10);
        *index = (uint32_t)number;
        return number <= list->count;
    }
    if (!strcasecmp(spec, "lavapipe"))
        spec = "llvmpipe";
    for (*index = 0; *index < list->count; ++*index) {
        const struct hzb_device_info *record = &list->records[*index];
        char uuid[HZB_SPEC_TEXT];
        hzb_device_spec(record, uuid);
        if (!strcasecmp(uuid, spec) || has_name(record, spec))
            return true;
    }
    struct hzb_device_info native;
    hzb_devices_native(&native);
    return has_name(&native, spec);
}

static enum hzb_status fail_to_find(const char *argument, const char *spec,
                                    const struct hzb_device_list *devices, struct hzb_error *err)
{
    char list[1600];
    size_t used = 0;
    for (uint32_t i = 0; i < devices->count; i++) {
        const struct hzb_device_info *record = &devices->records[i];
        char uuid[HZB_SPEC_TEXT];
        hzb_device_spec(record, uuid);
        append(list, sizeof(list), &used, "%u: %s (%s, driver %s, UUID %s); ", i, record->name,
               hzb_device_kind_name(record->kind), record->driver_name, uuid);
    }
    struct hzb_device_info native;
    hzb_devices_native(&native);
    append(list, sizeof(list), &used, "%u: %s (%s, \"" NATIVE_SPEC "\")", devices->count,
           native.name, hzb_device_kind_name(native.kind));
    return hzb_fail(err, HZB_VALUE_ERROR,
                    "%s: no device matches '%.200s'; pass an index, a UUID, \"" NATIVE_SPEC
                    "\" or part of the name of a device or driver; there is %s",
                    argument, spec, list);
}

/* Say why the processor is the best there is, where that is not what one would expect. */
static void note_native(const struct hzb_device_list *list, struct hzb_notice *notice)
{
    const struct hzb_error *problem = &list->problem;
    const char *missing = NULL;
    if (list->handles)
        missing = "no hardware Vulkan device";
    else if (problem->status == HZB_LOADER_NOT_FOUND)
        missing = "no Vulkan loader (libvulkan.so.1)";
    else if (problem->status == HZB_NO_DEVICE)
        missing = problem->result ? "no Vulkan driver" : "no Vulkan device";
    const char *node = !missing                          ? NULL
                       : hzb_file_exists("/dev/nvidia*") ? "/dev/nvidia*"
                       : hzb_file_exists("/dev/dri")     ? "/dev/dri"
                                                         : NULL;
    if (list->handles && !node)
        return;
    size_t used = 0;
    notice->warns = !missing || node;
    append(notice->text, sizeof(notice->text), &used, ON_PROCESSOR "%s",
           missing ? missing : problem->message);
    if (node) {
        append(notice->text, sizeof(notice->text), &used,
               "; yet %s exists, so this machine may have a GPU whose Vulkan driver is not "
               "installed, or not passed into this container (for NVIDIA: the 'graphics' driver "
               "capability, libegl1 and libxext6)",
               node);
    }
}

enum hzb_status hzb_devices_choose(const char *spec, struct hzb_choice *choice,
                                   struct hzb_notice *notice, struct hzb_error *err)
{
    const char *argument = "device";
    if (!spec) {
        const char *value = getenv("HZB_DEVICE");
        if (value && *value) {
            argument = "HZB_DEVICE";
            spec = value;
        }
    }
    *choice = (struct hzb_choice){.named = spec};
    notice->text[0] = '\0';
    if (spec && !strcmp(spec, NATIVE_SPEC))
        return HZB_OK;

    struct hzb_device_list list;
    uint32_t index;
    hzb_devices_list(&list);
    bool found = true;
    if (spec)
        found = find(spec, &list, &index);
    else
        index = best_by_rank(&list);
    /* What was asked for may be one of those that there would be. */
    if (list.problem.status && (found ? index < list.count : !list.count)) {
        *err = list.problem;
        return err->status;
    }
    if (!found)
        return fail_to_find(argument, spec, &list, err);
    if (index < list.count) {
        choice->physical = list.handles[index];
        choice->info = &list.records[index];
    } else if (!spec) {
        note_native(&list, notice);
    }
    return HZB_OK;
}

bool hzb_devices_fall_back(struct hzb_choice *choice, struct hzb_notice *notice,
                           const struct hzb_error *err)
{
    if (choice->named || !choice->physical || !err->function)
        return false;
    size_t used = 0;
    notice->warns = true;
    append(notice->text, sizeof(notice->text), &used, ON_PROCESSOR "%s cannot be opened: %s",
           choice->info->name, err->message);
    *choice = (struct hzb_choice){0};
    return true;
}
