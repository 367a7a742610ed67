$head
{
    const $type item = ($type)blockIdx.x * $threads + threadIdx.x;
    $guard
    $start
    $row
}
