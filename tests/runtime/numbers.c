/* numbers.c -- shows the runtime's pure functions to test_numbers.py: a command and its numbers as arguments, results
 * on stdout, one per line, or raw for the conversions. */
#include "convert.h"
#include "data/order.h"
#include "philox.h"
#include "trainer/schedule.h"

#include <stdio.h>
#include <stdlib.h>

static void philox(char **argv)
{
    uint32_t word[6];
    for (int i = 0; i < 6; i++)
        word[i] = (uint32_t)strtoul(argv[i], NULL, 16);
    RtPhilox result = rt_philox(word[0], word[1], word[2], word[3], word[4], word[5]);
    printf("%08x %08x %08x %08x\n", result.x[0], result.x[1], result.x[2], result.x[3]);
}

static void permute(char **argv)
{
    int64_t count = atoll(argv[0]);
    for (int64_t i = 0; i < count; i++)
        printf("%lld\n", (long long)rt_order_permute(count, (uint32_t)atoll(argv[1]), atoll(argv[2]), i));
}

static void lr(char **argv)
{
    RtSchedule schedule = {
        (RtScheduleKind)atoi(argv[0]), atof(argv[1]), atof(argv[2]), atoll(argv[3]), atoll(argv[4]), atoll(argv[5])
    };
    for (int64_t step = 0; step < atoll(argv[6]); step++)
        printf("%.17g\n", rt_schedule_lr(&schedule, step));
}

/* All 65536 16-bit patterns as f32: first f16, then bf16. */
static void widen(char **argv)
{
    for (uint32_t bits = 0; bits < 1u << 17; bits++) {
        float value = bits < 1u << 16 ? rt_float_of_f16((uint16_t)bits) : rt_float_of_bf16((uint16_t)bits);
        fwrite(&value, sizeof value, 1, stdout);
    }
}

/* f32s from stdin as f16 and bf16, alternately. */
static void narrow(char **argv)
{
    for (float value; fread(&value, sizeof value, 1, stdin) == 1;) {
        uint16_t bits[2] = { rt_f16_of_float(value), rt_bf16_of_float(value) };
        fwrite(bits, sizeof bits, 1, stdout);
    }
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(char **argv);
        int arguments;
    } commands[] = { { "philox", philox, 6 },
                     { "permute", permute, 3 },
                     { "lr", lr, 7 },
                     { "widen", widen, 0 },
                     { "narrow", narrow, 0 } };
    for (unsigned i = 0; argc > 1 && i < sizeof commands / sizeof *commands; i++) {
        if (!strcmp(argv[1], commands[i].name) && argc == 2 + commands[i].arguments) {
            commands[i].run(argv + 2);
            return 0;
        }
    }
    fprintf(stderr, "usage: numbers COMMAND NUMBER...\n");
    return 2;
}
