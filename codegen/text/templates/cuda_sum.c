$head
{
    $own
    $start
    for ($type item = ($type)($part) * $threads + threadIdx.x; item < $packs; item += $step) {
        $row
    }
    $end
}
