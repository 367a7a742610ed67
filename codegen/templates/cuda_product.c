/* A product that cuBLASLt does not take in this layout, at $where */
extern "C" __global__ void __launch_bounds__($threads) $name(const $a *a, const $b *b, $c *c)
{
    int64_t item = (int64_t)blockIdx.x * $threads + threadIdx.x;
    if (item >= $count)
        return;
    $indices
    $body
}
