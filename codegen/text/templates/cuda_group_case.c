if (all < $end)
    return $call
