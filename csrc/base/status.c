/* Filling struct hzb_error. Failed Vulkan calls are recorded by vulkan/loader.c. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>

enum hzb_status hzb_fail(struct hzb_error *err, enum hzb_status status, const char *format, ...)
{
    err->status = status;
    err->code = 0;
    err->result = NULL;
    err->function = NULL;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(err->message, sizeof(err->message), format, arguments);
    va_end(arguments);
    return status;
}

enum hzb_status hzb_fail_no_memory(struct hzb_error *err, unsigned long long bytes)
{
    return hzb_fail(
        err, HZB_OUT_OF_MEMORY,
        "the system refused %llu bytes of host memory: free some, or build fewer frames "
        "at a time",
        bytes);
}
