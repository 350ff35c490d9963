/* How a build is cut into dispatches and submissions, and where its levels lie. Recording them is
   ops/hzb/gpu.c. */
#include "ops/hzb/plan.h"

#include "ops/hzb/choose.h"

#include <string.h>

/* Every level starts at a multiple of this: no device has a larger minStorageBufferOffsetAlignment.
 */
#define LEVEL_ALIGNMENT 256

/* A batch goes to the device in submissions of about this size, so that memory for it stays small.
 */
#define SUBMISSION_BYTES (UINT64_C(256) << 20)

#define BATCH_LEVELS 4

/* Of shaders/lib/tiles.glsl: invocations of a workgroup, and levels of a round. */
#define LARGE_GROUP 256
#define ROUND_LEVELS 6

/* Tiles of 128x128 pixels of a submission, those of each chain, from which on they are taken
   instead of those of 64x64. For one chain and two, on average of "pow2" and "ceil", 2560x1440,
   which has 240, takes 4 and 5 % longer by them, 3840x2160, with 510, 2 % longer and 5 % less,
   4096x4096, with 1024, 2 and 3 % less (benchmarks/records/2026-11-30-h200-tiles.md). */
#define WIDE_TILES 1000

/* What there must be of padding, in pixels, for workgroups that fill it: little is as well reduced
   like the frame. (The sides in known.c are such that there is less in some cases and more in the
   others.) And what one of them fills. */
#define LEAST_PADDING (128 * 64 * 64)
#define PADDING_RUN (8 * 64 * 64)

uint64_t hzb_plan_level_bytes(const struct hzb_plan *plan, uint32_t frames, int level)
{
    const struct hzb_level_size *size = &plan->size[level];
    return (uint64_t)frames * size->width * size->height * plan->texel_bytes;
}

const char *hzb_kernel_name(int kernel)
{
    static const char *const names[HZB_KERNELS] = {
        [HZB_KERNEL_PER_LEVEL] = "per_level",
        [HZB_KERNEL_BATCHED] = "batched",
        [HZB_KERNEL_TILES] = "two_pass",
        [HZB_KERNEL_SINGLE_PASS] = "single_pass",
    };
    return names[kernel];
}

static uint64_t align_level(uint64_t bytes)
{
    return (bytes + LEVEL_ALIGNMENT - 1) / LEVEL_ALIGNMENT * LEVEL_ALIGNMENT;
}

uint64_t hzb_plan_level_offset(const struct hzb_plan *plan, uint32_t frames, int chain, int level)
{
    uint64_t offset = 0, before = 0;
    for (int i = 0; i < plan->levels; i++) {
        if (i == level)
            before = offset;
        offset += align_level(hzb_plan_level_bytes(plan, frames, i));
    }
    return (uint64_t)chain * offset + (level == plan->levels ? offset : before);
}

uint64_t hzb_plan_frame_bytes(const struct hzb_plan *plan, uint32_t frames)
{
    return (uint64_t)frames * plan->pitch * plan->height * sizeof(uint32_t);
}

static uint64_t result_bytes(const struct hzb_plan *plan, uint32_t frames)
{
    return hzb_plan_level_offset(plan, frames, plan->chains - 1, plan->levels);
}

static uint64_t chain_bytes(const struct hzb_plan *plan, uint32_t frames)
{
    return hzb_plan_level_offset(plan, frames, 0, plan->levels);
}

static bool even_or_one(struct hzb_level_size size)
{
    return (size.width % 2 == 0 || size.width == 1) && (size.height % 2 == 0 || size.height == 1);
}

/* Levels that a batched dispatch can take from `first` on: an odd side under "floor" has footprints
   of three texels, which cross the tile. */
static int batch_levels(const struct hzb_plan *plan, int first)
{
    int count = 1;
    while (count < BATCH_LEVELS && first + count < plan->levels &&
           (plan->options.sizing != HZB_SIZING_FLOOR || even_or_one(plan->size[first + count - 1])))
        count++;
    return count;
}

/* log2 of the width of a 64-texel tile: square, but no wider or higher than a narrow level. */
static uint32_t tile_shift(struct hzb_level_size size)
{
    for (uint32_t shift = 0; shift < 3; shift++) {
        if (size.width <= UINT32_C(1) << shift)
            return shift;
        if (size.height <= UINT32_C(1) << shift)
            return 6 - shift;
    }
    return 3;
}

