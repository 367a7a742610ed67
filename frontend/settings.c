/* settings.c -- `train { }`, --set, and the source of each value. */
#include "lowering.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

void add_setting(Lower *l, const char *name, const char *value, const char *unit, const char *from)
{
    Settings *s = l->settings;
    if (s->count == s->room) {
        Setting *more = NEW_ARRAY(l->arena, Setting, s->room = s->room ? 2 * s->room : 32);
        if (s->count)
            memcpy(more, s->at, (size_t)s->count * sizeof *more);
        s->at = more;
    }
    s->at[s->count++] = (Setting){ name, value, unit, from };
}

/* --- The table ----------------------------------------------------------------------------- */

typedef struct {
    const char *setting, *of, *key;
    bool whole, below; /* below: less than `most`, exclusive */
    size_t offset;     /* in Train */
    double otherwise, least, most;
    const char *unit;
} Row;

/* clang-format off */
enum { KIND_Number, KIND_Int, KIND_Share };
static const Row rows[] = {
#define SETTING(setting, of, key, kind, otherwise, least, most, unit)                                                  \
    { setting, of,    #key, KIND_##kind == KIND_Int, KIND_##kind == KIND_Share, offsetof(Train, key), otherwise,       \
      least,   most, unit },
#include "settings.def"
};
/* clang-format on */
enum { N_ROWS = sizeof rows / sizeof rows[0] };

/* The keys of train: with a choice, a number, or a word. */
static const char *const keys[] = { "optimizer", "schedule", "clip",   "batch",  "microbatch",
                                    "precision", "seed",     "freeze", "trained" };
static const char *const defaults[] = { "adamw", "constant", NULL, NULL, NULL, "fp32", NULL, NULL, NULL };
enum {
    N_KEYS = sizeof keys / sizeof keys[0],
    OPTIMIZER = 0,
    SCHEDULE,
    CLIP,
    BATCH,
    MICROBATCH,
    PRECISION,
    SEED,
    FREEZE,
    TRAINED
};

static int find_key(const char *name)
{
    int i = 0;
    while (i < N_KEYS && strcmp(keys[i], name) != 0)
        i++;
    return i;
}

/* --- Values from the file and the command line
 * -------------------------------------------------------------------------- */

typedef struct {
    Lower *l;
    Said said[N_KEYS];
    const char *choice[N_KEYS]; /* of optimizer and schedule */
    Loc train;                  /* location for messages about several settings */
} Reader;

const char *quoted(Lower *l, const Ast *ast) { return ast->name ? arena_text(l->arena, "'%s'", ast->name) : "this"; }

static const char *from_text(Lower *l, const Said *said)
{
    return !said->value ? "default" : said->option ? "command line" : where_text(l, said->at);
}

/* Messages between these two refer to the location of the value. */
static void go_to(Lower *l, const Said *said, Elsewhere *elsewhere)
{
    if (said->option)
        go_elsewhere(l, elsewhere, said->option, said->text);
}

static void come_from(Lower *l, const Said *said, Elsewhere *elsewhere)
{
    if (said->option)
        come_back(l, elsewhere);
}

static const char *set_text(Lower *l, const Override *set)
{
    return arena_text(l->arena, "--set %s=%s", set->name, set->value);
}

static void unknown_key(Lower *l, Loc at, const char *name)
{
    NearMiss near = { .name = name };
    for (int i = 0; i < N_KEYS; i++)
        offer(&near, keys[i]);
    complain(l, (Where){ .at = at, .help = did_you_mean(l->arena, &near) }, "train has no setting '%s'", name);
}

static void read_block(Reader *r, const Ast *train)
{
    for (const Ast *ast = train->body; ast; ast = ast->next) {
        int key = ast->kind == A_SETTING ? find_key(ast->name) : N_KEYS;
        if (ast->kind != A_SETTING)
            continue; /* reported by the parser */
        if (key == N_KEYS)
            unknown_key(r->l, ast->name_loc, ast->name);
        else if (r->said[key].value)
            complain(r->l, (Where){ .at = ast->name_loc }, "'%s' is already set at %s", ast->name,
                     position_text(r->l, r->said[key].at));
        else
            r->said[key] = (Said){ .value = ast->child, .at = ast->name_loc };
    }
}

