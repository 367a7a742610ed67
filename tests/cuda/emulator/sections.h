/* sections.h -- at the end of the kernels' text: where their static shared memory and constants lie. */
extern "C" {
extern char __start_rt_shared[] __attribute__((weak, visibility("hidden")));
extern char __stop_rt_shared[] __attribute__((weak, visibility("hidden")));
extern char __start_rt_constant[] __attribute__((weak, visibility("hidden")));
extern char __stop_rt_constant[] __attribute__((weak, visibility("hidden")));
char *emulated_shared_begin = __start_rt_shared, *emulated_shared_end = __stop_rt_shared;
char *emulated_constant_begin = __start_rt_constant, *emulated_constant_end = __stop_rt_constant;
}