static uint32_t divide_up(uint32_t value, uint32_t by) { return value / by + (value % by != 0); }

static uint32_t smaller(uint32_t a, uint32_t b) { return a < b ? a : b; }

static bool has_large_tiles(const struct hzb_limits *limits)
{
    return limits->subgroup_shuffle && limits->group_invocations >= LARGE_GROUP &&
           (!limits->subgroup_size ||
            LARGE_GROUP / limits->subgroup_size <= limits->group_subgroups);
}

static bool is_power_of_two(uint32_t value) { return (value & (value - 1)) == 0; }

/* Whether a chain can be reduced within large tiles: under "floor" only where no side is ever odd,
   and more levels than sides of sixteen million texels have are too many. */
static bool tiles_fit(const struct hzb_plan *plan, const struct hzb_limits *limits)
{
    return has_large_tiles(limits) && plan->levels <= HZB_TILE_LEVELS &&
           (plan->options.sizing != HZB_SIZING_FLOOR ||
            (is_power_of_two(plan->width) && is_power_of_two(plan->height)));
}

/* Add a dispatch for so many workgroups a frame. */
static void add_dispatch(struct hzb_plan *plan, const struct hzb_limits *limits,
                         uint32_t workgroups, struct hzb_dispatch dispatch)
{
    dispatch.source = dispatch.first == 0 ? HZB_SOURCE_INPUT : HZB_SOURCE_LEVEL;
    dispatch.groups[1] = divide_up(workgroups, limits->group_count[0]);
    dispatch.groups[0] = divide_up(workgroups, dispatch.groups[1]);
    plan->dispatches[plan->dispatch_count++] = dispatch;
}

static void add_batches(struct hzb_plan *plan, const struct hzb_limits *limits,
                        enum hzb_kernel_id kernel)
{
    for (int first = 0, count; first < plan->levels; first += count) {
        count = kernel == HZB_KERNEL_BATCHED ? batch_levels(plan, first) : 1;
        struct hzb_level_size size = plan->size[first];
        uint32_t shift = count == 1 ? tile_shift(size) : 3;
        uint32_t tiles_x = divide_up(size.width, UINT32_C(1) << shift);
        uint32_t tiles = tiles_x * divide_up(size.height, UINT32_C(1) << (6 - shift));
        add_dispatch(plan, limits, tiles,
                     (struct hzb_dispatch){.kernel = kernel,
                                           .first = first,
                                           .count = count,
                                           .tile_shift = shift,
                                           .tiles_x = tiles_x,
                                           .tiles = tiles});
    }
}

struct grid {
    uint32_t x, y;
};

static struct grid divide_grid(struct grid grid, uint32_t by)
{
    return (struct grid){divide_up(grid.x, by), divide_up(grid.y, by)};
}

/* Tiles over a frame of two blocks along a side of what an invocation takes have a level before
   those of a round. */
static int first_round_level(uint32_t blocks) { return (int)blocks - 1; }

static uint64_t count_tiles(struct grid grid) { return (uint64_t)grid.x * grid.y; }

/* The tiles of a round that begins with this level. */
static struct grid tiles_of_round(const struct hzb_plan *plan, int level)
{
    const struct hzb_level_size *size = &plan->size[level];
    return divide_grid((struct grid){size->width, size->height}, 32);
}

static struct grid tiles_of_frame(const struct hzb_plan *plan, uint32_t blocks)
{
    return divide_grid((struct grid){plan->width, plan->height}, 64 * blocks);
}

/* Blocks of 4x4 pixels along a side that an invocation takes of the frame. A wide tile stores level
   1 whatever levels there are, and looks one beyond the last that it may store. */
static uint32_t frame_blocks(const struct hzb_plan *plan, uint32_t frames)
{
    if (plan->levels == 1 || plan->levels == HZB_TILE_LEVELS)
        return 1;
    if (plan->options.tile_blocks)
        return (uint32_t)plan->options.tile_blocks;
    uint64_t narrow = count_tiles(tiles_of_frame(plan, 1));
    uint64_t wide = count_tiles(tiles_of_frame(plan, 2));
    /* Each is the work of four narrow ones, of which two may be for nothing: frames of 192x192,
       with four instead of nine, take up to a fifth less, those of 64x192, with two instead of
       three, 6 to 25 % more (the same record). */
    bool fills = wide * 2 <= narrow;
    return fills && wide * frames * (uint64_t)plan->chains >= WIDE_TILES ? 2 : 1;
}

