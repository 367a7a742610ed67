/* explain.c -- mpc explain: follows one tensor through the compiler, and explains its layout.
 *
 * After each pass, finds the tensor's types: of a parameter, in the optimizer, in the model, of its gradient and
 * moments; of a value, the result of the op with that name.  Prints changes, with the settings that caused them.  At
 * the end, from the final program: the collectives on it, and its storage.
 */
#include "explain.h"

#include "manager/pass.h"
#include "near.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* --- Names ---------------------------------------------------------------------------------------- */

/* "h.3.attn.wq" without its numbers: "h.attn.wq"; the numbers are in the positions of the stars in the path,
 * "h.*.attn.wq". */
static const char *without_numbers(Arena *arena, const char *name)
{
    char *text = arena_text(arena, "%s", name), *to = text;
    for (const char *at = name; *at;) {
        size_t length = strcspn(at, ".");
        bool is_number = strspn(at, "0123456789*") == length && length > 0 && at != name;
        if (!is_number) {
            to = to == text ? to : (*to = '.', to + 1);
            memcpy(to, at, length);
            to += length;
        }
        at += length + (at[length] == '.');
    }
    *to = '\0';
    return text;
}

/* A name beside the path of a parameter: their common begin. */
typedef struct {
    const char *path, *name; /* what follows it */
    int numbers;             /* in it, of copies */
    bool exist;              /* have all of these copies the parameter? */
} Common;

static Common common_begin(const Param *param, const char *name)
{
    Common both = { param->path, name, 0, true };
    while (*both.path && *both.name) {
        if (*both.path == '*' && isdigit((unsigned char)*both.name)) {
            char *after;
            const bool is_first = both.numbers == 0;
            const int64_t first = is_first ? param->first : 0, step = is_first ? 1 + param->skips : 1;
            const int64_t number = strtoll(both.name, &after, 10) - first;
            both.exist &= number >= 0 && number % step == 0 && number / step < param->type.dim[both.numbers].size;
            both.numbers++;
            both.name = after;
            both.path++;
        } else if (*both.path != *both.name) {
            break;
        } else {
            both.path++;
            both.name++;
        }
    }
    return both;
}

/* Are the numbers of `name` those of existing copies?  "h.99.wq" of twelve copies is not. */
static bool has_copy(const Param *param, const char *name)
{
    const Common both = common_begin(param, name);
    return both.exist && *both.path == '\0' && *both.name == '\0';
}

/* The same of a value, which is like the parameters of its block.  Without any, its copies are not known. */
static bool value_has_copy(const Module *m, const char *name)
{
    int most = 0;
    bool exists = true;
    for (const Param *param = m->params; param; param = param->next) {
        const Common both = common_begin(param, name);
        if (both.numbers > most)
            exists = false;
        most = both.numbers > most ? both.numbers : most;
        exists |= both.numbers == most && both.exist;
    }
    return exists;
}

static void offer_paths(NearMiss *near, const Module *m)
{
    for (const Func *f = m->funcs; f; f = f->next)
        for (const Op *op = f->first; op; op = op->next)
            if (op->path)
                offer(near, op->path);
}

static bool is_path(const Module *m, const char *name)
{
    for (const Func *f = m->funcs; f; f = f->next)
        for (const Op *op = f->first; op; op = op->next)
            if (op->path && strcmp(op->path, name) == 0)
                return true;
    return false;
}

/* All copies of a parameter: those of each chunk of a pipeline are one of their own. */
static int64_t count_copies(const Module *m, Name path)
{
    int64_t copies = 0;
    for (const Param *param = m->params; param; param = param->next)
        copies += param->path == path ? param->type.dim[0].size : 0;
    return copies;
}

/* The parameter that holds this copy; NULL: none. */
static const Param *chunk_with(const Param *param, const char *name)
{
    for (const Param *chunk = param; chunk; chunk = chunk->next)
        if (chunk->path == param->path && has_copy(chunk, name))
            return chunk;
    return NULL;
}

/* The first parameter whose name ends so: h.attn.wq for wq. */
static const char *param_ending(const Module *m, const char *name)
{
    for (const Param *param = m->params; param; param = param->next) {
        const size_t whole = strlen(param->name), end = strlen(name);
        if (whole > end && param->name[whole - end - 1] == '.' && strcmp(param->name + whole - end, name) == 0)
            return param->name;
    }
    return NULL;
}

