__shared__ $type $parts[$count];
for (int other = 0; other < $rows; other++) {
    if (team == other) {
        $iterations
    }
    __syncthreads();
}
for (int i = threadIdx.x; i < $count; i += $threads)
    $left[i] = $parts[i];