static void read_file(Reader *r)
{
    const Ast *first = NULL;
    for (const Ast *ast = r->l->file; ast; ast = ast->next) {
        if (ast->kind != A_TRAIN)
            continue;
        if (first)
            complain(r->l, (Where){ .at = ast->name_loc }, "a second 'train': the first is at %s",
                     position_text(r->l, first->name_loc));
        else
            read_block(r, first = ast);
        r->train = first->name_loc;
    }
}

static Said said_on_command_line(Lower *l, const Override *set)
{
    Elsewhere elsewhere;
    Said said = { .option = arena_text(l->arena, "--set %s", set->name), .text = set->value };
    go_elsewhere(l, &elsewhere, said.option, said.text);
    said.value = parse_expression(l->source, l->diags, l->arena);
    come_back(l, &elsewhere);
    return said;
}

/* --set train.KEY=VALUE; keys with a second point, train.optimizer.lr, are handled by read_choice. */
static void read_sets(Reader *r)
{
    Lower *l = r->l;
    for (int i = 0; i < l->options->nsets; i++) {
        const Override *set = &l->options->sets[i];
        const char *name = strncmp(set->name, "train.", 6) == 0 ? set->name + 6 : NULL;
        const char *point = name ? strchr(name, '.') : NULL;
        int key = find_key(!name ? "" : point ? arena_text(l->arena, "%.*s", (int)(point - name), name) : name);
        NearMiss near = { .name = name ? name : "" };
        for (int k = 0; k < N_KEYS; k++)
            offer(&near, keys[k]);
        if (!name)
            fail_command(l, set_text(l, set), "--set train.batch=64", "only settings of train can be set");
        else if (key == N_KEYS || (point && key != OPTIMIZER && key != SCHEDULE))
            fail_command(l, set_text(l, set), did_you_mean(l->arena, &near), "train has no setting '%s'", name);
        else if (!point)
            r->said[key] = said_on_command_line(l, set);
    }
}

/* --- Numbers ------------------------------------------------------------------------------- */

static void store(Lower *l, const Row *row, double value, const char *from)
{
    char *field = (char *)&l->m->train + row->offset;
    if (row->whole)
        *(Int *)field = (Int)value;
    else
        *(Number *)field = value;
    const char *name = row->of ? arena_text(l->arena, "train.%s.%s", row->setting, row->key)
                               : arena_text(l->arena, "train.%s", row->key);
    add_setting(l, name, arena_text(l->arena, "%.15g", value), row->unit, from);
}

/* The number of an expression for a row; NAN after reporting. */
static double read_number(Lower *l, const Row *row, const Ast *ast)
{
    Constant c;
    if (!constant_of(l, ast, &c))
        return NAN;
    if (row->whole && c.real) {
        complain(l, (Where){ .at = ast->loc }, "'%s' must be a whole number, not %s", row->key,
                 constant_text(l->arena, c));
        return NAN;
    }
    if (!(c.value >= row->least && c.value <= row->most) || (row->below && (float)c.value >= row->most)) {
        const char *range = c.value < row->least ? arena_text(l->arena, "at least %.15g", row->least)
                                                 : arena_text(l->arena, "from %.15g to %s%.15g", row->least,
                                                              row->below ? "below " : "", row->most);
        complain(l, (Where){ .at = ast->loc }, "'%s' must be %s, not %s", row->key, range, constant_text(l->arena, c));
        return NAN;
    }
    return c.value;
}

static const Row *find_row(const char *setting, const char *of, const char *key)
{
    for (int i = 0; i < N_ROWS; i++)
        if (strcmp(rows[i].setting, setting) == 0 && strcmp(rows[i].key, key) == 0 &&
            (of ? rows[i].of && strcmp(rows[i].of, of) == 0 : !rows[i].of))
            return &rows[i];
    return NULL;
}

