/* report_experts.c -- the cost of experts in a step: rows of a balanced router, and those that are planned and sent. */
#include "report.h"

static ExpertRow *row_of(Report *r, const Type *type)
{
    for (int i = 0; i < r->nexperts; i++)
        if (find_dim(type, r->expert[i].slots) >= 0)
            return &r->expert[i];
    return NULL;
}

/* Dispatches that fill the same dim are of one kind of layer, or of its tokens and their gates. */
static void add_experts(void *context, const Func *f, const Op *op, double times)
{
    Report *r = context;
    (void)f, (void)times;
    if (!(info(op)->traits & FILLS) || row_of(r, &result(op)->type))
        return;
    ExpertRow *grown = NEW_ARRAY(&r->run->arena, ExpertRow, r->nexperts + 1);
    for (int i = 0; i < r->nexperts; i++)
        grown[i] = r->expert[i];
    const Dims *made = &op->attrs.dims;
    grown[r->nexperts++] = (ExpertRow){ .fills = op, .slots = made->dim[1].name, .filled = filled_rows(op) };
    r->expert = grown;
}

static void add_messages(void *context, const Func *f, const Op *op, double times)
{
    Report *r = context;
    (void)f;
    ExpertRow *row = info(op)->traits & SENDS ? row_of(r, &arg(op, 0)->type) : NULL;
    const double sent = row ? op_traffic(r->m, op).sent * times : 0;
    if (row)
        row->sent += sent, row->sent_balanced += sent * filled_share(row->fills);
}

void find_experts(Report *r, const Func *step)
{
    visit_program(r->m, step, add_experts, r);
    if (r->nexperts)
        visit_program(r->m, step, add_messages, r);
    for (int i = 0; i < r->memory.nheld; i++) {
        const Stretch *held = &r->memory.held[i];
        ExpertRow *row = held->value ? row_of(r, &held->value->type) : NULL;
        if (row)
            *(held->kind == ACTIVATIONS ? &row->saved : &row->passing) += bytes_of_held(r->m, held, kind_of_peak(r));
    }
}
