/* settings.c -- `train { }`, --set, and the source of each value. */
#include "settings.h"
#include "layout/words.h"
#include "lower/expr.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

/* --- The table ----------------------------------------------------------------------------- */

/* clang-format off */
enum { KIND_Number, KIND_Int };
static const Row settings[] = {
#define SETTING(setting, of, key, kind, otherwise, least, most, unit)                                                  \
    { setting,   of,    #key, KIND_##kind == KIND_Int, false, false, offsetof(Train, key), otherwise, least, most, unit },
#include "settings.def"
};
/* clang-format on */
enum { N_SETTINGS = sizeof settings / sizeof settings[0] };

static Rows rows_of_setting(const char *setting)
{
    Rows rows = { 0 };
    for (int i = 0; i < N_SETTINGS; i++)
        if (strcmp(settings[i].setting, setting) == 0) {
            rows.at = rows.at ? rows.at : &settings[i];
            rows.count++;
        }
    return rows;
}

/* The keys of train: their numbers, names and defaults. */
enum {
#define KEY(key, name, otherwise) key,
#include "settings.def"
    N_KEYS
};
static const char *const keys[] = {
#define KEY(key, name, otherwise) [key] = name,
#include "settings.def"
};
static const char *const defaults[] = {
#define KEY(key, name, otherwise) [key] = otherwise,
#include "settings.def"
};

static int find_key(const char *name)
{
    int i = 0;
    while (i < N_KEYS && strcmp(keys[i], name) != 0)
        i++;
    return i;
}

/* --- Values from the file and the command line ---------------------------------------------- */

typedef struct {
    Lower *l;
    ValueOrigin said[N_KEYS];
    Loc train; /* location for messages about several settings */
} Reader;

static const char *help_with_key(Lower *l, const char *name)
{
    NearMiss near = { .name = name };
    const char *list = "one of";
    for (int i = 0; i < N_KEYS; i++) {
        offer_spelled(&near, keys[i]);
        list = arena_text(l->arena, "%s %s,", list, keys[i]);
    }
    const char *help = help_with(l->arena, IDIOM_SETTING, &near);
    return help ? help : arena_text(l->arena, "%s or a group", list);
}

static void read_block(Reader *r, const Ast *train)
{
    for (const Ast *ast = train->body; ast; ast = ast->next) {
        int key = ast->kind == A_SETTING ? find_key(ast->name) : N_KEYS;
        if (ast->kind == A_GROUP)
            add_group(r->l, ast);
        if (ast->kind != A_SETTING)
            continue; /* reported by the parser */
        if (key == N_KEYS)
            complain(r->l, (Where){ .at = ast->name_loc, .help = help_with_key(r->l, ast->name) },
                     "train has no setting '%s'", ast->name);
        else if (r->said[key].value)
            complain(r->l, (Where){ .at = ast->name_loc }, "'%s' is already set at %s", ast->name,
                     position_text(r->l, r->said[key].at));
        else
            r->said[key] = (ValueOrigin){ .value = ast->child, .at = ast->name_loc };
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

/* For --set batch=8. */
static const char *help_without_train(Lower *l, const Override *set)
{
    const char *key = arena_text(l->arena, "%.*s", (int)strcspn(set->name, "."), set->name);
    return find_key(key) == N_KEYS ? "--set train.batch=64"
                                   : arena_text(l->arena, "--set train.%s=%s", set->name, set->value);
}

/* --set train.KEY=VALUE; keys with a second point, train.optimizer.lr, are handled by choices.c. */
static void read_sets(Reader *r)
{
    Lower *l = r->l;
    for (int i = 0; i < l->options->nsets; i++) {
        const Override *set = &l->options->sets[i];
        const char *name = strncmp(set->name, "train.", 6) == 0 ? set->name + 6 : NULL;
        const char *point = name ? strchr(name, '.') : NULL;
        int key = find_key(!name ? "" : point ? arena_text(l->arena, "%.*s", (int)(point - name), name) : name);
        if (!name)
            fail_command(l, set_text(l, set), help_without_train(l, set), "only settings of train can be set");
        else if (key == N_KEYS || (point && key != OPTIMIZER && key != SCHEDULE))
            fail_command(l, set_text(l, set), help_with_key(l, name), "train has no setting '%s'", name);
        else if (!point)
            r->said[key] = origin_on_command_line(l, set);
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

static void read_single(Reader *r, int key)
{
    Lower *l = r->l;
    const Row *row = rows_of_setting(keys[key]).at;
    const ValueOrigin *said = &r->said[key];
    OtherText elsewhere;
    double value = row->otherwise;
    if (said->value) {
        enter_origin(l, said, &elsewhere);
        value = read_setting(l, row, said->value);
        leave_origin(l, said, &elsewhere);
    }
    if (!isnan(value) && key != BATCH && key != MICROBATCH && key != ABREAST)
        store(l, row, value, from_text(l, said));
    else if (!isnan(value))
        *(Int *)((char *)&l->m->train + row->offset) = (Int)value;
}

/* --- Choices --------------------------------------------------------------------------------- */

static void read_schedule(Reader *r)
{
    Lower *l = r->l;
    const Rows rows = rows_of_setting("schedule");
    const char *names[N_SETTINGS];
    int n = 0;
    for (int i = 0; i < rows.count; i++)
        if (i == 0 || rows.at[i].of != rows.at[i - 1].of)
            names[n++] = rows.at[i].of;
    Choice choice = {
        .setting = "schedule", .idioms = IDIOM_SCHEDULE, .said = &r->said[SCHEDULE], .names = names, .n = n
    };
    const char *name = read_choice_name(l, &choice, defaults[SCHEDULE]);
    if (!name)
        return;
    Row *own = NEW_ARRAY(l->arena, Row, rows.count);
    for (int i = 0; i < rows.count; i++)
        if (strcmp(rows.at[i].of, name) == 0)
            own[choice.rows.count++] = rows.at[i];
    choice.rows.at = own;
    l->m->train.schedule = WORD_OF(Schedule, name);
    const bool good = check_choice(l, &choice);
    for (int i = 0; i < choice.rows.count; i++) {
        const char *from;
        const double value = read_argument(l, &choice, &own[i], good, &from);
        if (!isnan(value))
            store(l, &own[i], value, from);
    }
}

static void read_precision(Reader *r)
{
    Lower *l = r->l;
    const ValueOrigin *said = &r->said[PRECISION];
    const char *name = !said->value ? defaults[PRECISION] : said->value->kind == A_NAME ? said->value->name : "";
    NearMiss near = { .name = name };
    OtherText elsewhere;
    for (int i = 1; i < N_Precision; i++)
        offer(&near, Precision_words[i]);
    l->m->train.precision = WORD_OF(Precision, name);
    if (l->m->train.precision) {
        add_setting(l, "train.precision", name, "", from_text(l, said));
        return;
    }
    const char *quotes = unquoted_help(l, said->value), *help = quotes ? quotes : did_you_mean(l->arena, &near);
    enter_origin(l, said, &elsewhere);
    complain(l, (Where){ .at = said->value->loc, .help = help ? help : "fp32, bf16, fp16 or fp8" },
             "%s is not a valid precision", quoted(l, said->value));
    leave_origin(l, said, &elsewhere);
}

/* Not in f16: without a scale of their own, small gradients would be zeros in it. */
static void read_grad_storage(Reader *r)
{
    static const char *const dtypes[] = { "f32", "bf16", NULL };
    Lower *l = r->l;
    const ValueOrigin *said = &r->said[GRAD_STORAGE];
    const char *dtype = defaults[GRAD_STORAGE];
    OtherText elsewhere;
    if (said->value) {
        enter_origin(l, said, &elsewhere);
        dtype = read_word(l, "dtype to keep gradients in", dtypes, said->value, NULL, NULL);
        leave_origin(l, said, &elsewhere);
    }
    if (!dtype)
        return;
    l->m->train.grad_storage = dtype_named(dtype) == F32 ? NULL : intern_text(l->m, dtype);
    add_setting(l, "train.grad_storage", dtype, "", from_text(l, said));
}

static const char *loss_chunks_text(Lower *l, const Ast *ast, Int *count)
{
    static const char *const words[] = { "none", "auto" };
    enum { MOST = 1 << 20 };
    NearMiss near = { .name = ast->name };
    if (ast->kind != A_NAME || find_symbol_here(&l->globals, ast->name))
        return integer_of(l, ast, "'loss_chunks'", 1, MOST, count) ? arena_text(l->arena, "%" PRId64, *count) : NULL;
    for (int i = 0; i < 2; i++) {
        offer(&near, words[i]);
        if (strcmp(ast->name, words[i]) == 0)
            return words[i];
    }
    const char *help = did_you_mean(l->arena, &near);
    return complain(l, (Where){ .at = ast->loc, .help = help ? help : "none, auto, or a number" },
                    "'%s' is not a valid number of chunks for the loss", ast->name),
           NULL;
}

/* A small instance for verification has no large logits: it has chunks wherever it can. */
static void read_loss_chunks(Reader *r)
{
    Lower *l = r->l;
    const ValueOrigin *said = &r->said[LOSS_CHUNKS];
    Int count = 0;
    OtherText elsewhere;
    enter_origin(l, said, &elsewhere);
    const char *text = said->value ? loss_chunks_text(l, said->value, &count) : defaults[LOSS_CHUNKS];
    leave_origin(l, said, &elsewhere);
    if (!text)
        return;
    count = strcmp(text, "auto") == 0 ? LOSS_CHUNKS_AUTO : count > 1 ? count : 0;
    l->m->train.loss_chunks = count && l->options->shrink ? LOSS_CHUNKS_SEVERAL : count;
    add_setting(l, "train.loss_chunks", text, "", from_text(l, said));
}

/* --- Constraints between settings ----------------------------------------------------------- */

static void fail_at(Reader *r, int key, const char *help, const char *message)
{
    Lower *l = r->l;
    const ValueOrigin *said = &r->said[key];
    OtherText elsewhere;
    enter_origin(l, said, &elsewhere);
    complain(l, (Where){ .at = said->value ? said->value->loc : r->train, .help = help }, "%s", message);
    leave_origin(l, said, &elsewhere);
}

static void check_batch(Reader *r)
{
    Lower *l = r->l;
    Train *t = &l->m->train;
    const char *from[] = { from_text(l, &r->said[BATCH]), from_text(l, &r->said[MICROBATCH]) };
    if (!l->batch && (r->said[BATCH].value || r->said[MICROBATCH].value))
        fail_at(r, r->said[BATCH].value ? BATCH : MICROBATCH, "dim batch",
                "the file has no dim without a size, so it has no batch");
    int64_t ranks = l->declared_ranks;
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

/* All of a step's micro-batches are computed so many at a time. */
static void check_abreast(Reader *r)
{
    Lower *l = r->l;
    const Train *t = &l->m->train;
    const int64_t micros = t->batch / (t->microbatch * l->declared_ranks);
    int64_t most = t->abreast > 1 ? t->abreast : 1;
    while (micros % most)
        most--;
    if (most < t->abreast)
        fail_at(r, ABREAST,
                most > 1 ? arena_text(l->arena, "abreast = %" PRId64, most)
                         : arena_text(l->arena, "batch = %" PRId64, t->batch * t->abreast),
                arena_text(l->arena,
                           "a step has %" PRId64 " micro-batch%s, which abreast = %" PRId64 " does not divide", micros,
                           micros == 1 ? "" : "es", t->abreast));
    add_setting(l, "train.abreast", arena_text(l->arena, "%" PRId64, t->abreast ? t->abreast : 1), "micro-batches",
                from_text(l, &r->said[ABREAST]));
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
        fail_at(r, SCHEDULE, arena_text(l->arena, "lower it too: --set train.schedule.min_lr=%g", t->lr / 10),
                arena_text(l->arena, "min_lr = %g is above lr = %g", t->min_lr, t->lr));
}

/* For verification: at most two micro-batches of two sequences per rank, or twice those that run abreast; one, if there
 * is one. */
static void shrink_batch(Train *t, int64_t ranks, int64_t declared_ranks)
{
    const int64_t micros = t->batch / (t->microbatch * declared_ranks), most = t->abreast ? 2 * t->abreast : 2;
    t->microbatch = t->microbatch < 2 ? t->microbatch : 2;
    t->batch = t->microbatch * ranks * (micros < most ? micros : most);
}

void read_settings(Lower *l)
{
    Reader r = { .l = l };
    int before = l->diags->errors;
    l->optimizing = NEW(l->arena, Optimizing);
    r.train = l->model->name_loc;
    read_file(&r);
    read_sets(&r);
    read_optimizers(l, &r.said[OPTIMIZER], defaults[OPTIMIZER]);
    read_schedule(&r);
    read_single(&r, CLIP);
    read_single(&r, CLIP_VALUE);
    read_single(&r, EMA);
    read_single(&r, SKIP_SPIKES);
    read_single(&r, BATCH);
    read_single(&r, MICROBATCH);
    read_single(&r, ABREAST);
    read_single(&r, SEED);
    read_precision(&r);
    read_grad_storage(&r);
    read_loss_chunks(&r);
    l->optimizing->freeze = r.said[FREEZE];
    l->optimizing->trained = r.said[TRAINED];
    bool good = l->diags->errors == before;
    if (good)
        check_schedule(&r);
    if (good && l->m->train.skip_spikes > 0 && l->m->train.skip_spikes <= 1)
        fail_at(&r, SKIP_SPIKES, "skip_spikes = 4, or 0 to skip none",
                "skip_spikes must be above 1: it is how many times its usual size a gradient norm may have");
    if (good) {
        check_batch(&r);
        check_abreast(&r);
    }
    if (l->options->shrink && good)
        shrink_batch(&l->m->train, l->data_ranks, l->declared_ranks);
    if (l->m->train.microbatch < 1)
        l->m->train.batch = l->m->train.microbatch = 1; /* after an error: so that the rest can be checked */
    l->m->train.microbatch *= l->data_ranks;            /* from here on: of all ranks together */
}
