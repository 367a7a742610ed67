/* policies.c -- `parallel { }`: zero and recompute; words and options of all policies. */
#include "lower/expr.h"
#include "parallel.h"

#include <inttypes.h>
#include <string.h>

static const char *const recomputations[] = { "none", "full", "selective", "auto(BYTES)", NULL };
static const char *const levels[] = { "0", "1", "2", "3", NULL };

/* --- zero ----------------------------------------------------------------------------------------- */

enum { ZERO_BUCKET = 25000000 }; /* the default of PyTorch's DistributedDataParallel */

static const char *const grad_dtypes[] = { "f32", "bf16", NULL };
static const char *const gatherings[] = { "step", "micro", NULL };

static void read_flag(Lower *l, const Ast *option, Flag *flag)
{
    const char *word = option->kind == A_NAME ? "true" : option->child->name ? option->child->name : "";
    *flag = strcmp(word, "true") == 0;
    if (!*flag && strcmp(word, "false") != 0)
        complain(l, (Where){ .at = option->child->loc, .help = "true or false" }, "'%s' must be true or false",
                 option->name);
}

static void read_zero_option(Lower *l, const Ast *option)
{
    static const char *const names[] = { "gather", "grad_dtype", "bucket", "overlap_grads", "overlap_params", NULL };
    Train *t = &l->m->train;
    NearMiss near = { .name = option->name };
    if (!is_word(names, option->name, &near)) {
        const char *help = did_you_mean(l->arena, &near);
        complain(l, (Where){ .at = option->loc, .help = help ? help : word_list(l, names) }, "zero has no option '%s'",
                 option->name);
    } else if (strncmp(option->name, "overlap", 7) == 0) {
        read_flag(l, option, strcmp(option->name, "overlap_grads") == 0 ? &t->overlap_grads : &t->overlap_params);
    } else if (option->kind != A_KEYWORD) {
        complain(l, (Where){ .at = option->loc, .help = arena_text(l->arena, "%s = ...", option->name) },
                 "'%s' needs a value", option->name);
    } else if (strcmp(option->name, "bucket") == 0) {
        integer_of(l, option->child, "'bucket', in bytes,", 1, INT64_C(1) << 40, &t->bucket);
    } else if (strcmp(option->name, "gather") == 0) {
        const char *word = read_word(l, "time to keep gathered parameters", gatherings, option->child, NULL, NULL);
        t->gather = word ? WORD_OF(Gathering, word) : ANY_GATHERING;
    } else {
        const char *word = read_word(l, "dtype of gradients", grad_dtypes, option->child, NULL, NULL);
        t->grad_dtype = word ? intern_text(l->m, word) : NULL;
    }
}

/* Is the axis data-parallel? */
static bool splits_data(const Lower *l, const MeshAxis *axis)
{
    for (const ShardRule *rule = l->m->rules; rule; rule = rule->next)
        for (int i = 0; i < rule->dims.count && rule->axis == axis->first; i++)
            for (const Ast *ast = l->model ? l->model->body : NULL; ast; ast = ast->next)
                for (const Ast *dim = ast->kind == A_INPUT ? ast->type->child : NULL; dim; dim = dim->next)
                    if (strcmp(dim->name, rule->dims.name[i]) == 0)
                        return true;
    return false;
}

/* NULL: the file does not say it. */
static const Ast *said_option(const Ast *options, const char *name)
{
    while (options && strcmp(options->name, name) != 0)
        options = options->next;
    return options;
}

/* Notes zero's effective options, including defaults; none on one rank.  Those of overlap follow later. */
static void note_zero_options(Lower *l, const Ast *said_options)
{
    const Train *t = &l->m->train;
    const struct {
        const char *name, *value, *unit;
    } options[] = {
        { "gather", gatherings[t->gather ? t->gather == GATHER_MICRO : t->zero >= 3], "" },
        { "grad_dtype", t->grad_dtype ? t->grad_dtype : "as computed", "" },
        { "bucket", arena_text(l->arena, "%" PRId64, t->bucket), "bytes" },
    };
    for (size_t i = 0; t->zero_axes && i < sizeof options / sizeof *options; i++) {
        const Ast *said = said_option(said_options, options[i].name);
        add_setting(l, arena_text(l->arena, "parallel.zero.%s", options[i].name), options[i].value, options[i].unit,
                    said ? where_text(l, said->loc) : "default");
    }
}