/* Add a dispatch of large tiles, and of `padding` workgroups, whose rows are rows of the dispatch
   where that may be so wide and high. */
static void add_large(struct hzb_plan *plan, const struct hzb_limits *limits,
                      struct grid workgroups, uint32_t padding, struct hzb_dispatch dispatch)
{
    uint32_t rows = workgroups.y + divide_up(padding, workgroups.x);
    add_dispatch(plan, limits, workgroups.x * workgroups.y + padding, dispatch);
    if (workgroups.x <= limits->group_count[0] && rows <= limits->group_count[1]) {
        uint32_t *groups = plan->dispatches[plan->dispatch_count - 1].groups;
        groups[0] = workgroups.x;
        groups[1] = rows;
    }
}

static void add_tiles(struct hzb_plan *plan, uint32_t frames, const struct hzb_limits *limits,
                      bool single_pass)
{
    uint32_t blocks = frame_blocks(plan, frames), padding = 0;
    int levels = first_round_level(blocks) + ROUND_LEVELS;
    struct grid grid = tiles_of_round(plan, first_round_level(blocks)), tiles = grid;
    struct hzb_dispatch over_frame = {
        .kernel = single_pass ? HZB_KERNEL_SINGLE_PASS : HZB_KERNEL_TILES,
        .count = plan->levels < levels || single_pass ? plan->levels : levels,
        .blocks = blocks,
    };
    /* The first tiles beyond the frame hand on what all beyond them would. */
    struct grid real = tiles_of_frame(plan, blocks);
    real.x += real.x < grid.x;
    real.y += real.y < grid.y;
    uint32_t tile_texels = 64 * 64 * blocks * blocks;
    uint64_t beyond = count_tiles(grid) - count_tiles(real);
    if (beyond * tile_texels >= LEAST_PADDING && plan->texel_bytes == 2) {
        tiles = real;
        over_frame.run = PADDING_RUN / tile_texels;
        padding = divide_up(grid.x - real.x, over_frame.run) * real.y +
                  divide_up(grid.y - real.y, over_frame.run) * grid.x;
    }
    over_frame.tiles_x = tiles.x;
    over_frame.tiles = tiles.x * tiles.y;
    add_large(plan, limits, tiles, padding, over_frame);
    if (over_frame.count < plan->levels)
        add_dispatch(plan, limits, 1,
                     (struct hzb_dispatch){.kernel = HZB_KERNEL_TILES,
                                           .first = levels,
                                           .count = plan->levels - levels,
                                           .blocks = blocks,
                                           .tiles_x = tiles.x,
                                           .tiles = tiles.x * tiles.y});
}

/* Slots along an axis for tiles of which the last are beyond the frame, unless there are no more.
 */
static uint32_t slot_row(uint32_t tiles, uint32_t all_tiles)
{
    return smaller((tiles + 2) / 4 * 4 + 4, divide_up(all_tiles, 4) * 4);
}

/* As in shaders/lib/tiles.glsl: slots, and counters of the next round's workgroups. */
uint64_t hzb_plan_slot_bytes(const struct hzb_plan *plan, uint32_t frames)
{
    const struct hzb_dispatch *over_frame = &plan->dispatches[0];
    struct grid tiles = {over_frame->tiles_x, over_frame->tiles / over_frame->tiles_x};
    struct grid workgroups = tiles;
    uint64_t words = 0;
    for (int level = first_round_level(over_frame->blocks); level + ROUND_LEVELS < plan->levels;
         level += ROUND_LEVELS) {
        struct grid all = tiles_of_round(plan, level);
        uint64_t slots = (uint64_t)slot_row(tiles.x, all.x) * slot_row(tiles.y, all.y);
        workgroups = divide_grid(workgroups, 64);
        words += frames * (plan->chains * slots + (uint64_t)workgroups.x * workgroups.y);
        words = (words + 3) / 4 * 4;
        all = tiles_of_round(plan, level + ROUND_LEVELS);
        tiles.x = smaller(workgroups.x + 1, all.x);
        tiles.y = smaller(workgroups.y + 1, all.y);
    }
    return words * sizeof(uint32_t);
}

