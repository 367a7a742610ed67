#pragma unroll
for (int iteration = 0; iteration < $iterations; iteration++) {
    $copies
}
if (item + $step < $rows)
    $name(item + $step);
