/* line.c -- one line of a map: what the dims of its axes say about the places of a parameter's elements. */
#include "line.h"

#include "near.h"

#include <string.h>

static const MapTarget *map_target_of(const LineUse *use) { return &use->line->target[use->number]; }

static bool refuse(const LineUse *use, Loc loc, const char *message, const char *help)
{
    error_at(&use->b->map->diags, (Where){ .at = loc, .help = help }, "%s", message);
    return false;
}

/* --- Dims ----------------------------------------------------------------------------------- */

/* A dim of a parameter, not of its copies; -1: none. */
static int dim_of(const Param *param, const char *name)
{
    for (int d = repeats_around(param); d < param->type.rank; d++)
        if (strcmp(param->type.dim[d].name, name) == 0)
            return d;
    const size_t length = strlen(name);
    for (int d = repeats_around(param); d < param->type.rank; d++)
        if (strncmp(param->type.dim[d].name, name, length) == 0 && param->type.dim[d].name[length] == '.')
            return d; /* the router's `experts` is "experts.router" in the IR */
    return -1;
}

static const char *dims_text(Arena *arena, const Param *param)
{
    const char *text = "";
    for (int d = repeats_around(param); d < param->type.rank; d++)
        text = arena_text(arena, "%s%s%s", text, *text ? ", " : "", param->type.dim[d].name);
    return text;
}

static bool no_dim(const LineUse *use, Loc loc, const Param *param, const char *name)
{
    Arena *arena = &use->b->run->arena;
    NearMiss near = { .name = name };
    for (int d = repeats_around(param); d < param->type.rank; d++)
        offer(&near, param->type.dim[d].name);
    return refuse(use, loc,
                  arena_text(arena, "parameter '%s' [%s] has no dim '%s'", param->path, dims_text(arena, param), name),
                  did_you_mean(arena, &near));
}

/* The variable that a `*` of the axes counts: the last one without a name that the tensor's name does not. */
static int star_of(const LineUse *use)
{
    for (int i = use->vars.count - 1; i >= 0; i--)
        if (use->vars.var[i].is_copy && !use->vars.var[i].name)
            return i;
    return -1;
}

static const Param *param_of(const LineUse *use, int number)
{
    Vars vars;
    const char *path = path_of(&use->b->run->arena, use->line->target[number].path, &vars);
    for (const Param *param = use->b->m->params; param; param = param->next)
        if (strcmp(param->path, path) == 0)
            return param;
    return NULL; /* reported when it is that target's turn */
}

/* How long a factor of an axis is, of that parameter; 0 after reporting. */
static int64_t item_size(const LineUse *use, const Item *item, const Param *param)
{
    if (item->kind == OF_ONE)
        return 1;
    if (item->kind == OF_TARGETS) {
        if (item->number == use->line->ntargets)
            return item->number;
        refuse(use, item->loc, "the number in an axis must be that of the parameters on the right", NULL);
        return 0;
    }
    if (item->kind == OF_COPIES) {
        if (star_of(use) >= 0)
            return use->vars.var[star_of(use)].whole;
        refuse(use, item->loc, "* in an axis counts the copies of a parameter: its path needs a *", NULL);
        return 0;
    }
    const int d = dim_of(param, item->dim);
    if (d < 0)
        return no_dim(use, item->loc, param, item->dim), 0;
    return d == resized_dim(use->b, param) ? use->b->resize.old : param->type.dim[d].size;
}

static int64_t product_size(const LineUse *use, const Product *product, const Param *param)
{
    int64_t size = 1;
    for (int i = 0; i < product->count && size; i++)
        size *= item_size(use, &product->item[i], param);
    return size;
}

/* The size of an axis; *at: where this target's part begins.  0 after reporting. */
static int64_t axis_size(const LineUse *use, const Axis *axis, int64_t *at)
{
    int64_t size = 0, around = product_size(use, &axis->around, use->param);
    *at = 0;
    if (axis->count == 1)
        return around * product_size(use, &axis->part[0], use->param);
    if (axis->count != use->line->ntargets) {
        refuse(use, axis->loc, "an axis has one part for each parameter on the right", NULL);
        return 0;
    }
    for (int i = 0; i < axis->count; i++) {
        const Param *param = i == use->number ? use->param : param_of(use, i);
        const int64_t part = param ? product_size(use, &axis->part[i], param) : 0;
        if (!part)
            return 0;
        *at = i == use->number ? size : *at;
        size += part;
    }
    return around * size;
}

/* --- Places --------------------------------------------------------------------------------- */

/* The box that all moves of the target have, without where it begins. */
typedef struct {
    Move move;
    int64_t size[MAX_ITEMS]; /* of the tensor */
    int64_t star_stride;     /* of `*` in an axis; 0: none */
    bool is_used[MAX_RANK];  /* the parameter's dims */
    int splits;              /* axes that tell the targets apart */
} Box;

