/* text.c -- the C text of one value of a row kernel: each value is a `const` local. */
#include "kernel.h"

#include <inttypes.h>
#include <string.h>

/* --- Memory ------------------------------------------------------------------------------------ */

char *load_text(const RowKernel *k, DType dtype, const char *array, const char *index)
{
    const char *convert = dtype == BF16 ? "rt_load_bf16" : dtype == F16 ? "rt_load_f16" : NULL;
    if (convert)
        return arena_text(&k->m->arena, "%s(%s[%s])", convert, array, index);
    return arena_text(&k->m->arena, "%s[%s]", array, index);
}

void write_store(const RowKernel *k, DType dtype, const char *array, const char *index, const char *text, FILE *out)
{
    const char *convert = dtype == BF16 ? "rt_store_bf16" : dtype == F16 ? "rt_store_f16" : NULL;
    if (convert)
        text = arena_text(&k->m->arena, "%s(%s)", convert, text);
    FILL(out, "$array[$index] = $text;\n", { "array", array }, { "index", index }, { "text", text });
}

/* On two lines if one is too long. */
void write_local(const RowKernel *k, const char *type, const char *name, const char *text, FILE *out)
{
    size_t columns = 4 * (size_t)k->depth + strlen("const  = ;") + strlen(type) + strlen(name) + strlen(text);
    const char *gap = columns > 120 ? "\n    " : " ";
    FILL(out, "const $type $name =$gap$text;\n", { "type", type }, { "name", name }, { "gap", gap }, { "text", text });
}

/* --- Ops --------------------------------------------------------------------------------------- */

static bool is_integer(DType dtype) { return dtype == I32 || dtype == BOOL; }

/* Are the operands of an op integers?  Numbers adapt to the others, if there are any.  (Of dropout, the key is an
 * integer, but x is a float.) */
static bool meets_integers(const Op *op)
{
    const bool chooses = info(op)->traits & CHOOSES;
    bool any = false, any_float = false, float_number = false;
    for (int i = chooses; i < op->args.count; i++) {
        const bool is_float = !is_integer(arg(op, i)->type.dtype), is_fixed = is_constant(arg(op, i)->def);
        any |= !is_fixed;
        any_float |= is_float && !is_fixed;
        float_number |= is_float && is_fixed;
    }
    return is_integer(result(op)->type.dtype) && !(any ? any_float : float_number);
}

static bool truncates(const Op *op)
{
    return info(op)->traits & CASTS && result(op)->type.dtype == I32 && is_float(arg(op, 0)->type.dtype);
}

static const char *text_in_c(const Op *op)
{
    return truncates(op) ? "rt_i32_of($a)" : meets_integers(op) ? info(op)->integers : info(op)->forward;
}

int count_uses(const Op *op, int operand)
{
    if (info(op)->family == REDUCTION)
        return info(op)->over == SUM ? 1 : 2;
    const char *text = is_masking(op) ? "$a" : text_in_c(op);
    int uses = 0;
    for (; text && *text; text++)
        uses += text[0] == '$' && text[1] == 'a' + operand;
    return uses;
}

static const char *operand_text(const RowKernel *k, const Op *op, int i)
{
    const Op *def = arg(op, i)->def;
    if (is_constant(def))
        return c_number(k->m, def->attrs.value, is_integer(result(def)->type.dtype) || meets_integers(op));
    return find_node(k, arg(op, i))->text;
}

static char *map_text(const RowKernel *k, const Op *op)
{
    static const char *const letter[] = { "a", "b", "c" };
    Hole holes[4] = { { NULL, NULL } };
    int count = 0;
    for (int i = 0; i < op->args.count && i < 3; i++)
        if (count_uses(op, i))
            holes[count++] = (Hole){ letter[i], operand_text(k, op, i) };
    return filled(&k->m->arena, text_in_c(op), holes);
}

