__shared__ $type $parts[$warps];
$name = rt_warp<$functor>($name);
if (threadIdx.x % 32 == 0)
    $parts[threadIdx.x / 32] = $name;
__syncthreads();
$name = rt_warps<$functor, $warps, $type>($parts, $start);
if (threadIdx.x == 0) {
    $leave
}
