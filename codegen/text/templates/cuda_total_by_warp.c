$head
{
    const $type *const $parts = $scratch;
    const int lane = threadIdx.x % 32, item = $block * 8 + threadIdx.x / 32;
    if (item >= $results)
        return;
    $type $name = $start;
    for (int part = lane; part < $count; part += 32) {
        $add
    }
    $name = rt_warp<$functor>($name);
    if (lane == 0) {
        $store
    }
}
