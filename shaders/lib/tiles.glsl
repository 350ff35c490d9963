// Large tiles: a workgroup of 256 lanes reduces 64x64 numbers to one through six levels, each lane
// 4x4 of them in registers, neighbours by shuffles where a subgroup size is known, the rest through
// shared memory. Over a frame it may also be 128x128 pixels, a level more. What the tiles of one
// round leave lies in slots, of which 64x64 are a tile of the next round, until one is left. Here
// is one tile; the rounds are in hzb/tiles.comp.
// For roundings that are monotone and idempotent, so that numbers are rounded once, and for sizings
// whose footprints do not cross tiles.

#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_spirv_intrinsics : require
#define LANES 256
#define LEVEL_ACCESS restrict writeonly
#include "lib/chains.glsl"
#include "lib/morton.glsl"

// Blocks of 4x4 pixels along a side that a lane takes of the frame: 1 or 2. Two read and store more
// at a time and leave fewer tiles, but there have to be enough of them for all of a device.
layout(constant_id = 12) const uint BLOCKS = 1u;

// Of a tile over the frame: its levels, and texels of the first one along a side.
const uint FRAME_LEVELS = 5u + BLOCKS;
const uint FRAME_SIDE = 32u * BLOCKS;

layout(push_constant) uniform Push
{
    uvec2 source_size;
    uvec2 level_size; // of the first level
    uvec2 tiles;      // that are reduced; what is beyond them repeats along an axis
    uint levels;
    uint run;       // tiles of padding that a further workgroup fills: a power of two
    uint start[24]; // texels before each level, in the buffers of levels
}
push;

layout(binding = 0) restrict readonly buffer FrameQuads { uvec4 quads[]; }
frame_quads;

// The slots of each round, chain after chain, frame after frame; then for each 64x64 of them the
// number of workgroups that wrote theirs. Of a single pass both are 0 until they are written. Two
// views of the same words, which SPIR-V wants to be told (20: Aliased).
layout(binding = 3) spirv_decorate(20) coherent volatile buffer Slots { uint words[]; }
slots;
layout(binding = 3) spirv_decorate(20) coherent volatile buffer SlotQuads { uvec4 quads[]; }
slot_quads;

// A number of each chain, as an int: a smaller one is preferred. Either the ordered bits of a
// float32, or those of a float16 in the upper half; then what is in the lower one does not count.
#define Pair ivec2

// Makes 0 of the one int that no number has.
const uint SLOT_FLIP = 0x80000000u;

// Numbers that pass through shared memory where shuffles do not reach: of all lanes, of every
// fourth one, and between the two times that both may be. Each has a place of its own, so that none
// has to wait until another one has been read.
const uint PASSED_BY_LANES = SUBGROUP < 4u ? LANES : 0u;
const uint PASSED_BY_FOURS = SUBGROUP < 16u ? LANES / 4u : 0u;
const uint PASSED_AT_A_TIME = PASSED_BY_LANES + PASSED_BY_FOURS;
const uint PASSED = 2u * PASSED_AT_A_TIME + LANES / 16u;
shared int shared_first[PASSED];
shared int shared_second[CHAINS == 2u ? PASSED : 1u];

Pair nearer(Pair a, Pair b) { return CHAINS == 2u ? min(a, b) : Pair(min(a.x, b.x), 0); }

// Where NaN lies among ascending float32: beyond an infinity, so that it wins or loses.
int nan_order(bool is_max) { return is_max == IGNORE_NAN ? int(0x803fffffu) : int(NAN_BITS); }

ivec4 order_of(uvec4 bits, bool is_max)
{
    ivec4 ascending = ivec4(bits ^ ((0u - (bits >> 31)) & 0x7fffffffu));
    ascending = mix(ascending, ivec4(nan_order(is_max)),
                    greaterThan(bits & 0x7fffffffu, uvec4(INFINITY_BITS)));
    return is_max ? ~ascending : ascending;
}

// The bits to store.
uint stored_word(int number, bool is_max)
{
    int ascending = is_max ? ~number : number;
    if (ascending >= 0)
        return uint(ascending);
    return ascending == int(0x803fffffu) ? NAN_BITS : uint(ascending) ^ 0x7fffffffu;
}

