/* host.c -- trainer.c: kernels, products, functions, tables, main. */
#include "host_parts.h"

#include "extent.h"
#include "stages.h"

static void write_head(const Host *h, TrainerTexts texts, FILE *out)
{
    Module *m = h->m;
    FILL(
        out,
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
        " */\n"
        "#include \"processor_features.h\"\n"
        "#include \"rt.h\"\n"
        "$includes\n",
        { "model", m->name }, { "version", texts.version }, { "source", comment_text(m, m->source ? m->source : "IR") },
        { "kernels", h->dialect->kernels }, { "includes", h->dialect->includes });
}

static const char lightly_optimized[] = "#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__)\n"
                                        "/* Functions only call kernels: optimizing them as kernels are gains nothing, "
                                        "and takes a quarter of the time. */\n"
                                        "#pragma GCC optimize(\"O1\", \"no-inline-functions-called-once\")\n"
                                        "#endif\n\n";

bool emit_trainer(Module *m, TrainerTexts texts, FILE *out)
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
    open_text(&h.kernels);
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
    char *kernels = close_text(&m->arena, &h.kernels), *functions = close_text(&m->arena, &h.functions);
    const char *frames = close_text(&m->arena, &h.frame_tables);
    if (m->diags->errors > errors)
        return false;
    write_head(&h, texts, out);
    write_offsets(m, &h.offsets, out);
    h.dialect->write_kernels(&h, kernels, out);
    fputs("/* --- Products --- */\n\n", out);
    write_products(&h, out);
    if (*frames)
        fprintf(out, "/* --- Frames: what each kind of rank leaves out --- */\n\n%s", frames);
    fprintf(out, "/* --- Functions --- */\n\n%s%s/* --- Program --- */\n\n", lightly_optimized, functions);
    write_tables(&h, texts, out);
    fputs("\nint main(int argc, char **argv) { return rt_main(argc, argv, &program); }\n", out);
    return true;
}
