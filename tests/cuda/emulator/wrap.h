/* wrap.h -- calls a kernel with its arguments from an array. */
#include <cstddef>
#include <utility>

template <typename... A, std::size_t... I>
static inline void emulator_spread(void (*kernel)(A...), void **arguments, std::index_sequence<I...>)
{
    kernel((A)arguments[I]...);
}

template <typename... A> static inline void emulator_call(void (*kernel)(A...), void **arguments)
{
    emulator_spread(kernel, arguments, std::index_sequence_for<A...>());
}

#define EMULATED(name)                                                                                                 \
    extern "C" void name##_emulated(void **arguments) { emulator_call(name, arguments); }
