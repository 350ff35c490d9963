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

/* The rows of a window come two by two. What is kept between passes is not in its final form. */
enum hzb_cpu_pass {
    HZB_CPU_MIDDLE = 0,
    HZB_CPU_FIRST = 1,
    HZB_CPU_LAST = 2,
    HZB_CPU_ONLY = HZB_CPU_FIRST | HZB_CPU_LAST,
};

/* Bring the best of columns 2i and 2i + 1 of two rows into `best[i]`, which holds patterns after
   the last pass only. NaN is better than all numbers or worse. The patterns of -0 and of every NaN
   pass through as they are. */
typedef void hzb_cpu_reduce(const void *row, const void *other, int64_t count, bool nan_wins,
                            enum hzb_cpu_pass pass, void *best);

/* One of the two bounds of a row: what is kept between passes, and where it goes rounded. */
struct hzb_cpu_bound {
    uint32_t *best;
    enum hzb_cpu_rounding rounding;
    uint16_t *halves;
};

/* The same of float32, rounded by the last pass, where numbers are easy: none negative (-0 is),
   infinite, NaN or so large that it could round to infinity, and the results zero or normal in
   float16. False where they were not: then what was written is of no use. `bounds` are the minima
   and the maxima. */
typedef bool hzb_cpu_easy(const void *row, const void *other, int64_t count, enum hzb_cpu_pass pass,
                          const struct hzb_cpu_bound bounds[2]);

struct hzb_cpu_kernels {
    /* By whether texels are float32 rather than float16, and whether the maximum is best. */
    hzb_cpu_reduce *reduce[2][2];
    /* Of float32, the minima and the maxima at once. */
    void (*reduce_both)(const void *row, const void *other, int64_t count, bool nan_wins,
                        enum hzb_cpu_pass pass, void *low, void *high);
    /* By which of the bounds are wanted: minima, maxima, both. */
    hzb_cpu_easy *easy[3];

    void (*round)(const uint32_t *words, int64_t count, enum hzb_cpu_rounding rounding,
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
