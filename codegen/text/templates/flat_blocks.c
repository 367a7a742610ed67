#pragma omp parallel for
for (int64_t begin = 0; begin < $count; begin += $step) {
    const int64_t end = begin + $step < $count ? begin + $step : $count;
    $body
}