/* The index of the present element in the whole tensor. */
char *element_position(const RowKernel *k, const Region *region, const Node *node)
{
    int64_t stride[MAX_RANK] = { 0 }, sequence = position_strides(k, &node->value->type, stride);
    char *index = position_index(k, region, &node->value->type, stride);
    if (!k->m->batch || find_dim(&node->value->type, k->m->batch) < 0)
        return index;
    return arena_text(&k->m->arena, "%s * INT64_C(%" PRId64 ") + %s", operand_text(k, node->op, 2), sequence, index);
}

char *keep_text(const RowKernel *k, const Op *op, const char *at)
{
    return arena_text(&k->m->arena, "rt_keep((uint32_t)%s, %" PRId64 ", %s, %s)", operand_text(k, op, 1),
                      op->attrs.instance, at, c_number(k->m, op->attrs.rate, false));
}

static void write_dropout(RowKernel *k, const Region *region, const Node *node, FILE *out)
{
    const Op *op = node->op;
    const char *kept = new_identifier(&k->names, arena_text(&k->m->arena, "%s_kept", node->name)), *stays = node->mask;
    if (!stays) {
        const char *at = new_identifier(&k->names, arena_text(&k->m->arena, "%s_at", node->name));
        write_local(k, "int64_t", at, element_position(k, region, node), out);
        stays = keep_text(k, op, at);
    }
    write_local(k, "bool", kept, stays, out);
    write_local(k, "float", node->name,
                arena_text(&k->m->arena, "%s ? %s * %s : 0.0f", kept, operand_text(k, op, 0),
                           c_number(k->m, 1 / (1 - op->attrs.rate), false)),
                out);
}

/* Is the op's result its operand in C? */
bool is_copy(const Node *node)
{
    const Op *op = node->op;
    if (!op || op->args.count == 0 || node->is_reduction || node->is_column)
        return false;
    const char *same = info(op)->family == REDUCTION ? "$a" : info(op)->forward;
    return same && strcmp(same, "$a") == 0 &&
           strcmp(local_type(arg(op, 0)->type.dtype), local_type(result(op)->type.dtype)) == 0;
}

int uses_of_stored(const RowKernel *k, const Node *node)
{
    while (is_copy(node))
        node = node->operand[0];
    return !node->op && k->array[node->array].shared ? 2 : 1;
}

static char *op_text(const RowKernel *k, const Region *region, const Node *node)
{
    const Op *op = node->op;
    if (info(op)->family == LEAF) /* iota */
        return position_index(k, region, &node->value->type, (const int64_t[MAX_RANK]){ 1 });
    if (info(op)->family == REDUCTION) /* over dims of one element */
        return arena_text(&k->m->arena, "%s", operand_text(k, op, 0));
    if (text_in_c(op))
        return map_text(k, op);
    error_at(k->m->diags, (Where){ .at = op->loc }, "%s has no form for integers", info(op)->name);
    return "0";
}

void write_loaded(const RowKernel *k, Node *node, const char *text, bool is_inlined, FILE *out)
{
    if (!is_inlined)
        write_local(k, local_type(node->value->type.dtype), node->name, text, out);
    node->text = is_inlined ? text : node->name;
}

void write_load(const RowKernel *k, const Region *region, Node *node, bool is_inlined, FILE *out)
{
    const Array *array = node->op && node->kept_array < 0 ? NULL : &k->array[node->op ? node->kept_array : node->array];
    const char *text =
        array ? load_text(k, node->value->type.dtype, array->name, index_text(k, region, array->dims, array->stride))
              : load_text(k, F32, node->kept_in, dense_index(k, region, node->dims & region->inner));
    write_loaded(k, node, text, is_inlined, out);
}

void write_value(RowKernel *k, const Region *region, Node *node, FILE *out)
{
    if (is_constant(node->op)) {
        node->text = c_number(k->m, node->op->attrs.value, is_integer(node->value->type.dtype));
    } else if (is_copy(node)) {
        node->text = operand_text(k, node->op, 0);
    } else if (is_masking(node->op)) {
        write_dropout(k, region, node, out);
        node->text = node->name;
    } else {
        write_local(k, local_type(node->value->type.dtype), node->name, op_text(k, region, node), out);
        node->text = node->name;
    }
}

const char *stored_text(const RowKernel *k, const Sink *sink)
{
    const Node *node = sink->node;
    return is_constant(node->op) ? c_number(k->m, node->op->attrs.value, !is_float(node->value->type.dtype))
                                 : node->text;
}

