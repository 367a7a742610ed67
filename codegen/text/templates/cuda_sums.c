RtPack<$type, $width> $name[$turns];
#pragma unroll
for (int turn = 0; turn < $turns; turn++)
    $name[turn] = rt_all<$width, $type>($start);