static int64_t param_stride(const Param *param, int dim)
{
    int64_t stride = 1;
    for (int d = dim + 1; d < param->type.rank; d++)
        stride *= param->type.dim[d].size;
    return stride;
}

static bool place_dim(const LineUse *use, const Item *item, int64_t stride, Box *box)
{
    const int d = dim_of(use->param, item->dim);
    if (box->is_used[d])
        return refuse(use, item->loc, "this dim is there twice, in the axes, the name or the part of the parameter",
                      NULL);
    box->is_used[d] = true;
    Move *move = &box->move;
    move->size[move->rank] = use->param->type.dim[d].size;
    if (d == resized_dim(use->b, use->param) && use->b->resize.old < move->size[move->rank])
        move->size[move->rank] = use->b->resize.old;
    move->tensor_stride[move->rank] = stride;
    move->param_stride[move->rank++] = param_stride(use->param, d);
    return true;
}

/* *stride is that of the last factor when called, and on return that of the dim around the product. */
static bool place_product(const LineUse *use, const Product *product, int64_t *stride, Box *box)
{
    for (int i = product->count - 1; i >= 0; i--) {
        const Item *item = &product->item[i];
        if (item->kind == OF_DIM && !place_dim(use, item, *stride, box))
            return false;
        if (item->kind == OF_COPIES)
            box->star_stride = *stride;
        box->splits += item->kind == OF_TARGETS;
        box->move.tensor_at += item->kind == OF_TARGETS ? use->number * *stride : 0;
        *stride *= item_size(use, item, use->param);
    }
    return true;
}

static bool place_axis(const LineUse *use, const Axis *axis, int64_t size, int64_t at, int64_t stride, Box *box)
{
    int64_t inside = stride, around = stride * size / product_size(use, &axis->around, use->param);
    box->splits += axis->count > 1;
    box->move.tensor_at += at * stride;
    return place_product(use, &axis->part[axis->count > 1 ? use->number : 0], &inside, box) &&
           place_product(use, &axis->around, &around, box);
}

/* The part of a parameter that `[dim = 0]` says. */
static bool place_part(const LineUse *use, Box *box)
{
    const MapTarget *target = map_target_of(use);
    if (!target->dim)
        return true;
    const int d = dim_of(use->param, target->dim);
    if (d < 0)
        return no_dim(use, target->loc, use->param, target->dim);
    if (target->index < 0 || target->index >= use->param->type.dim[d].size)
        return refuse(use, target->loc, "the parameter has no such part", NULL);
    box->is_used[d] = true;
    box->move.param_at = target->index * param_stride(use->param, d);
    return true;
}

static bool make_box(const LineUse *use, Box *box)
{
    int64_t at[MAX_ITEMS], stride = 1;
    const MapLine *line = use->line;
    *box = (Box){ 0 };
    if (!place_part(use, box))
        return false;
    for (int i = 0; i < use->vars.count; i++)
        if (!use->vars.var[i].is_copy)
            box->is_used[use->vars.var[i].dim] = true;
    for (int i = 0; i < line->naxes; i++)
        if (!(box->size[i] = axis_size(use, &line->axis[i], &at[i])))
            return false;
    for (int i = line->naxes - 1; i >= 0; stride *= box->size[i--])
        if (!place_axis(use, &line->axis[i], box->size[i], at[i], stride, box))
            return false;
    if (box->splits != (line->ntargets > 1))
        return refuse(use, line->axes_loc, "only one axis may tell the parameters on the right apart",
                      "[a + b, c] = x, y: one after the other; [a 2 b, c] or [a (b + d), c]: in turn");
    for (int d = repeats_around(use->param); d < use->param->type.rank; d++)
        if (!box->is_used[d])
            return refuse(use, line->axes_loc,
                          arena_text(&use->b->run->arena, "dim '%s' of parameter '%s' is not there",
                                     use->param->type.dim[d].name, use->param->path),
                          NULL);
    return true;
}

/* --- Moves ---------------------------------------------------------------------------------- */

static bool check_shape(const LineUse *use, const StoredTensor *stored, const Box *box)
{
    Arena *arena = &use->b->run->arena;
    const int rank = use->line->naxes;
    if (stored->rank != rank || memcmp(stored->size, box->size, (size_t)rank * sizeof *box->size) != 0)
        return refuse(use, use->line->axes_loc,
                      arena_text(arena, "'%s' is %s in the folder, and %s by the sizes of the model", stored->name,
                                 sizes_text(arena, stored->rank, stored->size), sizes_text(arena, rank, box->size)),
                      "sizes come from the map's `set` lines, from -D, and from the model");
    return is_parameter_dtype(stored->dtype) ||
           refuse(
               use, use->line->loc,
               arena_text(arena, "'%s' has dtype %s, and parameters are F32, BF16 or F16", stored->name, stored->dtype),
               "convert the folder with transformers: model.to(torch.bfloat16).save_pretrained(DIR)");
}

