$head
{
    const int all = blockIdx.x;
    $cases
}
