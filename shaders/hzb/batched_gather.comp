#version 460
// Up to four levels a dispatch, from a frame in an image: one gather takes the 2x2 quad.
#extension GL_GOOGLE_include_directive : require
#include "lib/batched.glsl"

layout(binding = 3) uniform usampler2DArray frame_image;

Keys load_pixel(uvec2 pixel, uint frame)
{
    return keys_of_word(texelFetch(frame_image, ivec3(pixel, frame), 0).r);
}

// The window comes from integers and is gathered at the quad's centre: coordinates exactly between
// texels would leave the choice of the quad to rounding.
Keys load_first(uvec2 texel, uint frame)
{
    uvec2 size = push.source_size;
    uvec2 first = uvec2(first_tap(texel.x, size.x, SIZING), first_tap(texel.y, size.y, SIZING));
    vec2 centre = vec2(first + 1u) / vec2(size);
    uvec4 quad = textureGather(frame_image, vec3(centre, float(frame)));
    Keys keys = nearer(nearer(keys_of_word(quad.x), keys_of_word(quad.y)),
                       nearer(keys_of_word(quad.z), keys_of_word(quad.w)));
    if (SIZING != SIZING_FLOOR)
        return keys;
    bool third_x = third_tap(size.x, SIZING), third_y = third_tap(size.y, SIZING);
    uvec2 next = min(first + 1u, size - 1u), third = first + 2u;
    if (third_x)
        keys = nearer(keys, nearer(load_pixel(uvec2(third.x, first.y), frame),
                                   load_pixel(uvec2(third.x, next.y), frame)));
    if (third_y)
        keys = nearer(keys, nearer(load_pixel(uvec2(first.x, third.y), frame),
                                   load_pixel(uvec2(next.x, third.y), frame)));
    if (third_x && third_y)
        keys = nearer(keys, load_pixel(third, frame));
    return keys;
}
