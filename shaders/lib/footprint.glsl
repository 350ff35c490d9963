// Which source texels a texel stands for, per axis, and the size of the next level. Knows no
// buffers.

const uint SIZING_POW2 = 0u;
const uint SIZING_FLOOR = 1u;
const uint SIZING_CEIL = 2u;

// The first of the taps of texel i over a source side n; the second is one further.
uint first_tap(uint i, uint n, uint sizing)
{
    return sizing == SIZING_POW2 ? min(2u * i, max(n, 2u) - 2u) : 2u * i;
}

// "floor" reads a third tap over an odd side.
bool third_tap(uint n, uint sizing) { return sizing == SIZING_FLOOR && (n & 1u) != 0u && n > 1u; }

uint next_side(uint n, uint sizing)
{
    return sizing == SIZING_CEIL ? (n + 1u) >> 1 : max(1u, n >> 1);
}
