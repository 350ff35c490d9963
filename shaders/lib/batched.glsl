// Unreal's design: up to four levels a dispatch, one workgroup for an 8x8 tile of the first of
// them, the others by Morton-ordered reduction in shared memory. The two kernels that include this
// differ in how they read the source: they define load_first().

#include "lib/levels.glsl"
#include "lib/morton.glsl"

Keys load_first(uvec2 texel, uint frame);

shared uint shared_keys[CHAINS * 64u];

void store_inside(Keys keys, uint level, uvec2 texel, uvec2 size, uint frame, uint lane)
{
    if (any(greaterThanEqual(texel, size)))
        return;
    uint index = (frame * size.y + texel.y) * size.x + texel.x;
    if (LANE_TABLE)
        store_half(0u, index + push.target_start[level], lane);
    else
        store_texel(keys, level, index);
}

// Level `level` of the dispatch: the first 4 * bank lanes hold the level before, and the first
// `bank` lanes take a quad each.
void reduce(uint level, inout Keys keys, uvec2 texel, uvec2 size, uint frame, uint lane)
{
    uint bank = 64u >> (2u * level);
    if (lane < 4u * bank) {
        for (uint chain = 0u; chain < CHAINS; chain++)
            shared_keys[chain * 64u + lane] = keys.chain[chain];
    }
    // One subgroup holds all lanes that take part: its own barrier is enough.
    if (4u * bank <= SUBGROUP)
        subgroupBarrier();
    else
        barrier();
    if (lane >= bank)
        return;
    for (uint chain = 0u; chain < CHAINS; chain++) {
        uint first = chain * 64u + lane;
        keys.chain[chain] =
            min(min(keys.chain[chain], shared_keys[first + bank]),
                min(shared_keys[first + 2u * bank], shared_keys[first + 3u * bank]));
    }
    store_inside(keys, level, texel >> level, size, frame, lane);
}

void main()
{
    uint tile = tile_index();
    if (tile >= push.tiles)
        return;
    uint lane = lane_index(), frame = gl_WorkGroupID.z;
    uvec2 size = push.target_size;
    if (LEVELS == 1u) {
        uvec2 texel = tile_origin(tile) +
                      uvec2(lane & ((1u << push.tile_shift) - 1u), lane >> push.tile_shift);
        if (all(lessThan(texel, size)))
            store_inside(load_first(texel, frame), 0u, texel, size, frame, lane);
        return;
    }
    // Lanes beyond the level repeat its last texel: whatever reads them covers that texel too.
    uvec2 texel = tile_origin(tile) + morton_texel(lane);
    Keys keys = load_first(min(texel, size - 1u), frame);
    store_inside(keys, 0u, texel, size, frame, lane);
    size = uvec2(next_side(size.x, SIZING), next_side(size.y, SIZING));
    reduce(1u, keys, texel, size, frame, lane);
    if (LEVELS > 2u) {
        size = uvec2(next_side(size.x, SIZING), next_side(size.y, SIZING));
        reduce(2u, keys, texel, size, frame, lane);
    }
    if (LEVELS > 3u) {
        size = uvec2(next_side(size.x, SIZING), next_side(size.y, SIZING));
        reduce(3u, keys, texel, size, frame, lane);
    }
}
