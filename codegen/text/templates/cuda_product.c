$head
{
    int64_t item = (int64_t)blockIdx.x * $threads + threadIdx.x;
    if (item >= $count)
        return;
    $indices
    $body
}
