/* wrap.h -- calls a kernel with its arguments from an array.  Without headers of C++, which take longer to read than
 * most kernels. */

/* A pointer or a number, or what a pointer points to: a tensor map. */
template <typename A> __attribute__((no_sanitize("thread"), noinline)) static A emulator_argument(void *argument)
{
    if constexpr (__is_class(A))
        return *(const A *)argument;
    else
        return (A)argument;
}

/* The numbers 0 to N - 1, as parameters of a template. */
template <int... I> struct EmulatorNumbers {
};
template <int N, int... I> struct EmulatorCount : EmulatorCount<N - 1, N - 1, I...> {
};
template <int... I> struct EmulatorCount<0, I...> {
    typedef EmulatorNumbers<I...> Numbers;
};

template <typename... A, int... I>
static inline void emulator_spread(void (*kernel)(A...), void **arguments, EmulatorNumbers<I...>)
{
    kernel(emulator_argument<A>(arguments[I])...);
}

template <typename... A> static inline void emulator_call(void (*kernel)(A...), void **arguments)
{
    emulator_spread(kernel, arguments, typename EmulatorCount<sizeof...(A)>::Numbers());
}

#define EMULATED(name)                                                                                                 \
    extern "C" void name##_emulated(void **arguments) { emulator_call(name, arguments); }
