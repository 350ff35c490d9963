/* What the process may use of this machine, containers included: memory and processors. */
#ifndef HZB_BASE_SYSTEM_H
#define HZB_BASE_SYSTEM_H

#include <stdint.h>

/* Bytes the process can still use: MemAvailable, and what the memory limits of its control groups
   (v1 and v2, every ancestor) leave; UINT64_MAX when nothing says. */
uint64_t hzb_memory_available(void);

/* Processors the process may use: affinity mask and control-group quota, at least 1. */
int hzb_usable_cpus(void);

#endif
