/* The error style of every floor: functions return a status and fill a struct hzb_error.
   Turning one into a Python exception is the binding's work (python/errors.c). */
#ifndef HZB_BASE_STATUS_H
#define HZB_BASE_STATUS_H

#include <stdbool.h>

enum hzb_status {
    HZB_OK = 0,
    HZB_TYPE_ERROR,       /* an argument of the wrong kind: TypeError */
    HZB_VALUE_ERROR,      /* an argument of the wrong value: ValueError */
    HZB_FAILED,           /* hzb.Error */
    HZB_VULKAN_FAILED,    /* hzb.VulkanError */
    HZB_LOADER_NOT_FOUND, /* hzb.LoaderNotFoundError */
    HZB_NO_DEVICE,        /* hzb.NoDeviceError */
    HZB_DEVICE_LOST,      /* hzb.DeviceLostError */
    HZB_OUT_OF_MEMORY,    /* hzb.OutOfMemoryError */
    HZB_INTERRUPTED,      /* a signal handler raised: the Python exception is already set */
};

struct hzb_error {
    enum hzb_status status;
    /* The Vulkan call that failed; `function` is NULL for causes without one. */
    int code;
    const char *result;
    const char *function;
    char message[2048];
};

/* Fill `err`, with no Vulkan call, and return `status`: a caller can `return hzb_fail(…)`. */
enum hzb_status hzb_fail(struct hzb_error *err, enum hzb_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

enum hzb_status hzb_fail_no_memory(struct hzb_error *err, unsigned long long bytes);

#endif
