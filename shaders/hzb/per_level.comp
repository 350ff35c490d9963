#version 460
// The textbook baseline: one dispatch a level, one thread a texel, every tap loaded by itself.
#extension GL_GOOGLE_include_directive : require
#include "lib/levels.glsl"

void main()
{
    uint tile = tile_index(), lane = gl_LocalInvocationIndex;
    uvec2 texel =
        tile_origin(tile) + uvec2(lane & ((1u << push.tile_shift) - 1u), lane >> push.tile_shift);
    if (tile >= push.tiles || any(greaterThanEqual(texel, push.target_size)))
        return;
    uint frame = gl_WorkGroupID.z;
    uint row = frame * push.target_size.y + texel.y;
    store_texel(load_footprint(texel, frame), 0u, row * push.target_size.x + texel.x);
}
