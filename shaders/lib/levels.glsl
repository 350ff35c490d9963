// What the kernels of small tiles share: their push constants, and loads and stores of one texel by
// its key.

#define LANES 64
#include "lib/chains.glsl"

layout(push_constant) uniform Push
{
    uvec4 target_start; // texels before each level written, in the buffers of levels
    uvec2 source_size;
    uvec2 target_size; // of the first level written
    uint source_start; // texels before the source level
    uint source_pitch; // texels from row to row of the source
    uint tile_shift;   // a tile is 2^tile_shift texels wide, 64 in all
    uint tiles_x;      // tiles side by side
    uint tiles;        // tiles a frame
}
push;

// One key for each chain; the second is unused where CHAINS is 1.
struct Keys {
    uint chain[2];
};

Keys keys_of_word(uint bits)
{
    Keys keys;
    keys.chain[0] = key_of(bits, chain_is_max(0u), IGNORE_NAN);
    keys.chain[1] = CHAINS == 2u ? key_of(bits, chain_is_max(1u), IGNORE_NAN) : keys.chain[0];
    return keys;
}

Keys nearer(Keys a, Keys b)
{
    return Keys(uint[2](min(a.chain[0], b.chain[0]), min(a.chain[1], b.chain[1])));
}

uint load_word(uint chain, uint index)
{
    return chain == 0u ? level_words_0.words[index] : level_words_1.words[index];
}

uint load_half(uint chain, uint index)
{
#if HZB_STORAGE16
    return chain == 0u ? uint(level_halves_0.halves[index]) : uint(level_halves_1.halves[index]);
#else
    return load_word(chain, index);
#endif
}

// A source texel, by its index in its level over all frames.
Keys load_texel(uint index)
{
    if (FROM_FRAME)
        return keys_of_word(frame_buffer.words[index]);
    Keys keys;
    index += push.source_start;
    for (uint chain = 0u; chain < CHAINS; chain++) {
        uint bits = STORE_FLOAT32 ? load_word(chain, index) : widen(load_half(chain, index));
        keys.chain[chain] = key_of(bits, chain_is_max(chain), IGNORE_NAN);
    }
    if (CHAINS == 1u)
        keys.chain[1] = keys.chain[0];
    return keys;
}

// The reduction of the footprint of one texel of the first level, tap by tap.
Keys load_footprint(uvec2 texel, uint frame)
{
    uvec2 size = push.source_size;
    uint x0 = first_tap(texel.x, size.x, SIZING), y0 = first_tap(texel.y, size.y, SIZING);
    uint x1 = min(x0 + 1u, size.x - 1u), y1 = min(y0 + 1u, size.y - 1u);
    uint start = frame * push.source_pitch * size.y;
    uint row0 = start + y0 * push.source_pitch, row1 = start + y1 * push.source_pitch;
    Keys keys = nearer(nearer(load_texel(row0 + x0), load_texel(row0 + x1)),
                       nearer(load_texel(row1 + x0), load_texel(row1 + x1)));
    if (SIZING != SIZING_FLOOR)
        return keys;
    bool third_x = third_tap(size.x, SIZING), third_y = third_tap(size.y, SIZING);
    uint x2 = x0 + 2u, row2 = row0 + 2u * push.source_pitch;
    if (third_x)
        keys = nearer(keys, nearer(load_texel(row0 + x2), load_texel(row1 + x2)));
    if (third_y)
        keys = nearer(keys, nearer(load_texel(row2 + x0), load_texel(row2 + x1)));
    if (third_x && third_y)
        keys = nearer(keys, load_texel(row2 + x2));
    return keys;
}

// Store one texel of the nth level written, whose index in its level over all frames is given.
void store_texel(Keys keys, uint level, uint index)
{
    index += push.target_start[level];
    for (uint chain = 0u; chain < CHAINS; chain++) {
        bool is_max = chain_is_max(chain);
        uint bits = bits_of(keys.chain[chain], is_max);
        if (STORE_FLOAT32)
            store_word(chain, index, canonical(bits));
        else
            store_half(chain, index, narrow(bits, is_max, ROUNDING));
    }
}

// The workgroup's tile within its frame; dispatches are two-dimensional where one dimension has too
// few groups, so the last ones may lie beyond the frame.
uint tile_index() { return gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x; }
uvec2 tile_origin(uint tile)
{
    return uvec2(tile % push.tiles_x << push.tile_shift,
                 tile / push.tiles_x << (6u - push.tile_shift));
}
