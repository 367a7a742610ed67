/* program.c -- the tables of RtProgram: the data about a program that the runtime needs to run, save and report it.
 *
 * A table row is on one line if it fits; otherwise each field is on its own line, with a comma after the last, as in
 * clang-format.
 */
#include "codegen.h"
#include "host_parts.h"
#include "tier.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* --- Texts --------------------------------------------------------------------------------- */

/* The shortest text that parses as the same double. */
static char *number_text(Module *m, double value)
{
    char text[40];
    for (int precision = 1; precision <= 17; precision++) {
        snprintf(text, sizeof text, "%.*g", precision, value);
        if (strtod(text, NULL) == value)
            break;
    }
    return arena_text(&m->arena, "%s", text);
}

char *integer_text(Module *m, int64_t value) { return arena_text(&m->arena, "%" PRId64, value); }

/* --- Tensors ------------------------------------------------------------------------------- */

/* The prefix of state in a checkpoint; NULL: the name of the parameter alone. */
static const char *stored_as(Port port)
{
    return port.kind == PORT_OPTIMIZER ? port.slot : port.kind == PORT_PARAM ? NULL : port_word(port.kind);
}

static char *dim_list(Module *m, const Value *value, int what)
{
    char *text = "{ ";
    for (int i = 0; i < value->type.rank; i++) {
        const Dim *dim = &value->type.dim[i];
        const char *item = what == 0   ? string_text(m, dim->name)
                           : what == 1 ? integer_text(m, dim->size)
                           : what == 3 ? integer_text(m, dim->padded)
                                       : integer_text(m, value->storage->stride[i]);
        text = arena_text(&m->arena, "%s%s%s", text, i ? ", " : "", item);
    }
    return value->type.rank ? arena_text(&m->arena, "%s }", text) : "{ 0 }";
}

/* "  .split = { { 1, { 0 } }, { 0 } },
 * ", or nothing if no dim is split. */
static char *splits_text(Module *m, const Type *type)
{
    bool any = false;
    char *text = "";
    for (int i = 0; i < type->rank; i++) {
        any |= type->dim[i].split.count > 0;
        text = arena_text(&m->arena, "%s%s%s", text, i ? ", " : "", split_initialiser(m, &type->dim[i]));
    }
    return any ? arena_text(&m->arena, "{ %s }", text) : NULL;
}

enum { FIRST_LOSS_SCALE = 65536 }; /* initial value of PyTorch's GradScaler */

static char *init_text(Module *m, PortKind kind, const Param *param)
{
    static const char *const kinds[] = { [ZEROS] = "RT_ZEROS",
                                         [ONES] = "RT_ONES",
                                         [NORMAL] = "RT_NORMAL",
                                         [UNIFORM] = "RT_UNIFORM",
                                         [CONSTANT] = "RT_CONSTANT" };
    if (kind == PORT_LOSS_SCALE)
        return arena_text(&m->arena, "{ RT_CONSTANT, %d, 0 }", FIRST_LOSS_SCALE);
    if (kind != PORT_PARAM)
        return "{ RT_ZEROS, 0, 0 }";
    return arena_text(&m->arena, "{ %s, %s, %s }", kinds[param->init], number_text(m, param->a),
                      number_text(m, param->b));
}

static const char *held_by(Module *m, const Value *value)
{
    const RankSet on = value->type.on;
    return on.at ? arena_text(&m->arena, "0x%llx", (unsigned long long)on.at) : NULL;
}

static void write_tensor(Module *m, const Value *value, FILE *out)
{
    const Port port = value->port;
    const Param *param = port.of ? find_param(m, port.of) : NULL;
    const char *path = param ? param->path : NULL;
    const Field fields[] = {
        { "name", string_text(m, path) },
        { "like", param && param->like && !port.slot ? string_text(m, find_param(m, param->like)->path) : NULL },
        { "state", stored_as(port) ? string_text(m, stored_as(port)) : NULL },
        { "type", element_constant(value->type.dtype) },
        { "rank", integer_text(m, value->type.rank) },
        { "copies", integer_text(m, param ? repeats_around(param) : 0) },
        { "first_copy", param && param->first ? integer_text(m, param->first) : NULL },
        { "skipped_copies", param && param->skips ? integer_text(m, param->skips) : NULL },
        { "dim", dim_list(m, value, 0) },
        { "size", dim_list(m, value, 1) },
        { "padded", dim_list(m, value, 3) },
        { "stride", dim_list(m, value, 2) },
        { "split", splits_text(m, &value->type) },
        { "stages", held_by(m, value) },
        { "stage_axis", value->type.on.at ? integer_text(m, value->type.on.axis) : NULL },
        { "offset", integer_text(m, value->storage->at) },
        { "stored_bytes", integer_text(m, span_bytes(m, value)) },
        { "init", init_text(m, port.kind, param) },
        { NULL, NULL },
    };
    fprintf(out, "%s,\n", initialiser_text(m, fields));
}

