RtPack<$type, $width> $name[$iterations];
#pragma unroll
for (int iteration = 0; iteration < $iterations; iteration++)
    $name[iteration] = rt_all<$width, $type>($start);
