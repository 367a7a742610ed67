$head
{
    __shared__ $type together[8][32];
    const $type *const $parts = $scratch;
    const int lane = threadIdx.x % 32, team = threadIdx.x / 32;
    const int item = $block * 32 + lane;
    $type $name = $start;
    if (item < $results) {
        for (int part = team; part < $count; part += 8) {
            $add
        }
    }
    together[team][lane] = $name;
    __syncthreads();
    if (team == 0 && item < $results) {
        for (int other = 1; other < 8; other++)
            $name = $functor::of($name, together[other][lane]);
        $store
    }
}
