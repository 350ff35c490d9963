/* Reads the limits of the process from /proc, its control groups and the kernel, and what the
   processor is. Nothing is kept: limits change while a process runs. */
#include "base/system.h"

#include "base/files.h"

#include <ctype.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

enum { TEXT_BYTES = 16384, PATH_BYTES = 1024 };

static uint64_t smaller(uint64_t a, uint64_t b) { return a < b ? a : b; }

static uint64_t left_of(uint64_t limit, uint64_t used) { return limit > used ? limit - used : 0; }

/* What follows `key` and blanks at the start of a line of `text`, or NULL; an empty key is the
   text's own start. */
static const char *find_value(const char *text, const char *key)
{
    size_t length = strlen(key);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (!strncmp(line, key, length))
            return line + length + strspn(line + length, " \t");
    }
    return NULL;
}

static bool find_number(const char *text, const char *key, uint64_t *number)
{
    const char *value = find_value(text, key);
    if (!value || !isdigit((unsigned char)*value))
        return false;
    *number = strtoull(value, NULL, 10);
    return true;
}

static bool read_number(const char *directory, const char *file, const char *key, uint64_t *number)
{
    char path[PATH_BYTES + 64], text[TEXT_BYTES];
    snprintf(path, sizeof(path), "%s/%s", directory, file);
    return hzb_file_read(path, text, sizeof(text)) && find_number(text, key, number);
}

/* ---- control groups -------------------------------------------------------------------------- */

/* Lower `*limit` to what the group of this directory grants, if it says. */
typedef void group_limit(const char *directory, uint64_t *limit);

/* Apply `limit_of` to a group below `mount` and to all its ancestors. In a container the files of
   the process's own group are often those of the mount itself; what is not there says nothing. */
static void apply_to_ancestors(const char *mount, const char *group, size_t length,
                               group_limit *limit_of, uint64_t *limit)
{
    char directory[PATH_BYTES];
    int used = snprintf(directory, sizeof(directory), "%s%.*s", mount, (int)length, group);
    if (used < 0 || (size_t)used >= sizeof(directory))
        return;
    for (;;) {
        limit_of(directory, limit);
        char *slash = strrchr(directory, '/');
        if ((size_t)(slash - directory) < strlen(mount))
            return;
        *slash = '\0';
    }
}

/* Whether a comma-separated list such as "cpu,cpuacct" has this word. */
static bool has_word(const char *list, size_t length, const char *word)
{
    for (const char *end = list + length; list < end;) {
        const char *comma = memchr(list, ',', (size_t)(end - list));
        size_t size = (size_t)((comma ? comma : end) - list);
        if (size == strlen(word) && !memcmp(list, word, size))
            return true;
        list += size + 1;
    }
    return false;
}