static bool find_tensor(Explain *e)
{
    Module *m = e->m;
    const char *name = e->run->options->name;
    const char *plain = without_numbers(&e->run->arena, name);
    NearMiss near = { .name = plain };
    e->param = find_param(m, intern_text(m, plain));
    e->path = intern_text(m, plain);
    if (e->param && strcmp(name, plain) != 0) {
        const Param *chunk = chunk_with(e->param, name);
        if (!chunk)
            return run_failed(e->run, "there is no %s: the parameter is %s, with %lld copies", name, e->param->path,
                              (long long)count_copies(m, e->param->path));
        e->param = chunk;
    }
    if (!e->param && is_path(m, plain) && !value_has_copy(m, name))
        return run_failed(e->run, "there is no %s: %s has fewer copies", name, plain);
    if (e->param || is_path(m, plain))
        return true;
    for (const Param *param = m->params; param; param = param->next)
        offer(&near, param->name);
    offer_paths(&near, m);
    const char *ending = *plain ? param_ending(m, plain) : NULL, *meant = ending ? ending : near.best;
    return run_failed(e->run, "%s has no parameter or value '%s'%s%s%s", e->run->source.path, name,
                      meant ? ": did you mean " : " ('mpc check --verbose' lists them)", meant ? meant : "",
                      meant ? "?" : "");
}

/* --- Types after a pass -------------------------------------------------------------------------- */

static void see(Explain *e, const char *what, const Type *type)
{
    if (e->count < MAX_FACETS)
        e->now[e->count++] = (Facet){ what, *type };
}

/* The type in the layers: that of the first function, except programs, with it as a parameter. */
static void see_in_model(Explain *e)
{
    for (const Func *f = e->m->funcs; f; f = f->next) {
        const Value *own = is_program(f) || f->role == KERNEL ? NULL : param_for(f, PORT_PARAM, e->param->name);
        if (!own)
            continue;
        see(e, "as the model reads it", &own->type);
        return;
    }
}

/* The gradient in the step, from the backward pass. */
static void see_gradient(Explain *e)
{
    const Func *step = func_with_role(e->m, STEP);
    for (const Op *op = step ? step->first : NULL; op; op = op->next) {
        const Func *callee = op->attrs.callee ? find_func(e->m, op->attrs.callee) : NULL;
        int at = callee ? result_at(callee, (Port){ .kind = PORT_GRADIENT, .of = e->param->name }) : -1;
        if (at >= 0)
            see(e, "its gradient", &op->results.at[at]->type);
    }
}

static void see_state(Explain *e)
{
    const Func *step = func_with_role(e->m, STEP);
    for (int i = 0; step && i < step->params.count; i++) {
        const Value *value = step->params.at[i];
        if (value->port.kind == PORT_OPTIMIZER && value->port.of == e->param->name)
            see(e, arena_text(&e->run->arena, "its state %s", value->port.slot), &value->type);
    }
}

typedef struct {
    const Explain *e;
    Map forward;
    const Func *func; /* the first function of the forward pass with the path */
    const Op *last;   /* its last op of that path */
} Search;

static void find_last(void *context, const Func *f, const Op *op, double times)
{
    Search *search = context;
    if (op->path != search->e->path || f->role == KERNEL || !map_get(&search->forward, op))
        return;
    if (!search->func)
        search->func = f;
    if (search->func == f && op->results.count)
        search->last = op;
}

static void see_value(Explain *e)
{
    Search search = { .e = e, .forward.arena = &e->run->arena };
    const Func *program = func_with_role(e->m, MODEL) ? func_with_role(e->m, MODEL) : func_with_role(e->m, STEP);
    mark_forward(e->m, &search.forward, result_for(program, PORT_LOSS));
    visit_program(e->m, program, find_last, &search);
    if (search.last)
        see(e, "as the model makes it", &result(search.last)->type);
}

static void see_all(Explain *e)
{
    e->count = 0;
    if (!e->param) {
        see_value(e);
        return;
    }
    see(e, "as the optimizer holds it", &e->param->type);
    see_in_model(e);
    see_gradient(e);
    see_state(e);
}

/* --- Why ---------------------------------------------------------------------------------------------- */

/* "name = value (where)" of a setting; NULL if unknown. */
static const char *setting_text(const Explain *e, const char *name)
{
    for (int i = 0; i < e->settings.count; i++) {
        const Setting *s = &e->settings.at[i];
        if (strcmp(s->name, name) == 0)
            return arena_text(&e->run->arena, "%s = %s (%s)", s->name, s->value, s->from);
    }
    return NULL;
}

/* Each reason is printed once per pass. */
static void because(Explain *e, const char *reason)
{
    for (int i = 0; i < e->nreasons; i++)
        if (strcmp(e->reason[i], reason) == 0)
            return;
    if (e->nreasons < MAX_REASONS)
        e->reason[e->nreasons++] = reason;
}

static bool is_split_over(const Dim *dim, int axis)
{
    for (int i = 0; i < dim->split.count; i++)
        if (dim->split.axis[i] == axis)
            return true;
    return false;
}

/* Does a rule of the axis name the dim, or the dim that it is split like?  `otherwise`: in its `else`. */
static bool is_by_rule(const Module *m, int axis, Name dim, bool otherwise)
{
    const Name ruled = ruled_as(m, dim);
    for (const ShardRule *rule = m->rules; rule; rule = rule->next) {
        const Names named = otherwise ? (Names){ rule->otherwise != NULL, { rule->otherwise } } : rule->dims;
        if (rule->axis == axis && (has_name(&named, dim) || has_name(&named, ruled)))
            return true;
    }
    return false;
}

