/* The inner loops of the native path: rows of numbers in, rows of numbers out. The file that
   defines them is compiled once for each instruction set; which rows, levels and threads is the
   matter of cpu.c. */
#ifndef HZB_OPS_HZB_CPU_KERNELS_H
#define HZB_OPS_HZB_CPU_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

/* Ways to round float32 to float16. In all of them NaN becomes 0x7e00 and -0 becomes +0. */
enum hzb_cpu_rounding {
    HZB_CPU_DOWN,
    HZB_CPU_UP,
    HZB_CPU_NEAREST,
    HZB_CPU_TO_ZERO,
    HZB_CPU_UNREAL_UP, /* toward zero, and unless negative one pattern further up */
};

/* The rows of a window come one by one: memory is read fastest in order. */
enum hzb_cpu_pass { HZB_CPU_FIRST, HZB_CPU_MIDDLE, HZB_CPU_LAST };

/* Bring the better of columns 2i and 2i + 1 of a row into `best[i]`, which holds patterns after the
   last pass only. NaN is better than all numbers or worse. The patterns of -0 and of every NaN pass
   through as they are. */
typedef void hzb_cpu_reduce(const void *row, int64_t count, bool nan_wins, enum hzb_cpu_pass pass,
                            void *best);

struct hzb_cpu_kernels {
    /* By whether texels are float32 rather than float16, and whether the maximum is best. */
    hzb_cpu_reduce *reduce[2][2];
    /* Minimum and maximum at once, for plain numbers: no NaN and nothing negative, not even -0.
       False where the numbers were not plain: then what was written is of no use. */
    bool (*reduce_plain)(const uint32_t *row, int64_t count, bool more, uint32_t *low,
                         uint32_t *high);

    void (*round)(const uint32_t *words, int64_t count, enum hzb_cpu_rounding rounding, bool plain,
                  uint16_t *halves);
    /* Turn -0 into +0 and every NaN into 0x7fc00000. */
    void (*tidy)(uint32_t *words, int64_t count);
    /* Raise halves to the next pattern, except negative ones, infinity and NaN. */
    void (*raise)(uint16_t *halves, int64_t count);
};

extern const struct hzb_cpu_kernels hzb_cpu_kernels_baseline;
#ifdef __x86_64__
extern const struct hzb_cpu_kernels hzb_cpu_kernels_avx2, hzb_cpu_kernels_avx512;
#endif

#endif
