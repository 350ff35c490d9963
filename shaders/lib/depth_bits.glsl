// Depth as integer bit patterns: order-preserving keys, the NaN rule, directed rounding to float16.
// Integers alone, because drivers differ in float16 stores, subnormals and NaN. Knows no buffers.

const uint ROUNDING_CONSERVATIVE = 0u;
const uint ROUNDING_NEAREST = 1u;
const uint ROUNDING_UNREAL = 2u;

const uint INFINITY_BITS = 0x7f800000u;
const uint NAN_BITS = 0x7fc00000u;
const uint NAN_HALF = 0x7e00u;

// The two keys that no number has.
const uint KEY_FIRST = 0u;
const uint KEY_LAST = 0xffffffffu;

// A reduction is always the minimum of keys: keys ascend with the number for a minimum and descend
// with it for a maximum. A NaN comes first where it must win, last where any number must.
uint key_of(uint bits, bool is_max, bool ignore_nan)
{
    if ((bits & 0x7fffffffu) > INFINITY_BITS)
        return ignore_nan ? KEY_LAST : KEY_FIRST;
    uint ascending = (bits >> 31) != 0u ? ~bits : bits | 0x80000000u;
    return is_max ? ~ascending : ascending;
}

uint bits_of(uint key, bool is_max)
{
    if (key == KEY_FIRST || key == KEY_LAST)
        return NAN_BITS;
    uint ascending = is_max ? ~key : key;
    return (ascending >> 31) != 0u ? ascending & 0x7fffffffu : ~ascending;
}

bool is_nan(uint bits) { return (bits & 0x7fffffffu) > INFINITY_BITS; }

// float16 bits to float32 bits, exact.
uint widen(uint half_bits)
{
    uint sign = (half_bits & 0x8000u) << 16;
    uint magnitude = half_bits & 0x7fffu;
    if (magnitude >= 0x7c00u)
        return sign | INFINITY_BITS | ((magnitude & 0x3ffu) << 13);
    if (magnitude >= 0x400u)
        return sign | ((magnitude << 13) + 0x38000000u);
    if (magnitude == 0u)
        return sign;
    // A subnormal is magnitude * 2^-24: its highest bit, at position p, has the weight 2^(p - 24).
    int p = findMSB(magnitude);
    return sign | (uint(p + 103) << 23) | ((magnitude << (23 - p)) & 0x7fffffu);
}

// What truncation to float16 lost of a magnitude.
const uint LOST_NOTHING = 0u;
const uint LOST_BELOW_HALF = 1u;
const uint LOST_HALF = 2u;
const uint LOST_ABOVE_HALF = 3u;

// The float16 magnitude next below or equal to a float32 magnitude that is not NaN.
uint truncate_magnitude(uint magnitude, out uint lost)
{
    lost = LOST_NOTHING;
    if (magnitude == INFINITY_BITS)
        return 0x7c00u;
    if (magnitude >= 0x47800000u) { // 65536: beyond what the exponent holds
        lost = LOST_ABOVE_HALF;
        return 0x7bffu;
    }
    uint kept, rest, middle;
    if (magnitude >= 0x38800000u) { // 2^-14: a normal float16
        kept = (magnitude - 0x38000000u) >> 13;
        rest = magnitude & 0x1fffu;
        middle = 0x1000u;
    } else if (magnitude >= 0x33000000u) { // 2^-25: a subnormal float16, or half of the smallest
        uint shift = 126u - (magnitude >> 23);
        uint significand = (magnitude & 0x7fffffu) | 0x800000u;
        kept = significand >> shift;
        rest = significand & ((1u << shift) - 1u);
        middle = 1u << (shift - 1u);
    } else {
        lost = magnitude == 0u ? LOST_NOTHING : LOST_BELOW_HALF;
        return 0u;
    }
    if (rest != 0u)
        lost = rest < middle ? LOST_BELOW_HALF : (rest == middle ? LOST_HALF : LOST_ABOVE_HALF);
    return kept;
}

// float32 bits to float16 bits; is_max also says which way "conservative" goes. Never -0.
uint narrow(uint bits, bool is_max, uint rounding)
{
    if (is_nan(bits))
        return NAN_HALF;
    bool negative = (bits >> 31) != 0u && bits != 0x80000000u;
    uint lost;
    uint magnitude = truncate_magnitude(bits & 0x7fffffffu, lost);
    bool away;
    if (rounding == ROUNDING_CONSERVATIVE)
        away = lost != LOST_NOTHING && negative != is_max;
    else if (rounding == ROUNDING_NEAREST)
        away = lost == LOST_ABOVE_HALF || (lost == LOST_HALF && (magnitude & 1u) != 0u);
    else
        away = is_max && !negative && magnitude < 0x7c00u;
    magnitude += uint(away);
    return magnitude == 0u || !negative ? magnitude : magnitude | 0x8000u;
}

// float32 bits as they are stored: one NaN, no -0.
uint canonical(uint bits)
{
    if (is_nan(bits))
        return NAN_BITS;
    return bits == 0x80000000u ? 0u : bits;
}
