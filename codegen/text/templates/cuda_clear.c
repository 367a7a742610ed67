for (int64_t i = threadIdx.x; i < $count; i += $threads)
    $name[i] = $start;
__syncthreads();
