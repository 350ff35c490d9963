#version 460
// A whole chain by large tiles, in rounds: those over the frame, then those over what they left.
// "two_pass" dispatches the frame's and then one workgroup a frame for all other rounds.
// "single_pass" dispatches once: the last workgroup to leave a number in a tile of the next round
// goes on with that. Nobody waits for a workgroup that has not done all its work.
#extension GL_GOOGLE_include_directive : require

// Workgroups beyond those of tiles fill what "pow2" holds beyond the frame; for float16 in 16 bits.
layout(constant_id = 11) const bool REPEATED = false;
#if HZB_STORAGE16
#include "lib/padding.glsl"
#else
#include "lib/tiles.glsl"
#endif

layout(constant_id = 10) const bool COUNTED = false; // "single_pass"

// Tiles of the frame along a side that a workgroup takes one after another: a power of two, which
// is the less waiting for counts the more they are.
layout(constant_id = 12) const uint SPAN = 1u;

shared bool is_last;

// Leave a tile's number, which its first lane has; the last tiles along an axis also fill the slots
// beyond theirs.
void leave(Pair pair, uint round, uvec2 tiles, uvec2 tile, uint frame)
{
    uint lane = lane_index();
    uvec2 rows = slot_rows(round);
    uvec2 end = mix(tile + 1u, rows, equal(tile + 1u, tiles));
    uvec2 size = end - tile;
    if (size.x * size.y > 1u) {
        barrier();
        if (lane == 0u)
            share(0u, pair);
        barrier();
        pair = shared_pair(0u);
    }
    uint first = slot_index(round, 0u, frame), second = slot_index(round, 1u, frame);
    for (uint i = lane; i < size.x * size.y; i += LANES) {
        uint within = (tile.y + i / size.x) * rows.x + tile.x + i % size.x;
        for (uint chain = 0u; chain < CHAINS; chain++) {
            uint index = (chain == 0u ? first : second) + within;
            slots.words[index] = uint(chain == 0u ? pair.x : pair.y) ^ SLOT_FLIP;
        }
    }
    if (size.x * size.y > 1u)
        barrier(); // the first lane counts all of them in
}

// Count this workgroup into a tile of the next round, for which `tiles` of this one are.
bool count_in(uint round, uvec2 tiles, uvec2 next, uint frame)
{
    uvec2 grid = grid_of(round + 1u);
    if (lane_index() == 0u) {
        uvec2 parts = min(tiles - next * 64u, uvec2(64u));
        if (round == 0u)
            parts = (parts + SPAN - 1u) / SPAN;
        uint counter = slot_index(round, CHAINS, 0u) + (frame * grid.y + next.y) * grid.x + next.x;
        is_last = atomicAdd(slots.words[counter], 1u) == parts.x * parts.y - 1u;
    }
    barrier();
    return is_last;
}

void main()
{
    uint frame = gl_WorkGroupID.z, index = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    uvec2 workgroups = (push.tiles + SPAN - 1u) / SPAN;
    uvec2 first = uvec2(index % workgroups.x, index / workgroups.x) * SPAN;
    if (first.y >= push.tiles.y) {
#if HZB_STORAGE16
        if (REPEATED)
            fill_beyond_tiles(index - workgroups.x * workgroups.y, frame);
#endif
        return;
    }
    uint round = push.first_round_and_run & 1u;
    if (round != 0u)
        first = uvec2(0u);
    uvec2 tile = first;
    while (true) {
        uint level = 6u * round;
        uvec2 cell = tile * 16u + square_texel(lane_index());
        Block block;
        if (round == 0u)
            block = load_frame(cell, frame);
        else
            block = load_round(round - 1u, cell, frame);
        Pair pair = reduce_tile(block, level, tile, frame);
        if (level + 6u < push.levels)
            leave(pair, round, round == 0u ? push.tiles : grid_of(round), tile, frame);
        uvec2 tiles = (push.tiles + (1u << 6u * round) - 1u) >> 6u * round;
        if (SPAN > 1u || round != 0u) {
            // The last tiles along an axis also take what is beyond them.
            uvec2 end = round == 0u ? min(first + SPAN, tiles)
                        : COUNTED   ? mix(first + 1u, grid_of(round), equal(first + 1u, tiles))
                                    : grid_of(round);
            tile.x++;
            if (tile.x == end.x)
                tile = uvec2(first.x, tile.y + 1u);
            if (tile.y < end.y) {
                barrier(); // what this tile shared has been read
                continue;
            }
        }
        if (level + 6u >= push.levels)
            return;
        first >>= 6;
        if (COUNTED) {
            if (!count_in(round, tiles, first, frame))
                return;
        } else if (round == 0u) {
            return;
        } else {
            memoryBarrierBuffer();
            barrier();
        }
        tile = first;
        round++;
    }
}
