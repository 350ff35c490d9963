// What all HZB kernels share: specialization constants, the buffers of frames and levels, and the
// stores of one texel. Included once by each kernel, which defines before it LANES (the size of its
// workgroups) and may define LEVEL_ACCESS (qualifiers of the buffers of levels).

#extension GL_KHR_shader_subgroup_basic : require
#include "lib/depth_bits.glsl"
#include "lib/footprint.glsl"

#ifndef LEVEL_ACCESS
#define LEVEL_ACCESS
#endif

layout(local_size_x = LANES) in;

layout(constant_id = 0) const uint CHAINS = 1u;
layout(constant_id = 1) const bool FIRST_IS_MAX = false; // the second chain is the opposite
layout(constant_id = 2) const uint SIZING = SIZING_POW2;
layout(constant_id = 3) const uint ROUNDING = ROUNDING_CONSERVATIVE;
layout(constant_id = 4) const bool IGNORE_NAN = false;
layout(constant_id = 5) const bool STORE_FLOAT32 = false;
layout(constant_id = 6) const bool FROM_FRAME = true; // else from a level
layout(constant_id = 7) const uint LEVELS = 1u;
layout(constant_id = 8) const uint SUBGROUP = 1u; // the size that is required of the pipeline, or 1
layout(constant_id = 9) const bool LANE_TABLE = false; // for tests: store lane numbers

// The frames' float32 bits, and the levels of each chain: float16 bits in 16, or in 32 on devices
// without 16-bit storage, or float32 bits.
layout(binding = 0) restrict readonly buffer Frame { uint words[]; }
frame_buffer;
layout(binding = 1) LEVEL_ACCESS buffer Words0 { uint words[]; }
level_words_0;
layout(binding = 2) LEVEL_ACCESS buffer Words1 { uint words[]; }
level_words_1;
#if HZB_STORAGE16
#extension GL_EXT_shader_16bit_storage : require
layout(binding = 1) LEVEL_ACCESS buffer Halves0 { uint16_t halves[]; }
level_halves_0;
layout(binding = 2) LEVEL_ACCESS buffer Halves1 { uint16_t halves[]; }
level_halves_1;
#endif

bool chain_is_max(uint chain) { return (chain == 1u) != FIRST_IS_MAX; }

uint lane_index()
{
    return SUBGROUP > 1u ? gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID
                         : gl_LocalInvocationIndex;
}

void store_word(uint chain, uint index, uint value)
{
    if (chain == 0u)
        level_words_0.words[index] = value;
    else
        level_words_1.words[index] = value;
}

void store_half(uint chain, uint index, uint value)
{
#if HZB_STORAGE16
    if (chain == 0u)
        level_halves_0.halves[index] = uint16_t(value);
    else
        level_halves_1.halves[index] = uint16_t(value);
#else
    store_word(chain, index, value);
#endif
}