/* What the groups of the process grant, in version 1 of the given controller and in version 2. */
static uint64_t groups_limit(const char *controller, group_limit *version1, group_limit *version2)
{
    uint64_t limit = UINT64_MAX;
    char text[TEXT_BYTES];
    if (!hzb_file_read("/proc/self/cgroup", text, sizeof(text)))
        return limit;
    /* Lines are "number:controllers:group"; version 2 names no controllers. */
    for (char *line = text; *line;) {
        size_t length = strcspn(line, "\n");
        char *controllers = memchr(line, ':', length);
        char *group = controllers
                          ? memchr(controllers + 1, ':', length - (size_t)(controllers + 1 - line))
                          : NULL;
        if (group) {
            controllers++;
            group++;
            size_t group_length = length - (size_t)(group - line);
            size_t controllers_length = (size_t)(group - 1 - controllers);
            if (!controllers_length) {
                apply_to_ancestors("/sys/fs/cgroup", group, group_length, version2, &limit);
                apply_to_ancestors("/sys/fs/cgroup/unified", group, group_length, version2, &limit);
            } else if (has_word(controllers, controllers_length, controller)) {
                char mount[64];
                snprintf(mount, sizeof(mount), "/sys/fs/cgroup/%s", controller);
                apply_to_ancestors(mount, group, group_length, version1, &limit);
            }
        }
        line += length + (line[length] == '\n');
    }
    return limit;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void apply_size_v1(const char *directory, uint64_t *limit)
{
    uint64_t maximum;
    if (read_number(directory, "memory.limit_in_bytes", "", &maximum))
        *limit = smaller(*limit, maximum);
}

static void apply_size_v2(const char *directory, uint64_t *limit)
{
    uint64_t maximum;
    if (read_number(directory, "memory.max", "", &maximum))
        *limit = smaller(*limit, maximum);
}

/* Files that nobody has used lately are given up by the kernel before a limit bites. */
static void apply_memory(const char *directory, const char *limit_file, const char *usage_file,
                         const char *inactive_key, uint64_t *limit)
{
    uint64_t maximum, used, inactive = 0;
    if (read_number(directory, limit_file, "", &maximum) &&
        read_number(directory, usage_file, "", &used)) {
        read_number(directory, "memory.stat", inactive_key, &inactive);
        *limit = smaller(*limit, left_of(maximum, left_of(used, inactive)));
    }
}

static void apply_memory_v1(const char *directory, uint64_t *limit)
{
    apply_memory(directory, "memory.limit_in_bytes", "memory.usage_in_bytes",
                 "total_inactive_file ", limit);
}

static void apply_memory_v2(const char *directory, uint64_t *limit)
{
    apply_memory(directory, "memory.max", "memory.current", "inactive_file ", limit);
}

static uint64_t address_space_left(void)
{
    struct rlimit space;
    uint64_t pages;
    if (getrlimit(RLIMIT_AS, &space) || space.rlim_cur == RLIM_INFINITY ||
        !read_number("/proc/self", "statm", "", &pages)) {
        return UINT64_MAX;
    }
    return left_of(space.rlim_cur, pages * (uint64_t)sysconf(_SC_PAGESIZE));
}

uint64_t hzb_memory_size(void)
{
    uint64_t size = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    return smaller(size, groups_limit("memory", apply_size_v1, apply_size_v2));
}

uint64_t hzb_memory_available(void)
{
    uint64_t available = UINT64_MAX, kilobytes;
    if (read_number("/proc", "meminfo", "MemAvailable:", &kilobytes))
        available = kilobytes * 1024;
    available = smaller(available, groups_limit("memory", apply_memory_v1, apply_memory_v2));
    return smaller(available, address_space_left());
}

/* ---- processors ------------------------------------------------------------------------------ */

static void apply_quota(uint64_t quota, uint64_t period, uint64_t *limit)
{
    if (period)
        *limit = smaller(*limit, quota / period + (quota % period != 0));
}

static void apply_cpu_v1(const char *directory, uint64_t *limit)
{
    uint64_t quota, period;
    if (read_number(directory, "cpu.cfs_quota_us", "", &quota) &&
        read_number(directory, "cpu.cfs_period_us", "", &period)) {
        apply_quota(quota, period, limit);
    }
}

/* "quota period", or "max period" for no quota. */
static void apply_cpu_v2(const char *directory, uint64_t *limit)
{
    char path[PATH_BYTES + 64], text[64], *rest;
    snprintf(path, sizeof(path), "%s/cpu.max", directory);
    if (hzb_file_read(path, text, sizeof(text)) && isdigit((unsigned char)*text)) {
        uint64_t quota = strtoull(text, &rest, 10);
        apply_quota(quota, strtoull(rest, NULL, 10), limit);
    }
}

int hzb_usable_cpus(void)
{
    cpu_set_t mask[16]; /* 16384 processors */
    uint64_t cpus = 1;
    if (!sched_getaffinity(0, sizeof(mask), mask))
        cpus = (uint64_t)CPU_COUNT_S(sizeof(mask), mask);
    cpus = smaller(cpus, groups_limit("cpu", apply_cpu_v1, apply_cpu_v2));
    return cpus ? (int)cpus : 1;
}

void hzb_processor_name(char *name, size_t size)
{
    char text[TEXT_BYTES];
    const char *model = NULL;
    if (hzb_file_read("/proc/cpuinfo", text, sizeof(text)))
        model = find_value(text, "model name");
    if (model) {
        model += strspn(model, ": \t");
        snprintf(name, size, "%.*s", (int)strcspn(model, "\n"), model);
    } else {
        struct utsname system;
        snprintf(name, size, "%s processor", uname(&system) ? "unknown" : system.machine);
    }
}

/* ---- instruction sets ------------------------------------------------------------------------ */

const char *hzb_instructions_name(enum hzb_instructions instructions)
{
    static const char *const names[HZB_INSTRUCTIONS_COUNT] = {
        [HZB_INSTRUCTIONS_BASELINE] = "baseline",
        [HZB_INSTRUCTIONS_AVX2] = "avx2",
        [HZB_INSTRUCTIONS_AVX512] = "avx512",
    };
    return names[instructions];
}

enum hzb_instructions hzb_instructions_best(void)
{
#ifdef __x86_64__
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("bmi2") ||
        !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("f16c"))
        return HZB_INSTRUCTIONS_BASELINE;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq"))
        return HZB_INSTRUCTIONS_AVX2;
    return HZB_INSTRUCTIONS_AVX512;
#else
    return HZB_INSTRUCTIONS_BASELINE;
#endif
}

enum hzb_status hzb_instructions_choose(enum hzb_instructions *instructions, struct hzb_error *err)
{
    const enum hzb_instructions best = hzb_instructions_best();
    const char *wanted = getenv("HZB_CPU");
    *instructions = best;
    if (!wanted || !*wanted)
        return HZB_OK;
    char known[64] = "";
    for (int i = best; i >= 0; i--) {
        const char *name = hzb_instructions_name((enum hzb_instructions)i);
        if (!strcmp(wanted, name)) {
            *instructions = (enum hzb_instructions)i;
            return HZB_OK;
        }
        size_t used = strlen(known);
        snprintf(known + used, sizeof(known) - used, "%s%s", used ? ", " : "", name);
    }
    return hzb_fail(err, HZB_VALUE_ERROR,
                    "HZB_CPU: '%.100s' is not an instruction set that hzb can use on this "
                    "processor; set it to %s, or unset it to use %s",
                    wanted, known, hzb_instructions_name(best));
}