static void read_single(Reader *r, int key)
{
    Lower *l = r->l;
    const Row *row = find_row(keys[key], NULL, keys[key]);
    const Said *said = &r->said[key];
    Elsewhere elsewhere;
    double value = row->otherwise;
    if (said->value) {
        go_to(l, said, &elsewhere);
        value = read_number(l, row, said->value);
        come_from(l, said, &elsewhere);
    }
    if (!isnan(value) && key != BATCH && key != MICROBATCH)
        store(l, row, value, from_text(l, said));
    else if (!isnan(value))
        *(Int *)((char *)&l->m->train + row->offset) = (Int)value;
}

/* --- Choices: adamw(...), cosine(...) --------------------------------------------------------- */

/* Is `name` a choice of the setting?  Sets `list` to all choices. */
static bool is_choice(Lower *l, const char *setting, const char *name, const char **list, NearMiss *near)
{
    bool found = false;
    *list = "";
    for (int i = 0; i < N_ROWS; i++)
        if (strcmp(rows[i].setting, setting) == 0 && (i == 0 || rows[i].of != rows[i - 1].of) &&
            !strstr(*list, rows[i].of)) {
            *list = arena_text(l->arena, "%s%s%s", *list, **list ? ", " : "", rows[i].of);
            found |= strcmp(rows[i].of, name) == 0;
            offer(near, rows[i].of);
        }
    return found;
}

static const char *read_choice_name(Lower *l, const char *setting, const Said *said, const char *otherwise)
{
    const Ast *ast = said->value;
    const char *list, *name = ast && (ast->kind == A_CALL || ast->kind == A_NAME) ? ast->name : "";
    NearMiss near = { .name = name };
    if (!ast)
        return otherwise;
    if (is_choice(l, setting, name, &list, &near))
        return name;
    const char *help = did_you_mean(l->arena, &near);
    complain(l,
             (Where){ .at = ast->name_loc.end ? ast->name_loc : ast->loc,
                      .help = help ? help : arena_text(l->arena, "one of %s", list) },
             "%s is not a valid %s", quoted(l, ast), setting);
    return NULL;
}

static void check_arguments(Lower *l, const char *setting, const char *choice, const Ast *call)
{
    for (const Ast *ast = call->kind == A_CALL ? call->child : NULL; ast; ast = ast->next) {
        NearMiss near = { .name = ast->kind == A_KEYWORD ? ast->name : "" };
        const char *list = "";
        for (int i = 0; i < N_ROWS; i++)
            if (rows[i].of && strcmp(rows[i].of, choice) == 0) {
                offer(&near, rows[i].key);
                list = arena_text(l->arena, "%s%s%s", list, *list ? ", " : "", rows[i].key);
            }
        const char *help = did_you_mean(l->arena, &near);
        help = help ? help : arena_text(l->arena, "%s takes %s", choice, list);
        if (ast->kind != A_KEYWORD)
            complain(l, (Where){ .at = ast->loc, .help = help }, "the arguments of %s must be named", choice);
        else if (!find_row(setting, choice, ast->name))
            complain(l, (Where){ .at = ast->name_loc, .help = help }, "%s has no argument '%s'", choice, ast->name);
        for (const Ast *other = call->child; other != ast && ast->kind == A_KEYWORD; other = other->next)
            if (other->kind == A_KEYWORD && strcmp(other->name, ast->name) == 0)
                complain(l, (Where){ .at = ast->name_loc }, "'%s' is given twice", ast->name);
    }
}

static const Ast *find_argument(const Ast *call, const char *key)
{
    for (const Ast *ast = call && call->kind == A_CALL ? call->child : NULL; ast; ast = ast->next)
        if (ast->kind == A_KEYWORD && strcmp(ast->name, key) == 0)
            return ast;
    return NULL;
}

/* The last --set train.optimizer.lr=... */
static const Override *find_set(Lower *l, const Row *row)
{
    const char *name = arena_text(l->arena, "train.%s.%s", row->setting, row->key);
    for (int i = l->options->nsets - 1; i >= 0; i--)
        if (strcmp(l->options->sets[i].name, name) == 0)
            return &l->options->sets[i];
    return NULL;
}

