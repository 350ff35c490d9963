/* What the process may use of this machine, containers included: memory, processors and their
   instruction sets. */
#ifndef HZB_BASE_SYSTEM_H
#define HZB_BASE_SYSTEM_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

/* Bytes the process can still use: MemAvailable, and what the memory limits of its control groups
   (v1 and v2, every ancestor) leave; UINT64_MAX when nothing says. */
uint64_t hzb_memory_available(void);

/* Bytes that the machine has, or as many as the control groups of the process grant it. */
uint64_t hzb_memory_size(void);

/* Processors the process may use: affinity mask and control-group quota, at least 1. */
int hzb_usable_cpus(void);

/* What the processor is called; where the system does not say, its architecture. */
void hzb_processor_name(char *name, size_t size);

/* Those that code is compiled for, each including the ones before it. */
enum hzb_instructions {
    HZB_INSTRUCTIONS_BASELINE,
    HZB_INSTRUCTIONS_AVX2,   /* with BMI2, FMA and F16C */
    HZB_INSTRUCTIONS_AVX512, /* F, BW, VL and DQ */
    HZB_INSTRUCTIONS_COUNT,
};
/* "baseline", "avx2", "avx512" */
const char *hzb_instructions_name(enum hzb_instructions instructions);
/* The best that this processor has. */
enum hzb_instructions hzb_instructions_best(void);
/* The best, or those that HZB_CPU names. A name that is unknown, or beyond this processor, is
   HZB_VALUE_ERROR and lists what there is. */
enum hzb_status hzb_instructions_choose(enum hzb_instructions *instructions, struct hzb_error *err);

#endif
