/* explain_program.c -- the collectives and the memory of one tensor in the final program. */
#include "explain.h"

#include "storage.h"

/* A collective on the tensor, of the mean of all kinds of ranks. */
typedef struct {
    const Op *op;
    Phase phase;
    double times, bytes; /* that are sent */
} SentOp;

typedef struct {
    const Explain *e;
    Classes classes;
    int kinds; /* of ranks */
    int nmoved, moved_room;
    SentOp *moved;
    Values seen; /* already listed */
} Listing;

static bool is_of_tensor(const Listing *l, const Value *value)
{
    const Op *op = origin_of(l->e->m, value);
    return l->e->param ? param_behind(&l->classes, value) == l->e->param
                       : op && op->path == l->e->path && !param_behind(&l->classes, value);
}

/* --- Collectives ------------------------------------------------------------------------------------- */

static SentOp *moved_by(Listing *l, const Op *op, Phase phase)
{
    for (int i = 0; i < l->nmoved; i++)
        if (l->moved[i].op == op)
            return &l->moved[i];
    GROW(&l->e->run->arena, l->moved, l->nmoved, l->moved_room);
    l->moved[l->nmoved] = (SentOp){ op, phase, 0, 0 };
    return &l->moved[l->nmoved++];
}

/* Of the tensors of a message, those that are this one. */
static void add_item(void *context, const CostItem *item, double times)
{
    Listing *l = context;
    for (const SentTensor *sent = item->kind == ITEM_MESSAGE ? item->sent : NULL; sent; sent = sent->next)
        if (sent->bytes > 0 && (is_of_tensor(l, result(sent->op)) || is_of_tensor(l, arg(sent->op, 0)))) {
            SentOp *moved = moved_by(l, sent->op, item->phase);
            moved->times += times / l->kinds;
            moved->bytes += sent->bytes * times / l->kinds;
        }
}

static void print_moved(const Listing *l, const SentOp *moved)
{
    Module *m = l->e->m;
    Arena *arena = &l->e->run->arena;
    const Op *op = moved->op;
    printf("  %-14s over %-8s %6.4g times  %12s sent  %s, for %s%s%s\n", info(op)->name,
           axes_list(arena, m, info(op)->traits & MOVES ? 1u << result(op)->type.on.axis : op->attrs.axis),
           moved->times, bytes_text(arena, moved->bytes), phase_name[moved->phase],
           op->attrs.cause ? op->attrs.cause : "the program", op->where ? " at " : "", op->where ? op->where : "");
    printf("      %s -> %s\n", type_text(m, &arg(op, 0)->type), type_text(m, &result(op)->type));
}

static void list_collectives(Listing *l)
{
    const StepCost cost = step_cost(l->e->m, &l->classes, &l->e->run->arena);
    l->kinds = cost.kinds;
    for (int kind = 0; kind < cost.kinds; kind++)
        visit_items(&cost, kind, add_item, l);
    printf("collectives in a step\n");
    for (int i = 0; i < l->nmoved; i++)
        print_moved(l, &l->moved[i]);
    if (!l->nmoved)
        printf("  none\n");
}

/* --- Memory ------------------------------------------------------------------------------------------- */

static bool is_listed_already(const Listing *l, const Value *value)
{
    for (int i = 0; i < l->seen.count; i++) {
        const Value *seen = l->seen.at[i];
        if (have_same_address(seen, value) && type_equal(&seen->type, &value->type))
            return true;
    }
    return false;
}

/* Values with their own storage: others are pointers to these. */
static void list_memory(Listing *l, const Func *f, const Value *value)
{
    if (!value->storage || value->storage->base == BY_POINTER || value->type.rank == 0 || !is_of_tensor(l, value) ||
        is_listed_already(l, value))
        return;
    push_value(&l->e->run->arena, &l->seen, (Value *)value);
    const Name slot = value->port.slot; /* of the optimizer's state */
    const char *what = class_name[class_of(&l->classes, value)];
    printf("  %-17s %12s  in @%-18s %s\n", slot ? arena_text(&l->e->run->arena, "%s %s", what, slot) : what,
           bytes_text(&l->e->run->arena, (double)local_bytes(l->e->m, &value->type)), f->name,
           type_text(l->e->m, &value->type));
}

static void list_results(void *context, const Func *f, const Op *op, double times)
{
    for (int i = 0; i < op->results.count && f->role != KERNEL; i++)
        list_memory(context, f, op->results.at[i]);
}

void print_program_facts(Explain *e)
{
    Listing l = { .e = e, .classes = classify_tensors(e->m) };
    const Func *step = func_with_role(e->m, STEP);
    list_collectives(&l);
    printf("memory of a rank, while it is needed\n");
    for (int i = 0; i < step->params.count; i++)
        list_memory(&l, step, step->params.at[i]);
    visit_program(e->m, step, list_results, &l);
    if (l.seen.count == 0)
        printf("  none: it is made inside a kernel and read there\n");
}
