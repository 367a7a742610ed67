/* explain_program.c -- the collectives and the memory of one tensor in the final program. */
#include "explain.h"

#include "storage.h"

typedef struct {
    const Explain *e;
    Classes classes;
    int collectives;
    Values seen; /* already listed */
} Listing;

static bool is_of_tensor(const Listing *l, const Value *value)
{
    const Op *op = origin_of(l->e->m, value);
    return l->e->param ? param_behind(&l->classes, value) == l->e->param
                       : op && op->path == l->e->path && !param_behind(&l->classes, value);
}

/* --- Collectives ------------------------------------------------------------------------------------- */

static void list_collective(void *context, const Func *f, const Op *op, double times)
{
    Listing *l = context;
    Module *m = l->e->m;
    if (!(info(op)->traits & SENDS) || !(is_of_tensor(l, result(op)) || is_of_tensor(l, arg(op, 0))))
        return;
    Traffic traffic = op_traffic(m, op);
    printf("  %-14s over %-8s %6.0f times  %12s sent  in @%s, for %s%s%s\n", info(op)->name,
           axes_list(&l->e->run->arena, m, op->attrs.axis), times, bytes_text(&l->e->run->arena, traffic.sent * times),
           f->name, op->attrs.cause ? op->attrs.cause : "the program", op->where ? " at " : "",
           op->where ? op->where : "");
    printf("      %s -> %s\n", type_text(m, &arg(op, 0)->type), type_text(m, &result(op)->type));
    l->collectives++;
}

/* --- Memory ------------------------------------------------------------------------------------------- */

static bool is_listed_already(const Listing *l, const Value *value)
{
    for (int i = 0; i < l->seen.count; i++) {
        const Value *seen = l->seen.at[i];
        if (coincide(seen, value) && type_equal(&seen->type, &value->type))
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
    printf("  %-15s %12s  in @%-20s %s\n", class_name[class_of(&l->classes, value)],
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
    printf("collectives in a step\n");
    visit_program(e->m, step, list_collective, &l);
    if (l.collectives == 0)
        printf("  none\n");
    printf("memory of a rank, while it is needed\n");
    for (int i = 0; i < step->params.count; i++)
        list_memory(&l, step, step->params.at[i]);
    visit_program(e->m, step, list_results, &l);
    if (l.seen.count == 0)
        printf("  none: it is made inside a kernel and read there\n");
}
