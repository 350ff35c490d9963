// What a "pow2" chain holds beyond its frame: the last two rows or columns of the frame, reduced,
// and repeated along the other axis. A workgroup writes several tiles of it, 16 bytes at a time,
// which is less work than those tiles would be.

#include "lib/tiles.glsl"

layout(binding = 1) restrict writeonly buffer Quads0 { uvec4 quads[]; }
level_quads_0;
layout(binding = 2) restrict writeonly buffer Quads1 { uvec4 quads[]; }
level_quads_1;

// The numbers along a side of a tile, then what they reduce to, level by level.
const uint SIDE_NUMBERS = 2u * FRAME_SIDE - 1u;
shared int side_first[REPEATED ? SIDE_NUMBERS : 1u];
shared int side_second[REPEATED && CHAINS == 2u ? SIDE_NUMBERS : 1u];

uint side_start(uint level) { return 2u * FRAME_SIDE - (2u * FRAME_SIDE >> level); }

Pair side_pair(uint place)
{
    return Pair(side_first[place], CHAINS == 2u ? side_second[place] : 0);
}

void set_side(uint place, Pair pair)
{
    side_first[place] = pair.x;
    if (CHAINS == 2u)
        side_second[place] = pair.y;
}

// Eight texels, the same ones or side by side.
void store_eight(uint chain, uint index, uint place, bool same)
{
    bool is_max = chain_is_max(chain);
    uvec4 words;
    [[unroll]] for (uint i = 0u; i < 4u; i++) {
        uint left = place + (same ? 0u : 2u * i), right = place + (same ? 0u : 2u * i + 1u);
        words[i] = stored_halves(chain == 0u ? side_first[left] : side_second[left],
                                 chain == 0u ? side_first[right] : side_second[right], is_max);
    }
    if (chain == 0u)
        level_quads_0.quads[index >> 3] = words;
    else
        level_quads_1.quads[index >> 3] = words;
}

// Fill `count` tiles beyond the frame, a power of two: those from `tile` on downwards where they
// are below it, else to the right. Those that are beyond the levels are left out.
void fill_tiles(uvec2 tile, uint count, bool below, uint frame)
{
    uint lane = lane_index();
    if (lane < FRAME_SIDE)
        set_side(lane,
                 reduce_quad(load_quad(
                     tile * FRAME_SIDE + (below ? uvec2(lane, 0u) : uvec2(0u, lane)), frame)));
    barrier();
    [[dont_unroll]] for (uint level = 1u; level < FRAME_LEVELS; level++) {
        uint place = side_start(level - 1u) + 2u * lane;
        if (lane < FRAME_SIDE >> level)
            set_side(side_start(level) + lane, nearer(side_pair(place), side_pair(place + 1u)));
        barrier();
    }
    [[dont_unroll]] for (uint level = 0u; level < min(push.levels, FRAME_LEVELS); level++) {
        uvec2 size = level_size(level), origin = tile * (FRAME_SIDE >> level);
        uint start = frame_start(level, size, frame);
        // Side by side where that can be eight texels, else one by one.
        uint width = (below ? 1u : count) * (FRAME_SIDE >> level),
             texels = count * (FRAME_SIDE * FRAME_SIDE >> 2u * level);
        uint step = ((width | size.x | origin.x) & 7u) == 0u ? 8u : 1u;
        for (uint i = lane * step; i < texels; i += LANES * step) {
            uvec2 at = uvec2(i & (width - 1u), i >> findMSB(width));
            uvec2 texel = origin + at;
            if (any(greaterThanEqual(texel, size)))
                continue;
            uint index = start + texel.y * size.x + texel.x;
            uint place = side_start(level) + (below ? at.x : at.y);
            if (step == 1u) {
                store_pair(side_pair(place), index);
            } else {
                store_eight(0u, index, place, !below);
                if (CHAINS == 2u)
                    store_eight(1u, index, place, !below);
            }
        }
    }
}

// The part of a workgroup beyond those of push.tiles: first what is to the right of them, then all
// that is below.
void fill_beyond_tiles(uint index, uint frame)
{
    uint run = push.run;
    uvec2 grid = (push.level_size + FRAME_SIDE - 1u) / FRAME_SIDE,
          runs = (grid - push.tiles + run - 1u) / run;
    if (index < runs.x * push.tiles.y) {
        fill_tiles(uvec2(push.tiles.x + index % runs.x * run, index / runs.x), run, false, frame);
        return;
    }
    index -= runs.x * push.tiles.y;
    uvec2 tile = uvec2(index % grid.x, push.tiles.y + index / grid.x * run);
    if (tile.y < grid.y)
        fill_tiles(tile, run, true, frame);
}
