#pragma unroll
for (int turn = $from; turn < $end; turn++) {
    $body
}