/* The names of the axes, as one text. */
static const char *read_zero_axes(Layout *p, const Ast *names)
{
    Lower *l = p->l;
    const char *all = NULL;
    for (const Ast *name = names; name; name = name->next) {
        const MeshAxis *axis = use_axis(p, name);
        all = all ? arena_text(l->arena, "%s, %s", all, name->name) : name->name;
        if (axis && axis->count && !splits_data(l, axis))
            complain(l, (Where){ .at = name->loc, .help = arena_text(l->arena, "shard batch over %s", axis->name) },
                     "zero needs a data-parallel axis, but no input is split over '%s'", axis->name);
        for (int i = 0; axis && i < axis->count; i++)
            l->m->train.zero_axes |= 1u << (axis->first + i);
    }
    return all;
}

static void read_zero(Layout *p, const Ast *ast)
{
    Lower *l = p->l;
    Train *t = &l->m->train;
    const char *level = read_word(l, "stage of zero", levels, ast, "--zero", l->options->zero);
    const char *axes = read_zero_axes(p, ast->init);
    t->bucket = ZERO_BUCKET;
    for (const Ast *option = ast->child; option; option = option->next)
        read_zero_option(l, option);
    check_given_once(l, ast->child);
    check_given_once(l, ast->init);
    if (!ast->init && level && strcmp(level, "0") != 0)
        complain(l, (Where){ .at = ast->loc, .help = arena_text(l->arena, "zero %s over dp", level) },
                 "zero %s needs an axis", level);
    t->zero = level ? level[0] - '0' : 0;
    if (!t->zero_axes) /* one rank: nothing to split */
        t->zero = t->bucket = 0, t->grad_dtype = NULL, t->overlap_grads = false, t->gather = ANY_GATHERING;
    if (level)
        note_policy(l, "parallel.zero", level, ast, l->options->zero);
    if (axes)
        note_policy(l, "parallel.zero.over", axes, ast->init, NULL);
    note_zero_options(l, ast->child);
}

/* --zero of a file without `zero`: over all axes that split the batch. */
static void read_zero_alone(Layout *p)
{
    Lower *l = p->l;
    Train *t = &l->m->train;
    const char *level = read_word(l, "stage of zero", levels, NULL, "--zero", l->options->zero);
    const Axes axes = l->batch ? axes_over(l->m, intern_text(l->m, l->batch->name), false) : 0;
    if (level && !axes)
        fail_command(l, override_text(l, "--zero", l->options->zero), "give --mesh dp=2 as well",
                     "no axis splits the batch over several ranks, so that nothing can be partitioned");
    if (!level || !axes)
        return;
    t->zero = level[0] - '0';
    t->zero_axes = axes;
    t->bucket = ZERO_BUCKET;
    const char *over = NULL;
    for (int i = 0; i < p->naxes; i++)
        if (p->axis[i].count && axes >> p->axis[i].first & 1)
            over = over ? arena_text(l->arena, "%s, %s", over, p->axis[i].name) : p->axis[i].name;
    note_policy(l, "parallel.zero", level, NULL, l->options->zero);
    add_setting(l, "parallel.zero.over", over, "", "default");
    note_zero_options(l, NULL);
}

/* --- Messages of zero beside computation ---------------------------------------------------------- */

/* Are the gradients of a layer reduced in its backward?  If so, those of one layer are under way at a time.  Otherwise
 * reduced gradients would lie beside all that are not yet reduced. */
static bool reduces_by_layer(const Module *m) { return m->train.zero >= 2 || m->train.batch <= m->train.microbatch; }

