/* The known cases of the kernels of large tiles, whose workgroups hand numbers on to one another:
   hundreds of tiles, every phase but slots for tiles beyond those of a later round. What is right
   is what the processor makes of them. The other kernels have none: they are what remains. */
#include "ops/hzb/plan.h"

/* Two frames of three rounds, by blocks along a side that an invocation takes: with too little
   beyond them under "pow2" to be filled by workgroups of their own, and with enough. */
#define FRAMES 2
static const uint32_t plain_side[][2] = {[1] = {4160, 120}, [2] = {12296, 120}};
static const uint32_t padded_side[][2] = {[1] = {4160, 300}, [2] = {8320, 520}};

static const struct hzb_dispatch *first_dispatch(const void *plan)
{
    return &((const struct hzb_plan *)plan)->dispatches[0];
}

int hzb_known_key(const void *plan_)
{
    const struct hzb_plan *plan = plan_;
    const struct hzb_dispatch *first = first_dispatch(plan);
    if (first->kernel != HZB_KERNEL_TILES && first->kernel != HZB_KERNEL_SINGLE_PASS)
        return -1;
    const struct hzb_options *options = &plan->options;
    /* All that pipelines differ in. */
    const int bits[] = {
        first->blocks > 1,
        first->kernel == HZB_KERNEL_SINGLE_PASS,
        first->run != 0,
        plan->chains == 2,
        hzb_chain_is_max(options, 0),
        options->sizing == HZB_SIZING_POW2,
        options->rounding == HZB_ROUNDING_NEAREST,
        options->nan == HZB_NAN_IGNORE,
        options->dtype == HZB_DTYPE_FLOAT32,
    };
    int key = 0;
    for (size_t i = 0; i < sizeof bits / sizeof bits[0]; i++)
        key |= bits[i] << i;
    return key;
}

uint32_t hzb_known_distrust(const void *plan) { return 1u << first_dispatch(plan)->kernel; }

void hzb_known_make(const void *plan_, struct hzb_known *known)
{
    const struct hzb_plan *plan = plan_;
    const struct hzb_dispatch *first = first_dispatch(plan);
    bool single = first->kernel == HZB_KERNEL_SINGLE_PASS;
    const uint32_t *side = (first->run ? padded_side : plain_side)[first->blocks];
    struct hzb_request *request = known->request;
    struct hzb_options *options = &request->options;
    *options = plan->options;
    options->algorithm = single ? HZB_ALGORITHM_SINGLE_PASS : HZB_ALGORITHM_TWO_PASS;
    options->tile_blocks = first->blocks;
    options->has_view_rect = options->has_levels = options->lane_table = 0;
    /* Where large tiles are for "floor", it is as "ceil". */
    if (options->sizing == HZB_SIZING_FLOOR)
        options->sizing = HZB_SIZING_CEIL;
    enum hzb_sizing sizing = (enum hzb_sizing)options->sizing;
    request->extent = (struct hzb_extent){
        .width = side[0], .height = side[1], .levels = hzb_level_count(sizing, side[0], side[1])};

    known->frames = FRAMES;
    known->width = side[0];
    known->height = side[1];
    for (int chain = 0; chain < plan->chains; chain++)
        for (int i = 0; i < request->extent.levels; i++)
            known->output_bytes[known->output_count++] =
                (uint64_t)hzb_level_side(sizing, side[0], i) *
                (uint64_t)hzb_level_side(sizing, side[1], i) * plan->result_texel_bytes;
}

void hzb_known_fill(const struct hzb_known *known, uint32_t *words)
{
    static const uint32_t rare[] = {
        0x00000000, 0x80000000, 0x00000001, 0x33000000, 0x387fffff, 0x38800000, 0x477fe000,
        0x477fffff, 0x47800000, 0x7f800000, 0xff800000, 0x7fc00001, 0xbf800001, 0x80000001,
    };
    uint32_t count = sizeof rare / sizeof rare[0], state = 1;
    uint64_t texels = (uint64_t)known->frames * known->width * known->height;
    for (uint64_t i = 0; i < texels; i++) {
        state = state * 1664525u + 1013904223u;
        /* Of [0.5, 1), and one in 4096 a number of the list, so that most tiles have their own. */
        bool is_rare = (state >> 20) == 0;
        words[i] = is_rare ? rare[(state >> 8) % count] : 0x3f000000u | state >> 9;
    }
}
