// The order in which the 64 lanes of a workgroup take the texels of an 8x8 tile.

// Bit-reversed Morton order: lane bits 0, 2, 4 are x from its highest bit down, bits 1, 3, 5 are y
// likewise, so that lanes L, L + 16, L + 32, L + 48 hold one 2x2 quad and stay neighbours in shared
// memory at every level.
uvec2 morton_texel(uint lane)
{
    return uvec2(((lane & 1u) << 2) | ((lane >> 1) & 2u) | ((lane >> 4) & 1u),
                 ((lane & 2u) << 1) | ((lane >> 2) & 2u) | (lane >> 5));
}
