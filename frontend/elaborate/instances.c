/* instances.c -- instances of blocks: their names and paths, and those that a name stands for: `h = mlp`.
 *
 * Each use of such an instance, `h(x)`, lowers the block again, under the same path.  Its parameters are those of the
 * function in which it is named, where the first use declares them; a use inside of a repeat there captures them:
 *
 *   h = mlp                          func @lm(%h.w, ...)
 *   repeat 4 { x = h(x) }      =>      %1 = loop %x, %h.w {callee=turn, carried=1}
 *
 * What is a repeat in the block has stacks there as in any instance.  In a frozen use a parameter is a constant.
 */
#include "instances.h"

#include <string.h>

static bool declares_parameters(const Lower *l, const Ast *ast);

/* Does the block have parameters, or a block that it calls?  (Recursion is reported elsewhere.) */
static bool has_parameters(const Lower *l, Symbol *block)
{
    if (block->parameters == UNKNOWN) {
        block->parameters = NONE_KNOWN;
        block->parameters = declares_parameters(l, block->ast) ? SOME : NONE_KNOWN;
    }
    return block->parameters == SOME;
}

static bool declares_parameters(const Lower *l, const Ast *ast)
{
    const bool may_name = ast->kind == A_CALL || ast->kind == A_NAME; /* of an instance */
    Symbol *called = may_name ? find_symbol_here(&l->globals, ast->name) : NULL;
    if (ast->kind == A_PARAM || (called && called->kind == S_BLOCK && has_parameters(l, called)))
        return true;
    const Ast *const lists[] = { ast->init, ast->child, ast->body };
    for (int i = 0; i < 3; i++)
        for (const Ast *child = lists[i]; child; child = child->next)
            if (declares_parameters(l, child))
                return true;
    return false;
}

static const char *help_with_two(Lower *l, const Symbol *block, const char *name)
{
    const char *own = strcmp(name, block->name) == 0 ? arena_text(l->arena, "%s_1", name) : name;
    return arena_text(l->arena, "%s(...) as %s_2; or, for one set of weights, %s = %s above, and %s(...) each time",
                      block->name, name, own, block->name, own);
}

bool is_free_instance(Lower *l, Symbol *block, const char *name, Loc loc)
{
    const bool has_params = has_parameters(l, block);
    for (const Instance *i = *l->instances; i; i = i->next)
        if (has_params && i->has_params && strcmp(i->name, name) == 0)
            return complain(
                l, (Where){ .at = loc, .help = help_with_two(l, block, name) },
                "a second instance '%s' here: the first is at %s, and both would have the same parameter names", name,
                position_text(l, i->loc));
    Instance *instance = NEW(l->arena, Instance);
    *instance = (Instance){ name, loc, has_params, *l->instances };
    *l->instances = instance;
    return true;
}

/* --- Paths --------------------------------------------------------------------------------- */

Name join_path(Lower *l, Name path, const char *name)
{
    return path ? intern_format(l->m, "%s.%s", path, name) : intern_text(l->m, name);
}

/* The instance's name with a star for each directly enclosing repeat; all places of a scan have one. */
static const char *starred(Lower *l, const char *name)
{
    const Scope *scope = l->scope;
    for (const Body *frame = l->frame; frame->outer && scope == frame->scope;
         frame = frame->outer, scope = scope->outer)
        name = frame->scans ? name : arena_text(l->arena, "%s.*", name);
    return name;
}

/* The instance's name in the IR: "h", and "h.at.5" of copy 5 with a body of its own. */
static const char *numbered(Lower *l, const char *name)
{
    const Scope *scope = l->scope;
    for (const Body *frame = l->frame; frame->outer && scope == frame->scope;
         frame = frame->outer, scope = scope->outer)
        if (frame->number)
            return arena_text(l->arena, "%s.at.%d", name, frame->number);
    return name;
}

Name instance_path(Lower *l, const char *name) { return join_path(l, l->path, numbered(l, name)); }

Name instance_stars(Lower *l, const char *name) { return join_path(l, l->stars, starred(l, name)); }

/* --- Instances with a name ----------------------------------------------------------------- */

bool names_instance(const Lower *l, const Ast *ast)
{
    const bool is_name = ast->kind == A_ASSIGN && !ast->child->next && !ast->type && ast->init->kind == A_NAME;
    const Symbol *block = is_name ? find_symbol_here(&l->globals, ast->init->name) : NULL;
    return block && block->kind == S_BLOCK;
}

