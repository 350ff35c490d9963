// The orders in which the lanes of a workgroup take the texels of a tile.

// Bit-reversed Morton order: lane bits 0, 2, 4 are x from its highest bit down, bits 1, 3, 5 are y
// likewise, so that lanes L, L + 16, L + 32, L + 48 hold one 2x2 quad and stay neighbours in shared
// memory at every level.
uvec2 morton_texel(uint lane)
{
    return uvec2(((lane & 1u) << 2) | ((lane >> 1) & 2u) | ((lane >> 4) & 1u),
                 ((lane & 2u) << 1) | ((lane >> 2) & 2u) | (lane >> 5));
}

// Morton order: even lane bits are x, odd ones y, so that any aligned 4, 16, 64 … lanes hold a
// square.
uvec2 square_texel(uint lane)
{
    uint both = (lane & 0x55u) | ((lane & 0xaau) << 7); // x in the low half, y in the high one
    both = (both | both >> 1) & 0x3333u;
    both = (both | both >> 2) & 0x0f0fu;
    return uvec2(both & 0xfu, both >> 8);
}