void write_result(const RowKernel *k, const Region *region, const Sink *sink, const char *text, FILE *out)
{
    const Array *array = &k->array[k->f->params.count + sink->result];
    write_store(k, array->value->type.dtype, array->name, index_text(k, region, array->dims, array->stride), text, out);
}

/* --- Reductions ---------------------------------------------------------------------------------- */

const char *start_of(const Node *reduction)
{
    bool ints = is_integer(reduction->value->type.dtype);
    switch (info(reduction->op)->over) {
    case MAX:
        return ints ? "INT32_MIN" : "-INFINITY";
    case MIN:
        return ints ? "INT32_MAX" : "INFINITY";
    default:
        return ints ? "0" : "0.0f";
    }
}

void write_start(const char *name, const Node *reduction, FILE *out)
{
    FILL(out, "$type $name = $start;\n", { "type", local_type(reduction->value->type.dtype) }, { "name", name },
         { "start", start_of(reduction) });
}

/* The maximum or minimum of two texts. */
char *chosen_text(const RowKernel *k, const Node *reduction, const char *a, const char *b)
{
    return arena_text(&k->m->arena, "%s %c %s ? %s : %s", b, info(reduction->op)->over == MAX ? '>' : '<', a, b, a);
}

char *accumulation(const RowKernel *k, const Node *reduction, const char *into, const char *text)
{
    if (info(reduction->op)->over == SUM && is_integer(reduction->value->type.dtype))
        return arena_text(&k->m->arena, "%s = rt_add_i32(%s, %s);\n", into, into, text);
    if (info(reduction->op)->over == SUM)
        return arena_text(&k->m->arena, "%s += %s;\n", into, text);
    return arena_text(&k->m->arena, "%s = %s;\n", into, chosen_text(k, reduction, into, text));
}

/* --- The function --------------------------------------------------------------------------------- */

/* "h.ln_1, gpt2.mdl:24:9: sub, square, sum": origin and ops. */
static char *row_title(const RowKernel *k)
{
    enum { WIDTH = 110 };
    const Op *call = k->call;
    const char *place = arena_text(&k->m->arena, "%s%s%s:", call->path ? call->path : k->f->name,
                                   call->where ? ", " : "", call->where ? call->where : "");
    char *text = arena_text(&k->m->arena, "%s", comment_text(k->m, place));
    size_t line = 0;
    bool seen[N_OPS] = { false }, any = false;
    for (const Op *op = k->f->first; op; op = op->next) {
        if (seen[op->kind] || is_constant(op))
            continue;
        bool full = strlen(text) - line + strlen(info(op)->name) > WIDTH;
        line = full ? strlen(text) : line;
        text = arena_text(&k->m->arena, "%s%s%s%s", text, any ? "," : "", full ? "\n * " : " ", info(op)->name);
        seen[op->kind] = any = true;
    }
    return text;
}

char *row_comment(const RowKernel *k)
{
    Text text;
    open_text(&text);
    for (int i = 0; i < k->narrays; i++)
        FILL(text.out, "* $name$kind: $type\n", { "name", k->array[i].name },
             { "kind", i < k->f->params.count ? "" : ", result" },
             { "type", type_text(k->m, &k->array[i].value->type) });
    return function_comment(k->m, row_title(k), close_text(&k->m->arena, &text));
}

const char *const *row_parameters(const RowKernel *k, const char *restricted, int *count)
{
    const char **items = NEW_ARRAY(&k->m->arena, const char *, k->narrays + 1);
    *count = k->narrays + (k->scratch > 0);
    for (int i = 0; i < k->narrays; i++)
        items[i] = arena_text(&k->m->arena, "%s%s *%s%s%s", i < k->f->params.count ? "const " : "",
                              element_type(k->array[i].value->type.dtype), k->array[i].shared ? "" : restricted,
                              k->array[i].shared ? "" : " ", k->array[i].name);
    items[k->narrays] = arena_text(&k->m->arena, "float *%s scratch", restricted);
    return items;
}
