$list
if (lane % 32 == 0) {
    $leave
}
__syncthreads();
$take
