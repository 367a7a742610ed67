{
    .m = $m,
    .n = $n,
    .k = $k,
    .batch = $batch,
    .a = $left,
    .b = $right,
    .c = $result,
    .accumulate = $accumulate,
    $epilogue
}