static void read_row(Lower *l, const Row *row, const Said *said, bool call_is_good)
{
    const Override *set = find_set(l, row);
    const Ast *argument = find_argument(said->value, row->key);
    Said own = *said;
    Elsewhere elsewhere;
    double value = row->otherwise;
    if (set)
        own = said_on_command_line(l, set);
    else
        own.value = argument ? argument->child : NULL;
    go_to(l, &own, &elsewhere);
    if (own.value)
        value = read_number(l, row, own.value);
    else if (isnan(value) && call_is_good && !set)
        complain(l, (Where){ .at = said->value ? said->value->loc : (Loc){ 0 } }, "%s needs '%s'", row->of, row->key);
    come_from(l, &own, &elsewhere);
    if (argument && !set)
        own.at = argument->name_loc;
    if (!isnan(value))
        store(l, row, value, from_text(l, &own));
}

static void check_sets(Reader *r, int key)
{
    Lower *l = r->l;
    size_t length = strlen(keys[key]);
    for (int i = 0; i < l->options->nsets; i++) {
        const Override *set = &l->options->sets[i];
        const char *name = set->name + 6;
        if (strncmp(set->name, "train.", 6) != 0 || strncmp(name, keys[key], length) != 0 || name[length] != '.')
            continue;
        NearMiss near = { .name = name + length + 1 };
        for (int k = 0; k < N_ROWS; k++)
            if (rows[k].of && strcmp(rows[k].of, r->choice[key]) == 0)
                offer(&near, rows[k].key);
        if (!find_row(keys[key], r->choice[key], name + length + 1))
            fail_command(l, set_text(l, set), did_you_mean(l->arena, &near), "%s has no argument '%s'", r->choice[key],
                         name + length + 1);
    }
}

static void read_choice(Reader *r, int key)
{
    Lower *l = r->l;
    const Said *said = &r->said[key];
    Elsewhere elsewhere;
    int before = l->diags->errors;
    go_to(l, said, &elsewhere);
    const char *choice = r->choice[key] = read_choice_name(l, keys[key], said, defaults[key]);
    if (choice && said->value)
        check_arguments(l, keys[key], choice, said->value);
    come_from(l, said, &elsewhere);
    if (!choice)
        return;
    add_setting(l, arena_text(l->arena, "train.%s", keys[key]), choice, "", from_text(l, said));
    check_sets(r, key);
    if (key == OPTIMIZER)
        l->m->train.optimizer = WORD_OF(Optimizer, choice);
    else
        l->m->train.schedule = WORD_OF(Schedule, choice);
    bool good = l->diags->errors == before;
    for (int i = 0; i < N_ROWS; i++)
        if (strcmp(rows[i].setting, keys[key]) == 0 && strcmp(rows[i].of, choice) == 0)
            read_row(l, &rows[i], said, good);
}

static void read_precision(Reader *r)
{
    Lower *l = r->l;
    const Said *said = &r->said[PRECISION];
    const char *name = !said->value ? defaults[PRECISION] : said->value->kind == A_NAME ? said->value->name : "";
    NearMiss near = { .name = name };
    Elsewhere elsewhere;
    for (int i = 1; i < N_Precision; i++)
        offer(&near, Precision_words[i]);
    l->m->train.precision = WORD_OF(Precision, name);
    if (l->m->train.precision) {
        add_setting(l, "train.precision", name, "", from_text(l, said));
        return;
    }
    const char *help = did_you_mean(l->arena, &near);
    go_to(l, said, &elsewhere);
    complain(l, (Where){ .at = said->value->loc, .help = help ? help : "fp32, bf16 or fp16" },
             "%s is not a valid precision", quoted(l, said->value));
    come_from(l, said, &elsewhere);
}

/* --- Constraints between settings ----------------------------------------------------------- */