static void write_tensors(Module *m, const Func *step, FILE *out)
{
    open_table("RtTensor", "tensors", out);
    for (int i = first_state(step); i < step->params.count; i++)
        if (step->params.at[i]->port.kind != PORT_LEFT) /* no other program reads it */
            write_tensor(m, step->params.at[i], out);
    close_table(out);
}

/* --- Kernels ------------------------------------------------------------------------------- */

static void write_kernels(Host *h, FILE *out)
{
    enum { WIDTH = 120 };
    Module *m = h->m;
    fputs("static const RtKernel kernels[] = {\n", out);
    for (int i = 0; i < h->nrows; i++) {
        const KernelRow *row = &h->row[i];
        const char *const fields[] = { string_text(m, row->name), string_text(m, row->where), string_text(m, row->kind),
                                       number_text(m, row->flops), number_text(m, row->bytes) };
        const char *line =
            arena_text(&m->arena, "    { %s, %s, %s, %s, %s },", fields[0], fields[1], fields[2], fields[3], fields[4]);
        if (strlen(line) <= WIDTH)
            fprintf(out, "%s\n", line);
        else
            fprintf(out, "    {\n        %s,\n        %s,\n        %s,\n        %s,\n        %s,\n    },\n", fields[0],
                    fields[1], fields[2], fields[3], fields[4]);
    }
    fputs("};\n\n", out);
}

void write_products(Host *h, FILE *out)
{
    if (h->products.count == 0)
        return;
    open_table("RtProductShape", "products", out);
    for (int i = 0; i < h->products.count; i++)
        fprintf(out, "%s,\n", h->products.at[i]);
    close_table(out);
    FILL(out,
         "static void create_products(Rt *rt)\n"
         "{\n"
         "    for (int i = 0; i < $count; i++)\n"
         "        rt_product_create(rt, i, products[i]);\n"
         "}\n\n",
         { "count", integer_text(h->m, h->products.count) });
}

/* --- Functions ----------------------------------------------------------------------------- */

/* The address of a value; -1: no value. */
static int64_t place_of(const Value *value) { return value ? value->storage->at : -1; }
static int64_t place_fed(const Func *f, PortKind kind) { return place_of(param_for(f, kind, NULL)); }

/* Fields that follow others, a line each. */
static void write_fields(int indent, const Field fields[], FILE *out)
{
    for (; fields->name; fields++)
        if (fields->value)
            fprintf(out, "%*s.%s = %s,\n", indent, "", fields->name, fields->value);
}

static void write_scalars(Module *m, const Func *f, FILE *out)
{
    const Field fields[] = {
        { "step", integer_text(m, place_fed(f, PORT_STEP_NUMBER)) },
        { "lr", integer_text(m, place_fed(f, PORT_LEARNING_RATE)) },
        { "key", integer_text(m, place_fed(f, PORT_DROPOUT_KEY)) },
        { "pending", integer_text(m, place_fed(f, PORT_PENDING)) },
        { "position", integer_text(m, place_fed(f, PORT_POSITION)) },
        { "loss", integer_text(m, place_of(result_for(f, PORT_LOSS))) },
        { "grad_norm", integer_text(m, place_of(result_for(f, PORT_GRADIENT_NORM))) },
        { "loss_scale", integer_text(m, place_fed(f, PORT_LOSS_SCALE)) },
        { "skipped_steps", integer_text(m, place_fed(f, PORT_SKIPPED_STEPS)) },
        { NULL, NULL },
    };
    fputs("        .scalars = {\n", out);
    write_fields(12, fields, out);
    fputs("        },\n", out);
}

/* What a function leaves for the trainer: how many labels count in each mean; from an evaluation also the divisor that
 * the trainer sets; from a step also the loads of experts, which are logged. */
static void write_left(Module *m, const Func *f, PortKind kind, const char *type, const char *field, FILE *out)
{
    char *text = "";
    int count = 0;
    for (int i = 0; i < f->results.count; i++) {
        const Port port = result_port(f, i);
        const Value *value = f->results.at[i];
        const char *place = integer_text(m, place_of(value));
        if (port.kind == kind)
            text = arena_text(&m->arena, "%s%s{ %s, %s }", text, count++ ? ", " : "",
                              kind == PORT_TOTAL ? integer_text(m, place_of(param_with(f, port))) : place,
                              kind == PORT_TOTAL ? place : integer_text(m, element_count(&value->type)));
    }
    if (count)
        fprintf(out, "        .%s = (const %s[]){ %s },\n        .n%s = %d,\n", field, type, text, field, count);
}

