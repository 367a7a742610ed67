/* wrap.h -- calls a kernel with its arguments from an array. */
#include <cstddef>
#include <type_traits>
#include <utility>

/* A pointer or a number, or what a pointer points to: a tensor map. */
template <typename A> __attribute__((no_sanitize("thread"), noinline)) static A emulator_argument(void *argument)
{
    if constexpr (std::is_pointer_v<A> || std::is_integral_v<A>)
        return (A)argument;
    else
        return *(const A *)argument;
}

template <typename... A, std::size_t... I>
static inline void emulator_spread(void (*kernel)(A...), void **arguments, std::index_sequence<I...>)
{
    kernel(emulator_argument<A>(arguments[I])...);
}

template <typename... A> static inline void emulator_call(void (*kernel)(A...), void **arguments)
{
    emulator_spread(kernel, arguments, std::index_sequence_for<A...>());
}

#define EMULATED(name)                                                                                                 \
    extern "C" void name##_emulated(void **arguments) { emulator_call(name, arguments); }
