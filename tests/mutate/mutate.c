/* mutate.c -- injects faults into a compiled program, and reports which check detects each.
 *
 *   mutate each MOST FILE.mir [BEFORE.mir]          at most this many mutants of each kind, spread over the program
 *   mutate any COUNT:SEED FILE.mir [BEFORE.mir]     this number in total, drawn at random
 *
 * A mutant is the program with one fault that is typical of compilers for parallel training: an omitted or repeated
 * sum, a sum instead of a mean, a norm that counts a tensor twice, another random offset, a lost part of a shared
 * weight's gradient, a wrong group, a gradient of another value, overlapping memory.  Each check is run separately: the
 * verifier of types, that of memory plans, the interpreter with reals, the interpreter modulo a prime.  A mutant is the
 * program's text, parsed again, with one op changed; its stated type is kept if the fault would not change it.
 *
 * BEFORE is the program before autodiff, and FILE the one after it: faults in gradients are checked by the loss and its
 * slopes, which only reals have.  An undetected mutant of these that trains like the program itself is not a fault.
 */
#include "noticed.h"
#include "plant.h"

#include "codegen/host/host.h"
#include "interp/interp_number.h"
#include "manager/pass.h"
#include "manager/slopes.h"
#include "micro.h"
#include "mir/mir.h"
#include "storage.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    int mutants, typed, planned, real, exact, missed, same;
} Score;

typedef struct {
    Source source;
    Diags diags;
    Module *m;
    Observables observables[2]; /* with reals, modulo a prime; in the names of `m` */
} Program;

typedef struct {
    Program program;
    Program *before; /* NULL: none */
    Slopes slopes;   /* of `before` */
} Original;

static const PlantList *const lists[] = { &plants_of_ranks, &plants_of_memory, &plants_of_kernels, &plants_of_lanes,
                                          &plants_of_schedules };

static void give_up(const char *message)
{
    fprintf(stderr, "mutate: %s\n", message);
    exit(EXIT_FAILURE);
}

/* --- Programs ------------------------------------------------------------------------------------------- */

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

static void read_program(Program *p, const char *path)
{
    char *text = read_file(path);
    p->source = (Source){ .path = path, .text = text, .length = (int)strlen(text) };
    p->diags = (Diags){ .source = &p->source, .out = stderr };
    p->m = parse_module(&p->source, &p->diags);
    if (p->diags.errors || !verify_module(p->m))
        give_up("the program is wrong before anything is planted");
    for (int exact = 0; exact < 2; exact++)
        if (!find_observables(p->m, exact, &p->observables[exact]))
            give_up("the program cannot be run");
}

static void forget_program(Program *p)
{
    for (int exact = 0; exact < 2; exact++)
        forget_observables(&p->observables[exact]);
    free_module(p->m);
    free((char *)p->source.text);
}

static Op *op_at(Module *m, int number, Func **f)
{
    for (*f = m->funcs; *f; *f = (*f)->next)
        for (Op *op = (*f)->first; op; op = op->next)
            if (number-- == 0)
                return op;
    return NULL;
}

/* --- One mutant ------------------------------------------------------------------------------------------- */

static bool have_wrong_slopes(Module *m, const Original *o)
{
    char *said = NULL;
    size_t size;
    FILE *report = open_memstream(&said, &size);
    bool wrong = !slopes_agree(m, &o->slopes, o->before->source.text, report);
    fclose(report);
    free(said);
    return wrong;
}

/* The program whose micro-batches are cut in parts, but not placed yet: the interpreter runs the schedule in memory. */
static bool place(Module *m)
{
    const Op *loop = micro_loop(m);
    return !loop || !loop->attrs.stages || result(loop)->storage ||
           run_passes(m, &(PassOptions){ .start_after = "pipeline" });
}

/* By checks that compare with the program before. */
static void ask(Original *o, Module *m, Score *said)
{
    const Observables *right = o->before ? o->before->observables : o->program.observables;
    said->typed = !verify_module(m) || !place(m);
    said->planned = !said->typed && !verify_memory(m); /* which requires valid types */
    said->real = is_noticed(m, &right[false], false) || (o->before && have_wrong_slopes(m, o));
    said->exact = !o->before && is_noticed(m, &right[true], true);
    said->missed = !said->typed && !said->planned && !said->real && !said->exact;
    said->same = said->missed && o->before && !is_noticed(m, &o->program.observables[false], false);
}

