__shared__ RtPack<$type, $width> $parts[$warps][32];
$parts[team][lane] = $name;
__syncthreads();
if (team == 0 && pack < $packs) {
    for (int other = 1; other < $warps; other++)
#pragma unroll
        for (int e = 0; e < $width; e++)
            $name[e] = $functor::of($name[e], $parts[other][lane][e]);
    $leave
}