uint stored_half(uint ascending)
{
    if (ascending < 0x8000u)
        return ascending;
    return ascending == 0x81ffu ? NAN_HALF : ascending ^ 0x7fffu;
}

uint stored_halves(int left, int right, bool is_max)
{
    uint halves = (uint(left) >> 16) | (uint(right) & 0xffff0000u);
    if (is_max)
        halves = ~halves;
    if ((halves & 0x80008000u) != 0u)
        halves = stored_half(halves & 0xffffu) | stored_half(halves >> 16) << 16;
    return halves;
}

// Any float32, ordered, to what a pair holds of it.
int hold(int number, bool is_max)
{
    uint bits = stored_word(number, is_max);
    if (is_nan(bits)) {
        if (STORE_FLOAT32)
            return number;
        int half_nan = nan_order(is_max) < 0 ? int(0x81ff0000u) : int(NAN_HALF << 16);
        return is_max ? ~half_nan : half_nan;
    }
    bits = STORE_FLOAT32 ? canonical(bits) : narrow(bits, is_max, ROUNDING) << 16;
    int ascending = int(bits ^ ((0u - (bits >> 31)) & 0x7fffffffu));
    return is_max ? ~ascending : ascending;
}

// The number of each chain of a quad of any words.
Pair reduce_quad(uvec4 words)
{
    Pair pair;
    [[dont_unroll]] for (uint chain = 0u; chain < CHAINS; chain++) {
        bool is_max = chain_is_max(chain);
        ivec4 numbers = order_of(words, is_max);
        int number = hold(min(min(numbers.x, numbers.y), min(numbers.z, numbers.w)), is_max);
        pair = chain == 0u ? Pair(number, number) : Pair(pair.x, number);
    }
    return pair;
}

// Numbers of a usual range, which round by one multiply-add: 0 and 2^-14 <= x < 65536.
ivec4 hold_usual(uvec4 bits, bool is_max)
{
    if (STORE_FLOAT32)
        return is_max ? ~ivec4(bits) : ivec4(bits);
    uvec4 up = uvec4(is_max ? 0xfff8u : 0u);
    if (ROUNDING == ROUNDING_NEAREST)
        up = 0x7ff8u + ((bits >> 10) & 8u);
    ivec4 halves = ivec4(max(bits, 0x38000000u) * 8u + 0x40000000u + up);
    return is_max ? ~halves : halves;
}

// What is left of each of the four quads of 4x4 numbers.
#define REDUCE_QUADS(name, vector, nearest)                                                        \
    vector name(vector rows[4])                                                                    \
    {                                                                                              \
        vector upper = nearest(rows[0], rows[1]), lower = nearest(rows[2], rows[3]);               \
        return vector(nearest(upper.x, upper.y), nearest(upper.z, upper.w),                        \
                      nearest(lower.x, lower.y), nearest(lower.z, lower.w));                       \
    }
REDUCE_QUADS(quad_min, uvec4, min)
REDUCE_QUADS(quad_max, uvec4, max)
REDUCE_QUADS(quad_first, ivec4, min)

// The four quads of 4x4 numbers: left and right of the upper row, then of the lower one.
struct Block {
    ivec4 first, second;
};

// The source coordinates along one axis that the texels 2i and 2i + 1 stand for, two each. Texels
// beyond the level repeat its last one: whatever reads them covers that one, too.
uvec4 block_taps(uint first, uint side)
{
    if (SIZING != SIZING_POW2)
        return min(first + uvec4(0u, 1u, 2u, 3u), side - 1u);
    uvec2 taps = min(uvec2(first, first + 2u), max(side, 2u) - 2u);
    uvec2 next = min(taps + 1u, side - 1u);
    return uvec4(taps.x, next.x, taps.y, next.y);
}

// From row to row of the frame, four words each.
uint source_quads() { return (push.source_size.x + 3u) >> 2; }

