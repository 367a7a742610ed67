const RtBox $name = { $rank, $dim, $first, $count, $sizes, $to, $from };
rt_copy_box(y, $operand, $clears, $name);
