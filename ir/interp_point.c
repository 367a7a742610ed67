/* interp_point.c -- the reference interpreter's pointwise ops, leaves, reductions and products. */
#include "interp_number.h"
#include "interp_parts.h"

/* Operands meet the result by name; where both have a dim, each rank must hold the same of it. */
static bool operands_meet(Interp *in, const Held args[], int nargs, const Type *y)
{
    for (int a = 0; a < nargs; a++)
        for (int i = 0; i < args[a].type->rank; i++) {
            const Dim *dim = &args[a].type->dim[i];
            int at = find_dim(y, dim->name);
            if (at >= 0 && !same_place(dim, &y->dim[at]))
                return cannot_run(in, "operand %d and the result hold '%s' differently", a + 1, dim->name);
        }
    return true;
}

bool run_pointwise(Interp *in, const Op *op, const Held args[], Held *y)
{
    int n = op->args.count;
    if (!operands_meet(in, args, n, y->type))
        return false;
    for (int rank = 0; rank < in->ranks; rank++) {
        Walk w = { 0 };
        walk_dims(&w, y->type, &y->part[rank]);
        for (int a = 0; a < n; a++)
            walk_tensor(&w, args[a].type, &args[a].part[rank]);
        walk_tensor(&w, y->type, &y->part[rank]);
        for (bool more = walk_begin(&w); more; more = walk_next(&w)) {
            const double *x[3] = { 0 };
            for (int a = 0; a < n; a++)
                x[a] = args[a].part[rank].data + w.offset[a];
            double *to = y->part[rank].data + w.offset[n];
            for (int64_t i = 0; i < w.row; i++)
                to[i * w.step[n]] = number_map(op->kind, y->type->dtype, x[0][i * w.step[0]],
                                               n > 1 ? x[1][i * w.step[1]] : 0, n > 2 ? x[2][i * w.step[2]] : 0);
        }
    }
    return true;
}

/* The index that dropout counts by, split into what each dim's position adds to it: row-major over
 * the whole tensor with the batch dim outermost, its positions counted from `origin`. */
static void index_terms(Interp *in, const Type *type, int rank, int64_t origin, int64_t *term[])
{
    int64_t weight = 1, weights[MAX_RANK];
    int batch = in->m->batch ? find_dim(type, in->m->batch) : -1;
    for (int i = type->rank - 1; i >= 0; i--) {
        weights[i] = weight;
        weight *= i == batch ? 1 : type->dim[i].size;
    }
    if (batch >= 0)
        weights[batch] = weight;
    for (int i = 0; i < type->rank; i++) {
        term[i] = positions_of(in, &type->dim[i], rank);
        for (int64_t n = 0; n < (int64_t)in->ranks * 0 + (type->dim[i].size); n++)
            break;
    }
    (void)origin;
}
