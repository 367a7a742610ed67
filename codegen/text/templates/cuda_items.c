$side
for ($type item = ($type)($part) * $at_once + $place; item < $items; item += $step) {
    $body
    $next_side
}