/* Values that the trainer writes to files, each rank its part. */
static void write_results(Module *m, const Func *f, FILE *out)
{
    open_table("RtTensor", "results", out);
    for (int i = 0; i < f->results.count; i++) {
        const Value *value = f->results.at[i];
        const Field fields[] = { { "name", string_text(m, result_port(f, i).of) },
                                 { "type", element_constant(value->type.dtype) },
                                 { "rank", integer_text(m, value->type.rank) },
                                 { "size", dim_list(m, value, 1) },
                                 { "padded", dim_list(m, value, 3) },
                                 { "stride", dim_list(m, value, 2) },
                                 { "split", splits_text(m, &value->type) },
                                 { "stages", held_by(m, value) },
                                 { "stage_axis", value->type.on.at ? integer_text(m, value->type.on.axis) : NULL },
                                 { "offset", integer_text(m, place_of(value)) },
                                 { NULL, NULL } };
        fprintf(out, "%s,\n", initialiser_text(m, fields));
    }
    close_table(out);
}

/* How many logits a prediction has. */
static int64_t logits_of(const Func *f)
{
    const Type *type = &result_for(f, PORT_LOGITS)->type; /* [batch:1, vocab] */
    return type->dim[type->rank - 1].size;
}

/* Absent functions are zero-initialised. */
static void write_function(Host *h, FuncRole role, FILE *out)
{
    Module *m = h->m;
    const Func *f = func_with_role(m, role);
    if (!f)
        return;
    const InputShape shape = input_shape(m, f);
    int inputs = count_inputs(m, f);
    fprintf(out, "    .%s = {\n", role_name[role]);
    const Field places[] = {
        { "run", host_func(h, f)->name },
        { "inputs", inputs ? arena_text(&m->arena, "%s_inputs", role_name[role]) : "NULL" },
        { "ninputs", integer_text(m, inputs) },
        { "kinds", kinds_of(h, f) },
        { NULL, NULL },
    };
    write_fields(8, places, out);
    write_scalars(m, f, out);
    const Field sizes[] = {
        { "micro", integer_text(m, shape.micro) },
        { "batch", integer_text(m, shape.batch) },
        { "seq", integer_text(m, shape.seq) },
        { "logits", integer_text(m, place_of(result_for(f, PORT_LOGITS))) },
        { "results", role == OUTPUTS ? "results" : NULL },
        { "nresults", role == OUTPUTS ? integer_text(m, f->results.count) : NULL },
        { NULL, NULL },
    };
    write_fields(8, sizes, out);
    write_left(m, f, PORT_TOTAL, "RtTotal", "totals", out);
    const Field facts[] = {
        { "mixes", role == EVAL && m->mixes ? string_text(m, m->mixes) : NULL },
        { "auxiliary", role == EVAL && m->auxiliary ? string_text(m, m->auxiliary) : NULL },
        { "choices", role == PREDICT ? integer_text(m, logits_of(f)) : NULL },
        { NULL, NULL },
    };
    write_fields(8, facts, out);
    write_left(m, f, PORT_LOAD, "RtMeasure", "loads", out);
    write_left(m, f, PORT_DROPPED, "RtMeasure", "dropped", out);
    fputs("    },\n", out);
}

/* --- The program --------------------------------------------------------------------------- */

static const char *schedule_text(Module *m)
{
    static const char *const kinds[N_Schedule] = { "RT_CONSTANT_LR", "RT_CONSTANT_LR", "RT_LINEAR", "RT_COSINE",
                                                   "RT_WSD" };
    const Train *t = &m->train;
    return arena_text(
        &m->arena, "{ %s, .lr = %s, .min_lr = %s, .warmup = %" PRId64 ", .steps = %" PRId64 ", .decay = %" PRId64 " }",
        kinds[t->schedule], number_text(m, t->lr), number_text(m, t->min_lr), t->warmup, t->steps, t->decay);
}

/* Text as string literals, one per line, within the line width of the file. */
static void write_literals(Module *m, const char *name, const char *text, FILE *out)
{
    enum { ROOM = 72 }; /* what is quoted gets longer */
    fprintf(out, "/* clang-format off */\nstatic const char %s[] =", name);
    while (*text) {
        int length = (int)strnlen(text, ROOM);
        while (((unsigned char)text[length] & 0xC0) == 0x80) /* not inside a character */
            length++;
        fprintf(out, "\n    %s", string_text(m, arena_text(&m->arena, "%.*s", length, text)));
        text += length;
    }
    fputs(";\n/* clang-format on */\n\n", out);
}

