/* judge.c -- the checks that distinguish WRONG.mir from RIGHT.mir.
 *
 *   judge RIGHT.mir WRONG.mir
 *
 * Prints one line for each check that does: "types", "reals" or "residues", a colon, and its message.  The verifier of
 * types checks only WRONG.mir; the interpreter runs both on the same weights and tokens, with reals and modulo a prime.
 * Status 1, with the reason, if a file is not IR, or RIGHT.mir is invalid.
 */
#include "noticed.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    Source source;
    Diags diags;
    Module *m;
} Program;

static void give_up(const char *path, const char *why)
{
    fprintf(stderr, "judge: %s: %s\n", path, why);
    exit(EXIT_FAILURE);
}

static Program read_program(const char *path)
{
    FILE *in = fopen(path, "r");
    char *text = NULL;
    size_t size = 0;
    if (!in || getdelim(&text, &size, '\0', in) < 0)
        give_up(path, "cannot read it");
    fclose(in);
    return (Program){ .source = { .path = path, .text = text, .length = (int)strlen(text) } };
}

/* Apart from read_program: what a module keeps are addresses of its program. */
static void parse_program(Program *p)
{
    p->diags = (Diags){ .source = &p->source, .out = stderr };
    p->m = parse_module(&p->source, &p->diags);
    if (p->diags.errors)
        give_up(p->source.path, "it is no IR");
}

static void forget_program(Program *p)
{
    free_module(p->m);
    free((char *)p->source.text);
}

typedef enum { TYPES, REALS, RESIDUES, CHECKS } Check;

static const char *const name_of_check[CHECKS] = { "types", "reals", "residues" };

static bool notices(Check check, Program *wrong, Program *right)
{
    Observables meaning = { 0 };
    if (check == TYPES)
        return !verify_module(wrong->m);
    if (!find_observables(right->m, check == RESIDUES, &meaning))
        give_up(right->source.path, "the right program cannot be run");
    bool noticed = is_noticed(wrong->m, &meaning, check == RESIDUES);
    forget_observables(&meaning);
    return noticed;
}

static void ask(Check check, Program *wrong, Program *right)
{
    char *said = NULL;
    size_t size;
    wrong->diags.out = open_memstream(&said, &size);
    bool noticed = notices(check, wrong, right);
    fclose(wrong->diags.out);
    if (noticed)
        printf("%s: %.*s\n", name_of_check[check], (int)strcspn(said, "\n"), said);
    free(said);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        give_up("usage", "judge RIGHT.mir WRONG.mir");
    Program right = read_program(argv[1]), wrong = read_program(argv[2]);
    parse_program(&right);
    parse_program(&wrong);
    if (!verify_module(right.m))
        give_up(argv[1], "the types of the right program are wrong");
    for (Check check = TYPES; check < CHECKS; check++)
        ask(check, &wrong, &right);
    forget_program(&right);
    forget_program(&wrong);
    return 0;
}
