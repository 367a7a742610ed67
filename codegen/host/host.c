/* host.c -- trainer.c: kernels, products, functions, tables, main. */
#include "host_parts.h"

#include "extent.h"
#include "stages.h"

#include <string.h>

static char *head_text(const Host *h, TrainerTexts texts)
{
    Module *m = h->m;
    Text text;
    open_text(&text);
    FILL(
        text.out,
        "/* trainer.c -- trains the model $model, written by mpc $version from $source.\n"
        " *\n"
        " *   kernels     $kernels\n"
        " *   products    of matrices, done by the runtime's library\n"
        " *   functions   run_step, run_eval, run_predict; a layer is a function that they call in a loop\n"
        " *   program     the tables by which the runtime feeds, saves and explains all this\n"
        " *\n"
        " * All memory is one arena. A tensor is an offset in it, or in the frame of a layer; mpc has seen to it that\n"
        " * tensors that are alive at one time do not share memory. At each pointer stands the shape: [batch 8, seq "
        "1024].\n"
        " */\n",
        { "model", m->name }, { "version", texts.version }, { "source", comment_text(m, m->source ? m->source : "IR") },
        { "kernels", h->dialect->kernels });
    return close_text(&m->arena, &text);
}

static const char lightly_optimized[] = "#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__)\n"
                                        "/* Functions only call kernels: optimizing them as kernels are gains nothing, "
                                        "and takes a quarter of the time. */\n"
                                        "#pragma GCC optimize(\"O1\", \"no-inline-functions-called-once\")\n"
                                        "#endif\n\n";

/* What follows the kernels. */
static char *rest_text(Host *h, TrainerTexts texts, const char *functions, const char *frames)
{
    Text text;
    open_text(&text);
    fputs("/* --- Products --- */\n\n", text.out);
    write_products(h, text.out);
    if (*frames)
        fprintf(text.out, "/* --- Frames: what each kind of rank leaves out --- */\n\n%s", frames);
    fprintf(text.out, "/* --- Functions --- */\n\n%s%s/* --- Program --- */\n\n", lightly_optimized, functions);
    write_tables(h, texts, text.out);
    fputs("\nint main(int argc, char **argv) { return rt_main(argc, argv, &program); }\n", text.out);
    return close_text(&h->m->arena, &text);
}

int count_lines(const char *text)
{
    int lines = 0;
    for (const char *at = text; (at = strchr(at, '\n')); at++)
        lines++;
    return lines;
}

static void write_file(Host *h, const char *head, FileParts *parts, FILE *out)
{
    Arena *arena = &h->m->arena;
    Text offsets, kernels;
    open_text(&offsets);
    write_offsets(h->m, &h->offsets, "static", offsets.out);
    open_text(&kernels);
    h->dialect->write_kernels(h, kernels.out);
    const char *variables = close_text(arena, &offsets), *functions = close_text(arena, &kernels);
    fprintf(out, "%s%s%s%s%s", head, parts->includes, variables, functions, parts->rest);
    parts->line = 1 + count_lines(head) + count_lines(parts->includes) + count_lines(variables);
    parts->rest_line = parts->line + count_lines(functions);
}

bool emit_trainer(Module *m, TrainerTexts texts, FILE *out, Units *units)
{
    Host h = { .m = m,
               .dialect = texts.cuda ? &cuda_dialect : &c_dialect,
               .cuda = texts.cuda,
               .pipeline = pipeline_axis(m),
               .state_bytes = state_bytes(m),
               .kinds = rank_kinds(m),
               .frames.arena = &m->arena,
               .funcs.arena = &m->arena,
               .halves.arena = &m->arena,
               .identifiers.arena = &m->arena,
               .started.arena = &m->arena };
    int errors = m->diags->errors;
    if (!check_plan(m))
        return false;
    note_identifiers(&h);
    m->offsets = &h.offsets;
    open_text(&h.functions);
    open_text(&h.frame_tables);
    for (int i = 0; i < NENTRIES; i++) {
        const Func *f = func_with_role(m, entries[i]);
        if (f) {
            host_func(&h, f);
            kinds_of(&h, f);
        }
    }
    m->offsets = NULL;
    const char *functions = close_text(&m->arena, &h.functions), *frames = close_text(&m->arena, &h.frame_tables);
    if (m->diags->errors > errors)
        return false;
    FileParts parts = { .includes = arena_text(&m->arena, "#include \"processor_features.h\"\n#include \"rt.h\"\n%s",
                                               h.dialect->includes),
                        .rest = rest_text(&h, texts, functions, frames) };
    write_file(&h, head_text(&h, texts), &parts, out);
    if (units)
        *units = texts.cuda ? (Units){ 0 } : units_of(&h, &parts);
    return true;
}
