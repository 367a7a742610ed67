$head
{
    const int lane = threadIdx.x % $threads, team = threadIdx.x / $threads;
    $own
    $start
    $side
    for ($type item = ($type)($block) * $at_once + team; item < $rows; item += $step) {
        $row
        $iteration_side
    }
    $end
}
