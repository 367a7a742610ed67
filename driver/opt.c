/* opt.c -- mpc opt and mpc print: IR in, IR out. */
#include "driver.h"

#include "manager/pass.h"
#include "model_explorer.h"

#include <stdlib.h>
#include <string.h>

static bool write_ir(Run *run, Module *m)
{
    const char *path = run->options->output;
    if (path) {
        char *text = module_text(m);
        bool good = write_new(run, path, text);
        free(text);
        return good;
    }
    print_module(m, stdout);
    return true;
}

static Module *read_ir(Run *run) { return read_source(run, run->options->operand) ? parse_ir(run) : NULL; }

int run_print(Run *run)
{
    Module *m = read_ir(run);
    const char *picture = run->options->model_explorer;
    bool good = m && (!picture || write_model_explorer(run, m, picture)) && write_ir(run, m);
    if (m)
        free_module(m);
    return good ? STATUS_OK : STATUS_FAILED;
}

int run_opt(Run *run)
{
    const Options *o = run->options;
    if (!o->pass)
        return usage_error(o->command, "no pass is given: use --pass=PASS,... ('mpc help opt' lists them)");
    Module *m = read_ir(run);
    PassOptions passes = {
        .only = o->pass, .dump_dir = o->dump_ir, .remarks = o->remarks, .times = o->time ? stderr : NULL
    };
    bool good = m && (!o->verify_passes || verify_copy(run, (VerifyOptions){ .only = o->pass }));
    good = good && run_passes(m, &passes) && write_ir(run, m);
    if (m)
        free_module(m);
    return good ? STATUS_OK : STATUS_FAILED;
}
