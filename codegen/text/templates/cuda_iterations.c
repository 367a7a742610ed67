#pragma unroll
for (int iteration = $from; iteration < $end; iteration++) {
    $body
}
