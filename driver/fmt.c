/* fmt.c -- mpc fmt: prints, checks or rewrites the layout of a .mdl file. */
#include "driver.h"

#include "format.h"

#include <stdlib.h>
#include <string.h>

static bool is_readable(Run *run)
{
    parse_mdl(&run->source, &run->diags, &run->arena);
    return run->diags.errors == 0;
}

static char *layout_of(const Run *run)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memory(&text, &size);
    write_formatted(run->source.text, run->source.length, out);
    fclose(out);
    return text;
}

static bool use_layout(Run *run, const char *text)
{
    const Options *o = run->options;
    bool same = strlen(text) == (size_t)run->source.length && memcmp(text, run->source.text, strlen(text)) == 0;
    if (o->check && !same)
        return run_failed(run, "%s is not formatted: 'mpc fmt --write %s' rewrites it", run->source.path,
                          run->source.path);
    if (o->check || (o->write && same))
        return true;
    run->input = (struct stat){ 0 }; /* the file to be overwritten */
    if (o->write)
        return write_new(run, run->source.path, text);
    fputs(text, stdout);
    return true;
}

int run_fmt(Run *run)
{
    const Options *o = run->options;
    if (o->write && strcmp(o->operand, "-") == 0)
        return usage_error(o->command, "--write needs a file to write to, not standard input");
    if (!read_source(run, o->operand) || !is_readable(run))
        return STATUS_FAILED;
    char *text = layout_of(run);
    bool good = use_layout(run, text);
    free(text);
    return good ? STATUS_OK : STATUS_FAILED;
}
