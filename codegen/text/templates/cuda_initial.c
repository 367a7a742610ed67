/* Initial values of a tensor. */
extern "C" __global__ void __launch_bounds__(256) rt_initial_values(const RtInitial *tensor, char *arena)
{
    const int64_t step = (int64_t)gridDim.x * 256;
    for (int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x; i < tensor->count; i += step)
        rt_set_initial(tensor, arena, i);
}