// The words of the quad that a texel of the first level stands for.
uvec4 load_quad(uvec2 texel, uint frame)
{
    uvec2 size = push.source_size;
    uvec2 taps = uvec2(first_tap(texel.x, size.x, SIZING), first_tap(texel.y, size.y, SIZING));
    taps = min(taps, size - 1u);
    uvec2 next = min(taps + 1u, size - 1u);
    uint upper = (frame * size.y + taps.y) * source_quads() * 4u;
    uint lower = (frame * size.y + next.y) * source_quads() * 4u;
    return uvec4(frame_buffer.words[upper + taps.x], frame_buffer.words[upper + next.x],
                 frame_buffer.words[lower + taps.x], frame_buffer.words[lower + next.x]);
}

// The quads before each row of the frame that a block stands for.
uvec4 block_rows(uint cell, uint frame)
{
    uint height = push.source_size.y;
    return (block_taps(cell * 4u, height) + frame * height) * source_quads();
}

void load_rows(uvec2 cell, uint frame, out uvec4 rows[4])
{
    uvec2 size = push.source_size, texel = cell * 4u;
    uvec4 y = block_rows(cell.y, frame);
    if (texel.x + 4u <= size.x) {
        [[unroll]] for (uint i = 0u; i < 4u; i++)
            rows[i] = frame_quads.quads[y[i] + cell.x];
    } else {
        uvec4 x = block_taps(texel.x, size.x);
        [[unroll]] for (uint i = 0u; i < 4u; i++) {
            uint row = y[i] * 4u;
            rows[i] = uvec4(frame_buffer.words[row + x.x], frame_buffer.words[row + x.y],
                            frame_buffer.words[row + x.z], frame_buffer.words[row + x.w]);
        }
    }
}

// Those of two blocks side by side: where possible, all are on their way before one is waited for.
void load_two_rows(uvec2 cell, uint frame, out uvec4 left[4], out uvec4 right[4])
{
    if (cell.x * 4u + 8u <= push.source_size.x) {
        uvec4 y = block_rows(cell.y, frame);
        [[unroll]] for (uint i = 0u; i < 4u; i++) {
            left[i] = frame_quads.quads[y[i] + cell.x];
            right[i] = frame_quads.quads[y[i] + cell.x + 1u];
        }
    } else {
        load_rows(cell, frame, left);
        load_rows(cell + uvec2(1u, 0u), frame, right);
    }
}

// The block of the frame at this cell, of which these are the rows.
Block reduce_rows(uvec4 rows[4], uvec2 cell, uint frame)
{
    uvec4 largest = quad_max(rows);
    uvec4 smallest = CHAINS == 2u || !FIRST_IS_MAX ? quad_min(rows) : largest;
    uint most = max(max(largest.x, largest.y), max(largest.z, largest.w));
    bool usual = most <= (STORE_FLOAT32 ? INFINITY_BITS : 0x477fffffu);
    if (!STORE_FLOAT32) {
        uvec4 less = smallest - 1u; // 0 becomes large
        if (CHAINS == 2u)
            less = min(less, largest - 1u);
        usual = usual && min(min(less.x, less.y), min(less.z, less.w)) >= 0x387fffffu;
    }
    Block block;
    if (usual) {
        block.first = hold_usual(FIRST_IS_MAX ? largest : smallest, FIRST_IS_MAX);
        block.second = hold_usual(FIRST_IS_MAX ? smallest : largest, !FIRST_IS_MAX);
    } else {
        // Read again, so that nothing is kept for this.
        [[dont_unroll]] for (uint i = 0u; i < 4u; i++) {
            Pair pair = reduce_quad(load_quad(cell * 2u + uvec2(i & 1u, i >> 1), frame));
            block.first = ivec4(block.first.yzw, pair.x);
            block.second = ivec4(block.second.yzw, pair.y);
        }
    }
    return block;
}

Block load_frame(uvec2 cell, uint frame)
{
    uvec4 rows[4];
    load_rows(cell, frame, rows);
    return reduce_rows(rows, cell, frame);
}

// The slots of a round: one for each tile that its workgroups begin with, and along each axis some
// for all beyond those, so that four of them stand side by side where there are any.
struct SlotGrid {
    uvec2 workgroups; // in the first round: tiles
    uvec2 tiles;
    uvec2 rows; // multiples of four
    uint start; // words before those of the first chain
};

// Slots for tiles of which the last are beyond the frame, unless there are no more than those.
uvec2 slot_rows(uvec2 tiles, uvec2 all_tiles)
{
    return min(((tiles + 2u) & ~3u) + 4u, (all_tiles + 3u) & ~3u);
}

