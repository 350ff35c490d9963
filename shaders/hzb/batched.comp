#version 460
// Up to four levels a dispatch, from a frame or a level in buffers.
#extension GL_GOOGLE_include_directive : require
#include "lib/batched.glsl"

Keys load_first(uvec2 texel, uint frame) { return load_footprint(texel, frame); }