static int64_t vocabulary(const Module *m)
{
    for (const Input *input = m->inputs; input; input = input->next)
        if (input->vocab > 0)
            return input->vocab;
    return 0;
}

static void write_axes(const Module *m, FILE *out)
{
    if (m->naxes == 0)
        return;
    fputs("static const RtAxis axes[] = {\n", out);
    for (int i = 0; i < m->naxes; i++)
        fprintf(out, "    { \"%s\", %" PRId64 " },\n", m->axis[i], m->axis_size[i]);
    fputs("};\n\n", out);
}

/* Products are created and shard offsets set when the program starts. */
static void write_create(const Host *h, FILE *out)
{
    if (h->offsets.count)
        fprintf(out, "static void create(Rt *rt)\n{\n    find_offsets(rt);\n%s}\n\n",
                h->products.count ? "    create_products(rt);\n" : "");
}

static const char *create_function(const Host *h)
{
    return h->offsets.count ? "create" : h->products.count ? "create_products" : "NULL";
}

static void write_program(Host *h, TrainerTexts texts, FILE *out)
{
    Module *m = h->m;
    const Totals totals = program_totals(m);
    const int64_t arena = func_with_role(m, STEP)->frame, far = far_bytes(m);
    const bool has_mesh = m->naxes > 0, collects = has_mesh && h->ncollectives;
    const Field names[] = {
        { "name", string_text(m, m->name) },
        { "source", string_text(m, m->source ? m->source : "IR") },
        { "axes", has_mesh ? "axes" : NULL },
        { "naxes", has_mesh ? integer_text(m, m->naxes) : NULL },
        { "comm", has_mesh ? arena_text(&m->arena, "&rt_%s", texts.comm) : NULL },
        { "collectives", collects ? "collectives" : NULL },
        { "ncollectives", collects ? "sizeof collectives / sizeof *collectives" : NULL },
        { NULL, NULL },
    };
    const Field facts[] = {
        { "tensors", "tensors" },
        { "ntensors", "sizeof tensors / sizeof *tensors" },
        { "kernels", "kernels" },
        { "nkernels", "sizeof kernels / sizeof *kernels" },
        { "arena_bytes", integer_text(m, arena) },
        { "state_bytes", integer_text(m, h->state_bytes) },
        { "far_begin", far ? integer_text(m, far_begin(arena)) : NULL },
        { "far_bytes", far ? integer_text(m, far) : NULL },
        { "ntransfers", far ? integer_text(m, h->ntransfers) : NULL },
        { "far_folder", far && m->train.offload_folder ? string_text(m, m->train.offload_folder) : NULL },
        { "flops_per_step", number_text(m, totals.flops) },
        { "tokens_per_step", integer_text(m, totals.micro * totals.batch * totals.seq) },
        { "takes_records", is_fed_records(m) ? "true" : NULL },
        { "vocab", integer_text(m, vocabulary(m)) },
        { "schedule", schedule_text(m) },
        { "seed", integer_text(m, m->train.seed) },
        { "precision", string_text(m, Precision_words[m->train.precision ? m->train.precision : PRECISION_FP32]) },
        { "optimizer", m->train.optimizer ? string_text(m, m->train.optimizer) : NULL },
        { "is_causal_lm", func_with_role(m, PREDICT) ? "true" : "false" },
        { NULL, NULL },
    };
    fputs("static const RtProgram program = {\n", out);
    write_fields(4, names, out);
    fputs(h->dialect->fields(h), out);
    write_fields(4, facts, out);
    for (int i = 0; i < N_PROGRAMS; i++)
        write_function(h, programs[i], out);
    fprintf(out, "    .create = %s,\n    .plan = plan,\n    .needed = rt_needed,\n};\n", create_function(h));
}

void write_tables(Host *h, TrainerTexts texts, FILE *out)
{
    Module *m = h->m;
    write_axes(m, out);
    write_collectives(h, out);
    write_tensors(m, func_with_role(m, STEP), out);
    write_kernels(h, out);
    for (int i = 0; i < N_PROGRAMS; i++)
        if (func_with_role(m, programs[i]))
            write_inputs(m, func_with_role(m, programs[i]), role_name[programs[i]], out);
    if (func_with_role(m, OUTPUTS))
        write_results(m, func_with_role(m, OUTPUTS), out);
    write_literals(m, "plan", texts.plan, out);
    write_create(h, out);
    write_program(h, texts, out);
}