// Words before the slots of a chain of a frame, or, one chain further, before the counters.
uint slot_index(SlotGrid of, uint chain, uint frame)
{
    return of.start + (chain * gl_NumWorkGroups.z + frame) * of.rows.x * of.rows.y;
}

// Workgroups of the next round.
uvec2 next_workgroups(SlotGrid of) { return (of.workgroups + 63u) >> 6; }

uint counter_index(SlotGrid of, uint frame)
{
    uvec2 next = next_workgroups(of);
    return slot_index(of, CHAINS, 0u) + frame * next.x * next.y;
}

// Those of the next round, which has so many tiles in all.
SlotGrid next_slots(SlotGrid of, uvec2 all_tiles)
{
    uvec2 next = next_workgroups(of), tiles = min(next + 1u, all_tiles);
    return SlotGrid(next, tiles, slot_rows(tiles, all_tiles),
                    (counter_index(of, gl_NumWorkGroups.z) + 3u) & ~3u);
}

// The numbers of a chain of 4x4 slots.
ivec4 load_slots(uint quad, uint pitch)
{
    ivec4 rows[4];
    bool all_there;
    // In a single pass whoever is counted has written its slots; where that is not seen yet, it
    // soon will be. So what is read needs no fence, which would wait for the stores of levels too.
    do {
        uvec4 least = uvec4(0xffffffffu);
        [[unroll]] for (uint i = 0u; i < 4u; i++) {
            uvec4 words = slot_quads.quads[quad + i * pitch];
            least = min(least, words);
            rows[i] = ivec4(words ^ SLOT_FLIP);
        }
        all_there = min(min(least.x, least.y), min(least.z, least.w)) != 0u;
    } while (!all_there);
    return quad_first(rows);
}

// The block of a tile over slots, of which the last stand for what is beyond them.
Block load_left(SlotGrid from, uvec2 cell, uint frame)
{
    uvec2 quads = from.rows >> 2;
    cell = min(cell, quads - 1u);
    uint within = cell.y * from.rows.x + cell.x;
    Block block;
    block.first = load_slots((slot_index(from, 0u, frame) >> 2) + within, quads.x);
    if (CHAINS == 2u)
        block.second = load_slots((slot_index(from, 1u, frame) >> 2) + within, quads.x);
    return block;
}

uvec2 level_size(uint level)
{
    return SIZING == SIZING_POW2 ? max(push.level_size >> level, uvec2(1u))
                                 : (push.level_size + (1u << level) - 1u) >> level;
}

uvec2 next_level_size(uvec2 size)
{
    return SIZING == SIZING_POW2 ? max(size >> 1, uvec2(1u)) : (size + 1u) >> 1;
}

// Texels before a frame's part of a level.
uint frame_start(uint level, uvec2 size, uint frame)
{
    return push.start[level] + frame * size.x * size.y;
}

void store_number(uint chain, uint index, int number)
{
    bool is_max = chain_is_max(chain);
    if (STORE_FLOAT32)
        store_word(chain, index, stored_word(number, is_max));
    else
        store_half(chain, index, stored_half(uint(is_max ? ~number : number) >> 16));
}

void store_pair(Pair pair, uint index)
{
    store_number(0u, index, pair.x);
    if (CHAINS == 2u)
        store_number(1u, index, pair.y);
}

// The four texels of a block, of which the first is inside the level and at even coordinates; where
// rows are even, two by two.
void store_block(Block block, uint level, uvec2 size, uvec2 texel, uint frame)
{
    uint index = frame_start(level, size, frame) + texel.y * size.x + texel.x;
#if HZB_STORAGE16
    if (!STORE_FLOAT32 && (size.x & 1u) == 0u) {
        index >>= 1;
        store_word(0u, index, stored_halves(block.first.x, block.first.y, FIRST_IS_MAX));
        if (CHAINS == 2u)
            store_word(1u, index, stored_halves(block.second.x, block.second.y, !FIRST_IS_MAX));
        if (texel.y + 1u < size.y) {
            index += size.x >> 1;
            store_word(0u, index, stored_halves(block.first.z, block.first.w, FIRST_IS_MAX));
            if (CHAINS == 2u)
                store_word(1u, index, stored_halves(block.second.z, block.second.w, !FIRST_IS_MAX));
        }
        return;
    }
#endif
    [[dont_unroll]] for (uint i = 0u; i < 4u; i++) {
        uvec2 at = uvec2(i & 1u, i >> 1);
        if (all(lessThan(texel + at, size)))
            store_pair(Pair(block.first.x, block.second.x), index + at.y * size.x + at.x);
        block.first = block.first.yzwx;
        block.second = block.second.yzwx;
    }
}

