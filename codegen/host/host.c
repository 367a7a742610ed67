/* host.c -- trainer.c: kernels, products, functions, tables, main. */
#include "host_parts.h"

#include "extent.h"

#include <string.h>

static char *head_text(const Host *h, TrainerTexts texts)
{
    Module *m = h->m;
    return FILLED(
        &m->arena,
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
}

static const char lightly_optimized[] = "#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__)\n"
                                        "/* Functions only call kernels: optimizing them as kernels are gains nothing, "
                                        "and takes a quarter of the time. */\n"
                                        "#pragma GCC optimize(\"O1\", \"no-inline-functions-called-once\")\n"
                                        "#endif\n\n";

static char *products_text(Host *h)
{
    Text text;
    open_text(&text);
    fputs("/* --- Products --- */\n\n", text.out);
    write_products(h, text.out);
    return close_text(&h->m->arena, &text);
}

static char *functions_text(Host *h)
{
    Arena *arena = &h->m->arena;
    const char *frames = close_text(arena, &h->frame_tables);
    const char *title = *frames ? "/* --- Frames: what each kind of rank leaves out --- */\n\n" : "";
    return arena_text(arena, "%s%s/* --- Functions --- */\n\n%s%s", title, frames, lightly_optimized,
                      close_text(arena, &h->functions));
}

static char *program_text(Host *h, TrainerTexts texts)
{
    Text text;
    open_text(&text);
    fputs("/* --- Program --- */\n\n", text.out);
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
    const char *variables = close_text(arena, &offsets), *loops = close_text(arena, &kernels);
    fprintf(out, "%s%s%s%s%s%s%s", head, parts->includes, variables, loops, parts->products, parts->functions,
            parts->program);
    parts->kernels_line = 1 + count_lines(head) + count_lines(parts->includes) + count_lines(variables);
    parts->products_line = parts->kernels_line + count_lines(loops);
    parts->functions_line = parts->products_line + count_lines(parts->products);
    parts->program_line = parts->functions_line + count_lines(parts->functions);
}

bool emit_trainer(Module *m, TrainerTexts texts, FILE *out, Units *units)
{
    Host h = { .m = m,
               .dialect = texts.cuda ? &cuda_dialect : &c_dialect,
               .cuda = texts.cuda,
               .state_bytes = state_bytes(m),
               .kinds = rank_kinds(m),
               .frames.arena = &m->arena,
               .funcs.arena = &m->arena,
               .halves.arena = &m->arena,
               .identifiers.arena = &m->arena,
               .started.arena = &m->arena };
    int errors = m->diags->errors;
    if (!check_frames(m))
        return false;
    note_identifiers(&h);
    open_text(&h.functions);
    open_text(&h.frame_tables);
    for (int i = 0; i < N_PROGRAMS; i++) {
        const Func *f = func_with_role(m, programs[i]);
        if (f) {
            host_func(&h, f);
            kinds_of(&h, f);
        }
    }
    FileParts parts = { .functions = functions_text(&h) };
    if (m->diags->errors > errors)
        return false;
    parts.includes =
        arena_text(&m->arena, "#include \"processor_features.h\"\n#include \"rt.h\"\n%s\n", h.dialect->includes);
    parts.products = products_text(&h);
    parts.program = program_text(&h, texts);
    write_file(&h, head_text(&h, texts), &parts, out);
    if (units)
        *units = texts.cuda ? (Units){ 0 } : units_of(&h, &parts);
    return true;
}
