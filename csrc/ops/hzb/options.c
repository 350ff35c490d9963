/* Names of options, the checks that need no device, and the arithmetic of level sides. */
#include "ops/hzb/options.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

struct word_list {
    const char *argument;
    size_t field; /* of struct hzb_options */
    const char *words[6];
};

/* The order of the words is the order of the enums. */
static const struct word_list word_lists[] = {
    {"bounds", offsetof(struct hzb_options, bounds), {"furthest", "closest", "both"}},
    {"sizing", offsetof(struct hzb_options, sizing), {"pow2", "floor", "ceil"}},
    {"rounding", offsetof(struct hzb_options, rounding), {"conservative", "nearest", "unreal"}},
    {"nan", offsetof(struct hzb_options, nan), {"propagate", "ignore"}},
    {"algorithm",
     offsetof(struct hzb_options, algorithm),
     {"auto", "per_level", "batched", "two_pass", "single_pass"}},
};

enum { WORD_LISTS = sizeof word_lists / sizeof word_lists[0] };
enum { MAX_WORDS = sizeof word_lists[0].words / sizeof word_lists[0].words[0] };

void hzb_options_default(struct hzb_options *options)
{
    memset(options, 0, sizeof *options);
    options->reversed_z = 1;
}

static const struct word_list *find_list(const char *argument)
{
    for (int i = 0; i < WORD_LISTS; i++)
        if (strcmp(word_lists[i].argument, argument) == 0)
            return &word_lists[i];
    return NULL;
}

const char *hzb_options_word(const struct hzb_options *options, const char *argument)
{
    const struct word_list *list = find_list(argument);
    int32_t chosen;
    memcpy(&chosen, (const char *)options + list->field, sizeof chosen);
    return list->words[chosen];
}

enum hzb_status hzb_options_set(struct hzb_options *options, const char *argument,
                                const char *value, struct hzb_error *err)
{
    const struct word_list *list = find_list(argument);
    if (!list)
        return hzb_fail(err, HZB_TYPE_ERROR, "%s is not an option of a build", argument);
    for (int i = 0; i < MAX_WORDS && list->words[i]; i++) {
        if (strcmp(list->words[i], value) == 0) {
            int32_t chosen = i;
            memcpy((char *)options + list->field, &chosen, sizeof chosen);
            return HZB_OK;
        }
    }
    char known[128] = "";
    for (int i = 0; i < MAX_WORDS && list->words[i]; i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s\"%s\"", i ? ", " : "", list->words[i]);
    }
    return hzb_fail(err, HZB_VALUE_ERROR, "%s must be one of %s, not \"%.100s\"", argument, known,
                    value);
}

/* What "unreal" cannot be combined with: it reproduces one engine's chain of dispatches. */
static enum hzb_status check_unreal(const struct hzb_options *options, struct hzb_error *err)
{
    const char *clash = NULL;
    if (!options->reversed_z)
        clash = "reversed_z=True, not reversed_z=False";
    else if (options->sizing != HZB_SIZING_POW2)
        clash = options->sizing == HZB_SIZING_FLOOR ? "sizing=\"pow2\", not sizing=\"floor\""
                                                    : "sizing=\"pow2\", not sizing=\"ceil\"";
    else if (options->dtype != HZB_DTYPE_FLOAT16)
        clash = "dtype=numpy.float16, not dtype=numpy.float32";
    if (!clash)
        return HZB_OK;
    return hzb_fail(err, HZB_VALUE_ERROR,
                    "rounding=\"unreal\" imitates Unreal Engine and needs %s; use "
                    "rounding=\"conservative\" or \"nearest\" with that",
                    clash);
}