#if HZB_STORAGE16
layout(binding = 1) restrict writeonly buffer Doubles0 { uvec2 doubles[]; }
level_doubles_0;
layout(binding = 2) restrict writeonly buffer Doubles1 { uvec2 doubles[]; }
level_doubles_1;

void store_four(uint chain, uint index, ivec2 left, ivec2 right)
{
    bool is_max = chain_is_max(chain);
    uvec2 words =
        uvec2(stored_halves(left.x, left.y, is_max), stored_halves(right.x, right.y, is_max));
    if (chain == 0u)
        level_doubles_0.doubles[index] = words;
    else
        level_doubles_1.doubles[index] = words;
}
#endif

// Two blocks of the first level side by side, of which the first texel is inside it and at
// coordinates that are multiples of four and of two; where rows are of fours, four by four.
void store_two_blocks(Block left, Block right, uvec2 texel, uint frame)
{
    uvec2 size = push.level_size;
#if HZB_STORAGE16
    if (!STORE_FLOAT32 && (size.x & 3u) == 0u) {
        uint index = (frame_start(0u, size, frame) + texel.y * size.x + texel.x) >> 2;
        store_four(0u, index, left.first.xy, right.first.xy);
        if (CHAINS == 2u)
            store_four(1u, index, left.second.xy, right.second.xy);
        if (texel.y + 1u < size.y) {
            index += size.x >> 2;
            store_four(0u, index, left.first.zw, right.first.zw);
            if (CHAINS == 2u)
                store_four(1u, index, left.second.zw, right.second.zw);
        }
        return;
    }
#endif
    [[dont_unroll]] for (uint i = 0u; i < 2u; i++) {
        if (texel.x < size.x)
            store_block(left, 0u, size, texel, frame);
        left = right;
        texel.x += 2u;
    }
}

Pair reduce_block(Block block)
{
    return Pair(min(min(block.first.x, block.first.y), min(block.first.z, block.first.w)),
                min(min(block.second.x, block.second.y), min(block.second.z, block.second.w)));
}

// Store the first level of the 2x2 blocks of a cell twice as large, and give what is left of each.
Block reduce_two_by_two(uvec2 cell, uint frame)
{
    Block block;
    [[dont_unroll]] for (uint i = 0u; i < 2u; i++) {
        uvec2 at = cell * 2u + uvec2(0u, i);
        uvec4 left_rows[4], right_rows[4];
        load_two_rows(at, frame, left_rows, right_rows);
        Block left = reduce_rows(left_rows, at, frame);
        Block right = reduce_rows(right_rows, at + uvec2(1u, 0u), frame);
        if (all(lessThan(at * 2u, push.level_size)))
            store_two_blocks(left, right, at * 2u, frame);
        Pair first = reduce_block(left), second = reduce_block(right);
        block.first = ivec4(block.first.zw, first.x, second.x);
        block.second = ivec4(block.second.zw, first.y, second.y);
    }
    return block;
}

void share(uint place, Pair pair)
{
    shared_first[place] = pair.x;
    if (CHAINS == 2u)
        shared_second[place] = pair.y;
}

Pair shared_pair(uint place)
{
    return Pair(shared_first[place], CHAINS == 2u ? shared_second[place] : 0);
}

Pair shared_four(uint place)
{
    return nearer(nearer(shared_pair(place), shared_pair(place + 1u)),
                  nearer(shared_pair(place + 2u), shared_pair(place + 3u)));
}

// Let all lanes see what some give.
void exchange(bool gives, uint place, Pair pair)
{
    if (gives)
        share(place, pair);
    barrier();
}