static bool check_use(const LineUse *use, const StoredTensor *stored, TensorUse *tensor, ParamCopy *copy, int64_t count)
{
    Arena *arena = &use->b->run->arena;
    if (tensor->line && tensor->line != use->line)
        return refuse(use, use->line->loc,
                      arena_text(arena, "'%s' is used twice: also by '%s'", stored->name, tensor->line->name), NULL);
    if (tensor->fed + count > stored->count)
        return refuse(use, use->line->loc,
                      arena_text(arena, "'%s' is used for several copies of '%s'", stored->name, copy->param->path),
                      "the tensor's name or its axes need a * as well");
    if (copy->dtype && strcmp(copy->dtype, stored->dtype) != 0)
        return refuse(use, use->line->loc,
                      arena_text(arena, "'%s' has dtype %s, and other tensors of '%s' have %s", stored->name,
                                 stored->dtype, copy->name, copy->dtype),
                      NULL);
    return true;
}

/* The name at the variables' values; NULL after reporting. */
static const char *tensor_name(const LineUse *use)
{
    Arena *arena = &use->b->run->arena;
    const char *unknown = "";
    int stars;
    const char *name = name_of(arena, use->line->name, &use->vars, &unknown, &stars);
    if (!name)
        refuse(use, use->line->loc,
               *unknown ? arena_text(arena, "'%s' in this name is no copy of '%s', none of its dims, and not set above",
                                     unknown, use->param->path)
                        : "between braces there is a sum: {6*i+j}",
               NULL);
    return name;
}

/* The tensor of that name; -1 after reporting. */
static int find_tensor(const LineUse *use)
{
    Arena *arena = &use->b->run->arena;
    const char *name = tensor_name(use);
    if (!name)
        return -1;
    name = name_in_folder(use->b, name);
    const int tensor = find_stored(use->b->folder, name);
    if (tensor < 0) {
        NearMiss near = { .name = name };
        for (int i = 0; i < use->b->folder->count; i++)
            offer(&near, use->b->folder->tensor[i]->name);
        refuse(use, use->line->loc, arena_text(arena, "the folder has no tensor '%s'", name),
               did_you_mean(arena, &near));
    }
    return tensor;
}

static bool add_move(const LineUse *use, const Box *box)
{
    Binding *b = use->b;
    const int tensor = find_tensor(use);
    if (tensor < 0)
        return false;
    Move *move = NEW(&b->run->arena, Move);
    *move = box->move;
    int64_t copy = 0, count = 1;
    for (int i = 0; i < use->vars.count; i++) {
        const Var *var = &use->vars.var[i];
        if (var->is_copy)
            copy = copy * var->size + var->value;
        else
            move->param_at += var->value * param_stride(use->param, var->dim);
    }
    if (box->star_stride)
        move->tensor_at += number_at(&use->vars.var[star_of(use)]) * box->star_stride;
    for (int i = 0; i < move->rank; i++)
        count *= move->size[i];
    move->tensor = tensor;
    move->copy = use->first_copy + (int)copy;
    const StoredTensor *stored = b->folder->tensor[tensor];
    TensorUse *of_tensor = &b->use[tensor];
    ParamCopy *of_copy = &b->copy[move->copy];
    if (!check_shape(use, stored, box) || !check_use(use, stored, of_tensor, of_copy, count))
        return false;
    move->next_of_tensor = of_tensor->moves;
    move->next_of_copy = of_copy->moves;
    of_tensor->moves = of_copy->moves = move;
    of_tensor->line = use->line;
    of_tensor->fed += count;
    of_copy->fed += count;
    of_copy->dtype = stored->dtype;
    return true;
}

/* The copies' numbers, and the dims that the tensor's name counts. */
static void size_vars(LineUse *use)
{
    const Param *param = use->param;
    use->vars.defines = &use->b->map->defines;
    count_copies(use->b->m, param, &use->vars);
    for (int i = 0; i < use->vars.count; i++)
        use->vars.var[i].dim = i;
    for (int d = repeats_around(param); d < param->type.rank; d++)
        if (is_counted(&use->b->run->arena, use->line->name, param->type.dim[d].name))
            use->vars.var[use->vars.count++] =
                (Var){ .name = param->type.dim[d].name, .dim = d, .step = 1, .size = param->type.dim[d].size };
}

bool bind_param(LineUse *use)
{
    Box box;
    size_vars(use);
    if (!make_box(use, &box))
        return false;
    do {
        if (!add_move(use, &box)) /* its other copies would say the same */
            return false;
    } while (next_values(&use->vars));
    return true;
}

bool list_tensors(LineUse *use, StoredList *list)
{
    Box box;
    size_vars(use);
    if (!make_box(use, &box))
        return false;
    do {
        StoredTensor stored = { .name = tensor_name(use), .rank = use->line->naxes, .count = 1 };
        if (!stored.name)
            return false;
        for (int i = 0; i < stored.rank; i++)
            stored.count *= stored.size[i] = box.size[i];
        GROW(&use->b->run->arena, list->at, list->count, list->room);
        list->at[list->count++] = stored;
    } while (next_values(&use->vars));
    return true;
}
