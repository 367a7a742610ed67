/* mutate.c -- mistakes planted in a compiled program, and which check notices each.
 *
 *   mutate FILE.mir MOST        at most so many mutants of each kind, spread over the program
 *
 * A mutant is the program with one mistake of the kind that parallel trainers are known to make: a sum left out or made
 * twice, a sum in place of a mean, a norm that counts a tensor twice, another random offset, a lost share of a shared
 * weight, the wrong group, memory used by two.  Three checks look at it, each by itself: the verifier of types, the
 * interpreter with reals, the interpreter modulo a prime.  A mutant is the program's text, read again, with one op
 * changed; where the mistake is one that its author believes to be right, the op's stated type stays.
 */
#include "interp.h"
#include "noticed.h"
#include "parse.h"
#include "plant.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    int mutants, typed, real, exact, missed;
} Score;

/* What the program means without a mistake, in the names of the module `m`. */
typedef struct {
    Source source;
    Diags diags;
    Module *m;
    Meaning meaning[2]; /* with reals, modulo a prime */
} Original;

static void give_up(const char *message)
{
    fprintf(stderr, "mutate: %s\n", message);
    exit(EXIT_FAILURE);
}

static char *read_file(const char *path)
{
    FILE *in = fopen(path, "r");
    char *text = NULL;
    size_t size = 0;
    if (!in || getdelim(&text, &size, '\0', in) < 0)
        give_up("cannot read the file");
    fclose(in);
    return text;
}

static void read_original(Original *o, const char *path)
{
    char *text = read_file(path);
    o->source = (Source){ .path = path, .text = text, .length = (int)strlen(text) };
    o->diags = (Diags){ .source = &o->source, .out = stderr };
    o->m = parse_module(&o->source, &o->diags);
    if (o->diags.errors || !verify_module(o->m))
        give_up("the program is wrong before anything is planted");
    for (int exact = 0; exact < 2; exact++)
        if (!find_meaning(o->m, exact, &o->meaning[exact]))
            give_up("the program cannot be run");
}

static Op *op_at(Module *m, int number, Func **f)
{
    for (*f = m->funcs; *f; *f = (*f)->next)
        for (Op *op = (*f)->first; op; op = op->next)
            if (number-- == 0)
                return op;
    return NULL;
}

/* Plants one mistake at one op, and asks each check. */
static void judge(Original *o, const Plant *plant, int number, Score *score)
{
    char *ignored = NULL;
    size_t size;
    Diags diags = { .source = &o->source, .out = open_memstream(&ignored, &size) };
    Module *m = parse_module(&o->source, &diags);
    Func *f;
    Op *op = op_at(m, number, &f);
    const char *place = op->path ? op->path : "", *name = info(op)->name;
    if (plant->apply(m, f, op)) {
        bool typed = !verify_module(m), real = is_noticed(m, &o->meaning[false], false),
             exact = is_noticed(m, &o->meaning[true], true);
        score->mutants++;
        score->typed += typed;
        score->real += real;
        score->exact += exact;
        if (!typed && !real && !exact) {
            score->missed++;
            printf("missed: %c, %s: @%s %s %s\n", plant->kind, plant->what, f->name, name, place);
        }
    }
    free_module(m);
    fclose(diags.out);
    free(ignored);
}

static void try_plant(Original *o, const Plant *plant, int most)
{
    Score score = { 0 };
    Func *f;
    int candidates = 0, taken = 0, seen = 0;
    for (int i = 0; op_at(o->m, i, &f); i++)
        candidates += plant->fits(o->m, f, op_at(o->m, i, &f));
    for (int i = 0; op_at(o->m, i, &f); i++) {
        if (!plant->fits(o->m, f, op_at(o->m, i, &f)))
            continue;
        if ((int64_t)seen++ * most / (candidates > most ? candidates : most) < taken)
            continue; /* every so many */
        taken++;
        judge(o, plant, i, &score);
    }
    if (score.mutants)
        printf("%c %4d %4d %4d %4d %4d  %s\n", plant->kind, score.mutants, score.typed, score.real, score.exact,
               score.missed, plant->what);
}

int main(int argc, char **argv)
{
    Original original = { 0 };
    if (argc != 3)
        give_up("usage: mutate FILE.mir MOST");
    read_original(&original, argv[1]);
    for (int i = 0; i < nplants; i++)
        try_plant(&original, &plants[i], atoi(argv[2]));
    for (int exact = 0; exact < 2; exact++)
        forget_meaning(&original.meaning[exact]);
    free_module(original.m);
    free((char *)original.source.text);
    return 0;
}