static enum hzb_status fail_limit(struct hzb_error *err, const struct hzb_plan *plan,
                                  const char *what, uint64_t bytes, const char *limit,
                                  uint64_t value, const char *device_name)
{
    return hzb_fail(err, HZB_VALUE_ERROR,
                    "depth has frames of %u x %u texels, whose %s take %llu bytes; %s allows %llu "
                    "(%s): use another device, or reduce the frame in parts (view_rect)",
                    plan->height, plan->width, what, (unsigned long long)bytes, device_name,
                    (unsigned long long)value, limit);
}

/* The most frames, `most` at most, whose bytes stay within a limit; 0: not even one does. */
static uint32_t frames_within(const struct hzb_plan *plan, uint32_t most, uint64_t limit,
                              uint64_t (*bytes)(const struct hzb_plan *, uint32_t))
{
    uint32_t low = 0;
    while (low < most) {
        uint32_t middle = most - (most - low) / 2;
        if (bytes(plan, middle) <= limit)
            low = middle;
        else
            most = middle - 1;
    }
    return low;
}

static uint64_t submission_bytes(const struct hzb_plan *plan, uint32_t frames)
{
    return hzb_plan_frame_bytes(plan, frames) + result_bytes(plan, frames);
}

static uint32_t modest_frames(const struct hzb_plan *plan, uint32_t most)
{
    uint32_t modest = frames_within(plan, most, SUBMISSION_BYTES, submission_bytes);
    return modest ? modest : 1;
}

struct bound {
    uint64_t (*bytes)(const struct hzb_plan *, uint32_t);
    const char *what, *limit;
    uint64_t value;
};

static enum hzb_status bound_group(struct hzb_plan *plan, const struct bound *bound,
                                   const char *device_name, struct hzb_error *err)
{
    uint32_t frames = frames_within(plan, plan->group_frames, bound->value, bound->bytes);
    if (frames == 0)
        return fail_limit(err, plan, bound->what, bound->bytes(plan, 1), bound->limit, bound->value,
                          device_name);
    plan->group_frames = frames;
    return HZB_OK;
}

/* How many frames a submission takes, and whether the frame is read from an image. */
static enum hzb_status plan_group(struct hzb_plan *plan, int64_t frames,
                                  const struct hzb_limits *limits, const char *device_name,
                                  struct hzb_error *err)
{
    const struct bound bounds[] = {
        {hzb_plan_frame_bytes, "texels", "the largest buffer", limits->buffer_bytes},
        {result_bytes, "levels", "the largest buffer", limits->buffer_bytes},
        {chain_bytes, "levels", "maxStorageBufferRange", limits->storage_range},
    };
    /* A batch of no frames is planned like one. */
    int64_t most = frames < limits->group_count[2] ? frames : limits->group_count[2];
    plan->group_frames = most > 1 ? (uint32_t)most : 1;
    for (size_t i = 0; i < sizeof bounds / sizeof bounds[0]; i++) {
        enum hzb_status status = bound_group(plan, &bounds[i], device_name, err);
        if (status)
            return status;
    }
    struct hzb_dispatch *first = &plan->dispatches[0];
    uint32_t modest = modest_frames(plan, plan->group_frames);
    if (first->kernel == HZB_KERNEL_BATCHED && plan->width <= limits->image_side &&
        plan->height <= limits->image_side && modest <= limits->image_layers) {
        first->source = HZB_SOURCE_IMAGE;
        if (plan->group_frames > limits->image_layers)
            plan->group_frames = limits->image_layers;
    } else {
        const struct bound source = {hzb_plan_frame_bytes, "texels", "maxStorageBufferRange",
                                     limits->storage_range};
        enum hzb_status status = bound_group(plan, &source, device_name, err);
        if (status)
            return status;
    }
    plan->most_frames = plan->group_frames;
    if (plan->group_frames > modest)
        plan->group_frames = modest;
    return HZB_OK;
}

