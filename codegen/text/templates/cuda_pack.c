#pragma unroll
for (int e = 0; e < $width; e++) {
    $guard
    $body
}
