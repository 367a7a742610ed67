#pragma unroll
for (int turn = 0; turn < $turns; turn++) {
    const int pack = turn * $threads + lane;
    $guard
    $body
}