void settle_overlap(Lower *l)
{
    Train *t = &l->m->train;
    const Ast *zero = t->zero_axes ? only_statement(l->layout, A_ZERO) : NULL;
    const struct {
        const char *name;
        Flag *flag;
        bool is_small; /* what it takes: the tensors of a layer at most */
    } options[] = {
        { "overlap_grads", &t->overlap_grads, reduces_by_layer(l->m) },
        { "overlap_params", &t->overlap_params, t->zero >= 1 },
    };
    for (size_t i = 0; t->zero_axes && i < sizeof options / sizeof *options; i++) {
        const Ast *said = zero ? said_option(zero->child, options[i].name) : NULL;
        const bool is_given_up = options[i].is_small && l->options->no_overlap;
        if (!said)
            *options[i].flag = options[i].is_small && !is_given_up;
        add_setting(l, arena_text(l->arena, "parallel.zero.%s", options[i].name), *options[i].flag ? "true" : "false",
                    "",
                    said          ? where_text(l, said->loc)
                    : is_given_up ? "recompute auto"
                                  : "default");
    }
}

/* --- recompute ------------------------------------------------------------------------------------ */

static bool says_auto(const Ast *value)
{
    return value && (value->kind == A_CALL || value->kind == A_NAME) && strcmp(value->name, "auto") == 0;
}

/* auto(BYTES); false after reporting. */
static bool read_auto(Lower *l, const Ast *value)
{
    const double MOST = 0x1p60;
    const Ast *bytes = value->kind == A_CALL ? value->child : NULL;
    Constant number;
    if (!bytes || bytes->next || bytes->kind == A_KEYWORD || bytes->kind == A_ARROW || value->as)
        return complain(l, (Where){ .at = value->loc, .help = "auto(40e9)" },
                        "'auto' needs one number: the most bytes of memory that a rank may use");
    if (!constant_of(l, bytes, &number))
        return false;
    if (!(number.value >= 1 && number.value <= MOST))
        return complain(l, (Where){ .at = bytes->loc, .help = "auto(40e9)" },
                        "the bytes of 'auto' must be from 1 to %.2g, not %s", MOST, constant_text(l->arena, number));
    l->m->train.recompute_budget = number.real ? (int64_t)number.value : number.integer;
    return true;
}

static bool read_auto_option(Lower *l, const char *said)
{
    OtherText elsewhere;
    enter_other_text(l, &elsewhere, "--recompute", said);
    const Ast *value = parse_expression(l->source, l->diags, l->arena);
    bool good = value && says_auto(value) && read_auto(l, value);
    leave_other_text(l, &elsewhere);
    return good;
}

static void read_recompute(Lower *l, const Ast *ast)
{
    const Ast *value = ast ? ast->child : NULL;
    const char *said = l->options->recompute, *word = "none";
    Train *t = &l->m->train;
    if (said && (strcmp(said, "auto") == 0 || strncmp(said, "auto(", 5) == 0))
        word = read_auto_option(l, said) ? "auto" : NULL;
    else if (!said && says_auto(value))
        word = read_auto(l, value) ? "auto" : NULL;
    else if (value || said)
        word = read_word(l, "recomputation", recomputations, value, "--recompute", said);
    t->recompute = word ? WORD_OF(Recompute, word) : RECOMPUTE_NONE;
    note_policy(l, "parallel.recompute",
                t->recompute == RECOMPUTE_AUTO ? arena_text(l->arena, "auto(%" PRId64 ")", t->recompute_budget)
                                               : Recompute_words[t->recompute],
                value, said);
}

/* --- The whole statement --------------------------------------------------------------------- */

void read_policies(Layout *p)
{
    Lower *l = p->l;
    const Ast *zero = only_statement(p, A_ZERO);
    if (zero)
        read_zero(p, zero);
    else if (l->options->zero)
        read_zero_alone(p);
    read_recompute(l, only_statement(p, A_RECOMPUTE));
    read_offload(p);
}
