#pragma unroll
for (int turn = 0; turn < $turns; turn++) {
    $body
}