/* Injects one fault at one op, and runs each check. */
static void judge(Original *o, const Plant *plant, int number, Score *score)
{
    char *ignored = NULL;
    size_t size;
    Diags diags = { .source = &o->program.source, .out = open_memstream(&ignored, &size) };
    Module *m = parse_module(&o->program.source, &diags);
    Func *f;
    Op *op = op_at(m, number, &f);
    const char *place = op->path ? op->path : "", *name = info(op)->name;
    const char *made = op->results.count ? result(op)->name : "";
    Score said = { 0 };
    m->target = &c_target;
    if (plant->apply(m, f, op)) {
        ask(o, m, &said);
        score->mutants += !said.same;
        score->typed += said.typed;
        score->planned += said.planned;
        score->real += said.real;
        score->exact += said.exact;
        score->missed += said.missed && !said.same;
        score->same += said.same;
        if (said.missed)
            printf("%s: %c, %s: @%s %s %%%s %s\n", said.same ? "same" : "missed", plant->kind, plant->what, f->name,
                   name, made, place);
    }
    free_module(m);
    fclose(diags.out);
    free(ignored);
}

/* --- Which mutants ------------------------------------------------------------------------------------------ */

typedef struct {
    const Plant *plant;
    int count, *op; /* where it fits */
    Score score;
} Place;

typedef struct {
    int count;
    Place *at;
} Places;

static void add_places(Original *o, const PlantList *list, Places *places)
{
    Module *m = o->program.m;
    Func *f;
    int nops = 0;
    while (op_at(m, nops, &f))
        nops++;
    for (int i = 0; i < list->count; i++) {
        Place *place = &places->at[places->count];
        *place = (Place){ .plant = &list->at[i], .op = NEW_ARRAY(&m->arena, int, nops + 1) };
        for (int k = 0; k < nops; k++) {
            Op *op = op_at(m, k, &f);
            if (place->plant->fits(m, f, op))
                place->op[place->count++] = k;
        }
        places->count += place->count > 0;
    }
}

static Places find_places(Original *o)
{
    enum { MOST_PLANTS = 128 };
    Places places = { .at = NEW_ARRAY(&o->program.m->arena, Place, MOST_PLANTS) };
    const Op *micros = micro_loop(o->program.m);
    const bool is_scheduled = micros && micros->attrs.stages;
    if (o->before)
        add_places(o, &plants_of_gradients, &places);
    if (!o->before)
        add_places(o, &plants_of_outputs, &places);
    if (is_scheduled)
        add_places(o, &plants_of_schedules, &places);
    for (size_t i = 0; i < sizeof lists / sizeof *lists && !o->before && !is_scheduled; i++)
        add_places(o, lists[i], &places);
    return places;
}

/* Of each kind, at equal distances. */
static void plant_each(Original *o, Places *places, int most)
{
    for (int i = 0; i < places->count; i++) {
        Place *place = &places->at[i];
        for (int taken = 0; taken < most && taken < place->count; taken++) {
            int64_t rare = place->count > most ? (int64_t)taken * place->count / most : taken;
            judge(o, place->plant, place->op[rare], &place->score);
        }
    }
}

static void plant_any(Original *o, Places *places, int count, int seed)
{
    for (int i = 0; i < count && places->count; i++) {
        Place *place = &places->at[(int)(hashed_number((uint64_t)seed, (uint64_t)(2 * i)) * places->count)];
        int at = (int)(hashed_number((uint64_t)seed, (uint64_t)(2 * i + 1)) * place->count);
        judge(o, place->plant, place->op[at], &place->score);
    }
}

static void print_scores(const Places *places)
{
    for (int i = 0; i < places->count; i++) {
        const Score *score = &places->at[i].score;
        if (score->mutants || score->same)
            printf("%c %4d %4d %4d %4d %4d %4d %4d  %s\n", places->at[i].plant->kind, score->mutants, score->typed,
                   score->planned, score->real, score->exact, score->missed, score->same, places->at[i].plant->what);
    }
}

int main(int argc, char **argv)
{
    Original original = { 0 };
    Program before = { 0 };
    if (argc < 4 || argc > 5)
        give_up("usage: mutate each MOST | any COUNT:SEED FILE.mir [BEFORE.mir]");
    read_program(&original.program, argv[3]);
    original.program.m->target = &c_target;
    if (argc == 5) {
        read_program(original.before = &before, argv[4]);
        if (!find_slopes(before.m, &original.slopes))
            give_up("the program before cannot be run");
    }
    Places places = find_places(&original);
    const char *seed = strchr(argv[2], ':');
    if (strcmp(argv[1], "each") == 0)
        plant_each(&original, &places, atoi(argv[2]));
    else
        plant_any(&original, &places, atoi(argv[2]), seed ? atoi(seed + 1) : 0);
    print_scores(&places);
    if (original.before)
        forget_program(&before);
    forget_program(&original.program);
    return 0;
}