static enum hzb_status check_view_rect(const struct hzb_options *options, int64_t width,
                                       int64_t height, struct hzb_error *err)
{
    const int64_t *rect = options->view_rect;
    if (0 <= rect[0] && rect[0] < rect[2] && rect[2] <= width && 0 <= rect[1] &&
        rect[1] < rect[3] && rect[3] <= height)
        return HZB_OK;
    return hzb_fail(err, HZB_VALUE_ERROR,
                    "view_rect must be (x0, y0, x1, y1) with 0 <= x0 < x1 <= %lld (the width) and "
                    "0 <= y0 < y1 <= %lld (the height), not (%lld, %lld, %lld, %lld)",
                    (long long)width, (long long)height, (long long)rect[0], (long long)rect[1],
                    (long long)rect[2], (long long)rect[3]);
}

enum hzb_status hzb_options_check(const struct hzb_options *options, int64_t width, int64_t height,
                                  struct hzb_extent *extent, struct hzb_error *err)
{
    if (width == 0 || height == 0)
        return hzb_fail(err, HZB_VALUE_ERROR,
                        "depth must have at least one row and one column, not %lld x %lld",
                        (long long)height, (long long)width);
    if (options->rounding == HZB_ROUNDING_UNREAL) {
        enum hzb_status status = check_unreal(options, err);
        if (status)
            return status;
    }
    *extent = (struct hzb_extent){.width = width, .height = height};
    if (options->has_view_rect) {
        enum hzb_status status = check_view_rect(options, width, height, err);
        if (status)
            return status;
        extent->x = options->view_rect[0];
        extent->y = options->view_rect[1];
        extent->width = options->view_rect[2] - extent->x;
        extent->height = options->view_rect[3] - extent->y;
    }
    if (extent->width > HZB_MAX_TEXELS / extent->height)
        return hzb_fail(err, HZB_VALUE_ERROR,
                        "depth has frames of %lld x %lld texels; at most 2^31 texels a frame are "
                        "accepted: reduce it in parts (view_rect)",
                        (long long)extent->height, (long long)extent->width);
    extent->levels = hzb_level_count(options->sizing, extent->width, extent->height);
    if (!options->has_levels)
        return HZB_OK;
    if (options->levels < 1 || options->levels > extent->levels)
        return hzb_fail(err, HZB_VALUE_ERROR,
                        "levels must be from 1 to %d (the whole chain of %lld x %lld texels), not "
                        "%lld",
                        extent->levels, (long long)extent->height, (long long)extent->width,
                        (long long)options->levels);
    extent->levels = (int)options->levels;
    return HZB_OK;
}

static int64_t next_side(enum hzb_sizing sizing, int64_t side)
{
    if (sizing == HZB_SIZING_CEIL)
        return (side + 1) / 2;
    return side > 1 ? side / 2 : 1;
}

static int64_t round_up_to_pow2(int64_t side)
{
    int64_t power = 1;
    while (power < side)
        power *= 2;
    return power;
}

int64_t hzb_level_side(enum hzb_sizing sizing, int64_t source, int level)
{
    if (sizing == HZB_SIZING_POW2)
        source = round_up_to_pow2(source);
    for (int i = 0; i <= level; i++)
        source = next_side(sizing, source);
    return source;
}

int hzb_level_count(enum hzb_sizing sizing, int64_t width, int64_t height)
{
    int count = 1;
    while (hzb_level_side(sizing, width, count - 1) > 1 ||
           hzb_level_side(sizing, height, count - 1) > 1)
        count++;
    return count;
}

int64_t hzb_covered_side(enum hzb_sizing sizing, int64_t source, int level)
{
    int64_t side = hzb_level_side(sizing, source, level);
    int64_t covered = ((source - 1) >> (level + 1)) + 1;
    return covered < side ? covered : side;
}

bool hzb_chain_is_max(const struct hzb_options *options, int chain)
{
    bool closest =
        options->bounds == HZB_BOUNDS_BOTH ? chain == 1 : options->bounds == HZB_BOUNDS_CLOSEST;
    return closest == (options->reversed_z != 0);
}

int hzb_chain_count(const struct hzb_options *options)
{
    return options->bounds == HZB_BOUNDS_BOTH ? 2 : 1;
}
