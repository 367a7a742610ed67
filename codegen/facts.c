/* facts.c -- what can be read off a program: its size, its work, its memory by class. */
#include "facts.h"

#include <string.h>

static int count_copies(const Param *param)
{
    int copies = 1, at = 0;
    for (const char *star = strchr(param->path, '*'); star; star = strchr(star + 1, '*'))
        copies *= (int)param->type.dim[at++].size;
    return copies;
}

/* --- Work ---------------------------------------------------------------------------------- */

static bool counts(const Op *op) { return info(op)->family == PRODUCT || op->kind == OP_attend; }

/* Products and attention of one call, at any stage: callees may be layers or kernels. */
static double forward_flops(Module *m, const Func *f)
{
    double flops = 0;
    for (const Op *op = f->first; op; op = op->next) {
        const Func *callee = op->attrs.callee ? find_func(m, op->attrs.callee) : NULL;
        double turns = op->attrs.dims.count ? (double)op->attrs.dims.dim[0].size : 1;
        flops += callee ? turns * forward_flops(m, callee) : counts(op) ? op_flops(m, op) : 0;
    }
    return flops;
}

/* Evaluation runs the forward pass on one micro-batch, and no pass changes which products that takes. */
static const Func *forward_of(const Module *m)
{
    const Func *eval = func_with_role(m, EVAL);
    return eval ? eval : func_with_role(m, MODEL);
}

static void find_shape(const Module *m, Facts *facts)
{
    const Train *t = &m->train;
    facts->micro = t->microbatch > 0 ? t->batch / t->microbatch : 1;
    facts->batch = facts->seq = 1;
    if (!m->inputs)
        return;
    const Type *type = &m->inputs->type;
    int batch = m->batch ? find_dim(type, m->batch) : -1;
    for (int i = 0; i < type->rank; i++)
        *(i == batch ? &facts->batch : &facts->seq) *= type->dim[i].size;
}

Facts program_facts(Module *m)
{
    Facts facts = { 0 };
    for (const Param *param = m->params; param; param = param->next) {
        facts.parameters += element_count(&param->type);
        facts.tensors += count_copies(param);
    }
    find_shape(m, &facts);
    const Func *forward = forward_of(m);
    if (forward)
        facts.flops = 3 * forward_flops(m, forward) * (double)facts.micro;
    return facts;
}

/* --- Memory -------------------------------------------------------------------------------- */

int first_state(const Module *m, const Func *step)
{
    int first = 0;
    while (first < step->params.count && !find_param(m, step->params.at[first]->name))
        first++;
    return first;
}

int64_t state_bytes(const Module *m)
{
    const Func *step = func_with_role(m, STEP);
    int64_t end = 0;
    for (int i = first_state(m, step); i < step->params.count; i++) {
        const Value *value = step->params.at[i];
        int64_t after = value->storage->at + span_bytes(m, value);
        end = after > end ? after : end;
    }
    return end;
}

Memory program_memory(const Module *m)
{
    const Func *step = func_with_role(m, STEP);
    Memory memory = { .arena = step->frame };
    int first = first_state(m, step);
    for (int i = 0; i < step->params.count; i++) {
        const Value *value = step->params.at[i];
        int64_t bytes = local_bytes(m, &value->type);
        bool is_param = find_param(m, value->name) != NULL;
        *(i < first ? &memory.feed : is_param ? &memory.parameters : &memory.optimizer) += bytes;
        memory.gradients += is_param ? bytes : 0; /* f32, like the parameters that the step holds */
    }
    int64_t left = memory.arena - memory.parameters - memory.optimizer - memory.feed;
    if (memory.gradients > left) /* without clipping, a gradient may go as soon as its weight is updated */
        memory.gradients = left;
    memory.rest = left - memory.gradients;
    return memory;
}