// Reduce over lanes that differ in the two bits from `bit` on.
Pair shuffle_four(Pair pair, uint bit)
{
    [[unroll]] for (uint i = 0u; i < 2u; i++) {
        Pair other = Pair(subgroupShuffleXor(pair.x, bit << i), 0);
        if (CHAINS == 2u)
            other.y = subgroupShuffleXor(pair.y, bit << i);
        pair = nearer(pair, other);
    }
    return pair;
}

// Reduce the numbers of each four lanes, and of each sixteen, for all of them, for the first or the
// second time.
void reduce_sixteen(uint time, Pair pair, out Pair of_four, out Pair of_sixteen)
{
    uint lane = lane_index();
    if (SUBGROUP >= 4u) {
        of_four = shuffle_four(pair, 1u);
    } else {
        uint start = time * PASSED_AT_A_TIME;
        exchange(true, start + lane, pair);
        of_four = shared_four(start + (lane & ~3u));
    }
    if (SUBGROUP >= 16u) {
        of_sixteen = shuffle_four(of_four, 4u);
    } else {
        uint start = time * PASSED_AT_A_TIME + PASSED_BY_LANES;
        exchange((lane & 3u) == 0u, start + (lane >> 2), of_four);
        of_sixteen = shared_four(start + ((lane >> 2) & ~3u));
    }
}

// Store a texel for each four lanes in a level and one for each sixteen in the next, at once: what
// it takes besides the numbers is most of the work.
void store_two_levels(Pair of_four, Pair of_sixteen, uint level, uvec2 size, uvec2 texel,
                      uint frame)
{
    uint sixteenth = lane_index() & 15u;
    bool is_next = sixteenth == 1u;
    uvec2 next_size = next_level_size(size);
    uint start = frame_start(level, size, frame);
    uint next_start = frame_start(level + 1u, next_size, frame);
    Pair pair = mix(of_four, of_sixteen, bvec2(is_next));
    level += uint(is_next);
    start = is_next ? next_start : start;
    size = mix(size, next_size, bvec2(is_next));
    texel >>= uint(is_next);
    if (((sixteenth & 3u) == 0u || is_next) && level < push.levels && all(lessThan(texel, size)))
        store_pair(pair, start + texel.y * size.x + texel.x);
}

// Reduce a tile from its blocks through six levels, or those there are, from `level` on, which is
// of this size. What is left of all six is returned. All lanes take part. (SwiftShader compiles the
// body of the loop twice in a hundred times as long as once.)
Pair reduce_tile(Block block, uint level, uvec2 size, uvec2 tile, uint frame)
{
    uint lane = lane_index();
    uvec2 square = square_texel(lane), texel = tile * 16u + square;
    if (all(lessThan(texel * 2u, size)))
        store_block(block, level, size, texel * 2u, frame);
    Pair pair = reduce_block(block);
    size = next_level_size(size);
    if (level + 1u < push.levels && all(lessThan(texel, size)))
        store_pair(pair, frame_start(level + 1u, size, frame) + texel.y * size.x + texel.x);
    [[unroll]] for (uint i = 2u; i < 6u; i += 2u) {
        if (level + i >= push.levels)
            break;
        if (i == 4u) {
            uint start = 2u * PASSED_AT_A_TIME;
            exchange((lane & 15u) == 0u, start + (lane >> 4), pair);
            pair = shared_pair(start + (lane & 15u));
            texel = tile * 4u + square_texel(lane & 15u);
            size = next_level_size(size);
        }
        Pair of_four, of_sixteen;
        reduce_sixteen(i / 4u, pair, of_four, of_sixteen);
        size = next_level_size(size);
        if (i == 2u || lane < 16u)
            store_two_levels(of_four, of_sixteen, level + i, size, texel >> 1, frame);
        pair = of_sixteen;
    }
    return pair;
}

// Reduce a tile of the frame through its levels.
Pair reduce_frame_tile(uvec2 tile, uint frame)
{
    uvec2 cell = tile * 16u + square_texel(lane_index());
    if (BLOCKS == 1u)
        return reduce_tile(load_frame(cell, frame), 0u, push.level_size, tile, frame);
    return reduce_tile(reduce_two_by_two(cell, frame), 1u, next_level_size(push.level_size), tile,
                       frame);
}
