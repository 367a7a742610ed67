$pragma
for (int64_t begin = $low; begin < $high; begin += $step) {
    const int64_t end = begin + $step < $high ? begin + $step : $high;
    $body
}
