$head
{
    const int lane = threadIdx.x % 32, team = threadIdx.x / 32, pack = $pack;
    $own
    $start
    $columns
    if (pack < $packs) {
        for ($type item = ($type)($part) * $warps + team; item < $rows; item += $step) {
            $row
        }
    }
    $end
}