static void fail_at(Reader *r, int key, const char *help, const char *message)
{
    Lower *l = r->l;
    const Said *said = &r->said[key];
    Elsewhere elsewhere;
    go_to(l, said, &elsewhere);
    complain(l, (Where){ .at = said->value ? said->value->loc : r->train, .help = help }, "%s", message);
    come_from(l, said, &elsewhere);
}

static void check_batch(Reader *r)
{
    Lower *l = r->l;
    Train *t = &l->m->train;
    const char *from[] = { from_text(l, &r->said[BATCH]), from_text(l, &r->said[MICROBATCH]) };
    if (!l->batch && (r->said[BATCH].value || r->said[MICROBATCH].value))
        fail_at(r, r->said[BATCH].value ? BATCH : MICROBATCH, "dim batch",
                "the file has no dim without a size, so it has no batch");
    int64_t ranks = l->data_ranks;
    t->microbatch = t->microbatch ? t->microbatch : t->batch >= ranks ? t->batch / ranks : 1;
    int64_t together = t->microbatch * ranks; /* sequences per micro-step */
    t->batch = t->batch ? t->batch : together;
    int64_t below = t->batch / together * together, above = below + together;
    if (below != t->batch)
        fail_at(r, BATCH,
                below ? arena_text(l->arena, "batch = %" PRId64 " or %" PRId64, below, above)
                : t->batch % ranks
                    ? arena_text(l->arena, "batch = %" PRId64, above)
                    : arena_text(l->arena, "batch = %" PRId64 ", or microbatch = %" PRId64, above, t->batch / ranks),
                arena_text(l->arena,
                           "batch = %" PRId64 " is not a multiple of microbatch = %" PRId64 " on %" PRId64
                           " data-parallel rank%s",
                           t->batch, t->microbatch, ranks, ranks == 1 ? "" : "s"));
    add_setting(l, "train.batch", arena_text(l->arena, "%" PRId64, t->batch), "sequences", from[0]);
    add_setting(l, "train.microbatch", arena_text(l->arena, "%" PRId64, t->microbatch), "sequences", from[1]);
}

static void check_schedule(Reader *r)
{
    Lower *l = r->l;
    const Train *t = &l->m->train;
    if (t->steps && t->warmup + t->decay > t->steps)
        fail_at(r, SCHEDULE, NULL,
                arena_text(l->arena, "%" PRId64 " steps of warmup%s are more than the %" PRId64 " steps of training",
                           t->warmup + t->decay, t->decay ? " and decay" : "", t->steps));
    if (t->min_lr > t->lr)
        fail_at(r, SCHEDULE, NULL, arena_text(l->arena, "min_lr = %g is above lr = %g", t->min_lr, t->lr));
}

/* For verification: at most two micro-batches of two sequences per rank; one, if there is one. */
static void shrink_batch(Train *t, int64_t ranks, int64_t declared_ranks)
{
    int64_t micros = t->batch / (t->microbatch * declared_ranks);
    t->microbatch = t->microbatch < 2 ? t->microbatch : 2;
    t->batch = t->microbatch * ranks * (micros < 2 ? micros : 2);
}

void read_settings(Lower *l)
{
    Reader r = { .l = l };
    int before = l->diags->errors;
    r.train = l->model->name_loc;
    read_file(&r);
    read_sets(&r);
    read_choice(&r, OPTIMIZER);
    read_choice(&r, SCHEDULE);
    read_single(&r, CLIP);
    read_single(&r, BATCH);
    read_single(&r, MICROBATCH);
    read_single(&r, SEED);
    read_precision(&r);
    l->freeze = r.said[FREEZE];
    l->trained = r.said[TRAINED];
    bool good = l->diags->errors == before;
    if (good)
        check_schedule(&r);
    if (good)
        check_batch(&r);
    if (l->options->shrink && good)
        shrink_batch(&l->m->train, l->data_ranks, l->declared_ranks);
    if (l->m->train.microbatch < 1)
        l->m->train.batch = l->m->train.microbatch = 1; /* after an error: so that the rest can be checked */
    l->m->train.microbatch *= l->data_ranks;            /* from here on: of all ranks together */
}
