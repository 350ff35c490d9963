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

shared bool is_last;

void set_slots(Pair pair, SlotGrid to, uvec2 slot, uint frame)
{
    uint within = slot.y * to.rows.x + slot.x;
    slots.words[slot_index(to, 0u, frame) + within] = uint(pair.x) ^ SLOT_FLIP;
    if (CHAINS == 2u)
        slots.words[slot_index(to, 1u, frame) + within] = uint(pair.y) ^ SLOT_FLIP;
}

// Leave a tile's number; the last along an axis also fill the slots after theirs, which are less
// than eight.
void leave(Pair pair, SlotGrid to, uvec2 tile, uint frame)
{
    uint lane = lane_index();
    uvec2 end = mix(tile + 1u, to.rows, equal(tile + 1u, to.tiles));
    uvec2 slot = tile + uvec2(lane & 7u, lane >> 3);
    if (all(lessThan(slot, end)))
        set_slots(pair, to, slot, frame);
    if (end != tile + 1u)
        barrier(); // all are on their way before the first lane counts them in
}

// Count this workgroup into a tile of the next round.
bool count_in(SlotGrid of, uvec2 next, uint frame)
{
    if (lane_index() == 0u) {
        uvec2 parts = min(of.workgroups - next * 64u, uvec2(64u));
        uint counter = counter_index(of, frame) + next.y * next_workgroups(of).x + next.x;
        is_last = atomicAdd(slots.words[counter], 1u) == parts.x * parts.y - 1u;
    }
    barrier();
    return is_last;
}

void main()
{
    uint frame = gl_WorkGroupID.z;
    uvec2 first = uvec2(0u);
    SlotGrid of =
        SlotGrid(push.tiles, push.tiles,
                 slot_rows(push.tiles, (push.level_size + FRAME_SIDE - 1u) / FRAME_SIDE), 0u);
    if (FROM_FRAME) {
        first = gl_WorkGroupID.xy;
        if (gl_NumWorkGroups.x != push.tiles.x || first.y >= push.tiles.y) {
            uint index = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
            first = uvec2(index % push.tiles.x, index / push.tiles.x);
            if (first.y >= push.tiles.y) {
#if HZB_STORAGE16
                if (REPEATED)
                    fill_beyond_tiles(index - push.tiles.x * push.tiles.y, frame);
#endif
                return;
            }
        }
        Pair pair = reduce_frame_tile(first, frame);
        if (push.levels > FRAME_LEVELS)
            leave(pair, of, first, frame);
        first >>= 6;
        if (!COUNTED || push.levels <= FRAME_LEVELS || !count_in(of, first, frame))
            return;
    }
    for (uint level = FRAME_LEVELS;; level += 6u) {
        SlotGrid from = of;
        uvec2 size = level_size(level), tiles = (size + 31u) >> 5;
        of = next_slots(from, tiles);
        // The last tiles along an axis also take what is beyond them.
        uvec2 tile = first,
              end = COUNTED ? mix(first + 1u, tiles, equal(first + 1u, of.workgroups)) : tiles;
        while (true) {
            Block block = load_left(from, tile * 16u + square_texel(lane_index()), frame);
            Pair pair = reduce_tile(block, level, size, tile, frame);
            if (level + 6u < push.levels && all(lessThan(tile, of.tiles)))
                leave(pair, of, tile, frame);
            tile.x++;
            if (tile.x == end.x)
                tile = uvec2(first.x, tile.y + 1u);
            if (tile.y == end.y)
                break;
            barrier(); // what this tile shared has been read
        }
        if (level + 6u >= push.levels)
            return;
        first >>= 6;
        if (!COUNTED) {
            memoryBarrierBuffer();
            barrier();
        } else if (!count_in(of, first, frame)) {
            return;
        }
    }
}
