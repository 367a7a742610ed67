/* program.c -- the tables of RtProgram: the data about a program that the runtime needs to run, save and report it.
 *
 * A table row is on one line if it fits; otherwise each field is on its own line, with a comma after the last, as in
 * clang-format.
 */
#include "codegen.h"
#include "host_parts.h"
#include "tier.h"

#include <inttypes.h>
#include <math.h>
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

static int count_copies(const char *path)
{
    int copies = 0;
    for (; path && *path; path++)
        copies += *path == '*';
    return copies;
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
        { "copies", integer_text(m, count_copies(path)) },
        { "first_copy", param && param->first ? integer_text(m, param->first) : NULL },
        { "skipped_copies", param && param->skips ? integer_text(m, param->skips) : NULL },
        { "dim", dim_list(m, value, 0) },
        { "size", dim_list(m, value, 1) },
        { "padded", dim_list(m, value, 3) },
        { "stride", dim_list(m, value, 2) },
        { "split", splits_text(m, &value->type) },
        { "stages", value->type.on.at ? arena_text(&m->arena, "0x%llx", (unsigned long long)value->type.on.at) : NULL },
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

static void write_scalars(Module *m, const Func *f, FILE *out)
{
    FILL(out,
         "        .scalars = {\n"
         "            .step = $step,\n"
         "            .lr = $lr,\n"
         "            .key = $key,\n"
         "            .pending = $pending,\n"
         "            .loss = $loss,\n"
         "            .grad_norm = $norm,\n"
         "            .loss_scale = $scale,\n"
         "            .skipped_steps = $skipped,\n"
         "        },\n",
         { "step", integer_text(m, place_fed(f, PORT_STEP_NUMBER)) },
         { "lr", integer_text(m, place_fed(f, PORT_LEARNING_RATE)) },
         { "key", integer_text(m, place_fed(f, PORT_DROPOUT_KEY)) },
         { "pending", integer_text(m, place_fed(f, PORT_PENDING)) },
         { "loss", integer_text(m, place_of(result_for(f, PORT_LOSS))) },
         { "norm", integer_text(m, place_of(result_for(f, PORT_GRADIENT_NORM))) },
         { "scale", integer_text(m, place_fed(f, PORT_LOSS_SCALE)) },
         { "skipped", integer_text(m, place_fed(f, PORT_SKIPPED_STEPS)) });
}

/* Elements between the logits of two positions: the stride of the sequence's dim. */
static int64_t logits_stride(Module *m, const Func *f)
{
    const Value *logits = result_for(f, PORT_LOGITS);
    for (int i = 0; i < logits->type.rank; i++)
        if (logits->type.dim[i].name != m->batch && logits->type.dim[i].name != m->vocab)
            return logits->storage->stride[i];
    return 0;
}

/* How many labels count in each mean, and, of an evaluation, the divisor that the trainer sets. */
static void write_totals(Module *m, const Func *f, FILE *out)
{
    char *text = "";
    int count = 0;
    for (int i = 0; i < f->results.count; i++) {
        const Port port = result_port(f, i);
        if (port.kind == PORT_TOTAL)
            text =
                arena_text(&m->arena, "%s%s{ %s, %s }", text, count++ ? ", " : "",
                           integer_text(m, place_of(param_with(f, port))), integer_text(m, place_of(f->results.at[i])));
    }
    if (count)
        fprintf(out, "        .totals = (const RtTotal[]){ %s },\n        .ntotals = %d,\n", text, count);
}

/* Of a step: what the trainer logs of experts. */
static void write_measures(Module *m, const Func *f, PortKind kind, const char *field, FILE *out)
{
    char *text = "";
    int count = 0;
    for (int i = 0; i < f->results.count; i++) {
        const Value *value = f->results.at[i];
        if (result_port(f, i).kind == kind)
            text = arena_text(&m->arena, "%s%s{ %s, %s }", text, count++ ? ", " : "", integer_text(m, place_of(value)),
                              integer_text(m, element_count(&value->type)));
    }
    if (count)
        fprintf(out, "        .%s = (const RtMeasure[]){ %s },\n        .n%s = %d,\n", field, text, field, count);
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
    bool is_predict = role == PREDICT;
    FILL(out,
         "    .$field = {\n"
         "        .run = $run,\n"
         "        .inputs = $inputs,\n"
         "        .ninputs = $count,\n"
         "        .kinds = $kinds,\n",
         { "field", role_name[role] }, { "run", host_func(h, f)->name },
         { "inputs", inputs ? arena_text(&m->arena, "%s_inputs", role_name[role]) : "NULL" },
         { "count", integer_text(m, inputs) }, { "kinds", kinds_of(h, f) });
    write_scalars(m, f, out);
    FILL(out,
         "        .micro = $micro,\n"
         "        .batch = $batch,\n"
         "        .seq = $seq,\n"
         "        .logits = $logits,\n"
         "        .logits_stride = $stride,\n",
         { "micro", integer_text(m, shape.micro) }, { "batch", integer_text(m, shape.batch) },
         { "seq", integer_text(m, shape.seq) }, { "logits", integer_text(m, place_of(result_for(f, PORT_LOGITS))) },
         { "stride", integer_text(m, is_predict ? logits_stride(m, f) : 0) });
    write_totals(m, f, out);
    if (role == EVAL && m->mixes)
        fprintf(out, "        .mixes = %s,\n", string_text(m, m->mixes));
    if (role == EVAL && m->auxiliary)
        fprintf(out, "        .auxiliary = %s,\n", string_text(m, m->auxiliary));
    write_measures(m, f, PORT_LOAD, "loads", out);
    write_measures(m, f, PORT_DROPPED, "dropped", out);
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

static char *mesh_fields(const Host *h, TrainerTexts texts)
{
    Module *m = h->m;
    if (m->naxes == 0)
        return "";
    return arena_text(&m->arena, "    .axes = axes,\n    .naxes = %d,\n    .comm = &rt_%s,\n%s", m->naxes, texts.comm,
                      h->ncollectives ? "    .collectives = collectives,\n"
                                        "    .ncollectives = sizeof collectives / sizeof *collectives,\n"
                                      : "");
}

/* Products are created and shard offsets set when the program starts. */
static void write_create(const Host *h, FILE *out)
{
    if (h->offsets.count)
        fprintf(out, "static void create(Rt *rt)\n{\n    find_offsets(rt);\n%s}\n\n",
                h->products.count ? "    create_products(rt);\n" : "");
}

static char *far_fields(const Host *h)
{
    Module *m = h->m;
    const int64_t bytes = far_bytes(m);
    if (!bytes)
        return "";
    return arena_text(&m->arena,
                      "    .far_begin = %" PRId64 ",\n    .far_bytes = %" PRId64 ",\n    .ntransfers = %d,\n%s",
                      far_begin(func_with_role(m, STEP)->frame), bytes, h->ntransfers,
                      m->train.offload_folder
                          ? arena_text(&m->arena, "    .far_folder = %s,\n", string_text(m, m->train.offload_folder))
                          : "");
}

static void write_program(Host *h, TrainerTexts texts, FILE *out)
{
    Module *m = h->m;
    Totals totals = program_totals(m);
    FILL(out,
         "static const RtProgram program = {\n"
         "    .name = $name,\n"
         "    .source = $source,\n"
         "$mesh"
         "$target"
         "    .tensors = tensors,\n"
         "    .ntensors = sizeof tensors / sizeof *tensors,\n"
         "    .kernels = kernels,\n"
         "    .nkernels = sizeof kernels / sizeof *kernels,\n"
         "    .arena_bytes = $arena,\n"
         "    .state_bytes = $state,\n"
         "$far"
         "    .flops_per_step = $flops,\n"
         "    .tokens_per_step = $tokens,\n"
         "$records"
         "    .vocab = $vocab,\n"
         "    .schedule = $schedule,\n"
         "    .seed = $seed,\n"
         "    .precision = $precision,\n"
         "    .is_causal_lm = $causal,\n",
         { "name", string_text(m, m->name) }, { "source", string_text(m, m->source ? m->source : "IR") },
         { "mesh", mesh_fields(h, texts) }, { "target", h->dialect->fields(h) },
         { "arena", integer_text(m, func_with_role(m, STEP)->frame) }, { "state", integer_text(m, h->state_bytes) },
         { "far", far_fields(h) }, { "flops", number_text(m, totals.flops) },
         { "tokens", integer_text(m, totals.micro * totals.batch * totals.seq) },
         { "records", is_fed_records(m) ? "    .takes_records = true,\n" : "" },
         { "vocab", integer_text(m, vocabulary(m)) }, { "schedule", schedule_text(m) },
         { "seed", integer_text(m, m->train.seed) },
         { "precision", string_text(m, Precision_words[m->train.precision ? m->train.precision : PRECISION_FP32]) },
         { "causal", func_with_role(m, PREDICT) ? "true" : "false" });
    for (int i = 0; i < N_PROGRAMS; i++)
        write_function(h, programs[i], out);
    FILL(out, "    .create = $create,\n    .plan = plan,\n    .needed = rt_needed,\n};\n",
         { "create", h->offsets.count    ? "create"
                     : h->products.count ? "create_products"
                                         : "NULL" });
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
    write_literals(m, "plan", texts.plan, out);
    write_create(h, out);
    write_program(h, texts, out);
}