static void explain_split(Explain *e, const Dim *dim, int axis)
{
    const Module *m = e->m;
    Arena *arena = &e->run->arena;
    const bool otherwise = !is_by_rule(m, axis, dim->name, false) && is_by_rule(m, axis, dim->name, true);
    int length = (int)strcspn(m->axis[axis], "."); /* "tp.kv_heads" is a part of tp */
    const char *rule = setting_text(e, arena_text(arena, "parallel.shard.%.*s", length, m->axis[axis]));
    if (axis == m->kind_axis)
        rule = arena_text(arena, "%s, %s", setting_text(e, "parallel.schedule"), setting_text(e, "parallel.stages"));
    else if (!is_by_rule(m, axis, dim->name, false) && !otherwise)
        rule = arena_text(arena, "%s, %s", setting_text(e, "parallel.zero"), setting_text(e, "parallel.zero.over"));
    const bool is_dealt = dim->zigzag && dim->split.axis[0] == axis;
    const int count = dim->zigzag > 2 ? dim->zigzag : dim->split.dealt;
    const char *blocks = count ? arena_text(arena, ", %d blocks for each rank", count) : "";
    because(e, arena_text(arena, "%s over %s%s%s%s: %s", dim->name, m->axis[axis], is_dealt ? " in zig-zag" : "",
                          is_dealt || dim->split.dealt ? blocks : "", otherwise ? " by else" : "", rule));
}

static const Facet *facet_before(const Explain *e, const char *what)
{
    for (int i = 0; i < e->nbefore; i++)
        if (strcmp(e->before[i].what, what) == 0)
            return &e->before[i];
    return NULL;
}

static void explain_change(Explain *e, const Facet *now, const Facet *before)
{
    for (int i = 0; i < now->type.rank; i++)
        for (int j = 0; j < now->type.dim[i].split.count; j++) {
            const Dim *dim = &now->type.dim[i];
            int at = before ? find_dim(&before->type, dim->name) : -1, axis = dim->split.axis[j];
            if (at < 0 || !is_split_over(&before->type.dim[at], axis))
                explain_split(e, dim, axis);
        }
    if (before && before->type.dtype != now->type.dtype)
        because(e, setting_text(e, "train.precision"));
    if (now->type.partial & ~(before ? before->type.partial : 0))
        because(e, arena_text(&e->run->arena, "pending over %s: each rank has summed its part of a split dim",
                              axes_list(&e->run->arena, e->m, now->type.partial)));
}

/* Prints the changes of a pass, if any. */
static void print_changes(Explain *e, const char *pass)
{
    see_all(e);
    e->nreasons = 0;
    for (int i = 0; i < e->count; i++) {
        const Facet *now = &e->now[i], *before = facet_before(e, now->what);
        if (before && type_equal(&before->type, &now->type))
            continue;
        printf("  %-12s %-26s %s\n", pass, now->what, type_text(e->m, &now->type));
        explain_change(e, now, before);
        pass = "";
    }
    for (int i = 0; i < e->nreasons; i++)
        printf("      %s\n", e->reason[i]);
    memcpy(e->before, e->now, sizeof e->now);
    e->nbefore = e->count;
}

static bool run_and_explain(Explain *e)
{
    const char *after = NULL;
    print_changes(e, "as declared");
    for (int i = 0; i < npasses; i++) {
        if (!run_passes(e->m, &(PassOptions){ .start_after = after, .stop_after = passes[i].name }))
            return false;
        print_changes(e, after = passes[i].name);
    }
    return true;
}

/* --- The command -------------------------------------------------------------------------------------- */

static void print_head(const Explain *e)
{
    if (!e->param) {
        printf("%s: a value of %s\n", e->path, shown_path(e->run));
        return;
    }
    printf("%s: parameter %s, declared at %s", e->run->options->name, e->param->path, e->param->where);
    const char *star = strchr(e->param->path, '*');
    const int64_t first = e->param->first, step = 1 + e->param->skips, copies = star ? e->param->type.dim[0].size : 0;
    if (star && count_copies(e->m, e->param->path) > copies)
        printf("; copies %lld%s to %lld are stored together", (long long)first,
               e->param->skips ? arena_text(&e->run->arena, ", %lld", (long long)(first + step)) : "",
               (long long)(first + step * (copies - 1)));
    else if (star)
        printf("; its copies are stored together");
    putchar('\n');
}

int run_explain(Run *run)
{
    Explain e = { .run = run };
    e.m = read_source(run, run->options->operand) ? lower_source(run, 0, &e.settings) : NULL;
    bool good = e.m && find_tensor(&e);
    if (good) {
        print_head(&e);
        good = run_and_explain(&e);
    }
    if (good) {
        print_program_facts(&e);
    }
    if (e.m)
        free_module(e.m);
    return good ? STATUS_OK : STATUS_FAILED;
}
