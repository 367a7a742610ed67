/* memory.c -- operands of a call in memory: addresses, and a rank's part of each. */
#include "memory.h"

#include "emulator/emulator.h"
#include "ranks.h"
#include "runtime/convert.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Operands that overlap keep their distance; the others are put close together. */
void lay_out(const Module *m, Operands *o)
{
    bool done[MAX_OPERANDS_HERE] = { false };
    o->bytes = GAP;
    for (int i = 0; i < o->count; i++) {
        if (done[i])
            continue;
        const Storage *s = o->value[i]->storage;
        bool grown = true;
        int64_t low = s->at, high = low + span_bytes(m, o->value[i]);
        bool member[MAX_OPERANDS_HERE] = { false };
        while (grown) {
            grown = false;
            for (int j = 0; j < o->count; j++) {
                const Storage *t = o->value[j]->storage;
                int64_t from = t->at, to = from + span_bytes(m, o->value[j]);
                bool same = same_base(s, t) && (s->base == BY_POINTER || (from < high && low < to));
                if (done[j] || member[j] || !same)
                    continue;
                member[j] = grown = true;
                low = from < low ? from : low;
                high = to > high ? to : high;
            }
        }
        int64_t base = (o->bytes + GAP - 1) / GAP * GAP + low % GAP;
        for (int j = 0; j < o->count; j++)
            if (member[j]) {
                const Storage *t = o->value[j]->storage;
                o->at[j] = base + t->at - low;
                done[j] = true;
            }
        o->bytes = base + high - low + GAP;
    }
    o->memory = aligned_alloc(GAP, (size_t)(o->bytes + GAP - 1) / GAP * GAP);
    memset(o->memory, 0x7F, (size_t)o->bytes);
}

/* --- Elements ------------------------------------------------------------------------------------- */

static double get_element(const char *at, DType dtype)
{
    float f;
    int32_t n;
    uint16_t half;
    switch (dtype) {
    case F32:
        memcpy(&f, at, 4);
        return f;
    case I32:
        memcpy(&n, at, 4);
        return n;
    case BOOL:
        return *at != 0;
    default:
        memcpy(&half, at, 2);
        return dtype == BF16 ? rt_float_of_bf16(half) : rt_float_of_f16(half);
    }
}

static void set_element(char *at, DType dtype, double x)
{
    float f = (float)x;
    int32_t n = dtype == I32 ? (int32_t)x : 0;
    uint16_t half = dtype == BF16 ? rt_bf16_of_float(f) : rt_f16_of_float(f);
    memcpy(at, dtype == F32 ? (void *)&f : dtype == I32 ? (void *)&n : (void *)&half, (size_t)dtype_bytes(dtype));
    if (dtype == BOOL)
        *at = x != 0;
}

double rounded(double x, DType dtype)
{
    char element[4];
    set_element(element, dtype, x);
    return get_element(element, dtype);
}

/* --- Parts of tensors ----------------------------------------------------------------------------- */

/* An iterator over the elements of a rank's part of an operand. */
typedef struct {
    const Module *m;
    const Value *value;
    RtPart part[MAX_RANK];
    int64_t index[MAX_RANK];
    char *element;
    int64_t number; /* in the whole tensor; -1: padding */
} Walk;

static void find_element(Walk *w, char *memory)
{
    const Type *type = &w->value->type;
    int64_t at = 0;
    w->number = 0;
    for (int i = 0; i < type->rank; i++) {
        int64_t position = type->dim[i].split.count ? rt_position(w->part[i], w->index[i]) : w->index[i];
        at += w->index[i] * w->value->storage->stride[i];
        w->number = w->number < 0 || position >= type->dim[i].size ? -1 : w->number * type->dim[i].size + position;
    }
    w->element = memory + at * dtype_bytes(type->dtype);
}

static bool next_place(Walk *w)
{
    int i = w->value->type.rank - 1;
    while (i >= 0 && ++w->index[i] == local_size(w->m, &w->value->type.dim[i]))
        w->index[i--] = 0;
    return i >= 0;
}

static Walk walk_over(const Module *m, const Operands *o, int operand, int rank)
{
    Walk w = { .m = m, .value = o->value[operand] };
    for (int i = 0; i < w.value->type.rank; i++)
        if (w.value->type.dim[i].split.count)
            w.part[i] = part_on_rank(m, &w.value->type.dim[i], rank);
    return w;
}

void allow_operand(const Module *m, const Operands *o, int operand, bool is_written)
{
    Walk w = walk_over(m, o, operand, 0);
    do {
        find_element(&w, o->memory + o->at[operand]);
        emulator_allow(w.element, dtype_bytes(w.value->type.dtype), is_written);
    } while (next_place(&w));
}

void put_rank_part(const Module *m, const Operands *o, int operand, const Tensor *tensor, int rank)
{
    const Type *type = &o->value[operand]->type;
    bool is_term = type->partial && type->by == BY_SUM && !has_pending(m, type, rank);
    Walk w = walk_over(m, o, operand, rank);
    do {
        find_element(&w, o->memory + o->at[operand]);
        if (w.number >= 0)
            set_element(w.element, type->dtype, is_term ? 0 : tensor->data[w.number]);
        else if (type->dtype == BOOL)
            set_element(w.element, BOOL, 0);
    } while (next_place(&w));
}

/* Ranks of a pending sum's axes each add their term. */
static double joined(const Type *type, double before, double now, bool is_first)
{
    if (is_first)
        return now;
    return type->by == BY_SUM ? before + now : fmax(before, now);
}

bool take_part(const Module *m, const Operands *o, int operand, Tensor *tensor, int rank)
{
    const Type *type = &o->value[operand]->type;
    bool all = true, is_first = has_pending(m, type, rank);
    if (holds_copy(m, type, rank))
        return true;
    Walk w = walk_over(m, o, operand, rank);
    do {
        find_element(&w, o->memory + o->at[operand]);
        if (w.number < 0)
            continue;
        all &= emulator_is_written(w.element);
        tensor->data[w.number] = joined(type, tensor->data[w.number], get_element(w.element, type->dtype), is_first);
    } while (next_place(&w));
    return all;
}
