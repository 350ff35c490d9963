/* Planted faults: tests arm the nth call of a kind to fail, at the choke points that every
   allocation, thread, file and Vulkan call goes through. */
#ifndef HZB_BASE_FAULT_H
#define HZB_BASE_FAULT_H

#include <stdbool.h>

enum hzb_fault {
    HZB_FAULT_ALLOC,
    HZB_FAULT_THREAD,
    HZB_FAULT_FILE,
    HZB_FAULT_VULKAN,
    HZB_FAULT_DEVICE_LOST,
    HZB_FAULT_KNOWN_ANSWER, /* a known case comes out wrong */
    HZB_FAULT_KINDS,
};

/* Make the nth call of this kind from now on fail, once; 0 disarms. Restarts the count. */
void hzb_fault_arm(enum hzb_fault kind, long nth);
/* Calls of this kind since it was last armed or disarmed. */
long hzb_fault_calls(enum hzb_fault kind);
/* Whether this call is the one to fail; asked by the choke points alone. */
bool hzb_fault_due(enum hzb_fault kind);

#endif
