/* fuzz_mir.c -- no text crashes the IR parser, the verifier or the printer; and accepted modules are printed so that
 * they parse and print as the same text.
 *
 *   clang -std=gnu17 -D_POSIX_C_SOURCE=200809L -g -O1 -fsanitize=fuzzer,address,undefined -Iir \
 *       tests/fuzz/fuzz_mir.c ir/(all).c -lm -o fuzz_mir
 *   mkdir corpus; cp tests/unit/every_op.mir corpus; ./fuzz_mir -max_len=8192 corpus
 */
#include "ir.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static Module *parse(Source *source, Diags *diags, const char *text, size_t size, FILE *sink)
{
    *source = (Source){ .path = "fuzz.mir", .text = text, .length = (int)size };
    *diags = (Diags){ .source = source, .out = sink };
    return parse_module(source, diags);
}

static void check_round_trip(Module *m, FILE *sink)
{
    Source source;
    Diags diags;
    char *text = module_text(m);
    Module *again = parse(&source, &diags, text, strlen(text), sink);
    char *text_again = module_text(again);
    if (diags.errors || !verify_module(again) || strcmp(text, text_again) != 0) {
        fprintf(stderr, "printed:\n%s\nread back (%d errors):\n%s\n", text, diags.errors, text_again);
        abort();
    }
    free(text);
    free(text_again);
    free_module(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static FILE *sink;
    if (!sink)
        sink = fopen("/dev/null", "w");
    char *text = malloc(size + 1);
    if (!sink || !text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    Source source;
    Diags diags;
    Module *m = parse(&source, &diags, text, size, sink);
    if (!diags.errors && verify_module(m))
        check_round_trip(m, sink);
    free_module(m);
    free(text);
    return 0;
}

static bool in_word(uint8_t c) { return isalnum(c) || c == '_' || c == '.' || c == '%' || c == '@'; }

/* The word that holds byte `at`, or an empty one. */
static size_t word_at(const uint8_t *data, size_t size, size_t at, size_t *begin)
{
    size_t end = at;
    *begin = at;
    while (*begin > 0 && in_word(data[*begin - 1]))
        --*begin;
    while (end < size && in_word(data[end]))
        end++;
    return end - *begin;
}

/* Random bytes rarely pass the parser: half of the mutations replace one word by another. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
    size_t from, to;
    if (size == 0 || seed % 2 == 0)
        return LLVMFuzzerMutate(data, size, max_size);
    size_t length = word_at(data, size, seed / 2 % size, &from);
    size_t old = word_at(data, size, (size_t)(seed * 2654435761u) % size, &to);
    char word[64];
    if (length == 0 || length > sizeof word || size - old + length > max_size)
        return LLVMFuzzerMutate(data, size, max_size);
    memcpy(word, data + from, length);
    memmove(data + to + length, data + to + old, size - to - old);
    memcpy(data + to, word, length);
    return size - old + length;
}
