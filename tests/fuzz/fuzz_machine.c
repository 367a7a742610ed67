/* fuzz_machine.c -- no text crashes what reads machines, and by one that it accepts everything takes some time, which
 * is finite where its links are given.
 *
 *   clang -std=gnu17 -D_POSIX_C_SOURCE=200809L -g -O1 -fsanitize=fuzzer,address,undefined -Iir \
 *       tests/fuzz/fuzz_machine.c ir/(all).c -lm -o fuzz_machine
 *   mkdir corpus; cp machines/h100.machine corpus; ./fuzz_machine -max_len=8192 corpus
 */
#include "cost/cost.h"
#include "cost/machine.h"

#include <math.h>
#include <stdlib.h>

static void check_time(double seconds, const char *what)
{
    if (seconds > 0 && isfinite(seconds))
        return;
    fprintf(stderr, "%s takes %g s\n", what, seconds);
    abort();
}

static void check_laws(const Machine *machine)
{
    for (int precision = 0; precision < N_PRECISIONS; precision++) {
        check_time(product_seconds(machine, precision, 300, 70000, 1, 4), "a product");
        check_time(attention_seconds(machine, precision, 1e9, 1000, 10, 80, precision & 1), "attention");
    }
    check_time(fused_seconds(machine, 1e6, 1e6, 3), "a kernel");
    for (int kind = OP_all_reduce; kind <= OP_rotate; kind++)
        for (int64_t ranks = 2; ranks < 1000; ranks *= 3) {
            const Group group = { ranks, ranks < ranks_of_machine(machine) ? ranks : ranks_of_machine(machine) };
            if (connects(machine, ranks) && (connects(machine, group.on_one_machine)))
                check_time(message_seconds(machine, kind, 1e6, group), "a message");
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static FILE *sink;
    sink = sink ? sink : fopen("/dev/null", "w");
    Arena arena = { 0 };
    Source source = { "fuzz.machine", arena_text(&arena, "%.*s", (int)size, (const char *)data), 0 };
    while (source.text[source.length])
        source.length++;
    Diags diags = { .arena = &arena, .source = &source, .out = sink };
    const Machine *machine = parse_machine(&arena, &diags);
    if (machine)
        check_laws(machine);
    arena_free(&arena);
    return 0;
}