static enum hzb_status check_algorithm(const struct hzb_options *options,
                                       const struct hzb_limits *limits, const char *device_name,
                                       struct hzb_error *err)
{
    int algorithm = options->algorithm;
    if (options->rounding == HZB_ROUNDING_UNREAL && algorithm != HZB_ALGORITHM_AUTO &&
        algorithm != HZB_ALGORITHM_BATCHED)
        return hzb_fail(err, HZB_VALUE_ERROR,
                        "rounding=\"unreal\" is defined by dispatches of four levels and needs "
                        "algorithm=\"auto\" or \"batched\", not \"%s\"",
                        hzb_options_word(options, "algorithm"));
    bool tiles = algorithm == HZB_ALGORITHM_TWO_PASS || algorithm == HZB_ALGORITHM_SINGLE_PASS;
    if (tiles && !has_large_tiles(limits))
        return hzb_fail(err, HZB_VALUE_ERROR,
                        "algorithm=\"%s\" needs workgroups of %d and subgroup shuffles, which %s "
                        "lacks: use algorithm=\"auto\" or \"batched\"",
                        hzb_options_word(options, "algorithm"), LARGE_GROUP, device_name);
    return HZB_OK;
}

/* The kernel for a plan: the one that is asked for, where the levels allow it and the context
   trusts it; else the next simpler one. */
static enum hzb_kernel_id choose_kernel(const struct hzb_plan *plan, uint32_t frames,
                                        const struct hzb_limits *limits)
{
    static const enum hzb_kernel_id kernels[] = {
        [HZB_ALGORITHM_PER_LEVEL] = HZB_KERNEL_PER_LEVEL,
        [HZB_ALGORITHM_BATCHED] = HZB_KERNEL_BATCHED,
        [HZB_ALGORITHM_TWO_PASS] = HZB_KERNEL_TILES,
        [HZB_ALGORITHM_SINGLE_PASS] = HZB_KERNEL_SINGLE_PASS,
    };
    int algorithm = plan->options.algorithm;
    if (algorithm == HZB_ALGORITHM_AUTO) {
        algorithm = hzb_choose_algorithm(plan, frames, tiles_fit(plan, limits), limits);
        /* Only an image may hold a frame that a buffer's range does not. */
        if (hzb_plan_frame_bytes(plan, 1) > limits->storage_range)
            algorithm = HZB_ALGORITHM_BATCHED;
    }
    enum hzb_kernel_id kernel = kernels[algorithm];
    if (kernel == HZB_KERNEL_SINGLE_PASS && limits->distrusted & 1u << kernel)
        kernel = HZB_KERNEL_TILES;
    if ((kernel == HZB_KERNEL_TILES || kernel == HZB_KERNEL_SINGLE_PASS) &&
        (!tiles_fit(plan, limits) || limits->distrusted & 1u << kernel))
        kernel = HZB_KERNEL_BATCHED;
    return kernel;
}

enum hzb_status hzb_plan_make(const struct hzb_options *options, const struct hzb_extent *extent,
                              int64_t frames, const struct hzb_limits *limits,
                              const char *device_name, struct hzb_plan *plan, struct hzb_error *err)
{
    enum hzb_status status = check_algorithm(options, limits, device_name, err);
    if (status)
        return status;
    memset(plan, 0, sizeof *plan);
    plan->options = *options;
    plan->x = (uint32_t)extent->x;
    plan->y = (uint32_t)extent->y;
    plan->width = (uint32_t)extent->width;
    plan->height = (uint32_t)extent->height;
    plan->pitch = (plan->width + 3) / 4 * 4;
    plan->levels = extent->levels;
    plan->chains = hzb_chain_count(options);
    plan->storage16 = limits->storage16;
    plan->unified = limits->unified;
    plan->subgroup_size = limits->subgroup_size;
    plan->result_texel_bytes = options->dtype == HZB_DTYPE_FLOAT32 ? 4 : 2;
    plan->texel_bytes = limits->storage16 ? plan->result_texel_bytes : 4;
    for (int i = 0; i < plan->levels; i++)
        plan->size[i] = (struct hzb_level_size){
            (uint32_t)hzb_level_side(options->sizing, extent->width, i),
            (uint32_t)hzb_level_side(options->sizing, extent->height, i),
        };
    /* What a kernel gains depends on how much there is of a submission. */
    uint32_t together = modest_frames(plan, frames < UINT32_MAX ? (uint32_t)frames : UINT32_MAX);
    enum hzb_kernel_id kernel = choose_kernel(plan, together, limits);
    if (kernel == HZB_KERNEL_PER_LEVEL || kernel == HZB_KERNEL_BATCHED)
        add_batches(plan, limits, kernel);
    else
        add_tiles(plan, together, limits, kernel == HZB_KERNEL_SINGLE_PASS);
    return plan_group(plan, frames, limits, device_name, err);
}