NamedInstance *name_instance(Lower *l, const Ast *name, Symbol *block)
{
    const Symbol *other = find_symbol(l->scope, name->name);
    if (other)
        complain(l, (Where){ .at = name->loc, .help = "give the instance another name" },
                 "'%s' is already %s, declared at %s", name->name, symbol_noun(other->kind),
                 position_text(l, other->loc));
    if (other || !is_free_instance(l, block, name->name, name->loc))
        return NULL;
    NamedInstance *shared = NEW(l->arena, NamedInstance);
    *shared = (NamedInstance){
        .block = block, .path = instance_path(l, name->name), .stars = instance_stars(l, name->name), .frame = l->frame
    };
    declare(l, l->scope, S_INSTANCE, name->name, name->loc)->shared = shared;
    return shared;
}

void lower_named(Lower *l, const Ast *ast)
{
    Symbol *block = find_symbol_here(&l->globals, ast->init->name);
    block->used = true;
    name_instance(l, ast->child, block);
}

Symbol *called_symbol(const Lower *l, const char *name)
{
    Symbol *symbol = find_symbol(l->scope, name);
    return symbol && (symbol->kind == S_INSTANCE || symbol->kind == S_BLOCK) ? symbol : NULL;
}

void refuse_as_block(Lower *l, const Ast *call)
{
    if (call->frozen)
        complain(l, (Where){ .at = call->name_loc, .help = "stop_gradient(x) of a value" },
                 "'frozen' stands before a block or an instance, whose weights then get no gradient");
    if (call->dims)
        complain(l, (Where){ .at = call->dims->loc, .help = "only a call of a block gives dims in brackets" },
                 "'%s' has no dims in brackets", call->name);
}

Symbol *block_called(Symbol *called) { return called->shared ? called->shared->block : called; }

/* --- Parameters ---------------------------------------------------------------------------- */

/* What a use declares a parameter as. */
typedef struct {
    Type type;
    Param param;
    bool trains; /* one that is not frozen has been there */
} Declaration;

const Use *instance_around(const Use *use)
{
    while (use && !use->of)
        use = use->outer;
    return use;
}

/* A repeat around the use alone has no copies of the instance. */
const Body *where_named(const Body *frame, const Use **use)
{
    for (; *use && frame == (*use)->at; *use = instance_around((*use)->outer))
        frame = (*use)->of->frame;
    return frame;
}

bool is_frozen_use(const Lower *l) { return l->use && l->use->frozen; }

/* A state has one update, of one use. */
static bool state_is_free(Lower *l, const Declaration *before, const Use *use, Loc at)
{
    const bool is_repeated = use->at != use->of->frame;
    if (!is_repeated && !(before && before->trains))
        return true;
    return complain(l, (Where){ .at = at, .help = "uses that are frozen read it and do not update it" },
                    "this state is updated by one use of its instance, which is used %s",
                    is_repeated ? "in a repeat or scan" : "twice");
}

static bool is_same(Lower *l, const Declaration *a, const Declaration *b, Loc at)
{
    const bool same_type = same_order(&a->type, &b->type) && type_equal(&a->type, &b->type);
    if (same_type && a->param.init == b->param.init && a->param.a == b->param.a && a->param.b == b->param.b)
        return true;
    return complain(l, (Where){ .at = at, .help = "uses of one instance have the same parameters" },
                    same_type ? "another use of this instance initialises the parameter differently"
                              : "another use of this instance declares the parameter as %s, not %s",
                    dims_text(l, &a->type), dims_text(l, &b->type));
}

bool share_param(Lower *l, Name full, const Type *type, Param *param, Loc at)
{
    const Use *use = instance_around(l->use);
    const bool frozen = param->frozen;
    Declaration now = { *type, *param, !is_frozen_use(l) };
    param->frozen |= !now.trains;
    if (!use)
        return true;
    Declaration *before = map_get(&l->now.uses, full);
    if (before && !is_same(l, before, &now, at))
        return false;
    if (param->state && now.trains && !state_is_free(l, before, use, at))
        return false;
    if (!before) {
        before = NEW(l->arena, Declaration);
        *before = now;
        map_put(&l->now.uses, full, before);
    }
    before->trains |= now.trains;
    if (l->role == MODEL && before->trains && find_param(l->m, full))
        find_param(l->m, full)->frozen = frozen;
    return true;
}
