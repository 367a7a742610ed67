/* mean.c -- `state target = mean of online (0.99)`: an instance whose weights are running means of those of another
 * one.
 *
 * Each parameter that a use declares is one that the optimizer does not train: it begins as that of the other instance
 * does, is read as a constant, and has an update, which reads the other one as it is after the step:
 *
 *   func update @update.target.w(%target.w as param(target.w), %1 as param(online.w, new)) {
 *     return 0.99 * %target.w + 0.01 * %1
 *   }
 */
#include "elaborate/instances.h"
#include "expr.h"

#include <string.h>

static const NamedInstance *mean_around(const Use *use)
{
    while (use && !(use->of && use->of->mean_of))
        use = use->outer;
    return use ? use->of : NULL;
}

bool is_mean(const Lower *l) { return mean_around(l->use) != NULL; }

bool begin_mean(Lower *l, Name full, Param *param)
{
    const NamedInstance *mean = mean_around(l->use);
    const Name like = intern_format(l->m, "%s%s", mean->mean_of->path, full + strlen(mean->path));
    param->frozen = true;
    param->state = param->decay = false;
    param->like = like;
    if (l->role != MODEL || find_param(l->m, like))
        return true;
    return complain(
        l, (Where){ .at = l->now.calls[l->now.ncalls - 1].call->name_loc, .help = "call the other instance above" },
        "this is a mean of '%s', which is not there yet", like);
}

/* Have they the same dims, but for those that count copies? */
static bool is_like(const Param *a, const Param *b)
{
    bool alike = a->type.rank == b->type.rank;
    for (int i = 0; alike && i < a->type.rank; i++)
        alike = a->type.dim[i].size == b->type.dim[i].size &&
                (i < repeats_around(a) || a->type.dim[i].name == b->type.dim[i].name);
    return alike;
}

/* With the dims of the mean. */
static Value *renamed(Builder *b, Value *value, const Type *type)
{
    for (int i = 0; i < type->rank; i++)
        if (value->type.dim[i].name != type->dim[i].name)
            value = BUILD(b, OP_rename, ((Attrs){ .dim = value->type.dim[i].name, .to = type->dim[i].name }), value);
    return value;
}

void update_mean(Lower *l, const Param *param)
{
    const NamedInstance *mean = mean_around(l->use);
    const Param *other = find_param(l->m, param->like);
    const Port own = { .kind = PORT_PARAM, .of = param->name };
    if (!is_like(param, other)) {
        complain(l, (Where){ .at = l->now.calls[l->now.ncalls - 1].call->name_loc, .help = "give both the same dims" },
                 "'%s' is %s, and '%s', which it is a mean of, %s", param->path, dims_text(l, &param->type),
                 other->path, dims_text(l, &other->type));
        return;
    }
    Func *f = NEW(l->arena, Func);
    *f = (Func){ .name = free_function_name(l, intern_format(l->m, "update.%s", param->name)), .role = UPDATE };
    Builder b = { .module = l->m, .func = f, .path = param->name, .where = param->where };
    Value *before = add_param(l->m, f, param->name, param->type), *now = add_param(l->m, f, other->name, other->type);
    before->port = own;
    now->port = (Port){ .kind = PORT_PARAM, .of = other->name, .slot = intern_text(l->m, "new") };
    Value *kept = BUILD(&b, OP_mul, NO_ATTRS, before, build_number(&b, mean->share));
    Value *taken = BUILD(&b, OP_mul, NO_ATTRS, renamed(&b, now, &param->type), build_number(&b, 1 - mean->share));
    add_result(l->m, f, BUILD(&b, OP_add, NO_ATTRS, kept, taken), own);
    append_func(l->m, f);
}
