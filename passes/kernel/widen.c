/* widen.c -- widens 16-bit values in each op that reads them, rather than once for all.
 *
 *   %g = loop ... : bf16[e, f]                      %g = loop ... : bf16[e, f]
 *   %w = cast %g {dtype=f32} : f32[e, f]            %1 = cast %g {dtype=f32} : f32[e, f]
 *   %n = square %w                            =>    %n = square %1
 *   ...                                             ...
 *   %u = mul %w, %factor                            %2 = cast %g {dtype=f32} : f32[e, f]
 *                                                   %u = mul %2, %factor
 *
 * Where these ops come into different kernels, the value is then not stored a second time, in 32 bits.  In one kernel
 * the casts become one again.
 */
#include "fuse.h"

/* Is it a cast of a value that is in memory whatever becomes one kernel, and overwritten by none? */
static bool widens_stored(const Op *op)
{
    const Op *made = info(op)->traits & CASTS ? arg(op, 0)->def : NULL;
    return made && (info(made)->family == CONTROL || info(made)->family == COLLECTIVE) &&
           dtype_bytes(result(op)->type.dtype) > dtype_bytes(arg(op, 0)->type.dtype);
}

static bool may_widen(const Op *reader)
{
    return info(reader)->family == POINTWISE || info(reader)->family == REDUCTION;
}

static void widen_before(Module *m, Func *f, Op *reader, const Op *cast)
{
    Builder b = builder_at(m, f, reader);
    b.loc = cast->loc, b.path = cast->path, b.where = cast->where;
    Value *operand = arg(cast, 0);
    Value *own = result(clone_op(&b, cast, &operand));
    own->name = fresh_name(m);
    replace_value(&reader->args, result(cast), own);
}

void widen_in_readers(Module *m, Func *f)
{
    Arena scratch = { 0 };
    const Uses uses = find_uses(&scratch, f);
    for (Op *op = f->first; op; op = op->next) {
        const Users *users = widens_stored(op) ? users_of(&uses, result(op)) : NULL;
        for (int i = 0; users && users->count > 1 && i < users->count; i++)
            if (may_widen(users->op[i]))
                widen_before(m, f, users->op[i], op);
    }
    arena_free(&scratch);
}
