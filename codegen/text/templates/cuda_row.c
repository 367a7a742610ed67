$head
{
    const int lane = threadIdx.x % $threads, team = threadIdx.x / $threads;
    const $type item = ($type)blockIdx.x * $at_once + team;
    $guard
    $row
}
