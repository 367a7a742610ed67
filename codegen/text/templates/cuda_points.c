$head
{
    const $type item = ($type)$block * $threads + threadIdx.x;
    $guard
    $start
    $row
}
